"""What users may write by mistake: each marked line must be an error, or its mark is one. Never run."""

from redrive import App, Backoff, DeadLetter, DeadLetterNow, Failures, Record, RetryLater, RetryPolicy
from redrive.testing import Harness, NewRecord, World, explore

app = App("payments")


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def takes_nothing() -> None: ...


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
async def takes_nothing_async() -> None: ...


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def takes_three(order: dict[str, int], record: Record, more: int) -> None: ...


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def takes_no_record(order: dict[str, int], record: int) -> None: ...


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
async def takes_no_record_async(order: dict[str, int], record: str) -> None: ...


@app.listener("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def takes_a_keyword(order: dict[str, int], *, record: Record) -> None: ...


app.listener("orders")(5)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
app.listener("orders")("handler")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]


@app.listener  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def without_topic(order: dict[str, int]) -> None: ...


app.listener()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.listener(["orders"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", RetryPolicy())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.listener("orders", retry="5s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", retries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.listener("orders", order="sideways")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", concurrency="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", time_limit=30)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", criticality="high")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", give_up="halt")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", give_up="drop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", failures=ValueError)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", health=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listener("orders", start="now")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.on_dead_letter("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
def takes_no_letter() -> None: ...


@app.on_dead_letter("orders")  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
async def takes_a_record(order: dict[str, int], record: Record) -> None: ...


@app.on_dead_letter  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def without_source(letter: DeadLetter) -> None: ...


app.on_dead_letter("orders", retry=RetryPolicy())  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.on_dead_letter("orders", start="now")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

App()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
App(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
App("payments", lifespan=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
App("payments", settings="redrive.toml")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

RetryPolicy(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", max_age=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", immediate=2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", after_dead_letter="stop")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", park="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", hold_at_most=300)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryPolicy("5s", blocking="topic")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Backoff(retries=2, wait=0.1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Failures(permanent=ValueError("x"))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryLater(420)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
DeadLetterNow()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def looks_at_letter(letter: DeadLetter) -> None:
    letter.reason = "expired"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    letter.message()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def looks(record: Record) -> None:
    record.message()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    record.attempt = 2  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    record.key = b""  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


class Bank: ...


def with_bank(bank: Bank) -> App:
    return app


def of_another(world: World[int]) -> None: ...


explore(with_bank, send=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
explore(with_bank, outside=Bank, send=[1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
explore(with_bank, outside=Bank, send=[], invariant=of_another)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]
explore(with_bank, outside=Bank, send=[], faults=["fire"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
NewRecord("orders")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Harness(app).rebalance(to="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
