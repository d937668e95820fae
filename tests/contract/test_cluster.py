"""What questions to a cluster and changes of its topics must do, in memory and on a real broker."""

import pytest

from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.ports import Committed, NewTopic
from tests.contract.worlds import Member
from tests.plain_kafka import Given, unique
from tests.waiting import until


def _new(name: str, partitions: int = 1, **configs: str) -> NewTopic:
    return NewTopic(name, partitions, 1, configs)


def test_topics_that_exist_are_described_and_asking_makes_none(world):
    topic, missing = world.topic(3), unique("missing")
    for _ in range(2):
        assert set(world.cluster.describe([topic, missing])) == {topic}
    told = world.cluster.describe([topic])[topic]
    assert (told.name, told.partitions, told.replication, told.configs) == (topic, 3, 1, None)
    assert told.topic_id
    assert topic in world.cluster.describe()


def test_configs_are_told_when_asked_for(world):
    topic = world.topic(**{"retention.ms": "12345"})
    configs = world.cluster.describe([topic], configs=True)[topic].configs
    assert {name: configs[name] for name in ("retention.ms", "cleanup.policy", "max.message.bytes")} == {
        "retention.ms": "12345",
        "cleanup.policy": "delete",
        "max.message.bytes": "1048588",
    }


def test_topics_are_created_with_their_configs_and_existing_ones_left_alone(world):
    existing, new = world.topic(2), unique("new")
    failed = world.cluster.create([_new(existing, 5), _new(new, 3, **{"retention.ms": "1000"})])
    assert failed == {}
    told = until(
        lambda: (
            (seen := world.cluster.describe([existing, new], configs=True)).keys() == {existing, new} and seen
        ),
        "the topics",
    )
    assert (told[existing].partitions, told[new].partitions) == (2, 3)
    assert told[new].configs["retention.ms"] == "1000"


@pytest.mark.parametrize(
    "bad",
    [
        NewTopic("no/name", 1, 1, {}),
        NewTopic("t-no-partitions", 0, 1, {}),
        NewTopic("t-replicated", 1, 9, {}),
    ],
)
def test_a_topic_that_cannot_be_is_told_and_the_others_are_created(world, bad):
    good = unique("good")
    failed = world.cluster.create([bad, _new(good)])
    assert list(failed) == [bad.name]
    assert failed[bad.name]
    until(lambda: good in world.cluster.describe([good]), "the good one")


def test_a_name_that_differs_in_a_dot_only_collides(world):
    name = unique("a")
    assert world.cluster.create([_new(f"{name}.b")]) == {}
    assert list(world.cluster.create([_new(f"{name}_b")])) == [f"{name}_b"]


def test_a_topic_grows_but_does_not_shrink(world):
    topic = world.topic(2)
    world.cluster.grow(topic, 4)
    until(lambda: world.cluster.describe([topic])[topic].partitions == 4, "four partitions")
    with pytest.raises(PortError):
        world.cluster.grow(topic, 3)
    with pytest.raises(PortError):
        world.cluster.grow(unique("missing"), 3)


def test_offsets_are_told_of_partitions_that_exist(world):
    topic = world.topic(2)
    full, empty, missing = TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(unique("no"), 0)
    world.send(full, *[Given()] * 5)
    world.delete_before(full, 2)
    keys = [full, empty, missing, TopicPartition(topic, 7)]
    assert world.cluster.offsets(keys, "earliest") == {full: 2, empty: 0}
    assert world.cluster.offsets(keys, "latest") == {full: 5, empty: 0}
    assert world.cluster.offsets([], "latest") == {}


def test_what_a_group_has_committed_is_told_to_others(world, group):
    topic = world.topic(2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert world.cluster.committed(unique("nobody"), [one]).get(one, Committed(None)).offset is None
    member = Member(world, group, [topic])
    member.own({one, other})
    assert member.source.commit_now({one: (0, "text")})
    told = world.cluster.committed(group, [one, other])
    assert (told[one].offset, told[one].metadata.rstrip("\0")) == (0, "text")
    assert told.get(other, Committed(None)).offset is None
    unread = world.topic()
    assert world.cluster.readers([topic, unread]) == {topic: [group], unread: []}


def test_offsets_are_committed_for_a_group_without_members_and_its_first_member_begins_there(world, group):
    topic = world.topic(2)
    one, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.send(one, *[Given(b"%d" % number) for number in range(4)])
    world.cluster.commit(group, {one: 3, other: 0})
    assert {key: at.offset for key, at in world.cluster.committed(group, [one, other]).items()} == {
        one: 3,
        other: 0,
    }

    member = Member(world, group, [topic])
    member.own({one, other})
    assert member.read(1) == [b"3"]
    with pytest.raises(PortError):
        world.cluster.commit(group, {one: 0})
    assert world.cluster.committed(group, [one])[one].offset == 3


def test_committing_for_a_topic_that_does_not_exist_is_refused(world, group):
    with pytest.raises(PortError):
        world.cluster.commit(group, {TopicPartition(unique("missing"), 0): 1})


def test_a_cluster_tells_its_name(world):
    assert world.cluster.cluster_id()
