"""The decisions: values in, values out. No I/O, no clock, no dice, no threads, no logging."""
