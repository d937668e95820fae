"""`scripts/kafka start | stop | run | status`: the real broker by hand."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.broker import ROOT, Broker, BrokerError, answers


def main() -> int:
    """Do what the command line says; 0 done (for `status`: it runs), 1 not."""
    arguments = _arguments()
    broker = Broker(arguments.data, port=arguments.port, quick_rebalances=not arguments.default_rebalances)
    try:
        return {"start": start, "stop": stop, "run": run, "status": status}[arguments.verb](broker)
    except BrokerError as error:
        print(f"kafka: {error}", file=sys.stderr)
        return 1


def start(broker: Broker) -> int:
    """Start it in the background, unless one answers there already."""
    if not answers(broker.bootstrap):
        broker.start(dies_with_us=False)
        (broker.data / "broker.pid").write_text(str(broker.pid))
    return status(broker)


def run(broker: Broker) -> int:
    """Run it in the foreground until Ctrl-C, its log on the terminal."""
    command = broker.command()
    print(f"kafka: {broker.bootstrap}, data in {broker.data}; Ctrl-C stops it", flush=True)
    os.execvp(command[0], command)


def stop(broker: Broker) -> int:
    """Stop the one that `start` started on this data folder, by its process; after 30 s without mercy."""
    pid_file = broker.data / "broker.pid"
    pid = int(pid_file.read_text()) if pid_file.exists() else 0
    give_up = time.monotonic() + 30
    while pid and _is_broker(pid):
        os.kill(pid, signal.SIGTERM if time.monotonic() < give_up else signal.SIGKILL)
        time.sleep(0.1)
    pid_file.unlink(missing_ok=True)
    print("kafka: stopped" if pid else "kafka: none was started here")
    return 0


def status(broker: Broker) -> int:
    """Tell whether one answers at this port."""
    runs = answers(broker.bootstrap)
    print(f"kafka: {broker.bootstrap} {'answers' if runs else 'does not answer'}; log: {broker.log}")
    return 0 if runs else 1


def _is_broker(pid: int) -> bool:
    """Whether this process runs and is a broker: after a restart of the machine the number may be another's."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "args="], capture_output=True, text=True, check=False)
    return "kafka.Kafka" in shown.stdout


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/kafka", description=__doc__)
    parser.add_argument("verb", choices=["start", "stop", "run", "status"])
    port = int(os.environ.get("REDRIVE_KAFKA_PORT", "29092"))
    parser.add_argument(
        "--port", type=int, default=port, help="REDRIVE_KAFKA_PORT; its controller takes the next one"
    )
    data = Path(os.environ.get("REDRIVE_KAFKA_DATA", ROOT / ".kafka" / "data"))
    parser.add_argument("--data", type=Path, default=data, help="REDRIVE_KAFKA_DATA; kept between starts")
    parser.add_argument(
        "--default-rebalances", action="store_true", help="the broker's own timings for groups"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
