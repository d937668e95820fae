"""A supervisor restarts what dies, ever more rarely; replaces one at a time; and ends when all have ended."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redrive.core.commands import Report
from redrive.core.health import Health
from redrive.core.supervision import (
    GAP_MS,
    HEALTHY_MS,
    HUNG_MS,
    LIVE_MS,
    LONGEST_WAIT_MS,
    Drain,
    Kill,
    Phase,
    Start,
    Supervision,
    restart_wait_ms,
)

DRAIN_MS = 40_000.0


def health(*why: str, is_live: bool = True) -> Health:
    return Health(is_live=is_live, is_ready=not why, why=why, step_age_s=0.0, last_problem="", listeners=())


READY, JOINING = health(), health("it has not joined its group yet")


class Told:
    """A supervision, the time, and what it ordered since it was last looked at."""

    def __init__(self, count: int = 2) -> None:
        self.supervision = Supervision(count, drain_most_ms=DRAIN_MS)
        self.now_ms = 1_000.0
        self.events: list[str] = []
        self._orders: list[object] = []
        self._note(self.supervision.begin(self.now_ms))

    def orders(self) -> list[object]:
        """All but what is only told."""
        found, self._orders = self._orders, []
        return found

    def told(self, worker: int, state: Health | None = READY) -> None:
        self._note(self.supervision.told(worker, state, self.now_ms))

    def all_ready(self) -> "Told":
        for worker in self.supervision.workers:
            self.told(worker.number)
        self.orders()
        return self

    def ended(self, worker: int, code: int = 1) -> None:
        self._note(self.supervision.ended(worker, code, f"exit code {code}", self.now_ms))

    def stop(self) -> None:
        self._note(self.supervision.stop_asked(self.now_ms))

    def kill(self) -> None:
        self._note(self.supervision.kill_asked(self.now_ms))

    def restart(self) -> None:
        self._note(self.supervision.restart_asked(self.now_ms))

    def passes(self, ms: float) -> None:
        """Time, in steps of a second as the loop makes them."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1_000)
            self._note(self.supervision.tick(self.now_ms))

    def _note(self, orders: list) -> None:
        self.events += [order.event for order in orders if isinstance(order, Report)]
        self._orders += [order for order in orders if not isinstance(order, Report)]


class TestDeaths:
    def test_all_are_started_at_the_beginning(self):
        assert Told(3).orders() == [Start(0), Start(1), Start(2)]

    def test_waits_grow_up_to_half_a_minute(self):
        waits_s = [restart_wait_ms(deaths) / 1000 for deaths in range(1, 9)]
        assert waits_s == [1, 2, 4, 8, 16, 30, 30, 30]
        assert restart_wait_ms(10**9) == LONGEST_WAIT_MS

    def test_who_dies_is_started_again_after_its_wait_and_no_other(self):
        told = Told().all_ready()
        told.ended(1, -9)
        told.passes(999)
        assert told.orders() == []
        told.passes(1)
        assert told.orders() == [Start(1)]

    def test_who_dies_at_once_each_time_makes_no_storm(self):
        """Ten minutes: five quick starts, then two a minute."""
        told = Told(1)
        starts = 0
        for _ in range(600):
            started = told.orders().count(Start(0))
            starts += started
            if started:
                told.ended(0)
            told.passes(1_000)
        assert starts <= 5 + 600 / 30 + 1
        assert told.supervision.exit_code is None

    @pytest.mark.parametrize(("ready_ms", "wait_ms"), [(HEALTHY_MS, 1_000), (HEALTHY_MS - 1, 8_000)])
    def test_a_healthy_minute_makes_the_next_death_a_first_one(self, ready_ms, wait_ms):
        told = Told(1).all_ready()
        for _ in range(3):
            told.ended(0)
            told.passes(restart_wait_ms(told.supervision.workers[0].deaths))
        told.told(0)
        while ready_ms > 0:
            told.passes(min(1_000, ready_ms))
            told.told(0)
            ready_ms -= 1_000
        told.orders()
        told.ended(0)
        told.passes(wait_ms - 1)
        assert told.orders() == []
        told.passes(1)
        assert told.orders() == [Start(0)]

    def test_a_usage_error_at_the_start_ends_all_with_that_code(self):
        told = Told()
        told.orders()
        told.ended(0, 2)
        assert told.orders() == [Drain(1)]
        told.ended(1, 0)
        assert told.supervision.exit_code == 2
        assert told.events[0] == "worker-unusable"

    def test_a_usage_error_once_workers_were_ready_does_not_end_the_others(self):
        told = Told().all_ready()
        told.ended(0, 2)
        told.passes(1_000)
        assert told.orders() == [Start(0)]

    @pytest.mark.parametrize("was_ready", [True, False])
    def test_a_listener_that_stopped_at_a_record_ends_all_with_that_code(self, was_ready):
        told = Told().all_ready() if was_ready else Told()
        told.orders()
        told.ended(0, 6)
        assert told.orders() == [Drain(1)]
        told.passes(LONGEST_WAIT_MS)
        told.ended(1, 0)
        assert (told.supervision.exit_code, told.orders(), told.events[0]) == (6, [], "worker-stopped")

    @pytest.mark.parametrize("others", [0, 1, 6, -9])
    def test_how_the_others_end_then_does_not_change_the_code(self, others):
        told = Told().all_ready()
        told.ended(0, 6)
        told.ended(1, others)
        assert told.supervision.exit_code == 6

    def test_a_process_that_can_not_be_started_is_a_death(self):
        told = Told(1)
        told.ended(0, 1)
        assert told.events == ["worker-ended"]
        assert told.supervision.workers[0].phase is Phase.WAITING


