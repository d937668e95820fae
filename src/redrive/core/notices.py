"""
Notices: what a person wants with records that wait in retry topics, while workers hold these in memory.

A notice says of some offsets of one tier partition, and one group: *hurry* (due now) or *discard* (never run again); of one
record of any partition of the group, also a source's: *skip* (get past it, though it is stuck). It is written to the state topic beside the dead-letter topic, which every worker of the group reads: before it starts, and
then every two seconds. It changes nothing on the tier: the records stay where they are, and who owns a record is still
decided by the group protocol alone.

    operator                          state topic                        worker that owns the partition
    writes a notice, acknowledged ──▶ notice:orders.retry.10m/0/JOB/0 ──▶ hurry: its due is when the notice was made
                                                                          discard: takes it out of its window, and
    reads what became of it ◀──────── retry:orders.retry.10m/0/17 ◀────── writes that down; then the offset passes

- **Nothing runs twice because of a notice.** There is no copy: a hurried record is the same record at the same offset.
  A crash repeats it as it would have without the notice.
- **Nothing is lost.** The offset of a discarded record passes only after its end (`retry:…`) was acknowledged; until then
  it is unfinished, and the next owner reads record and notice again. The record itself stays on its topic until
  retention deletes it.
- **Too late is told.** What a worker has handed to a handler is not stopped. A record that is finished without an end of
  its own was run: whoever asked to discard it is told so. One to be skipped that is with a handler is skipped when that
  fails, instead of tried again or put aside.
- **A notice outlives crashes and rebalances**: it stays in the topic, and counts for whoever owns the partition.

A notice belongs to a topic by its *identity* (cluster and topic id), so a topic that was made anew isn't touched. Where
two say different things of one record, discard counts: it may have happened already.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from redrive.core.offset_codec import Range
from redrive.core.pausing import is_pausing
from redrive.core.record import TopicPartition

Action = Literal["hurry", "discard", "skip"]

#: What keys of the state topic begin with that aren't a letter's position; ":" is in no topic's name.
NOTICE, END = "notice:", "retry:"
#: So many ranges of offsets may be in force in one process: 30 MB. What comes beyond that is refused and told.
RANGES_MOST = 200_000
#: So many ranges fit one notice: 200 kB at most.
RANGES_PER_NOTICE = 5_000
#: Who, why and job of one notice together; the command writes less. Each end repeats them, and may be one of thousands.
SAID_MOST_CHARS = 4_000


class Notice(msgspec.Struct, frozen=True, gc=False):
    """
    What `who` wants, since `when_ms`, with records of one tier partition; `ranges` ascending and apart. `job`: the run
    of a command that wrote it. `why`: what the person said.
    """

    action: Action
    group: str
    identity: str
    ranges: tuple[Range, ...]
    who: str
    when_ms: int
    job: str
    why: str = ""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """What a worker writes down of a record that it ended for a person; the notice's own words, and when it was done."""

    state: Literal["discarded", "skipped"]
    who: str
    when_ms: int
    job: str
    why: str = ""


class Posted(NamedTuple):
    """A notice as it stands in a state topic: its key there, and the partition it is about."""

    name: str
    partition: TopicPartition
    notice: Notice


_encode = msgspec.json.Encoder().encode
_decode_notice = msgspec.json.Decoder(Notice).decode
_decode_end = msgspec.json.Decoder(Ended).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError)


def is_for_workers(key: bytes | None) -> bool:
    """Whether a record of a state topic is something that workers have to read."""
    return is_notice(key) or is_pausing(key)


def is_of_retries(key: bytes | None) -> bool:
    """Whether a record of a state topic is for workers or by them, and not about a dead letter."""
    return (key or b"").startswith((NOTICE.encode(), END.encode())) or is_pausing(key)


def is_notice(key: bytes | None) -> bool:
    """Whether a record of a state topic is a notice."""
    return (key or b"").startswith(NOTICE.encode())


def write_notice(partition: TopicPartition, notice: Notice, number: int) -> tuple[bytes, bytes]:
    """Key and value of a notice; `number` tells those of one job and partition apart."""
    return f"{NOTICE}{partition.topic}/{partition.partition}/{notice.job}/{number}".encode(), _encode(notice)


def read_notice(key: bytes | None, value: bytes | None) -> Posted | None:
    """Gives the notice that a record of a state topic is; None where it is none or can't be read. Never raises."""
    if not is_notice(key) or value is None:
        return None
    try:
        name = (key or b"").decode()
        topic, partition, _, _ = name.removeprefix(NOTICE).split("/")
        about = TopicPartition(topic, int(partition))
        notice = _decode_notice(value)
        is_one = len(name) <= SAID_MOST_CHARS and _is_partition(about) and _is_sound(notice)
        return Posted(name, about, notice) if is_one else None
    except _UNREADABLE:
        return None


