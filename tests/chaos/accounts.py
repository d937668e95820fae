"""
Reads back what became of each record that a shop was sent, from its topics and its ledger, and has it judged.

Never is more in memory than one partition of one source: what the ledger and the topics say is first sorted into files, by the
partition of the source record that it is about.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import msgspec

from tests.chaos import crashes, key_order, routes
from tests.chaos.faults import SAID, TOOK, Fault, Faults, Word
from tests.chaos.key_order import BEGAN, Letter, Sent, Step, Verdict
from tests.chaos.ordered_service import GARBAGE, REPEAT_WITHIN_MS
from tests.chaos.routes import EMITTED, RETRY, RUN, Plan, Trace
from tests.chaos.shop import Shop
from tests.plain_kafka import Seen, each_of
from tests.services.ordered import FOR_GOOD, MOST_ATTEMPTS, TIERS, Work


class Stall(NamedTuple):
    """No run began for so long, from `from_ms` on; `place`: in that partition, empty: anywhere."""

    seconds: float = 0.0
    from_ms: float = 0.0
    place: str = ""


class Accounts:
    """`verdict`: all that was found. `stall`, `stall_of_one`: the longest, of all and of a single partition."""

    def __init__(self, shop: Shop, faults: Sequence[Fault], folder: Path) -> None:
        self.verdict = Verdict()
        self.stall = self.stall_of_one = Stall()
        self._shop = shop
        self._words: list[Word] = []
        self._all_faults, self._faults = faults, Faults()
        self._traces = _Sorted(folder / "traces")
        self._steps = _Sorted(folder / "steps")
        self._crashed: set[str] = set()

    def judge(self) -> Verdict:
        """Read it all, and judge it."""
        self._read_topics()
        alone = self._read_ledger()
        self._faults = Faults(self._all_faults, self._words)
        self._traces.close()
        self._steps.close()
        killers: set[str] = set()
        for source in self._shop.sources:
            for number in range(self._shop.partitions):
                plans, keys = self._read_source(source, number)
                killers.update(plan.record for plan in plans if plan.ends == "crashed")
                self._judge_partition(
                    f"{source}/{number}", plans, keys, is_by_key=source in self._shop.by_key
                )
        self.verdict.add(crashes.judge(self._crashed, frozenset(killers), alone, self._faults))
        if self.verdict.counts["records"] != self._shop.sent or self._shop.refused:
            refused = ", ".join(self._shop.refused[:3])
            self.verdict.note("sent", f"{self._shop.sent} were sent, not all arrived once: {refused}")
        return self.verdict

    def _read_topics(self) -> None:
        for source in self._shop.sources:
            for seen in self._each_of(f"{source}.dlq"):
                self._note(seen.own["id"], seen.own["reason"], 0, seen, f"{source}.dlq")
                if seen.own["reason"] == "crashed":
                    self._crashed.add(seen.own["id"])
        for tier in self._shop.tiers:
            for seen in self._each_of(tier):
                self._note(seen.own["id"], RETRY, int(seen.own["attempt"]), seen, tier)
        emits_to = self._shop.shape.emits_to
        for seen in self._each_of(emits_to):
            self._note((seen.value or b"").decode(), EMITTED, 0, seen, emits_to)

    def _each_of(self, topic: str) -> Iterator[Seen]:
        return each_of(self._shop.direct, topic)

    def _note(self, record: str, what: str, attempt: int, seen: Seen, topic: str) -> None:
        place, _, offset = record.rpartition("/")
        at_ms = seen.timestamp_ms + 1  # whole milliseconds: not before the run that it comes of
        self._traces.put(place, f"{offset} {what} {attempt} {at_ms} {topic} 0")

    def _read_ledger(self) -> crashes.Alone:
        alone = crashes.Alone(self._crashed)
        latest: dict[str, float] = {}
        for run in self._shop.ledger.each():
            if run.note in SAID:
                self._words.append(Word(run.event_id, run.pid, run.note, run.start_ms))
                if run.note != TOOK:
                    continue
            step = Step(run.event_id, run.attempt, run.note, run.pid, run.start_ms, run.due_ms)
            alone.take(step)
            place, _, offset = run.event_id.rpartition("/")
            if run.note == BEGAN:
                self._look_for_stall(latest, place, run.start_ms)
                if 0 < run.start_ms < run.due_ms:
                    self.verdict.note(
                        "early", f"{run.event_id} began {run.due_ms - run.start_ms:.1f} ms before its due"
                    )
                ran_at = self._place_of_run(place, run.attempt)
                self._traces.put(place, f"{offset} {RUN} {run.attempt} {run.start_ms} {ran_at} {run.pid}")
            if not place.startswith(f"{self._shop.shape.ladder}/"):
                told = f"{offset} {run.attempt} {run.note} {run.pid} {run.start_ms} {run.due_ms}"
                self._steps.put(place, told)
        return alone

    def _place_of_run(self, place: str, attempt: int) -> str:
        """The partition from which a record is run: of a tier, where it has one, the one with the number of its own."""
        topic, number = place.split("/")
        if topic == self._shop.shape.ladder and attempt > 1:
            topic = self._shop.tiers[attempt - 2]
        return f"{topic}/{number}/"

    def _look_for_stall(self, latest: dict[str, float], place: str, at_ms: float) -> None:
        for where in ("", place):
            since_ms = latest.get(where, at_ms)
            stall = Stall((at_ms - since_ms) / 1000, since_ms, where)
            if where:
                self.stall_of_one = max(self.stall_of_one, stall)
            else:
                self.stall = max(self.stall, stall)
            latest[where] = at_ms

    def _read_source(self, source: str, number: int) -> tuple[list[Plan], dict[str, str]]:
        """What is to become of each record of a partition, and their keys."""
        plans: list[Plan] = []
        keys: dict[str, str] = {}
        most = MOST_ATTEMPTS if source in self._shop.by_key else 1 + len(TIERS)
        for seen in each_of(self._shop.direct, source, [number]):
            record = f"{source}/{number}/{seen.offset}"
            plans.append(_plan_of(record, seen.value, most))
            keys[record] = (seen.key or b"").decode()
        return plans, keys

    def _judge_partition(
        self, place: str, plans: list[Plan], keys: dict[str, str], *, is_by_key: bool
    ) -> None:
        traces = [
            Trace(f"{place}/{at}", what, int(attempt), float(at_ms), where, int(pid))
            for at, what, attempt, at_ms, where, pid in self._traces.lines(place)
        ]
        blamed = frozenset(trace.record for trace in traces if trace.what == "crashed")
        found = routes.judge(
            plans,
            traces,
            self._faults,
            blamed=blamed,
            has_tiers=not is_by_key,
            exactly_once=self._shop.mode.exactly_once,
        )
        self.verdict.add(found)
        if not is_by_key:
            return
        letters = {Letter(one.record, one.what) for one in traces if one.what not in (RUN, RETRY, EMITTED)}
        found = key_order.judge(
            [Sent(one.record, keys[one.record], _dies_at(one)) for one in plans if one.ends != "poison"],
            (
                Step(f"{place}/{at}", int(attempt), what, int(pid), float(at_ms), float(due_ms))
                for at, attempt, what, pid, at_ms, due_ms in self._steps.lines(place)
            ),
            self._faults,
            sorted(letters),
            poison=frozenset(one.record for one in plans if one.ends == "poison"),
            repeat_within_ms=REPEAT_WITHIN_MS,
            emits=True,
        )
        for count in ("records", "kills", "blamed for kills"):  # those of `routes` and `crashes` tell it
            del found.counts[count]
        self.verdict.add(found)


class _Sorted:
    """Lines by the place that they are about: a file each."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._files: dict[str, TextIO] = {}

    def put(self, place: str, line: str) -> None:
        if place not in self._files:
            self._files[place] = self._path(place).open("w")
        self._files[place].write(f"{line}\n")

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def lines(self, place: str) -> Iterator[list[str]]:
        """The words of each line."""
        if self._path(place).exists():
            with self._path(place).open() as lines:
                for line in lines:
                    yield line.rstrip("\n").split(" ")

    def _path(self, place: str) -> Path:
        return self._folder / place.replace("/", "-")


def _plan_of(record: str, value: bytes | None, most_attempts: int) -> Plan:
    if value == GARBAGE:
        return Plan(record, "poison")
    work = msgspec.json.decode(value or b"", type=Work)
    if work.kills:
        return Plan(record, "crashed")
    if work.bug:
        return Plan(record, "permanent", 1)
    if work.fails == FOR_GOOD:
        return Plan(record, "exhausted", most_attempts)
    return Plan(record, EMITTED, work.fails)


def _dies_at(plan: Plan) -> int:
    return plan.fails if plan.ends in ("permanent", "exhausted") else 0
