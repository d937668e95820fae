"""
Why Kafka can't be reached, told from what was seen: plain connections tried by us, errors told by the client.

What a plain connection finds decides first: the client says "broker transport failure" to a wrong port, a firewall and
a forgotten TLS alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Answer(StrEnum):
    """What a plain TCP connection to an address found."""

    OPEN = "open"
    REFUSED = "refused"
    SILENT = "silent"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Seen:
    """One address (`host:port`) as a plain connection found it. `speaks_tls`: it answers a TLS greeting as TLS does."""

    address: str
    answer: Answer
    speaks_tls: bool = False


class Complaint(StrEnum):
    """What an error of the client is about, by its code."""

    LOGIN = "login"
    TLS = "tls"
    OTHER = "other"


class Cause(StrEnum):
    """Why no connection comes about."""

    REFUSED = "refused"
    SILENT = "silent"
    UNRESOLVED = "unresolved"
    TLS_EXPECTED = "tls expected"
    TLS_UNKNOWN = "tls unknown"
    TLS_FAILED = "tls failed"
    LOGIN = "login"
    ADVERTISED = "advertised"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Trouble:
    """
    Why Kafka can't be reached; `text` says it to the operator, with what to do, and names no secret.

    `prevents_start`: False where only a part of the cluster is away, so that work can begin.
    """

    cause: Cause
    text: str
    prevents_start: bool = True


def explain_bootstrap(
    seen: Sequence[Seen], *, protocol: str, complaints: Iterable[tuple[Complaint, str]]
) -> Trouble:
    """
    Gives why no bootstrap server answers.

    `seen`: each of them, at least one. `protocol`: the client's `security.protocol`. `complaints`: what the client
    said meanwhile, oldest first; its last word on a matter is the one that is told.
    """
    said = dict(complaints)
    open_ones = [one for one in seen if one.answer is Answer.OPEN]
    if not open_ones:
        return _no_connection(seen)
    address = open_ones[0].address
    wants_tls = protocol.upper() in {"SSL", "SASL_SSL"}
    if wants_tls and not any(one.speaks_tls for one in open_ones):
        return Trouble(
            Cause.TLS_UNKNOWN,
            f"{address} doesn't speak TLS, but kafka.security.protocol is {protocol}: it is a plaintext port. "
            f"Give the port of the TLS listener, or set kafka.security.protocol to {_without_tls(protocol)}.",
        )
    if not wants_tls and all(one.speaks_tls for one in open_ones):
        return Trouble(
            Cause.TLS_EXPECTED,
            f"{address} speaks TLS, but kafka.security.protocol is {protocol}. "
            f"Set kafka.security.protocol to {_with_tls(protocol)} (REDRIVE_KAFKA__SECURITY_PROTOCOL), "
            "or give the port of the plaintext listener.",
        )
    if Complaint.LOGIN in said:
        return Trouble(
            Cause.LOGIN,
            f"{address} refuses the login: {said[Complaint.LOGIN]}. "
            "Check kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password.",
        )
    if Complaint.TLS in said:
        return Trouble(
            Cause.TLS_FAILED,
            f"no TLS connection to {address}: {said[Complaint.TLS]}. "
            "Check kafka.ssl.ca.location (whom to trust) and that the certificate names this host.",
        )
    return _no_kafka(address, protocol, said.get(Complaint.OTHER, ""))


def explain_advertised(bootstrap: str, brokers: Sequence[Seen]) -> Trouble | None:
    """
    Gives which brokers can't be reached although a bootstrap server answers, None when all can.

    `brokers`: all of the cluster, at the addresses that it advertises.
    """
    away = [one for one in brokers if one.answer is not Answer.OPEN]
    if not away:
        return None
    all_away = len(away) == len(brokers)
    shown = ", ".join(f"{one.address} ({_MEANING[one.answer]})" for one in away)
    return Trouble(
        Cause.ADVERTISED,
        f"{bootstrap} answers, but the cluster says {'its brokers are' if all_away else 'some of its brokers are'} at "
        f"{shown}, and they can't be reached there from this machine. Set advertised.listeners of the brokers to "
        "addresses that work from here; in containers that is usually one listener for the containers and one for the "
        "host.",
        prevents_start=all_away,
    )


_MEANING = {
    Answer.REFUSED: "connection refused",
    Answer.SILENT: "no answer",
    Answer.UNRESOLVED: "unknown host name",
    Answer.OPEN: "reachable",
}


def _no_connection(seen: Sequence[Seen]) -> Trouble:
    shown = ", ".join(one.address for one in seen)
    answers = {one.answer for one in seen}
    if answers == {Answer.UNRESOLVED}:
        return Trouble(
            Cause.UNRESOLVED,
            f"the name of {shown} is unknown: no address is found for it. "
            "Check bootstrap_servers for a typing error, and this machine's DNS.",
        )
    if answers == {Answer.REFUSED}:
        return Trouble(
            Cause.REFUSED,
            f"nothing listens at {shown}: the connection is refused. "
            "Is the broker running, and is that its host and port (bootstrap_servers)?",
        )
    if answers == {Answer.SILENT}:
        return Trouble(
            Cause.SILENT,
            f"{shown} doesn't answer at all: usually a firewall, a network policy or a wrong address. "
            "Check bootstrap_servers, and that this machine may connect there.",
        )
    each = ", ".join(f"{one.address} ({_MEANING[one.answer]})" for one in seen)
    return Trouble(
        Cause.REFUSED, f"no bootstrap server can be reached: {each}. Check bootstrap_servers and the brokers."
    )


def _no_kafka(address: str, protocol: str, said: str) -> Trouble:
    client = f" The client says: {said}." if said else ""
    login = (
        ""
        if protocol.upper().startswith("SASL")
        else f" It may want a login (kafka.security.protocol is {protocol}), or not be a Kafka broker."
    )
    return Trouble(
        Cause.OTHER, f"{address} accepts connections, but doesn't answer as a Kafka broker.{login}{client}"
    )


def _with_tls(protocol: str) -> str:
    return "SASL_SSL" if protocol.upper().startswith("SASL") else "SSL"


def _without_tls(protocol: str) -> str:
    return "SASL_PLAINTEXT" if protocol.upper().startswith("SASL") else "PLAINTEXT"
