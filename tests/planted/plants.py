"""
Faults known from hand-made retry code, each as a change of redrive's source and the tests that must find it.

A change is an exact text and what replaces it, everywhere it stands in the file; a text that isn't there any more is an
error, so a plant can't wither unseen.
"""

from tests.planted.plant import Plant

_EDGES = "tests/sim/test_engine_edges.py"
_REFUSED = (
    f"{_EDGES}::test_a_record_whose_successor_is_refused_is_not_committed_and_those_behind_it_are_in_the_map"
)
_LADDER = f"{_EDGES}::test_each_tier_of_the_ladder_runs_before_a_record_becomes_a_dead_letter"

_LANES = "tests/sim/test_engine_lanes.py"
_AFTERMATH = "tests/sim/test_aftermath.py"
_AGAIN = "tests/sim/test_replayed_again.py"
_PARKING = "tests/sim/test_parking.py"
_PARKED_MODEL = "tests/core/test_parking.py"
_LETTERS = "tests/app/test_on_dead_letter.py"
_OFFSETS = "tests/core/test_offsets.py::TestTheMapOfOnePartition"
_METADATA = "tests/core/test_metadata.py"
_OUTAGES = "tests/sim/test_outages.py"
_GOES_ON = "test_a_partition_goes_on_after_a_declared_outage_though_its_first_record_keeps_failing_and_is_the_only_one_to_try"
_OUTAGE = f"{_OUTAGES}::test_t_dlq_4_an_outage_of_five_minutes_leaves_no_dead_letter_and_the_ladder_nearly_untouched"

_THREAD = "tests/kafka/test_transactor_thread.py"
_EXACTLY = "tests/sim/test_exactly_once.py"
_OPEN = (
    f"{_EXACTLY}::test_a_process_that_dies_in_an_open_transaction_leaves_no_copy_"
    "and_its_partitions_begin_when_that_has_ended"
)

