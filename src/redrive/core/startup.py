"""What must be there before a group is joined, and what its absence means."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from redrive.core.topic_plan import WantedTopic
from redrive.core.topology import Role


@dataclass(frozen=True, slots=True)
class MissingTopics:
    """Topics that an app needs and the cluster doesn't have: `sources`, and redrive's `own` with their roles."""

    sources: tuple[str, ...]
    own: tuple[tuple[str, Role], ...]

    def __bool__(self) -> bool:
        return bool(self.sources or self.own)


def find_missing(wanted: Iterable[WantedTopic], existing: Collection[str]) -> MissingTopics:
    """Gives which of the `wanted` topics are not among the `existing` ones, in their order."""
    missing = [topic for topic in wanted if topic.name not in existing]
    return MissingTopics(
        tuple(topic.name for topic in missing if topic.role is Role.SOURCE),
        tuple((topic.name, topic.role) for topic in missing if topic.role is not Role.SOURCE),
    )


def explain_missing(missing: MissingTopics, existing: Collection[str], *, target: str) -> str:
    """
    Gives what to tell the operator: sources are their producers' affair, the others come by one command.

    `target`: the app as commands take it, `service:app`.
    """
    return "\n".join([*_sources(missing, existing, target), *_own(missing, target)])


def _sources(missing: MissingTopics, existing: Collection[str], target: str) -> Iterator[str]:
    for source in missing.sources:
        others = sorted(name for name in existing if source not in name)  # not its own dead letters
        alike = get_close_matches(source, others, n=1, cutoff=0.8)
        guess = f" There is a topic {alike[0]!r}: a typing error?" if alike else ""
        yield (
            f"source topic {source!r} doesn't exist in this cluster, or this user may not see it.{guess} Its producers "
            "usually create it; to create it with 4 partitions: "
            f"redrive topics apply {target} --create-sources 4"
        )


def _own(missing: MissingTopics, target: str) -> Iterator[str]:
    if not missing.own:
        return
    shown = ", ".join(f"{name} ({role})" for name, role in missing.own)
    how_many = (
        "1 topic that redrive needs is"
        if len(missing.own) == 1
        else f"{len(missing.own)} topics that redrive needs are"
    )
    yield f"{how_many} missing: {shown}. Create {'it' if len(missing.own) == 1 else 'them'}: redrive topics apply {target}"
