"""
Runs contestants interleaved, each in a process of its own, and prints medians and ratios.

    scripts/bench                            # everything, five repeats: about forty minutes
    scripts/bench --repeats 3 w1 w1-record   # some workloads
    scripts/bench --json results.json

The broker: BENCH_BOOTSTRAP, by default the one of `scripts/kafka start`. Read `README.md` before quoting a figure.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka

from benchmarks.workload import BOOTSTRAP, drop_topics, make_topic
from redrive import __version__


class Topic(NamedTuple):
    """What is handled: so many records, whose keys are spread like that. Kept between runs, or written while one is on."""

    name: str
    records: int
    spread: str = "own"
    is_kept: bool = True


class Contestant(NamedTuple):
    """
    `module` run with `workload` and these variables; `base`: the contestant that its ratio refers to.

    `bar`: what it has to reach: records/s; up to 1 a ratio to `base`, or, where it `is_of_limit`, a share of the limit that the
    workload tells.
    """

    module: str
    workload: str
    base: str = ""
    env: tuple[tuple[str, str], ...] = ()
    topic: Topic = Topic("bench-w1", 2_000_000)
    bar: float | None = None
    is_of_limit: bool = False


DEFAULTS = (("BENCH_TUNED", "0"),)
STEADY = Topic("bench-w3", 900, is_kept=False)
BY_KEY = Topic("bench-w4", 1_000_000, "even")
FEWER_BY_KEY = Topic("bench-w4-fewer", 100_000, "even")
ZIPF = Topic("bench-w5", 10_000, "zipf")
CONTESTANTS = {
    "bare-w1": Contestant("bare", "w1"),
    "bare-w1-default": Contestant("bare", "w1", "bare-w1", DEFAULTS),
    "w1": Contestant("contestant", "w1", "bare-w1", bar=0.75),
    "w1-record": Contestant("contestant", "w1-record", "bare-w1", bar=0.65),
    "bare-w1-async": Contestant("bare", "w1-async"),
    "w1-async": Contestant("contestant", "w1-async", "bare-w1-async", bar=0.75),
    "bare-w2": Contestant("bare", "w2"),
    "w2": Contestant("contestant", "w2", "bare-w2", bar=0.5),
    "w2-exactly-once": Contestant("contestant", "w2-exactly-once", "w2", bar=0.6),
    "bare-w3": Contestant("bare", "w3", topic=STEADY),
    "w3": Contestant("contestant", "w3", "bare-w3", topic=STEADY),
    "w4-quick": Contestant("contestant_by_key", "w4-quick", topic=BY_KEY, bar=150_000),
    "w4-quick-threads": Contestant("contestant_by_key", "w4-quick-threads", topic=BY_KEY, bar=150_000),
    "bare-w4": Contestant("bare_by_key", "w4", topic=BY_KEY),
    "w4": Contestant("contestant_by_key", "w4", "bare-w4", topic=BY_KEY, bar=55_000),
    "w4-retried": Contestant("contestant_by_key", "w4-retried", "w4", topic=BY_KEY, bar=0.85),
    "bare-w4-100": Contestant("bare_by_key", "w4-100", topic=FEWER_BY_KEY),
    "w4-100": Contestant("contestant_by_key", "w4-100", "bare-w4-100", topic=FEWER_BY_KEY, bar=9_000),
    "bare-w5": Contestant("bare_by_key", "w5", topic=ZIPF),
    "w5": Contestant("contestant_by_key", "w5", "bare-w5", topic=ZIPF, bar=0.9, is_of_limit=True),
}


def run_once(name: str) -> dict[str, Any]:
    """One run in a fresh process and a fresh group; CPU and memory are the whole process's."""
    contestant = CONTESTANTS[name]
    run = uuid.uuid4().hex[:8]
    topic, records, spread, is_kept = contestant.topic
    topic = topic if is_kept else f"{topic}-{run}"
    env = {
        **os.environ,
        "BENCH_RUN": run,
        "BENCH_TOPIC": topic,
        "BENCH_RECORDS": str(records),
        "BENCH_SPREAD": spread,
        **dict(contestant.env),
    }
    feeder = None
    if not is_kept:
        make_topic(topic)
        feeder = subprocess.Popen([sys.executable, "-m", "benchmarks.feed", "steady"], env=env)
    else:
        subprocess.run([sys.executable, "-m", "benchmarks.feed", "backlog"], env=env, check=True)
    command = [sys.executable, "-m", f"benchmarks.{contestant.module}", contestant.workload]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line for line in process.stdout or () if line.startswith("{")]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if feeder is not None:
        feeder.wait()
        drop_topics([topic])
    report = (
        json.loads(lines[-1]) if lines else {"error": f"ended with {process.returncode} and said nothing"}
    )
    cpu_s = usage.ru_utime + usage.ru_stime
    return {
        "name": name,
        **report,
        "cpu_us": round(cpu_s / records * 1e6, 2),
        "rss_mb": usage.ru_maxrss >> 10,
    }


