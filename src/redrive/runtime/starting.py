"""Where the partitions that are assigned to a process begin: by commits, by the ends of logs, and by what a crash left."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from redrive.core.commands import Report
from redrive.core.engine import Engine
from redrive.core.record import TopicPartition
from redrive.core.starts import Start, start_at_committed
from redrive.errors import PortError
from redrive.runtime.ports import Cluster, Source


class Starter:
    """
    Asks the group's coordinator, and the leaders of partitions, for the pump, on its thread. `at`: each source topic's
    `start=`. `identity`: as the engine's.
    """

    def __init__(
        self,
        engine: Engine,
        source: Source,
        cluster: Cluster,
        at: Mapping[str, str],
        identity: Callable[[str], str],
        report: Callable[[Report], None],
    ) -> None:
        self._engine, self._source, self._cluster = engine, source, cluster
        self._at, self._identity, self._report = at, identity, report

    def starts_of(self, keys: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, Start]:
        """Gives the starts of those partitions of which they can be told now; what keeps the others from it is reported."""
        committed = self._source.committed(keys, timeout_s)
        starts: dict[TopicPartition, Start] = {}
        for key, at in committed.items():
            if at.offset is None:
                continue
            starts[key] = start_at_committed(at.offset, at.metadata, self._identity(key.topic))
        starts.update(self._suspected(starts))
        new = [key for key, at in committed.items() if at.offset is None]
        latest = [key for key in new if self._at.get(key.topic) == "latest"]
        try:
            self._learn_partitions(keys)
            starts.update((key, Start(None)) for key in new if key not in latest)
            starts.update(self._starts_at_end(latest, timeout_s))
            starts = self._with_ends(starts)
        except PortError as error:
            self._report(Report("start-unknown", {"error": str(error)}))
            starts = {
                key: start for key, start in starts.items() if key.topic not in self._engine.parked_topics
            }
        return starts

    def _with_ends(self, starts: dict[TopicPartition, Start]) -> dict[TopicPartition, Start]:
        """Of parked partitions, which must be read to their end before their source starts: where that is."""
        parked = [key for key in starts if key.topic in self._engine.parked_topics]
        if not parked:
            return starts
        ends, begins = (self._cluster.offsets(parked, which) for which in ("latest", "earliest"))
        missing = {key for key in parked if key not in ends}
        found = {key: start for key, start in starts.items() if key not in missing}
        for key in ends:
            begins_at = max(starts[key].offset or 0, begins.get(key, 0))
            found[key] = msgspec.structs.replace(starts[key], end=ends[key] if ends[key] > begins_at else 0)
        return found

    def _suspected(self, starts: Mapping[TopicPartition, Start]) -> dict[TopicPartition, Start]:
        """
        Those whose owner before ended uncleanly, with where they end now: beyond that it has run nothing. Where nobody tells
        it the guard does without.
        """
        ours = self._engine.caution.guard.nonce
        unclean = [key for key, start in starts.items() if start.ledger.nonce not in ("", ours)]
        if not unclean:
            return {}
        try:
            ends = self._cluster.offsets(unclean, "latest")
        except PortError:
            return {}
        return {key: msgspec.structs.replace(starts[key], ran_to=end) for key, end in ends.items()}

    def _learn_partitions(self, keys: Sequence[TopicPartition]) -> None:
        """A topic may have grown since the start: where a retry goes depends on the numbers of both."""
        if any(key.partition >= self._engine.partitions.get(key.topic, 0) for key in keys):
            found = self._cluster.describe()
            self._engine.partitions.update((name, topic.partitions) for name, topic in found.items())

    def _starts_at_end(self, keys: Sequence[TopicPartition], timeout_s: float) -> dict[TopicPartition, Start]:
        """
        Where partitions begin that the group has never committed, for `start="latest"`; those that nobody can tell yet
        are left out.

        At their end only in topics of which nothing is committed: a partition that was added later holds records that
        nobody has read.
        """
        at_end = {topic for topic in {key.topic for key in keys} if not self._was_committed(topic, timeout_s)}
        ends = self._cluster.offsets([key for key in keys if key.topic in at_end], "latest")
        starts = {key: Start(None) for key in keys if key.topic not in at_end}
        return starts | {key: Start(end) for key, end in ends.items()}

    def _was_committed(self, topic: str, timeout_s: float) -> bool:
        keys = [TopicPartition(topic, number) for number in range(self._engine.partitions.get(topic, 0))]
        answers = self._source.committed(keys, timeout_s)
        if any(at.offset is not None for at in answers.values()):
            return True
        if len(answers) < len(keys):
            raise PortError(f"{topic}: the group's committed offsets are not told yet", retriable=True)
        return False
