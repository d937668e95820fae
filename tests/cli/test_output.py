"""How commands speak, and the exit codes they end with."""

import json
import os
import subprocess
import sys

import pytest
import typer

from redrive.cli.output import Output, reporting
from redrive.core.exit_codes import ExitCode
from redrive.errors import PortError, SettingsError


def test_a_table_is_columns_of_text_where_no_terminal_is(capsys):
    Output().table(["topic", "n"], [("orders", 4), ("orders.retry.5s", 12), ("", "")])

    assert capsys.readouterr().out.splitlines() == [
        "TOPIC            N",
        "orders           4",
        "orders.retry.5s  12",
        "",
    ]


def test_a_table_is_drawn_on_a_terminal_and_takes_no_markup_from_its_cells():
    ours, theirs = os.openpty()
    code = "from redrive.cli.output import Output; Output().table(['topic'], [('[red]orders',)])"
    subprocess.run(
        [sys.executable, "-c", code], stdout=theirs, check=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)

    shown = os.read(ours, 1000).decode()
    os.close(ours)
    assert "\x1b[1m" in shown
    assert "[red]orders" in shown


def test_control_characters_do_not_reach_the_terminal(capsys):
    output = Output()
    output.line("a\x1b[2Jb")
    output.table(["x"], [("\x07[red]",)])

    assert capsys.readouterr().out == "a\\x1b[2Jb\nX\n\\x07[red]\n"


def test_json_is_one_object_and_nothing_else_on_stdout(capsys):
    output = Output(as_json=True)
    output.line("for people")
    output.table(["topic"], [("orders",)])
    output.note("meanwhile")
    output.result({"topics": ["orders"]})

    said = capsys.readouterr()
    assert json.loads(said.out) == {"topics": ["orders"]}
    assert said.err == "meanwhile\n"


def test_an_error_is_told_without_a_traceback_and_ends_with_1(capsys):
    with pytest.raises(typer.Exit) as ended, reporting():
        raise PortError("nothing listens at kafka:9092")

    assert ended.value.exit_code == ExitCode.FAILED
    assert capsys.readouterr().err == "nothing listens at kafka:9092\n"


def test_an_error_is_an_object_too_where_json_was_asked_for(capsys):
    with pytest.raises(typer.Exit), reporting(as_json=True):
        raise SettingsError([("http", "no address"), ("replication", "no number")])

    assert json.loads(capsys.readouterr().out) == {
        "error": "2 problems:\n  http: no address\n  replication: no number",
        "problems": [{"where": "http", "what": "no address"}, {"where": "replication", "what": "no number"}],
    }


def test_what_the_users_module_prints_does_not_mix_with_the_object(capsys):
    with reporting(as_json=True) as output:
        sys.stdout.write("hello from service.py\n")
        output.result({"topics": []})

    said = capsys.readouterr()
    assert (said.out, said.err) == ('{"topics": []}\n', "hello from service.py\n")


def test_ctrl_c_ends_with_130(capsys):
    with pytest.raises(typer.Exit) as ended, reporting():
        raise KeyboardInterrupt

    assert ended.value.exit_code == ExitCode.INTERRUPTED


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), reporting():
        raise ZeroDivisionError
