"""What notices do to the records that this process holds, and which listeners a person has paused."""

from collections.abc import Iterable

from redrive.core.commands import Command, Report, Run
from redrive.core.lane import Lane
from redrive.core.notices import Board, Notice, Posted
from redrive.core.pausing import Pausing
from redrive.core.plan import Now
from redrive.core.record import RawRecord
from redrive.core.successors import Successors
from redrive.core.waiting import WaitingRoom


class Heeding:
    """
    The engine's ear for notices (`notices.py`): told of new ones, and of records that come to be held, it does with these
    what the notices say.

    What is hurried is due since its notice was made. What is discarded is no longer held, and its offset stays open until
    its end was written down. Records that are with a worker already are left alone. Doing it again changes nothing.
    """

    def __init__(self, outbox: list[Command], successors: Successors, waiting: WaitingRoom) -> None:
        self._outbox = outbox
        self._successors = successors
        self._waiting = waiting
        self._board = Board()
        #: What paused listeners were paused by, by their names.
        self.paused: dict[str, Pausing] = {}

    def post(self, said: Iterable[Posted | Pausing], now: Now) -> None:
        """
        A person wants a listener paused or resumed, or records hurried, discarded or skipped. The engine's next tick starts
        what is due then.
        """
        posted: list[Posted] = []
        for one in said:
            if isinstance(one, Posted):
                posted.append(one)
            else:
                self._pause(one)
        if posted:
            self._post(posted, now)

    def _pause(self, pausing: Pausing) -> None:
        was_paused = pausing.listener in self.paused
        if pausing.action == "pause":
            self.paused[pausing.listener] = pausing
        else:
            self.paused.pop(pausing.listener, None)
        if was_paused != (pausing.listener in self.paused):
            fields = {
                "listener": pausing.listener,
                "who": pausing.who or "somebody",
                "why": pausing.why or "no reason given",
            }
            event = "listener-resumed" if was_paused else "listener-paused"
            self._outbox.append(Report(event, fields))

    def _post(self, posted: Iterable[Posted], now: Now) -> None:
        if refused := sum(not self._board.post(one) for one in posted):
            self._outbox.append(Report("notices-full", {"count": refused}))
        lanes = [lane for lane in self._waiting.lanes if lane.offsets.started]
        self._board.prune({lane.key: lane.offsets.frontier for lane in lanes})
        for lane in lanes:
            if lane.key in self._board:
                self._heed(lane, now)

    def fetched(self, lane: Lane, records: list[RawRecord], now: Now) -> None:
        """These records, ascending, came into the lane's windows."""
        if lane.key not in self._board or not records:
            return
        if self._board.covers(lane.key, records[0].offset(), records[-1].offset() + 1):
            self._heed(lane, now)

    def gave_back(self, run: Run, done: int, now: Now) -> None:
        """What the run left undone came back into its lane's window."""
        if done < run.count and run.lane.key in self._board:
            self._heed(run.lane, now)

    def ends(self, lane: Lane, offset: int) -> Notice | None:
        """The notice by which a record that failed ends here: it isn't tried again, and no dead letter."""
        if lane.key not in self._board:
            return None
        notice = self._board.about(lane.key, [offset]).get(offset)
        return None if notice is None or notice.action == "hurry" else notice

    def skip(self, lane: Lane, record: RawRecord, notice: Notice, now: Now) -> None:
        """Get past a record whose offset is open: it ends here."""
        self._successors.end(lane, record, notice, now)
        fields = {**_fields(lane, notice, 1), "topic": lane.key.topic, "offset": record.offset()}
        self._outbox.append(Report("record-skipped", {**fields, "listener": lane.listener.plan.name}))

    def _heed(self, lane: Lane, now: Now) -> None:
        held = sorted(
            record.offset() for window in (lane.window, lane.reposts) for record in window.records()
        )
        about = self._board.about(lane.key, held)

        def is_meant(wake_ms: int, record: RawRecord) -> bool:
            notice = about.get(record.offset())
            return notice is not None and (notice.action != "hurry" or wake_ms > notice.when_ms)

        counts: dict[str, tuple[Notice, int]] = {}
        for _, record in (*lane.window.pull(is_meant), *lane.reposts.pull(is_meant)):
            notice = about[record.offset()]
            counts[notice.job] = notice, counts.get(notice.job, (notice, 0))[1] + 1
            if notice.action == "skip":
                self.skip(lane, record, notice, now)
            elif notice.action == "discard":
                self._successors.end(lane, record, notice, now)
            else:
                lane.window.hold(notice.when_ms, record)
        for notice, count in counts.values():
            fields = _fields(lane, notice, count)
            if notice.action == "discard":
                self._outbox.append(Report("retries-discarded", fields))
            elif notice.action == "hurry":
                self._outbox.append(Report("retries-hurried", fields))
        self._waiting.expect(lane)


def _fields(lane: Lane, notice: Notice, count: int) -> dict[str, object]:
    return {
        "count": count,
        "tier": lane.key.topic,
        "partition": lane.key.partition,
        "state": lane.listener.plan.state,
        "who": notice.who or "somebody",
        "job": notice.job,
        "why": notice.why or "no reason given",
    }
