"""Faults of a crash guard: each step of its protocol left out, or done too early."""

from tests.planted.plant import Plant

_GUARD = "tests/core/test_crash_guard.py"
_ONE_BY_ONE = f"{_GUARD}::test_suspects_run_one_by_one_each_named_by_an_acknowledged_commit"
_CRASHES = "tests/sim/test_crashes.py"

GUARD_PLANTS = {
    "tells suspects and ceiling as one number": Plant(
        "core/crash_guard.py",
        "self.crashes, self.hi, self._ceil, told)",
        "self.crashes, self._ceil, self._ceil, told)",
        (_ONE_BY_ONE,),
        "hi=1000",
    ),
    "starts records before the opened ledger is acknowledged": Plant(
        "core/crash_guard.py",
        "        self._limit: float = 0\n",
        "        self._limit: float = NO_LIMIT\n",
        (f"{_GUARD}::test_nothing_starts_before_the_opened_ledger_is_acknowledged",),
        r"\(2, .*== \(0, ",
    ),
    "goes beyond the ceiling before a higher one is acknowledged": Plant(
        "core/crash_guard.py",
        "            self._ceil = self._guard.step_above(highest)\n",
        "            self._ceil = self._guard.step_above(highest)\n            self._limit = self._ceil\n",
        (f"{_GUARD}::test_no_record_at_the_ceiling_starts_before_a_higher_one_is_acknowledged",),
        r"assert (4 == 3|1 == 0|\(1, )",
    ),
    "runs a suspect before its name is acknowledged": Plant(
        "core/crash_guard.py",
        "        self.is_alone = self._acked.solo == suspect and self._known == {suspect}\n",
        "        self.is_alone = True\n",
        (_ONE_BY_ONE,),
        "assert 1 == 0",
    ),
    "runs a suspect while a name that was sent before may still arrive": Plant(
        "core/crash_guard.py",
        " and self._known == {suspect}\n",
        "\n",
        (f"{_GUARD}::test_a_suspect_waits_until_a_name_that_was_sent_before_its_own_is_replaced",),
        "assert 1 == 0",
    ),
    "runs a suspect beside others": Plant(
        "core/crash_guard.py",
        "        return not runs_out\n",
        "        return True\n",
        (_ONE_BY_ONE,),
        "assert 1 == 0",
    ),
    "blames what runs alone in a process that lives": Plant(
        "core/crash_guard.py",
        "    named = ledger.solo if is_crash or not was_alone else -1\n",
        "    named = ledger.solo\n",
        (f"{_GUARD}::test_a_ledger_is_judged_by_who_wrote_it_and_what_is_finished[our own solo run]",),
        "named=120",
    ),
    "starts others while a name from before the partition was lost is still believed": Plant(
        "core/crash_guard.py",
        "            watch.keep(ledger.solo)\n",
        "            pass\n",
        (
            f"{_GUARD}::test_a_partition_that_comes_back_with_a_name_of_ours_has_the_process_until_a_commit_takes_it_back",
        ),
        "assert",
    ),
    "waits for ever for a commit that takes a name back": Plant(
        "core/crash_guard.py",
        "                watch.let_go()\n",
        "                pass\n",
        (
            f"{_GUARD}::test_where_the_commit_that_would_take_a_name_back_is_refused_the_others_go_on_after_ten_seconds",
        ),
        "10000.0: False",
    ),
    "runs the named record again": Plant(
        "core/engine.py",
        "        if run.lane.watch is not None and self.caution.is_named(run):\n",
        "        if run.lane.watch is None:\n",
        (
            f"{_CRASHES}::test_a_record_that_kills_its_process_is_a_dead_letter_after_three_deaths[order by partition]",
        ),
        r"not done|assert \{\d+: \d+\}|Counter",
    ),
    "goes on in the partition before the end of the named record is committed": Plant(
        "core/crash_guard.py",
        "        return self.named >= 0 or (acked is not None",
        "        return acked is not None and not acked or (acked is None",
        (f"{_GUARD}::test_a_named_record_is_given_out_by_itself_and_named_until_it_is_finished",),
        "assert 5 == 2",
    ),
    "takes a clean end for a crash": Plant(
        "core/crash_guard.py",
        "            return Ledger(solo=ledger.solo)\n",
        "            return ledger\n",
        (f"{_CRASHES}::test_a_clean_end_is_no_crash",),
        "crashes",
    ),
    "suspects the partition for ever": Plant(
        "core/crash_guard.py",
        "        if not self.crashes or self._frontier >= self.hi:\n",
        "        if not self.crashes:\n",
        (_ONE_BY_ONE,),
        "crashes=2|Ledger",
    ),
}
