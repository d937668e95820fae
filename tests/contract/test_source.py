"""What a member of a consumer group must do, in memory and on a real broker."""

import pytest

from redrive.core.commands import Commit
from redrive.core.record import TopicPartition
from tests.contract.worlds import Member
from tests.plain_kafka import Given


@pytest.fixture
def world(group_world):
    return group_world


def _given(*values: bytes | None) -> list[Given]:
    return [Given(value) for value in values]


def _numbered(count: int, first: int = 0) -> list[Given]:
    return _given(*(b"%d" % number for number in range(first, first + count)))


def _values(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def test_all_partitions_of_all_topics_are_assigned_to_the_only_member(world, group):
    one, other = world.topic(2), world.topic(1)
    member = Member(world, group, [one, other])
    member.own({TopicPartition(one, 0), TopicPartition(one, 1), TopicPartition(other, 0)})
    assert [event for event, _ in member.happened] == ["assigned"]


def test_records_come_in_order_and_at_most_as_many_as_were_asked_for(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(20))
    member = Member(world, group, [key.topic])

    sizes = []
    while len(member.records) < 20:
        before = len(member.records)
        member.poll(most=7)
        sizes.append(len(member.records) - before)

    assert [(at, record.offset()) for at, record in member.records] == [(key, number) for number in range(20)]
    assert max(sizes) <= 7


def test_bytes_keys_and_headers_come_as_they_were_sent(world, group):
    key = TopicPartition(world.topic(), 0)
    headers = [("a", b"1"), ("a", b"\xff\x00"), ("b", None), ("c", b"")]
    world.send(key, Given(b"\xfe", b"\x00", headers), Given(None, None, []), Given(b"", b"", []))
    member = Member(world, group, [key.topic])
    member.read(3)

    seen = [
        (record.key(), record.value(), record.headers() or [], len(record)) for _, record in member.records
    ]
    assert seen == [(b"\x00", b"\xfe", headers, 1), (None, None, [], 0), (b"", b"", [], 0)]
    topics = {(record.topic(), record.partition(), record.timestamp()[1] > 0) for _, record in member.records}
    assert topics == {(key.topic, 0, True)}


def test_a_partition_starts_where_it_is_told_to(world, group):
    topic = world.topic(3)
    for number in range(3):
        world.send(TopicPartition(topic, number), *_numbered(5))
    member = Member(world, group, [topic])
    member.starts = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5, TopicPartition(topic, 2): None}
    member.read(7)
    world.send(TopicPartition(topic, 1), Given(b"5"))
    member.read(8)

    offsets = {number: [] for number in range(3)}
    for at, record in member.records:
        offsets[at.partition].append(record.offset())
    assert offsets == {0: [3, 4], 1: [5], 2: [0, 1, 2, 3, 4]}


def test_the_beginning_is_where_retention_has_left_it(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(5))
    world.delete_before(key, 3)
    member = Member(world, group, [key.topic])
    assert member.read(2) == _values(2, first=3)


def test_offsets_without_a_record_are_passed_in_silence(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(2))
    world.send_marker(key)
    world.send(key, *_numbered(1, first=2))
    member = Member(world, group, [key.topic])
    assert member.read(3) == _values(3)
    assert member.records[2][1].offset() > 2
    assert member.problems == []


def test_a_partition_that_waits_brings_nothing_until_it_is_started(world, group):
    topic = world.topic(2)
    waiting, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.send(waiting, *_numbered(3))
    world.send(other, Given(b"sentinel"))
    member = Member(world, group, [topic])
    member.kept_waiting = {waiting}
    assert member.read(1) == [b"sentinel"]

    member.source.start_at({waiting: 1})
    assert member.read(3)[1:] == _values(2, first=1)


