"""A Spring Boot service with `@RetryableTopic`, as a process: `spring/Shop.java`, built with what Maven brings."""

import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

from tests.broker import ROOT

SOURCES = Path(__file__).with_name("spring")
BUILD = ROOT / ".kafka" / "spring"
#: What the build depends on: made anew when one of them changes.
_INPUTS = ("pom.xml", "Shop.java")
_ANSWER_S = 60.0


class NoSpring(Exception):
    """It can't be had on this machine; the text says why."""


class Run(NamedTuple):
    """One run of a handler, as the service tells it. `due_ms` 0: the record said none."""

    what: str
    topic: str
    attempt: int
    due_ms: int
    now_ms: int
    value: str


def build() -> Path:
    """The folder with `lib/` and `classes/`, made by Maven and the compiler when it isn't there yet."""
    missing = [tool for tool in ("java", "javac") if shutil.which(tool) is None]
    wanted = "".join((SOURCES / name).read_text("utf-8") for name in _INPUTS)
    stamp = BUILD / "stamp"
    is_built = stamp.exists() and stamp.read_text("utf-8") == wanted
    if not is_built and shutil.which("mvn") is None:
        missing.append("mvn")
    if missing:
        raise NoSpring(f"a Spring service needs Java 17 and Maven; not found on PATH: {', '.join(missing)}")
    if not is_built:
        fresh = BUILD.with_name(f"spring-{os.getpid()}")
        shutil.rmtree(fresh, ignore_errors=True)
        goal = [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={fresh / 'lib'}",
            "-DincludeScope=runtime",
        ]
        _done(["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), *goal])
        compiled = ["-d", str(fresh / "classes"), str(SOURCES / "Shop.java")]
        _done(["javac", "-parameters", "-cp", f"{fresh / 'lib'}/*", *compiled])
        (fresh / "stamp").write_text(wanted, "utf-8")
        shutil.rmtree(BUILD, ignore_errors=True)
        fresh.rename(BUILD)
    return BUILD


def _done(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise NoSpring(f"{' '.join(command[:6])} … failed:\n{result.stdout}{result.stderr}")


class SpringShop:
    """
    The service, whose consumers run only between `start` and `stop`. `runs`: what it has told so far; `version` what it is.

    `topic` is retried after `delay_ms` and twice that, through a topic each; `fixed` twice after `delay_ms`, through one.
    """

    def __init__(self, bootstrap: str, *, topic: str, fixed: str, group: str, delay_ms: int) -> None:
        built = build()
        options = {
            "spring.kafka.bootstrap-servers": bootstrap,
            "shop.topic": topic,
            "shop.fixed": fixed,
            "shop.group": group,
            "shop.delay": delay_ms,
        }
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self._process = subprocess.Popen(
            [
                *java,
                "-cp",
                f"{built / 'classes'}{os.pathsep}{built / 'lib'}/*",
                "shop.Shop",
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.runs: list[Run] = []
        self._said: list[str] = []
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.version = self._await("READY").partition("\t")[2]

    def start(self) -> None:
        """Let its consumers run."""
        self._ask("start")

    def stop(self) -> None:
        """End its consumers in order: they commit and leave their groups."""
        self._ask("stop")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait(30)
        self._listener.join(30)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ask(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._await(word.upper())

    def _await(self, wanted: str) -> str:
        try:
            answer = self._answers.get(timeout=_ANSWER_S)
        except queue.Empty:
            answer = "nothing"
        assert answer.startswith(wanted), f"{answer} instead of {wanted}; it said:\n" + "\n".join(
            self._said[-40:]
        )
        return answer

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            what, *rest = line.rstrip("\n").split("\t")
            if what in {"RUN", "DEAD"}:
                topic, attempt, due_ms, now_ms, value = rest
                self.runs.append(Run(what, topic, int(attempt), int(due_ms), int(now_ms), value))
            elif what in {"READY", "START", "STOP"}:
                self._answers.put(line.rstrip("\n"))
            else:
                self._said.append(line.rstrip("\n"))
        self._answers.put("its end")
