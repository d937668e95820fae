"""Everything at once on three brokers: processes, brokers and the network fail, and each record is accounted for."""

import os
from collections import Counter

import pytest

from tests.chaos import three_brokers
from tests.chaos.faults import AFTER_MS

SEED = int(os.environ.get("REDRIVE_TEST_SEED", "11"))
LONG = [pytest.param(mode, marks=pytest.mark.long) for mode in ("held", "parked")]


@pytest.mark.chaos
@pytest.mark.timeout(900)  # brokers start and workers finish as late as a busy machine lets them
@pytest.mark.parametrize("mode", ["exactly-once", *LONG])
def test_whatever_fails_nothing_is_lost_out_of_order_or_unexplained(
    broker_jars, tmp_path, mode, is_long, record_property
):
    seconds, records = (180, 30_000) if is_long else (60, 4_000)

    result = three_brokers.run(
        tmp_path,
        mode=mode,
        seed=SEED,
        seconds=seconds,
        records=records,
        partitions=3,
        pause_s=(1, 2.5),
        # With lost answers it took up to 238 s beside the suite until all was done.
        loses_answers=is_long,
        told=print,
    )

    assert result.verdict.found == {}
    assert result.verdict.counts["records"] == records
    assert result.verdict.counts["runs of killers"] > 0
    kinds = Counter(fault.kind for fault in result.faults)
    assert kinds.keys() >= AFTER_MS.keys() - {"mute"}
    record_property("told", f"{records:,} records, {dict(sorted(kinds.items()))}")
