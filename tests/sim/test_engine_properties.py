"""Whatever happens in whatever order, the engine claims nothing that isn't so, and leaves nothing undone."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redrive.core.commands import Refusal
from redrive.core.notices import ranges_of
from redrive.core.policy import Backoff
from redrive.core.record import TopicPartition
from tests.sim.engine_world import OUTCOMES, World, plan_of, post, say

PLANS = {
    "ladder": lambda: (plan_of("5s", "30s"),),
    "no tiers": lambda: (plan_of(),),
    "skips": lambda: (plan_of("1s", give_up="skip"),),
    "repeats its last tier, with jitter": lambda: (plan_of("1s", max_attempts=4, jitter=0.5),),
    "by key": lambda: (plan_of("5s", "30s", order="key", concurrency=3),),
    "by key, one at a time": lambda: (plan_of("1s", order="key"),),
    "without order": lambda: (plan_of("5s", order="none", concurrency=2),),
    "blocks its key": lambda: (plan_of("1s", "5s", order="key", blocking="key", concurrency=3),),
    "blocks its partition": lambda: (plan_of("1s", "5s", blocking="partition", jitter=0.5),),
    "tries in place": lambda: (plan_of("5s", immediate=Backoff(2, "200ms")),),
    "tries in place and blocks": lambda: (
        plan_of("5s", order="key", blocking="key", concurrency=2, immediate=Backoff(1, "100ms")),
    ),
    "two listeners": lambda: (plan_of("5s", concurrency=3), plan_of("1s", name="payouts", brake=False)),
}

TOO_LARGE = Refusal("too-large", "too large")
AWAY = Refusal("unavailable", "no broker")


class Machine(RuleBasedStateMachine):  # size: a method is a rule
    """One process and its engine; the process may die, and what it had goes to the next."""

    @initialize(
        plan=st.sampled_from(sorted(PLANS)),
        partitions=st.integers(1, 2),
        window_bytes=st.sampled_from([64 << 20, 8_000]),
        is_seen_at_work=st.booleans(),
        is_quick=st.booleans(),
    )
    def begin(self, plan, partitions, window_bytes, is_seen_at_work, is_quick):
        self.world = World(
            *PLANS[plan](), partitions=partitions, window_bytes=window_bytes, is_quick=is_quick
        )
        self.world.is_seen_at_work = is_seen_at_work
        self.keys = [
            TopicPartition(topic, number) for topic in self.world.plan.topics for number in range(partitions)
        ]
        self.sources = [key for key in self.keys if key.topic in {"orders", "payouts"}]
        self.world.assign(*self.keys)

    @rule(data=st.data(), count=st.integers(1, 40), gap=st.integers(0, 2))
    def records_are_written(self, data, count, gap):
        key = data.draw(st.sampled_from(self.sources))
        self.world.append(key.topic, key.partition, count)
        self.world.cluster.partition(key).append_marker(gap)

    @rule(data=st.data(), count=st.integers(1, 40))
    def records_are_written_and_fetched(self, data, count):
        key = data.draw(st.sampled_from(self.sources))
        self.world.append(key.topic, key.partition, count)
        self.world.fetch(key)

    @rule()
    def all_is_fetched(self):
        for key in self.keys:
            self.world.fetch(key)

    @rule(
        data=st.data(), group=st.sampled_from([b"shop", b"other", b""]), due_in_ms=st.integers(-1000, 90_000)
    )
    def strangers_write_to_a_tier(self, data, group, due_in_ms):
        key = data.draw(st.sampled_from([key for key in self.keys if key not in self.sources]))
        due_ms = int(self.world.clock.wall_ms()) + due_in_ms
        headers = [("redrive-group", group), ("redrive-due-ms", b"%d" % due_ms)]
        self.world.append(key.topic, key.partition, headers=headers)

    @rule(
        data=st.data(),
        action=st.sampled_from(["hurry", "discard"]),
        offsets=st.sets(st.integers(0, 30), min_size=1, max_size=8),
    )
    def a_person_hurries_or_discards(self, data, action, offsets):
        key = data.draw(st.sampled_from([key for key in self.keys if key not in self.sources]))
        post(self.world, action, key, *ranges_of(sorted(offsets)))

    @rule(data=st.data(), offsets=st.sets(st.integers(0, 60), min_size=1, max_size=4))
    def a_person_skips(self, data, offsets):
        post(self.world, "skip", data.draw(st.sampled_from(self.keys)), *ranges_of(sorted(offsets)))

    @rule(data=st.data(), action=st.sampled_from(["pause", "resume"]))
    def a_person_pauses_or_resumes(self, data, action):
        say(self.world, action, data.draw(st.sampled_from(self.world.plan.listeners)).name)

    @rule(data=st.data(), most=st.integers(1, 50))
    def records_are_fetched(self, data, most):
        self.world.fetch(data.draw(st.sampled_from(self.keys)), most)

    @rule(data=st.data(), outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=30))
    def a_worker_works(self, data, outcomes):
        slots = sorted(
            place for place in self.world.slots if self.world.slots[place] or place in self.world.workers
        )
        if slots:
            self.world.work(*data.draw(st.sampled_from(slots)), outcomes)

    @rule(data=st.data(), count=st.integers(1, 60))
    def a_worker_succeeds(self, data, count):
        self.a_worker_works(data, ["ok"] * count)

    @rule(
        data=st.data(),
        refusal=st.sampled_from([None, None, None, AWAY, TOO_LARGE]),
        written=st.booleans(),
        count=st.integers(1, 10),
    )
    def writes_are_answered(self, data, refusal, written, count):
        for _ in range(min(count, len(self.world.writes))):
            index = data.draw(st.integers(0, len(self.world.writes) - 1))
            self.world.answer(index, refusal, written=written and refusal is AWAY)

    @rule(data=st.data())
    def a_commit_is_answered(self, data):
        if self.world.commits:
            keys = sorted(self.world.commits[0].offsets)
            self.world.answer_commit(*data.draw(st.lists(st.sampled_from(keys), max_size=2)))

    @rule()
    def a_commit_is_lost(self):
        del self.world.commits[:1]

    @rule(ms=st.sampled_from([0, 1, 10, 250, 1_000, 5_000, 30_000, 61_000]))
    def time_passes(self, ms):
        self.world.pass_time(ms)

    @rule(ms=st.sampled_from([-1, 0]))
    def time_passes_until_the_next_due(self, ms):
        wait_ms = self.world.engine.next_wake_ms - self.world.clock.wall_ms() + ms
        if 0 < wait_ms < 3_600_000:
            self.world.pass_time(wait_ms)

    @rule(ms=st.sampled_from([-60_000, -500, 500, 60_000]))
    def the_wall_clock_steps(self, ms):
        self.world.clock.step_wall(ms)
        self.world.pass_time(0)

    @rule(data=st.data())
    def a_revoke_begins(self, data):
        held = sorted(set(self.world.positions) - self.world.draining)
        if held:
            self.world.revoke(
                *data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=3, unique=True))
            )

    @rule()
    def all_is_revoked(self):
        self.world.revoke(*self.world.positions)

    @precondition(lambda self: self.world.draining)
    @rule(last_commit=st.sampled_from(["stored", "refused"]))
    def a_revoke_ends(self, last_commit):
        self.world.let_go(*sorted(self.world.draining), last_commit=last_commit)

    @rule(data=st.data())
    def a_partition_is_lost(self, data):
        if self.world.positions:
            lost = data.draw(st.sampled_from(sorted(self.world.positions)))
            self.world.let_go(lost, last_commit="none")

    @rule(data=st.data())
    def partitions_come_back(self, data):
        away = sorted(set(self.keys) - set(self.world.positions))
        if away:
            self.world.assign(*data.draw(st.lists(st.sampled_from(away), min_size=1, unique=True)))

    @rule()
    def the_process_dies(self):
        self.world.restart()
        self.world.assign(*self.keys)

    @invariant()
    def no_claim_without_a_fact(self):
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        if self.world.draining:
            self.world.let_go(*sorted(self.world.draining))
        away = sorted(set(self.keys) - set(self.world.positions))
        self.world.assign(*away)
        for listener in self.world.plan.listeners:
            say(self.world, "resume", listener.name)
        self.world.settle()


TestEngine = Machine.TestCase
TestEngine.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