def test_a_paused_partition_drops_what_was_prefetched_and_others_go_on(world, group):
    topic = world.topic(2)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.send(paused, *_numbered(50))
    member = Member(world, group, [topic])
    while not member.records:
        member.poll(most=1)  # the client has fetched more of them than it gave
    seen = len(member.records)

    member.source.pause([paused])
    world.send(other, Given(b"sentinel"))
    member.poll_until(lambda: member.records[-1][0] == other, "the sentinel")
    assert len(member.records) == seen + 1

    member.source.resume({paused: 40})
    assert member.read(seen + 11)[-10:] == _values(10, first=40)


def test_a_pause_does_not_outlive_the_assignment(world, group):
    topic = world.topic(2)
    keys = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    first = Member(world, group, [topic])
    first.own(keys)
    first.source.pause(keys)

    second = Member(world, group, [topic])
    second.poll_until(lambda: len(second.owned) == 1, "a partition of its own", first)
    moved = second.owned
    second.source.close()
    first.own(keys)
    for key in moved:
        world.send(key, Given(b"back"))
    assert first.read(1) == [b"back"]


def test_what_is_committed_is_read_back_with_its_text(world, group):
    topic = world.topic(3)
    zero, one, two = (TopicPartition(topic, number) for number in range(3))
    world.send(zero, *_numbered(5))
    member = Member(world, group, [topic])
    member.own({zero, one, two})

    member.source.commit(Commit(7, {zero: (3, "r1:3:é"), one: (0, "")}))
    member.poll_until(lambda: member.answers, "an answer")
    assert member.answers == [(7, {})]
    told = member.source.committed([zero, one, two], 5.0)
    assert {key: (at.offset, at.metadata.rstrip("\0")) for key, at in told.items()} == {
        zero: (3, "r1:3:é"),
        one: (0, ""),
        two: (None, ""),
    }


def test_a_commit_without_a_text_wipes_the_one_before(world, group):
    key = TopicPartition(world.topic(), 0)
    member = Member(world, group, [key.topic])
    member.own({key})
    assert member.source.commit_now({key: (0, "text")})
    assert member.source.commit_now({key: (0, "")})
    assert member.source.committed([key], 5.0)[key].metadata.rstrip("\0") == ""


def test_a_commit_on_its_way_does_not_undo_a_later_one_that_was_waited_for(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(2))
    member = Member(world, group, [key.topic])
    member.own({key})
    member.source.commit(Commit(1, {key: (1, "earlier")}))
    assert member.source.commit_now({key: (2, "later")})
    member.poll_until(lambda: member.answers, "an answer")
    assert member.answers == [(1, {})]
    assert member.source.committed([key], 5.0)[key].offset == 2


def test_a_text_too_long_is_refused_and_the_other_partition_is_committed(world, group):
    topic = world.topic(2)
    long, short = TopicPartition(topic, 0), TopicPartition(topic, 1)
    member = Member(world, group, [topic])
    member.own({long, short})

    member.source.commit(Commit(1, {long: (0, "€" * 4096), short: (0, "€" * 4095)}))
    member.poll_until(lambda: member.answers, "an answer")
    [(snapshot, refused)] = member.answers
    assert snapshot == 1
    # The client may tell the same of the other, which was stored all the same.
    assert refused[long].kind == "too-large"
    told = member.source.committed([long, short], 5.0)
    assert (told[long].offset, told[short].offset) == (None, 0)
    assert member.source.commit_now({long: (0, "x" * 4096)}) is False


def test_each_commit_is_answered_by_its_own_number(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(5))
    member = Member(world, group, [key.topic])
    member.own({key})
    for number in (1, 2, 3):
        member.source.commit(Commit(number, {key: (number, "")}))
        member.poll_until(lambda number=number: len(member.answers) == number, "an answer")
    assert member.answers == [(1, {}), (2, {}), (3, {})]
    assert world.cluster.committed(group, [key])[key].offset == 3


def test_a_second_member_takes_over_what_the_first_lets_go_of(world, group):
    topics = [world.topic(2), world.topic(2)]
    keys = {TopicPartition(topic, number) for topic in topics for number in range(2)}
    first = Member(world, group, topics)
    first.own(keys)
    second = Member(world, group, topics)
    second.poll_until(lambda: len(first.owned) == 2 == len(second.owned), "an even share", first)

    assert first.owned | second.owned == keys
    assert first.owned & second.owned == set()
    # Same-numbered partitions stay together.
    assert len({key.partition for key in first.owned}) == 1


