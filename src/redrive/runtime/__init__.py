"""The loops: they perform what the core decided, over ports, and decide nothing themselves."""
