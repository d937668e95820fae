"""
The numbers behind the metrics: plain integers, added per run of records, read by whoever exports them.

A metrics library's counter costs as much as a whole handled record; these cost nothing until they are read. Only the
engine adds; a reader in another thread sees each number whole, and none of them ever falls.
"""

from bisect import bisect_left
from collections.abc import Iterable

#: Upper bounds in seconds; the last bucket is without bound.
DURATION_BOUNDS_S = (
    1e-5,
    1e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
)
LATENESS_BOUNDS_S = (1e-3, 2e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)


class Histogram:
    """Counts by upper bound, and the sum, in seconds."""

    __slots__ = ("bounds_s", "counts", "sum_s")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self.bounds_s = bounds_s
        self.counts = [0] * (len(bounds_s) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float, count: int = 1) -> None:
        """Count `count` observations of `seconds` each."""
        self.counts[bisect_left(self.bounds_s, seconds)] += count
        self.sum_s += seconds * count

    def add_all(self, all_ms: Iterable[float]) -> None:
        """Count observations in milliseconds."""
        bounds_s, counts = self.bounds_s, self.counts
        for ms in all_ms:
            counts[bisect_left(bounds_s, ms / 1000)] += 1
            self.sum_s += ms / 1000


class ListenerCounters:
    """What became of one listener's records."""

    __slots__ = (
        "dead",
        "duration",
        "dropped",
        "duplicates",
        "envelope_errors",
        "failed_runs",
        "handled",
        "held",
        "ignored_metadata",
        "lateness",
        "lost",
        "outages",
        "parked",
        "passed_by",
        "restored",
        "retried",
        "unclean_ends",
        "write_failures",
    )

    def __init__(self, tiers: tuple[str, ...], reasons: tuple[str, ...]) -> None:
        self.handled = 0
        #: Retry records written, by tier topic.
        self.retried = dict.fromkeys(tiers, 0)
        #: Records of which a copy was written to wait in the parked topic.
        self.parked = 0
        #: Dead letters decided on, by reason.
        self.dead = dict.fromkeys(reasons, 0)
        #: Finished without a successor on purpose, by why: the handler's Skip, a person's notice, or `give_up="skip"`.
        self.dropped = dict.fromkeys(("skip", "discarded", "skipped-by-operator", *reasons), 0)
        #: Runs of the handler that failed, whatever became of the record.
        self.failed_runs = 0
        #: Records of other groups on a shared tier.
        self.passed_by = 0
        #: Second copies on a tier of what waits there already.
        self.duplicates = 0
        #: Records not run again since the owner before had finished them.
        self.restored = 0
        #: Partitions of which the commit said something that couldn't be used.
        self.ignored_metadata = 0
        #: Partitions whose owner before ended without closing its ledger.
        self.unclean_ends = 0
        #: Headers of ours that could not be read.
        self.envelope_errors = 0
        #: Writes of successors that were refused, by "retry" and "dead-letter".
        self.write_failures = {"retry": 0, "dead-letter": 0}
        #: Times that the breaker opened, and failures that were held meanwhile instead of being counted as attempts.
        self.outages = 0
        self.held = 0
        #: Records that retention deleted before this group read them.
        self.lost = 0
        self.duration = Histogram(DURATION_BOUNDS_S)
        #: Start of an attempt after its due, by tier topic.
        self.lateness = {tier: Histogram(LATENESS_BOUNDS_S) for tier in tiers}
