"""What the client's errors say, in words that name the right or the setting that they are about."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from redrive.core.acls import Resource, Right, explain_lacking
from redrive.core.commands import Refusal
from redrive.errors import SettingsError

Client = TypeVar("Client")

_REFUSING = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: Resource.TOPIC,
    KafkaError.GROUP_AUTHORIZATION_FAILED: Resource.GROUP,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: Resource.CLUSTER,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Resource.TRANSACTIONAL_ID,
}
#: Of a record, of a batch, of what a commit says of a partition besides the offset.
_TOO_LARGE = frozenset(
    [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.OFFSET_METADATA_TOO_LARGE]
)
_NAMED = re.compile(r'property:? "?([a-z_]+(?:\.[a-z_]+)*)|^([a-z]+(?:\.[a-z]+)+)')
_MAKING = re.compile(r"^Failed to create [a-z ]+: ")
#: Under KIP-848 this ends a consumer; only its text tells what the fatal error is about.
_NO_MEMBER = "Group authorization failed"


def lacks(error: KafkaError, *rights: Right) -> str:
    """
    Gives what to add to an error's text: `: this user lacks the right …`, "" where it isn't about rights.

    `rights`: what was needed. Those on the kind of resource that refuses are named, or all where none is.
    """
    resource = _REFUSING.get(error.code())
    if error.code() == KafkaError._FATAL and _NO_MEMBER in error.str():
        resource = Resource.GROUP
    if resource is None or not rights:
        return ""
    return f": {explain_lacking([right for right in rights if right.resource is resource] or rights)}"


def told(error: KafkaError, *rights: Right) -> str:
    """Gives the name and the text of an error, and the right that is missing where it says so; see `lacks`."""
    return f"{error.name()}: {error.str()}{lacks(error, *rights)}"


def refusal_of(error: KafkaError, detail: str) -> Refusal:
    """Gives what the engine is told of a write or a commit that was refused with `error`, in the words of `detail`."""
    return Refusal("too-large" if error.code() in _TOO_LARGE else "unavailable", detail)


def made(client: Callable[[dict[str, Any]], Client], conf: Mapping[str, Any]) -> Client:
    """Makes a client. Raises SettingsError for what it doesn't take: it knows its settings and their values best."""
    try:
        return client(dict(conf))
    except KafkaException as error:
        text = _MAKING.sub("", error.args[0].str())
        named = _NAMED.search(text)
        raise SettingsError([(f"kafka.{named[1] or named[2]}" if named else "kafka", text)]) from None
