"""
What a listener's topics are called, and what their names tell.

A naming is a set of templates. Within one group they are injective (no two of a listener's topics, and no topics of
two listeners, share a name) and reversible (a name tells topic, role and delay), so that tiers of an older policy are
found by their names alone. What Kafka or another listener makes of a name is checked here too, before anything connects.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from string import Formatter
from types import MappingProxyType
from typing import Self

from redrive.core.units import format_duration, parse_duration_ms
from redrive.errors import TopologyError

#: What Kafka allows; its replicas' directories are named `topic-partition`.
MAX_NAME_LENGTH = 249

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")


class Role(StrEnum):
    """What a topic is for."""

    SOURCE = "source"
    TIER = "tier"
    DLQ = "dlq"
    STATE = "state"
    REPLAY = "replay"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class ParsedName:
    """What a topic's name tells. `delay_ms`: of tiers only, and None where the template has no delay."""

    topic: str
    role: Role
    delay_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Templates:
    retry: str
    dlq: str
    replay: str
    parked: str


STYLES = MappingProxyType(
    {
        "dotted": _Templates("{topic}.retry.{delay}", "{topic}.dlq", "{topic}.replay", "{topic}.parked"),
        "dashed": _Templates("{topic}-retry-{delay}", "{topic}-dlt", "{topic}-replay", "{topic}-parked"),
        "spring": _Templates("{topic}-retry-{delay_ms}", "{topic}-dlt", "{topic}-replay", "{topic}-parked"),
    }
)

_DELAY_FIELDS = {"delay": "[0-9a-z]+", "delay_ms": "[1-9][0-9]*", "index": "0|[1-9][0-9]*"}
_TOPIC_FIELDS = {"topic": "[a-zA-Z0-9._-]+"}
_SEPARATORS = "._-"


@dataclass(frozen=True, slots=True)
class Naming:
    """
    The templates of an app's topics, as `Naming.of` checked them; the default is the style `dotted`.

    | style | tier | dead letters | their state | replay | parked |
    |---|---|---|---|---|---|
    | `dotted` | `orders.retry.5s` | `orders.dlq` | `orders.dlq.state` | `orders.replay` | `orders.parked` |
    | `dashed` | `orders-retry-5s` | `orders-dlt` | `orders-dlt-state` | `orders-replay` | `orders-parked` |
    | `spring` | `orders-retry-5000` | `orders-dlt` | `orders-dlt-state` | `orders-replay` | `orders-parked` |

    `spring` are the names that Spring Kafka gives by default, for a service that is moved over.
    """

    retry_template: str = STYLES["dotted"].retry
    dlq_template: str = STYLES["dotted"].dlq
    replay_template: str = STYLES["dotted"].replay
    parked_template: str = STYLES["dotted"].parked

    @classmethod
    def of(
        cls,
        style: str = "dotted",
        *,
        retry: str | None = None,
        dlq: str | None = None,
        replay: str | None = None,
        parked: str | None = None,
    ) -> Self:
        """
        Gives the naming of a style, with single templates replaced.

        Templates hold `{topic}` and may hold `{group}`; that of tiers also `{delay}` (`5s`), `{delay_ms}` (`5000`) or
        `{index}` (from 0): at least one of the three where a ladder has several tiers. With `{group}` in `retry`, groups on one source have tiers of
        their own, and so, unless given, have their replay and parked topics. A state topic is called after its
        dead-letter topic.

        Raises TopologyError with all that `naming_problems` finds.
        """
        problems = naming_problems(style, retry=retry, dlq=dlq, replay=replay, parked=parked)
        if problems:
            raise TopologyError("; ".join(f"{where}: {what}" for where, what in problems))
        return cls(*_chosen(style, retry, dlq, replay, parked).values())

    def tier(self, topic: str, *, group: str, delay_ms: int, index: int) -> str:
        """The retry topic of one delay; `index` is its place on the ladder, from 0."""
        delay = format_duration(delay_ms)
        return self.retry_template.format(
            topic=topic, group=group, delay=delay, delay_ms=delay_ms, index=index
        )

    def dlq(self, topic: str, *, group: str) -> str:
        """The dead-letter topic."""
        return self.dlq_template.format(topic=topic, group=group)

    def state(self, dlq: str) -> str:
        """The compacted topic with the states of the letters in the dead-letter topic `dlq`."""
        before, after = self._state_affixes
        return f"{before}{dlq}{after}"

    def replay(self, topic: str, *, group: str) -> str:
        """The topic by which dead letters come back to a listener without tiers."""
        return self.replay_template.format(topic=topic, group=group)

    def parked(self, topic: str, *, group: str) -> str:
        """The topic for records that wait behind a failing one of their key when memory is full."""
        return self.parked_template.format(topic=topic, group=group)

    def parse(self, name: str, *, group: str) -> ParsedName | None:
        """Gives what `name` tells, or None when it is no name that this naming gives for `group`."""
        return next(self.readings(name, group=group), None)

    @property
    def _state_affixes(self) -> tuple[str, str]:
        """
        What makes a state topic's name of its dead-letter topic's: `orders.dlq.state`, `orders-dlt-state`.

        Where the dead-letter topic's name ends with the source's (`dlq.orders`), it stands in front (`state.dlq.orders`):
        `dlq.orders.state` would be the dead-letter topic of a source `orders.state`.
        """
        separator = next(
            (char for char in self.dlq_template.replace("{topic}", "") if char in _SEPARATORS), "."
        )
        return (f"state{separator}", "") if self.dlq_template.endswith("}") else ("", f"{separator}state")

    def readings(self, name: str, *, group: str) -> Iterator[ParsedName]:
        """Gives all that `name` could be; for a naming without problems that is one thing at most."""
        if tier := _read(self.retry_template, group, name):
            yield ParsedName(tier[0], Role.TIER, tier[1])
        for role, template in (
            (Role.DLQ, self.dlq_template),
            (Role.REPLAY, self.replay_template),
            (Role.PARKED, self.parked_template),
        ):
            if found := _read(template, group, name):
                yield ParsedName(found[0], role)
        before, after = self._state_affixes
        dlq = name.removeprefix(before).removesuffix(after)
        if dlq != name and (found := _read(self.dlq_template, group, dlq)):
            yield ParsedName(found[0], Role.STATE)