def summarise(name: str, runs: list[dict[str, Any]], base_rate: float | None) -> dict[str, Any]:
    """Medians of one contestant's runs, and their ratio to the base's."""
    rates = [run["rate"] for run in runs if run.get("rate")]
    wrong = [run for run in runs if not run.get("is_right")]
    if not rates:
        return {"name": name, "error": runs[-1].get("error", "no result")}
    rate = statistics.median(rates)
    ratio = rate / base_rate if base_rate else None
    shares = [run["of_limit"] for run in runs if "of_limit" in run]
    of_limit = round(statistics.median(shares), 3) if shares else None
    contestant = CONTESTANTS[name]
    bar = contestant.bar
    reached = rate if bar and bar > 1 else of_limit if contestant.is_of_limit else ratio
    late = {
        key: {what: statistics.median(run[key][what] for run in runs if key in run) for what in runs[0][key]}
        for key in runs[0]
        if key.startswith("late_")
    }
    return {
        "name": name,
        "rate": rate,
        "rate_min": min(rates),
        "rate_max": max(rates),
        "ratio": round(ratio, 3) if ratio else None,
        "of_limit": of_limit,
        "bar": bar,
        "is_reached": reached >= bar if bar and reached is not None else None,
        "cpu_us": statistics.median(run["cpu_us"] for run in runs),
        "rss_mb": statistics.median(run["rss_mb"] for run in runs),
        "wrong_runs": len(wrong),
        **late,
    }


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        "?",
    )
    return {
        "redrive": __version__,
        "python": platform.python_version(),
        "confluent-kafka": confluent_kafka.__version__,
        "librdkafka": confluent_kafka.libversion()[0],
        "cpu": f"{os.cpu_count()} x {model}",
        "broker": BOOTSTRAP,
    }


def table(summaries: dict[str, dict[str, Any]]) -> str:
    """The results as Markdown."""
    lines = [
        "| workload | records/s, median (min to max) | ratio | of | bar | CPU us/record | RSS MB | lateness ms |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, one in summaries.items():
        if "error" in one:
            lines.append(f"| {name} | {one['error']} | | | | | | |")
            continue
        late = "; ".join(
            f"{key[5:-3]}: p50 {value['p50']:g}, p99 {value['p99']:g}, early {value['early']:g}"
            for key, value in one.items()
            if key.startswith("late_")
        )
        ratio = f"{one['ratio']:.2f}" if one["ratio"] else ""
        wrong = f" ({one['wrong_runs']} runs WRONG)" if one["wrong_runs"] else ""
        rates = f"{one['rate']:,.0f} ({one['rate_min']:,} to {one['rate_max']:,}){wrong}"
        base = CONTESTANTS[name].base
        lines.append(
            f"| {name} | {rates} | {ratio} | {base} | {_bar(one)} | {one['cpu_us']:g} | {one['rss_mb']:g} | {late} |"
        )
    return "\n".join(lines)


def _with_bases(asked: list[str]) -> list[str]:
    """These contestants, what they are compared with, and what that is compared with."""
    names = set(asked)
    while more := {CONTESTANTS[name].base for name in names} - names - {""}:
        names |= more
    return [name for name in CONTESTANTS if name in names]


def _bar(one: dict[str, Any]) -> str:
    """What was to be reached, and whether it was; with the share of the limit where there is one."""
    if one["is_reached"] is None:
        return ""
    reached = "reached" if one["is_reached"] else "MISSED"
    share = f"{one['of_limit']:.2f} of the limit, " if CONTESTANTS[one["name"]].is_of_limit else ""
    return f"{share}{one['bar']:,g} {reached}"


def main() -> None:
    """Interleave the repeats, so that a slow minute of the machine hits all contestants alike."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(CONTESTANTS)}; by default all"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every run and the summary here")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.workloads if name not in CONTESTANTS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(CONTESTANTS)}")
    names = _with_bases(arguments.workloads or list(CONTESTANTS))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for repeat in range(arguments.repeats):
        for name in names:
            result = run_once(name)
            runs[name].append(result)
            sys.stderr.write(f"{repeat + 1}/{arguments.repeats} {json.dumps(result)}\n")
    medians = {name: summarise(name, runs[name], None).get("rate") for name in names}
    summaries = {name: summarise(name, runs[name], medians.get(CONTESTANTS[name].base)) for name in names}
    if arguments.json:
        everything = {"machine": machine(), "summary": summaries, "runs": runs}
        arguments.json.write_text(json.dumps(everything, indent=1) + "\n")
    sys.stdout.write(
        f"{', '.join(f'{key} {value}' for key, value in machine().items())}\n\n{table(summaries)}\n"
    )


if __name__ == "__main__":
    main()
