"""What goes back to its place: records that a run left undone, or failed and is held with; and those taken from a worker."""

from collections.abc import Sequence

from redrive.core.commands import Gate, Run
from redrive.core.lane import Batch, Lane
from redrive.core.record import RawRecord


def give_back(run: Run, done: int) -> bool:
    """
    What the run left undone goes back to its place; for a stretch, once all runs of its partition are home. Whether the
    partition may have work by that.
    """
    lane = run.lane
    if lane.keys is not None:
        if not lane.is_stopping:
            held = (at for at in range(done if run.held_offsets else 0) if _is_held(run, at))
            _put_back(run, [*held, *range(done, run.count)])
        lane.keys.home(run.key_lanes[: run.count])
        return True
    rest = run.records[done:]
    if rest and not lane.is_stopping:
        if run.is_apart:
            _hold_again(lane, rest, run.wakes_ms[done:] if run.wakes_ms is not None else [0] * len(rest))
        else:
            lane.returned.append(Batch(rest, run.end))
            lane.listener.queued += len(rest)
    if not lane.gate.is_shut or lane.runs or lane.is_stopping:
        return False
    lane.queue.extendleft(reversed(lane.returned))
    lane.returned = []
    lane.gate = Gate()
    return True


def take_back(run: Run) -> bool:
    """A handler takes long: let others have the records that stand behind its own. Whether there were any."""
    before = run.count
    if not run.take_back() or run.lane.keys is None:
        return False
    if not run.lane.is_stopping:
        _put_back(run, range(run.count, before))
    run.lane.keys.home(run.key_lanes[run.count : before])
    return True


def cut_short(run: Run) -> None:
    """Let a run end after the record it is at; the others wait for another one."""
    if run.key_lanes:
        take_back(run)
    else:
        run.cut()


def _is_held(run: Run, at: int) -> bool:
    return run.records[at].offset() in run.held_offsets


def _put_back(run: Run, places: Sequence[int]) -> None:
    """
    The run's records at these places go back into their lanes. A tier's wait for their turn in its window, but for those
    that later ones of their key may not overtake.
    """
    if not places:
        return
    lane, records = run.lane, [run.records[at] for at in places]
    wakes_ms = None if run.wakes_ms is None else [run.wakes_ms[at] for at in places]
    if lane.keys is None or (wakes_ms is not None and lane.listener.plan.policy.blocking is None):
        _hold_again(lane, records, wakes_ms or [0] * len(records))
        return
    lane.keys.put_back(records, [run.key_lanes[at] for at in places])
    if wakes_ms is None:
        lane.listener.queued += len(records)
    else:
        offsets = (record.offset() for record in records)
        lane.wakes_ms.update(zip(offsets, wakes_ms, strict=True))


def _hold_again(lane: Lane, records: list[RawRecord], wakes_ms: list[int]) -> None:
    for record, wake_ms in zip(records, wakes_ms, strict=True):
        head = lane.heads.get(record.offset())
        lane.window.hold(wake_ms if head is None else max(wake_ms, head.due_ms), record)
