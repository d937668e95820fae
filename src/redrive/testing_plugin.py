"""The pytest plugin of redrive: imports nothing until one of its fixtures is used."""
