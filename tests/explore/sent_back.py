"""In which order an operator sent letters back, or discarded them: what the order of their replays is judged by."""

from collections.abc import Iterable


class SentBack:
    """Each letter that is sent back has a number, as the how manieth it was."""

    def __init__(self) -> None:
        #: First and last, until such a replay has come to an end.
        self._on_their_way: dict[str, tuple[int, int]] = {}
        self._first: dict[str, int] = {}
        #: Sent back or discarded.
        self._last_word: dict[str, int] = {}
        self._count = 0

    def sent(self, events: Iterable[str]) -> None:
        """Letters of these are sent back, in this order."""
        for event in events:
            self._count += 1
            first, _ = self._on_their_way.get(event, (self._count, 0))
            self._on_their_way[event] = first, self._count
            self._first.setdefault(event, self._count)
            self._last_word[event] = self._count

    def discarded(self, events: Iterable[str]) -> None:
        """Letters of these are discarded."""
        self._count += 1
        self._last_word.update(dict.fromkeys(events, self._count))

    def ended(self, event: str) -> None:
        """A replay is handled, or a letter again."""
        self._on_their_way.pop(event, None)

    def is_before_the_last_word(self, event: str, other: str) -> bool:
        """Whether a letter of `event` was sent back before anybody last did something with one of `other`."""
        word = self._last_word.get(other, 0)
        return self._first.get(event, word) < word

    def may_pass(self, event: str, other: str, *, is_letter: bool, follows: bool) -> bool:
        """
        Whether a replay of `event` may run before `other` is through: who sends back only a later one wants it so. `is_letter`:
        `other` is one now; `follows`: what is sent back later follows it then.
        """
        at, own = self._on_their_way.get(other), self._on_their_way.get(event)
        if own is None:
            return True
        if follows and self._first.get(other, own[0]) < own[0]:
            return False
        return is_letter if at is None else at[1] > own[0]
