"""Where dead letters are asked for, by whichever surface."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from redrive.core.topology import Role
from redrive.deadletters.replay import Desk
from redrive.deadletters.selection import Plan, Selection
from redrive.deadletters.states import StateBook
from redrive.deadletters.topics import Dlq, Names, find_dlqs, open_dlqs


class Counter(NamedTuple):
    """
    Ports, names, and the groups whose letters are meant where none is named; no groups: everybody's.

    `own_topics`: the app's dead-letter topics, where letters that name no group are meant too; those elsewhere are others'.
    """

    desk: Desk
    names: Names
    groups: frozenset[str]
    own_topics: frozenset[str] = frozenset()

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

    def without_forgeries(self, plan: Plan) -> Plan:
        """
        The plan without letters whose headers name a dead-letter or a state topic as their target.

        Nobody handles what is in the one; a copy in the other, with a key and a value that fit, would be a state.
        """
        forbidden = {Role.DLQ, Role.STATE}
        entries = tuple(entry for entry in plan.entries if self.names.role(entry.target) not in forbidden)
        left = len(plan.entries) - len(entries)
        if not left:
            return plan
        left_out = {**plan.left_out, "would go to a dead-letter or state topic": left}
        return msgspec.structs.replace(plan, entries=entries, left_out=left_out)

    def narrowed(self, selection: Selection, topics: Sequence[str] | None) -> Selection:
        """The selection, of our letters alone; of a topic, a group or a letter that is named, everybody's."""
        if topics or selection.groups or selection.names:
            return selection
        return msgspec.structs.replace(selection, groups=self.groups, own_topics=self.own_topics)
