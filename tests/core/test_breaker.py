"""The breaker opens when nearly all fails, not when much does; lets one probe at a time through; closes when one comes through."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.core.breaker import (
    ENOUGH_ATTEMPTS,
    ENOUGH_SLOW_ATTEMPTS,
    FAILING_SHARE,
    PROBE_FIRST_MS,
    PROBE_MOST_MS,
    PROBE_PATIENCE_MS,
    SLOW_MS,
    STEADY_MS,
    TOKEN_EACH_MS,
    TOKENS_MOST,
    UNTOLD_PROBES,
    WINDOW_MS,
    Breaker,
    sign_of,
)
from redrive.core.commands import Failed
from redrive.core.dialects import NO_ENVELOPE
from redrive.core.failure import Failure, Kind

MINUTE_MS = 60_000.0


def opened(*, at_ms=0.0, has_health=False):
    breaker = Breaker(has_health=has_health)
    breaker.open(at_ms)
    return breaker


def reclosed(*, at_ms=0.0):
    """A breaker that was open, and was closed by its first probe at `at_ms`."""
    breaker = opened(at_ms=at_ms - PROBE_FIRST_MS)
    breaker.probing(0.0)
    assert breaker.probed("up", at_ms)
    return breaker


def failed(kind, signal=""):
    return Failed(None, Failure(kind=kind, type="Error", message="", rule=""), 1, 0.0, NO_ENVELOPE, signal)


class TestWhatItOpensFor:
    @pytest.mark.parametrize(
        ("ok", "failing", "opens"),
        [
            (0, 99, False),
            (0, 100, True),
            (10, 90, True),
            (11, 90, False),
            (500, 500, False),
            (0, 1_000, True),
        ],
    )
    def test_one_result_of_at_least_a_hundred_attempts_nine_of_ten_failing(self, ok, failing, opens):
        assert Breaker().finished(ok, failing, 0.0) == opens

    def test_what_succeeded_before_does_not_hold_it_up_once_a_hundred_have_failed(self):
        breaker = Breaker()
        for ms in range(10_000):
            breaker.finished(1_000, 0, ms)
        assert [breaker.finished(0, 50, 10_000.0), breaker.finished(0, 50, 10_000.0)] == [False, True]

    def test_twenty_are_enough_where_they_took_ten_seconds(self):
        breaker = Breaker()
        opens = [breaker.finished(0, 1, at * SLOW_MS / 19) for at in range(20)]
        assert opens == [False] * 19 + [True]

    def test_twenty_are_too_few_where_they_came_at_once(self):
        breaker = Breaker()
        assert not any(breaker.finished(0, 1, 0.0) for _ in range(99))

    def test_slow_failures_are_not_hidden_by_quick_successes_before(self):
        breaker = Breaker()
        breaker.finished(1_000, 0, 0.0)
        opens = [breaker.finished(0, 10, 30_000.0 * minute) for minute in (1, 2, 3)]
        assert opens == [False, True, False]

    @pytest.mark.parametrize("records", [3, 19])
    def test_few_records_never_open_it(self, records):
        breaker = Breaker()
        assert not any(breaker.finished(0, 1, at * MINUTE_MS) for at in range(records))

    def test_failures_older_than_ten_minutes_are_forgotten(self):
        breaker = Breaker()
        assert not any(breaker.finished(0, 1, day * 86_400_000.0) for day in range(200))

    def test_where_nothing_more_is_told_time_alone_may_open_it(self):
        breaker = Breaker()
        breaker.finished(0, 60, 0.0)
        assert [breaker.refresh(ms) for ms in (SLOW_MS - 1, SLOW_MS, SLOW_MS + 1)] == [False, True, False]

    def test_time_alone_forgets_too(self):
        breaker = Breaker()
        breaker.finished(0, 19, 0.0)
        assert not breaker.refresh(WINDOW_MS)
        assert not breaker.finished(0, 1, WINDOW_MS)

    def test_a_result_without_attempts_is_no_evidence(self):
        breaker = Breaker()
        breaker.finished(0, 19, 0.0)
        assert not breaker.finished(0, 0, SLOW_MS)

    def test_an_outage_opens_it_at_once(self):
        assert opened().state == "open"

    def test_what_finished_before_it_opened_counts_no_more_after_it_closed(self):
        breaker = Breaker()
        breaker.finished(0, 19, 0.0)
        breaker.open(0.0)
        breaker.probing(0.0)
        breaker.probed("up", 1_000.0)
        assert not breaker.finished(0, 19, 2_000.0)


class TestWorlds:
    """Ten minutes of one listener: so many attempts a second in runs of so many, of which a share fails."""

    PACES = ((1, 1), (2, 1), (10, 1), (100, 2), (5_000, 100), (100_000, 1_000))

    @pytest.mark.parametrize(("rate", "run"), PACES)
    @pytest.mark.parametrize("share", [0.05, 0.3])
    def test_a_share_that_fails_at_random_for_ten_minutes_never_opens_it(self, rate, run, share):
        breaker, dice = Breaker(), random.Random(f"{rate}/{share}")
        for at in range(600 * rate // run):
            failing = sum(dice.random() < share for _ in range(run)) if run < 1_000 else int(share * run)
            assert not breaker.finished(run - failing, failing, at * 1_000.0 * run / rate)

    @pytest.mark.parametrize(("rate", "run"), PACES)
    def test_an_outage_costs_a_hundred_attempts_at_most_or_the_run_that_opens_it(self, rate, run):
        """After a minute in which all went well. What a run that opens it brings is held already."""
        breaker = Breaker()
        for at in range(60 * rate // run):
            breaker.finished(run, 0, at * 1_000.0 * run / rate)
        routed, mono_ms = 0, MINUTE_MS
        while not breaker.finished(0, run, mono_ms):
            routed += run
            mono_ms += 1_000.0 * run / rate
        assert routed < ENOUGH_ATTEMPTS

    @pytest.mark.parametrize(("slots", "timeout_s"), [(1, 5), (10, 30), (200, 30)])
    def test_timeouts_that_take_long_open_it_too(self, slots, timeout_s):
        breaker, routed = Breaker(), 0
        for turn in range(1, 100):
            for _ in range(slots):
                if breaker.finished(0, 1, turn * timeout_s * 1_000.0):
                    assert routed < ENOUGH_ATTEMPTS
                    return
                routed += 1
        pytest.fail("never opened")

    @pytest.mark.parametrize("share", [0.02, 0.08])
    def test_some_records_that_need_nothing_of_the_downstream_do_not_hide_an_outage(self, share):
        breaker, dice = Breaker(), random.Random(7)
        attempts = iter(range(10_000))
        while not breaker.finished(*((1, 0) if dice.random() < share else (0, 1)), next(attempts)):
            pass
        assert next(attempts) < 5 * ENOUGH_ATTEMPTS

    def test_a_downstream_that_comes_and_goes_is_tried_less_and_less(self):
        """Each probe comes through, all after it fails: twenty attempts a time, and at most one time a minute."""
        breaker, mono_ms, attempts, times = Breaker(), 0.0, 0, 0
        while mono_ms < 60 * MINUTE_MS:
            while not breaker.finished(0, 1, mono_ms):
                attempts += 1
            times += 1
            mono_ms = breaker.probe_ms
            breaker.probing(0.0)
            assert breaker.probed("up", mono_ms)
        assert (breaker.pause_ms, times < 70) == (PROBE_MOST_MS, True)
        assert attempts <= ENOUGH_ATTEMPTS + times * ENOUGH_SLOW_ATTEMPTS


class TestWhatAFailureSays:
    @pytest.mark.parametrize(
        ("kind", "signal", "sign"),
        [
            (Kind.TRANSIENT, "", "down"),
            (Kind.OUTAGE, "", "outage"),
            (Kind.PERMANENT, "", "other"),
            (Kind.POISON, "", "none"),
            (Kind.PERMANENT, "dead-letter", "other"),
            (Kind.PERMANENT, "skip", "up"),
            (Kind.TRANSIENT, "retry-later", "up"),
        ],
    )
    def test_only_transient_ones_and_outages_speak_against_the_downstream(self, kind, signal, sign):
        assert sign_of(failed(kind, signal)) == sign


class TestProbes:
    def test_the_first_comes_after_a_second(self):
        breaker = opened(at_ms=500)
        assert [breaker.next_step(ms) for ms in (500, 1_499, 1_500)] == ["wait", "wait", "probe"]

    def test_one_at_a_time(self):
        breaker = opened()
        breaker.probing(0.0)
        assert (breaker.state, breaker.next_step(PROBE_PATIENCE_MS - 1)) == ("half-open", "wait")

    def test_one_whose_handler_hangs_is_not_waited_for_any_longer_than_five_minutes(self):
        breaker = opened()
        breaker.probing(1_000.0)
        assert breaker.next_step(1_000.0 + PROBE_PATIENCE_MS) == "probe"

    def test_each_that_fails_doubles_the_pause_up_to_a_minute(self):
        breaker, mono_ms, pauses = opened(), 0.0, []
        for _ in range(8):
            pauses.append(breaker.pause_ms / 1_000)
            mono_ms += breaker.pause_ms
            assert breaker.next_step(mono_ms) == "probe"
            breaker.probing(0.0)
            assert not breaker.probed("down", mono_ms)
        assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]

    @pytest.mark.parametrize("sign", ["up", "other"])
    def test_one_that_comes_through_closes_it_and_so_does_one_that_fails_for_good(self, sign):
        breaker = opened()
        breaker.probing(0.0)
        assert (breaker.probed(sign, 1_000.0), breaker.state) == (True, "closed")

    def test_one_that_says_nothing_is_followed_by_another_after_the_same_pause(self):
        breaker = opened()
        breaker.probing(0.0)
        assert (breaker.probed("none", 1_000.0), breaker.pause_ms, breaker.probe_ms) == (False, 1_000, 2_000)

    def test_one_that_never_ran_is_followed_by_another_at_once(self):
        breaker = opened()
        breaker.probing(0.0)
        breaker.unprobed()
        assert breaker.next_step(1_000.0) == "probe"

    def test_what_other_runs_bring_home_while_it_is_open_changes_nothing(self):
        breaker = opened()
        assert (breaker.finished(500, 0, 100.0), breaker.finished(0, 500, 100.0)) == (False, False)
        assert (breaker.probed("up", 200.0), breaker.state, breaker.probe_ms) == (False, "open", 1_000)

    def test_opening_it_again_while_it_is_open_does_not_put_the_probe_off(self):
        breaker = opened()
        breaker.open(900.0)
        assert breaker.next_step(1_000.0) == "probe"

    def test_soon_after_it_closed_twenty_failures_open_it_and_the_pause_goes_on_growing(self):
        breaker = reclosed(at_ms=5_000)
        assert (breaker.finished(0, 19, 5_100), breaker.finished(0, 1, 5_100)) == (False, True)
        assert breaker.pause_ms == 2 * PROBE_FIRST_MS

    def test_a_minute_after_it_closed_all_is_as_before(self):
        breaker = reclosed(at_ms=0)
        assert not breaker.finished(0, 99, STEADY_MS)
        assert breaker.finished(0, 1, STEADY_MS)
        assert breaker.pause_ms == PROBE_FIRST_MS


class TestTheHealthFunction:
    def test_it_is_asked_before_a_probe_and_only_once(self):
        breaker = opened(has_health=True)
        assert (breaker.next_step(999.0), breaker.next_step(1_000.0)) == ("wait", "ask")
        breaker.asked()
        assert breaker.next_step(5_000.0) == "wait"

    def test_yes_lets_a_probe_start_and_does_not_close(self):
        breaker = opened(has_health=True)
        breaker.asked()
        breaker.answered(is_healthy=True, mono_ms=1_100.0)
        assert (breaker.state, breaker.next_step(1_100.0)) == ("open", "probe")

    def test_no_is_waited_upon_like_a_probe_that_failed(self):
        breaker = opened(has_health=True)
        breaker.asked()
        breaker.answered(is_healthy=False, mono_ms=1_100.0)
        assert [breaker.next_step(ms) for ms in (3_099.0, 3_100.0)] == ["wait", "ask"]

    def test_yes_is_good_for_one_probe(self):
        breaker = opened(has_health=True)
        breaker.asked()
        breaker.answered(is_healthy=True, mono_ms=1_000.0)
        breaker.probing(0.0)
        breaker.probed("none", 1_001.0)
        assert breaker.next_step(2_001.0) == "ask"

    def test_yes_is_not_good_for_ever(self):
        """There was nothing to try meanwhile."""
        breaker = opened(has_health=True)
        breaker.asked()
        breaker.answered(is_healthy=True, mono_ms=1_000.0)
        assert [breaker.next_step(ms) for ms in (1_999.0, 2_000.0)] == ["probe", "ask"]

    def test_an_answer_that_comes_late_changes_nothing(self):
        breaker = opened(has_health=True)
        breaker.asked()
        breaker.probing(0.0)
        breaker.probed("up", 1_000.0)
        breaker.answered(is_healthy=False, mono_ms=1_100.0)
        assert (breaker.state, breaker.pause_ms) == ("closed", PROBE_FIRST_MS)


class TestTokens:
    def test_while_closed_none_is_needed(self):
        breaker = Breaker()
        assert all(breaker.take_token(0.0) for _ in range(100))

    def test_in_an_outage_of_five_minutes_eleven_records_may_die(self):
        breaker = opened()
        assert sum(breaker.take_token(ms) for ms in range(0, 300_001, 100)) == TOKENS_MOST + 1

    def test_one_more_comes_each_five_minutes(self):
        breaker = opened()
        while breaker.take_token(0.0):
            pass
        hour_ms = 12 * TOKEN_EACH_MS
        assert sum(breaker.take_token(ms) for ms in range(0, int(hour_ms) + 1, 1_000)) == 12

    def test_each_success_gives_one_up_to_ten(self):
        breaker = opened()
        while breaker.take_token(0.0):
            pass
        breaker.finished(3, 0, 0.0)
        assert [breaker.take_token(0.0) for _ in range(4)] == [True, True, True, False]
        breaker.finished(1_000, 0, 0.0)
        assert sum(breaker.take_token(0.0) for _ in range(100)) == TOKENS_MOST


results = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 40_000)), max_size=60)


class NaiveBreaker:
    """The rules as they are told, over a list of all results since it closed."""

    def __init__(self):
        self.calls = []
        self.state = "closed"
        self.closed_ms = -1e12
        self.pause_ms = self.probe_ms = None

    def finished(self, ok, failing, now_ms):
        if self.state != "closed" or not ok + failing:
            return
        self.calls.append((now_ms, ok + failing, failing))
        calls = [call for call in self.calls if call[0] > now_ms - WINDOW_MS]
        for count in range(1, len(calls) + 1):
            latest = calls[-count:]
            attempts = sum(call[1] for call in latest)
            enough_slow = attempts >= ENOUGH_SLOW_ATTEMPTS and (
                now_ms - latest[0][0] >= SLOW_MS or now_ms - self.closed_ms < STEADY_MS
            )
            if attempts >= ENOUGH_ATTEMPTS or enough_slow:
                if sum(call[2] for call in latest) >= FAILING_SHARE * attempts:
                    self.open(now_ms)
                return

    def open(self, now_ms, told_ms=None):
        if self.state != "closed":
            return
        self.told_ms, self.since_told = told_ms, []
        lately = now_ms - self.closed_ms < STEADY_MS
        self.pause_ms = min(PROBE_MOST_MS, 2 * self.pause_ms) if lately else PROBE_FIRST_MS
        self.probe_ms = now_ms + self.pause_ms
        self.state, self.calls = "open", []

    def probed(self, sign, now_ms):
        self.since_told = [] if sign == "outage" else [*self.since_told, sign]
        if self.told_ms is not None and sign == "outage":
            self.told_ms = now_ms
        is_stale = self.told_ms is not None and now_ms - self.told_ms >= WINDOW_MS
        if sign in ("up", "other") or (is_stale and self.since_told.count("down") >= UNTOLD_PROBES):
            self.state, self.closed_ms = "closed", now_ms
            return
        self.state = "open"
        if sign in ("down", "outage"):
            self.pause_ms = min(PROBE_MOST_MS, 2 * self.pause_ms)
        self.probe_ms = now_ms + self.pause_ms


class Worlds(RuleBasedStateMachine):
    """Whatever happens in whatever order, it is in the state that the rules say."""

    def __init__(self):
        super().__init__()
        self.breaker, self.naive, self.now_ms = Breaker(), NaiveBreaker(), 0.0

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, 10_000, 60_000, 600_000]))
    def time_passes(self, ms):
        self.now_ms += ms

    @rule(ok=st.integers(0, 3), failing=st.integers(0, 60))
    def a_run_comes_home(self, ok, failing):
        was = self.naive.state
        self.naive.finished(ok, failing, self.now_ms)
        assert self.breaker.finished(ok, failing, self.now_ms) == (was != self.naive.state)

    @rule()
    def an_outage_is_met(self):
        self.naive.open(self.now_ms, told_ms=self.now_ms)
        self.breaker.open(self.now_ms, is_told=True)

    @precondition(lambda self: self.naive.state == "open")
    @rule()
    def a_probe_starts(self):
        self.now_ms = max(self.now_ms, self.naive.probe_ms)
        assert self.breaker.next_step(self.now_ms) == "probe"
        self.breaker.probing(self.now_ms)
        self.naive.state = "half-open"

    @precondition(lambda self: self.naive.state == "half-open")
    @rule(sign=st.sampled_from(["up", "down", "down", "down", "outage", "other", "none"]))
    def it_comes_home(self, sign):
        self.naive.probed(sign, self.now_ms)
        assert self.breaker.probed(sign, self.now_ms) == (self.naive.state == "closed")

    @invariant()
    def both_agree(self):
        assert self.breaker.state == self.naive.state
        if self.naive.state == "open":
            assert (self.breaker.pause_ms, self.breaker.probe_ms) == (
                self.naive.pause_ms,
                self.naive.probe_ms,
            )
            early_ms = min(self.now_ms, self.naive.probe_ms - 1)
            assert self.breaker.next_step(early_ms) == "wait"


TestAnyWorld = Worlds.TestCase
TestAnyWorld.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


@given(results)
def test_what_it_remembers_is_bounded_and_it_opens_only_when_nine_of_ten_of_at_least_twenty_failed(calls):
    breaker, now_ms, since = Breaker(), 0.0, []
    for ok, failing, then_ms in calls:
        since.append((ok, failing))
        if breaker.finished(ok, failing, now_ms):
            tails = [since[-count:] for count in range(1, len(since) + 1)]
            counts = [(sum(o + f for o, f in tail), sum(f for _, f in tail)) for tail in tails]
            assert any(all_ >= 20 and failed_ >= 0.9 * all_ for all_, failed_ in counts)
            return
        assert len(breaker._window) <= ENOUGH_ATTEMPTS
        now_ms += then_ms
