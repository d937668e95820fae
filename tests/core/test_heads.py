"""What waits in a partition, beside a naive model: nothing runs before its due, or before a commit that had to tell it is confirmed."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from redrive.core.dialects import NO_ENVELOPE
from redrive.core.heads import Heads
from redrive.core.metadata import Head
from redrive.core.schedule import NEVER_MS

OFFSETS = st.integers(0, 7)
MOST = 4


class Waiting:
    """The model of one record that waits. `confirmed`: the attempt that a confirmed commit told of."""

    def __init__(self, head, *, must_tell):
        self.head, self.must_tell, self.is_told = head, must_tell, False


class Machine(RuleBasedStateMachine):
    """Records fail, die, are finished; commits are sent, and confirmed in their order or never."""

    @initialize(restored=st.dictionaries(OFFSETS, st.integers(0, 1), max_size=3))
    def begin(self, restored):
        self.now_ms = 1_000
        heads = {
            offset: Head.dead(self.now_ms) if is_dead else Head(1, self.now_ms + 5, self.now_ms)
            for offset, is_dead in restored.items()
        }
        self.heads = Heads(heads)
        self.model = {offset: Waiting(head, must_tell=head.is_dead) for offset, head in heads.items()}
        for waiting in self.model.values():
            waiting.is_told = True
        self.dying = set()
        self.sent = []

    @rule(offset=OFFSETS, wait_ms=st.integers(0, 20), must_tell=st.booleans())
    def a_record_fails(self, offset, wait_ms, must_tell):
        old = self.model.get(offset)
        if offset in self.dying or (old is not None and old.head.is_dead):
            return
        head = Head(1 if old is None else old.head.attempt + 1, self.now_ms + wait_ms, self.now_ms)
        self.heads.put(offset, head, NO_ENVELOPE, must_tell=must_tell)
        # Who once had to be told has to be ever after: its attempts count.
        self.model[offset] = Waiting(head, must_tell=must_tell or (old is not None and old.must_tell))

    @rule(offset=OFFSETS)
    def its_letter_is_on_its_way(self, offset):
        if offset not in self.model or not self.model[offset].head.is_dead:
            self.dying.add(offset)
            self.heads.dying.add(offset)

    @rule(offset=OFFSETS)
    def its_letter_is_written(self, offset):
        if offset in self.dying:
            self.dying.discard(offset)
            self.heads.died(offset, self.now_ms)
            self.model[offset] = Waiting(self.heads.get(offset), must_tell=True)

    @rule(offset=OFFSETS)
    def a_record_is_finished(self, offset):
        self.dying.discard(offset)
        self.model.pop(offset, None)
        self.heads.drop(offset)

    @rule(ms=st.integers(1, 10))
    def time_passes(self, ms):
        self.now_ms += ms

    @rule()
    def a_commit_is_sent(self):
        told = self.heads.told(MOST)
        assert len(told) <= MOST
        assert all(self.model[offset].head is head for offset, head in told.items())
        must = {offset for offset, waiting in self.model.items() if waiting.must_tell}
        assert told.keys() >= must or (len(told) == MOST and told.keys() <= must)
        dead = {offset for offset in must if self.model[offset].head.is_dead}
        assert told.keys() >= dead or told.keys() <= dead
        self.sent.append(told)

    @rule()
    def it_is_confirmed(self):
        if not self.sent:
            return
        told = self.sent.pop(0)
        self.heads.confirm(told)
        for offset, waiting in self.model.items():
            waiting.is_told = told.get(offset) is waiting.head

    @rule()
    def it_is_lost(self):
        if self.sent:
            self.sent.pop(0)

    @invariant()
    def each_waits_as_long_as_it_must(self):
        for offset in range(8):
            assert self.heads.wait_of(offset, self.now_ms) == self._wait_of(offset)

    def _wait_of(self, offset):
        waiting = self.model.get(offset)
        if offset in self.dying or (waiting is not None and waiting.head.is_dead):
            return NEVER_MS
        if waiting is None:
            return None
        if waiting.head.due_ms > self.now_ms:
            return waiting.head.due_ms
        return -1 if waiting.must_tell and not waiting.is_told else None

    @invariant()
    def it_has_those_that_wait(self):
        all_ = self.model.keys() | self.dying
        assert {offset for offset in range(8) if offset in self.heads} == all_
        assert (len(self.heads), bool(self.heads)) == (len(all_), bool(all_))
        assert {offset for offset in range(8) if self.heads.is_dead(offset)} == {
            offset for offset, waiting in self.model.items() if waiting.head.is_dead
        }

    @invariant()
    def what_is_written_changes_only_a_copy(self):
        before = self.heads.copy()
        written = self.heads.as_written(set(range(0, 8, 2)), self.now_ms)
        assert self.heads.copy() == before
        if before or self.dying:
            died = {offset for offset in range(0, 8, 2) if offset in self.dying}
            assert {offset for offset in range(8) if written.is_dead(offset)} == died | {
                offset for offset in range(1, 8, 2) if self.heads.is_dead(offset)
            }


Machine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
test_whatever_happens_heads_wait_as_the_model_says = Machine.TestCase
