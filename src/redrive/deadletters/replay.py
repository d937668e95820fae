"""Carries out a plan: sends copies of dead letters, or discards them, and accounts for each one."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Literal, NamedTuple

import msgspec

from redrive.core.acls import ADVICE, Operation, Right, explain_lacking, on_topic
from redrive.core.record import RawRecord, TopicPartition
from redrive.core.translator import PLAIN, Translator
from redrive.deadletters.letters import Copy, Position, copy_of, read_letter, release_of
from redrive.deadletters.pace import Pace
from redrive.deadletters.selection import Entry, Plan
from redrive.deadletters.states import Author, Claim, State, StateBook
from redrive.errors import PortError, ReplayRefused
from redrive.runtime.checks import find_lacking_rights
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, Log, NotWritten, Write, Written

#: Letters that are claimed, sent and marked together: enough to make round trips cheap, few enough that a killed
#: process leaves little that nobody knows of.
BATCH_LETTERS = 500
BATCH_BYTES = 16 << 20
#: Letters that don't lie closer than this are looked for one by one.
_LEAP = 10_000
#: Of how many letters a report says what became of them, besides the counts.
TOLD = 1_000

What = Literal["failed", "skipped", "not found"]


class Desk(NamedTuple):
    """What operations on dead letters work with. `translator`: how letters are read; by default, all known dialects."""

    cluster: Cluster
    log: Log
    clock: Clock
    translator: Translator = PLAIN


class Trouble(msgspec.Struct, frozen=True):
    """A letter that wasn't sent, or discarded: `letter` is its position or the event id it was named by."""

    letter: str
    what: What
    why: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """
    What became of a plan. done + failed + skipped + not_found = selected.

    `done`: sent, or discarded. `unmarked`: how many of them show as unknown, because their state couldn't be written.
    `troubles`: those that weren't, the first 1,000; `causes`: how many of them all by what and why. `stopped`: why the
    run ended early, "" when it didn't.
    """

    job: str
    selected: int
    done: int
    failed: int
    skipped: int
    not_found: int
    unmarked: int = 0
    stopped: str = ""
    troubles: tuple[Trouble, ...] = ()
    causes: Mapping[tuple[What, str], int] = {}

    @property
    def is_partial(self) -> bool:
        """Whether anything of the plan is left undone or unsure."""
        return self.done < self.selected or self.unmarked > 0 or bool(self.stopped)

    @property
    def omitted(self) -> int:
        """Letters that `troubles` leaves out."""
        return sum(self.causes.values()) - len(self.troubles)


Tell = Callable[[int, int], None]
"""Told after each batch: how many letters are accounted for, and how many of them were done."""
Item = tuple[Entry, RawRecord | None]


