"""`redrive lag`: how far behind a group is, what holds it up, and what waits in its tiers."""

import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Json, Loaded, Target, load
from redrive.cli.output import Output, reporting
from redrive.core.units import format_duration, parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from redrive.core.lag import Oldest, PartitionLag, TierDue
    from redrive.runtime.lagging import Behind


def lag(
    target: Target = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also partitions with nothing left to do.")
    ] = False,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="EVERY",
            help="Look again and again, as in 5s, until Ctrl-C.",
            show_default=False,
        ),
    ] = None,
    tier_records: Annotated[
        int, typer.Option("--tier-records", min=1, metavar="N", help="Look at so many records of each tier.")
    ] = 100_000,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """
    Show how far behind the app's group is: lag, true lag, the oldest unfinished record of each partition and why.

    The true lag leaves out what is finished behind a slow record. Reads only, and joins no group.
    """
    with reporting(as_json=json) as output:
        every_ms = _every_ms(watch, as_json=json)
        loaded = load(target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config)
        look, close = _open(loaded, output, tier_records)
        never = threading.Event()
        try:
            while True:
                behind = look()
                _show(output, behind, everything=everything)
                output.result(_as_json(behind))
                if every_ms is None:
                    return
                output.line()
                never.wait(every_ms / 1000)
        finally:
            close()


def _every_ms(watch: str | None, *, as_json: bool) -> int | None:
    if watch is None:
        return None
    if as_json:
        raise typer.BadParameter("--json prints one object; call it again instead", param_hint="--watch")
    try:
        return max(500, parse_duration_ms(watch))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--watch") from None


def _open(
    loaded: Loaded, output: Output, tier_records: int
) -> "tuple[Callable[[], Behind], Callable[[], None]]":
    from redrive.adapters.kafka_inspection import KafkaInspection
    from redrive.adapters.kafka_log import KafkaLog
    from redrive.cli.cluster import connect
    from redrive.core.acls import ADVICE, explain_lacking, lag_acls
    from redrive.runtime.checks import find_lacking_rights
    from redrive.runtime.clock import SystemClock
    from redrive.runtime.lagging import look_behind
    from redrive.runtime.planning import plan_group

    cluster = connect(loaded.settings, loaded.app.group, output)
    acls = lag_acls(plan_group(loaded.app, loaded.settings, cluster.describe()))
    if lacking := find_lacking_rights([acl.right for acl in acls], cluster):
        output.note(f"not all is shown: {explain_lacking(lacking)}. {ADVICE}")
    user = loaded.settings.client_options(loaded.app.group)
    log, inspection = KafkaLog(user), KafkaInspection(user)
    clock = SystemClock()

    def look() -> "Behind":
        plan = plan_group(loaded.app, loaded.settings, cluster.describe())
        now_ms = clock.wall_ms()
        return look_behind(plan, cluster, log, now_ms, inspection=inspection, records_of_tier=tier_records)

    return look, log.close


def _show(output: Output, behind: "Behind", *, everything: bool) -> None:
    shown = [
        (its, oldest)
        for its, oldest in behind.partitions
        if everything or its.true_lag or its.lost or its.is_beyond_end
    ]
    if shown:
        output.table(
            ["topic", "partition", "end", "committed", "lag", "true lag", "oldest", "age", "why"],
            [_row(its, oldest, behind) for its, oldest in shown],
        )
        output.line()
    if behind.tiers:
        output.table(
            ["tier", "waiting", "due", "late", "next due"],
            [_tier_row(tier, behind.now_ms) for tier in behind.tiers],
        )
        output.line()
    for topic in behind.missing:
        output.note(f"{topic} doesn't exist, or this user may not see it: redrive doctor tells what to do")
    if behind.members == 0:
        output.line(f"{behind.group} has no members: no process is at work")
    lags = [its for its, _ in behind.partitions]
    finished = sum(its.finished_above for its in lags)
    output.line(
        f"{behind.group}: lag {sum(its.lag for its in lags)}, of which {finished} finished already; "
        f"{sum(its.true_lag for its in lags)} left to do"
    )


