"""All that is wrong with an app is told at once, when it is resolved, with file and line and how to mend it."""

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from redrive import App, Failures, ListenerError, Record, RetryPolicy


def handler(value: dict[str, Any]) -> None: ...
async def async_handler(value: dict[str, Any], record: Record) -> None: ...


def problems_of(app: App) -> list[str]:
    """What is told, without the places."""
    with pytest.raises(ListenerError) as refused:
        app.resolve()
    return [problem.what for problem in refused.value.problems]


def test_resolved_listener_has_all_that_was_declared() -> None:
    app = App("payments", accepts_groups=["billing"])
    policy = RetryPolicy("1m", max_age="1h")
    failures = Failures(permanent=KeyError)
    returned = app.listener(
        "orders",
        retry=policy,
        name="charge",
        concurrency=7,
        time_limit="30s",
        give_up="skip",
        criticality="money",
        failures=failures,
        start="latest",
    )(async_handler)

    resolved = app.resolve()
    (listener,) = resolved.listeners

    assert returned is async_handler
    assert (resolved.group, resolved.accepts_groups, resolved.lifespan) == ("payments", ("billing",), None)
    assert (listener.name, listener.topic, listener.handler) == ("charge", "orders", async_handler)
    assert (listener.is_async, listener.takes_value, listener.takes_record) == (True, True, True)
    assert (listener.policy, listener.failures) == (policy, failures)
    assert (listener.concurrency, listener.time_limit_ms) == (7, 30_000)
    assert (listener.give_up, listener.start, listener.criticality) == ("skip", "latest", "money")
    assert listener.decode(b'{"a": 1}') == {"a": 1}


@pytest.mark.parametrize(
    ("order", "policy"),
    [
        ("key", RetryPolicy("5s")),
        ("none", RetryPolicy("5s")),
        ("key", RetryPolicy("1m", "10m", blocking="key")),
        ("partition", RetryPolicy("5s", blocking="partition")),
        ("partition", RetryPolicy("5s", blocking="partition", after_dead_letter="block")),
        ("key", RetryPolicy(blocking="key", after_dead_letter="divert")),
    ],
)
def test_orders_and_the_policies_that_fit_them(order: str, policy: RetryPolicy) -> None:
    app = App("payments")
    app.listener("orders", order=order, retry=policy, concurrency=8)(handler)

    (listener,) = app.resolve().listeners

    assert (listener.order, listener.policy) == (order, policy)


def test_a_health_function_may_be_plain_or_a_coroutine_function() -> None:
    async def is_up() -> bool:
        return True

    app = App("payments")
    app.listener("orders", name="a", health=lambda: True)(handler)
    app.listener("payouts", name="b", health=is_up)(handler)
    found = [each.health for each in app.resolve().listeners]

    assert [each is not None and each.is_async for each in found] == [False, True]


def test_defaults_of_a_listener() -> None:
    app = App("payments")
    app.listener("orders")(handler)

    (listener,) = app.resolve().listeners

    assert listener.name == "handler"
    assert listener.policy == RetryPolicy("5s", "30s", "10m")
    assert (listener.order, listener.concurrency, listener.time_limit_ms) == ("partition", 1, None)
    assert (listener.give_up, listener.start, listener.criticality) == ("dead-letter", "earliest", "normal")
    assert listener.health is None


def test_time_limit_may_be_a_timedelta() -> None:
    app = App("payments")
    app.listener("orders", time_limit=timedelta(seconds=2))(async_handler)

    assert app.resolve().listeners[0].time_limit_ms == 2000


def test_app_can_be_resolved_again_after_it_was_mended() -> None:
    app = App("payments")
    problems_of(app)
    app.listener("orders")(handler)

    assert len(app.resolve().listeners) == len(app.resolve().listeners) == 1


