"""The plugin costs a test run nothing until its fixture is used."""

import subprocess
import sys


def test_the_plugin_alone_loads_neither_the_harness_nor_a_client():
    code = "import sys, redrive.testing_plugin; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    heavy = (
        "redrive.testing.",
        "redrive.sim",
        "redrive.deadletters.replay",
        "confluent_kafka",
        "pydantic",
        "asyncio.runners",
    )
    assert [name for name in loaded if name.startswith(heavy) or name == "redrive.testing"] == []
