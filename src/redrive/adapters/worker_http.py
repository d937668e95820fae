"""Asks a process for what it is at, over its HTTP port (`http_probe.py` is the other end)."""

import http.client
from contextlib import closing

import msgspec

from redrive.core.inspection import WorkersSeen
from redrive.errors import PortError

#: A supervisor waits two seconds for its workers.
TIMEOUT_S = 5.0
#: Some thousands of partitions with all that is stuck in them.
MOST_BYTES = 64 << 20

_WHY = {
    401: "it has another http_token: give that of its process as REDRIVE_HTTP_TOKEN, or http_token in redrive.toml",
    404: "it tells nobody what it is at: set REDRIVE_HTTP_TOKEN for its process, and restart it",
}


def ask_workers(address: str, token: str, timeout_s: float = TIMEOUT_S) -> WorkersSeen:
    """
    Gives what the process at `host:port` is at, or all workers of the supervisor there. Raises PortError with the reason.

    No proxy is asked and no redirect followed: the token goes to that address and nowhere else.
    """
    host, _, port = address.rpartition(":")
    host = _reachable(host.removeprefix("[").removesuffix("]"))
    try:
        connection = http.client.HTTPConnection(host, int(port), timeout=timeout_s)
        with closing(connection):
            connection.request("GET", "/worker", headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise PortError(f"nothing answers at {address} as a worker does: {why}") from error
    if answer.status != http.client.OK:
        why = _WHY.get(answer.status, f"it answered {answer.status}")
        raise PortError(f"{address} tells nothing: {why}")
    try:
        return msgspec.json.decode(body, type=WorkersSeen)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PortError(
            f"what {address} tells can't be read: {error}; is it another version of redrive?"
        ) from error


def _reachable(host: str) -> str:
    """An address to serve at may stand for all that a machine has."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1"}.get(host, host)  # noqa: S104  it is asked, not served