def _row(its: "PartitionLag", oldest: "Oldest | None", behind: "Behind") -> tuple[object, ...]:
    return (
        its.key.topic,
        its.key.partition,
        its.end,
        "-" if its.committed is None else its.committed,
        its.lag,
        its.true_lag,
        "-" if oldest is None else oldest.offset,
        "-" if oldest is None else _age(behind.now_ms - oldest.since_ms),
        "; ".join(_why(its, oldest, behind.now_ms)),
    )


def _why(its: "PartitionLag", oldest: "Oldest | None", now_ms: float) -> "list[str]":
    """Why the oldest record isn't finished, as far as that can be seen from outside."""
    why: list[str] = []
    if its.lost:
        why.append(f"{its.lost} offsets were deleted before they were read")
    if its.is_beyond_end:
        why.append(
            "committed beyond the end: was the topic made anew? A process that starts begins at its beginning"
        )
    if its.committed is None and its.lag:
        why.append("nothing committed yet")
    if its.ignored:
        why.append(its.ignored)
    if oldest is None:
        return why
    if not oldest.is_ours:
        why.append("another group's, passed by when it is reached")
    elif oldest.is_dead:
        why.append("a dead letter, for which later ones wait: replay or discard it (redrive dlq)")
    elif oldest.due_ms is not None:
        when = oldest.due_ms - now_ms
        due = f"due in {_age(when)}" if when > 0 else f"due {_age(-when)} ago"
        last = f", after {oldest.failure}" if oldest.failure else ""
        why.append(f"attempt {oldest.attempt} {due}{last}")
    elif its.finished_above:
        why.append(
            f"at work, or what becomes of it isn't written yet; {its.finished_above} behind it are finished"
        )
    elif its.committed is not None:
        why.append("not read yet, or at work")
    if others := len(its.heads) - (oldest.offset in its.heads):
        why.append(f"{others} behind it wait for another run")
    return why


def _tier_row(tier: "TierDue", now_ms: float) -> tuple[object, ...]:
    at_least = "" if tier.is_whole else ">= "
    others = f" ({tier.others} of other groups)" if tier.others else ""
    return (
        tier.tier,
        f"{at_least}{tier.waiting}{others}",
        f"{at_least}{tier.due}",
        _age(tier.late_ms) if tier.due else "-",
        "-" if tier.next_ms is None else f"in {_age(tier.next_ms - now_ms)}",
    )


def _age(ms: float) -> str:
    """In whole seconds from a minute on: nobody wants milliseconds of an hour."""
    whole = max(0, int(ms))
    return format_duration(whole if whole < 60_000 else whole // 1000 * 1000)


def _as_json(behind: "Behind") -> dict[str, Any]:
    from dataclasses import asdict

    lags = [its for its, _ in behind.partitions]
    return {
        "group": behind.group,
        "members": behind.members,
        "now_ms": int(behind.now_ms),
        "lag": sum(its.lag for its in lags),
        "true_lag": sum(its.true_lag for its in lags),
        "partitions": [
            {
                "topic": its.key.topic,
                "partition": its.key.partition,
                "end": its.end,
                "committed": its.committed,
                "lag": its.lag,
                "true_lag": its.true_lag,
                "heads": len(its.heads),
                "lost": its.lost,
                "oldest": None
                if oldest is None
                else {
                    **asdict(oldest),
                    "age_ms": max(0, int(behind.now_ms - oldest.since_ms)),
                    "why": "; ".join(_why(its, oldest, behind.now_ms)),
                },
            }
            for its, oldest in behind.partitions
        ],
        "tiers": [asdict(tier) for tier in behind.tiers],
        "missing": list(behind.missing),
    }