class TestStop:
    def test_all_drain_and_the_last_end_is_the_end(self):
        told = Told().all_ready()
        told.stop()
        assert told.orders() == [Drain(0), Drain(1)]
        told.ended(0, 0)
        assert told.supervision.exit_code is None
        told.ended(1, 0)
        assert told.supervision.exit_code == 0

    def test_who_waits_for_a_restart_is_not_started_any_more(self):
        told = Told().all_ready()
        told.ended(0)
        told.stop()
        told.ended(1, 0)
        told.passes(LONGEST_WAIT_MS)
        assert told.orders() == [Drain(1)]
        assert told.supervision.exit_code == 0

    @pytest.mark.parametrize(
        ("was_ready", "code", "ends_with"),
        [
            (True, 0, 0),
            (True, 1, 1),
            (True, -9, 1),
            (True, -15, 1),
            (True, 6, 6),
            (False, -15, 0),
            (False, 1, 1),
        ],
    )
    def test_the_exit_code_tells_whether_all_ended_well(self, was_ready, code, ends_with):
        told = Told(1)
        if was_ready:
            told.all_ready()
        told.stop()
        told.ended(0, code)
        assert told.supervision.exit_code == ends_with

    def test_who_does_not_end_in_time_is_killed_once(self):
        told = Told(1).all_ready()
        told.stop()
        told.passes(DRAIN_MS)
        assert told.orders() == [Drain(0)]
        told.passes(10_000)
        assert told.orders() == [Kill(0)]

    def test_the_second_order_kills_what_is_left(self):
        told = Told().all_ready()
        told.stop()
        told.ended(1, 0)
        told.orders()
        told.kill()
        told.passes(2 * DRAIN_MS)
        assert told.orders() == [Kill(0)]

    def test_a_rolling_restart_after_it_does_nothing(self):
        told = Told().all_ready()
        told.stop()
        told.orders()
        told.restart()
        assert told.orders() == []


