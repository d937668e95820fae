"""A source with dead letters on a real broker, and `redrive dlq` as it is typed for it."""

import json
from collections import Counter

from typer.testing import CliRunner

from redrive.cli.main import app
from redrive.core.dialects import with_envelope
from tests.deadletters.desks import envelope
from tests.plain_kafka import Given, create_topics, read_all, send, unique


class Shop:
    """A source with its tier and its dead-letter topic, of a test's own; and `redrive dlq` for it."""

    def __init__(self, bootstrap, *, partitions=2, **configs):
        self.bootstrap = bootstrap
        self.source = unique("orders")
        self.tier, self.dlq = f"{self.source}.retry.5s", f"{self.source}.dlq"
        create_topics(bootstrap, [self.source, self.tier], partitions)
        create_topics(bootstrap, [self.dlq], partitions, **configs)

    def letters(self, count, *, value=b'{"card":"4711"}', foreign=(), **said):
        """Put letters aside, as the engine would."""
        said = {"source_topic": self.source, "replay_topic": self.tier, **said}
        send(
            self.bootstrap,
            self.dlq,
            [
                Given(
                    value,
                    b"key-%d" % number,
                    with_envelope(foreign, envelope(number, source_partition=number % 2, **said)),
                    number % 2,
                )
                for number in range(count)
            ],
        )

    def __call__(self, verb, *arguments):
        """Exit code, the one JSON object, and what else was said."""
        result = CliRunner().invoke(
            app, ["dlq", verb, *arguments, "--json", "--bootstrap-servers", self.bootstrap]
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, json.loads(result.stdout) if result.stdout else {}, result.stderr

    def text(self, verb, *arguments):
        """What a person reads."""
        result = CliRunner().invoke(app, ["dlq", verb, *arguments, "--bootstrap-servers", self.bootstrap])
        return result.stdout.replace(self.source, "SOURCE")

    def copies(self):
        """How often each event was sent."""
        return Counter(seen.own["id"] for seen in read_all(self.bootstrap, self.tier))

    def states(self):
        """How many letters are in which state."""
        return Counter(letter["state"] for letter in self("ls", self.dlq, "--all")[1]["letters"])
