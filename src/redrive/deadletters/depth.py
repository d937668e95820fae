"""
How many dead letters of a running app are unresolved: counted in the background, so that a scrape waits for nobody.

A dead-letter topic is told by one process: the one to which the group has given partition 0 of its source. A letter is
read once, a change of its state once; a look that finds nothing new costs the cluster four small questions.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from redrive.core.commands import Report
from redrive.core.readings import Depth
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.deadletters.letters import Position, glance
from redrive.deadletters.states import read_change
from redrive.deadletters.tally import Tally
from redrive.deadletters.topics import Names, possible_states, state_of
from redrive.errors import PortError, TopologyError
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, Log, TopicInfo

#: Topics that came to this process are looked for this often.
LOOK_MS = 1_000.0
#: Without an answer for this long, no count is better than an old one.
FORGET_MS = 120_000.0
#: Letters of one topic that are kept in memory, 26 bytes each; behind them the count says "at least".
MOST_LETTERS = 4_000_000
#: After so many records (2 to 3 ms) the handlers get the interpreter for longer than that: no retry is late for a count.
_AT_ONCE = 500
_BREATH_MS = 5.0


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a count needs of the outside. `hang_up` is called when nothing is left to read: a log that holds connections
    may let them go until the next look.
    """

    cluster: Cluster
    log: Log
    clock: Clock
    report: Callable[[Report], None]
    hang_up: Callable[[], None] = lambda: None


class _Closed(Exception):
    """The reader is to end in the middle of a topic."""


class _Watch:
    """One dead-letter topic: what was counted of it, and up to where it and its state topic were read."""

    def __init__(self, info: TopicInfo, tally: Tally) -> None:
        self.dlq, self.topic_id, self.tally = info.name, info.topic_id, tally
        self.read_to: dict[int, int] = {}
        #: None before the first look. A topic's id is empty where the cluster doesn't tell it.
        self.has_states: bool | None = None
        self.states_id = ""
        self.states_read_to = 0
        self.is_told_full = False