def naming_problems(
    style: str = "dotted",
    *,
    retry: str | None = None,
    dlq: str | None = None,
    replay: str | None = None,
    parked: str | None = None,
) -> list[tuple[str, str]]:
    """Gives what is wrong with what `Naming.of` would be given: pairs of the argument's name and how to mend it."""
    if style not in STYLES:
        return [
            (
                "style",
                f"{style!r} is none of {', '.join(STYLES)}; for other names keep one and give templates",
            )
        ]
    chosen = _chosen(style, retry, dlq, replay, parked)
    problems = [
        (where, what) for where, template in chosen.items() for what in _template_problems(where, template)
    ]
    return problems or _overlaps(Naming(*chosen.values()))


def _chosen(
    style: str, retry: str | None, dlq: str | None, replay: str | None, parked: str | None
) -> dict[str, str]:
    """All templates by argument, in the order of `Naming`'s fields."""
    base = STYLES[style]
    retry = retry or base.retry

    def apart(template: str) -> str:
        # a group that has its tiers to itself must not share the topics that do a tier's work without a ladder
        separator = template[len("{topic}")]
        return (
            template.replace("{topic}", f"{{topic}}{separator}{{group}}") if "{group}" in retry else template
        )

    return {
        "retry": retry,
        "dlq": dlq or base.dlq,
        "replay": replay or apart(base.replay),
        "parked": parked or apart(base.parked),
    }


