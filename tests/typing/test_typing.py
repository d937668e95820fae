"""Both checkers accept what is right and reject what is wrong: `rejected.py` marks each line that must be an error."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

CHECKERS = {
    # strict, and with it a mark without an error is one
    "mypy": ["mypy", "--strict", *map(str, sorted(HERE.glob("*ed.py")))],
    # its configuration there doesn't take mypy's marks for its own
    "pyright": ["pyright", "--project", str(HERE)],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_accepts_and_rejects_what_it_should(checker: str) -> None:
    checked = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=ROOT,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    about_these = [
        line for line in checked.stdout.splitlines() if f"tests{os.sep}typing{os.sep}" in line and ":" in line
    ]

    assert about_these == []
    assert "error" not in checked.stderr
    assert any(text in checked.stdout for text in ("Success", "0 errors", "checked 2 source files")), (
        checked.stdout
    )
