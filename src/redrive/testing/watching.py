"""Apps whose handlers' runs are noted."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from redrive.runtime.declaration import Listener, ResolvedApp

#: Is given the listener's name, the value, and the record: a letter for handlers of dead letters.
Began = Callable[[str, Any, Any], None]
#: The same, and what the run raised.
Ended = Callable[[str, Any, Any, BaseException | None], None]


def watched(app: ResolvedApp, *, began: Began, ended: Ended, letter_ended: Ended) -> ResolvedApp:
    """The same app: each run of a listener is told as it begins and as it ends, those on dead letters as they end."""
    return replace(
        app,
        listeners=tuple(_watched(each, began, ended) for each in app.listeners),
        on_dead_letter=tuple(_watched(each, _nobody, letter_ended) for each in app.on_dead_letter),
    )


def _nobody(*_: Any) -> None:
    pass


def _watched(listener: Listener, began: Began, ended: Ended) -> Listener:
    handler, name = listener.handler, listener.name

    def call(value: Any, record: Any) -> Any:
        began(name, value, record)
        if not listener.takes_record:
            return handler(value)
        return handler(value, record) if listener.takes_value else handler(record)

    def run(value: Any, record: Any) -> Any:
        try:
            result = call(value, record)
        except BaseException as error:
            ended(name, value, record, error)
            raise
        if not inspect.isawaitable(
            result
        ):  # handed back instead of awaited: redrive counts that as a failure
            ended(name, value, record, None)
        return result

    async def run_awaited(value: Any, record: Any) -> None:
        try:
            await call(value, record)
        except BaseException as error:
            ended(name, value, record, error)
            raise
        ended(name, value, record, None)

    return replace(
        listener,
        handler=run_awaited if listener.is_async else run,
        takes_value=True,
        takes_record=True,
    )
