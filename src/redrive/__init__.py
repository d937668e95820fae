"""redrive makes Kafka consumers survive failure."""

from redrive._version import __version__

__all__ = ["__version__"]
