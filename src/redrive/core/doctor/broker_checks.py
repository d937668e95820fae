"""Checks of what redrive runs on: clocks and versions."""

from redrive.core.doctor.findings import Look, NotChecked, Severity, Spotted, Untold
from redrive.core.doctor.observed import Case, Observed
from redrive.core.units import format_duration

SKEW_MS = 1_000
#: What the package asks for; an installation can be forced to less.
OLDEST_CLIENT = (2, 13, 2)
#: Before it, an idempotent producer needs a right on the whole cluster (KIP-679).
OLDEST_BROKER = (2, 8)
#: Since when KIP-848 is there for good.
NEW_GROUPS = (4, 0)


def look_at_clocks(_: Case, observed: Observed) -> Look:
    """Clocks that differ by a second or more."""
    if isinstance(observed.newest_ms, Untold):
        yield NotChecked("topics", f"the newest timestamps aren't told: {observed.newest_ms.why}")
    else:
        for topic, newest_ms in observed.newest_ms.items():
            ahead_ms = newest_ms - observed.now_ms
            if ahead_ms >= SKEW_MS:
                yield Spotted(
                    topic,
                    f"its newest record is dated {format_duration(int(ahead_ms))} after this machine's time",
                )
    skew = observed.skew
    if isinstance(skew, Untold):
        yield NotChecked("this machine", skew.why)
    elif skew.low_ms >= SKEW_MS:
        yield Spotted(
            "this machine", f"its clock is {format_duration(int(skew.low_ms))} before the broker's, or more"
        )
    elif skew.high_ms <= -SKEW_MS:
        yield Spotted(
            "this machine", f"its clock is {format_duration(int(-skew.high_ms))} behind the broker's, or more"
        )


def look_at_versions(_: Case, observed: Observed) -> Look:
    """A client or a broker that is too old."""
    versions = observed.versions
    if versions.client < OLDEST_CLIENT:
        yield Spotted(
            "confluent-kafka",
            f"{_dotted(versions.client)} is installed, redrive needs {_dotted(OLDEST_CLIENT)} or newer",
            means="older clients lose group members under the new protocol, and delivery reports",
            mend="install a newer one",
            command=f"pip install 'confluent-kafka>={_dotted(OLDEST_CLIENT)}'",
            severity=Severity.ERROR,
        )
    broker = versions.broker
    if isinstance(broker, Untold):
        yield NotChecked("brokers", broker.why)
    elif broker < OLDEST_BROKER and not versions.at_least:
        yield Spotted(
            "brokers",
            f"Kafka {_dotted(broker)}",
            means="each service needs the right IdempotentWrite on the whole cluster, and nobody tried redrive there",
            mend=f"update the brokers to {_dotted(NEW_GROUPS)} or newer",
        )
    elif broker < NEW_GROUPS and not versions.at_least:
        yield Spotted(
            "brokers",
            f"Kafka {_dotted(broker)}",
            means="groups of the new protocol aren't there for good, so redrive takes classic ones: each rebalance stops all "
            "processes of the group for a moment",
            mend=f"update the brokers to {_dotted(NEW_GROUPS)} or newer",
            severity=Severity.INFO,
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
