"""Whatever happens to processes, commits and partitions in whatever order, the crash guard blames killers only."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.core.guard_world import World


class Machine(RuleBasedStateMachine):  # size: a method is a rule
    """Processes come, go and are killed; commits arrive or not; one record may kill whoever runs it."""

    @initialize(
        sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
        killer=st.none() | st.tuples(st.integers(0, 2), st.integers(0, 39)),
        gap=st.sampled_from([1, 1, 3]),
        is_tier=st.booleans(),
        knows_end=st.booleans(),
    )
    def begin(self, sizes, killer, gap, is_tier, knows_end):
        logs = [range(5, 5 + size * gap, gap) for size in sizes]
        killers = []
        if killer is not None:
            log = logs[killer[0] % len(logs)]
            killers = [(killer[0] % len(logs), log[killer[1] % len(log)])]
        self.killers = killers
        self.world = World(logs, killers, knows_end=knows_end, tiers=[0] if is_tier else [])
        self.is_undisturbed = True
        self.world.assign(self.world.start(), *self.world.logs)

    def _process(self, data):
        return data.draw(st.sampled_from(self.world.processes)) if self.world.processes else None

    def _lane(self, data):
        owned = sorted(self.world.owners)
        if not owned:
            return None, None
        key = data.draw(st.sampled_from(owned))
        return self.world.owners[key], key

    @precondition(lambda self: len(self.world.processes) < 2)
    @rule()
    def a_process_starts(self):
        self.world.start()

    @rule(data=st.data())
    def partitions_are_assigned(self, data):
        process = self._process(data)
        orphans = [key for key in self.world.logs if key not in self.world.owners]
        if process is not None and orphans:
            self.world.assign(process, *orphans)

    @rule(data=st.data(), how=st.sampled_from(["revoked", "revoked", "refused", "lost"]))
    def a_partition_goes(self, data, how):
        process, key = self._lane(data)
        if key is None:
            return
        if how != "revoked":
            # Whoever is next takes that for a crash.
            self._disturb(process)
        if how == "lost":
            self.world.lose(process, key)
        else:
            self.world.revoke(process, key, is_confirmed=how == "revoked")

    def _disturb(self, process):
        self.is_undisturbed = False
        self.world.unlucky |= {(key.partition, offset) for key, offset in self.world._alone(process)}

    @rule(data=st.data())
    def a_process_ends_cleanly(self, data):
        if (process := self._process(data)) is not None:
            self.world.stop(process)

    @rule(data=st.data())
    def a_process_is_killed(self, data):
        if (process := self._process(data)) is not None:
            self.is_undisturbed = False
            self.world.kill(process)

    @rule(data=st.data(), most=st.integers(1, 40))
    def records_are_fetched_and_started(self, data, most):
        process, key = self._lane(data)
        if key is not None:
            self.world.fetch(process, key, most)
            self.world.dispatch(process, key, most)

    @rule(data=st.data(), count=st.integers(1, 12))
    def a_handler_works(self, data, count):
        process = self._process(data)
        if process is not None and process.runs:
            self.world.work(process, data.draw(st.integers(0, len(process.runs) - 1)), count)

    @rule(data=st.data(), is_periodic=st.booleans())
    def a_commit_is_sent(self, data, is_periodic):
        if (process := self._process(data)) is not None:
            self.world.begin_commit(process, is_periodic=is_periodic)

    @rule(data=st.data(), arrives=st.booleans(), is_told=st.booleans())
    def a_commit_ends(self, data, arrives, is_told):
        process = self._process(data)
        if process is not None and process.commit is not None:
            self.world.end_commit(process, arrives=arrives, is_told=is_told)

    @rule(data=st.data(), steps=st.integers(1, 30))
    def a_process_is_left_alone_for_a_while(self, data, steps):
        for _ in range(steps):
            process = self._process_by_turn()
            if process is None:
                return
            self.world.mono_ms += 1
            self.world._step(process)

    def _process_by_turn(self):
        processes = self.world.processes
        return processes[int(self.world.mono_ms) % len(processes)] if processes else None

    @rule(data=st.data())
    def dead_letters_are_acknowledged(self, data):
        if (process := self._process(data)) is not None:
            self.world.acknowledge(process)

    @rule(data=st.data(), offsets=st.sets(st.integers(5, 60), max_size=5))
    def records_are_not_due_for_now(self, data, offsets):
        _, key = self._lane(data)
        if key is not None:
            self.world.not_due = {(key.partition, offset) for offset in offsets}

    @rule(ms=st.sampled_from([1, 25, 1_100, 11_000]))
    def time_passes(self, ms):
        self.world.mono_ms += ms
        for process in self.world.processes:
            process.guard.tick(self.world.mono_ms)

    @invariant()
    def only_who_ran_alone_is_blamed(self):
        assert self.world.named <= set(self.killers) | self.world.unlucky

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.finish()
        records = {(key.partition, offset) for key, log in world.logs.items() for offset in log}
        assert set(world.handled) | world.named == records
        assert set(world.dead_letters) == world.named
        for killer in self.killers:
            assert killer in world.named
            assert world.deaths[killer] <= 3 * len(world.named)
            if self.is_undisturbed and not world.unseen_deaths:
                assert world.deaths[killer] == 3
        if not self.killers and self.is_undisturbed:
            assert world.named == set()


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
test_whatever_happens_to_processes_only_the_killer_is_blamed = Machine.TestCase
