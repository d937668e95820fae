"""How dead letters are told, where the telling is the hard part."""

import pytest

from redrive.cli.dlq_view import show_counts, when, whoami
from redrive.cli.output import Output
from redrive.deadletters.accounts import job_name
from redrive.deadletters.summary import Row


@pytest.mark.parametrize(
    ("ms", "told"),
    [
        (None, "-"),
        (0, "1970-01-01 00:00:00Z"),
        (1_800_000_000_000, "2027-01-15 08:00:00Z"),
        (-1, "1969-12-31 23:59:59Z"),
        (2**62, f"{2**62} ms"),
        (-(2**62), f"{-(2**62)} ms"),
    ],
)
def test_any_timestamp_of_a_record_can_be_told(ms, told):
    assert when(ms) == told


def test_two_jobs_of_one_moment_have_names_of_their_own():
    names = {job_name("replay", 1_800_000_000_000) for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("replay-20270115-080000-") for name in names)


def test_who_does_it_is_told_with_the_machine():
    user, at, host = whoami().partition("@")
    assert (bool(user), at, bool(host)) == (True, "@", True)


def test_a_header_of_any_length_and_kind_spoils_no_table(capsys):
    row = Row(
        "orders.dlq",
        "\x1b[31m" + "x" * 500,
        "",
        "g\n" * 3,
        letters=3,
        unresolved=2,
        unknown=1,
        first_ms=0,
        last_ms=0,
    )
    show_counts(Output(), [row], ["orders.dlq"])
    shown = capsys.readouterr().out
    assert ("\x1b" in shown, "\\x1b[31m" in shown, "2 (1 unknown)" in shown) == (
        False,
        True,
        True,
    )
    assert max(map(len, shown.splitlines())) < 250


def test_a_users_name_that_is_not_utf8_can_be_written_all_the_same(monkeypatch):
    monkeypatch.setenv("LOGNAME", "j\udcfcrg")
    assert whoami().startswith("j?rg@")
