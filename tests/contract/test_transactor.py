"""What writing in transactions must do, in memory and on a real broker with either group protocol."""

from collections.abc import Iterable
from typing import Any

from redrive.core.commands import Produce, Transaction
from redrive.core.record import TopicPartition
from redrive.core.transactions import Aborted, Completed, Fenced, Outcome
from redrive.runtime.ports import Transactor
from tests.contract.worlds import Member, World
from tests.plain_kafka import unique
from tests.waiting import until


def _write(topic: str, value: bytes | None, partition: int = 0, **more: Any) -> Produce:
    return Produce(value, topic, partition, more.get("key", b"k"), value, more.get("headers", []))


def _outcome(
    transactor: Transactor,
    number: int,
    writes: Iterable[Produce],
    offsets: dict[TopicPartition, tuple[int, str]],
    membership: Any,
) -> Outcome:
    transactor.submit(Transaction(number, tuple(writes), offsets), membership)
    found: list[Outcome] = []
    until(lambda: found.extend(transactor.outcomes()) or found, f"the outcome of transaction {number}")
    assert [outcome.number for outcome in found] == [number]
    return found[0]


def _values(world: World, topic: str) -> list[bytes | None]:
    return [record.value for record in world.stored(topic)]


def _joined(world: World, group: str, topic: str) -> tuple[Member, TopicPartition]:
    member, key = Member(world, group, [topic]), TopicPartition(topic, 0)
    member.own({key})
    member.poll()
    return member, key


def _committed(member: Member, key: TopicPartition) -> tuple[int | None, str]:
    at = until(lambda: member.source.committed([key], 1.0), "what is committed")[key]
    return at.offset, at.metadata.rstrip("\0")


def test_writes_and_offsets_with_their_metadata_are_there_together(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    other = world.topic(2)
    transactor = world.transactor(unique("tx"))
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("b", None)]
    writes = [_write(other, b"one"), _write(other, None, 1, key=None, headers=headers)]

    outcome = _outcome(transactor, 1, writes, {key: (0, "a map")}, member.source.membership)

    assert outcome == Completed(1)
    assert _committed(member, key) == (0, "a map")
    assert world.stored(other) == [(0, b"k", b"one", []), (1, None, None, headers)]


def test_a_transaction_may_have_no_writes_and_one_follows_another(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    transactor, other = world.transactor(unique("tx")), world.topic()
    for number in range(1, 4):
        writes = [_write(other, b"%d" % number)] if number == 2 else []
        outcome = _outcome(
            transactor, number, writes, {key: (number, f"map {number}")}, member.source.membership
        )
        assert outcome == Completed(number)
        assert _committed(member, key) == (number, f"map {number}")
    assert _values(world, other) == [b"2"]


def test_an_oversize_write_aborts_all_and_is_named_and_the_next_transaction_goes(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    good, small = world.topic(), world.topic(**{"max.message.bytes": "20000"})
    transactor = world.transactor(unique("tx"))
    writes = [_write(good, b"one"), _write(small, b"x" * 30_000), _write(good, b"two")]

    outcome = _outcome(transactor, 1, writes, {key: (7, "")}, member.source.membership)

    assert isinstance(outcome, Aborted)
    assert {place: refusal.kind for place, refusal in outcome.writes.items()} == {1: "too-large"}
    assert outcome.offsets == {}
    assert _committed(member, key)[0] is None
    kept = [writes[0], writes[2]]
    assert _outcome(transactor, 2, kept, {key: (1, "")}, member.source.membership) == Completed(2)
    assert (_values(world, good), _values(world, small)) == ([b"one", b"two"], [])


def test_a_write_to_a_missing_topic_aborts_all_and_is_named(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    good, transactor = world.topic(), world.transactor(unique("tx"))
    writes = [_write(good, b"one"), _write(unique("missing"), b"lost")]

    outcome = _outcome(transactor, 1, writes, {key: (7, "")}, member.source.membership)

    assert isinstance(outcome, Aborted)
    assert {place: refusal.kind for place, refusal in outcome.writes.items()} == {1: "unavailable"}
    assert _outcome(transactor, 2, [], {key: (1, "")}, member.source.membership) == Completed(2)
    assert _values(world, good) == []


def test_metadata_that_the_broker_refuses_aborts_all_and_its_partitions_are_named(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    good, transactor = world.topic(), world.transactor(unique("tx"))

    outcome = _outcome(
        transactor, 1, [_write(good, b"one")], {key: (1, "x" * 5000)}, member.source.membership
    )

    assert isinstance(outcome, Aborted)
    assert (dict(outcome.writes), set(outcome.offsets)) == ({}, {key})
    assert _values(world, good) == []
    assert _outcome(transactor, 2, [], {key: (1, "")}, member.source.membership) == Completed(2)


def test_the_offset_of_a_partition_that_has_moved_away_is_refused_and_so_is_all_else(group_world, group):
    world = group_world
    topic, other = world.topic(2), world.topic()
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    first, transactor = Member(world, group, [topic]), world.transactor(unique("tx"))
    first.own({zero, one})
    first.poll()
    before = first.source.membership
    second = Member(world, group, [topic])
    second.poll_until(lambda: len(second.owned) == 1 and len(first.owned) == 1, "one each", first)
    (moved,) = second.owned
    assert second.source.commit_now({moved: (5, "theirs")})

    outcome = _outcome(transactor, 1, [_write(other, b"zombie")], {moved: (9, "ours")}, before)

    assert isinstance(outcome, Aborted)
    assert (dict(outcome.writes), dict(outcome.offsets)) == ({}, {})
    assert _committed(second, moved) == (5, "theirs")
    assert _values(world, other) == []
    (kept,) = first.owned
    first.poll_until(lambda: first.source.membership is not None, "a poll", second)
    assert _outcome(transactor, 2, [], {kept: (1, "")}, first.source.membership) == Completed(2)


def test_of_two_producers_with_one_id_the_elder_can_do_nothing_more(group_world, group):
    world = group_world
    member, key = _joined(world, group, world.topic())
    topic, name = world.topic(), unique("tx")
    elder = world.transactor(name)
    membership = member.source.membership
    assert _outcome(elder, 1, [_write(topic, b"elder")], {key: (1, "")}, membership) == Completed(1)
    younger = world.transactor(name)
    assert _outcome(younger, 1, [_write(topic, b"younger")], {key: (2, "")}, membership) == Completed(1)

    outcome = _outcome(elder, 2, [_write(topic, b"zombie")], {key: (3, "")}, membership)

    assert isinstance(outcome, Fenced)
    assert outcome.is_final
    assert _committed(member, key)[0] == 2
    assert _values(world, topic) == [b"elder", b"younger"]
    assert _outcome(younger, 2, [], {key: (4, "")}, membership) == Completed(2)
