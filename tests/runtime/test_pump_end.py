"""However the pump ends, it commits what it can, leaves the group and closes everything."""

import pytest

from redrive import DeadLetterNow
from redrive.errors import PortError
from redrive.runtime.ports import SourceProblem
from tests.runtime.at_work import Process, app_of, append, new_cluster


class Around:
    """A wrapper round a port: a call of a method that is named in `raising` raises; `called` are those that were made."""

    def __init__(self, port, **raising):
        self.port = port
        self.raising = raising
        self.called = []

    def __getattr__(self, name):
        found = getattr(self.port, name)
        if not callable(found):
            return found

        def call(*args, **kwargs):
            self.called.append(name)
            result = found(*args, **kwargs)
            if name in self.raising:
                raise self.raising[name]
            return result

        return call


class Telling(Around):
    """A consumer that tells of problems of the test's."""

    told = ()

    def problems(self):
        told, self.told = self.told, ()
        return [*told, *self.port.problems()]


class Shop:
    """A service that handles ten records, the fifth of which becomes a dead letter."""

    def __init__(self):
        self.cluster = new_cluster()
        self.handled = []

        def handle(number: int) -> None:
            self.cluster.clock.pass_time(1)
            if number == 5:
                raise DeadLetterNow("as the test wants it")
            self.handled.append(number)

        self.process = Process(
            app_of(handle), self.cluster, source=self._source, sink=self._sink, executor=self._executor
        )
        append(self.cluster, *range(10))

    def _source(self, port):
        self.source = Telling(port)
        return self.source

    def _sink(self, port):
        self.sink = Around(port)
        return self.sink

    def _executor(self, port):
        self.executor = Around(port)
        return self.executor

    def fails(self, error):
        """Run the pump to its end, which is to be this error."""
        with pytest.raises(type(error)) as raised:
            self.process.pump.run()
        assert raised.value is error
        self.is_closed()

    def is_closed(self):
        assert self.cluster.group("shop").members == []
        assert "close" in self.source.called
        assert "close" in self.sink.called
        assert "close" in self.executor.called


@pytest.mark.parametrize("error", [RuntimeError("a bug of ours"), SystemExit(3), KeyboardInterrupt()])
def test_t_reb_6_an_executor_that_raises_ends_the_pump_which_leaves_the_group_and_closes_all(error):
    shop = Shop()
    shop.process.run(500)
    append(shop.cluster, 10)
    shop.executor.raising = {"results": error}
    shop.fails(error)
    assert shop.process.committed() == 10


def test_an_executor_that_raises_when_it_is_given_a_run_does_so_too():
    shop = Shop()
    error = RuntimeError("no more threads")
    shop.executor.raising = {"submit": error}
    shop.fails(error)


def test_what_was_finished_before_is_committed():
    shop = Shop()
    shop.process.run(500)
    append(shop.cluster, *range(10, 20))
    shop.process.steps(4)
    assert len(shop.handled) == 19
    error = RuntimeError("a bug of ours")
    shop.sink.raising = {"answers": error}
    shop.fails(error)
    assert shop.process.committed() == 20


@pytest.mark.parametrize("port", ["source", "sink"])
def test_a_port_that_cannot_be_closed_does_not_keep_the_others_open(port):
    shop = Shop()
    shop.process.run(500)
    error = RuntimeError("not now")
    getattr(shop, port).raising = {"close": error}
    with pytest.raises(RuntimeError) as raised:
        shop.process.pump.shut_down()
    assert raised.value is error
    shop.is_closed()


def test_a_consumer_that_is_of_no_use_any_more_ends_the_pump_and_says_why():
    shop = Shop()
    shop.process.run(500)
    shop.source.told = [SourceProblem("fatal", "fenced by another instance")]
    with pytest.raises(PortError, match="fenced by another instance"):
        shop.process.pump.run()
    shop.is_closed()


def test_the_first_error_is_told_though_more_go_wrong_while_it_ends():
    shop = Shop()
    shop.process.run(500)
    shop.source.raising = {"close": RuntimeError("and this"), "commit_now": RuntimeError("and that")}
    append(shop.cluster, 10)
    shop.process.steps(2)
    error = RuntimeError("the first")
    shop.sink.raising = {"answers": error, "close": RuntimeError("and this too")}
    shop.fails(error)


def test_a_stop_that_was_asked_for_ends_it_in_order():
    shop = Shop()
    shop.process.run(500)
    shop.process.pump.stop_requested.set()
    shop.process.pump.run()
    shop.is_closed()
    assert (len(shop.handled), shop.process.is_all_committed()) == (9, True)


def test_a_last_commit_that_is_refused_is_told():
    shop = Shop()
    shop.process.run(500)
    append(shop.cluster, 10)
    shop.process.steps(3)
    shop.cluster.faults.refuse_commits(10)
    shop.process.pump.shut_down()
    assert shop.process.told("last-commit-refused") == [{"partitions": "orders 0"}]
    shop.is_closed()


def test_handlers_that_never_end_are_left_behind_and_told():
    shop = Shop()
    shop.process.handlers.held = True
    shop.process.run(500)
    began_ms = shop.cluster.clock.mono_ms()
    shop.process.pump.shut_down()
    assert shop.process.told("handlers-left")
    assert shop.cluster.clock.mono_ms() - began_ms <= shop.process.pump.drain_s * 1000 + 2_000
    shop.is_closed()
