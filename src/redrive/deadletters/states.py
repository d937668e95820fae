"""
What became of dead letters: a compacted topic beside each dead-letter topic, and the protocol by which it is written.

Each record there is a change: its key the letter's position (`orders.dlq/0/17`), its value JSON with the new state and
who made it, when, by which job; a null value releases a claim. All changes go to partition 0, so that everybody reads
them in one order, whatever becomes of the topic.

    open ──claim──▶ sending ──▶ replayed
      ▲               │ └─────▶ discarded
      └───release─────┘

1. A job **claims** letters: it writes `sending` for each, waits for the acknowledgements, and reads the topic up to and
   with its last claim. It owns the letters for which its claim is the first one while they were open. Everybody who
   reads the same records comes to the same result, so of two operators one gets the letter and the other passes it by.
2. Only then it sends the copies, and waits for their acknowledgements.
3. It writes `replayed` for what was acknowledged, and **releases** what was surely refused. Where nobody knows (the broker
   went away before it answered) the claim stays.

A job that is killed:

| before | leaves | the next job |
|---|---|---|
| the claim | the letter open | sends it |
| the copy | `sending` | passes it by: nobody can know whether the copy was sent |
| the copy's acknowledgement | `sending` | passes it by |
| `replayed` | `sending` | passes it by |

So no kill makes a letter be sent twice, and none hides one: a letter left in `sending` is shown as `unknown`, and goes
out again only when a person asks for it. That is a **takeover**: a claim that names the job it takes the letter from
(`over`). It counts only while the letter is still that job's, so two people who ask at once don't send it twice either.

Compaction keeps the last change of a letter. That agrees with the rules above but for claims that came too late, so
whoever loses against a finished letter writes its end down again. And a claim that was compacted away before it was
read back would make a later one look like the first: where offsets are missing in what is read back, nothing is sent.

A state belongs to a letter by its position *and* its timestamp (`letter_ms`): when a dead-letter topic is deleted and
made anew, its new letters are open although old ones had their offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from redrive.core.acls import asking_rights
from redrive.core.notices import is_of_retries
from redrive.core.record import RawRecord, TopicPartition, headers_of
from redrive.deadletters.letters import Position
from redrive.deadletters.topics import Dlq
from redrive.errors import TopologyError
from redrive.runtime.checks import require_rights
from redrive.runtime.clock import Clock
from redrive.runtime.ports import Cluster, Log, NewTopic, NotWritten, Write, Written

#: The header of a release, whose value is null: the job that gives the letter back.
_JOB_HEADER = "redrive-job"


class State(StrEnum):
    """What a change says of a letter."""

    SENDING = "sending"
    REPLAYED = "replayed"
    DISCARDED = "discarded"
    #: Solved otherwise.
    RESOLVED = "resolved"

    @property
    def is_final(self) -> bool:
        """Whether nothing is left to do: such letters don't count as unresolved."""
        return self is not State.SENDING