OPTIONS = [
    ({"order": "keys"}, "order='keys' is none of 'partition', 'key', 'none'"),
    (
        {"retry": RetryPolicy("5s", blocking="key", park=True, after_dead_letter="block"), "order": "key"},
        (
            "RetryPolicy(park=True) doesn't go with after_dead_letter='block' yet: a key that is parked goes on behind a dead "
            "letter; use after_dead_letter='release', or leave park out"
        ),
    ),
    (
        {"retry": RetryPolicy("5s", blocking="key")},
        (
            "RetryPolicy(blocking='key') doesn't fit order='partition': records of all keys of a partition run one after "
            "another there, so one key can't wait by itself; use order='key', or blocking='partition'"
        ),
    ),
    (
        {"retry": RetryPolicy("5s", after_dead_letter="block")},
        (
            "RetryPolicy(after_dead_letter='block') says what becomes of records that waited for a dead letter, but nothing "
            "waits without blocking: add blocking='key' with order='key', or leave it out"
        ),
    ),
    ({"retry": "5s"}, "retry='5s' is no RetryPolicy; write retry=RetryPolicy('5s', '30s', '10m')"),
    (
        {"retry": ["5s"]},
        "retry=['5s'] is no RetryPolicy; write retry=RetryPolicy('5s', '30s', '10m')",
    ),
    (
        {"failures": KeyError},
        "failures=<class 'KeyError'> is no Failures; write failures=Failures(permanent=…)",
    ),
    ({"concurrency": 0}, "concurrency=0: a whole number of handlers that may run at once, at least 1"),
    ({"concurrency": True}, "concurrency=True: a whole number of handlers that may run at once, at least 1"),
    ({"concurrency": "3"}, "concurrency='3': a whole number of handlers that may run at once, at least 1"),
    ({"give_up": "drop"}, "give_up='drop' is none of 'dead-letter', 'skip', 'stop'"),
    ({"criticality": "high"}, "criticality='high' is none of 'money', 'normal', 'analytics'"),
    ({"start": "now"}, "start='now' is none of 'earliest', 'latest'"),
    ({"name": " "}, "name=' ' is no name; give a short text, or leave it out for the handler's"),
    ({"name": ["a"]}, "name=['a'] is no name; give a short text, or leave it out for the handler's"),
    ({"name": 5}, "name=5 is no name; give a short text, or leave it out for the handler's"),
    (
        {"topic": "my orders"},
        "topic 'my orders' can't exist: Kafka allows letters, digits and . _ - in names, 1 to 249 characters",
    ),
    (
        {"topic": ""},
        "topic '' can't exist: Kafka allows letters, digits and . _ - in names, 1 to 249 characters",
    ),
    (
        {"topic": "orders\n"},
        "topic 'orders\\n' can't exist: Kafka allows letters, digits and . _ - in names, 1 to 249 characters",
    ),
    (
        {"topic": ["orders", "payouts"]},
        "topic ['orders', 'payouts'] is no text; a listener reads one topic, so declare one for each",
    ),
    (
        {"health": True},
        "health=bool can't be called, it is a value of type bool; declare a function",
    ),
    (
        {"health": handler},
        "health=handler must be callable without arguments; bind what it needs with functools.partial",
    ),
    (
        {"time_limit": "30s"},
        (
            "time_limit='30s', but the handler is a plain function, and a thread can't be stopped; make it async def, or "
            "give the calls in it timeouts of their own"
        ),
    ),
]


@pytest.mark.parametrize(("options", "text"), OPTIONS, ids=[str(at) for at in range(len(OPTIONS))])
def test_option_that_cannot_be(options: dict[str, Any], text: str) -> None:
    app = App("payments")
    name = options.get("name") or "handler"
    app.listener(**{"topic": "orders", **options})(handler)

    assert problems_of(app) == [f"listener {name!r}: {text}"]


def test_time_limit_that_cannot_be_read() -> None:
    app = App("payments")
    app.listener("orders", time_limit=30)(async_handler)

    assert problems_of(app) == [
        (
            "listener 'async_handler': time_limit: duration 30 is a bare number; write it as '5s', '1h30m' or '250ms' "
            "(d, h, m, s, ms, from large to small) or as a timedelta"
        )
    ]


def test_lambda_needs_a_name() -> None:
    app = App("payments")
    app.listener("orders")(lambda value: None)

    assert problems_of(app) == [
        "listener '<lambda>': a lambda has no name for metrics and commands; give name="
    ]