class Job:
    """
    One run of a plan.

    `books`: those that the plan was made with. `stop`: set by whoever wants it to end; the batch on its way is
    finished, the rest skipped.
    """

    def __init__(
        self, desk: Desk, plan: Plan, books: Sequence[StateBook], author: Author, stop: threading.Event
    ) -> None:
        self._desk = desk
        self._plan = plan
        self._books = {book.dlq.topic: book for book in books}
        self._author = author
        self._stop = stop
        self._done = 0
        self._unmarked = 0
        self._left = {entry.position: None for entry in plan.entries}
        self._troubles: list[Trouble] = []
        self._causes: Counter[tuple[What, str]] = Counter()

    def replay(self, *, per_s: float | None = None, tell: Tell = lambda _, __: None) -> Report:
        """
        Send the copies, at most `per_s` a second. A letter that can't be sent doesn't hold up the others.

        Raises TopologyError when there is no state topic and none can be made, ReplayRefused when this user lacks a right;
        nothing was sent then.
        """
        counts = self._partitions()
        pace = Pace(self._desk.clock, per_s)

        def send(items: Sequence[Item]) -> Sequence[Written | NotWritten]:
            now_ms = int(self._desk.clock.wall_ms())
            writes = [
                self._copy(entry, record, counts, now_ms) for entry, record in items if record is not None
            ]
            pace.count(len(writes))
            return self._free(items, self._desk.log.write_many(writes), counts)

        batches = _batches(self._there(self._with_targets(counts)), pace.slice_of(BATCH_LETTERS))
        return self._run(batches, send, State.REPLAYED, lambda: pace.wait(self._stop), tell)

    def discard(self, tell: Tell = lambda _, __: None) -> Report:
        """
        Mark the letters as discarded. They stay where they are; records that wait for one of them are told to go on. Raises
        TopologyError, ReplayRefused, as `replay`.
        """
        is_waited_for = any(entry.frees for entry in self._plan.entries)
        counts = self._partitions() if is_waited_for else {}
        entries = list(self._with_targets(counts)) if is_waited_for else self._plan.entries
        held = self._there(entry for entry in entries if entry.frees)
        rest: Iterator[Item] = ((entry, None) for entry in entries if not entry.frees)
        batches = chain(_batches(held, BATCH_LETTERS), _batches(rest, BATCH_LETTERS))

        def free(items: Sequence[Item]) -> Sequence[Written | NotWritten]:
            return self._free(items, [Written(-1, -1)] * len(items), counts)

        return self._run(batches, free, State.DISCARDED, lambda: None, tell)

    def _there(self, entries: Iterable[Entry]) -> Iterator[Item]:
        for entry, record in read_entries(self._desk.log, entries):
            if record is None:
                self._account(entry.position, "not found", "it is gone from its topic")
            else:
                yield entry, record

    def _free(
        self, items: Sequence[Item], answers: Sequence[Written | NotWritten], counts: Mapping[str, int]
    ) -> Sequence[Written | NotWritten]:
        """Tell what waits for these letters to go on; their answers, those of the telling where that failed."""
        now_ms = int(self._desk.clock.wall_ms())
        told = [
            (at, record, entry.frees)
            for at, (entry, record) in enumerate(items)
            if entry.frees and record is not None and isinstance(answers[at], Written)
        ]
        if not told:
            return answers
        releases = [self._release(record, topic, counts, now_ms) for _, record, topic in told]
        after = list(answers)
        for (at, _, topic), answer in zip(told, self._desk.log.write_many(releases), strict=True):
            if not isinstance(answer, Written):
                what = f"{topic}, by which what waits for it is told to go on: {answer.detail}"
                # A copy that was sent elsewhere can't be taken back.
                after[at] = NotWritten(what, answer.is_certain and items[at][0].target == "")
        return after

    def _release(self, record: RawRecord, topic: str, counts: Mapping[str, int], now_ms: int) -> Write:
        letter = read_letter(record, self._desk.translator)
        release = release_of(letter, job=self._author.job, now_ms=now_ms)
        return Write(topic, record.key(), None, release.headers, _partition_of(release, topic, counts))

    def _run(
        self,
        batches: Iterator[list[Item]],
        act: Callable[[Sequence[Item]], Sequence[Written | NotWritten]],
        end: State,
        wait: Callable[[], None],
        tell: Tell,
    ) -> Report:
        self._require_rights(end)
        for topic in {entry.position.topic for entry in self._plan.entries}:
            self._books[topic].require()
        for missing in self._plan.missing:
            self._note(missing, "not found", "it isn't there")
        stopped = ""
        items: list[Item] = []
        try:
            for items in batches:
                wait()
                if self._stop.is_set():
                    stopped = "interrupted"
                    break
                self._batch(items, act, end)
                tell(self._plan.selected - len(self._left), self._done)
        except (PortError, KeyboardInterrupt) as error:
            stopped = str(error) or "interrupted"
            for entry, _ in items:
                self._account(
                    entry.position, "failed", f"{stopped}; shown as unknown if it was claimed by then"
                )
        for position in list(self._left):
            self._account(position, "skipped", f"not reached: {stopped or 'the plan changed'}")
        tell(self._plan.selected, self._done)
        return self._report(stopped)

    def _require_rights(self, end: State) -> None:
        """Before anything is claimed: a right that is missing is no letter's fault."""
        dlqs = [self._books[topic].dlq for topic in {entry.position.topic for entry in self._plan.entries}]
        on_state = (Operation.READ, Operation.WRITE, Operation.DESCRIBE_CONFIGS)
        rights: list[Right] = [on_topic(each, dlq.state) for dlq in dlqs for each in on_state]
        targets: list[str] = []
        if end is State.REPLAYED:
            targets = [entry.target for entry in self._plan.entries]
            # Else its partitions were unknown, and a copy would go where its key says.
            rights += [on_topic(Operation.DESCRIBE, dlq.source) for dlq in dlqs if dlq.source]
        targets += [entry.frees for entry in self._plan.entries if entry.frees]
        rights += [on_topic(Operation.WRITE, target) for target in dict.fromkeys(targets)]
        if lacking := find_lacking_rights(rights, self._desk.cluster):
            raise ReplayRefused(f"nothing was sent or marked: {explain_lacking(lacking)}. {ADVICE}")

    def _batch(
        self,
        items: list[Item],
        act: Callable[[Sequence[Item]], Sequence[Written | NotWritten]],
        end: State,
    ) -> None:
        book = self._books[items[0][0].position.topic]
        claimed = book.claim([_claim(entry) for entry, _ in items], self._author)
        for position, why in claimed.lost.items():
            self._account(position, "skipped", why)
        for position, why in claimed.failed.items():
            self._account(position, "failed", why)
        won = [item for item in items if item[0].position in claimed.won]
        done: list[Claim] = []
        back: list[Claim] = []
        for (entry, _), answer in zip(won, act(won), strict=True):
            if isinstance(answer, Written):
                done.append(_claim(entry))
                self._done += 1
                self._left.pop(entry.position, None)
            elif answer.is_certain:
                back.append(_claim(entry))
                self._account(entry.position, "failed", f"{entry.target}: {answer.detail}")
            else:
                why = f"{entry.target}: {answer.detail}; it may have been sent, shown as unknown"
                self._account(entry.position, "failed", why)
        self._unmarked += len(book.settle(done, end, self._author))
        if back:
            book.release(back, self._author)

    def _copy(self, entry: Entry, record: RawRecord, counts: Mapping[str, int], now_ms: int) -> Write:
        translator = self._desk.translator
        letter = read_letter(record, translator)
        copy = copy_of(letter, job=self._author.job, now_ms=now_ms, translator=translator)
        partition = _partition_of(copy, entry.target, counts)
        return Write(entry.target, record.key(), record.value(), copy.headers, partition)

    def _partitions(self) -> Mapping[str, int]:
        """How many partitions targets and sources have; those that don't exist are left out."""
        return {name: topic.partitions for name, topic in self._desk.cluster.describe().items()}

    def _with_targets(self, counts: Mapping[str, int]) -> Iterator[Entry]:
        for entry in self._plan.entries:
            missing = [topic for topic in (entry.target, entry.frees) if topic and topic not in counts]
            if not missing:
                yield entry
                continue
            way_out = ", or give --to" if missing[0] == entry.target else ""
            why = f"topic {missing[0]!r} doesn't exist; `redrive topics apply` creates it{way_out}"
            self._account(entry.position, "failed", why)

    def _account(self, position: Position, what: What, why: str) -> None:
        """What became of a letter that wasn't done; the first word counts."""
        if position in self._left:
            del self._left[position]
            self._note(str(position), what, why)

    def _note(self, letter: str, what: What, why: str) -> None:
        self._causes[what, why] += 1
        if len(self._troubles) < TOLD:
            self._troubles.append(Trouble(letter, what, why))

    def _report(self, stopped: str) -> Report:
        counts: Counter[What] = Counter()
        for (what, _), count in self._causes.items():
            counts[what] += count
        return Report(
            job=self._author.job,
            selected=self._plan.selected,
            done=self._done,
            failed=counts["failed"],
            skipped=counts["skipped"],
            not_found=counts["not found"],
            unmarked=self._unmarked,
            stopped=stopped,
            troubles=tuple(self._troubles),
            causes=self._causes,
        )


