"""The command line: one file a command group, and the place that wires adapters."""
