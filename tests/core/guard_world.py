"""
Processes that live and die under the crash guard, and what a stranger who sees all of them knows.

A naive model: partitions are lists of offsets, a run is a list of them, a record is worked on by one call. What the guard
promises is checked at each step against what really happened.
"""

from collections import Counter

from redrive.core.crash_guard import CrashGuard
from redrive.core.metadata import NO_LEDGER
from redrive.core.offsets import OffsetMap
from redrive.core.record import TopicPartition

STEP = 8


class Death(Exception):
    """The process ended without a word."""


class LaneOfProcess:
    """One assigned partition."""

    def __init__(self, key, offsets, watch):
        self.key, self.offsets, self.watch = key, offsets, watch
        self.queue = []
        self.position = offsets.settled


class Process:
    """One process: its lanes, the runs that are out, and the one commit that is on its way."""

    def __init__(self, name, reach):
        self.outbox = []
        self.guard = CrashGuard(name, self.outbox, step_offsets=STEP, reach_offsets=reach)
        self.lanes = {}
        self.runs = []
        self.commit = None
        #: Dead letters that aren't acknowledged yet.
        self.writes = []
        #: What a commit may have told the broker to run alone here, and no acknowledged one has taken back.
        self.tenures = set()


class World:  # size: what happens to processes, a method each
    """
    `logs`: the offsets of each partition. `killers`: records of which each run kills its process. `knows_end`: whether
    the ends of partitions are told at an assignment.
    """

    def __init__(self, logs, killers=(), *, reach=10_000, knows_end=False, tiers=()):
        self.logs = {TopicPartition("orders", number): tuple(log) for number, log in enumerate(logs)}
        self.killers = frozenset(killers)
        self.reach, self.knows_end = reach, knows_end
        #: Partitions whose records start by another order than that of their offsets.
        self.tiers = frozenset(tiers)
        self.committed = {}
        self.processes = []
        self.owners = {}
        self.mono_ms = 0.0
        self.not_due = set()
        self.runs, self.handled, self.deaths, self.dead_letters = Counter(), Counter(), Counter(), Counter()
        #: Of a record that was still at work when its partition had gone in peace.
        self.unseen_deaths = Counter()
        self.solo_commits = 0
        #: Records in whose solo run a process was killed by something else.
        self.unlucky = set()
        self.named = set()
        self._names = 0

    # -- what happens to processes --------------------------------------------------------------------------------

    def start(self):
        """A new process, without partitions."""
        self._names += 1
        process = Process(f"n{self._names}", self.reach)
        self.processes.append(process)
        return process

    def assign(self, process, *keys):
        """Partitions come to a process, each with what the group has committed."""
        found = {key: self.committed.get(key, (self.logs[key][0], (), NO_LEDGER)) for key in keys}
        process.guard.learn(ledger for _, _, ledger in found.values())
        for key, (frontier, ranges, ledger) in found.items():
            end = self.logs[key][-1] + 1 if self.knows_end else None
            watch = process.guard.watch(key, ledger, frontier, ranges, end)
            process.lanes[key] = LaneOfProcess(key, OffsetMap(frontier, ranges), watch)
            self.owners[key] = process
            if ledger.nonce == process.guard.nonce and ledger.crashes >= 2 and ledger.solo >= 0:
                process.tenures.add(key)
            if watch.named >= 0:
                record = key.partition, watch.named
                assert record in self.killers | self.unlucky, f"{record} is blamed"
                self.named.add(record)

    def revoke(self, process, *keys, is_confirmed=True):
        """Partitions go in peace: what is at work is not waited for, the last commit closes their ledgers."""
        for key in keys:
            lane = process.lanes.pop(key)
            if is_confirmed:
                self._store(key, lane.offsets, lane.watch.closed(lane.offsets))
            self._forget(process, lane)

    def lose(self, process, *keys):
        """The session ended: partitions go without a commit."""
        for key in keys:
            self._forget(process, process.lanes.pop(key))

    def _forget(self, process, lane):
        process.guard.forget(lane.watch)
        # Gone without a commit it may be blamed still: the caller counts it as unlucky.
        process.tenures.discard(lane.key)
        process.writes = [write for write in process.writes if write[0] is not lane]
        del self.owners[lane.key]
        if process.commit is not None:
            process.commit.pop(lane.key, None)

    def stop(self, process):
        """A clean end."""
        self.revoke(process, *process.lanes)
        self.processes.remove(process)

    def kill(self, process):
        """SIGKILL from outside."""
        self.unlucky |= {(key.partition, offset) for key, offset in self._alone(process)}
        self._die(process)

    def _alone(self, process):
        for key in process.lanes:
            ledger = self.committed[key][2] if key in self.committed else NO_LEDGER
            if ledger.crashes >= 2 and ledger.solo >= 0 and ledger.nonce == process.guard.nonce:
                yield key, ledger.solo

    def _die(self, process):
        self.processes.remove(process)
        for key in process.lanes:
            del self.owners[key]
        process.lanes = {}

    # -- what a process does --------------------------------------------------------------------------------------

    def fetch(self, process, key, most=1000):
        lane = process.lanes[key]
        fetched = [offset for offset in self.logs[key] if offset >= lane.position][:most]
        if not fetched:
            return
        lane.position = fetched[-1] + 1
        fresh = [offset for offset in fetched if not lane.offsets.was_finished(offset)]
        lane.offsets.open(fresh)
        lane.offsets.settle(lane.position)
        lane.queue.extend(fresh)
        if key.partition in self.tiers:
            lane.queue.sort(key=lambda offset: (offset * 7919 % 31, offset))

    def dispatch(self, process, key, most=1000):
        """Start a run of this partition, as far as the guard lets it. Whether one was started."""
        lane = process.lanes[key]
        due = [offset for offset in lane.queue if (key.partition, offset) not in self.not_due][:most]
        guard = process.guard
        if not due or (guard.turn is not None and guard.turn is not lane.watch):
            return False
        started = due if lane.watch.is_free else self._admitted(process, lane.watch, due)
        if not started:
            return False
        for offset in started:
            lane.queue.remove(offset)
        if started == [lane.watch.named]:
            self.dead_letters[key.partition, started[0]] += 1
            process.writes.append((lane, started[0]))
            return True
        self._check_start(process, lane, started)
        process.runs.append((lane, started))
        return True

    def _admitted(self, process, watch, due):
        """As the engine asks: the lowest first, then how far the others may go."""
        lowest = min(due)
        if lowest == watch.named:
            return [lowest]
        if watch.is_suspect(lowest):
            return [lowest] if watch.may_run_alone(lowest, len(process.runs), self.mono_ms) else []
        bound = watch.bound(lowest)
        started = [offset for offset in due if offset < bound][: process.guard.run_most]
        watch.reach(max(due[: process.guard.run_most]))
        return started

    def _check_start(self, process, lane, offsets):
        key = lane.key
        ledger = self.committed[key][2]
        assert ledger.nonce == process.guard.nonce, f"{key} starts before its ledger is open"
        alone = [run for run in process.runs if run[0].watch.is_alone and run[1]]
        assert not alone, "something starts beside a suspect that runs alone"
        suspects = [offset for offset in offsets if ledger.crashes >= 2 and offset < ledger.hi]
        if suspects:
            assert (offsets, process.runs) == ([ledger.solo], []), "a suspect does not run alone"
        elif ledger.crashes:
            assert max(offsets) < ledger.ceil, f"{offsets} start, the ceiling is {ledger.ceil}"
        others = {one for one in process.tenures if one != key or not suspects}
        assert not others, f"{key} starts while the broker believes that others run alone: {others}"

    def work(self, process, index, count):
        """The handler of a run goes on for some records. The process may die of one."""
        lane, offsets = process.runs[index]
        for offset in offsets[:count]:
            record = lane.key.partition, offset
            self.runs[record] += 1
            assert record not in self.named, f"{record} is run after it was named"
            if record in self.killers:
                is_seen = process.lanes.get(lane.key) is lane
                (self.deaths if is_seen else self.unseen_deaths)[record] += 1
                self._die(process)
                return
            self.handled[record] += 1
            if process.lanes.get(lane.key) is lane:
                lane.offsets.close(offset)
        process.runs[index] = lane, offsets[count:]
        if not offsets[count:]:
            del process.runs[index]
            if lane.watch.is_alone:
                lane.watch.ended()

    def begin_commit(self, process, *, is_periodic=True):
        """Take a snapshot: of what wants one at once, or of all."""
        if process.commit is not None:
            return False
        keys = set(process.guard.wanting()) | set(process.lanes if is_periodic else ())
        if not keys:
            return False
        process.commit = {}
        for key in sorted(keys):
            lane = process.lanes[key]
            ledger = lane.watch.ledger(lane.offsets)
            process.commit[key] = lane, lane.offsets.frontier, lane.offsets.finished_above_frontier(), ledger
            if ledger.crashes >= 2 and ledger.solo >= 0:
                process.tenures.add(key)
                self.solo_commits += 1
        return True

    def end_commit(self, process, *, arrives=True, is_told=True):
        """The commit on its way reaches the broker, or doesn't; its answer reaches the process, or doesn't."""
        commit, process.commit = process.commit, None
        for key, (lane, frontier, ranges, ledger) in commit.items():
            if arrives:
                self.committed[key] = frontier, ranges, ledger
            if arrives and is_told:
                if ledger.crashes < 2 or ledger.solo < 0:
                    process.tenures.discard(key)
                lane.watch.acked(ledger, self.mono_ms)

    def _store(self, key, offsets, ledger):
        self.committed[key] = offsets.frontier, offsets.finished_above_frontier(), ledger

    def acknowledge(self, process):
        """All dead letters on their way arrive."""
        for lane, offset in process.writes:
            lane.offsets.close(offset)
        process.writes = []

    # -- to the end -----------------------------------------------------------------------------------------------

    def finish(self, most_steps=5_000):
        """Nothing is killed from outside any more; whoever dies is replaced. Until all is committed."""
        self.not_due.clear()
        for _ in range(most_steps):
            if self.is_done():
                return
            self.mono_ms += 1
            if not self.processes:
                self.start()
            if orphans := [key for key in self.logs if key not in self.owners]:
                self.assign(self.processes[0], *orphans)
            for process in list(self.processes):
                self._step(process)
        raise AssertionError(f"not done: {self.committed}")

    def _step(self, process):
        if process.commit is not None:
            self.end_commit(process)
        for key in list(process.lanes):
            self.fetch(process, key)
            self.dispatch(process, key)
        process.guard.tick(self.mono_ms)
        self.acknowledge(process)
        self.begin_commit(process, is_periodic=self.mono_ms % 20 == 0)
        if process.runs:
            self.work(process, 0, 4)

    def is_done(self):
        """Whether all records are finished by what is committed."""
        return all(
            key in self.committed
            and self.committed[key][0] > log[-1]
            and self.committed[key][2].solo < 0
            and (self.committed[key][2].crashes == 0 or not self.knows_end)
            for key, log in self.logs.items()
        )
