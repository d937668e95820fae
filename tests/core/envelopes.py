"""Any envelope, and any headers."""

from hypothesis import strategies as st

from redrive.core.dialect_tables import FOREIGN
from redrive.core.dialects import MAX_INSTANT_MS, REDRIVE
from redrive.core.envelope import Envelope

INT32 = st.integers(0, 2**31 - 1)
INSTANT = st.integers(0, MAX_INSTANT_MS)
TEXT = st.text(st.characters(codec="utf-8"), max_size=200)

envelopes = st.builds(
    Envelope,
    group=TEXT,
    attempt=st.integers(0, 10_000),
    due_ms=st.none() | INSTANT,
    event_id=TEXT,
    source_topic=TEXT,
    source_partition=st.none() | INT32,
    source_offset=st.none() | st.integers(0, 2**63 - 1),
    source_timestamp_ms=st.none() | st.integers(-1, 2**63 - 1),
    first_failed_ms=st.none() | INSTANT,
    last_failed_ms=st.none() | INSTANT,
    failure_kind=TEXT,
    failure_type=TEXT,
    failure_message=TEXT,
    reason=TEXT,
    failure_stack=TEXT,
    fingerprint=TEXT,
    listener=TEXT,
    replay_topic=TEXT,
    holds=TEXT,
    replay_id=TEXT,
    replays=INT32,
    hops=INT32,
    frees=TEXT,
)

NAMES = [line.header for dialect in (REDRIVE, *FOREIGN.values()) for line in dialect.fields]
header_values = (
    st.none()
    | st.binary(max_size=40)
    | st.integers().map(lambda number: b"%d" % number)
    | st.integers(0, 2**63 - 1).map(lambda number: number.to_bytes(8))
    | st.integers(0, 2**31 - 1).map(lambda number: number.to_bytes(4))
)
any_headers = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, "redrive-dialects", "redrive-of-tomorrow"]) | st.text(max_size=20),
        header_values,
    ),
    max_size=30,
)
