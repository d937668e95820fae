"""
The engine: events in, commands out. It decides what runs where and when, what is held, paused and committed.

No I/O, no clock, no threads: `runtime/pump.py` tells it what happened and performs what it asks. All goes per run of
records while all goes well; only failures and records that wait are looked at one by one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from redrive.core.aftermath import Aftermath, restored_for
from redrive.core.caution import Caution
from redrive.core.commands import Command, Pause, Report, Resume, Run, RunResult
from redrive.core.commits import Commits
from redrive.core.dialects import read_due
from redrive.core.heeding import Heeding
from redrive.core.lane import Batch, Lane
from redrive.core.listener_state import FETCHED_RUNS, ListenerState
from redrive.core.offsets import OffsetMap
from redrive.core.outages import Outages
from redrive.core.parked import Parks
from redrive.core.plan import GroupPlan, Now, Tier
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.core.resting import Rests
from redrive.core.returning import give_back, take_back
from redrive.core.schedule import Window
from redrive.core.settling import Settling
from redrive.core.starts import Start
from redrive.core.successors import Successors
from redrive.core.taking import Taking
from redrive.core.transacting import Transacting
from redrive.core.transactions import Transactions
from redrive.core.waiting import WaitingRoom

#: Runs that take longer are looked into this often, so that what they finished can be committed.
HARVEST_INTERVAL_MS = 200.0
#: The first fetch after an assignment must not bring hundreds of records of a megabyte each.
FIRST_RECORD_BYTES = 1 << 18
FETCH_BYTES = 8 << 20
#: Dead letters that may happen beyond the brake's headroom before new runs wait for results.
BUDGET_SLACK = 50


class Engine:
    """
    The decisions of one group in one process.

    `partitions` maps a topic to its partition count (the owner updates it when a topic has grown), `identity` a topic
    to the hash that its offset maps carry. `nonce`: of this process alone. Commands pile up until `take_commands`.
    """

    def __init__(
        self, plan: GroupPlan, partitions: Mapping[str, int], identity: Callable[[str], str], nonce: str
    ) -> None:
        self._plan = plan
        #: All topics that the group reads, sources first.
        self.topics = plan.topics
        self._outbox: list[Command] = []
        self.partitions = dict(partitions)
        is_exact = plan.delivery == "exactly-once"
        units = Transactions(linger_ms=plan.transaction_linger_ms) if is_exact else None
        self.successors = Successors(plan.group, self._outbox, self.partitions, plan.translator, units)
        self.commits = Commits(plan.commit_interval_ms, plan.commit_records, identity)
        #: What makes of commits transactions, with delivery `exactly-once`.
        self.transacting = Transacting(units, self.commits, self.successors, identity) if units else None
        self.listeners = [
            ListenerState(index, listener, plan.run_records) for index, listener in enumerate(plan.listeners)
        ]
        self.lanes: dict[TopicPartition, Lane] = {}
        #: What workers have, in the order in which it was handed out.
        self.runs: dict[Run, None] = {}
        self._roles: dict[str, tuple[ListenerState, Tier | None]] = {}
        for listener in self.listeners:
            for tier in (*listener.plan.tiers, *listener.plan.drained):
                self._roles[tier.topic] = (listener, tier)
        self._roles.update((listener.plan.source, (listener, None)) for listener in self.listeners)
        self._roles.update((each.plan.parked, (each, Tier(each.plan.parked, 0))) for each in self.listeners)
        self._waiting = WaitingRoom((plan.group, *plan.accepts_groups), plan.window_bytes, plan.translator)
        self._rests = Rests()
        self.notices = Heeding(
            self._outbox, self.successors, self._waiting, self._rests, self.lanes, self.listeners
        )
        self._aftermath = Aftermath(self.lanes, self.successors, self.commits, plan.translator)
        self._identity = identity
        self.parks = Parks(self.lanes, self.successors, self._rests, self._outbox, self.commits)
        self.parked_topics = frozenset(listener.plan.parked for listener in self.listeners) - {""}
        self._groups = frozenset((plan.group, *plan.accepts_groups, ""))
        self._taking = Taking(self._rests, self.notices, self._aftermath, self.parks, self.commits)
        self.outages = Outages(self._outbox, self.runs)
        self._settling = Settling(self.successors, self.commits, self.notices, self._aftermath, self.outages)
        self.caution = Caution(nonce, self._outbox, self.runs, self.commits, self._taking, plan.translator)
        #: Confirmed commits that resting lanes were told of.
        self._told = 0
        self._next_look_ms = 0.0

    # -- what happened -------------------------------------------------------------------------------------------

    def assigned(self, starts: Mapping[TopicPartition, Start]) -> None:
        """Partitions came to this process. An assignment that is still known is replaced: its results are dropped."""
        self.forget(starts)
        self.caution.learn([start.ledger for start in starts.values()])
        for key, start in starts.items():
            listener, tier = self._roles[key.topic]
            heads, restored = restored_for(listener, start)
            offsets = OffsetMap(start.offset or 0, restored, started=start.offset is not None)
            lane = self.lanes[key] = Lane(key, listener, tier, offsets, heads)
            lane.acked = start.acked
            if offsets.started:
                self.caution.watch(lane, start.ledger, start.restored, start.ran_to)
            if start.ignored:
                listener.counters.ignored_metadata += 1
                fields = {"topic": key.topic, "partition": key.partition, "why": start.ignored}
                self._outbox.append(Report("map-ignored", fields))
            listener.lanes.add(lane)
            if tier is not None and key.topic != listener.plan.parked:
                self._waiting.lanes.append(lane)
        self.parks.assigned(starts)
        self._aftermath.assigned()

    def fetched(self, key: TopicPartition, records: list[RawRecord], now: Now) -> None:
        """Records of one partition, ascending. Those of a lane that is gone or going are left to its next owner."""
        lane = self.lanes.get(key)
        if lane is None or lane.is_stopping or lane.is_rewound:
            return
        first, end = records[0].offset(), records[-1].offset() + 1
        if first < lane.next_offset:  # a fetch from before a seek
            records = [record for record in records if record.offset() >= lane.next_offset]
            if not records:
                return
        lane.next_offset = end
        lane.listener.weighed(records)
        if groups := lane.listener.plan.letters_of:
            records = self._letters_of(lane, groups, records)
        offsets = lane.offsets
        if not offsets.started:
            self.caution.begin(lane, first)
        if offsets.restored_above(first):
            fetched = len(records)
            records = [record for record in records if not offsets.was_finished(record.offset())]
            lane.listener.counters.restored += fetched - len(records)
        if lane.parked is not None and lane.parked.lane is lane:
            self._park(lane, lane.parked.read(records, end, self._groups), now)
            return
        if lane.tier is not None:
            self._hold(lane, lane.tier, records, end, now)
            return
        listener = lane.listener
        listener.queued += len(records)
        if lane.keys is None:
            lane.queue.append(Batch(records, end))
        else:
            offsets.open([record.offset() for record in records])
            offsets.settle(end)
            lane.keys.add(records)
            self.notices.fetched(lane, records, now)
        if not lane.is_paused and listener.overflows(lane):
            self._pause([lane])
            self.parks.crowd(lane)
        lane.make_ready()
        self._dispatch(listener, now)

    def finished(self, result: RunResult, now: Now) -> None:
        """A worker is through with a run, or stopped early."""
        run = result.run
        lane, listener = run.lane, self.listeners[run.listener]
        self.runs.pop(run, None)
        self.caution.ended(run, now)
        listener.vacate(run.slot)
        listener.budget_out -= run.most_dead
        lane.runs -= 1
        if lane.last_run is run:
            lane.last_run = None  # it would keep the records of the run alive
        listener.counters.envelope_errors += run.unreadable
        if result.done:
            listener.counters.duration.add(result.seconds / result.done, result.done)
            listener.measured(result.seconds, result.done)
        if lane.alive:
            done = run.settled if lane.misses_source else self._settled(result, now)
            if give_back(run, done) or lane.held:
                lane.make_ready()
            self.notices.gave_back(run, done, now)
        if listener.probe is run:
            self.outages.probed(result, now)
        self._dispatch(listener, now)

    def tick(self, now: Now) -> None:
        """Time passed: due records, commits, writes to repeat, long runs to look into. Cheap when nothing is due."""
        if self._waiting.is_time(now, are_workers_busy=bool(self.runs)):
            self._wake(now)
        if self._rests.next_wake_ms <= now.wall_ms or self._told != self.commits.told:
            self._told = self.commits.told
            self.parks.look_at_commits(self._identity)
            for lane in self._rests.wake(now.wall_ms):
                lane.make_ready()
        self.successors.tick(now)
        if now.mono_ms >= self._next_look_ms:
            self._next_look_ms = now.mono_ms + HARVEST_INTERVAL_MS
            self._look_around(now)
        for listener in self.listeners:
            if listener.ready:
                self._dispatch(listener, now)
        if self.caution.guard.watched:
            self.caution.tick(self.lanes, now)
        if self.runs and self.commits.is_time(now):
            self.harvest(now)  # else a crash would repeat what was finished since the last look, too
        commits = self.transacting or self.commits
        if (command := commits.due(self.lanes.values(), now)) is not None:
            self._outbox.append(command)

    def _settled(self, result: RunResult, now: Now) -> int:
        """Settle a run that ended. How many of its records are behind it: the others go back."""
        run = result.run
        done = self.outages.done(result, now)
        self._settle(run, run.records, done, now)
        if run.again is not None:
            self._settling.again(run.lane, run.again, now)
        # A record that waits in front of its lane goes back there, though it ran.
        return done - run.is_held

    def harvest(self, now: Now) -> None:
        """Settle what runs that are still out have finished so far."""
        seen: set[Lane] = set()
        for run in self.runs:
            # Only a lane's first: the next one may be at work while the result of the first is still on its way, and
            # to settle beyond that would claim its failures as finished.
            if run.lane in seen and not run.key_lanes:
                continue
            seen.add(run.lane)
            # The worker may let go of them at any moment: then its result is on the way.
            records = run.records
            taken = run.taken()
            if not (records and run.lane.alive) or run.lane.misses_source:
                continue
            if taken - 1 > run.settled:
                run.moved_mono_ms = now.mono_ms
                self._settle(run, records, taken - 1, now)
            elif run.is_stuck(now.mono_ms, HARVEST_INTERVAL_MS) and take_back(run):
                run.lane.make_ready()

    def stop(self, keys: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions, and let their runs end after the record they are at."""
        for key in keys:
            lane = self.lanes.get(key)
            if lane is None or lane.is_stopping:
                continue
            lane.is_stopping = True
            self.parks.stop(lane)
            lane.listener.queued -= lane.queued()
            lane.queue.clear()
            lane.returned.clear()
            if lane.keys is not None:
                lane.keys.clear()
            lane.window, lane.reposts = Window(), Window()
            for run in self.runs:
                if run.lane is lane:
                    run.cut()

    def is_quiet(self, keys: Iterable[TopicPartition]) -> bool:
        """Whether nothing of these partitions is out any more, but for writes that were refused and wait."""
        lanes = self.parks.with_sources(self.lanes[key] for key in keys if key in self.lanes)
        return all(lane.runs == 0 and lane.writes.is_quiet for lane in lanes)

    def log_was_cut(self, key: TopicPartition, earliest: int, end: int = 0) -> int:
        """
        The next offset of a partition doesn't exist any more; the log begins at `earliest` now, and is fetched from
        there. `end`: what that of a parked partition ends with. How many records were lost; of a partition that was to begin
        wherever its log does, none.

        What was fetched before is kept: it runs, and its successors are waited for. Only where the log begins *below*
        (cut at its end, or made anew) nothing that is known of it holds.
        """
        lane = self.lanes[key]
        wanted = lane.next_offset
        if earliest < wanted:
            self.assigned({key: Start(earliest, end=end)})
            self._resume([self.lanes[key]])
            return 0
        lane.next_offset = earliest
        if lane.parked is not None and lane.parked.lane is lane:
            lane.parked.reached(earliest)
        if not lane.offsets.started:
            self.caution.begin(lane, earliest)
        elif lane.tier is not None or lane.keys is not None:
            lane.offsets.settle(earliest)
        else:
            lane.queue.append(Batch([], earliest))
            lane.make_ready()
        self._resume([lane])
        return 0 if wanted < 0 else earliest - wanted

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """These partitions are no longer ours: whatever still comes back for them is dropped."""
        self.stop(keys)
        for key in keys:
            lane = self.lanes.pop(key, None)
            if lane is not None:
                self.parks.forget(lane)
                self._aftermath.forget(lane)
                lane.alive = False
                lane.listener.lanes.discard(lane)
                self.caution.forget(lane)
        self._waiting.forget_dead()
        self._rests.forget_dead()

    # -- what to do ----------------------------------------------------------------------------------------------

    def take_commands(self) -> list[Command]:
        """The commands since the last call, in order."""
        taken = self._outbox[:]
        # The list itself stays: `successors` writes to the same one.
        self._outbox.clear()
        return taken

    def wants_records(self) -> bool:
        """Whether to poll: a listener has room, or the partitions of all that have none are paused."""
        return any(listener.is_hungry() for listener in self.listeners) or self._sources_are_paused()

    def pause_full(self, for_ms: float) -> bool:
        """
        Pause the source partitions of listeners without room, so that polling brings none of their records.

        Only when all of them will be without room for `for_ms` at least, going by how long their records take: what
        the client has fetched ahead is dropped by a pause. Whether they were paused.
        """
        full = [each for each in self.listeners if not each.is_hungry() and not each.is_halted]
        if any(one.queued * one.mean_ms / len(one.slots) / 2 < for_ms for one in full):
            return False
        for listener in full:
            self._pause([lane for lane in listener.lanes if lane.tier is None and not lane.is_paused])
        return True

    @property
    def room_to_fetch(self) -> int:
        """How many records one look at what the client has fetched may bring: some runs, within bounds of memory."""
        record_bytes = max(listener.mean_bytes for listener in self.listeners) or FIRST_RECORD_BYTES
        return max(1, min(FETCHED_RUNS * self._plan.run_records, int(FETCH_BYTES / record_bytes)))

    @property
    def next_wake_ms(self) -> float:
        """The wall time at which a held record must be looked at."""
        return min(self._waiting.next_wake_ms, self._rests.next_wake_ms)

    # -- dispatch ------------------------------------------------------------------------------------------------

    def _dispatch(self, listener: ListenerState, now: Now) -> None:
        """Start as many runs as there is room for, a lane after another."""
        most = listener.run_records
        idle_turns = 0
        while idle_turns < len(listener.ready) and self._may_start(listener, now):
            lane = listener.ready.popleft()
            idle_turns += 1
            if not lane.alive or not lane.has_work(now):
                self._not_ready(lane)
                idle_turns -= 1  # the others have moved up
                continue
            slot = listener.slot_for(lane)
            slow = listener.brake.is_on or not listener.breaker.is_closed
            if slow and slot is not None and listener.slots[slot]:
                slot = None  # a probe would wait behind another run, which may last
            if slot is not None and lane.writes.are_few and self._start(lane, slot, 1 if slow else most, now):
                idle_turns = 0
            if lane.has_work(now):
                listener.ready.append(lane)
            else:
                self._not_ready(lane)
                idle_turns = max(0, idle_turns - 1)

    def _not_ready(self, lane: Lane) -> None:
        lane.is_ready = False
        if lane.alive and not lane.gate.is_shut:
            self._waiting.expect(lane)

    def _may_start(self, listener: ListenerState, now: Now) -> bool:
        if not listener.has_room:
            return False
        if not listener.breaker.is_closed:
            return self.outages.may_probe(listener, now)
        if not listener.plan.brake:
            return True
        if listener.brake.is_on:
            return listener.brake.admits(now.mono_ms) and not listener.runs_out
        return listener.budget_out < listener.brake.headroom() + BUDGET_SLACK

    def _start(self, lane: Lane, slot: int, most: int, now: Now) -> bool:
        """Hand out a run. False when there was nothing to run after all."""
        taking = self._taking if self.caution.is_free(lane) else self.caution
        run = taking.run_of(lane, slot, most, now)
        if lane.tier is not None:
            self._refill(lane)
        if run is None:
            return False
        if run.lane.watch is not None and self.caution.is_named(run):
            self.caution.bury(run, now)
            self._settle(run, run.records, 1, now)
            give_back(run, 1 - run.is_held)
            return True
        listener = lane.listener
        # What stops at a record must not handle those behind it.
        run.budget = 1 if listener.plan.give_up == "stop" else run.count + 1
        if listener.plan.brake:
            listener.brake.admitted(now.mono_ms)
            run.budget = max(1, min(run.budget, (listener.brake.headroom() - listener.budget_out) // 2))
        run.most_dead = min(run.budget, run.count)
        listener.budget_out += run.most_dead
        listener.occupy(slot)
        lane.slot = slot
        if not run.is_apart:
            lane.last_run = run
        lane.runs += 1
        if not listener.breaker.is_closed:
            self.outages.probing(run, now)
        self.runs[run] = None
        self._outbox.append(run)
        return True

    # -- results -------------------------------------------------------------------------------------------------

    def _settle(self, run: Run, records: list[RawRecord], done: int, now: Now) -> None:
        if self._settling.settle(run, records, done, now):
            self._report_brake(run.lane.listener)

    def _report_brake(self, listener: ListenerState) -> None:
        fields = {"listener": listener.plan.name}
        if listener.brake.is_on:
            cause = max(listener.causes, key=listener.causes.__getitem__, default="")
            self._outbox.append(Report("brake-on", {**fields, "cause": cause}))
        else:
            self._outbox.append(Report("brake-off", fields))

    def _letters_of(self, lane: Lane, groups: Collection[str], records: list[RawRecord]) -> list[RawRecord]:
        """The dead letters that one of these groups made; those of others on the topic are passed by."""
        ours = [record for record in records if read_due(headers_of(record))[0] in groups]
        lane.listener.counters.passed_by += len(records) - len(ours)
        return ours

    # -- waiting -------------------------------------------------------------------------------------------------

    def _hold(self, lane: Lane, tier: Tier, records: list[RawRecord], end: int, now: Now) -> None:
        records, end = self._waiting.fitting(lane, records, end)
        self._waiting.hold(lane, tier, records, end, now)
        self.notices.fetched(lane, records, now)
        if not lane.is_paused and (lane.is_rewound or self._waiting.is_over(lane)):
            self._pause([lane])
        if self._waiting.next_wake_ms <= now.wall_ms:
            self._wake(now)
            self._dispatch(lane.listener, now)

    def _park(self, lane: Lane, copies: list[RawRecord], now: Now) -> None:
        """Copies were fetched: they run in their order, as records of a source do."""
        if lane.keys is not None:
            lane.keys.add(copies)
        if not lane.is_paused and lane.parked is not None and (lane.is_rewound or lane.parked.is_over()):
            self._pause([lane])
        lane.make_ready()
        self._dispatch(lane.listener, now)

    def _wake(self, now: Now) -> None:
        """Give lanes with due records their turn, and post on what has to wait elsewhere."""
        due, posted_on = self._waiting.wake(now, self._plan.run_records)
        for lane in due:
            lane.make_ready()
        for lane, record in posted_on:
            self.successors.repost(lane, record, now)

    def _look_around(self, now: Now) -> None:
        """A few times a second: settle what long runs have finished, let the brake forget, resume paused lanes."""
        self.harvest(now)
        for listener in self.listeners:
            if listener.plan.brake and listener.brake.refresh(now.mono_ms):
                self._report_brake(listener)
            self.outages.look(listener, now)
            sources = [lane for lane in listener.lanes if lane.tier is None]
            if listener.is_halted:
                self._pause([lane for lane in sources if not lane.is_paused])
            self._resume([lane for lane in sources if lane.is_paused and listener.can_fetch_again(lane)])
        for lane in self._waiting.lanes:
            self._refill(lane)
        self._resume([each.lane for each in self.parks.all if each.lane.is_paused and each.has_room])

    def _refill(self, lane: Lane) -> None:
        if lane.is_paused and self._waiting.has_room(lane):
            self._resume([lane])

    def _pause(self, lanes: list[Lane]) -> None:
        if lanes:
            for lane in lanes:
                lane.is_paused = True
            self._outbox.append(Pause(tuple(lane.key for lane in lanes)))

    def _resume(self, lanes: list[Lane]) -> None:
        # From where the lane left off: what the client had prefetched was dropped by the pause.
        offsets = {
            lane.key: None if lane.next_offset < 0 else lane.next_offset
            for lane in lanes
            if not lane.is_stopping
        }
        for lane in lanes:
            lane.is_paused = lane.is_rewound = False
        if offsets:
            self._outbox.append(Resume(offsets))

    def _sources_are_paused(self) -> bool:
        sources = (lane for listener in self.listeners if not listener.is_hungry() for lane in listener.lanes)
        return all(lane.is_paused for lane in sources if lane.tier is None)