def _template_problems(where: str, template: str) -> Iterator[str]:
    try:
        parts = [
            (literal, name, spec, conversion)
            for literal, name, spec, conversion in Formatter().parse(template)
        ]
    except ValueError as error:
        yield f"{template!r} can't be read ({error}); write placeholders as {{topic}}"
        return
    allowed = {"topic", "group", *(_DELAY_FIELDS if where == "retry" else ())}
    names = [name for _, name, _, _ in parts if name is not None]
    for name in sorted(set(names) - allowed):
        yield f"{template!r} has {{{name}}}; it may hold {', '.join(f'{{{each}}}' for each in sorted(allowed))}"
    if any(spec or conversion for _, _, spec, conversion in parts):
        yield f"{template!r} formats a placeholder; write it bare"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{template!r} has {{{name}}} twice; once tells as much"
    if "topic" not in names:
        yield f"{template!r} lacks {{topic}}: the topics of two sources would be one; put it in"
    if template == "{topic}":
        yield f"{template!r} is the source's own name; add something to it"
    literals = [literal for literal, _, _, _ in parts]
    for earlier, later, literal in zip(names, names[1:], literals[1:], strict=False):
        if not set(literal) & set(_SEPARATORS):
            yield (
                f"{template!r} can't be read back: put one of . _ - between {{{earlier}}} and {{{later}}}, "
                "else topic 'a' with delay '15s' may look like topic 'a1' with '5s'"
            )
    if bad := sorted(set(_ILLEGAL.findall("".join(literals)))):
        yield f"{template!r} has {' '.join(map(repr, bad))}; topic names take letters, digits and . _ -"


def _overlaps(naming: Naming) -> list[tuple[str, str]]:
    """Templates that are fine each by itself but give one name for two roles."""
    names = {
        "retry": naming.tier("t", group="g", delay_ms=5000, index=5),
        "dlq": naming.dlq("t", group="g"),
        "replay": naming.replay("t", group="g"),
        "parked": naming.parked("t", group="g"),
        "state": naming.state(naming.dlq("t", group="g")),
    }
    problems: list[tuple[str, str]] = []
    for where, name in names.items():
        readings = list(naming.readings(name, group="g"))
        if len(readings) > 1:
            roles = " or ".join(f"{reading.role} of {reading.topic!r}" for reading in readings)
            problems.append((where, f"the name {name!r} could be {roles}; make the templates differ more"))
    return problems


@lru_cache(maxsize=256)
def _pattern(template: str, group: str) -> re.Pattern[str]:
    fields = _TOPIC_FIELDS | _DELAY_FIELDS
    parts: list[str] = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(re.escape(literal))
        if name == "group":
            parts.append(re.escape(group))
        elif name is not None:
            parts.append(f"(?P<{name}>{fields[name]})")
    return re.compile("".join(parts))


def _read(template: str, group: str, name: str) -> tuple[str, int | None] | None:
    matched = _pattern(template, group).fullmatch(name)
    if matched is None:
        return None
    found = matched.groupdict()
    delays: set[int] = set()
    if "delay_ms" in found:
        delays.add(int(found["delay_ms"]))
    if "delay" in found:
        try:
            delay_ms = parse_duration_ms(found["delay"])
        except ValueError:
            return None
        if format_duration(delay_ms) != found["delay"]:
            return None  # "60s" is no name of ours: we write 1m, and one delay must have one name
        delays.add(delay_ms)
    if len(delays) > 1:
        return None
    return found["topic"], next(iter(delays), None)


@dataclass(frozen=True, slots=True)
class ListenerTopics:
    """
    All topics of one listener on one source. `tiers`: name and delay in ms, in the ladder's order.

    `replay` is where dead letters come back to the group: the first tier, or a topic of its own without tiers.
    `parked` is None where nothing is parked.
    """

    listener: str
    source: str
    tiers: tuple[tuple[str, int], ...]
    dlq: str
    state: str
    replay: str
    parked: str | None = None

    def by_role(self) -> Iterator[tuple[Role, str]]:
        """Each topic once, with its role."""
        yield Role.SOURCE, self.source
        for name, _ in self.tiers:
            yield Role.TIER, name
        yield Role.DLQ, self.dlq
        yield Role.STATE, self.state
        if not self.tiers:
            yield Role.REPLAY, self.replay
        if self.parked is not None:
            yield Role.PARKED, self.parked


def name_topics(
    listener: str, source: str, delays_ms: Sequence[int], *, group: str, naming: Naming, parks: bool = False
) -> ListenerTopics:
    """Gives a listener's topics. `delays_ms`: its tiers, none for a blocking policy; `parks`: whether it may park."""
    tiers = tuple(
        (naming.tier(source, group=group, delay_ms=delay_ms, index=index), delay_ms)
        for index, delay_ms in enumerate(delays_ms)
    )
    dlq = naming.dlq(source, group=group)
    return ListenerTopics(
        listener,
        source,
        tiers,
        dlq,
        naming.state(dlq),
        tiers[0][0] if tiers else naming.replay(source, group=group),
        naming.parked(source, group=group) if parks else None,
    )


