"""Faults that worlds drawn from seeds must find: those of ordinary tests that can be seen from outside, and more."""

from typing import NamedTuple

from tests.planted.guard_plants import GUARD_PLANTS
from tests.planted.plants import PLANTS
from tests.planted.promises import PROMISES


class Change(NamedTuple):
    """An exact text of a file and what replaces it."""

    file: str
    old: str
    new: str


_KNOWN = {**PLANTS, **PROMISES, **GUARD_PLANTS}

#: Plants of ordinary tests. Left out are those that only cost time or memory, or need what no world has.
_ALSO_EXPLORED = (
    "commits although the dead-letter or retry write failed",
    "a cumulative commit carries an unfinished record",
    "checks the attempts before the last tier ran",
    "claims what a later run finished while an earlier one's failures are unknown",
    "claims what a run was to do when it was cut",
    "a run that was cut counts as done to its end",
    "claims what lies above the highest finished offset",
    "a bitmap is read from its second bit on",
    "runs a record again before a commit told of its attempt",
    "lets later records of a key run while one that blocks waits",
    "forgets in a crash which attempt comes next",
    "gives a lane a second turn while a worker has some of it",
    "lets a key go on behind a dead letter that blocks it",
    "forgets in a restart that a key is blocked",
    "frees a blocked key before its replay was handled",
    "lets newer records of a parked key run",
    "starts before the parked partition was read",
    "parks a record a second time that has a copy",
    "closes a record before its copy was acknowledged",
    "forgets how often a parked record was tried",
    "runs parked copies before their due",
    "tries records although the health function says no",
    "commits plainly within a transaction",
    "takes an aborted transaction for committed",
    "goes on where nobody can tell what became of a transaction",
    "writes what a handler emitted before it raised",
    "runs records before their due",
    "writes two copies of a key at once",
    "takes any told attempt for the last one",
    "never tries whether an outage is over",
    "lets what fails in an outage climb the ladder",
    "commits a handled replay without the hole that it frees",
    "leaves a key blocked whose letter was discarded",
    "goes on diverting while its key is replayed",
    "proves a membership later than that of the last poll",
    "passes a record in the transaction of the letter for which others wait",
    "lets go of a partition without waiting for what runs and without a commit",
    "takes results of an assignment that is over",
    "runs the named record again",
    "blames what runs alone in a process that lives",
)

EXPLORED: dict[str, Change] = {
    **{name: Change(*_KNOWN[name][:3]) for name in _ALSO_EXPLORED},
    "claims one offset more than a run has finished": Change(
        "core/settling.py",
        "            end = run.end if done == run.count else records[done].offset()\n",
        "            end = run.end if done == run.count else records[done].offset() + 1\n",
    ),
    "takes one offset more for finished than a commit's map tells": Change(
        "core/offsets.py",
        "        return at >= 0 and offset < self._restored[at][1]\n",
        "        return at >= 0 and offset <= self._restored[at][1]\n",
    ),
    "doesn't ask again where a partition begins that nobody could tell": Change(
        "runtime/pump.py",
        "        if (self._unstarted or self._cut) and now.mono_ms",
        "        if self._cut and now.mono_ms",
    ),
    "never repeats a write that was refused": Change(
        "core/successors.py",
        "                    pending.envelope = msgspec.structs.replace(pending.envelope, hops=pending.tries)\n"
        "                self._produce(pending)\n",
        "                    pending.envelope = msgspec.structs.replace(pending.envelope, hops=pending.tries)\n"
        "                pending.lane.writes.ended(pending.record)\n",
    ),
    "a copy tells one attempt too few": Change(
        "core/successors.py",
        "            attempt=failed.attempt,\n            due_ms=due_ms,\n            event_id=before.event_id,\n",
        "            attempt=failed.attempt - (failed.attempt > 1),\n"
        "            due_ms=due_ms,\n            event_id=before.event_id,\n",
    ),
    "counts what fails in an outage as attempts": Change(
        "core/outages.py",
        "            if self._is_held(listener, failed, now):\n",
        "            if self._is_held(listener, failed, now) and failed.failure.kind is not Kind.OUTAGE:\n",
    ),
    "forgets what it holds in an outage": Change(
        "core/outages.py",
        "            lane.window.hold(0 if is_in_place else ceil(now.wall_ms), failed.record)\n",
        "            lane.held.discard(failed.record.offset())\n",
    ),
    "frees nothing when a letter is discarded": Change(
        "core/aftermath.py",
        "            lane.drop_front(key_lane)\n            self.handled(lane, front)\n",
        "            lane.drop_front(key_lane)\n",
    ),
    # With any commit, as in `plants.py`, it is almost always that one.
    "frees a key as soon as its copies are finished": Change(
        "core/parked.py",
        "            self.parking.finished(key, offset)\n",
        "            self.parking.finished(key, offset)\n"
        "            for free in self.parking.confirmed(lambda _: True):\n"
        "                self._look_again(free)\n",
    ),
    "counts a commit as confirmed when it is sent": Change(
        "core/commits.py",
        "        self._number += 1\n        self._sent_mono_ms = now.mono_ms\n",
        "        self._number += 1\n        self._sent_mono_ms = now.mono_ms\n"
        "        for lane, said in self._sent.values():\n            lane.acked = said.snapshot\n",
    ),
    "parks a record while one before it waits for its letter": Change(
        "core/parked.py",
        " or lane.writes.are_of(key_lane.queue[0].key()):\n",
        ":\n",
    ),
    "runs what blocks before its due": Change(
        "core/heads.py",
        "        if head.due_ms > now_ms:\n            return head.due_ms\n",
        "        if head.due_ms > now_ms + 5_000:\n            return head.due_ms\n",
    ),
}
