"""What the how-to pages show works as it is shown."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
_BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _files(page: str) -> dict[str, str]:
    """The page's code by file name; blocks that don't begin with one are no files."""
    return dict(_BLOCK.findall((PAGES / page).read_text("utf-8")))


@pytest.mark.parametrize("page", ["act-on-dead-letters.md", "test-your-listeners.md"])
def test_the_tests_on_a_page_pass(page, tmp_path):
    files = _files(page)
    for name, code in files.items():
        (tmp_path / name).write_text(code, "utf-8")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "-rA"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    shown = sum(code.count("def test_") for code in files.values())
    assert f"{shown} passed" in ended.stdout
