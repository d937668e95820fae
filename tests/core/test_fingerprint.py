"""Fingerprints: one for failures of one cause, whatever differs from record to record."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.core.fingerprint import fingerprint, without_ids
from redrive.core.stack import Place, place_of
from tests.core.lookalikes import caught

CHARGE = Place("shop.service", "charge")

identifiers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: f"{d:f}"),
    st.uuids().map(str),
    st.uuids().map(lambda u: str(u).upper()),
    st.binary(min_size=4, max_size=32).map(bytes.hex),
    st.integers(0).map(hex),
    st.text(st.characters(exclude_characters="'")).map(lambda t: f"'{t}'"),
    st.text(st.characters(exclude_characters='"')).map(lambda t: f'"{t}"'),
    st.ip_addresses(v=4).map(str),
    st.from_regex(r"[A-Za-z]{0,3}[0-9][A-Za-z0-9]{0,8}", fullmatch=True),
)


@pytest.mark.parametrize(
    "template",
    ["order {} is unknown", "{}: no such card", "card={}", "no stock for {} in {}", "item ({}) [{}] can't be booked; it's {}",
     "/orders/{}/lines/{}", "user_{} failed", "ORD-{}", "{}", "<{}>, {}!"],
)  # fmt: skip
@given(st.lists(identifiers, min_size=6, max_size=6))
@example(["5", "-5", "1e-05", "550e8400-e29b-41d4-a716-446655440000", "deadbeefdeadbeef", "'it'"])
def test_messages_that_differ_in_ids_only_fall_in_one_group(template, ids):
    one, other = template.format(*ids[:3]), template.format(*ids[3:])
    assert fingerprint("transient", "shop.Error", one) == fingerprint("transient", "shop.Error", other)


def test_messages_that_say_different_things_fall_in_different_groups():
    messages = ["card is blocked", "card is unknown", "no stock", "can't book", "can't charge", ""]
    assert len({fingerprint("permanent", "shop.Error", message) for message in messages}) == len(messages)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("can't find the user's card", "can't find the user's card"),
        ("unknown card 'visa' of \"Ann O'Hara\"", "unknown card # of #"),
        (
            "Expected `int`, got `str` - at `$.lines[3].total`",
            "Expected `int`, got `str` - at `$.lines[#].total`",
        ),
        ("took 1.5 s, 1,000 rows, -5 °C, 1e-05", "took # s, # rows, # °C, #"),
        ("at 2024-01-31T10:00:00.123Z from 10.0.0.1:9092", "at #-#-# from #"),
        ("ORD-17 and user_8 and v2", "ORD-# and user_# and #"),
        ("several\n  lines\tand   spaces", "several lines and spaces"),
        ("a decade of facades", "a decade of facades"),
    ],
)
def test_what_is_replaced_and_what_is_kept(message, expected):
    assert without_ids(message) == expected


@given(st.text(), st.text())
def test_with_a_place_the_message_does_not_matter(one, other):
    assert fingerprint("transient", "shop.Error", one, CHARGE) == fingerprint(
        "transient", "shop.Error", other, CHARGE
    )


def test_kind_type_module_and_function_matter():
    found = {
        fingerprint("transient", "shop.Error", "", CHARGE),
        fingerprint("permanent", "shop.Error", "", CHARGE),
        fingerprint("transient", "shop.Other", "", CHARGE),
        fingerprint("transient", "shop.Error", "", Place("shop.other", "charge")),
        fingerprint("transient", "shop.Error", "", Place("shop.service", "refund")),
        fingerprint("transient", "shop.Error", "", None),
        fingerprint("transient", "shop.Error", "shop.service\0charge", None),
    }
    assert len(found) == 7


def test_version_one_stays_what_it_is():
    """Letters written by an older release must keep their group: a change here needs a new version."""
    assert fingerprint("permanent", "TypeError", "", CHARGE) == "v1-9b4327071815"
    assert fingerprint("poison", "msgspec.ValidationError", "Expected `int`, got 5") == "v1-5f53a6815459"


@given(st.text(), st.text(), st.text(), st.none() | st.builds(Place, st.text(), st.text()))
def test_a_fingerprint_is_short_and_fit_for_headers_and_addresses(kind, name, message, place):
    assert re.fullmatch(r"v1-[0-9a-f]{12}", fingerprint(kind, name, message, place))


@given(st.text(st.characters(exclude_categories=[])))
def test_any_message_is_normalised_to_a_short_line(message):
    said = without_ids(message)
    assert len(said) <= 128
    assert said == " ".join(said.split())


@pytest.mark.parametrize(
    "unit", ["a", "1", "'", '"', "'a", "-", "a1.", "1e-", "f", "deadbeef-", "\x00", "é1", " "]
)
def test_long_messages_take_linear_time(unit):
    """Quadratic matching would take minutes here."""
    without_ids(unit * 200_000)


def test_comprehensions_have_the_place_of_their_function():
    """From Python 3.12 on they have no frame of their own, so an upgrade must not regroup."""

    def total(lines):
        return [line["price"] for line in lines]

    here = place_of(caught(total, [{}]))
    inlined = Place(here.module, here.function.replace(".<locals>.<listcomp>", ""))
    assert inlined.function.endswith("total")
    assert fingerprint("permanent", "KeyError", "", here) == fingerprint("permanent", "KeyError", "", inlined)


# --- the place ---------------------------------------------------------------------------------------------------------

SITE = "/usr/lib/python3.11/site-packages/"


def function_in(module, path, inner=None):
    """A function as if it were written in this module and file; it calls the inner one, or raises."""
    namespace = {"__name__": module, "inner": inner}
    exec(compile(f"def run():\n    {'inner()' if inner else '1 / 0'}", path, "exec"), namespace)
    return namespace["run"]


def place_under(outermost):
    """Where the exception that this function raises has its place, this test's own frames left out."""
    exc = caught(outermost)
    return place_of(exc.with_traceback(exc.__traceback__.tb_next))


def test_the_place_is_the_innermost_function_of_the_application():
    parser = function_in("json.decoder", "/usr/lib/python3.11/json/decoder.py")
    driver = function_in("driver.wire", SITE + "driver/wire.py", parser)
    repository = function_in("shop.repository", "/app/shop/repository.py", driver)
    service = function_in("shop.service", "/app/shop/service.py", repository)
    runner = function_in("redrive.runtime.executors", "/app/redrive/runtime/executors.py", service)
    assert place_under(runner) == Place("shop.repository", "run")


def test_an_application_that_is_installed_is_the_package_of_the_outermost_frame():
    """As in a container image that was built with pip."""
    driver = function_in("driver.wire", SITE + "driver/wire.py")
    repository = function_in("shop.repository", SITE + "shop/repository.py", driver)
    service = function_in("shop.service", SITE + "shop/service.py", repository)
    runner = function_in("redrive.runtime.executors", SITE + "redrive/runtime/executors.py", service)
    assert place_under(runner) == Place("shop.repository", "run")


def test_the_standard_library_and_redrive_are_no_places():
    parser = function_in("json.decoder", "/usr/lib/python3.11/json/decoder.py")
    assert place_under(function_in("redrive.core.decode", "/app/redrive/core/decode.py", parser)) is None


def test_an_exception_that_was_never_raised_has_no_place():
    assert place_of(ValueError()) is None
