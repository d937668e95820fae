"""Who asked for what, from where, and what came of it: a log line for each, allowed or not."""

import re
from collections.abc import Callable

from redrive.console.access import Credential
from redrive.core.commands import Report

#: What is known of a path before anybody was let in: anything else isn't written down, it could be anything.
_PATH = re.compile(r"/api/v1/dlq(?:/([A-Za-z0-9._-]{1,249})(?:/(replay|discard|[0-9]{1,10}/[0-9]{1,19}))?)?")
_METHOD = re.compile(r"[A-Z]{1,10}")


def action_of(method: str, path: str) -> str:
    """Gives in words what a request is about."""
    verb = method if _METHOD.fullmatch(method) else "?"
    matched = _PATH.fullmatch(path)
    if matched is None:
        return f"{verb} of an unknown path"
    topic, what = matched.groups()
    if topic is None:
        return f"{verb} of the overview"
    if what is None:
        return f"{verb} of {topic}"
    return f"{verb} of {topic}/{what}"


class Audit:
    """Writes the lines by `tell`. The token is in none of them, whatever somebody put it into."""

    def __init__(self, tell: Callable[[Report], None], credential: Credential) -> None:
        self._tell = tell
        self._token = credential.token

    def allowed(self, who: str, place: str, action: str, outcome: str) -> None:
        """Somebody who may asked for it. `place`: where from; `outcome`: what came of it."""
        fields = {"who": who, "place": place, "action": action, "outcome": outcome}
        self._tell(Report("console-allowed", self._without_token(fields)))

    def denied(self, place: str, action: str, why: str) -> None:
        """Somebody who may not."""
        # One stream for each address: the port is another one each time.
        fields = {"place": place, "address": place.rpartition(":")[0], "action": action, "why": why}
        self._tell(Report("console-denied", self._without_token(fields)))

    def _without_token(self, fields: dict[str, str]) -> dict[str, str]:
        return {name: value.replace(self._token, "**********") for name, value in fields.items()}
