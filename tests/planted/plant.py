"""What a planted fault is."""

from typing import NamedTuple


class Plant(NamedTuple):
    """
    A change of redrive's source, an exact text and what replaces it everywhere it stands in the file; and the tests that must
    find it. `says`: what these must show, so that they are red for this reason and no other.
    """

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    says: str
