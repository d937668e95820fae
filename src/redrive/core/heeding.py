"""What notices do to the records that this process holds, and which listeners a person has paused."""

from collections.abc import Iterable, Mapping, Sequence

from redrive.core.commands import Command, Report, Run
from redrive.core.key_lanes import KeyLanes
from redrive.core.lane import Lane
from redrive.core.listener_state import ListenerState
from redrive.core.notices import Board, Notice, Posted
from redrive.core.pausing import Pausing
from redrive.core.plan import Now
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.resting import Rests
from redrive.core.successors import Successors
from redrive.core.waiting import WaitingRoom


class Heeding:
    """
    The engine's ear for notices (`notices.py`): told of new ones, and of records that come to be held, it does with these
    what the notices say.

    What is hurried is due since its notice was made. What is discarded is no longer held, and its offset stays open until
    its end was written down. Records that are with a worker already are left alone. Doing it again changes nothing.
    """

    def __init__(
        self,
        outbox: list[Command],
        successors: Successors,
        waiting: WaitingRoom,
        rests: Rests,
        lanes: Mapping[TopicPartition, Lane],
        listeners: Sequence[ListenerState],
    ) -> None:
        self._outbox = outbox
        self._successors = successors
        self._waiting = waiting
        self._rests = rests
        self._lanes = lanes
        self._listeners = {listener.plan.name: listener for listener in listeners}
        self._board = Board()

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
        listener = self._listeners.get(pausing.listener)
        if listener is None:
            return
        was_paused = listener.paused is not None
        listener.paused = pausing if pausing.action == "pause" else None
        if was_paused != (listener.paused is not None):
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
        lanes = [lane for lane in self._lanes.values() if lane.offsets.started]
        self._board.prune({lane.key: lane.offsets.frontier for lane in lanes})
        for lane in lanes:
            if lane.key not in self._board:
                continue
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

    def skips(self, lane: Lane, offset: int) -> Notice | None:
        """The notice by which a record is to be skipped, if there is one: also when it was running, and failed."""
        if lane.key not in self._board:
            return None
        notice = self._board.about(lane.key, [offset]).get(offset)
        return notice if _is_skip(notice) else None

    def skip_front(self, lane: Lane, now: Now) -> None:
        """Get past the first records of a source lane that are to be skipped, where no worker has anything of it."""
        # While something is out, offsets before it may still have to be opened, and they are opened in their order.
        while lane.key in self._board and lane.queue and not lane.runs and lane.queue[0].records:
            batch = lane.queue[0]
            record, *rest = batch.records
            notice = self.skips(lane, record.offset())
            if notice is None:
                return
            batch.records = rest
            lane.listener.queued -= 1
            lane.heads.drop(record.offset())
            lane.offsets.open([record.offset()])
            lane.offsets.settle(rest[0].offset() if rest else batch.end)
            if not rest:
                lane.queue.popleft()
            self.skip(lane, record, notice, now)

    def _heed_lines(self, lane: Lane, keys: KeyLanes, now: Now) -> None:
        """The same where records wait in lanes by key, their offsets open: wherever they stand in them."""
        about = self._board.about(lane.key, sorted(record.offset() for record in keys.records()))
        skipped = {offset: notice for offset, notice in about.items() if notice.action == "skip"}
        for record in keys.pull(lambda record: record.offset() in skipped) if skipped else ():
            lane.heads.drop(record.offset())
            lane.wakes_ms.pop(record.offset(), None)
            lane.listener.queued -= lane.tier is None
            self.skip(lane, record, skipped[record.offset()], now)
        if skipped:
            # What stands behind it now may run.
            self._rests.until(lane, None, int(now.wall_ms))

    def count_before_skip(self, lane: Lane, records: Sequence[RawRecord]) -> int:
        """How many of ascending records come before the first that is to be skipped."""
        if lane.key not in self._board:
            return len(records)
        about = self._board.about(lane.key, [record.offset() for record in records])
        skipped = (at for at, record in enumerate(records) if _is_skip(about.get(record.offset())))
        return next(skipped, len(records))

    def skip(self, lane: Lane, record: RawRecord, notice: Notice, now: Now) -> None:
        """Get past a record whose offset is open: it ends here."""
        self._successors.end(lane, record, notice, now)
        fields = {**_fields(lane, notice, 1), "topic": lane.key.topic, "offset": record.offset()}
        self._outbox.append(Report("record-skipped", {**fields, "listener": lane.listener.plan.name}))

    def _heed(self, lane: Lane, now: Now) -> None:
        if lane.tier is None and lane.keys is None:
            self.skip_front(lane, now)
            if not lane.window:  # of a source it has only what failed in an outage
                return
        if lane.keys is not None:
            self._heed_lines(lane, lane.keys, now)
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


def _is_skip(notice: Notice | None) -> bool:
    return notice is not None and notice.action == "skip"


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