def test_app_without_listeners() -> None:
    assert problems_of(App("payments")) == [
        (
            'the app has no listeners, so there is nothing to run; declare one with @app.listener("topic"), in this module '
            "or in one that it imports"
        )
    ]


@pytest.mark.parametrize("group", ["", " ", "payments\n", 5, None])
def test_group_needs_a_name(group: Any) -> None:
    app = App(group)
    app.listener("orders")(handler)

    assert problems_of(app) == [
        f"App({group!r}): the first argument is the consumer group's name, a text such as 'payments'"
    ]


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ("billing", "accepts_groups='billing' is no list of groups; write accepts_groups=['billing']"),
        (5, "accepts_groups=5 is no list of groups; write accepts_groups=['billing']"),
        (["billing", ""], "accepts_groups has '', which is no group's name"),
    ],
)
def test_accepted_groups_are_names(groups: Any, text: str) -> None:
    app = App("payments", accepts_groups=groups)
    app.listener("orders")(handler)

    assert problems_of(app) == [text]


async def no_context_manager() -> Any:
    yield 5


async def coroutine() -> None: ...


@asynccontextmanager
async def of_the_app(app: App) -> Any:
    yield app


@pytest.mark.parametrize("lifespan", [no_context_manager, coroutine, of_the_app, 5])
def test_lifespan_is_a_context_manager_without_arguments(lifespan: Any) -> None:
    app = App("payments", lifespan=lifespan)
    app.listener("orders")(handler)

    assert problems_of(app) == [
        (
            "lifespan must be callable without arguments and give an async context manager: an async generator function "
            "under @contextlib.asynccontextmanager"
        )
    ]


def test_lifespan_is_passed_on() -> None:
    @asynccontextmanager
    async def lifespan() -> Any:
        yield 5

    app = App("payments", lifespan=lifespan)
    app.listener("orders")(handler)

    assert app.resolve().lifespan is lifespan


def test_everything_is_told_at_once_with_its_place() -> None:
    app = App("")
    app.listener("orders", concurrency=0, order="keys")(handler)
    app.listener("orders")(handler)

    @app.listener("payouts", time_limit="1s")
    def pay(payout: set[object], more: int) -> None: ...

    with pytest.raises(ListenerError) as refused:
        app.resolve()

    first = test_everything_is_told_at_once_with_its_place.__code__.co_firstlineno
    here = "tests/app/test_resolving.py"
    assert str(refused.value).replace("\\", "/") == "\n".join(
        [
            "6 problems:",
            f"  {here}:{first + 1}: App(''): the first argument is the consumer group's name, a text such as 'payments'",
            f"  {here}:{first + 2}: listener 'handler': order='keys' is none of 'partition', 'key', 'none'",
            (
                f"  {here}:{first + 2}: listener 'handler': concurrency=0: a whole number of handlers that may run at once, "
                "at least 1"
            ),
            (
                f"  {here}:{first + 5}: handler 'pay' (payout, more): the second parameter is the record, but 'more' is "
                "annotated int; annotate it Record (redrive.Record), or give it a default"
            ),
            (
                f"  {here}:{first + 3}: listener 'handler': the one at {here}:{first + 2} has that name too; give one of "
                "them name="
            ),
            (
                f"  {here}:{first + 3}: listener 'handler': topic 'orders' is read by 'handler' at {here}:{first + 2} "
                "already, and a group has one listener a topic; do both in one handler, or make an App with a group of its "
                "own"
            ),
        ]
    )


def test_annotation_that_nothing_decodes_is_told_with_the_handler() -> None:
    app = App("payments")

    @app.listener("orders", name="charge")
    def handle(order: App) -> None: ...

    assert problems_of(app) == [
        (
            "handler 'handle': App can't be decoded: nothing here makes a App from JSON; use a dataclass, msgspec.Struct, "
            "pydantic model or TypedDict, or take bytes and decode them in the handler"
        )
    ]


def test_one_function_may_handle_two_topics_under_two_names() -> None:
    app = App("payments")

    @app.listener("orders", name="orders")
    @app.listener("old-orders", name="old-orders")
    def handle(value: bytes) -> None: ...

    assert [listener.name for listener in app.resolve().listeners] == ["old-orders", "orders"]
