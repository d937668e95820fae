"""Which writes share a transaction, and what becomes of them when it is aborted, against a broker that keeps accounts."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from redrive.core.commands import Produce, Refusal, Transaction
from redrive.core.plan import Now
from redrive.core.record import TopicPartition
from redrive.core.transactions import (
    MOST_UNITS,
    PAUSE_FIRST_MS,
    SHUN_FIRST_MS,
    UNEXPLAINED_MOST,
    Aborted,
    Completed,
    Transactions,
    Unit,
)

LINGER_MS = 5.0
_LARGE = Refusal("too-large", "the batch is too large")
_AWAY = Refusal("unavailable", "not authorised")


class _Token:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_large = False

    def __repr__(self) -> str:
        return self.name


def _unit(token: Any, *topics: str, alone: bool = False) -> Unit:
    return tuple(Produce(token, topic, 0, b"k", b"v", [], alone) for topic in topics or ("tier",))


def _transactions() -> Transactions:
    return Transactions(lambda token: token.is_alive, linger_ms=LINGER_MS)


class _At:
    """A clock, and the transactions begun by it."""

    def __init__(self) -> None:
        self.transactions = _transactions()
        self.ms = 1_000.0
        self.number = 0
        self.answers: list[tuple[Any, Refusal | None]] = []

    @property
    def now(self) -> Now:
        return Now(self.ms, self.ms)

    def put(self, *units: Unit) -> None:
        for unit in units:
            self.transactions.put(unit)

    def begin(self, *, after_ms: float = LINGER_MS) -> Transaction:
        self.transactions.choose(
            self.now, at_once=False
        ) if after_ms and not self.transactions.is_out else None
        self.ms += after_ms
        assert self.transactions.is_free(self.now)
        chosen, answers = self.transactions.choose(self.now, at_once=True)
        self.answers += answers
        self.number += 1
        return self.transactions.begin(self.number, chosen, {})

    def tokens(self, transaction: Transaction) -> list[Any]:
        return list(dict.fromkeys(write.token for write in transaction.writes))

    def end(self, outcome: Completed | Aborted) -> None:
        self.answers += self.transactions.answered(outcome, self.now)


def test_after_refused_offsets_the_next_transaction_waits_a_moment():
    at = _At()
    at.put(_unit(_Token("a")))
    begun = at.begin()
    at.end(Aborted(begun.number, "refused", offsets={TopicPartition("orders", 0): _LARGE}))
    free = [at.transactions.is_free(at.now)]
    at.ms += PAUSE_FIRST_MS
    assert [*free, at.transactions.is_free(at.now)] == [False, True]


def test_what_a_refused_commit_was_about_is_tried_with_what_came_since():
    at = _At()
    at.put(_unit(_Token("a")))
    begun = at.begin()
    at.put(_unit(_Token("b")))
    at.end(Aborted(begun.number, "refused", offsets={TopicPartition("orders", 0): _LARGE}))
    at.ms += PAUSE_FIRST_MS
    assert [write.token.name for write in at.begin(after_ms=0).writes] == ["a", "b"]


def test_where_that_is_too_much_for_one_transaction_it_does_not_go_first_for_ever():
    at = _At()
    last = _Token("last")
    at.put(*(_unit(_Token("before")) for _ in range(MOST_UNITS)), _unit(last))
    for _ in range(UNEXPLAINED_MOST):
        begun = at.begin(after_ms=0)
        assert last not in [write.token for write in begun.writes]
        at.end(Aborted(begun.number, "refused", offsets={TopicPartition("orders", 0): _LARGE}))
        at.ms += PAUSE_FIRST_MS
    assert at.begin(after_ms=0).writes[0].token is last


def test_a_unit_that_goes_alone_and_waits_for_a_fresh_one_leaves_it_its_turn():
    at = _At()
    alone, fresh = _Token("alone"), _Token("fresh")
    at.put(_unit(alone, alone=True))
    tried = []
    for tick in range(1_000):
        chosen, _ = at.transactions.choose(at.now)
        tried += [unit[0].token for unit in chosen]
        at.transactions.put_back(chosen, at.now)
        if tick == 10:
            at.put(_unit(fresh))
        at.ms += 1
    assert {alone, fresh} == set(tried)
    assert abs(tried.count(alone) - tried.count(fresh)) < 10


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("linger_ms", [0.0, LINGER_MS])
def test_what_no_commit_can_tell_of_is_tried_ten_times_a_second_and_then_at_once_again(is_alone, linger_ms):
    at = _At()
    at.transactions = Transactions(lambda _: True, linger_ms=linger_ms)
    at.put(_unit(_Token("waits"), alone=is_alone))
    tried = 0
    for _ in range(2_000):
        chosen, _ = at.transactions.choose(at.now)
        tried += len(chosen)
        at.transactions.put_back(chosen, at.now)
        at.ms += 1
    assert 20 <= tried <= 30
    chosen, _ = at.transactions.choose(at.now, at_once=True)
    at.transactions.begin(1, chosen, {})
    at.end(Completed(1))
    at.put(_unit(_Token("next")))
    at.transactions.choose(at.now)
    at.ms += linger_ms
    assert len(at.transactions.choose(at.now)[0]) == (1 if linger_ms else 0)


def test_after_an_abort_without_a_reason_all_is_written_in_its_order():
    at = _At()
    at.put(_unit(_Token("a1")))
    begun = at.begin()
    at.put(_unit(_Token("a2")))
    at.end(Aborted(begun.number, "the coordinator moves"))
    at.ms += PAUSE_FIRST_MS
    assert [write.token.name for write in at.begin(after_ms=0).writes] == ["a1", "a2"]


def _begun(at: _At) -> Transaction:
    at.number += 1
    chosen, answers = at.transactions.choose(at.now, at_once=True)
    at.answers += answers
    return at.transactions.begin(at.number, chosen, {})


def _named(at: _At, transaction: Transaction, refused: dict[Any, Refusal]) -> Aborted:
    writes = {
        place: refused[write.token]
        for place, write in enumerate(transaction.writes)
        if write.token in refused
    }
    return Aborted(transaction.number, "aborted", writes)


def test_one_that_goes_alone_and_can_not_be_told_of_yet_lets_others_by():
    at, single, fresh = _At(), _Token("single"), _Token("fresh")
    at.put(_unit(single, alone=True), _unit(fresh))
    turns = [at.transactions.choose(at.now, at_once=True)[0]]
    at.transactions.put_back(turns[0], at.now)
    turns.append(at.transactions.choose(at.now, at_once=True)[0])
    assert [unit[0].token for chosen in turns for unit in chosen] == [single, fresh]


def test_writes_of_one_moment_share_a_transaction_and_one_waits_a_little_for_others():
    at, one, other = _At(), _Token("one"), _Token("other")
    at.put(_unit(one))
    assert at.transactions.choose(at.now) == ([], [])
    at.ms += LINGER_MS - 1
    at.put(_unit(other))
    assert at.transactions.choose(at.now) == ([], [])
    at.ms += 1
    chosen, _ = at.transactions.choose(at.now)
    assert [unit[0].token for unit in chosen] == [one, other]


def test_many_writes_do_not_wait_and_fill_several_transactions():
    at = _At()
    at.put(*[_unit(_Token(str(number))) for number in range(MOST_UNITS + 1)])
    assert len(at.transactions.choose(at.now)[0]) == MOST_UNITS
    assert len(at.transactions.choose(at.now, at_once=True)[0]) == 1


def test_all_that_is_written_for_one_record_is_answered_once():
    at, token = _At(), _Token("one")
    at.put(_unit(token, "a", "b", "c"))
    transaction = _begun(at)
    assert [write.topic for write in transaction.writes] == ["a", "b", "c"]
    at.end(Completed(transaction.number))
    assert at.answers == [(token, None)]


def test_an_answer_to_an_older_transaction_is_none():
    at, token = _At(), _Token("one")
    at.put(_unit(token))
    transaction = _begun(at)
    at.end(Completed(transaction.number + 1))
    assert (at.answers, at.transactions.is_out) == ([], True)
    at.transactions.abandon()
    at.end(Completed(transaction.number))
    assert at.answers == []


def test_t_tx_4_an_aborted_transaction_is_sent_again_as_it_was_after_a_pause():
    at, tokens = _At(), [_Token("one"), _Token("other")]
    at.put(*map(_unit, tokens))
    first = _begun(at)
    at.end(Aborted(first.number, "coordinator not available"))
    assert at.transactions.is_free(at.now) is False
    at.ms += 60_000
    second = _begun(at)
    assert (second.writes, at.answers) == (first.writes, [])


def test_a_small_one_beside_a_large_one_that_was_refused_for_its_topic_is_not_judged_with_it():
    at, large, small = _At(), _Token("large"), _Token("small")
    at.put(_unit(large, "away"), _unit(small))
    begun = at.begin()
    at.end(_named(at, begun, {large: _AWAY, small: _LARGE}))
    assert at.answers == [(large, _AWAY)]
    assert at.tokens(_begun(at)) == [small]


def test_one_that_is_too_large_is_alone_after_a_few_transactions_and_all_others_are_committed():
    at = _At()
    tokens = [_Token(str(number)) for number in range(100)]
    at.put(*map(_unit, tokens))
    guilty, transactions = tokens[37], 0
    while len(at.answers) < len(tokens):
        transaction, transactions = _begun(at), transactions + 1
        batch = at.tokens(transaction)
        is_spoilt = guilty in batch
        at.end(
            _named(at, transaction, dict.fromkeys(batch, _LARGE))
            if is_spoilt
            else Completed(transaction.number)
        )
    assert dict(at.answers) == {token: _LARGE if token is guilty else None for token in tokens}
    assert transactions <= 16


def test_what_asks_to_go_alone_goes_alone_and_first():
    at, one, large = _At(), _Token("one"), _Token("large")
    at.put(_unit(one), _unit(large, alone=True))
    assert at.tokens(_begun(at)) == [large]


def test_a_topic_that_refuses_takes_no_other_down_and_is_tried_with_one_unit_only():
    at, good, lost = _At(), _Token("good"), _Token("lost")
    at.put(_unit(good, "good"), _unit(lost, "bad"))
    first = _begun(at)
    at.end(_named(at, first, {lost: _AWAY}))
    assert at.answers == [(lost, _AWAY)]
    second = _begun(at)
    assert at.tokens(second) == [good]
    at.end(Completed(second.number))

    later = [_Token(f"later {number}") for number in range(3)]
    at.put(*[_unit(token, "bad") for token in later])
    assert at.transactions.choose(at.now, at_once=True) == ([], [(token, _AWAY) for token in later])
    at.ms += SHUN_FIRST_MS
    at.put(*[_unit(token, "bad") for token in later], _unit(good, "good"))
    probe = _begun(at)
    assert at.tokens(probe) == [later[0]]
    at.end(Completed(probe.number))
    at.put(*[_unit(token, "bad") for token in later[1:]])
    assert at.tokens(_begun(at)) == [good, *later[1:]]


def test_the_probe_of_a_topic_whose_partition_goes_away_leaves_the_place_to_another():
    at, lost, gone, next_one = _At(), _Token("lost"), _Token("gone"), _Token("next")
    at.put(_unit(lost, "bad"))
    at.end(_named(at, _begun(at), {lost: _AWAY}))
    at.ms += SHUN_FIRST_MS
    gone.is_alive = False
    at.put(_unit(gone, "bad"))
    chosen, answers = at.transactions.choose(at.now, at_once=True)
    assert (chosen, [token for token, _ in answers]) == ([], [gone])
    at.put(_unit(next_one, "bad"))
    assert at.tokens(_begun(at)) == [next_one]


def test_one_unit_that_aborts_again_and_again_without_a_reason_is_refused_so_that_others_go_on():
    at, tokens = _At(), [_Token(str(number)) for number in range(8)]
    at.put(*map(_unit, tokens))
    for _ in range(100):
        at.ms += 60_000
        transaction = _begun(at)
        is_spoilt = tokens[3] in at.tokens(transaction)
        at.end(Aborted(transaction.number, "who knows") if is_spoilt else Completed(transaction.number))
        if len(at.answers) == len(tokens):
            break
    refused = {token: refusal for token, refusal in at.answers if refusal is not None}
    assert (len(at.answers), refused) == (len(tokens), {tokens[3]: Refusal("unavailable", "who knows")})
    assert UNEXPLAINED_MOST > 1


class AgainstABroker(RuleBasedStateMachine):
    """
    A broker that commits or aborts as it likes, and an engine that sends again what is refused. No unit is ever committed
    twice, or in part, or lost; what was aborted is in no account.
    """

    def __init__(self) -> None:
        super().__init__()
        self.transactions = _transactions()
        self.ms = 0.0
        self.number = 0
        self.out: Transaction | None = None
        self.waiting: dict[_Token, tuple[str, ...]] = {}
        self.refused: dict[_Token, tuple[str, ...]] = {}
        self.committed: Counter[_Token] = Counter()
        self.judged: set[_Token] = set()
        self.bad_topics: set[str] = set()

    @property
    def now(self) -> Now:
        return Now(self.ms, self.ms)

    def _take(self, answers: list[tuple[Any, Refusal | None]]) -> None:
        for token, refusal in answers:
            topics = self.waiting.pop(token)
            if refusal is None:
                assert self.committed[token] == len(topics), "answered as written, but it isn't there"
            elif not token.is_alive:
                pass
            elif refusal.kind == "too-large":
                assert token.is_large, "judged although it is small"
                self.judged.add(token)
            else:
                self.refused[token] = topics

    @rule(
        topics=st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
        is_large=st.booleans(),
        alone=st.booleans(),
    )
    def put(self, topics, is_large, alone):
        token = _Token(f"unit {self.ms} {len(self.waiting)}")
        token.is_large = is_large
        self.waiting[token] = tuple(topics)
        self.transactions.put(_unit(token, *topics, alone=alone))

    @rule()
    def send_refused_again(self):
        for token, topics in self.refused.items():
            self.waiting[token] = topics
            self.transactions.put(_unit(token, *topics))
        self.refused = {}

    @rule(by_ms=st.sampled_from([1.0, LINGER_MS, 200.0, 40_000.0]))
    def time_passes(self, by_ms):
        self.ms += by_ms

    @rule(topic=st.sampled_from("abc"))
    def topic_changes(self, topic):
        self.bad_topics ^= {topic}

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def a_partition_goes_away(self, data):
        data.draw(st.sampled_from(sorted(self.waiting, key=repr))).is_alive = False

    @precondition(lambda self: self.out is None)
    @rule(held_back=st.integers(0, 2), at_once=st.booleans())
    def begin(self, held_back, at_once):
        if not self.transactions.is_free(self.now):
            return
        units, answers = self.transactions.choose(self.now, at_once=at_once)
        self._take(answers)
        self.transactions.put_back(units[:held_back], self.now)
        self.number += 1
        self.out = self.transactions.begin(self.number, units[held_back:], {})

    @precondition(lambda self: self.out is not None)
    @rule(fate=st.sampled_from(["as it is", "no reason", "offsets"]))
    def end(self, fate):
        transaction, self.out = self.out, None
        large = any(write.token.is_large for write in transaction.writes)
        writes = {
            place: _AWAY if write.topic in self.bad_topics else _LARGE
            for place, write in enumerate(transaction.writes)
            if write.topic in self.bad_topics or large
        }
        outcome: Completed | Aborted = Completed(transaction.number)
        if fate == "no reason":
            outcome = Aborted(transaction.number, "who knows")
        elif fate == "offsets":
            outcome = Aborted(
                transaction.number, "refused", offsets={None: Refusal("unavailable", "refused")}
            )
        elif writes:
            outcome = Aborted(transaction.number, "refused", writes)
        else:
            self.committed.update(write.token for write in transaction.writes)
        self._take(self.transactions.answered(outcome, self.now))

    @invariant()
    def nothing_is_committed_twice_or_in_part(self):
        for token, count in self.committed.items():
            assert token not in self.waiting or self.out is not None
            assert count <= 3

    def teardown(self):
        """From any state on: with a broker that does its best, all ends."""
        if self.out is not None:
            self.end("no reason")
        self.bad_topics = set()
        for _ in range(300):
            if not self.waiting and not self.refused:
                break
            self.send_refused_again()
            self.ms += 40_000
            self.begin(0, at_once=True)
            if self.out is not None:
                self.end("as it is")
        assert (self.waiting, self.refused) == ({}, {})


AgainstABroker.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAgainstABroker = AgainstABroker.TestCase
