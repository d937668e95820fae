"""
Chaos on real brokers, judged record by record: `scripts/chaos --brokers 3 --minutes 10`. Ends with 1 where a promise was broken.

With one broker (the default) only workers are killed, every few seconds one of three, and what is judged is order by key: no
record may have overtaken another one of its key, none may be lost, each repetition must be explained by a kill.

With three brokers everything goes wrong: workers are killed, frozen and replaced, brokers killed and started again, the network
is cut, held and slow, topics are altered; 10 % of the records fail for a time, 1 % for good, 0.1 % can't be read, and one
kills its process. Judged besides: where each record went, by what the topics hold; whether dead letters are those
that were to be expected; whether each repetition is explained by what became of the
process that did it before. `--mode`: `held`, `parked`, `exactly-once`.

The folder with the ledger and all logs is told, and stays where something was found. `--plant NAME`: with a fault of
`tests/planted/` in the workers, which must be found.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from redrive import __version__
from tests.broker import Broker, version_of_kafka
from tests.chaos import three_brokers
from tests.chaos.key_order import Verdict
from tests.chaos.kills import run_under_kills
from tests.chaos.ordered_service import COMMIT_INTERVAL_MS, KEYS, PARTITIONS, OrderedService
from tests.chaos.shop import MODES
from tests.planted.planting import planted_copy
from tests.planted.plants import PLANTS
from tests.planted.promises import PROMISES


def tell(line: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {line}", file=sys.stderr, flush=True)


def basics(what: str, asked: argparse.Namespace, verdict: Verdict) -> dict[str, Any]:
    """What every report tells: what was done, on what, and what was found."""
    return {
        "what": what,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"scripts/chaos {' '.join(sys.argv[1:])}",
        "minutes": asked.minutes,
        "seed": asked.seed,
        "versions": {
            "redrive": __version__,
            "python": platform.python_version(),
            "confluent-kafka": confluent_kafka.__version__,
            "librdkafka": confluent_kafka.libversion()[0],
            "kafka": version_of_kafka(),
        },
        "machine": f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "violations": verdict.violations,
        "lost": verdict.counts["violations: lost"],
        "found": dict(verdict.found),
        "counts": dict(sorted(verdict.counts.items())),
    }


def on_one_broker(asked: argparse.Namespace, folder: Path) -> tuple[Verdict, dict[str, Any]]:
    broker = Broker(folder / "kafka")
    broker.start()
    try:
        settings = {"group_protocol": asked.protocol} if asked.protocol else {}
        service = OrderedService(broker.bootstrap, folder, asked.seed, **settings)

        def told(left_s: float) -> None:
            tell(f"{left_s:.0f} s to go: {service.ledger.count():,} notes, {len(service.kills)} kills")

        verdict = run_under_kills(
            service, asked.minutes * 60, rate=asked.rate, seed=asked.seed, pause_s=(4, 14), told=told
        )
        early = len(service.ledger.early())
    finally:
        broker.kill()
    return verdict, {
        **basics("order by key under random SIGKILLs of three workers, blocking='key'", asked, verdict),
        "records_per_second": asked.rate,
        "settings": {"commit_interval_ms": COMMIT_INTERVAL_MS, "partitions": 2 * PARTITIONS, "keys": 2 * KEYS}
        | ({"group_protocol": asked.protocol} if asked.protocol else {}),
        "oldest_repeat_ms": round(verdict.oldest_repeat_ms),
        "runs_early": early,
    }


def on_three_brokers(asked: argparse.Namespace, folder: Path) -> tuple[Verdict, dict[str, Any]]:
    if asked.plant:
        copy = planted_copy((PLANTS | PROMISES)[asked.plant], folder / "planted")
        os.environ["PYTHONPATH"] = str(copy.parent)
    result = three_brokers.run(
        folder,
        mode=asked.mode,
        seed=asked.seed,
        seconds=asked.minutes * 60,
        records=asked.records or int(asked.minutes * 60 * 300),
        partitions=asked.partitions,
        pause_s=(asked.pause[0], asked.pause[1]),
        told=tell,
    )
    return result.verdict, _report_of(result, asked)


def _report_of(result: three_brokers.Result, asked: argparse.Namespace) -> dict[str, Any]:
    verdict, began_ms = result.verdict, result.began_ms
    counts = verdict.counts
    return {
        **basics("faults at random: three workers, three brokers (replication 3, min ISR 2)", asked, verdict),
        "mode": asked.mode,
        "planted": asked.plant,
        "records": result.sent,
        "settings": {"commit_interval_ms": COMMIT_INTERVAL_MS, "partitions": 3 * asked.partitions},
        "out_of_order": sum(counts[f"violations: {kind}"] for kind in three_brokers.OUT_OF_ORDER),
        "routes_twice": sum(
            count
            for name, count in counts.items()
            if name.startswith("repeated: ") and name != "repeated: run"
        ),
        "repeated_runs": counts["runs of what was through"]
        + counts["attempts again after a kill"]
        + counts["repeated: run"],
        "oldest_repeat_ms": round(verdict.oldest_repeat_ms),
        "longest_stall_s": _stall(result.stall, began_ms),
        "longest_stall_of_a_partition_s": _stall(result.stall_of_one, began_ms),
        "done_after_the_last_fault_s": round(result.calm_s, 1),
        "memory_of_the_judge_mb": result.memory_mb,
        "faults_by_kind": dict(sorted(Counter(fault.kind for fault in result.faults).items())),
        "faults": [
            [fault.kind, fault.whom, *(round((at_ms - began_ms) / 1000, 1) for at_ms in fault[2:4])]
            for fault in result.faults
        ],
    }


def _stall(stall: three_brokers.Stall, began_ms: float) -> dict[str, Any]:
    return {
        "seconds": round(stall.seconds, 1),
        "from": round((stall.from_ms - began_ms) / 1000, 1),
        "in": stall.place,
    }


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1, help="chooses keys, failures, moments and victims")
    parser.add_argument("--report", "--json", type=Path, help="write the report here too")
    one = parser.add_argument_group("with one broker")
    one.add_argument("--rate", type=float, default=600.0, help="records a second; default 600")
    one.add_argument("--protocol", choices=("consumer", "classic"), default="", help="of the group")
    three = parser.add_argument_group("with three brokers")
    three.add_argument("--records", type=int, help="in all, evenly over the minutes; default 300 a second")
    three.add_argument("--mode", choices=MODES, default="held")
    three.add_argument("--partitions", type=int, default=6, help="of each of the three sources")
    three.add_argument(
        "--pause", type=float, nargs=2, default=(1.0, 5.0), help="between faults, in seconds: least, most"
    )
    three.add_argument("--plant", choices=(*PLANTS, *PROMISES), default="", metavar="NAME")
    return parser.parse_args()


def main() -> int:
    """Run it on brokers of its own, and write the report."""
    asked = _asked()
    folder = Path(tempfile.mkdtemp(prefix="redrive-chaos-"))
    verdict, report = (on_one_broker if asked.brokers == 1 else on_three_brokers)(asked, folder)
    text = json.dumps(report, indent=1)
    if asked.report:
        asked.report.write_text(text + "\n")
    print(text)
    if verdict.violations:
        tell(f"{verdict.violations} violations; ledger and logs: {folder}")
        return 1
    shutil.rmtree(folder)
    tell("no violation")
    return 0


if __name__ == "__main__":
    sys.exit(main())