def name_problems(
    listeners: Iterable[ListenerTopics], *, group: str, naming: Naming, existing: Collection[str] = ()
) -> list[str]:
    """
    Gives all that is wrong with the topic names of an app: where, what, and how to mend it.

    Looked for: names that Kafka refuses; two topics of one name; names that Kafka takes for the same in its metrics
    (`a.b`, `a_b`), also among the `existing` topics of the cluster; a source that is named like a tier or dead-letter
    topic of another source here, whose records would be taken for that source's retries.
    """
    listeners = list(listeners)
    users: defaultdict[str, list[str]] = defaultdict(list)
    for topics in listeners:
        for role, name in topics.by_role():
            users[name].append(f"{role} of listener {topics.listener!r}")
    problems = [
        f"topic {name!r} ({', '.join(of)}): {what}"
        for name, of in users.items()
        for what in _illegal(name, group)
    ]
    problems += [
        f"topic {name!r} would be {' and '.join(of)}: {_apart(of)}"
        for name, of in users.items()
        if len(of) > 1
    ]
    problems += _metric_collisions(users, existing)
    problems += _disguised_sources(listeners, group, naming)
    return problems


def _apart(users: list[str]) -> str:
    if len(set(users)) == 1:  # tiers of one ladder, by a template without a delay
        return "put {delay}, {delay_ms} or {index} into the template for retry topics, or give the policy one delay"
    return "rename a source, or give templates that keep them apart"


def _illegal(name: str, group: str) -> Iterator[str]:
    if bad := sorted(set(_ILLEGAL.findall(name))):
        of_group = (
            " (it comes from the group's name: take {group} out of the templates)"
            if set(bad) & set(group)
            else ""
        )
        yield f"Kafka refuses {' '.join(map(repr, bad))}, it takes letters, digits and . _ -; rename it{of_group}"
    if len(name) > MAX_NAME_LENGTH:
        yield f"{len(name)} characters, Kafka takes {MAX_NAME_LENGTH}; give shorter templates"
    if name in {"", ".", ".."}:
        yield "that is no topic's name; give one"


def _metric_collisions(users: defaultdict[str, list[str]], existing: Collection[str]) -> Iterator[str]:
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for name in (*users, *existing):
        alike[name.replace(".", "_")].add(name)
    for names in alike.values():
        ours = sorted(names & users.keys())
        if len(names) > 1 and ours:
            yield (
                f"topics {', '.join(map(repr, sorted(names)))} differ only in . and _, which Kafka refuses because its "
                f"metrics can't tell them apart ({', '.join(of for name in ours for of in users[name])}): rename one, "
                "or give templates with -"
            )


def _disguised_sources(listeners: Sequence[ListenerTopics], group: str, naming: Naming) -> Iterator[str]:
    sources = {topics.source: topics.listener for topics in listeners}
    taken = {name for topics in listeners for role, name in topics.by_role() if role is not Role.SOURCE}
    for source, listener in sources.items():
        parsed = naming.parse(source, group=group)
        if (
            parsed is None or parsed.topic not in sources or source in taken
        ):  # taken: told already, as one name twice
            continue
        yield (
            f"listener {listener!r} reads {source!r}, which is named like the {parsed.role} of "
            f"{parsed.topic!r} (listener {sources[parsed.topic]!r}): its records would be taken for that listener's; "
            "rename the topic, or give templates that keep them apart"
        )


def find_orphaned_tiers(
    existing_topics: Iterable[str], source: str, wanted: Collection[str], naming: Naming, group: str
) -> tuple[tuple[str, int], ...]:
    """
    Gives tiers of `source` that an older policy left in the cluster: name and delay in ms, shortest first.

    `wanted`: names of the tiers that the policy has now. A delay of 0 means that the name doesn't tell it (templates
    without a delay); the due time is in the records' headers anyway.
    """
    found: list[tuple[str, int]] = []
    for name in existing_topics:
        parsed = naming.parse(name, group=group)
        if parsed and parsed.role is Role.TIER and parsed.topic == source and name not in wanted:
            found.append((name, parsed.delay_ms or 0))
    return tuple(sorted(found, key=lambda tier: (tier[1], tier[0])))