class TestRollingRestart:
    def test_one_after_another_and_the_next_when_the_new_one_is_ready(self):
        told = Told().all_ready()
        told.restart()
        assert told.orders() == [Drain(0)]
        told.ended(0, 0)
        assert told.orders() == [Start(0)]
        told.told(0, None)
        told.told(0, JOINING)
        told.passes(10_000)
        assert told.orders() == []
        told.told(0)
        assert told.orders() == [Drain(1)]
        told.ended(1, 0)
        assert told.orders() == [Start(1)]
        told.told(1)
        assert told.events[-1] == "rolling-restart-over"

    def test_a_new_version_that_does_not_come_up_replaces_no_more_than_one(self):
        told = Told(3).all_ready()
        told.restart()
        told.ended(0, 0)
        for _ in range(20):
            told.ended(0, 1)
            told.passes(LONGEST_WAIT_MS)
            for worker in (1, 2):
                told.told(worker)
        assert set(told.orders()) == {Drain(0), Start(0)}

    def test_the_mended_version_gets_through_at_once(self):
        told = Told().all_ready()
        told.restart()
        told.ended(0, 0)
        told.ended(0, 1)
        told.orders()
        told.restart()
        assert told.orders() == [Start(0)]
        told.told(0)
        assert told.orders() == [Drain(1)]

    def test_who_does_no_work_is_replaced_first(self):
        told = Told(3).all_ready()
        told.told(1, JOINING)
        told.restart()
        assert told.orders() == [Drain(1)]

    def test_asked_again_meanwhile_all_are_replaced_by_what_there_is_then(self):
        told = Told().all_ready()
        told.restart()
        told.ended(0, 0)
        told.told(0)
        told.ended(1, 0)
        told.orders()
        told.restart()  # both run already, the second isn't ready yet
        assert told.orders() == [Drain(1)]
        told.ended(1, 0)
        told.told(1)
        assert told.orders() == [Start(1), Drain(0)]

    def test_an_end_that_was_asked_for_is_no_death_however_it_comes(self):
        told = Told().all_ready()
        told.restart()
        told.ended(0, 1)
        assert told.orders() == [Drain(0), Start(0)]
        assert told.supervision.workers[0].deaths == 0


class TestHung:
    def test_who_is_not_heard_of_for_long_is_drained_then_killed_then_started_again(self):
        told = Told(1).all_ready()
        told.passes(HUNG_MS)
        assert told.orders() == []
        told.passes(1_000)
        assert told.orders() == [Drain(0)]
        told.passes(DRAIN_MS + 1_000)
        assert told.orders() == [Kill(0)]
        told.ended(0, -9)
        told.passes(1_000)
        assert told.orders() == [Start(0)]

    def test_who_answers_that_its_pump_stands_still_is_hung_too(self):
        told = Told(1).all_ready()
        for _ in range(62):
            told.passes(1_000)
            told.told(0, health("the pump has not moved for 61 s", is_live=False))
        assert told.orders() == [Drain(0)]

    def test_who_is_starting_may_take_as_long_as_it_wants(self):
        told = Told(1)
        told.told(0, None)
        told.passes(100 * HUNG_MS)
        assert told.orders() == [Start(0)]

    def test_a_supervisor_that_was_frozen_itself_blames_nobody(self):
        told = Told(1).all_ready()
        told.now_ms += HUNG_MS + GAP_MS
        told.passes(1_000)
        assert told.orders() == []


class TestHealth:
    def test_all_ready(self):
        told = Told().all_ready()
        judged = told.supervision.judge(told.now_ms)
        assert (judged.is_live, judged.is_ready, judged.why) == (True, True, ())

    def test_each_worker_says_what_it_lacks(self):
        told = Told(4)
        told.told(0)
        told.told(1, JOINING)
        told.ended(3, 1)
        judged = told.supervision.judge(told.now_ms)
        assert (judged.is_live, judged.is_ready) == (True, False)
        assert judged.why == (
            "worker 1: it has not joined its group yet",
            "worker 2: it is starting",
            "worker 3: it ended by itself and is started again in 1 s",
        )

    def test_who_does_not_answer_is_not_ready_long_before_it_is_replaced(self):
        told = Told().all_ready()
        for _ in range(10):
            told.passes(1_000)
            told.told(0)
        assert told.supervision.judge(told.now_ms).why == ("worker 1: it has not answered for 10 s",)
        assert told.orders() == []

    def test_a_loop_that_stands_still_is_not_live(self):
        told = Told().all_ready()
        judged = told.supervision.judge(told.now_ms + LIVE_MS)
        assert (judged.is_live, judged.is_ready) == (False, False)


