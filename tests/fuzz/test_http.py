"""Whatever comes over HTTP: an answer or a problem in words, never an error of ours."""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.adapters.served import TOKEN as WORKER_TOKEN
from tests.adapters.served import Served
from tests.console.rooms import DLQ, TOKEN, problem, room

PATHS = [
    f"{DLQ}/replay",
    f"{DLQ}/discard",
    DLQ,
    f"{DLQ}/0/0",
    "/api/v1/dlq",
    "/api/v1/retries",
    "/api/v1/workers",
]
#: What a problem may be; and 200 for what means something by chance.
REFUSALS = {400, 403, 404, 405, 409, 413, 415, 422}
fields = st.sampled_from(
    ["at", "reason", "type", "group", "event_id", "older_than", "limit", "again", "dry_run", "why"]
)
words = st.one_of(
    st.text(max_size=20), st.sampled_from(["orders.dlq/0/0", "-1", "1h", "9" * 400, "\x00", "true"])
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(fields | words, inner, max_size=4),
    max_leaves=8,
)
fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)


@pytest.fixture(scope="module")
def desk():
    with room() as opened:
        yield opened


def answered(answer):
    assert answer.status_code in REFUSALS | {200}, answer.text
    if answer.status_code != 200:
        problem(answer)


def send(desk, method, path, *, content=b"", **headers):
    sent = {"Authorization": f"Bearer {TOKEN}", **headers}
    return desk.client.request(method, path, headers=sent, content=content)


@fuzzed
@given(
    path=st.sampled_from(PATHS),
    body=st.binary(max_size=300),
    kind=st.sampled_from(["application/json", "text/plain", ""]),
)
@example(path=PATHS[0], body=b"[" * 100_000, kind="application/json")
@example(path=PATHS[0], body=b'{"at":' * 20_000, kind="application/json")
@example(path=PATHS[0], body=b'{"limit": ' + b"9" * 5_000 + b"}", kind="application/json")
def test_a_body_of_any_bytes(desk, path, body, kind):
    answered(send(desk, "POST", path, content=body, **({"Content-Type": kind} if kind else {})))


@fuzzed
@given(path=st.sampled_from(PATHS[:2]), body=anything)
def test_a_body_of_any_json(desk, path, body):
    answered(
        send(desk, "POST", path, content=json.dumps(body).encode(), **{"Content-Type": "application/json"})
    )


@fuzzed
@given(
    path=st.sampled_from(PATHS),
    query=st.lists(st.tuples(fields | words, words), max_size=5),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
)
def test_any_query(desk, path, query, method):
    answered(desk.client.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"}, params=query))


@pytest.fixture(scope="module")
def worker():
    served = Served()
    yield served
    served.probe.close()


def is_told(answer):
    """Whether it has a status that a worker's port may give, or nobody waits for one."""
    return not answer or int(answer.split()[1]) in {200, 400, 401, 404, 405, 414, 431, 501, 503, 505}


@fuzzed
@given(head=st.binary(max_size=300))
@example(head=b"GET " + b"/" * 9_000 + b" HTTP/1.1")
@example(head=b"GET /livez HTTP/" + b"9" * 5_000)
@example(head=b"GET /livez HTTP/1." + "²".encode())
def test_a_workers_port_takes_any_bytes(worker, caplog, head):
    assert is_told(worker.raw(head + b"\r\n\r\n"))
    assert caplog.messages == []


@fuzzed
@given(
    method=st.sampled_from(["GET", "HEAD", "POST"]) | words,
    path=st.sampled_from(["/livez", "/readyz", "/metrics", "/worker", ""]),
    query=words,
    headers=st.lists(
        st.tuples(st.sampled_from(["Authorization", "Accept", "Content-Length", "Expect"]) | words, words)
    ),
    token=st.sampled_from(["", WORKER_TOKEN, "Bearer"]) | words,
)
def test_a_workers_port_takes_any_request(worker, caplog, method, path, query, headers, token):
    lines = [f"{method} {path}?{query} HTTP/1.1", f"Authorization: Bearer {token}"]
    lines += [f"{name}: {value}" for name, value in headers]
    assert is_told(worker.raw("\r\n".join([*lines, "", ""]).encode(errors="surrogatepass")))
    assert caplog.messages == []
