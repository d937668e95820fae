"""`redrive topics`: which topics an app needs, what differs from the cluster's, and creating what is missing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from redrive.cli import acls
from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Json, Loaded, Target, load
from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode
from redrive.errors import PortError

if TYPE_CHECKING:
    from redrive.core.acls import Acl
    from redrive.core.topic_plan import PlanItem, TopicPlan, WantedTopic
    from redrive.runtime.ports import Cluster

app = typer.Typer(
    no_args_is_help=True,
    help="Plan and create the topics of an app: retry tiers, dead letters, their states; and the rights on them.",
)
app.command("acls")(acls.acls)

Replication = Annotated[
    int | None,
    typer.Option(
        min=1, help="Replicas of created topics; 1 for a single broker. By default 3.", show_default=False
    ),
]
DlqPartitions = Annotated[
    int | None,
    typer.Option(
        min=1, help="Partitions of dead-letter topics. By default as their source.", show_default=False
    ),
]
CreateSources = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="PARTITIONS", help="Also create source topics that are missing.", show_default=False
    ),
]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SOURCE=N", help="Grow a source topic, after the topics that go with it.", show_default=False
    ),
]


@app.command()
def plan(
    target: Target = None,
    replication: Replication = None,
    dlq_partitions: DlqPartitions = None,
    create_sources: CreateSources = None,
    partitions: Partitions = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Show what is missing and what differs. Changes nothing; exit code 4 when there is anything to do."""
    with reporting(as_json=json) as output:
        counts = _counts(partitions)
        loaded = load(
            target,
            app_dir=app_dir,
            bootstrap_servers=bootstrap_servers,
            config=config,
            overrides={"replication": replication, "dlq_partitions": dlq_partitions},
        )
        work = _look(loaded, output, create_sources, counts)
        _show(output, work, loaded.target)
        output.result(_as_json(work))
        if work.plan.changes or work.plan.findings:
            raise typer.Exit(ExitCode.DIFFERENCES)


