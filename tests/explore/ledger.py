"""What every world must keep to, whatever happens in it; checked after each step and at its end."""

from collections import Counter, defaultdict

from redrive.core.dialects import read_envelope
from redrive.core.metadata import decode_metadata, identity_of
from redrive.core.record import TopicPartition
from redrive.sim.records import SimRecord
from tests.explore.shop import BEGAN, FAILED, HANDLED, Run, Shape, Shop, Task
from tests.sim.fleet import KILLS_TO_BLAME, Fleet

SOURCE, DLQ = "orders", "orders.dlq"


class Broken(Exception):
    """A promise was broken. `promise`: which one, in a few words."""

    def __init__(self, promise: str, told: str) -> None:
        super().__init__(f"{promise}: {told}")
        self.promise = promise


class Ledger:
    """All records of one world: those sent, what handlers did with them, what was written for them, what was committed."""

    def __init__(self, shape: Shape, shop: Shop, fleet: Fleet) -> None:
        self._shape, self._shop, self._fleet = shape, shop, fleet
        #: The tasks that were sent, by event; None: garbage.
        self.sent: dict[str, Task | None] = {}
        self._line_of: dict[str, list[str]] = {}
        self._lines: dict[str, list[str]] = defaultdict(list)
        self.handled: Counter[str] = Counter()
        self.dead: Counter[str] = Counter()
        #: Blamed by the crash guard.
        self.crashed: set[str] = set()
        self.kills = 0
        #: Where the copies on tiers are, by event and attempt.
        self._copies: dict[tuple[str, int], list[tuple[TopicPartition, int]]] = defaultdict(list)
        self._latest: dict[str, int] = {}
        self._through: set[str] = set()
        self._seen_runs = 0
        self._read: dict[TopicPartition, int] = {}
        self._trusted: dict[TopicPartition, tuple[int, str]] = {}
        #: Whether something has happened since the beginning that may let records run more than once.
        self.disturbed = False
        #: Whether records on tiers may have been posted on: their dues were further away than the tier waits.
        self.posted_on = False

    def note_sent(self, event: str, line: str, task: Task | None) -> None:
        """A record was written to the source. `line`: what it stands in line with."""
        self.sent[event] = task
        self._lines[line].append(event)
        self._line_of[event] = self._lines[line]

    def check(self) -> None:
        """After each step."""
        self._take_runs()
        self._take_written()
        self._check_commits()

    def check_end(self) -> None:
        """When the faults have ceased and time has passed."""
        for event, task in self.sent.items():
            if event in self.crashed and self.kills >= KILLS_TO_BLAME:
                continue
            dies = task is None or self._dies(task)
            if dies and not self.dead[event]:
                raise Broken("lost", f"{event} should have become a dead letter")
            if not dies and not self.handled[event]:
                raise Broken("lost", f"{event} was never handled")
            if dies and self.handled[event]:
                raise Broken("a run too many", f"{event} was handled, but all its runs were to fail")
            if not dies and self.dead[event]:
                raise Broken("dead letter", f"{event} became one, but it would have been handled")
            self._check_repeats(event, dies=dies)
        if left := self._fleet.not_committed():
            raise Broken("not committed", ", ".join(map(str, left)))

    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        self.check()
        if any(not self.handled[event] and not self.dead[event] for event in self.sent):
            return False
        return not self._fleet.not_committed()

    # -- runs ----------------------------------------------------------------------------------------------------

    def _take_runs(self) -> None:
        for run in self._shop.runs[self._seen_runs :]:
            if run.what == BEGAN:
                self._check_beginning(run)
            elif run.what == HANDLED:
                self.handled[run.event] += 1
                self._through.add(run.event)
            elif run.what == FAILED and self._passes_on(run):
                self._through.add(run.event)
        self._seen_runs = len(self._shop.runs)

    def _check_beginning(self, run: Run) -> None:
        if run.due_ms is not None and run.at_ms < run.due_ms:
            raise Broken(
                "early",
                f"{run.event}, attempt {run.attempt}: {run.due_ms - run.at_ms:,.0f} ms before its due",
            )
        if not 1 <= run.attempt <= self._shape.most_attempts:
            raise Broken("attempts", f"{run.event} runs with attempt {run.attempt}")
        if self._shape.order == "none" or (run.attempt > 1 and self._shape.blocking is None):
            return
        for other in self._line_of[run.event]:
            if other == run.event:
                return
            if other not in self._through and self.sent[other] is not None:
                raise Broken("order", f"{run.event} began before {other} was through")

    def _passes_on(self, run: Run) -> bool:
        """Whether later records of its line may run after this failure."""
        task = self.sent[run.event]
        if task is None or task.is_bug:
            return True
        most = self._shape.most_attempts if self._shape.blocking else self._shape.tries_in_place + 1
        return run.attempt >= most

    # -- what was written ----------------------------------------------------------------------------------------

    def _take_written(self) -> None:
        for topic in self._fleet.cluster.topics.values():
            if topic.name == SOURCE or topic.name.endswith(".state"):
                continue
            for log in topic.partitions:
                key = TopicPartition(topic.name, log.number)
                records = log.read(self._read.get(key, 0), 1_000_000)
                for record in records:
                    envelope = read_envelope(record.headers())[0]
                    if topic.name == DLQ:
                        self.dead[envelope.event_id] += 1
                        if envelope.reason == "crashed":
                            self.crashed.add(envelope.event_id)
                    else:
                        self._copies[envelope.event_id, envelope.attempt].append((key, record.offset()))
                        latest = self._latest.get(envelope.event_id, 0)
                        self._latest[envelope.event_id] = max(latest, envelope.attempt)
                if records:
                    self._read[key] = records[-1].offset() + 1

    def _check_repeats(self, event: str, *, dies: bool) -> None:
        ended = self.dead[event] if dies else self.handled[event]
        if ended > 1 and not self.disturbed:
            raise Broken("repeated", f"{event} ended {ended} times, and nothing had happened")
        if self._shape.delivery != "exactly-once":
            return
        if self.dead[event] > 1:
            raise Broken("exactly once", f"{event} became {self.dead[event]} dead letters")
        if self.posted_on:
            return
        for attempt in range(1, self._shape.most_attempts + 1):
            if len(copies := self._copies[event, attempt]) > 1:
                raise Broken("exactly once", f"{event} was written after attempt {attempt} to {copies}")

    # -- what was committed --------------------------------------------------------------------------------------

    def _check_commits(self) -> None:
        """A committed offset passes no record that wasn't handled, and of which there is no successor."""
        for key, committed in self._fleet.cluster.group("shop").offsets.items():
            told = (committed.offset or 0, committed.metadata or "")
            before = self._trusted.get(key, (0, ""))
            if told == before:
                continue
            log = self._fleet.cluster.partition(key)
            if log is None:
                continue
            ranges = decode_metadata(
                told[1], told[0], identity_of("sim", self._fleet.cluster.topics[key.topic].topic_id)
            ).ranges
            for first, end in ((before[0], told[0]), *ranges):
                for record in log.read(first, max(0, end - first)):
                    if record.offset() < end and not self._is_through(record):
                        raise Broken("claimed", f"{key} {record.offset()} is committed, but not through")
            self._trusted[key] = told

    def _is_through(self, record: SimRecord) -> bool:
        if record.topic() == SOURCE:
            event, attempt = f"{SOURCE}/{record.partition()}/{record.offset()}", 0
        else:
            envelope = read_envelope(record.headers())[0]
            event, attempt = envelope.event_id, envelope.attempt
        if self.handled[event] or self.dead[event] or self._latest.get(event, 0) > attempt:
            return True
        # A second copy is left out while the first one waits.
        offsets = self._fleet.cluster.group("shop").offsets
        return any(
            key not in offsets or offset >= (offsets[key].offset or 0)
            for key, offset in self._copies.get((event, attempt), ())
            if (key, offset) != (TopicPartition(record.topic(), record.partition()), record.offset())
        )

    def _dies(self, task: Task) -> bool:
        return task.fails > 0 and (task.is_bug or task.fails >= self._shape.most_attempts)
