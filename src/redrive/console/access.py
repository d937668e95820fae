"""
Who may ask: pure rules over what a request says of itself.

A browser on the operator's machine also runs pages of strangers. They can make it send requests here, but without the
token: it goes in a header that no other site's page may set, and never in a cookie or a URL. The two checks before it
(`Host`, `Origin`) shut out what a page could still try: to call this server by a name of its own, which then resolves to
this machine (DNS rebinding), and to ask across origins.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote, unquote_plus

import msgspec

from redrive.console.problems import Problem

REALM = "redrive"
#: Names under which tokens are put into URLs; there they end up in histories, logs and proxies.
_TOKEN_NAMES = frozenset(
    {"token", "access_token", "auth_token", "api_key", "apikey", "auth", "authorization", "bearer", "secret"}
)


class Credential(msgspec.Struct, frozen=True):
    """What lets somebody in. `name`: who is said to have done what was asked with it. Shown without the token."""

    name: str
    token: str

    def __repr__(self) -> str:
        return f"Credential(name={self.name!r}, token='**********')"

    def is_in(self, text: str) -> bool:
        """Whether the token stands in a text."""
        return self.token in text

    def admits(self, token: str) -> bool:
        """Whether this is the token. Takes as long for any other one, however much of it is right."""
        return hmac.compare_digest(_digest(token), _digest(self.token))


class Asked(NamedTuple):
    """What a request says of itself before its body. Header names in lower case, each with all its values."""

    method: str
    path: str
    query: str
    headers: Mapping[str, Sequence[str]]


class Gate(NamedTuple):
    """
    `hosts`: the names by which this server may be called, None for any: behind a proxy it can't know them, and a stranger's
    page has no token there either.
    """

    credential: Credential
    hosts: frozenset[str] | None

    def require(self, asked: Asked) -> str:
        """Gives who asks. Raises Problem for whoever may not."""
        self.require_name(asked)
        self._require_same_site(asked)
        self._require_clean_url(asked)
        said = asked.headers.get("authorization", ())
        if not said:
            raise _unauthorized(
                "send the token of this console as a header: Authorization: Bearer …", challenge=""
            )
        scheme, _, token = said[0].strip().partition(" ")
        if len(said) > 1 or scheme.lower() != "bearer" or not self.credential.admits(token.strip()):
            raise _unauthorized(
                "that is not the token of this console. It is its setting console.token; without one it is made anew at each "
                "start and printed then",
                challenge=', error="invalid_token"',
            )
        return self.credential.name

    def require_name(self, asked: Asked) -> None:
        """Raises Problem for what calls this server by a name that isn't its own."""
        host = next(iter(asked.headers.get("host", ())), "")
        if self.hosts is not None and host_name(host) not in self.hosts:
            raise Problem(
                421,
                "this console serves this machine only and is not called by that name; call it by "
                f"{' or '.join(sorted(self.hosts))}",
                denied=True,
            )

    def _require_same_site(self, asked: Asked) -> None:
        host = next(iter(asked.headers.get("host", ())), "")
        origins = asked.headers.get("origin", ())
        sites = asked.headers.get("sec-fetch-site", ())
        if any(origin.partition("://")[2].lower() != host.lower() for origin in origins) or any(
            site not in {"same-origin", "none"} for site in sites
        ):
            raise Problem(403, "requests from pages of other sites are refused", denied=True)

    def _require_clean_url(self, asked: Asked) -> None:
        url = f"{asked.path}?{asked.query}"
        names = {unquote_plus(part.partition("=")[0]).lower() for part in asked.query.split("&")}
        if names & _TOKEN_NAMES or any(map(self.credential.is_in, (url, unquote(url), unquote_plus(url)))):
            raise Problem(
                400,
                "a token doesn't belong in a URL: it stays in histories, in logs and with proxies. Send it as a header, "
                "Authorization: Bearer …, and if that was the real one, replace it",
                denied=True,
            )


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0].removeprefix("[")
    return name.rpartition(":")[0] if ":" in name else name


def is_loopback(address: str) -> bool:
    """Whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _unauthorized(detail: str, *, challenge: str) -> Problem:
    told = f'Bearer realm="{REALM}"{challenge}'
    return Problem(401, detail, denied=True, headers=(("WWW-Authenticate", told),))
