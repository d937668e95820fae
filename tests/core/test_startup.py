"""What is told before a group is joined, when topics are missing."""

from redrive.core.startup import explain_missing, find_missing
from redrive.core.topic_plan import wanted_topics
from redrive.core.topology import Naming, Role, name_topics

WANTED = wanted_topics(
    [
        name_topics("charge", "orders", [5000, 30_000], group="payments", naming=Naming()),
        name_topics("pay", "payouts", [], group="payments", naming=Naming()),
    ]
)
ALL = [topic.name for topic in WANTED]


def _told(existing):
    return explain_missing(find_missing(WANTED, existing), existing, target="service:app")


def test_nothing_is_missing_where_all_topics_are_there():
    assert not find_missing(WANTED, ALL)


def test_sources_and_own_topics_are_told_apart():
    missing = find_missing(
        WANTED,
        [name for name in ALL if name not in {"orders", "orders.retry.5s", "payouts.replay"}],
    )

    assert missing.sources == ("orders",)
    assert missing.own == (("orders.retry.5s", Role.TIER), ("payouts.replay", Role.REPLAY))


def test_missing_own_topics_come_by_one_command():
    assert _told([name for name in ALL if name not in {"orders.retry.5s", "orders.dlq"}]) == (
        "2 topics that redrive needs are missing: orders.retry.5s (tier), orders.dlq (dlq). "
        "Create them: redrive topics apply service:app"
    )
    assert _told([name for name in ALL if name != "orders.dlq"]) == (
        "1 topic that redrive needs is missing: orders.dlq (dlq). Create it: redrive topics apply service:app"
    )


def test_a_missing_source_is_its_producers_affair():
    assert _told([name for name in ALL if name != "payouts"]) == (
        "source topic 'payouts' doesn't exist in this cluster, or this user may not see it. Its producers "
        "usually create it; to create it with 4 partitions: redrive topics apply service:app --create-sources 4"
    )


def test_a_source_with_a_typing_error_names_the_topic_that_was_meant():
    told = _told([name for name in ALL if name != "payouts"] + ["payuots"])

    assert "There is a topic 'payuots': a typing error?" in told