@app.command()
def apply(
    target: Target = None,
    replication: Replication = None,
    dlq_partitions: DlqPartitions = None,
    create_sources: CreateSources = None,
    partitions: Partitions = None,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """
    Create what is missing and grow what is too small. Never deletes, shrinks or reconfigures anything.

    Running it again changes nothing. Exit code 4 when something is left for a person to decide.
    """
    from redrive.runtime.clock import SystemClock
    from redrive.runtime.provisioning import await_carried_out, carry_out

    with reporting(as_json=json) as output:
        counts = _counts(partitions)
        loaded = load(
            target,
            app_dir=app_dir,
            bootstrap_servers=bootstrap_servers,
            config=config,
            overrides={"replication": replication, "dlq_partitions": dlq_partitions},
        )
        before = _look(loaded, output, create_sources, counts, changes=True)
        failed = carry_out(before.cluster, before.plan, replication=loaded.settings.replication)
        done = [item for item in before.plan.changes if item.topic not in failed]
        for item in done:
            output.line(f"{'created' if item.action == 'create' else 'grown'} {item.topic}: {_numbers(item)}")
        for why in dict.fromkeys(failed.values()):
            topics = ", ".join(topic for topic, its in failed.items() if its == why)
            output.note(f"not created: {topics}\n  {why}{_advice(why)}")
        left = await_carried_out(before.cluster, before.wanted, SystemClock(), failed=failed)
        after = before._replace(plan=left)
        _end(output, after, loaded.target, done, failed)


class _Work(NamedTuple):
    """An app's wanted topics beside the cluster's."""

    cluster: "Cluster"
    wanted: "Sequence[WantedTopic]"
    plan: "TopicPlan"
    shared: Mapping[str, Sequence[str]]
    #: What couldn't be looked at, and why.
    not_checked: Sequence[str]


def _look(
    loaded: Loaded,
    output: Output,
    create_sources: int | None,
    counts: Mapping[str, int],
    *,
    changes: bool = False,
) -> _Work:
    """`changes`: whether the plan is to be carried out."""
    from redrive.cli.cluster import connect
    from redrive.core.acls import apply_acls, plan_acls
    from redrive.runtime.planning import wanted_topics
    from redrive.runtime.provisioning import compare, find_sharers, with_source_partitions

    cluster = connect(loaded.settings, loaded.app.group, output)
    existing = cluster.describe()
    wanted = with_source_partitions(
        wanted_topics(loaded.app, loaded.settings, existing),
        existing,
        missing=create_sources,
        by_source=counts,
    )
    unknown = sorted(counts.keys() - {topic.source for topic in wanted})
    if unknown:
        raise typer.BadParameter(
            f"{', '.join(unknown)}: no source topic of this app", param_hint="--partitions"
        )
    not_checked = [*_require_view(cluster, apply_acls(wanted) if changes else plan_acls(wanted))]
    plan = compare(cluster, wanted)
    ours = [loaded.app.group, *loaded.app.accepts_groups, *loaded.settings.accepts_groups]
    shared: Mapping[str, Sequence[str]] = {}
    try:
        shared = find_sharers(cluster, plan, ours)
    except PortError as error:
        not_checked.append(f"which other groups read the retry topics: {error}")
    for what in not_checked:
        output.note(f"not checked: {what}")
    return _Work(cluster, wanted, plan, shared, not_checked)


def _require_view(cluster: "Cluster", acls: "Sequence[Acl]") -> Iterator[str]:
    """
    Gives what can't be compared for want of rights. Raises PortError where topics may not even be seen: a plan would call
    them missing.
    """
    from redrive.core.acls import ADVICE, Operation, Resource, explain_lacking, find_lacking

    rights = [acl.right for acl in acls if acl.right.resource is Resource.TOPIC]
    allowed = cluster.allowed(list(dict.fromkeys(right.name for right in rights)))
    lacking = find_lacking(rights, allowed)
    if unseen := [right for right in lacking if not allowed[right.name]]:
        raise PortError(f"{explain_lacking(unseen)}. {ADVICE}")
    if untold := [right for right in lacking if right.operation is Operation.DESCRIBE_CONFIGS]:
        yield f"the configuration of topics: {explain_lacking(untold)}. {ADVICE}"


def _counts(partitions: Sequence[str] | None) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in partitions or ():
        source, _, number = each.rpartition("=")
        if not source or not number.isdecimal() or int(number) < 1:
            raise typer.BadParameter(f"{each!r}: write SOURCE=N, as in orders=12", param_hint="--partitions")
        counts[source] = int(number)
    return counts


def _show(output: Output, work: _Work, target: str) -> None:
    output.table(
        ["action", "topic", "role", "what"],
        [(item.action.upper(), item.topic, item.role, _what(item)) for item in work.plan.items],
    )
    output.line()
    _show_findings(output, work, target)
    if work.plan.changes:
        output.line(f"{_several(len(work.plan.changes), 'change')} to make: redrive topics apply {target}")
    elif not work.plan.findings:
        output.line("all topics are as wanted")


def _show_findings(output: Output, work: _Work, target: str) -> None:
    for item in work.plan.findings:
        if item.action == "differs":
            output.line(f"to mend {item.topic} {item.setting}: {item.mend}")
        elif item.role == "source":
            output.line(
                f"{item.topic} is usually created by its producers; to create it with 4 partitions: "
                f"redrive topics apply {target} --create-sources 4"
            )
    for tier, groups in work.shared.items():
        output.line(
            f"{tier} is read by {', '.join(groups)} too: each group passes by the other's records. "
            'To have tiers apart put {group} into their name: retry_topic = "{topic}.{group}.retry.{delay}"'
        )


def _what(item: "PlanItem") -> str:
    if item.action == "create":
        return f"{_numbers(item)}, {', '.join(f'{name}={value}' for name, value in item.configs.items())}".rstrip(
            ", "
        )
    if item.action == "grow":
        return f"from {item.have} to {_numbers(item)}: {item.why}"
    if item.action == "differs":
        return f"{item.setting} is {item.have}, wanted {item.wanted}: {item.why}"
    return " ".join(filter(None, [item.setting, item.why]))


def _numbers(item: "PlanItem") -> str:
    replication = f", replication {item.replication}" if item.replication else ""
    return f"{_several(item.partitions or 0, 'partition')}{replication}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _end(
    output: Output, work: _Work, target: str, done: "Sequence[PlanItem]", failed: Mapping[str, str]
) -> None:
    left = [item for item in work.plan.changes if item.topic not in failed]
    if left:
        output.note(f"the brokers don't show yet: {', '.join(item.topic for item in left)}")
    for item in work.plan.findings:
        if item.action == "differs":
            output.line(f"left as it is, {item.topic}: {_what(item)}")
    _show_findings(output, work, target)
    if not done and not failed and not work.plan.findings:
        output.line("all topics are as wanted; nothing to do")
    output.result({"changed": [item.topic for item in done], "failed": dict(failed), **_as_json(work)})
    if failed or left:
        raise typer.Exit(ExitCode.PARTIAL if done else ExitCode.FAILED)
    if work.plan.findings:
        raise typer.Exit(ExitCode.DIFFERENCES)


def _as_json(work: _Work) -> dict[str, Any]:
    return {
        "topics": [
            {name: value for name, value in asdict(item).items() if value} for item in work.plan.items
        ],
        "shared_tiers": {tier: list(groups) for tier, groups in work.shared.items()},
        "not_checked": list(work.not_checked),
        "changes": len(work.plan.changes),
        "findings": len(work.plan.findings),
    }


_ADVICE = {
    "INVALID_REPLICATION_FACTOR": "this cluster has fewer brokers than that; for a single broker: --replication 1",
    "TOPIC_AUTHORIZATION_FAILED": "ask for it, or have an admin apply; what is needed for what: redrive topics acls",
    "NOT_CONTROLLER": "the cluster has no controller right now; try again in a moment",
    "_TIMED_OUT": "the cluster's controller doesn't answer, and only it creates topics; check the controllers",
    "POLICY_VIOLATION": "the cluster's own rules forbid it; ask those who run it",
}


def _advice(why: str) -> str:
    advice = _ADVICE.get(why.partition(":")[0])
    return f"\n  {advice}" if advice else ""
