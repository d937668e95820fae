"""
The group in which an app's dead letters are handled, beside the app.

It has an engine and a pump of its own, so that nothing it does holds up a listener: whatever ends it is told, and it is
begun again after a pause, for as long as the app runs.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from redrive.core.commands import Produce, Refusal, Report
from redrive.core.plan import GroupPlan
from redrive.core.record import TopicPartition
from redrive.errors import PortError
from redrive.runtime.declaration import ResolvedApp
from redrive.runtime.planning import letter_group
from redrive.runtime.ports import Cluster
from redrive.runtime.service import Service

MOST_PAUSE_S = 60.0
#: The app's start waits this long to learn where the letters begin, and no longer: its listeners matter more.
BEGIN_MOST_S = 10.0


def letter_app(app: ResolvedApp) -> ResolvedApp:
    """Gives the handlers of an app's dead letters as an app of their own. Its resources are those of the app."""
    return ResolvedApp(group=letter_group(app.group), listeners=app.on_dead_letter)


def begin_at_end(cluster: Cluster, app: ResolvedApp, plan: GroupPlan, partitions: Mapping[str, int]) -> None:
    """
    Let a group that never ran pass by the letters that are there: its handlers get those that come from now on.

    Their ends are committed before the app's first record is handled, so that no letter falls between this and the
    group's first assignment. A dead-letter topic of which anything is committed is left alone. `app`: the letters' own.
    Raises PortError, also where another process has begun at this very moment: ask again.
    """
    for listener, its in zip(app.listeners, plan.listeners, strict=True):
        keys = [TopicPartition(its.source, number) for number in range(partitions.get(its.source, 0))]
        if listener.start == "earliest" or _was_committed(cluster, plan.group, keys):
            continue
        cluster.commit(plan.group, cluster.offsets(keys, "latest"))


def _was_committed(cluster: Cluster, group: str, keys: list[TopicPartition]) -> bool:
    answers = cluster.committed(group, keys)
    if any(at.offset is not None for at in answers.values()):
        return True
    if len(answers) < len(keys):
        raise PortError(f"what {group} has committed is not told yet", retriable=True)
    return False


class NothingToWrite:
    """A sink for a group without successors: its pump asks it, and never gives it anything."""

    problem = ""

    def produce(self, produce: Produce) -> None:
        raise RuntimeError(
            f"a handler of dead letters writes nothing, but {produce.topic} was to be written to"
        )

    def answers(self) -> list[tuple[Any, Refusal | None]]:
        return []

    def close(self, timeout_s: float) -> None:
        pass


class LetterService:
    """
    Runs the letters' group from `start` to `stop`, beside the app. `begin`: where a group begins that never ran, asked
    in a thread; `make`: its pump and handlers, made anew each time. `report` never raises. `first_pause_s`: before it is
    begun again; doubled each time until a group could be joined, up to a minute.
    """

    def __init__(
        self,
        group: str,
        *,
        begin: Callable[[], None],
        make: Callable[[], Service],
        report: Callable[[Report], None],
        first_pause_s: float = 1.0,
    ) -> None:
        self._group = group
        self._begin, self._make, self._report = begin, make, report
        self._service: Service | None = None
        self._first_pause_s = self._pause_s = first_pause_s
        self._has_begun = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def service(self) -> Service | None:
        """The one at work, or the last one; None before the first."""
        return self._service

    async def start(self, resources: Any) -> None:
        """Begin, on the running loop; returns when it is known where, or takes too long."""
        self._task = asyncio.get_running_loop().create_task(self._live(resources), name="redrive-letters")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_begun.wait(), BEGIN_MOST_S)

    async def stop(self) -> None:
        """Let handlers end the letter they are at, commit, leave the group."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _live(self, resources: Any) -> None:
        while True:
            error = await self._live_once(resources)
            told = str(error) or type(error).__name__
            fields = {"group": self._group, "error": told, "wait_s": self._pause_s}
            self._report(Report("letters-unhandled", fields))
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=self._pause_s)
            self._pause_s = min(MOST_PAUSE_S, 2 * self._pause_s)

    async def _live_once(self, resources: Any) -> Exception:
        """Until it ends by itself. Gives what ended it."""
        try:
            try:
                await asyncio.to_thread(self._begin)
            finally:
                self._has_begun.set()
            service = self._service = self._make()
            service.start(resources)
            try:
                await service.stopped()
            finally:
                await service.stop()
                if service.pump.has_joined:
                    self._pause_s = self._first_pause_s
        except Exception as error:
            return error
        return RuntimeError("it ended by itself")
