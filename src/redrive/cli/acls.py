"""`redrive topics acls`: which rights an app's users need, ready to be granted."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from redrive.cli.context import HERE, AppDir, Bootstrap, Config, Json, Loaded, Target, load
from redrive.cli.output import Output, reporting
from redrive.errors import PortError

if TYPE_CHECKING:
    from redrive.core.acls import Need, Right

#: Brokers for which the list isn't whole.
_OLD = "Brokers before 2.8 also want IdempotentWrite on the cluster of whoever writes"


class Format(StrEnum):
    """How the rights are printed."""

    TABLE = "table"
    KAFKA_ACLS = "kafka-acls"


Principal = Annotated[
    str | None,
    typer.Option(
        metavar="User:NAME",
        help="As whom the service logs in. By default User: and the group.",
        show_default=False,
    ),
]
Operator = Annotated[str, typer.Option(metavar="User:NAME", help="As whom its operators log in.")]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="From where both connect; * from anywhere.")]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--for", metavar="NEED", help="Only these: service, dlq-look, …; may be repeated.", show_default=False
    ),
]
Style = Annotated[Format, typer.Option("--format", help="A table, or commands of Kafka's own kafka-acls.sh.")]
Offline = Annotated[bool, typer.Option("--offline", help="Don't look for retry topics of older policies.")]


def acls(
    target: Target = None,
    principal: Principal = None,
    operator: Operator = "User:operator",
    host: Host = "*",
    only: Only = None,
    style: Style = Format.TABLE,
    offline: Offline = False,
    app_dir: AppDir = HERE,
    bootstrap_servers: Bootstrap = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """
    Print exactly the rights (ACLs) that the service needs, and those that each command of its operators needs.

    Grants nothing. Where the cluster can be reached, retry topics of older policies are looked for there.
    """
    for option, user in (("--principal", principal), ("--operator", operator)):
        if user is not None and not all(user.partition(":")):
            raise typer.BadParameter(
                f"{user!r}: write its kind, too, as in User:{user.strip(':') or 'alice'}", param_hint=option
            )
    with reporting(as_json=json) as output:
        loaded = load(target, app_dir=app_dir, bootstrap_servers=bootstrap_servers, config=config)
        existing = () if offline else _existing(loaded, output)
        needs = _chosen(_needs(loaded, existing), only)
        users = {
            need.name: principal or f"User:{loaded.app.group}" for need in needs if need.name in OF_SERVICE
        }
        users |= {need.name: operator for need in needs if need.name not in OF_SERVICE}
        if style is Format.KAFKA_ACLS:
            for line in kafka_acls(needs, users, host, loaded.settings.bootstrap_servers):
                output.line(line)
        else:
            _show(output, needs, users, host)
        output.result(_as_json(needs, users, host, loaded.app.group))


#: Needs of the service's own user.
OF_SERVICE = frozenset({"service", "on-dead-letter", "metrics"})


def _existing(loaded: Loaded, output: Output) -> Sequence[str]:
    from redrive.cli.cluster import connect

    try:
        return list(connect(loaded.settings, loaded.app.group, output).describe())
    except PortError as error:
        output.note(f"not looked for retry topics of older policies: {error}")
        return ()


def _needs(loaded: Loaded, existing: Sequence[str]) -> "tuple[Need, ...]":
    from redrive.core.acls import needs_of
    from redrive.runtime.planning import plan_group, plan_letters, wanted_topics

    return needs_of(
        plan_group(loaded.app, loaded.settings, existing),
        wanted_topics(loaded.app, loaded.settings, existing),
        asks_protocols=loaded.settings.wanted_protocol == "auto",
        letters=plan_letters(loaded.app, loaded.settings) if loaded.app.on_dead_letter else None,
    )


def _chosen(needs: "Sequence[Need]", only: Sequence[str] | None) -> "list[Need]":
    names = [need.name for need in needs]
    if unknown := sorted(set(only or ()) - set(names)):
        raise typer.BadParameter(
            f"{', '.join(unknown)}: there is only {', '.join(names)}", param_hint="--for"
        )
    return [need for need in needs if not only or need.name in only]


def _show(output: Output, needs: "Sequence[Need]", users: Mapping[str, str], host: str) -> None:
    for need in needs:
        output.line(
            f"{need.name}: {need.what}, as {users[need.name]}{'' if host == '*' else f' from {host}'}"
        )
        output.table(
            ["right", "on", "name", "why"],
            [(acl.right.operation, acl.right.resource, _name(acl.right), acl.why) for acl in need.acls],
        )
        output.line()
    output.line(
        "Each list is complete by itself, but for what is needed besides. Read, Write and Alter bring Describe along."
    )
    output.line(f"{_OLD}.")


def _name(right: "Right") -> str:
    return f"{right.name}… (prefixed)" if right.is_prefix else right.name


def kafka_acls(
    needs: "Sequence[Need]", users: Mapping[str, str], host: str, bootstrap_servers: str
) -> Iterator[str]:
    """Gives the lines of a shell script that grants all of `needs`, one command a resource."""
    yield "# An administrator's login is expected in admin.properties."
    yield f"# {_OLD}."
    begin = ["kafka-acls.sh", "--bootstrap-server", bootstrap_servers, "--command-config", "admin.properties"]
    for need in needs:
        yield f"# {need.name}: {need.what}"
        who = ["--add", "--allow-principal", users[need.name], "--allow-host", host]
        for resource, rights in _by_resource(need).items():
            operations = [part for right in rights for part in ("--operation", str(right.operation))]
            yield shlex.join([*begin, *who, *operations, *resource])


def _by_resource(need: "Need") -> "dict[tuple[str, ...], list[Right]]":
    rights: dict[tuple[str, ...], list[Right]] = {}
    for acl in need.acls:
        option = f"--{acl.right.resource}"
        resource = (option,) if option == "--cluster" else (option, acl.right.name)
        how = ("--resource-pattern-type", "prefixed") if acl.right.is_prefix else ()
        rights.setdefault((*resource, *how), []).append(acl.right)
    return rights


def _as_json(needs: "Sequence[Need]", users: Mapping[str, str], host: str, group: str) -> dict[str, Any]:
    return {
        "group": group,
        "needs": [
            {
                "for": need.name,
                "commands": need.what,
                "principal": users[need.name],
                "acls": [
                    {
                        "operation": acl.right.operation,
                        "resource": acl.right.resource,
                        "name": acl.right.name,
                        "pattern": "prefixed" if acl.right.is_prefix else "literal",
                        "permission": "Allow",
                        "host": host,
                        "why": acl.why,
                    }
                    for acl in need.acls
                ],
            }
            for need in needs
        ],
    }
