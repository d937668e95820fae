"""Whether the crash guard may have blamed a record that kills nothing: how often the processes ended as if one had killed them."""

from tests.explore.steps import Kind, Step
from tests.sim.fleet import KILLS_TO_BLAME, Fleet

#: After these nobody can rely on a commit that says that a process ended in order.
_MUTES = {
    "hold-commits",
    "refuse-commits",
    "refuse-commits-of",
    "brokers-away",
    "hold-transactions",
    "abort",
    "lose-outcomes",
}


class Blame:
    """Counts in one world what looks like a crash to whoever comes next."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        #: Whether commits may have failed to say that a process ended in order.
        self.is_mute = False
        self._unclean = 0
        self._deaths = 0

    def note_step(self, step: Step, kind: Kind) -> None:
        """Something is about to happen."""
        self.is_mute |= step.kind in _MUTES
        self._unclean += kind.is_unclean or (self.is_mute and step.kind == "thaw")

    def note_death(self) -> None:
        """A process died of a record."""
        self._deaths += 1

    def may_be_wrong(self) -> bool:
        """Whether processes have ended often enough by something else than records."""
        unclean = self._unclean + self._mute_revokes()
        return unclean > 0 and unclean + self._deaths >= KILLS_TO_BLAME

    def _mute_revokes(self) -> int:
        """How often partitions may have been given back without a commit that says so."""
        if not self.is_mute:
            return 0
        reports = (report for process in self._fleet.everyone for report in process.reports)
        return sum(report.event == "revoked" for report in reports)