class Mark(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """
    One change, and with it the state of its letter.

    `letter_ms`: the timestamp of the letter, None in marks of others. `over`: in a takeover, the job it takes the letter
    from. `why`: what the person said.
    """

    state: State
    who: str = ""
    when_ms: int = 0
    job: str = ""
    letter_ms: int | None = None
    over: str | None = None
    why: str = ""

    @property
    def shown(self) -> str:
        """The state in words: from outside, a letter that is being sent and one whose job was killed look the same."""
        return "unknown" if self.state is State.SENDING else str(self.state)


class Release(msgspec.Struct, frozen=True):
    """A claim that its job gave back."""

    job: str


#: What stands where a change can't be read, a newer version's perhaps: surely not that nothing happened.
UNREADABLE = Mark(State.SENDING, who="?", job="?")

_decode = msgspec.json.Decoder(Mark).decode
_encode = msgspec.json.Encoder().encode

_INCOMPLETE = "the state topic was compacted while it was claimed, so nobody knows whose it is: not sent, shown as unknown"


def follow(before: Mark | None, change: Mark | Release) -> Mark | None:
    """Gives the state of a letter after a change; None is open."""
    if isinstance(change, Release):
        return before if before is not None and change.job not in {"", before.job} else None
    if before is None or _is_of_another_letter(before, change.letter_ms):
        return change
    if change.state is State.SENDING:
        return change if change.over is not None and change.over == before.job else before
    return change


def read_change(value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> Mark | Release:
    """Gives what a record of a state topic says. Never raises: what can't be read counts as `UNREADABLE`."""
    if value is None:
        return Release((dict(headers or ()).get(_JOB_HEADER) or b"").decode(errors="replace"))
    try:
        return _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return UNREADABLE


def _is_of_another_letter(mark: Mark, letter_ms: int | None) -> bool:
    return mark.letter_ms is not None and letter_ms is not None and mark.letter_ms != letter_ms


class Author(msgspec.Struct, frozen=True):
    """Who changes states: a person, by a job. `why`: what they said about it."""

    who: str
    job: str
    why: str = ""


class Claim(msgspec.Struct, frozen=True):
    """A letter that a job wants; `over`: the job it is to be taken from, None for an open one."""

    position: Position
    letter_ms: int
    over: str | None = None


class Claimed(msgspec.Struct, frozen=True):
    """What came of claims: the letters that are ours, and of the others why not."""

    won: frozenset[Position]
    lost: Mapping[Position, str]
    failed: Mapping[Position, str]


def require_state_topic(
    cluster: Cluster, log: Log, clock: Clock, *, dlq: str, state: str, hint: str = ""
) -> None:
    """
    Make the state topic beside a dead-letter topic if it isn't there, so that something can be asked of workers. `hint`: why
    else the latter may not be there.

    Raises TopologyError where that can't be: nothing was asked of anybody then. PortError, also where this user lacks a right:
    a producer that lacks all rights to write says less.
    """
    require_rights(asking_rights(dlq, state), cluster)
    existing = cluster.describe()
    if dlq not in existing:
        raise TopologyError(
            f"the dead-letter topic {dlq!r}, beside which is kept what workers are asked for, doesn't exist; "
            f"`redrive topics apply` creates it{hint}"
        )
    StateBook(
        cluster, log, clock, Dlq(dlq, state, state in existing, {}, existing[dlq].replication)
    ).require()


class StateBook:
    """
    The states of one dead-letter topic, read up to some point and written by the protocol of this module.

    Reading needs no state topic: where there is none, all letters are open. `unreadable` counts the records that mean
    nothing to us.
    """

    def __init__(self, cluster: Cluster, log: Log, clock: Clock, dlq: Dlq) -> None:
        self.dlq = dlq
        self.unreadable = 0
        self._cluster = cluster
        self._log = log
        self._clock = clock
        self._key = TopicPartition(dlq.state, 0)
        self._exists = dlq.has_state
        self._next = 0
        self._marks: dict[tuple[int, int], Mark] = {}

    def read(self) -> None:
        """Read on to the present end. Raises PortError."""
        if self._exists:
            self._read(self._cluster.offsets([self._key], "latest").get(self._key, 0))

    def mark(self, position: Position, letter_ms: int) -> Mark | None:
        """The state of a letter as far as it was read; None is open."""
        mark = self._marks.get((position.partition, position.offset))
        return None if mark is None or _is_of_another_letter(mark, letter_ms) else mark

    def history(self, position: Position) -> list[Mark | Release]:
        """All changes of a letter that compaction has left, oldest first. Raises PortError."""
        if not self._exists:
            return []
        end = self._cluster.offsets([self._key], "latest").get(self._key, 0)
        wanted = str(position).encode()
        return [
            read_change(record.value(), headers_of(record))
            for record in self._log.scan(self._key, 0, end)
            if record.key() == wanted
        ]

    def require(self) -> None:
        """
        Make the state topic if it isn't there, replicated as its dead-letter topic.

        Raises TopologyError when that isn't allowed, or when it forgets: without it nobody could know what was sent.
        """
        if self._exists:
            configs = self._cluster.describe([self._key.topic], configs=True)[self._key.topic].configs or {}
            if configs.get("cleanup.policy", "compact") != "compact":
                raise TopologyError(
                    f"the state topic {self._key.topic!r} has cleanup.policy={configs['cleanup.policy']}: it forgets what was "
                    "sent, and the same letters would be sent again. Set it: kafka-configs.sh --alter --entity-type topics "
                    f"--entity-name {self._key.topic} --add-config cleanup.policy=compact"
                )
            return
        min_isr = "2" if self.dlq.replication >= 3 else "1"
        wanted = NewTopic(
            self._key.topic,
            1,
            self.dlq.replication or -1,
            {"cleanup.policy": "compact", "min.insync.replicas": min_isr},
        )
        failed = self._cluster.create([wanted])
        if failed:
            raise TopologyError(
                f"the state topic {self._key.topic!r} is missing and can't be created ({failed[self._key.topic]}); nothing "
                "was sent. Create it with `redrive topics apply MODULE:APP`, or have somebody do it who may: compacted, "
                "one partition"
            )
        self._exists = True

    def claim(self, claims: Sequence[Claim], author: Author) -> Claimed:
        """
        Claim letters and read back which of them are ours. Those that aren't to be had any more aren't claimed at all.

        Raises PortError when the topic can't be read; claims that were written by then stay, and show as unknown.
        """
        self.read()
        lost = {one.position: why for one in claims if (why := self._why_not(one))}
        wanted = {one.position: one for one in claims if one.position not in lost}
        now_ms = int(self._clock.wall_ms())
        refused, end = self._put(
            {
                at: _encode(
                    Mark(State.SENDING, author.who, now_ms, author.job, one.letter_ms, one.over, author.why)
                )
                for at, one in wanted.items()
            }
        )
        if not self._read(end):
            return Claimed(frozenset(), lost, dict.fromkeys(wanted, _INCOMPLETE))
        won = frozenset(at for at, one in wanted.items() if self._is_held(one, author.job))
        failed = {at: f"could not be claimed: {why}" for at, why in refused.items() if at not in won}
        taken = [one for at, one in wanted.items() if at not in won and at not in failed]
        self._write_ends_again(taken)
        return Claimed(won, {**lost, **{one.position: self._whose(one) for one in taken}}, failed)

    def settle(self, claims: Iterable[Claim], state: State, author: Author) -> Mapping[Position, str]:
        """Write the end of letters that are ours. Gives those for which that wasn't confirmed, and why."""
        now_ms = int(self._clock.wall_ms())
        refused, _ = self._put(
            {
                one.position: _encode(
                    Mark(state, author.who, now_ms, author.job, one.letter_ms, why=author.why)
                )
                for one in claims
            }
        )
        return refused

    def release(self, claims: Iterable[Claim], author: Author) -> Mapping[Position, str]:
        """
        Give back letters that are ours and weren't sent. Gives those for which that wasn't confirmed, and why.

        What a person took over meanwhile is left alone. Raises PortError.
        """
        self.read()
        ours = [one.position for one in claims if self._is_held(one, author.job)]
        refused, _ = self._put(dict.fromkeys(ours), [(_JOB_HEADER, author.job.encode())])
        return refused

    def _why_not(self, claim: Claim) -> str:
        mark = self.mark(claim.position, claim.letter_ms)
        return "" if mark is None or claim.over == mark.job else self._whose(claim)

    def _is_held(self, claim: Claim, job: str) -> bool:
        mark = self.mark(claim.position, claim.letter_ms)
        return mark is not None and mark.job == job and mark.state is State.SENDING

    def _whose(self, claim: Claim) -> str:
        mark = self.mark(claim.position, claim.letter_ms)
        if mark is None:
            return "somebody else had it meanwhile"
        what = f"{mark.state} by" if mark.state.is_final else "being sent by, or left by,"
        return f"{what} {mark.who or 'somebody'} (job {mark.job or 'without a name'})"

    def _write_ends_again(self, lost: Iterable[Claim]) -> None:
        """Our claim came after their end, and compaction would keep the claim; should this fail, they show as unknown."""
        ends: dict[Position, bytes | None] = {}
        for one in lost:
            mark = self.mark(one.position, one.letter_ms)
            if mark is not None and mark.state.is_final:
                ends[one.position] = _encode(mark)
        self._put(ends)

    def _put(
        self, values: Mapping[Position, bytes | None], headers: Sequence[tuple[str, bytes | None]] = ()
    ) -> tuple[dict[Position, str], int]:
        """Write changes; gives those that weren't confirmed, and the offset after the last one that was."""
        answers = self._log.write_many(
            [
                Write(self._key.topic, str(at).encode(), value, list(headers), self._key.partition)
                for at, value in values.items()
            ]
        )
        refused = {
            at: answer.detail
            for at, answer in zip(values, answers, strict=True)
            if isinstance(answer, NotWritten)
        }
        return refused, max(
            (answer.offset + 1 for answer in answers if isinstance(answer, Written)), default=0
        )

    def _read(self, end: int) -> bool:
        """Read on to `end`. False when offsets are missing in between."""
        expected = self._next
        is_whole = True
        for record in self._log.scan(self._key, self._next, end):
            is_whole = is_whole and record.offset() == expected
            expected = record.offset() + 1
            self._take(record)
        is_whole = is_whole and expected >= end
        self._next = max(self._next, end)
        return is_whole

    def _take(self, record: RawRecord) -> None:
        if is_of_retries(record.key()):
            return
        try:
            at = Position.parse((record.key() or b"").decode())
        except ValueError:
            self.unreadable += 1
            return
        if at.topic != self.dlq.topic:
            self.unreadable += 1
            return
        change = read_change(record.value(), headers_of(record))
        self.unreadable += change is UNREADABLE
        place = at.partition, at.offset
        after = follow(self._marks.get(place), change)
        if after is None:
            self._marks.pop(place, None)
        else:
            self._marks[place] = after
