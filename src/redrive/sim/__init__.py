"""A simulated cluster and a virtual clock: real implementations of the ports."""
