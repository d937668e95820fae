"""From declarations to listeners that can run. Everything that is wrong with an app's code is told at once, with its place."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, get_args

from redrive.core.emitting import Emitting
from redrive.core.envelope import Envelope, is_own_header
from redrive.core.failure import Failures
from redrive.core.plan import Delivery
from redrive.core.policy import Criticality, Duration, GiveUp, Order, RetryPolicy, misfits
from redrive.core.record import RawRecord, Record
from redrive.core.topology import MAX_NAME_LENGTH
from redrive.core.units import parse_duration_ms
from redrive.deadletters.dead_letter import dead_letter_from
from redrive.errors import ListenerError
from redrive.runtime.checkups import health_function
from redrive.runtime.declaration import Declaration, Lifespan, Listener, ResolvedApp, Start
from redrive.runtime.decoding import decoder_for
from redrive.runtime.signatures import LETTER, RECORD, Companion, HandlerShape, name_of, shape_of

_TOPIC = re.compile(rf"[a-zA-Z0-9._-]{{1,{MAX_NAME_LENGTH}}}")
_NOT_YET = "which this version doesn't have yet"


class AppDeclaration(NamedTuple):
    """An app as it was written. `where`: file and line of `App(...)`."""

    group: str
    declarations: Collection[Declaration]
    on_dead_letter: Collection[Declaration]
    accepts_groups: Collection[str]
    lifespan: Lifespan | None
    where: str
    dialects: Collection[str] = ()
    delivery: Delivery | None = None


def resolve(app: AppDeclaration) -> ResolvedApp:
    """
    Checks all declarations and resolves their annotations.

    Raises ListenerError with all that is wrong: the group's name, handlers' signatures and annotations, options that
    can't be or don't fit each other, two listeners on one topic or of one name, an app without listeners.
    """
    problems = [(app.where, what) for what in _app_problems(app)]
    listeners = _listeners(app.declarations, _LISTENER, problems)
    on_dead_letter = _listeners(app.on_dead_letter, _ON_DEAD_LETTER, problems)
    problems += _clashes(app)
    if problems:
        raise ListenerError(problems)
    return ResolvedApp(
        group=app.group,
        listeners=listeners,
        accepts_groups=tuple(app.accepts_groups),
        lifespan=app.lifespan,
        on_dead_letter=on_dead_letter,
        dialects=tuple(app.dialects),
        delivery=app.delivery,
    )


class _Sort(NamedTuple):
    """
    What is declared: its word in messages, what its handlers may take besides the value, how that is made, and what is told
    of a second one for the same topic.
    """

    word: str
    companion: Companion
    view: Callable[[RawRecord, Envelope | None, int, Any, Emitting | None], Any]
    taken: str


_LISTENER = _Sort(
    "listener",
    RECORD,
    Record,
    "topic {topic!r} is read by {name!r} at {where} already, and a group has one listener a topic; do both in one handler, "
    "or make an App with a group of its own",
)
_ON_DEAD_LETTER = _Sort(
    "on_dead_letter",
    LETTER,
    dead_letter_from,
    "dead letters of {topic!r} are handled by {name!r} at {where} already; do both in one handler",
)


# -- the app ---------------------------------------------------------------------------------------------------------


def _app_problems(app: AppDeclaration) -> Iterator[str]:
    if not _is_name(app.group):
        yield f"App({app.group!r}): the first argument is the consumer group's name, a text such as 'payments'"
    if isinstance(app.accepts_groups, str) or not isinstance(app.accepts_groups, Collection):
        yield f"accepts_groups={app.accepts_groups!r} is no list of groups; write accepts_groups=['billing']"
    else:
        for group in app.accepts_groups:
            if not _is_name(group):
                yield f"accepts_groups has {group!r}, which is no group's name"
    if isinstance(app.dialects, str) or not isinstance(app.dialects, Collection):
        yield f"dialects={app.dialects!r} is no list of dialects; write dialects=['redrive', 'spring']"
    if app.delivery not in (None, *get_args(Delivery)):
        yield f"delivery={app.delivery!r} is none of {', '.join(map(repr, get_args(Delivery)))}"
    if app.lifespan is not None and not _is_lifespan(app.lifespan):
        yield (
            "lifespan must be callable without arguments and give an async context manager: "
            "an async generator function under @contextlib.asynccontextmanager"
        )
    if not app.declarations:
        yield (
            'the app has no listeners, so there is nothing to run; declare one with @app.listener("topic"), '
            "in this module or in one that it imports"
        )


def _is_lifespan(lifespan: Any) -> bool:
    if (
        not callable(lifespan)
        or inspect.isasyncgenfunction(lifespan)
        or inspect.iscoroutinefunction(lifespan)
    ):
        return False
    try:
        inspect.signature(lifespan).bind()
    except TypeError:
        return False
    except ValueError:  # some builtin: calling it will show
        return True
    return True


def _clashes(app: AppDeclaration) -> Iterator[tuple[str, str]]:
    by_name: dict[str, Declaration] = {}
    for sort, declarations in ((_LISTENER, app.declarations), (_ON_DEAD_LETTER, app.on_dead_letter)):
        by_topic: dict[str, Declaration] = {}
        for each in declarations:
            name = _name(each)
            first = by_name.setdefault(str(name), each)
            if first is not each and name != "<lambda>":
                what = f"the one at {first.where} has that name too; give one of them name="
                yield each.where, f"{sort.word} {name!r}: {what}"
            first = by_topic.setdefault(str(each.topic), each)
            if first is not each:
                what = sort.taken.format(topic=each.topic, name=_name(first), where=first.where)
                yield each.where, f"{sort.word} {name!r}: {what}"
    yield from _without_listener(app)


def _without_listener(app: AppDeclaration) -> Iterator[tuple[str, str]]:
    """A typing error, most likely: its handler would never be called."""
    sources = [str(each.topic) for each in app.declarations]
    for each in app.on_dead_letter:
        if str(each.topic) not in sources:
            what = f"the app has no listener for {each.topic!r}, so nothing of it dies here; it has listeners for "
            what += ", ".join(map(repr, sources)) or "nothing"
            yield each.where, f"on_dead_letter {_name(each)!r}: {what}"


# -- a listener ------------------------------------------------------------------------------------------------------


def _name(declaration: Declaration) -> str:
    return name_of(declaration.handler) if declaration.name is None else declaration.name


def _listeners(
    declarations: Iterable[Declaration], sort: _Sort, problems: list[tuple[str, str]]
) -> tuple[Listener, ...]:
    """Those that can run; what is wrong with the others is added to `problems`."""
    listeners: list[Listener] = []
    for declaration in declarations:
        listener, wrong = _listener(declaration, sort)
        problems += [(declaration.where, what) for what in wrong]
        if listener is not None:
            listeners.append(listener)
    return tuple(listeners)


def _listener(declaration: Declaration, sort: _Sort) -> tuple[Listener | None, list[str]]:
    name = _name(declaration)
    wrong = [f"{sort.word} {name!r}: {what}" for what in _option_problems(declaration)]
    shape: HandlerShape | None = None
    decode = None
    try:
        shape = shape_of(declaration.handler, declaration.local_names, sort.companion)
    except ValueError as error:
        wrong.append(f"handler {name_of(declaration.handler)!r} {error}")
    if shape is not None:
        wrong += [f"{sort.word} {name!r}: {what}" for what in _unfit(declaration, shape)]
        try:
            decode = decoder_for(shape.annotation)
        except ValueError as error:
            wrong.append(f"handler {name_of(declaration.handler)!r}: {error}")
    if wrong or shape is None or decode is None:
        return None, wrong
    listener = Listener(
        name=name,
        topic=declaration.topic,
        handler=shape.call,
        is_async=shape.is_async,
        takes_value=shape.takes_value,
        takes_record=shape.takes_record,
        decode=decode,
        policy=declaration.retry,
        failures=declaration.failures,
        order=declaration.order,
        concurrency=declaration.concurrency,
        time_limit_ms=_limit_ms(declaration.time_limit),
        give_up=declaration.give_up,
        criticality=declaration.criticality,
        start=declaration.start,
        where=declaration.where,
        view=_view(declaration.id_header, sort),
        id_header=declaration.id_header,
        health=None if declaration.health is None else health_function(declaration.health),
    )
    return listener, []


def _limit_ms(limit: Duration | None) -> int | None:
    return None if limit is None else parse_duration_ms(limit)


def _view(
    id_header: str, sort: _Sort
) -> Callable[[RawRecord, Envelope | None, int, Any, Emitting | None], Any]:
    """What a handler sees of a record; where its producer's own id is to be told, made with the header's name."""
    if not id_header or sort.view is not Record:
        return sort.view
    return partial(Record, _id_header=id_header)


def _option_problems(declaration: Declaration) -> Iterator[str]:
    yield from _topic_problems(declaration.topic)
    if declaration.name is None:
        if name_of(declaration.handler) == "<lambda>":
            yield "a lambda has no name for metrics and commands; give name="
    elif not _is_name(declaration.name):
        yield f"name={declaration.name!r} is no name; give a short text, or leave it out for the handler's"
    yield from _retry_problems(declaration.retry, declaration.order, declaration.give_up)
    if not isinstance(declaration.failures, Failures):
        yield f"failures={declaration.failures!r} is no Failures; write failures=Failures(permanent=…)"
    number: Any = declaration.concurrency
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        yield f"concurrency={number!r}: a whole number of handlers that may run at once, at least 1"
    if declaration.time_limit is not None:
        try:
            parse_duration_ms(declaration.time_limit)
        except ValueError as error:
            yield f"time_limit: {error}"
    yield from _give_up_problems(declaration.give_up)
    if declaration.criticality not in get_args(Criticality):
        yield f"criticality={declaration.criticality!r} is none of {_choices(Criticality)}"
    if declaration.start not in get_args(Start):
        yield f"start={declaration.start!r} is none of {_choices(Start)}"
    yield from _health_problems(declaration.health)
    header: Any = declaration.id_header
    if not isinstance(header, str) or is_own_header(header):
        yield f"id_header={header!r}: the name of a header of the producer's, as in id_header='event-id'"


def _health_problems(health: Any) -> Iterator[str]:
    if health is None:
        return
    try:
        health_function(health)
    except ValueError as error:
        yield f"health={name_of(health)} {error}"


def _topic_problems(topic: Any) -> Iterator[str]:
    if not isinstance(topic, str):
        yield f"topic {topic!r} is no text; a listener reads one topic, so declare one for each"
    elif not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
        yield (
            f"topic {topic!r} can't exist: Kafka allows letters, digits and . _ - in names, "
            f"1 to {MAX_NAME_LENGTH} characters"
        )


def _retry_problems(retry: Any, order: Order, give_up: GiveUp) -> Iterator[str]:
    if not isinstance(retry, RetryPolicy):
        yield f"retry={retry!r} is no RetryPolicy; write retry=RetryPolicy('5s', '30s', '10m')"
    elif order not in get_args(Order):
        yield f"order={order!r} is none of {_choices(Order)}"
    elif unfit := list(misfits(retry, order, give_up)):
        yield from unfit


def _give_up_problems(give_up: str) -> Iterator[str]:
    if give_up not in get_args(GiveUp):
        yield f"give_up={give_up!r} is none of {_choices(GiveUp)}"


def _unfit(declaration: Declaration, shape: HandlerShape) -> Iterator[str]:
    if declaration.time_limit is not None and not shape.is_async:
        yield (
            f"time_limit={declaration.time_limit!r}, but the handler is a plain function, and a thread can't be stopped; "
            "make it async def, or give the calls in it timeouts of their own"
        )


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and bool(text) and text.isprintable() and text.strip() == text


def _choices(literal: Any) -> str:
    return ", ".join(map(repr, get_args(literal)))
