"""A console over a simulated cluster with dead letters in it, and somebody who asks it."""

from contextlib import contextmanager

from starlette.testclient import TestClient

from redrive.console.access import Credential, Gate
from redrive.console.api import Api, Limits
from redrive.console.clerk import Clerk
from redrive.console.memory import Memory
from redrive.deadletters.counter import Counter
from redrive.deadletters.topics import Names
from redrive.runtime.reporting import Reporter
from redrive.sim.clock import VirtualClock
from tests.deadletters.desks import Office

TOKEN = "a-token-of-these-tests-4711"
DLQ = "/api/v1/dlq/orders.dlq"


class Room:
    """
    `office` has the letters; `get` and `post` ask with the token, `client` without it. `log` wraps the log of the console
    only.
    """

    def __init__(self, office, client):
        self.office = office
        self.client = client

    def get(self, path, **more):
        return self.client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}, **more)

    def post(self, path, body=None, *, key=None, **headers):
        sent = {"Authorization": f"Bearer {TOKEN}", **({"Idempotency-Key": key} if key else {}), **headers}
        return self.client.post(path, headers=sent, json=body)

    def replay(self, query="", body=None, **more):
        answer = self.post(f"{DLQ}/replay{query}", body, **more)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def room(
    *,
    office=None,
    log=lambda log: log,
    limits=None,
    groups=frozenset(),
    topics=None,
    hosts=frozenset({"127.0.0.1"}),
):
    office = office or Office()
    clerk = Clerk(Counter(office.desk_with(log), Names(), groups), topics)
    gate = Gate(Credential("oncall", TOKEN), hosts)
    api = Api(clerk, gate, Memory(office.cluster.clock), Reporter(VirtualClock()), limits or Limits())
    with TestClient(api.asgi, base_url="http://127.0.0.1:9601", client=("127.0.0.9", 50000)) as client:
        yield Room(office, client)


def problem(answer):
    """What a problem says, once it was seen that it is one."""
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert (told["status"], set(told)) == (answer.status_code, {"title", "status", "detail"})
    return answer.status_code, told["detail"]