def test_a_commit_while_letting_go_is_what_the_next_owner_starts_from(world, group):
    topic = world.topic(2)
    keys = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    for key in keys:
        world.send(key, *_numbered(5))
    first = Member(world, group, [topic])
    first.read(10)
    first.last_words = dict.fromkeys(keys, (4, "told while letting go"))
    second = Member(world, group, [topic])
    second.poll_until(lambda: second.records, "a record", first)

    [(key, record)] = second.records
    assert record.offset() == 4
    assert world.cluster.committed(group, [key])[key].metadata.rstrip("\0") == "told while letting go"


def test_closing_lets_go_of_everything_first_and_may_be_repeated(world, group):
    topic = world.topic(2)
    keys = {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    first = Member(world, group, [topic])
    first.own(keys)
    first.last_words = {TopicPartition(topic, 0): (0, "last")}
    first.source.close()
    first.source.close()

    assert first.owned == set()
    assert set(first.events("revoked")) == keys
    second = Member(world, group, [topic])
    second.own(keys)
    assert (
        second.source.committed(sorted(keys), 5.0)[TopicPartition(topic, 0)].metadata.rstrip("\0") == "last"
    )


def test_who_was_given_up_hears_that_its_partitions_are_lost_and_gets_them_back(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(3))
    member = Member(world, group, [key.topic])
    assert member.read(3) == _values(3)

    world.lose(member.source)
    member.poll_until(lambda: member.events("lost"), "the loss")
    assert member.events("lost") == [key]
    assert member.read(6)[3:] == _values(3)


def test_an_offset_that_is_gone_is_told_and_nothing_is_skipped(world, group):
    topic = world.topic(2)
    cut, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.send(cut, *_numbered(5))
    world.send(other, *_numbered(20))
    world.delete_before(cut, 3)
    member = Member(world, group, [topic])
    member.starts = {cut: 1, other: 10}
    member.poll_until(lambda: member.problems, "the problem")
    assert [(problem.kind, problem.key) for problem in member.problems] == [("out-of-range", cut)]
    member.read(10)
    assert {key for key, _ in member.records} == {other}

    member.source.resume({cut: 3})
    assert member.read(12)[10:] == _values(2, first=3)
    world.send(other, *_numbered(1, first=20))
    assert member.read(13)[12:] == [b"20"]


def test_other_partitions_are_neither_repeated_nor_woken_when_one_starts_anew(world, group):
    topic = world.topic(4)
    cut, paused, waiting, idle = (TopicPartition(topic, number) for number in range(4))
    for key in (cut, paused, waiting, idle):
        world.send(key, *_numbered(5))
    world.delete_before(cut, 3)
    member = Member(world, group, [topic])
    member.starts = {cut: 1, idle: 5}
    member.kept_waiting = {waiting}
    member.poll_until(lambda: member.problems and len(member.records) == 5, "the problem")
    member.source.pause([paused])
    world.send(paused, Given(b"5"))

    member.source.resume({cut: 3})
    assert member.read(7)[5:] == _values(2, first=3)
    world.send(idle, Given(b"sentinel"))
    assert member.read(8)[7:] == [b"sentinel"]
    member.source.resume({paused: 5})
    assert member.read(9)[8:] == [b"5"]
    member.source.start_at({waiting: 4})
    assert member.read(10)[9:] == [b"4"]


def test_a_missing_topic_keeps_no_other_from_being_read(world, group):
    key = TopicPartition(world.topic(), 0)
    world.send(key, *_numbered(1))
    member = Member(world, group, [key.topic, f"{key.topic}-missing"])
    assert member.read(1) == _values(1)
    if world.tells_missing_topics:
        member.poll_until(
            lambda: "unknown-topic" in [problem.kind for problem in member.problems], "the problem"
        )
