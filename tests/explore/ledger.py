"""What every world must keep to, whatever happens in it; checked after each step and at its end."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from redrive.core.dialects import read_envelope
from redrive.core.envelope import Envelope
from redrive.core.record import TopicPartition
from redrive.runtime.ports import Committed
from redrive.sim.records import SimRecord
from tests.explore.blame import Blame
from tests.explore.committed import Reader
from tests.explore.sent_back import SentBack
from tests.explore.shapes import SOURCES, ListenerShape, Shape, Task
from tests.explore.shop import AWAY, BEGAN, FAILED, HANDLED, MAILS, Run, Shop
from tests.explore.steps import Kind, Step
from tests.sim.fleet import Fleet


class Broken(Exception):
    """A promise was broken. `promise`: which one, in a few words."""

    def __init__(self, promise: str, told: str) -> None:
        super().__init__(f"{promise}: {told}")
        self.promise = promise


class Account(NamedTuple):
    """One record that was sent. `line`: the events that it stands in line with, itself among them; None: with none."""

    record: SimRecord
    task: Task | None
    listener: ListenerShape
    line: list[str] | None


#: A copy of an event on a topic of ours: whether it was replayed, and after how many attempts it was written; _PARKED for
#: any that is parked.
Copy = tuple[str, bool, int]
_PARKED = -1


class Ledger:
    """All records of one world: those sent, what handlers did with them, what was written for them, what was committed."""

    def __init__(self, shape: Shape, shop: Shop, fleet: Fleet) -> None:
        self._shape, self._shop, self._fleet = shape, shop, fleet
        self._reader = Reader(fleet.cluster)
        self.sent: dict[str, Account] = {}
        self._lines: dict[tuple[str, int, bytes | None], list[str]] = defaultdict(list)
        self.handled: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        #: Handlers wanted nothing more of them.
        self.skipped: set[str] = set()
        self.discarded: set[str] = set()
        self.sent_back = SentBack()
        #: Failed since what the handler calls was away.
        self.away: Counter[str] = Counter()
        #: Failures that may count as no attempt, for the same reason.
        self._uncounted: Counter[str] = Counter()
        self.outages = 0
        #: Blamed by the crash guard.
        self.crashed: set[str] = set()
        self._blame = Blame(fleet)
        #: How often records or processes may have changed hands.
        self.moves = 0
        #: Whether something has happened since the beginning that may let records run more than once.
        self.disturbed = False
        #: Whether processes that end in order may leave something behind: its copy wasn't acknowledged, its handler is slow.
        self._is_held_up = self._is_slow = False
        #: Whether records on tiers may have been posted on: their dues were further away than the tier waits.
        self.posted_on = False
        #: Where the copies are, and the latest one of each event, apart for replays.
        self._copies: dict[Copy, list[tuple[TopicPartition, int]]] = defaultdict(list)
        self._latest: dict[tuple[str, bool], int] = {}
        #: Copies that were parked in the latest round of a pump: perhaps after what ran in it.
        self._parked_now: list[tuple[Copy, tuple[TopicPartition, int]]] = []
        self._ended_again: set[str] = set()
        self._mails: Counter[str] = Counter()
        self._through: set[str] = set()
        self._began: Counter[tuple[str, int, int]] = Counter()
        self._runs: Counter[str] = Counter()
        self._highest: dict[str, int] = {}
        self._seen_runs = 0
        self._read: dict[TopicPartition, int] = {}
        self._trusted: dict[TopicPartition, tuple[int, str]] = {}
        #: What was committed when it was judged last: what ran since then could go by nothing else.
        self._known: dict[TopicPartition, Committed] = {}
        #: The last run of each event.
        self._last_runs: dict[str, Run] = {}
        #: Processes that may have gone on without knowing that others had their partitions.
        self._stale: set[int] = set()

    # -- what happens --------------------------------------------------------------------------------------------

    def note_sent(self, record: SimRecord, task: Task | None) -> None:
        """A record was written to a source."""
        source, partition = record.topic(), record.partition()
        event = f"{source}/{partition}/{record.offset()}"
        listener = self._shape.listener_of(source)
        line = None
        if listener.order == "partition":
            line = self._lines[source, partition, None]
        elif listener.order == "key" and record.key() is not None:
            line = self._lines[source, partition, record.key()]
        if line is not None:
            line.append(event)
        self.sent[event] = Account(record, task, listener, line)
        if task is not None:
            self.posted_on |= task.how == "later"
            self._is_slow |= task.takes_s > 5

    def note_step(self, step: Step, kind: Kind) -> None:
        """Something else is about to happen."""
        self._is_held_up |= step.kind in ("hold-acks", "refuse-writes")
        is_orderly = step.kind in ("start", "stop") and not (
            self._blame.is_mute or self._is_held_up or self._is_slow
        )
        self.disturbed |= kind.disturbs and not is_orderly
        self.moves += 2 * kind.disturbs + (step.kind == "thaw")
        if step.kind in ("lose", "freeze") and (moving := self._fleet.processes):
            self._stale.add(moving[int(step.number) % len(moving)].process.resources)
        self._blame.note_step(step, kind)
        self.posted_on |= step.kind == "clock" and step.number < -1_000

    def note_discards(self, events: list[str]) -> None:
        """An operator has discarded letters of these."""
        self.discarded.update(events)
        self.sent_back.discarded(events)

    def note_death(self) -> None:
        """A process died of a record."""
        self._blame.note_death()
        self.moves += 2
        self.disturbed = True

    def check(self) -> None:
        """After each step, and whenever something is committed."""
        self._take_written()
        self._take_runs()
        while self._parked_now:
            copy, at = self._parked_now.pop(0)
            self._copies[copy].append(at)
        self._check_commits()
        self._known = dict(self._offsets)

    def look(self) -> None:
        """After each round of a pump, so that nothing that ran in it is judged by what was written later."""
        if len(self._shop.runs) > self._seen_runs:
            self.check()

    def check_rest(self) -> None:
        """Time has passed, and all has been done that could be: no process has reason to look again and again."""
        now_ms = self._fleet.clock.wall_ms()
        for process in (mortal.process for mortal in self._fleet.processes):
            engine = process.engine
            if engine.lanes and not engine.runs and engine.next_wake_ms <= now_ms:
                raise Broken("busy", f"process {process.resources} wants to be woken at once for nothing")

    # -- the end -------------------------------------------------------------------------------------------------

    def is_over(self, event: str) -> bool:
        """Whether nothing more is to happen with a record."""
        if self.handled[event] or event in self.skipped or event in self.discarded:
            return True
        return self.dead[event] > 0 and not self.sent[event].listener.holds_letters

    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return all(map(self.is_over, self.sent)) and not self._fleet.not_committed()

    def waits_for_letters(self) -> bool:
        """Whether it may be that only an operator can let it go on."""
        return any(
            self.dead[event] and account.listener.holds_letters for event, account in self.sent.items()
        )

    def check_end(self) -> None:
        """When the faults have ceased and time has passed."""
        for event, account in self.sent.items():
            if not self.is_over(event):
                raise Broken("lost", f"{event} was neither handled nor put aside")
            self._check_way(event, account)
            self._check_repeats(event)
            self._check_mails(event, account)
        for line in self._lines.values():
            self._check_repeats_in_order(line)
        if left := self._fleet.not_committed():
            raise Broken("not committed", ", ".join(map(str, left)))

    def _check_way(self, event: str, account: Account) -> None:
        """Who should have died did, and nobody else."""
        task, listener = account.task, account.listener
        if event in self.crashed:
            if (task is None or task.how != "kill") and not self._blame.may_be_wrong():
                raise Broken("blamed", f"{event} is said to have killed processes, but it killed none")
            return
        dies = listener.dies(task)
        # What fails while all is away may do well at the next attempt; what is sent back is mended.
        is_same = not (self.away[event] or self._shop.replays[event] or self._shop.is_mended)
        if dies and self.handled[event] and is_same:
            raise Broken("a run too many", f"{event} was handled, but all its runs were to fail")
        if not dies and self.dead[event] and not self._may_die(event, listener):
            raise Broken("dead letter", f"{event} became one, but it would have been handled")
        if dies and not self.dead[event] and not self.handled[event]:
            raise Broken("lost", f"{event} should have become a dead letter")
        is_skipped = task is not None and task.how == "skip" and task.fails > 0
        if is_skipped and self.handled[event] and is_same:
            raise Broken("a run too many", f"{event} was handled, but was to be skipped")

    def _may_die(self, event: str, listener: ListenerShape) -> bool:
        if listener.after == "divert":
            return True
        return self.away[event] > 0 and (not self._shape.declares_outages or self.outages > 1)

    def _check_repeats(self, event: str) -> None:
        ended = self.handled[event] + self.dead[event]
        may_end = 1 + 2 * self._shop.replays[event]
        if ended > may_end and not self.disturbed:
            raise Broken("repeated", f"{event} ended {ended} times, and nothing had happened")
        if not self._shape.is_exact:
            return
        if self.dead[event] > 1 + self._shop.replays[event]:
            raise Broken("exactly once", f"{event} became {self.dead[event]} dead letters")
        if self.posted_on:
            return
        for attempt in range(1, self.sent[event].listener.most_attempts + 1):
            if len(copies := self._copies.get((event, False, attempt), ())) > 1:
                raise Broken("exactly once", f"{event} was written after attempt {attempt} to {copies}")

    def _check_repeats_in_order(self, line: list[str]) -> None:
        """What ran again did so before those behind it: they ran again, too."""
        listener = self.sent[line[0]].listener
        if listener.blocking is None or (listener.parks and self._stale):
            return
        for run, behind in pairwise(self._last_runs[event] for event in line if self._is_plain(event)):
            if behind.moment < run.moment:
                raise Broken("order", f"{run.event} ran again after {behind.event}, and that didn't follow")

    def _is_plain(self, event: str) -> bool:
        """Whether it was never put aside or sent back, and ran for the last time where it belongs."""
        moved = self.dead[event] or self._shop.replays[event] or event in self.discarded
        return not moved and event in self._last_runs and self._last_runs[event].process not in self._stale

    def _check_mails(self, event: str, account: Account) -> None:
        if not account.listener.emits:
            return
        mails = self._mails[event]
        if self.handled[event] and not mails and not self.dead[event]:
            raise Broken("lost", f"{event} was handled, but what it emitted isn't there")
        if not self.handled[event] and mails:
            raise Broken("a run too many", f"{event} emitted, but was never handled")
        if self._shape.is_exact and mails > 1 + self._shop.replays[event]:
            raise Broken("exactly once", f"{event} emitted {mails} times")

    # -- runs ----------------------------------------------------------------------------------------------------

    def _take_runs(self) -> None:
        runs = self._shop.runs
        for run in runs[self._seen_runs :]:
            account = self.sent[run.event]
            if run.what == BEGAN:
                self._last_runs[run.event] = run
                self._check_beginning(run, account)
            elif run.what == HANDLED:
                self.handled[run.event] += 1
                self._through.add(run.event)
                if run.is_replay:
                    self._replay_ended(run.event)
            elif run.what == AWAY:
                self.away[run.event] += 1
            if run.what in (FAILED, AWAY):
                self._take_failure(run, account)
        self._seen_runs = len(runs)

    def _take_failure(self, run: Run, account: Account) -> None:
        task, listener = account.task, account.listener
        self._uncounted[run.event] += self._may_be_held
        if run.what == FAILED and task is not None and task.how == "skip":
            self.skipped.add(run.event)
            self._through.add(run.event)
        if listener.blocking is None:
            is_in_place = run.attempt <= listener.tries_in_place and task is not None and task.is_passing
            if self._may_be_held or not is_in_place:
                self._through.add(run.event)
        elif self._is_last_failure(run, account):
            if listener.after == "release":
                self._through.add(run.event)
            elif run.is_replay:
                # Its letter is on its way.
                self.sent_back.ended(run.event)

    def _is_last_failure(self, run: Run, account: Account) -> bool:
        if run.what == AWAY and self._shape.declares_outages:
            return False
        is_last = run.attempt >= account.listener.most_attempts
        return is_last or (account.task is not None and account.task.how in ("bug", "letter"))

    def _check_told(self, run: Run, account: Account) -> None:
        """What blocks runs again only when a commit has told how often it has failed: else a crash would forget it."""
        at = TopicPartition(account.record.topic(), account.record.partition()), account.record.offset()
        needed = run.attempt - 1 - account.listener.tries_in_place
        if needed < 1 or self._reader.is_finished(self._known, *at):
            return
        if self._reader.attempts(self._known, *at) < needed:
            raise Broken("attempts", f"{run.event} runs with attempt {run.attempt}, which no commit foretold")

    def _check_worked_off(self, event: str, told: str) -> None:
        """All parked copies of a record are finished, and commits said so."""
        for copy in self._copies.get((event, False, _PARKED), ()):
            if not self._reader.is_finished(self._known, *copy):
                raise Broken("parking", told)

    def _replay_ended(self, event: str) -> None:
        self._ended_again.add(event)
        self.sent_back.ended(event)

    def _check_health(self, run: Run) -> None:
        """Where a function says that all is away, no record is tried from the moment in which its listener knows of an outage."""
        since_ms, clock = self._shop.away_since_ms, self._fleet.clock
        source = SOURCES.index(run.event.partition("/")[0])
        for one in self._fleet.processes:
            breaker = one.process.engine.listeners[source].breaker
            if one.process.resources != run.process or breaker.is_closed or since_ms is None:
                continue
            began_mono_ms = run.at_ms - (clock.wall_ms() - clock.mono_ms())
            if since_ms < breaker.opened_ms < began_mono_ms - 1:
                raise Broken("health", f"{run.event} is tried, though nothing is well")

    def _check_beginning(self, run: Run, account: Account) -> None:
        if run.due_ms is not None and run.at_ms < run.due_ms:
            raise Broken(
                "early",
                f"{run.event}, attempt {run.attempt}: {run.due_ms - run.at_ms:,.0f} ms before its due",
            )
        self._check_attempt(run, account.listener)
        if account.listener.has_health:
            self._check_health(run)
        if account.listener.blocking and not (account.listener.parks or run.is_replay):
            self._check_told(run, account)
        if run.topic in SOURCES and account.line is not None and not self._stale:
            for event in account.line[: account.line.index(run.event) + 1]:
                self._check_worked_off(
                    event, f"{run.event} runs from the source, though a copy of {event} waits"
                )
        if account.line is None or (account.listener.blocking is None and self._is_off_its_place(run)):
            return
        if run.is_replay and not account.listener.holds_letters:
            return
        ahead = account.line[: account.line.index(run.event)]
        if run.is_replay:
            not_through = [other for other in ahead if not self._is_passed_by_replay(other, run)]
        else:
            if account.listener.after == "divert":
                # The last letter of a key is the one that is waited for: it followed the others, and its replay those of others.
                letters = [other for other in ahead if self.dead[other]]
                is_ahead = self.sent_back.is_before_the_last_word
                sent = [other for other in letters[:-1] if is_ahead(other, letters[-1])]
                ahead = [other for other in ahead if not self.dead[other]] + sent + letters[-1:]
            not_through = [other for other in ahead if not self._is_passed(other)]
        if not_through:
            raise Broken("order", f"{run.event} began before {not_through[0]} was through")

    def _is_off_its_place(self, run: Run) -> bool:
        """Whether it runs somewhere else than at its place in the source."""
        return run.attempt > 1 or run.is_replay or self._uncounted[run.event] > 0

    @property
    def _may_be_held(self) -> bool:
        """Whether what fails may be held as in an outage."""
        return self.outages > 0 or self._shape.breaker

    def _is_passed(self, event: str) -> bool:
        """Whether later records of its line may run."""
        if event in self._through or event in self.discarded:
            return True
        account = self.sent[event]
        return not account.listener.holds_letters and (account.task is None or self.dead[event] > 0)

    def _is_passed_by_replay(self, event: str, run: Run) -> bool:
        """
        The same for a record that was sent back: it waits for those that were sent back before it, until they are handled; or
        letters again, where it isn't diverted then. Who sends back only a later one wants it so.
        """
        # Of garbage nobody sees a run, and its letter may be on its way.
        if self._is_passed(event) or self.sent[event].task is None:
            return True
        follows = self.sent[event].listener.after == "divert"
        return self.sent_back.may_pass(run.event, event, is_letter=self.dead[event] > 0, follows=follows)

    def _check_attempt(self, run: Run, listener: ListenerShape) -> None:
        event, replays = run.event, self._shop.replays[run.event]
        if not 1 <= run.attempt <= listener.most_attempts:
            raise Broken("attempts", f"{event} runs with attempt {run.attempt}")
        self._runs[event] += 1
        self._began[event, run.attempt, replays] += 1
        if not self.disturbed and self._began[event, run.attempt, replays] > 1 + self._uncounted[event]:
            raise Broken("repeated", f"{event} runs attempt {run.attempt} again, and nothing had happened")
        if listener.blocking is None:
            return
        most = listener.most_attempts * (1 + replays) + self._uncounted[event]
        if self._runs[event] > most + self.moves * (1 + listener.tries_in_place):
            raise Broken("attempts", f"{event} runs for the {self._runs[event]}th time")
        highest = self._highest.get(event, 0)
        # Its copy may have come to its end before its acknowledgement came: after a crash it runs from the source again.
        is_anew = listener.parks and run.topic in SOURCES and (self.handled[event] or self.dead[event])
        if not (replays or is_anew) and run.attempt < highest - listener.tries_in_place:
            raise Broken("attempts", f"{event} runs with attempt {run.attempt} after attempt {highest}")
        self._highest[event] = max(highest, run.attempt)

    # -- what was written ----------------------------------------------------------------------------------------

    def _take_written(self) -> None:
        for topic in self._fleet.cluster.topics.values():
            if topic.name in SOURCES or topic.name.endswith(".state"):
                continue
            for log in topic.partitions:
                key = TopicPartition(topic.name, log.number)
                begin = self._read.get(key, 0)
                if log.end == begin:
                    continue
                records = log.read(begin, 1_000_000)
                for record in records:
                    self._take_record(key, record)
                if records:
                    self._read[key] = records[-1].offset() + 1

    def _take_record(self, key: TopicPartition, record: SimRecord) -> None:
        if key.topic == MAILS:
            self._mails[(record.value() or b"").decode()] += 1
            return
        said = read_envelope(record.headers())[0]
        event, is_replay = said.event_id, bool(said.replay_id)
        if key.topic.endswith(".dlq"):
            self._take_letter(record, said)
        elif key.topic.endswith(".parked"):
            if not (said.hops or self._stale):
                self._check_worked_off(event, f"{event} is parked again, though it has a copy")
            self._parked_now.append(((event, False, _PARKED), (key, record.offset())))
        else:
            self._copies[event, is_replay, said.attempt].append((key, record.offset()))
            self._latest[event, is_replay] = max(self._latest.get((event, is_replay), 0), said.attempt)

    def _take_letter(self, record: SimRecord, said: Envelope) -> None:
        event = said.event_id
        account = self.sent.get(event)
        if account is None:
            raise Broken("letters", f"a letter of {event}, which was never sent")
        self.dead[event] += 1
        if said.replay_id:
            self._replay_ended(event)
        if (record.key(), record.value()) != (account.record.key(), account.record.value()):
            raise Broken("letters", f"{event} isn't in its letter as it was sent")
        if said.reason == "crashed":
            self.crashed.add(event)
        if said.reason == "exhausted" and said.attempt != account.listener.most_attempts:
            raise Broken("attempts", f"{event} is a letter after attempt {said.attempt}")
        if said.reason == "diverted" and account.listener.after != "divert":
            raise Broken("letters", f"{event} was diverted")

    # -- what was committed --------------------------------------------------------------------------------------

    def _check_commits(self) -> None:
        """A committed offset passes no record that wasn't handled, and of which there is no successor."""
        for key, committed in self._offsets.items():
            told = (committed.offset or 0, committed.metadata or "")
            before = self._trusted.get(key, (0, ""))
            if told == before or (log := self._fleet.cluster.partition(key)) is None:
                continue
            for first, end in ((before[0], told[0]), *self._reader.said(key, committed).ranges):
                for record in log.read(first, max(0, end - first)):
                    if record.offset() < end and not self._is_through(record):
                        place = f"{key.topic} {key.partition} {record.offset()}"
                        raise Broken("claimed", f"{place} is committed, but not through")
            self._trusted[key] = told

    @property
    def _offsets(self) -> Mapping[TopicPartition, Committed]:
        return self._fleet.cluster.group("shop").offsets

    def _is_through(self, record: SimRecord) -> bool:
        topic = record.topic()
        if topic in SOURCES:
            event, is_replay, attempt = f"{topic}/{record.partition()}/{record.offset()}", False, 0
        else:
            said = read_envelope(record.headers())[0]
            if said.frees:
                return True
            event, is_replay, attempt = said.event_id, bool(said.replay_id), said.attempt
        ended = event in self._ended_again if is_replay else self.handled[event] or self.dead[event]
        if ended or event in self.skipped or event in self.discarded:
            return True
        if self._latest.get((event, is_replay), 0) > attempt:
            return True
        if topic in SOURCES:
            return (event, False, _PARKED) in self._copies
        return self._is_second(record, (event, is_replay, _PARKED if topic.endswith(".parked") else attempt))

    def _is_second(self, record: SimRecord, copy: Copy) -> bool:
        """A second copy is left out while the first one waits."""
        offsets = self._offsets
        return any(
            key not in offsets or offset >= (offsets[key].offset or 0)
            for key, offset in self._copies.get(copy, ())
            if (key, offset) != (TopicPartition(record.topic(), record.partition()), record.offset())
        )
