"""Faults against what is promised and against the protocols behind it, planted as those of `plants.py`."""

from tests.planted.plant import Plant

_REBALANCES = "tests/sim/test_rebalances.py"
_EARLY_RECORDS = (
    "tests/runtime/test_pump_rebalances.py"
    "::test_t_reb_3_records_that_come_before_their_partition_was_assigned_are_left_and_come_again"
)
_LONG_HANDLER = (
    f"{_REBALANCES}"
    "::test_t_reb_4_a_handler_of_ninety_seconds_holds_up_a_rebalance_for_the_drain_and_costs_no_membership"
)
_BRAKE = "tests/runtime/test_pump_brake.py"
_COMMITS = "tests/core/test_commits.py"

PROMISES = {
    "lets go of a partition without waiting for what runs and without a commit": Plant(
        "runtime/pump.py",
        "        self._drain(keys)\n        self._let_go(keys)\n",
        "        self._let_go(keys)\n",
        (
            (
                f"{_REBALANCES}"
                "::test_t_reb_1_twelve_thirteen_and_twelve_members_again_hold_nothing_back_and_repeat_nothing"
            ),
        ),
        r"\[1, 1",
    ),
    "keeps the lanes of partitions that it let go": Plant(
        "runtime/pump.py",
        "        self._drain(keys)\n        self._let_go(keys)\n",
        "        self._drain(keys)\n        self._performers[str(len(self._performers))] = dict(self.engine.lanes)\n        self._let_go(keys)\n",
        (
            "tests/bounds/test_objects.py::test_after_two_hundred_rebalances_there_are_as_many_objects_as_after_twenty",
        ),
        r"Lane': \(",
    ),
    "holds up a rebalance for as long as a handler takes": Plant(
        "runtime/pump.py",
        "self.engine.is_quiet(keys) and self._clock.mono_ms() < deadline_ms",
        "self.engine.is_quiet(keys)",
        (_LONG_HANDLER,),
        r"<= \(10000 \+ 5000",
    ),
    "takes results of an assignment that is over": Plant(
        "core/engine.py",
        "        if lane.alive:\n            done = run.settled",
        "        if True:\n            done = run.settled",
        (_LONG_HANDLER,),
        r"\[1, 1, 2, 2\], \[1, 2\]\] == ",
    ),
    "takes records of a partition that it was not assigned": Plant(
        "core/engine.py",
        "        if lane is None or lane.is_stopping or lane.is_rewound:\n            return\n        first,",
        "        if lane is not None and (lane.is_stopping or lane.is_rewound):\n            return\n        first,",
        (_EARLY_RECORDS,),
        "NoneType",
    ),
    "a new group passes what nobody has read": Plant(
        "runtime/starting.py",
        'latest = [key for key in new if self._at.get(key.topic) == "latest"]',
        "latest = list(new)",
        (_EARLY_RECORDS,),
        r"\[\], 3\) == \(\[1, 2, 3\], 3",
    ),
    "runs records before their due": Plant(
        "core/schedule.py",
        "            elif fifo and fifo[0][0] <= now_ms:\n",
        "            elif fifo and fifo[0][0] <= now_ms + 50:\n",
        (
            (
                "tests/core/test_schedule.py"
                "::test_whatever_is_held_comes_out_once_not_before_its_time_and_the_earliest_first"
            ),
        ),
        r"False = all\(",
    ),
    "the brake never comes on": Plant(
        "core/brake.py",
        "        should_be_on = mostly_dead and",
        "        should_be_on = False and",
        (f"{_BRAKE}::test_when_all_records_fail_the_brake_comes_on_before_a_hundred_have_died",),
        r"\d+ <= \(100 \+ 1\)",
    ),
    "a commit tells of no finished record above the frontier": Plant(
        "core/offsets.py",
        "ranges = () if is_bare else",
        "ranges = () if True else",
        (
            (
                "tests/runtime/test_pump_metadata.py"
                "::test_t_off_1_of_what_finished_out_of_order_nothing_runs_again_and_all_else_does"
            ),
        ),
        r"\(0, set\(\)\) == \(0, \{1, 2",
    ),
    "what finished while a commit was on its way counts as committed": Plant(
        "core/commits.py",
        "lane.acked, lane.acked_mono_ms = said.snapshot, now.mono_ms",
        "lane.acked, lane.acked_mono_ms = lane.offsets.snapshot(self._identity(lane.key.topic)), 0.0",
        (f"{_COMMITS}::test_t_off_2_what_finished_while_a_commit_was_on_its_way_is_part_of_the_next",),
        "'NoneType' object has no attribute 'snapshot'",
    ),
    "sends a commit while another one is on its way": Plant(
        "core/commits.py",
        "            if now.mono_ms < self._sent_mono_ms + ANSWER_TIMEOUT_MS:\n",
        "            if now.mono_ms < self._sent_mono_ms:\n",
        (
            (
                f"{_COMMITS}"
                "::test_many_records_are_committed_before_the_interval_is_over_but_not_while_a_commit_is_on_its_way"
            ),
        ),
        r"False, True, True\] == \[True",
    ),
    "runs what another group wrote to a shared tier": Plant(
        "core/waiting.py",
        "            if group not in ours:\n",
        "            if group not in ours and not group:\n",
        (
            (
                "tests/testing/test_harness.py"
                "::test_two_groups_on_one_source_keep_their_retries_and_replays_to_themselves"
            ),
        ),
        r"\(2, \{'id': 1",
    ),
    "runs a second copy of what waits on a tier": Plant(
        "core/waiting.py",
        "                if marks.get(mark, 0) > now.wall_ms:\n",
        "                if marks.get(mark, 0) > now.wall_ms + 1e15:\n",
        (
            (
                "tests/sim/test_second_copies.py"
                "::test_a_second_copy_of_what_waits_already_never_runs_and_is_counted_and_passed"
            ),
        ),
        r"\(\[0, 1\], 0\) == \(\[0\], 1\)",
    ),
    "goes on behind the record at which a listener stopped": Plant(
        "core/engine.py",
        '        run.budget = 1 if listener.plan.give_up == "stop" else run.count + 1\n',
        "        run.budget = run.count + 1\n",
        ("tests/sim/test_engine_hands.py::test_nothing_behind_it_runs",),
        r"\(31, \[\]\) == \(1, \[\]\)",
    ),
    "sends a letter whose claim was not the first": Plant(
        "deadletters/states.py",
        "return mark is not None and mark.job == job and mark.state is State.SENDING",
        "return mark is not None and mark.state is State.SENDING",
        (
            "tests/deadletters/test_states.py::test_of_two_operators_who_claim_at_once_each_letter_goes_to_one",
        ),
        "Extra items in the left set",
    ),
    "sends again, unasked, what a crash left": Plant(
        "deadletters/selection.py",
        "mark.state is State.SENDING and not selection.again",
        "mark.state is State.SENDING and selection.again",
        (
            (
                "tests/deadletters/test_replay.py"
                "::test_killed_at_any_step_no_letter_is_sent_twice_unasked_and_none_is_hidden"
            ),
        ),
        r"3 \+ 1\) \+ 0\) == 3",
    ),
}
