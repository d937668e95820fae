"""Services that tests start with `redrive run`; told by the environment what they are."""