class Depths:
    """
    `depths` has what is known, by dead-letter topic; it is replaced as a whole, and read by any thread.

    `wanted` gives the dead-letter topics that are this process's to tell. `look` is one round, `start` makes them in a
    thread. `groups`: whose letters count. A topic that is deleted or goes to another process leaves `depths`.
    """

    def __init__(
        self,
        wanted: Callable[[], Collection[str]],
        reach: Reach,
        *,
        names: Names,
        groups: Collection[str],
        refresh_ms: float,
        most_letters: int = MOST_LETTERS,
    ) -> None:
        self.depths: Mapping[str, Depth] = {}
        self._wanted, self._names, self._groups = wanted, names, groups
        self._refresh_ms, self._most_letters = refresh_ms, most_letters
        self._cluster, self._log, self._clock = reach.cluster, reach.log, reach.clock
        self._report, self._hang_up = reach.report, reach.hang_up
        self._watches: dict[str, _Watch] = {}
        self._answered_mono_ms: dict[str, float] = {}
        self._asked: frozenset[str] = frozenset()
        self._looked_mono_ms = self._clock.mono_ms()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Read on where the last look is old, or topics have come since. Waits for the cluster; never raises."""
        wanted = frozenset(self._wanted())
        now_ms = self._clock.mono_ms()
        if not (wanted - self._asked) and now_ms - self._looked_mono_ms < self._refresh_ms:
            return
        self._asked, self._looked_mono_ms = wanted, now_ms
        try:
            self._read(wanted)
        except _Closed:
            pass
        except PortError as error:
            for dlq in wanted:
                self._fail(dlq, error)
        finally:
            self._hang_up()

    def start(self) -> None:
        """Look once a second, or more often where the refresh is shorter, in a thread of its own, until `close`."""
        self._thread = threading.Thread(target=self._run, name="redrive-depths", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking. A question that is out is not waited for: the thread ends with its answer."""
        self._stop.set()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.look()
                self._clock.wait(self._stop, min(LOOK_MS, self._refresh_ms))
        finally:
            self.depths = {}

    def _read(self, wanted: Collection[str]) -> None:
        for dlq in self.depths.keys() | self._watches.keys():
            if dlq not in wanted:
                self._forget(dlq)
        if not wanted:
            return
        related = [name for dlq in wanted for name in (dlq, *possible_states(dlq, self._names))]
        existing = self._cluster.describe(related, configs=True)
        for dlq in sorted(wanted):
            if dlq not in existing:
                self._forget(dlq)
                continue
            try:
                tally = self._read_on(existing[dlq], existing)
            except (PortError, TopologyError) as error:
                self._fail(dlq, error)
                continue
            depth = Depth(
                unresolved=tally.unresolved,
                oldest_ms=tally.oldest_ms(),
                retention_ms=_retention_ms(existing[dlq]),
            )
            self._answered_mono_ms[dlq] = self._clock.mono_ms()
            self.depths = {**self.depths, dlq: depth}

    def _forget(self, dlq: str) -> None:
        self._watches.pop(dlq, None)
        self._answered_mono_ms.pop(dlq, None)
        self.depths = {other: depth for other, depth in self.depths.items() if other != dlq}

    def _fail(self, dlq: str, error: Exception) -> None:
        self._report(Report("unresolved-unknown", {"dlq": dlq, "error": str(error)}))
        if self._clock.mono_ms() - self._answered_mono_ms.get(dlq, 0.0) > FORGET_MS:
            self.depths = {other: depth for other, depth in self.depths.items() if other != dlq}

    def _read_on(self, info: TopicInfo, existing: Mapping[str, TopicInfo]) -> Tally:
        # The end of the states first: so each letter that a change is about is there when the letters' ends are asked.
        state = TopicPartition(state_of(info.name, existing, self._names), 0)
        states = existing.get(state.topic)
        states_end = self._cluster.offsets([state], "latest").get(state, 0) if states else 0
        keys = [TopicPartition(info.name, number) for number in range(info.partitions)]
        firsts, ends = self._cluster.offsets(keys, "earliest"), self._cluster.offsets(keys, "latest")
        watch = self._watch_of(info, ends)
        for key in keys:
            if key in firsts and key in ends:
                watch.tally.forget_before(key.partition, firsts[key])
                self._read_letters(watch, key, firsts[key], ends[key])
        if watch.tally.is_full and not watch.is_told_full:
            self._report(Report("unresolved-too-many", {"dlq": info.name, "letters": self._most_letters}))
        watch.is_told_full = watch.tally.is_full
        if self._has_forgotten(watch, states, states_end):
            fields = {"dlq": info.name, "state": state.topic, "letters": sum(watch.tally.unresolved.values())}
            self._report(Report("states-lost", fields))
        if states:
            self._read_states(watch, state, states_end)
        return watch.tally

    def _watch_of(self, info: TopicInfo, ends: Mapping[TopicPartition, int]) -> _Watch:
        """A new one where the topic is another than at the last look, or where a full tally has much room again."""
        watch = self._watches.get(info.name)
        if watch is not None and not (
            _differ(watch.topic_id, info.topic_id)
            or (watch.tally.is_full and watch.tally.kept <= self._most_letters // 2)
            or any(
                offset > ends.get(TopicPartition(info.name, number), offset)
                for number, offset in watch.read_to.items()
            )
        ):
            watch.topic_id = info.topic_id or watch.topic_id
            return watch
        tally = Tally(self._groups, most=self._most_letters)
        watch = self._watches[info.name] = _Watch(info, tally)
        return watch

    def _read_letters(self, watch: _Watch, key: TopicPartition, first: int, end: int) -> None:
        start = max(first, watch.read_to.get(key.partition, 0))
        for record in self._scan(key, start, end):
            seen = glance(headers_of(record))
            if not watch.tally.add(key.partition, record.offset(), record.timestamp()[1], seen):
                return
            watch.read_to[key.partition] = record.offset() + 1
        watch.read_to[key.partition] = max(start, end)

    def _read_states(self, watch: _Watch, key: TopicPartition, end: int) -> None:
        for record in self._scan(key, watch.states_read_to, end):
            _follow(watch.tally, watch.dlq, record)
            watch.states_read_to = record.offset() + 1
        watch.states_read_to = max(watch.states_read_to, end)

    @staticmethod
    def _has_forgotten(watch: _Watch, states: TopicInfo | None, end: int) -> bool:
        """Whether what was written about letters is gone, or not there where it must be: then all are open again."""
        had, had_id = watch.has_states, watch.states_id
        watch.has_states, watch.states_id = states is not None, (states.topic_id or had_id) if states else ""
        if had and states and not _differ(had_id, states.topic_id) and end >= watch.states_read_to:
            return False
        watch.states_read_to = 0
        watch.tally.reopen()
        is_news = had or (had is None and not states)
        return bool(is_news) and any(watch.tally.unresolved.values())

    def _scan(self, key: TopicPartition, start: int, end: int) -> Iterator[RawRecord]:
        for count, record in enumerate(self._log.scan(key, start, end), start=1):
            yield record
            if count % _AT_ONCE == 0 and self._clock.wait(self._stop, _BREATH_MS):
                raise _Closed


def _differ(id_before: str, id_now: str) -> bool:
    return bool(id_before and id_now) and id_before != id_now


def _follow(tally: Tally, dlq: str, record: RawRecord) -> None:
    try:
        at = Position.parse((record.key() or b"").decode())
    except ValueError:
        return
    if at.topic == dlq:
        tally.change(at, read_change(record.value(), headers_of(record)))


def _retention_ms(info: TopicInfo) -> int | None:
    """For how long the topic keeps a record; None for ever, or where the cluster doesn't tell."""
    text = (info.configs or {}).get("retention.ms", "-1")
    return int(text) if text.isdecimal() else None
