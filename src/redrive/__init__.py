"""redrive makes Kafka consumers survive failure."""

from redrive._version import __version__
from redrive.app import App
from redrive.core.failure import Failures, Kind
from redrive.core.policy import Backoff, RetryPolicy
from redrive.core.record import LastFailure, Record
from redrive.core.settings import Settings
from redrive.deadletters.dead_letter import DeadLetter
from redrive.errors import (
    DeadLetterNow,
    DecodeError,
    EnvelopeError,
    ForkedHandle,
    HandlerSignal,
    ListenerError,
    ListenerStopped,
    MissingExtra,
    PortError,
    Problem,
    RedriveError,
    ReplayRefused,
    RetryLater,
    SettingsError,
    Skip,
    TopologyError,
)
from redrive.runtime.declaration import Serving

__all__ = [
    "App",
    "Backoff",
    "DeadLetter",
    "DeadLetterNow",
    "DecodeError",
    "EnvelopeError",
    "Failures",
    "ForkedHandle",
    "HandlerSignal",
    "Kind",
    "LastFailure",
    "ListenerError",
    "ListenerStopped",
    "MissingExtra",
    "PortError",
    "Problem",
    "Record",
    "RedriveError",
    "ReplayRefused",
    "RetryLater",
    "RetryPolicy",
    "Serving",
    "Settings",
    "SettingsError",
    "Skip",
    "TopologyError",
    "__version__",
]
