"""What a check says: what it saw, what that means, what mends it; or why it couldn't look."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is."""

    #: Records are lost, never run or don't get on: now, or with the next failure.
    ERROR = "error"
    #: All goes well until something else goes wrong.
    WARNING = "warning"
    #: Good to know.
    INFO = "info"

    @property
    def rank(self) -> int:
        """The worst first."""
        return list(Severity).index(self)


@dataclass(frozen=True, slots=True)
class Untold:
    """Stands for what the cluster didn't tell: `why`, in the operator's words."""

    why: str


@dataclass(frozen=True, slots=True)
class Spotted:
    """
    One fault as a check saw it.

    `subject`: the topic, group, setting or broker. `means`, `mend`, `severity`: where they differ from the check's own.
    `command`: what mends it, ready to be pasted; empty where there is no such.
    """

    subject: str
    seen: str
    means: str = ""
    mend: str = ""
    command: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class NotChecked:
    """Something of which nobody knows whether it is as it should be, and why."""

    subject: str
    why: str


Look = Iterator[Spotted | NotChecked]


def several(count: int, what: str) -> str:
    """Gives `1 record`, `7 records`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One fault, told in full. `code` is stable: alerts and runbooks may name it. `seen`: the fault; `means`: what comes of
    it; `mend`: what to do; `command`: the same to be pasted, empty where no command does it.
    """

    code: str
    name: str
    severity: Severity
    subject: str
    seen: str
    means: str
    mend: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """One check that couldn't be made, of which subjects, and why. `needs`: the rights that it takes."""

    code: str
    name: str
    subject: str
    why: str
    needs: str


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found, the worst first, and what couldn't be checked. `checks`: how many checks were made."""

    checks: int
    findings: tuple[Finding, ...]
    unknown: tuple[Unknown, ...]

    @property
    def counts(self) -> Mapping[Severity, int]:
        """How many findings there are of each severity, the worst first."""
        return {
            severity: sum(finding.severity is severity for finding in self.findings) for severity in Severity
        }
