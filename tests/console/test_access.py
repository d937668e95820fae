"""Who is let in, and who isn't."""

import pytest

from redrive.console.access import Asked, Credential, Gate, host_name, is_loopback
from redrive.console.problems import Problem

TOKEN = "0123456789abcdef-token"
GATE = Gate(Credential("oncall", TOKEN), frozenset({"localhost", "127.0.0.1", "::1"}))


def _asked(path="/api/v1/dlq", query="", **headers):
    said = {"host": ["127.0.0.1:9601"], "authorization": [f"Bearer {TOKEN}"]}
    return Asked(
        "GET", path, query, {**said, **{name.replace("_", "-"): value for name, value in headers.items()}}
    )


def _refusal(asked, gate=GATE):
    with pytest.raises(Problem) as raised:
        gate.require(asked)
    assert raised.value.denied
    return raised.value


@pytest.mark.parametrize("said", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN} "])
def test_whoever_has_the_token_is_called_by_its_name(said):
    assert GATE.require(_asked(authorization=[said])) == "oncall"


@pytest.mark.parametrize(
    "said",
    [
        [],
        [""],
        ["Bearer"],
        ["Bearer "],
        [TOKEN],
        [f"Basic {TOKEN}"],
        [f"Bearer {TOKEN}x"],
        [f"Bearer {TOKEN[:-1]}"],
        [f"Bearer {TOKEN.upper()}"],
        [f"Bearer {TOKEN} {TOKEN}"],
        ["Bearer \xff\udcff"],
        [f"Bearer {TOKEN}", f"Bearer {TOKEN}"],
        ["Bearer other-token-0123456789", f"Bearer {TOKEN}"],
    ],
)
def test_nobody_else_is_let_in(said):
    refusal = _refusal(_asked(authorization=said))
    assert (refusal.status, dict(refusal.headers)["WWW-Authenticate"][:6]) == (401, "Bearer")
    assert TOKEN not in refusal.detail


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/v1/dlq", f"token={TOKEN}"),
        ("/api/v1/dlq", "token=an-old-one"),
        ("/api/v1/dlq", "access_token=an-old-one"),
        ("/api/v1/dlq", "limit=5&Access%5FToken=an-old-one"),
        ("/api/v1/dlq", f"limit={TOKEN}"),
        ("/api/v1/dlq", "x=" + TOKEN.replace("-", "%2D")),
        (f"/api/v1/dlq/{TOKEN}", ""),
    ],
)
def test_a_token_in_a_url_is_refused_even_beside_the_right_header(path, query):
    refusal = _refusal(_asked(path, query))
    assert (refusal.status, "doesn't belong in a URL" in refusal.detail) == (400, True)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9601", "127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:9601", "[::1]"]
)
def test_on_loopback_it_is_called_by_loopback_names(host):
    assert GATE.require(_asked(host=[host])) == "oncall"


@pytest.mark.parametrize(
    "host", ["evil.example:9601", "127.0.0.1.evil.example", "localhost.evil.example", "", "0.0.0.0:9601"]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(host):
    assert _refusal(_asked(host=[host])).status == 421


def test_elsewhere_any_name_goes_since_a_proxy_has_its_own():
    open_gate = GATE._replace(hosts=None)
    assert open_gate.require(_asked(host=["console.example"])) == "oncall"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ["http://evil.example"]},
        {"origin": ["null"]},
        {"origin": ["http://127.0.0.1:9602"]},
        {"origin": [""]},
        {"origin": ["http://127.0.0.1:9601", "http://evil.example"]},
        {"sec_fetch_site": ["cross-site"]},
        {"sec_fetch_site": ["same-site"]},
    ],
)
def test_pages_of_other_sites_are_refused(headers):
    assert _refusal(_asked(**headers)).status == 403


def test_a_link_from_anywhere_leads_to_the_page():
    GATE.require_name(_asked("/", sec_fetch_site=["cross-site"], authorization=[]))


def test_its_own_page_and_no_page_at_all_are_not_other_sites():
    assert GATE.require(_asked(origin=["http://127.0.0.1:9601"], sec_fetch_site=["same-origin"])) == "oncall"
    assert GATE.require(_asked(sec_fetch_site=["none"])) == "oncall"


def test_a_credential_is_shown_without_its_token():
    assert TOKEN not in f"{GATE} {GATE.credential!r} {GATE.credential}"


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:1", "a"), ("A", "a"), ("[::1]:1", "::1"), ("[::1]", "::1"), ("", ""), (" a:1 ", "a")],
)
def test_the_name_in_a_host_header(host, name):
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost", False),
    ],
)
def test_loopback_is_told_by_the_address_and_not_by_a_name(address, told):
    assert is_loopback(address) is told