def _partition_of(copy: Copy, topic: str, counts: Mapping[str, int]) -> int:
    """The number that the source's had, where the topic has as many; -1: where its key says."""
    count = counts[topic]
    keeps = count == counts.get(copy.source_topic) and 0 <= copy.source_partition < count
    return copy.source_partition if keeps else -1


def read_entries(log: Log, entries: Iterable[Entry]) -> Iterator[Item]:
    """
    Gives the letters of `entries`, which come by partition and offset, each with its record: None when it is gone, or
    when there is another letter in its place. Raises PortError.
    """
    for (topic, partition), ones in groupby(entries, key=lambda entry: entry.position[:2]):
        for run in _runs(ones):
            wanted = {entry.position.offset: entry for entry in run}
            first, end = run[0].position.offset, run[-1].position.offset + 1
            for record in log.scan(TopicPartition(topic, partition), first, end):
                if record.offset() not in wanted:
                    continue
                while (entry := wanted.pop(next(iter(wanted)))).position.offset < record.offset():
                    yield entry, None
                yield entry, record if record.timestamp()[1] == entry.letter_ms else None
            for entry in wanted.values():
                yield entry, None


def _runs(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Entries of a partition, cut where a new scan is cheaper than reading what lies between."""
    run: list[Entry] = []
    for entry in entries:
        if run and entry.position.offset - run[-1].position.offset > _LEAP:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _batches(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    """Items of one topic together, at most so many, and not much more than `BATCH_BYTES`."""
    for _, of_topic in groupby(items, key=lambda item: item[0].position.topic):
        batch: list[Item] = []
        size = 0
        for item in of_topic:
            batch.append(item)
            size += 0 if item[1] is None else len(item[1])
            if len(batch) >= most or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


def _claim(entry: Entry) -> Claim:
    return Claim(entry.position, entry.letter_ms, entry.over)
