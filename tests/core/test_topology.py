"""What topics are called, what a name tells, and which names can't be."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from redrive.core.topology import (
    STYLES,
    ListenerTopics,
    Naming,
    ParsedName,
    Role,
    find_orphaned_tiers,
    name_problems,
    name_topics,
    naming_problems,
)
from redrive.core.units import MAX_DURATION_MS
from redrive.errors import TopologyError

PER_GROUP = Naming.of(retry="{topic}.{group}.retry.{delay}", dlq="{topic}.{group}.dlq")
REVERSIBLE = [
    *(Naming.of(style) for style in STYLES),
    PER_GROUP,
    Naming.of("dashed", retry="retry-{delay_ms}-{topic}", dlq="dlt-{topic}"),
    Naming.of(retry="{topic}_{index}_{delay}", dlq="{topic}_dead"),
]

# names as adversarial as a source may have: made of the words that templates are made of
words = st.sampled_from(
    ["orders", "retry", "dlq", "dlt", "state", "replay", "parked", "payments", "5s", "5000", "0"]
)
names = st.lists(st.tuples(words, st.sampled_from(".-_")), min_size=1, max_size=6).map(
    lambda parts: "".join(word + separator for word, separator in parts)[:-1]
)
delays = st.integers(1, MAX_DURATION_MS)
namings = st.sampled_from(REVERSIBLE)


class TestStyles:
    @pytest.mark.parametrize(
        ("style", "expected"),
        [
            (
                "dotted",
                [
                    "orders.retry.5s",
                    "orders.retry.1m30s",
                    "orders.dlq",
                    "orders.dlq.state",
                    "orders.replay",
                    "orders.parked",
                ],
            ),
            (
                "dashed",
                [
                    "orders-retry-5s",
                    "orders-retry-1m30s",
                    "orders-dlt",
                    "orders-dlt-state",
                    "orders-replay",
                    "orders-parked",
                ],
            ),
            (
                "spring",
                [
                    "orders-retry-5000",
                    "orders-retry-90000",
                    "orders-dlt",
                    "orders-dlt-state",
                    "orders-replay",
                    "orders-parked",
                ],
            ),
        ],
    )
    def test_names(self, style, expected):
        assert _all_names(Naming.of(style), "orders", [5_000, 90_000]) == expected

    def test_dotted_is_the_default(self):
        assert Naming.of() == Naming() == Naming.of("dotted")

    def test_templates_replace_single_names_of_a_style(self):
        naming = Naming.of("dashed", retry="{topic}.wait.{index}", parked="parked.{topic}")
        assert _all_names(naming, "orders", [5_000, 90_000]) == [
            "orders.wait.0",
            "orders.wait.1",
            "orders-dlt",
            "orders-dlt-state",
            "orders-replay",
            "parked.orders",
        ]

    def test_a_dead_letter_topic_called_by_a_prefix_has_its_state_topic_called_by_one_too(self):
        naming = Naming.of("dashed", dlq="dlt-{topic}")
        assert naming.state("dlt-orders") == "state-dlt-orders"
        assert naming.parse("state-dlt-orders", group="g") == ParsedName("orders", Role.STATE)

    def test_a_group_with_tiers_of_its_own_has_its_own_replay_and_parked_topics_too(self):
        assert _all_names(PER_GROUP, "orders", [5_000]) == [
            "orders.payments.retry.5s",
            "orders.payments.dlq",
            "orders.payments.dlq.state",
            "orders.payments.replay",
            "orders.payments.parked",
        ]


def _all_names(naming: Naming, topic: str, delays_ms: list[int]) -> list[str]:
    dlq = naming.dlq(topic, group="payments")
    return [
        *(naming.tier(topic, group="payments", delay_ms=d, index=i) for i, d in enumerate(delays_ms)),
        dlq,
        naming.state(dlq),
        naming.replay(topic, group="payments"),
        naming.parked(topic, group="payments"),
    ]


class TestParse:
    @given(namings, names, names, delays, st.integers(0, 50))
    def test_a_tier_s_name_tells_its_source_and_delay(self, naming, topic, group, delay_ms, index):
        name = naming.tier(topic, group=group, delay_ms=delay_ms, index=index)
        assert naming.parse(name, group=group) == ParsedName(topic, Role.TIER, delay_ms)

    @given(st.sampled_from([Naming.of(style) for style in STYLES] + [PER_GROUP]), names, names)
    def test_so_do_the_names_of_all_other_roles(self, naming, topic, group):
        dlq = naming.dlq(topic, group=group)
        read = [
            naming.parse(name, group=group)
            for name in (
                dlq,
                naming.state(dlq),
                naming.replay(topic, group=group),
                naming.parked(topic, group=group),
            )
        ]
        assert read == [ParsedName(topic, role) for role in (Role.DLQ, Role.STATE, Role.REPLAY, Role.PARKED)]

    @given(namings, st.lists(st.tuples(names, delays), min_size=2, max_size=2, unique=True), names)
    def test_no_two_tiers_share_a_name(self, naming, tiers, group):
        (topic_a, delay_a), (topic_b, delay_b) = tiers
        name_a = naming.tier(topic_a, group=group, delay_ms=delay_a, index=1)
        assert name_a != naming.tier(topic_b, group=group, delay_ms=delay_b, index=1)

    @given(st.sampled_from([Naming.of(style) for style in STYLES]), names, names, delays)
    def test_no_two_roles_share_a_name(self, naming, topic_a, topic_b, delay_ms):
        a, b = (set(_all_names(naming, topic, [delay_ms])) for topic in (topic_a, topic_b))
        assert len(a) == 5
        assert topic_a == topic_b or not a & b

    @given(namings, names)
    def test_a_name_can_be_one_thing_only(self, naming, name):
        assume(naming not in REVERSIBLE[4:])  # mixed prefixes and suffixes: a topic may be named to fit both
        assert len(list(naming.readings(name, group="g"))) <= 1

    @pytest.mark.parametrize(
        "name",
        [
            "orders",
            "orders.retry.60s",  # 1m is how we write it
            "orders.retry.0s",
            "orders.retry.999999999999d",
            "orders.retry.soon",
            "orders.retry.",
            ".retry.5s",
            "orders.retry.5s ",
            "orders.retry.٥s",
            "orders-dlt",
            "örders.dlq",
            "",
        ],
    )
    def test_other_names_tell_nothing(self, name):
        assert Naming().parse(name, group="payments") is None

    def test_another_group_s_tier_is_not_ours(self):
        assert PER_GROUP.parse("orders.invoices.retry.5s", group="payments") is None

    def test_a_name_by_index_tells_no_delay(self):
        naming = Naming.of(retry="{topic}.wait.{index}")
        assert naming.parse("orders.wait.2", group="payments") == ParsedName("orders", Role.TIER, None)

    def test_a_name_whose_two_delays_disagree_is_not_ours(self):
        naming = Naming.of(retry="{topic}.{delay}.{delay_ms}")
        assert naming.parse("orders.5s.5000", group="g") == ParsedName("orders", Role.TIER, 5000)
        assert naming.parse("orders.5s.6000", group="g") is None


class TestNamingProblems:
    @pytest.mark.parametrize("style", STYLES)
    def test_the_styles_have_none(self, style):
        assert naming_problems(style) == []

    @pytest.mark.parametrize(
        ("given_", "where", "what"),
        [
            ({"style": "camel"}, "style", "'camel' is none of dotted, dashed, spring"),
            ({"retry": "{topic}"}, "retry", "is the source's own name"),
            ({"dlq": "{topic}"}, "dlq", "is the source's own name"),
            ({"retry": "retry.{delay}"}, "retry", "lacks {topic}"),
            ({"dlq": "dead-letters"}, "dlq", "lacks {topic}"),
            ({"dlq": "{topic}.{delay}.dlq"}, "dlq", "has {delay}; it may hold {group}, {topic}"),
            ({"retry": "{topic}.{time}"}, "retry", "has {time}"),
            ({"retry": "{topic}.{}"}, "retry", "has {}"),
            ({"retry": "{topic.x}.{delay}"}, "retry", "has {topic.x}"),
            ({"retry": "{topic}.{delay:>9}"}, "retry", "formats a placeholder"),
            ({"retry": "{topic}.{delay!r}"}, "retry", "formats a placeholder"),
            ({"retry": "{topic}.{delay"}, "retry", "can't be read"),
            ({"retry": "{topic}.{delay}.{delay}"}, "retry", "has {delay} twice"),
            ({"retry": "{topic}{delay}"}, "retry", "put one of . _ - between {topic} and {delay}"),
            ({"retry": "{topic}retry{delay}"}, "retry", "put one of . _ - between {topic} and {delay}"),
            ({"retry": "{topic}/retry {delay}."}, "retry", "has ' ' '/'; topic names take"),
            ({"retry": "{topic}.{{x}}.{delay}"}, "retry", "has '{' '}'; topic names take"),
            ({"dlq": "{topic}.retry.5s"}, "dlq", "tier of 't' or dlq of 't'"),
            ({"dlq": "{topic}.dead", "replay": "{topic}.dead"}, "replay", "dlq of 't' or replay of 't'"),
            ({"dlq": "{topic}.state"}, "state", "dlq of 't.state' or state of 't'"),
        ],
    )
    def test_each_is_told_with_its_place(self, given_, where, what):
        problems = naming_problems(**given_)
        assert [found for found in problems if found[0] == where and what in found[1]] != []

    def test_all_are_told_at_once(self):
        found = naming_problems(retry="{topic}", dlq="x", replay="{topic}{group}")
        assert [where for where, _ in found] == ["retry", "dlq", "replay"]

    def test_a_naming_is_not_made_with_them(self):
        with pytest.raises(
            TopologyError, match=r"retry: '\{topic\}' is the source's own name.*; dlq: 'x' lacks"
        ):
            Naming.of(retry="{topic}", dlq="x")


def _listener(source: str = "orders", *delays_ms: int, name: str = "charge", naming: Naming | None = None):
    return name_topics(name, source, delays_ms, group="payments", naming=naming or Naming())


class TestNameTopics:
    def test_a_listener_with_a_ladder(self):
        assert _listener("orders", 5_000, 30_000) == ListenerTopics(
            listener="charge",
            source="orders",
            tiers=(("orders.retry.5s", 5_000), ("orders.retry.30s", 30_000)),
            dlq="orders.dlq",
            state="orders.dlq.state",
            replay="orders.retry.5s",
        )

    def test_without_tiers_replays_have_a_topic_of_their_own(self):
        topics = name_topics("pay", "payouts", (), group="payments", naming=Naming(), parks=True)
        assert list(topics.by_role()) == [
            (Role.SOURCE, "payouts"),
            (Role.DLQ, "payouts.dlq"),
            (Role.STATE, "payouts.dlq.state"),
            (Role.REPLAY, "payouts.replay"),
            (Role.PARKED, "payouts.parked"),
        ]


class TestNameProblems:
    def problems(
        self, *listeners: ListenerTopics, group: str = "payments", naming: Naming | None = None, existing=()
    ):
        return name_problems(listeners, group=group, naming=naming or Naming(), existing=existing)

    def test_an_ordinary_app_has_none(self):
        found = self.problems(
            _listener("orders", 5_000, 30_000),
            _listener("payouts", 60_000, name="pay"),
            existing=["orders", "orders.retry.5s", "other", "payouts_x"],
        )
        assert found == []

    def test_a_group_s_name_may_not_fit_into_a_topic_s(self):
        topics = name_topics("charge", "orders", [5_000], group="pay ments", naming=PER_GROUP)
        assert self.problems(topics, group="pay ments")[0] == (
            "topic 'orders.pay ments.retry.5s' (tier of listener 'charge'): Kafka refuses ' ', it takes letters, digits "
            "and . _ -; rename it (it comes from the group's name: take {group} out of the templates)"
        )

    def test_too_long(self):
        source = "o" * 240
        assert self.problems(_listener(source, 5_000)) == [
            (
                f"topic '{source}.dlq.state' (state of listener 'charge'): 250 characters, Kafka takes 249; "
                "give shorter templates"
            )
        ]

    @pytest.mark.parametrize("source", ["", ".", ".."])
    def test_no_name_at_all(self, source):
        assert any("no topic's name" in problem for problem in self.problems(_listener(source)))

    def test_names_that_differ_only_in_dot_and_underscore(self):
        found = self.problems(_listener("a.b"), _listener("a_b", name="other"))
        assert found[0] == (
            "topics 'a.b', 'a_b' differ only in . and _, which Kafka refuses because its metrics can't tell them apart "
            "(source of listener 'charge', source of listener 'other'): rename one, or give templates with -"
        )

    def test_also_with_topics_that_are_there_already(self):
        found = self.problems(_listener("orders", 5_000), existing=["orders_retry.5s", "x.y", "x_y"])
        assert len(found) == 1
        assert "'orders.retry.5s', 'orders_retry.5s'" in found[0]

    def test_a_ladder_with_one_topic_is_fine_with_one_delay_and_told_with_several(self):
        naming = Naming.of("spring", retry="{topic}-retry")
        assert self.problems(_listener("orders", 5_000, naming=naming), naming=naming) == []
        assert self.problems(_listener("orders", 5_000, 30_000, naming=naming), naming=naming) == [
            (
                "topic 'orders-retry' would be tier of listener 'charge' and tier of listener 'charge': put {delay}, "
                "{delay_ms} or {index} into the template for retry topics, or give the policy one delay"
            )
        ]

    def test_two_listeners_topics_of_one_name(self):
        found = self.problems(_listener("orders", 5_000), _listener("orders.retry.5s", name="again"))
        assert found == [
            (
                "topic 'orders.retry.5s' would be tier of listener 'charge' and source of listener 'again': "
                "rename a source, or give templates that keep them apart"
            )
        ]

    def test_a_source_named_like_a_tier_of_another_source(self):
        found = self.problems(_listener("orders", 5_000), _listener("orders.retry.7s", name="again"))
        assert found == [
            (
                "listener 'again' reads 'orders.retry.7s', which is named like the tier of 'orders' (listener 'charge'): "
                "its records would be taken for that listener's; rename the topic, or give templates that keep them apart"
            )
        ]

    def test_a_source_named_like_a_tier_of_a_topic_that_nobody_here_reads_is_fine(self):
        assert self.problems(_listener("orders.retry.7s")) == []


class TestOrphanedTiers:
    def test_tiers_that_the_policy_no_longer_has(self):
        existing = [
            "orders",
            "orders.retry.5s",
            "orders.retry.10m",
            "orders.retry.7s",
            "orders.retry.60s",
            "orders.dlq",
        ]
        existing += ["payouts.retry.9s", "orders.eu.retry.9s"]
        found = find_orphaned_tiers(existing, "orders", {"orders.retry.5s"}, Naming(), "payments")
        assert found == (("orders.retry.7s", 7_000), ("orders.retry.10m", 600_000))

    def test_a_delay_that_the_name_does_not_tell_is_0(self):
        naming = Naming.of(retry="{topic}.wait.{index}")
        found = find_orphaned_tiers(
            ["orders.wait.0", "orders.wait.1"], "orders", {"orders.wait.0"}, naming, "g"
        )
        assert found == (("orders.wait.1", 0),)