PLANTS = {
    "commits although the dead-letter or retry write failed": Plant(
        "core/successors.py",
        '        counters.write_failures["dead-letter" if pending.is_dead_letter else "retry"] += 1\n',
        "        self.outstanding += 1\n        self.answered([(pending, None)], now)\n        return\n",
        (_REFUSED,),
        "orders.*1 claimed",
    ),
    "a cumulative commit carries an unfinished record": Plant(
        "core/offsets.py",
        "        frontier = self.frontier\n        ranges = () if is_bare",
        "        frontier = self.settled\n        ranges = () if True",
        (_REFUSED,),
        "orders.*1 claimed",
    ),
    "decodes outside the protected part": Plant(
        "runtime/handlers.py",
        "            try:\n                value = decode(record.value())\n            except BaseException as error:\n",
        "            value = decode(record.value())\n            try:\n                pass\n            except BaseException as error:\n",
        ("tests/app/test_calling.py::test_poison_never_quotes_the_value",),
        "DecodeError|ValidationError|null value",
    ),
    "pauses without keeping what was fetched": Plant(
        "core/engine.py",
        "        lane.next_offset = end\n        lane.listener.weighed(records)\n",
        "        lane.next_offset = end\n        if lane.is_paused:\n            return\n",
        (
            f"{_EDGES}::test_what_comes_for_a_partition_that_was_paused_a_moment_ago_runs_too_and_once[room that others leave]",
        ),
        "Right contains 4 more items",
    ),
    "appends the attempt header": Plant(
        "core/dialects.py",
        "    return [*foreign_headers(headers), *write_headers(envelope)]\n",
        "    return [*(headers or ()), *write_headers(envelope)]\n",
        (_LADDER,),
        r"\[b'1', b'2', b'3', b'4'\] == \[b'4'\]",
    ),
    "classifies by text": Plant(
        "core/failure.py",
        "        reading = reading_of(exc)\n        finding = None\n",
        '        reading = reading_of(exc)\n        finding = _Finding(Kind.TRANSIENT, "its text", exc) if "timeout" in str(exc) else None\n',
        ("tests/core/test_classification.py::test_the_text_never_decides",),
        "timeout",
    ),
    "checks the attempts before the last tier ran": Plant(
        "core/policy.py",
        "        return attempt >= self.max_attempts or",
        "        return attempt >= self.max_attempts - 1 or",
        (_LADDER,),
        r"'orders.dlq'\] == \['orders.retry.10m'\]",
    ),
    "a replay counts as sent what it never waited for": Plant(
        "deadletters/replay.py",
        "            if isinstance(answer, Written):\n",
        "            if answer is not None:\n",
        ("tests/deadletters/test_replay.py::test_a_refused_copy_gives_its_letter_back",),
        r"\(2, 0, 0, 0, 2\) == \(1, 1, 0, 0, 2\)",
    ),
    "the whole consumer sleeps for one record": Plant(
        "runtime/pump.py",
        "        elif self.engine.wants_records() or self._make_room_to_poll(now):\n",
        "        elif self.engine.next_wake_ms > 1 << 61:\n",
        ("tests/testing/test_waiting.py::test_a_record_that_waits_ten_minutes_holds_up_no_other",),
        "not enough values to unpack",
    ),
    "claims what a later run finished while an earlier one's failures are unknown": Plant(
        "core/engine.py",
        "            if run.lane in seen and not run.key_lanes:\n",
        "            if run.lane is None:\n",
        (
            f"{_EDGES}::test_nothing_of_a_run_is_claimed_while_the_result_of_the_one_before_it_is_still_on_its_way",
        ),
        r"frontier",
    ),
    "dead letters are made of dead letters whose handler fails": Plant(
        "app.py",
        '                give_up="skip",\n',
        '                give_up="dead-letter",\n',
        (f"{_LETTERS}::test_nothing_that_it_raises_holds_it_up_or_makes_a_letter",),
        r"assert \[\] == \['(exhausted|permanent|asked)'\]",
    ),
    "letters made before their handler first joined are missed, or all old ones handed over": Plant(
        "runtime/letters.py",
        '        cluster.commit(plan.group, cluster.offsets(keys, "latest"))\n',
        "        return\n",
        (f"{_LETTERS}::test_letters_that_were_there_before_are_left_alone_unless_asked_for",),
        r"\[7, 8, 9\] == \[9\]",
    ),
    "claims what a run was to do when it was cut": Plant(
        "core/commands.py",
        "        return 0 if self.is_cut else self.count - length_hint(self.iterator)\n",
        "        return self.count - length_hint(self.iterator)\n",
        (
            "tests/sim/test_engine_stops.py::test_records_of_a_run_that_was_cut_are_not_finished_while_its_worker_is_at_one",
        ),
        "orders.*2 claimed",
    ),
    "a run that was cut counts as done to its end": Plant(
        "runtime/handlers.py",
        "        if not failing.halt and not run.is_cut:\n",
        "        if not failing.halt:\n",
        (
            "tests/runtime/test_handlers.py::test_a_run_that_is_cut_ends_after_the_record_it_is_at_and_tells_how_far_it_came",
        ),
        r"\(\[0\], 4, ''\) == \(\[0\], 1, 'cut'\)",
    ),
    "claims what lies above the highest finished offset": Plant(
        "core/offsets.py",
        "                batch.append(self.settled)\n",
        "                batch.append(self.settled + 1)\n",
        (f"{_OFFSETS}::test_nothing_is_claimed_above_the_highest_one_handed_out",),
        r"assert 6 == 5",
    ),
    "believes the map of another offset": Plant(
        "core/metadata.py",
        "    if parts[1] != str(base):\n",
        "    if not parts[1]:\n",
        (f"{_METADATA}::TestWhatCannotBeUsedIsIgnoredAndTold::test_another_offset_cluster_or_topic",),
        r"the map belongs to offset 10",
    ),
    "believes the map of a mirrored or re-created topic": Plant(
        "core/metadata.py",
        "    if parts[2] != identity:\n",
        "    if not parts[2]:\n",
        (f"{_METADATA}::TestWhatCannotBeUsedIsIgnoredAndTold::test_another_offset_cluster_or_topic",),
        r"'another cluster' in ''",
    ),
    "believes a map that was changed on its way": Plant(
        "core/metadata.py",
        "    if not is_first and parts[6] != _checksum(",
        "    if not is_first and not parts[6] and _checksum(",
        (f"{_METADATA}::TestWhatCannotBeUsedIsIgnoredAndTold::test_a_text_in_which_one_letter_was_changed",),
        r"ignored=''\) == Restored",
    ),
    "a bitmap is read from its second bit on": Plant(
        "core/offset_codec.py",
        '"little"))[:1:-1]\n',
        '"little"))[-2:1:-1]\n',
        (
            f"{_METADATA}::TestWhatIsWrittenIsRead::test_every_second_one_open_still_fits_and_keeps_what_is_near_the_frontier",
        ),
        r"\(0, 1\)",
    ),
    "drops the crash ledger where space is short": Plant(
        "core/metadata.py",
        "identity, _ledger_text(ledger), ",
        'identity, _ledger_text(ledger) if budget > 999 else "", ',
        (f"{_METADATA}::TestOnlyTheMapGivesWay::test_ledger_and_heads_are_whole_whatever_the_budget",),
        r"Ledger\(nonce=''.*Ledger\(nonce='a1'",
    ),
    "drops heads where space is short": Plant(
        "core/metadata.py",
        "    told += encode_map(base, ranges,",
        '    told = told if len(told) < budget else _SEPARATOR.join((_MAGIC, str(base), identity, "", "", ""))\n    told += encode_map(base, ranges,',
        (f"{_METADATA}::TestOnlyTheMapGivesWay::test_ledger_and_heads_are_whole_whatever_the_budget",),
        r"assert \(\{\}, Ledger",
    ),
    "runs a record again before a commit told of its attempt": Plant(
        "core/heads.py",
        "self._confirmed.get(offset) is head",
        "True",
        (f"{_LANES}::test_the_failing_record_runs_again_when_its_due_came_and_a_commit_told_of_it",),
        "its due is there",
    ),
    "takes any told attempt for the last one": Plant(
        "core/heads.py",
        "self._confirmed.get(offset) is head",
        "offset in self._confirmed",
        (
            "tests/core/test_key_lanes.py::test_what_has_to_be_told_rests_after_its_due_until_a_commit_told_of_this_very_attempt",
        ),
        r"\[0\] == \[\]",
    ),
    "lets later records of a key run while one that blocks waits": Plant(
        "core/engine.py",
        "        return done - run.is_held\n",
        "        return done\n",
        (f"{_LANES}::test_t_ord_1_records_of_a_key_behind_a_failing_one_wait_and_other_keys_go_on",),
        "2 before",
    ),
    "forgets in a crash which attempt comes next": Plant(
        "core/starts.py",
        "        restored.heads,\n",
        "        {},\n",
        (f"{_LANES}::test_after_a_crash_the_record_has_the_attempt_and_the_due_that_were_told",),
        r"\[\[0, 1\]|== \[\]",
    ),
    "gives a lane a second turn while a worker has some of it": Plant(
        "core/key_lanes.py",
        "            if not lane.out:\n                later.append(lane)\n",
        "            later.append(lane)\n",
        ("tests/core/test_key_lanes.py::test_a_lane_of_which_a_worker_has_records_has_no_turn",),
        r"\[2",
    ),
    "lines records without a key up behind each other": Plant(
        "core/key_lanes.py",
        "    return record.offset() if key is None else key\n",
        "    return key\n",
        (f"{_LANES}::test_records_without_a_key_wait_for_nobody",),
        "finished_above_frontier|frontier",
    ),
    "goes on telling what a broker with less room refuses": Plant(
        "core/commits.py",
        "            if is_too_large and self._halve():\n",
        "            if is_too_large and self._chunk_chars < 0:\n",
        ("tests/core/test_commits.py::test_metadata_is_halved_until_it_passes_and_stays_so",),
        r"assert (\d+ == \d|dict_keys)",
    ),
    "lets a key go on behind a dead letter that blocks it": Plant(
        "core/lane.py",
        "        if offset not in self.heads.dying:\n",
        "        if True:\n",
        (f"{_AFTERMATH}::test_t_ord_4_a_blocked_key_waits_over_restarts_and_crashes_while_others_go_on",),
        r"\[2, 4\]",
    ),
    "forgets in a restart that a key is blocked": Plant(
        "core/aftermath.py",
        'if not heads or listener.plan.policy.after_dead_letter != "release":',
        "if not heads:",
        (f"{_AFTERMATH}::test_t_ord_4_a_blocked_key_waits_over_restarts_and_crashes_while_others_go_on",),
        r"\[2, 4\]",
    ),
    "frees a blocked key before its replay was handled": Plant(
        "core/aftermath.py",
        "                lane.twin.recalled.add(record.key())\n",
        "                lane.twin.recalled.add(record.key())\n                self.handled(lane, record)\n",
        (f"{_AFTERMATH}::test_a_replay_that_fails_again_waits_in_front_and_blocks_again",),
        r"\[(2, 1|1, 2)\]",
    ),
    "commits a handled replay without the hole that it frees": Plant(
        "core/commits.py",
        "            lanes = [] if twin.key in self._suspects else [twin, lane]\n",
        "            lanes = [lane]\n",
        ("tests/sim/test_freeing.py::test_a_handled_replay_and_the_hole_that_it_frees_are_in_one_commit",),
        "Extra items|At index 0 diff",
    ),
    "runs a replay though the partition that it frees is elsewhere": Plant(
        "core/lane.py",
        "        return self.frees and self.twin is None\n",
        "        return False\n",
        (f"{_AFTERMATH}::test_a_replay_waits_until_the_partition_is_here_that_it_frees",),
        "assert not",
    ),
    "looks without a pause for replays whose source is elsewhere": Plant(
        "core/waiting.py",
        "wake_ms = NEVER_MS if lane.misses_source else",
        "wake_ms =",
        ("tests/sim/test_freeing.py::test_replays_whose_source_is_elsewhere_keep_nobody_busy",),
        "next_wake_ms",
    ),
    "tells of replays at the end though their source was refused": Plant(
        "core/commits.py",
        "if (missing and not replays.isdisjoint(snapshots)) or not send(snapshots):",
        "if not send(snapshots):",
        (
            "tests/core/test_commits.py::test_the_last_commit_of_replays_is_not_even_sent_where_their_source_is_refused",
        ),
        "assert",
    ),
    "goes on with a producer that has dropped what may have been written": Plant(
        "adapters/transactor_thread.py",
        "if any(why.code() in _PURGED for why in self._refused.values()):",
        "if False:",
        (
            "tests/chaos/test_lost_answers.py::test_what_is_written_again_is_there_though_the_answer_to_its_first_write_was_lost",
        ),
        "last",
    ),
    "tries the same writes for ever whose commit is refused": Plant(
        "core/transactions.py",
        "            self._wait_for_others(units)\n",
        "            self._again(units)\n",
        (
            "tests/sim/test_short_commits.py::test_a_slow_first_record_of_a_hot_key_holds_all_up_for_as_long_as_it_takes_and_no_longer[1200-260-1]",
        ),
        "Counter",
    ),
    "gives what was cut out of a transaction every turn": Plant(
        "core/transactions.py",
        "bool(self._portions) and not (self._lets_fresh_by and self._fresh)",
        "bool(self._portions)",
        (
            "tests/core/test_transactions.py::test_a_unit_that_goes_alone_and_waits_for_a_fresh_one_leaves_it_its_turn",
        ),
        "fresh",
    ),
    "makes a commit's text anew in each step for what it can't tell of": Plant(
        "core/transactions.py",
        "self._wait_ms = min(UNTOLD_MOST_MS, 2 * max(1.0, self._wait_ms))",
        "pass",
        (
            "tests/core/test_transactions.py::test_what_no_commit_can_tell_of_is_tried_ten_times_a_second_and_then_at_once_again",
        ),
        "tried",
    ),
    "asks where a partition begins of which an open transaction tells": Plant(
        "runtime/pump.py",
        "askable = [key for key in keys if key not in open_keys]",
        "askable = list(keys)",
        (
            "tests/runtime/test_pump_open_transaction.py::test_where_it_begins_is_not_asked_before_the_transaction_has_ended",
        ),
        "orders",
    ),
    "goes on diverting while its key is replayed": Plant(
        "core/aftermath.py",
        " or key_lane.key in lane.recalled:",
        ":",
        (f"{_AFTERMATH}::test_diverted_records_follow_their_dead_letter_until_all_of_them_are_replayed",),
        "True.*False|diverted",
    ),
    "lets later replays pass one that died again": Plant(
        "core/lane.py",
        'return after == "divert" if self.frees else self.tier is None and after != "release"',
        'return self.tier is None and after != "release"',
        (f"{_AGAIN}::test_replays_that_were_under_way_behind_it_follow_it_too",),
        r"\[1, 1, 2",
    ),
    "lets a replay stand behind those that followed it": Plant(
        "core/aftermath.py",
        "place[0] == its_place[0] and place < its_place",
        "False",
        (f"{_AGAIN}::test_its_next_replay_goes_ahead_of_those_that_were_sent_before_it",),
        r"\[\[?1\]?, ",
    ),
    "heeds a discard before the replays ahead of it": Plant(
        "core/aftermath.py",
        "                lane.heads.notes.add(record.offset())\n",
        "                lane.heads.notes.add(record.offset())\n                self.handled(lane, record)\n",
        (f"{_AGAIN}::test_a_discard_of_a_later_letter_waits_until_it_is_through",),
        r"\[3\]",
    ),
    "leaves a key blocked whose letter was discarded": Plant(
        "deadletters/selection.py",
        'seen.replay_topic if seen.holds and target != seen.replay_topic else ""',
        '""',
        (f"{_AFTERMATH}::test_a_discarded_letter_frees_its_key_without_a_run",),
        r"\[\], \[\]",
    ),
    "lets what fails in an outage climb the ladder": Plant(
        "core/outages.py",
        '        return sign in AWAY or (sign != "up" and',
        '        return sign not in AWAY and (sign != "up" and',
        (f"{_OUTAGE}[by key]",),
        "assert 2000 <|climbed|in_vain",
    ),
    "takes a declared outage for one as long as anything fails": Plant(
        "core/breaker.py",
        "        return self._untold >= UNTOLD_PROBES and",
        "        return False and",
        (f"{_OUTAGES}::{_GOES_ON}",),
        r"\[\] == \[b'0'\]",
    ),
    "ends a declared outage though exceptions still tell of it": Plant(
        "core/breaker.py",
        "            self._told_ms, self._untold = mono_ms, 0\n",
        "            pass\n",
        (f"{_OUTAGES}::test_a_declared_outage_lasts_as_long_as_now_and_then_an_exception_tells_of_it",),
        "outage-over|assert",
    ),
    "takes a topic's name for its id where a broker doesn't know the topic yet": Plant(
        "adapters/kafka_cluster.py",
        "                    if not left:\n                        raise _port_error(error) from error\n",
        "                    found[name] = ''\n",
        (
            "tests/kafka/test_topic_ids.py::test_a_broker_that_does_not_know_a_topic_yet_is_asked_again",
            "tests/kafka/test_topic_ids.py::test_without_its_id_a_topic_is_not_described_at_all",
        ),
        "== ''|DID NOT RAISE|'' == ",
    ),
    "tells replays whose source is refused": Plant(
        "core/commits.py",
        "            lanes = [] if twin.key in self._suspects else [twin, lane]\n",
        "            lanes = [lane] if twin.key in self._suspects else [twin, lane]\n",
        ("tests/core/test_commits.py::test_while_a_source_is_refused_nothing_is_told_of_its_replays",),
        "orders.replay",
    ),
    "tells replays by themselves while theirs were refused": Plant(
        "core/commits.py",
        "            lanes = [] if twin.key in self._suspects else [twin, lane]\n",
        "            lanes = [] if twin.key in self._suspects else [lane] if lane.key in self._suspects else [twin, lane]\n",
        (
            "tests/core/test_commits.py::test_no_replay_is_told_before_what_it_freed_whichever_of_both_is_refused_for_a_while",
        ),
        "a hole that nothing frees",
    ),
    "tells source and replays at once in a longer text than any before": Plant(
        "core/commits.py",
        "        is_first = is_longer and source.key not in self._went_first\n",
        "        is_first = False\n",
        (
            "tests/core/test_commits.py::test_where_a_broker_takes_shorter_texts_only_no_replay_is_told_before_what_it_freed",
        ),
        "a hole that nothing frees",
    ),
    "lets nothing run but what failed, though that can't be told before the first one": Plant(
        "core/key_lanes.py",
        "            return first == besides or self._heads.get(first) is not None\n",
        "            return self._heads.get(first) is not None\n",
        (
            "tests/core/test_key_lanes.py::test_while_only_failed_records_may_run_the_one_besides_may_too_and_nothing_behind_it",
        ),
        "3 == 0",
    ),
    "waits for ever for a client that hangs in a transaction": Plant(
        "adapters/kafka_transactor.py",
        "        elif self._asked is not None and self.thread.hangs():\n",
        "        elif False:\n",
        (
            f"{_THREAD}::test_a_thread_that_hangs_in_the_client_is_left_behind_and_the_next_transaction_goes_through",
        ),
        "it is given up",
    ),
    "forgets what it holds in an outage": Plant(
        "core/outages.py",
        "            run.held_offsets.add(failed.record.offset())\n",
        "            pass\n",
        (f"{_OUTAGE}[by key]",),
        "sorted|StopIteration|At index",
    ),
    "never tries whether an outage is over": Plant(
        "core/breaker.py",
        '        if self.state == "closed" or mono_ms < self.probe_ms:\n',
        "        if True:\n",
        (f"{_OUTAGE}[by key]",),
        "StopIteration",
    ),
    "takes bad records for an outage": Plant(
        "core/outages.py",
        "        is_opened = breaker.finished(handled, len(down) - row, now.mono_ms)\n",
        "        down = failures\n        is_opened = breaker.finished(0, len(down), now.mono_ms)\n",
        (
            f"{_OUTAGES}::test_t_ret_1_one_record_of_twenty_that_fails_for_good_for_ten_minutes_never_holds_the_others[key]",
        ),
        "'outage|why|wait_s",
    ),
    "a run in an outage fails to its end before it tells": Plant(
        "core/breaker.py",
        "        return self._count >= ENOUGH_IN_A_ROW\n",
        "        return self._count < 0\n",
        (
            "tests/runtime/test_handlers.py::test_a_run_after_twenty_in_a_row_tells_its_first_failure_and_one_that_succeeds_ends_that",
        ),
        "60 != 20",
    ),
    "what succeeded in a run hides what failed at its end": Plant(
        "core/settling.py",
        "row=run.row(done)",
        "row=0",
        (f"{_OUTAGES}::test_what_succeeded_before_in_the_same_long_run_hides_no_outage[key]",),
        "<= 100",
    ),
    "tries many at once in an outage": Plant(
        "core/breaker.py",
        "        self.probe_ms = mono_ms + PROBE_PATIENCE_MS\n",
        "        self.probe_ms = mono_ms\n",
        ("tests/core/test_breaker.py::TestProbes::test_one_at_a_time",),
        "'probe'",
    ),
    "tries records although the health function says no": Plant(
        "core/breaker.py",
        "        if not self._has_health or mono_ms < self._answer_until_ms:\n",
        "        if True:\n",
        (
            f"{_OUTAGES}::test_a_health_function_is_asked_before_each_probe_and_no_record_is_tried_until_it_says_yes",
        ),
        "len.service.calls",
    ),
    "commits plainly within a transaction": Plant(
        "runtime/pump.py",
        "            self._transactor.submit(transaction, self._source.membership)\n",
        "            self._transactor.submit(transaction, self._source.membership)\n"
        "            self._source.commit(Commit(0, dict(transaction.offsets)))\n",
        (_OPEN,),
        "assert",
    ),
    # What the client says of a member is of the moment it is asked: by then it may have joined again by itself.
    "proves a membership later than that of the last poll": Plant(
        "runtime/pump.py",
        "            self._transactor.submit(transaction, self._source.membership)\n",
        "            said = self._source.membership\n"
        "            newest = said._replace(member=said.group.members[-1], epoch=said.group.epoch)\n"
        "            self._transactor.submit(transaction, newest)\n",
        (
            f"{_EXACTLY}::test_what_a_process_finished_before_it_stood_still_is_not_committed_when_others_have_its_partitions",
        ),
        "assert 2 == 1|== 1",
    ),
    "takes an aborted transaction for committed": Plant(
        "core/transactions.py",
        "        if isinstance(outcome, Completed):\n            self._unexplained = self._offsets_refused = 0\n",
        "        if True:\n            self._unexplained = self._offsets_refused = 0\n",
        (f"{_EXACTLY}::test_what_was_aborted_is_sent_again_and_no_handler_runs_for_it",),
        "assert",
    ),
    "goes on where nobody can tell what became of a transaction": Plant(
        "runtime/pump.py",
        "        keys = list(self.engine.lanes)\n        self.engine.forget(keys)\n        if fenced.is_final:\n",
        "        keys = list(self.engine.lanes)\n        if not fenced.is_final:\n"
        "            return self.engine.transacting.abandon()\n        if fenced.is_final:\n",
        (
            f"{_EXACTLY}::test_where_nobody_can_tell_whether_it_was_committed_all_begins_again_at_what_the_group_has",
        ),
        "assert",
    ),
    "writes what a handler emitted before it raised": Plant(
        "core/settling.py",
        "        return run.emitting.take(offsets, failed_offsets)\n",
        "        return run.emitting.take(offsets, ())\n",
        (
            "tests/app/test_emitting.py::test_of_a_run_that_fails_nothing_is_written_and_of_the_one_that_succeeds_all",
        ),
        "attempt 1",
    ),
    "passes a record in the transaction of the letter for which others wait": Plant(
        "core/heads.py",
        "            if offset in other.dying:\n",
        "            if False:\n",
        (f"{_AFTERMATH}::test_t_ord_4_a_blocked_key_waits_over_restarts_and_crashes_while_others_go_on",),
        "assert",
    ),
    "starts before the parked partition was read": Plant(
        "core/lane.py",
        "return self.parked is not None and self.parked.parking.is_complete",
        "return self.parked is not None",
        (f"{_PARKING}::test_nothing_starts_before_the_parked_partition_is_here_and_was_read",),
        "assert",
    ),
    "parks a record a second time that has a copy": Plant(
        "core/parking.py",
        '        if source_offset <= parked.last:\n            return "pass"\n',
        "",
        (f"{_PARKED_MODEL}::test_a_record_that_has_a_copy_is_passed_and_later_ones_follow_it",),
        "park",
    ),
    "frees a key before a commit told that its copies are finished": Plant(
        "core/parked.py",
        "lambda offset: offset < frontier or told.was_finished(offset)",
        "lambda _: told is not None",
        (f"{_PARKING}::test_a_key_is_free_when_a_commit_told_of_its_last_copy",),
        "assert",
    ),
    "writes two copies of a key at once": Plant(
        "core/parking.py",
        '        if parked.is_writing:\n            return "wait"\n',
        "",
        (f"{_PARKED_MODEL}::test_one_copy_of_a_key_is_on_its_way_at_a_time",),
        "wait",
    ),
    "lets newer records of a parked key run": Plant(
        "core/key_lanes.py",
        "        return self.held is not None and lane.key in self.held\n",
        "        return False\n",
        (f"{_PARKING}::test_a_key_is_parked_that_waits_for_longer_than_is_held",),
        r"\(2, 1\)|\[1\]",
    ),
    "closes a record before its copy was acknowledged": Plant(
        "core/parked.py",
        "        self._successors.park(lane, record, envelope, parked)\n",
        "        self._successors.park(lane, record, envelope, parked)\n        lane.offsets.close(offset)\n",
        (f"{_PARKING}::test_a_record_whose_copy_is_refused_is_not_committed_and_survives_a_crash",),
        r"\(1, \[\]\) == \(0, \[\]\)",
    ),
    "forgets how often a parked record was tried": Plant(
        "core/parked.py",
        "envelope, attempt=head.attempt, due_ms=head.due_ms",
        "envelope, attempt=0, due_ms=head.due_ms",
        (f"{_PARKING}::test_a_key_is_parked_that_waits_for_longer_than_is_held",),
        r"\(1, 1\)",
    ),
    "runs parked copies before their due": Plant(
        "core/parked.py",
        "lane.heads.dues_ms[offset] = due_ms",
        "lane.heads.dues_ms[offset] = 0",
        (f"{_PARKING}::test_a_key_is_parked_that_waits_for_longer_than_is_held",),
        r"assert",
    ),
}
