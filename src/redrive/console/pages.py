"""
The one page that a browser gets: it holds no data, and asks the API for it with the token from its own address.

The token stands after the `#` of the printed address. Browsers don't send that part: it is in no log and no `Referer`.
The page takes it out of the address bar at once and keeps it in its memory only.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class Page(NamedTuple):
    """A file that is served as it is."""

    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...] = (("Content-Security-Policy", _CSP),)


def _page(name: str, content_type: str) -> Page:
    return Page(
        files("redrive.console").joinpath("static", name).read_bytes(), f"{content_type}; charset=utf-8"
    )


#: By path.
PAGES: Mapping[str, Page] = {
    "/": _page("console.html", "text/html"),
    "/console.js": _page("console.js", "text/javascript"),
    "/console.css": _page("console.css", "text/css"),
}