def _is_partition(about: TopicPartition) -> bool:
    # A number of more than four bytes can't be told to the client: to ask for it would end the reading of notices.
    return bool(about.topic) and 0 <= about.partition < 1 << 31


def _is_sound(notice: Notice) -> bool:
    if len(notice.who) + len(notice.job) + len(notice.why) > SAID_MOST_CHARS:
        return False
    at = -1
    for first, end in notice.ranges:
        if not at < first < end:
            return False
        at = end - 1
    return bool(notice.ranges)


def write_end(partition: TopicPartition, offset: int, notice: Notice, now_ms: int) -> tuple[bytes, bytes]:
    """Key and value of the record that says that a worker ended this one."""
    key = f"{END}{partition.topic}/{partition.partition}/{offset}"
    state: Literal["discarded", "skipped"] = "skipped" if notice.action == "skip" else "discarded"
    return key.encode(), _encode(Ended(state, notice.who, now_ms, notice.job, notice.why))


def read_end(key: bytes | None, value: bytes | None) -> tuple[TopicPartition, int, Ended] | None:
    """Gives which record was ended for a person, and by which job; None where this says nothing of the kind. Never raises."""
    if value is None or not (key or b"").startswith(END.encode()):
        return None
    try:
        topic, partition, offset = (key or b"").decode().removeprefix(END).split("/")
        return TopicPartition(topic, int(partition)), int(offset), _decode_end(value)
    except _UNREADABLE:
        return None


class Board:
    """
    The notices in force, by partition. Bounded: `post` takes no more ranges than `RANGES_MOST` over all.

    Those of partitions that somebody else owns are kept too: a partition may come here while its records still wait.
    """

    def __init__(self) -> None:
        self._posted: dict[TopicPartition, dict[str, Notice]] = {}
        self._ranges = 0

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._posted

    def post(self, posted: Posted) -> bool:
        """Put a notice up; doing so twice is harmless. False when there are too many."""
        on_board = self._posted.get(posted.partition, {})
        if posted.name in on_board:
            return True
        if self._ranges + len(posted.notice.ranges) > RANGES_MOST:
            return False
        self._ranges += len(posted.notice.ranges)
        self._posted.setdefault(posted.partition, on_board)[posted.name] = posted.notice
        return True

    def prune(self, frontiers: Mapping[TopicPartition, int]) -> None:
        """Take down what is only about records below a frontier: they are finished."""
        for partition in self._posted.keys() & frontiers.keys():
            notices = self._posted[partition]
            for name, notice in list(notices.items()):
                if notice.ranges[-1][1] <= frontiers[partition]:
                    self._ranges -= len(notice.ranges)
                    del notices[name]
            if not notices:
                del self._posted[partition]

    def covers(self, partition: TopicPartition, first: int, end: int) -> bool:
        """Whether some notice may be about an offset in [first, end)."""
        notices = self._posted.get(partition, {}).values()
        return any(one.ranges[0][0] < end and first < one.ranges[-1][1] for one in notices)

    def about(self, partition: TopicPartition, offsets: Sequence[int]) -> Mapping[int, Notice]:
        """Which notice counts for each of ascending offsets that one is about: of several one that ends it, else the earliest."""
        notices = self._posted.get(partition, {}).values()
        found: dict[int, Notice] = {}
        for notice in sorted(notices, key=lambda one: (one.action != "hurry", -one.when_ms)):
            for first, end in notice.ranges:
                within = offsets[bisect_left(offsets, first) : bisect_left(offsets, end)]
                found.update(dict.fromkeys(within, notice))
        return found


def ranges_of(offsets: Iterable[int]) -> Iterator[Range]:
    """Gives ascending offsets as ranges."""
    first = end = None
    for offset in offsets:
        if end is not None and offset == end:
            end += 1
            continue
        if first is not None and end is not None:
            yield first, end
        first, end = offset, offset + 1
    if first is not None and end is not None:
        yield first, end


def overlap(ranges: Collection[Range], others: Collection[Range]) -> int:
    """How many offsets two collections of ascending ranges have in common."""
    count = 0
    left, right = iter(ranges), iter(others)
    one, other = next(left, None), next(right, None)
    while one is not None and other is not None:
        count += max(0, min(one[1], other[1]) - max(one[0], other[0]))
        if one[1] <= other[1]:
            one = next(left, None)
        else:
            other = next(right, None)
    return count
