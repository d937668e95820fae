"""Where dead letters are asked for, by whichever surface."""

from collections.abc import Sequence
from typing import NamedTuple

from redrive.deadletters.replay import Desk
from redrive.deadletters.states import StateBook
from redrive.deadletters.topics import Dlq, Names, find_dlqs, open_dlqs


class Counter(NamedTuple):
    """Ports, names, and the groups whose letters are meant where none is named; no groups: everybody's."""

    desk: Desk
    names: Names
    groups: frozenset[str]

    def books(self, topics: Sequence[str] | None) -> list[StateBook]:
        """The states of these topics, or of all, read. Raises PortError; TopologyError as `open_dlqs`."""
        cluster = self.desk.cluster
        return self.read(open_dlqs(cluster, topics, self.names) if topics else find_dlqs(cluster, self.names))

    def read(self, dlqs: Sequence[Dlq]) -> list[StateBook]:
        """The states of these topics, read. Raises PortError."""
        books = [StateBook(self.desk.cluster, self.desk.log, self.desk.clock, dlq) for dlq in dlqs]
        for book in books:
            book.read()
        return books

    def groups_of(self, topics: Sequence[str] | None) -> frozenset[str]:
        """Whose letters are meant: of a topic that is named, everybody's."""
        return frozenset() if topics else self.groups
