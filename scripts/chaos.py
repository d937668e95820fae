"""
Order by key under random SIGKILLs: `scripts/chaos --minutes 10`.

Three workers of one group, under load all the time; every few seconds one of them is killed and started again. Records fail
at random, some for good, some can't be read. At the end everything that ran is judged by `tests/chaos/key_order.py`: no
record may have overtaken another one of its key, none may be lost, each repetition must be explained by a kill. Ends
with 1 where that isn't so. The folder with the ledger and the workers' logs is told, and stays.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from redrive import __version__
from tests.broker import Broker
from tests.chaos.key_order import Verdict
from tests.chaos.kills import run_under_kills
from tests.chaos.ordered_service import COMMIT_INTERVAL_MS, KEYS, PARTITIONS, OrderedService

PAUSE_S = (4, 14)


def report_of(verdict: Verdict, service: OrderedService, asked: argparse.Namespace) -> dict[str, Any]:
    """The result with what it was got on."""
    return {
        "what": "order by key under random SIGKILLs of three workers, blocking='key'",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "minutes": asked.minutes,
        "seed": asked.seed,
        "records_per_second": asked.rate,
        "settings": {"commit_interval_ms": COMMIT_INTERVAL_MS, "partitions": 2 * PARTITIONS, "keys": 2 * KEYS}
        | ({"group_protocol": asked.protocol} if asked.protocol else {}),
        "versions": {
            "redrive": __version__,
            "python": platform.python_version(),
            "confluent-kafka": confluent_kafka.__version__,
            "librdkafka": confluent_kafka.libversion()[0],
        },
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "violations": verdict.violations,
        "lost": verdict.counts["violations: lost"],
        "found": dict(verdict.found),
        "counts": dict(sorted(verdict.counts.items())),
        "oldest_repeat_ms": round(verdict.oldest_repeat_ms),
        "runs_early": len(service.ledger.early()),
    }


def main() -> int:
    """Run it on a broker of its own, and write the report."""
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="chooses keys, failures, moments and victims")
    parser.add_argument("--rate", type=float, default=600.0, help="records a second; default 600")
    parser.add_argument("--protocol", choices=("consumer", "classic"), default="", help="of the group")
    parser.add_argument("--json", type=Path, help="write the report here")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    broker = Broker(folder / "kafka")
    broker.start()
    try:
        settings = {"group_protocol": asked.protocol} if asked.protocol else {}
        service = OrderedService(broker.bootstrap, folder, asked.seed, **settings)

        def told(left_s: float) -> None:
            done = f"{service.ledger.count():,} notes, {len(service.kills)} kills"
            print(f"{left_s:.0f} s to go: {done}", file=sys.stderr, flush=True)

        verdict = run_under_kills(
            service, asked.minutes * 60, rate=asked.rate, seed=asked.seed, pause_s=(4, 14), told=told
        )
        report = report_of(verdict, service, asked)
    finally:
        broker.kill()
    text = json.dumps(report, indent=1)
    if asked.json:
        asked.json.write_text(text + "\n")
    print(text)
    print(f"ledger and logs: {folder}" if verdict.violations else "no violation", file=sys.stderr)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
