"""A shop on a broker that lets nobody in without a login, and users each of whom has all the rights for something but one."""

from typer.testing import CliRunner

from redrive import App, Record, RetryPolicy
from redrive.cli.main import app as redrive
from redrive.core.acls import needs_of
from redrive.core.dialects import with_envelope
from redrive.core.settings import Settings
from redrive.runtime.planning import plan_group, wanted_topics
from tests.deadletters.desks import envelope
from tests.kafka.secured import password_of
from tests.plain_kafka import Given, send

GROUP, SOURCE = "payments", "orders"
SERVICE = """
from redrive import App, RetryPolicy

app = App({group!r})


@app.listener({source!r}, retry=RetryPolicy("100ms"))
def charge(value: bytes) -> None: ...
"""


class Shop:
    """A service that fails each record until the gateway is there. `handled`: values and attempts."""

    def __init__(self, group=GROUP, source=SOURCE, **settings):
        self.app = App(group, settings={"commit_interval": "100ms", **settings})
        self.handled = []
        self.gateway = False

        @self.app.listener(source, retry=RetryPolicy("100ms"))
        def charge(value: bytes, record: Record) -> None:
            self.handled.append((value, record.attempt, record.is_replay))
            if not self.gateway:
                raise ConnectionError


def rights_of(group=GROUP, source=SOURCE, **settings):
    """What each need of a shop is, before anything exists."""
    resolved, settings = (
        Shop(group, source).app.resolve(),
        Settings(bootstrap_servers="nowhere:1", replication=1, **settings),
    )
    plan, wanted = plan_group(resolved, settings, ()), wanted_topics(resolved, settings, ())
    needs = needs_of(plan, wanted, asks_protocols=True)
    return {need.name: [acl.right for acl in need.acls] for need in needs}


RIGHTS = rights_of()


class Stage:
    """A secured broker with the shop's topics, made by somebody with exactly the rights for that."""

    def __init__(self, secured, folder):
        self.secured, self.folder = secured, folder
        self._users = {}
        self._modules = 0

    def user_without(self, need, lacking):
        return self._users[need, lacking]

    def grant_all(self):
        """A user for each case, all granted at once: each grant takes the broker a moment."""
        self._users = {
            (need, lacking): self.secured.user() for need, ones in RIGHTS.items() for lacking in [*ones, None]
        }
        self.secured.grant(
            {
                user: [right for right in RIGHTS[need] if right != lacking]
                for (need, lacking), user in self._users.items()
            }
        )

    def command(self, user, *arguments, group=GROUP, source=SOURCE, app=True):
        """Exit code, and all that was said."""
        self._modules += 1
        (self.folder / f"shop_{self._modules}.py").write_text(SERVICE.format(group=group, source=source))
        target = {"REDRIVE_APP": f"shop_{self._modules}:app"} if app else {}
        result = CliRunner().invoke(
            redrive,
            [*arguments, *(["--app-dir", str(self.folder)] if app else [])],
            env={**self.secured.environment(user), "REDRIVE_REPLICATION": "1", **target},
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert password_of(user) not in result.output
        return result.exit_code, result.output

    def shop(self, user, **login):
        return Shop(bootstrap_servers=self.secured.bootstrap, kafka=self.secured.login(user, **login))

    def letter(self, value=b"{}"):
        """A dead letter, as the shop would put it aside."""
        said = envelope(0, group=GROUP, source_topic=SOURCE, replay_topic=f"{SOURCE}.retry.100ms")
        send(self.secured.open, f"{SOURCE}.dlq", [Given(value, b"key", with_envelope((), said))])
