"""What the end of a command means: the same for all commands, so that scripts can rely on it."""

from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """How a command ended. `meaning` and `examples` are what `docs/reference/exit-codes.md` is made of."""

    meaning: str
    examples: str

    def __new__(cls, code: int, meaning: str, examples: str) -> Self:
        made = int.__new__(cls, code)
        made._value_ = code
        made.meaning, made.examples = meaning, examples
        return made

    DONE = (
        0,
        "done",
        (
            "`redrive run` after SIGTERM or Ctrl-C; `topics plan` with nothing to do; `lag`, also where topics or "
            "rights are missing: its output says what isn't shown; `worker pause` and `resume`, as soon as it is "
            "written down for the whole group"
        ),
    )
    FAILED = (
        1,
        "failed",
        (
            "Kafka can't be reached, settings contradict each other, the app can't be loaded, a topic could "
            "not be created, what `worker skip` asks for could not be written down, `redrive console` has no token where it needs one"
        ),
    )
    USAGE = (
        2,
        "the command can't be used like that",
        "an unknown option, no app named",
    )
    PARTIAL = (
        3,
        "done in part",
        (
            "`topics apply` created some topics and failed at others; some letters of a replay were not "
            "sent; some of a `retries discard` came too late; of the processes that `worker ls` or `worker dump` asked some "
            "didn't answer; the record of a `worker skip` isn't got past yet"
        ),
    )
    DIFFERENCES = (
        4,
        "differences or findings",
        (
            "`topics plan` has something to create, or something for a person to decide; `doctor` found "
            "something"
        ),
    )
    NOTHING = (
        5,
        "a selection matched nothing",
        "`dlq replay --type TimeoutError` where no letter has that type",
    )
    STOPPED = (
        6,
        "a listener stopped at a record",
        (
            '`redrive run` of a listener with `give_up="stop"`, when a record came to its end: the message names it, and how '
            "to go on"
        ),
    )
    INTERRUPTED = (
        130,
        "interrupted by Ctrl-C",
        "commands that were at work print what they had done",
    )