class Processes(RuleBasedStateMachine):
    """Orders are obeyed by processes that come, become ready, die and end as they like."""

    @initialize(count=st.integers(1, 4))
    def begin(self, count):
        self.supervision = Supervision(count, drain_most_ms=DRAIN_MS)
        self.now_ms = 0.0
        self.generation = 0
        #: Of each running process: its generation, and whether it is ready.
        self.running: dict[int, tuple[int, bool]] = {}
        self.draining: set[int] = set()
        self.may_start_ms = dict.fromkeys(range(count), 0.0)
        self.is_stopping = self.is_kill_due = False
        self.obey(self.supervision.begin(self.now_ms))

    def obey(self, orders):
        for order in orders:
            match order:
                case Start(number):
                    assert number not in self.running
                    assert not self.is_stopping
                    assert self.now_ms >= self.may_start_ms[number]
                    self.running[number] = (self.generation, False)
                    self.obey(self.supervision.started(number, 100 + number))
                case Drain(number):
                    assert number in self.running
                    assert number not in self.draining
                    if not self.is_stopping:
                        assert self.draining == set()
                        assert self.running[number][0] < self.generation
                        assert all(
                            is_ready for at, is_ready in self.running.values() if at == self.generation
                        )
                    self.draining.add(number)
                case Kill(number):
                    assert number in self.draining

    @rule(ms=st.sampled_from([1.0, 500.0, 2_000.0, GAP_MS]))
    def time_passes(self, ms):
        self.now_ms += ms
        for number in set(self.running) - self.draining:
            self.say(number, is_ready=self.running[number][1])
        self.obey(self.supervision.tick(self.now_ms))

    @precondition(lambda self: set(self.running) - self.draining)
    @rule(data=st.data(), is_ready=st.booleans())
    def one_says(self, data, is_ready):
        self.say(data.draw(st.sampled_from(sorted(set(self.running) - self.draining))), is_ready=is_ready)

    def say(self, number, *, is_ready):
        if number in self.running and number not in self.draining:
            self.running[number] = (self.running[number][0], is_ready)
            self.obey(self.supervision.told(number, READY if is_ready else JOINING, self.now_ms))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), code=st.sampled_from([0, 1, 2, 6, -9, -15]))
    def one_ends(self, data, code):
        number = data.draw(st.sampled_from(sorted(self.running)))
        del self.running[number]
        if number not in self.draining:
            self.may_start_ms[number] = self.now_ms + restart_wait_ms(1)
        self.draining.discard(number)
        was_any_ready = self.supervision._was_any_ready
        if code == 6 or (code == 2 and not was_any_ready and not self.is_stopping):
            self.is_stopping = True
        self.obey(self.supervision.ended(number, code, "somehow", self.now_ms))

    @rule()
    def stop(self):
        self.is_stopping = True
        self.obey(self.supervision.stop_asked(self.now_ms))

    @rule()
    def restart(self):
        if not self.is_stopping:
            self.generation += 1
            self.may_start_ms = dict.fromkeys(self.may_start_ms, 0.0)
        self.obey(self.supervision.restart_asked(self.now_ms))

    @invariant()
    def it_knows_what_runs(self):
        if not hasattr(self, "supervision"):
            return
        known = {w.number for w in self.supervision.workers if w.phase in (Phase.RUNNING, Phase.DRAINING)}
        assert known == set(self.running)
        assert (self.supervision.exit_code is not None) == (self.is_stopping and not self.running)

    def teardown(self):
        """Whatever happened: when everybody does as told, a supervisor that runs on has all workers ready."""
        if not hasattr(self, "supervision") or self.is_stopping:
            return
        for _ in range(400):
            self.now_ms += 1_000
            for number in list(self.running):
                if number in self.draining:
                    del self.running[number]
                    self.draining.discard(number)
                    self.obey(self.supervision.ended(number, 0, "exit code 0", self.now_ms))
                else:
                    self.say(number, is_ready=True)
            self.obey(self.supervision.tick(self.now_ms))
        assert self.supervision.judge(self.now_ms).is_ready
        assert {at for at, _ in self.running.values()} == {self.generation}


TestProcesses = Processes.TestCase
