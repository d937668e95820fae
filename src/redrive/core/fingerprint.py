"""
Fingerprints: dead letters with one cause share one, so that 40,000 of them are three rows to a person.

The version is part of it: a later way of grouping must not mix with letters that were written before.
"""

import hashlib
import re

from redrive.core.stack import Place

VERSION = "v1"

_DIGITS = 12
# Enough to tell messages apart; what comes later is mostly quoted data, cut at a place that depends on its length.
_MESSAGE_CHARACTERS = 128

# From the most to the least specific. Words are matched from their start only, so the time stays linear.
_IDS = re.compile(
    r"""
    (?<! [^\W_] ) (?:                                   # not within a word; the apostrophe of "can't" is no quote
        ' [^']* ' (?! \w )  |  " [^"]* "                                            # quoted
      | [0-9a-fA-F]{8} - (?: [0-9a-fA-F]{4} - ){3} [0-9a-fA-F]{12} (?! [^\W_] )     # a UUID
      | [-+]? (?: [0-9a-fA-F]{8,} (?! [^\W_] ) | [^\W\d_]* \d [^\W_]* )             # a hash, or a word with a digit,
        (?: [.,:] [^\W\d_]* \d [^\W_]* )* (?: (?<= [eE] ) [-+] \d+ )?               # its decimals, its exponent
    )
    """,
    re.VERBOSE,
)


def fingerprint(kind: str, type_name: str, message: str, place: Place | None = None) -> str:
    """
    `v1-` and twelve hexadecimal digits, the same in every process and release of the application.

    Made of kind, type and the innermost function of the application, whatever the message says. Without a `place`
    (poison; an exception that was never raised) of kind, type and the message without what looks like data.
    """
    where = (
        ("at", place.module, _written_function(place.function)) if place else ("says", without_ids(message))
    )
    material = "\0".join((VERSION, kind, type_name, *where))
    digest = hashlib.blake2b(material.encode("utf-8", "replace"), digest_size=_DIGITS // 2)
    return f"{VERSION}-{digest.hexdigest()}"


def without_ids(message: str) -> str:
    """
    The message with `#` for what differs from record to record, and single spaces.

    That is: quoted text (but not `in backticks`: those hold names of the code), UUIDs, hexadecimal of eight digits or
    more, and every word with a digit in it, be it a number with its sign, point and exponent, a date, an address or an
    id such as `ORD-17` or `7f3c`.
    """
    return " ".join(_IDS.sub("#", message).split())[:_MESSAGE_CHARACTERS]


def _written_function(qualname: str) -> str:
    """The function as it was written: from Python 3.12 on comprehensions have no frames of their own."""
    return re.sub(r"\.<locals>\.<(?:list|set|dict)comp>", "", qualname)
