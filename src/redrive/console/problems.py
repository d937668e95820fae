"""What goes wrong, as HTTP tells it: one problem, as `application/problem+json` (RFC 9457)."""

from http import HTTPStatus

import msgspec

from redrive.errors import PortError, RedriveError, ReplayRefused, TopologyError

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """
    Raised to end a request. `detail`: what is wrong and what to do, for whoever asked. `headers`: sent along.

    `denied`: whether it tells that somebody may not, and not that something can't be.
    """

    def __init__(
        self, status: int, detail: str, *, denied: bool = False, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(status, detail)
        self.status = HTTPStatus(status)
        self.detail = detail
        self.denied = denied
        self.headers = headers

    def body(self) -> bytes:
        """The answer's body. `type` is left out: that means that the status says it all."""
        values = {"title": self.status.phrase, "status": int(self.status), "detail": self.detail}
        return msgspec.json.encode(values)


def problem_of(error: RedriveError) -> Problem:
    """Gives what an error of redrive's means to whoever asked over HTTP."""
    if isinstance(error, PortError):
        return Problem(503, f"Kafka: {error}", headers=(("Retry-After", "5"),))
    if isinstance(error, (ReplayRefused, TopologyError)):
        return Problem(409, str(error))
    return Problem(500, str(error))
