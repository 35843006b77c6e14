from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_vlmrobust.backends.answering import Answered
from pytest_vlmrobust.backends.guard import LANE
from pytest_vlmrobust.backends.lanes import Lanes

Act = Callable[[Any, Callable[[], bool]], None]


class Tensor:
    """Something that takes memory."""


class Model:
    """Stands in for an answerer: does what a test says, and notes where."""

    def __init__(self, act: Act = lambda _inputs, _given_up: None) -> None:
        self.act = act
        self.threads: list[threading.Thread] = []
        self.twins = 0

    def twin(self) -> Model:
        self.twins += 1
        return self

    def answer(self, batch: Sequence[Any], inputs: Any, given_up: Callable[[], bool]) -> Answered:
        self.threads.append(threading.current_thread())
        self.act(inputs, given_up)
        return Answered([{"A": float(len(batch))}])


def _ignore(_value: object) -> None: ...


def lanes(model: Model, most: int = 1, begin: Callable[[], None] = lambda: None) -> Lanes:
    made: Any = Lanes
    opened: Lanes = made(model, most, begin)
    return opened


def test_batches_are_computed_by_one_thread_whoever_waits_for_them() -> None:
    model = Model()
    opened = lanes(model)
    batch: Any = [1, 2]
    with ThreadPoolExecutor(3) as pool:
        found = [answered.logprobs for answered, _ in pool.map(lambda _: opened.answer(batch, None), range(9))]
    assert found == [[{"A": 2.0}]] * 9
    [thread] = set(model.threads)
    assert thread.name == LANE
    assert thread.daemon
    opened.close()
    assert not thread.is_alive()


def test_as_many_compute_at_a_time_as_there_are_lanes() -> None:
    meeting = threading.Barrier(2)
    begun: list[int] = []
    model = Model(lambda _inputs, _given_up: _ignore(meeting.wait(10)))
    opened = lanes(model, 2, lambda: begun.append(1))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: opened.answer([], None), range(8)))  # each meets another one, or this fails
    assert len(set(model.threads)) == len(begun) == 2
    assert model.twins == 1
    opened.close()


def test_a_second_lane_starts_only_where_the_first_is_busy() -> None:
    model = Model()
    opened = lanes(model, 2)
    for _ in range(5):
        opened.answer([], None)
    assert len(set(model.threads)) == 1
    opened.close()


def test_seconds_are_those_of_the_model_alone() -> None:
    queued = threading.Event()

    def compute(_inputs: Any, _given_up: Any) -> None:
        if queued.wait(10) and len(model.threads) == 1:
            time.sleep(1)

    model = Model(compute)
    opened = lanes(model)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(opened.answer, [], None) for _ in range(2)]
        queued.set()
        (_, first), (_, second) = sorted((one.result(10) for one in asked), key=lambda found: -found[1])
    assert first >= 1 > second  # one waited a second for its turn
    opened.close()


def test_an_error_is_raised_where_it_is_waited_for_and_keeps_no_tensor() -> None:
    kept: list[weakref.ref[Tensor]] = []

    def fail(inputs: Any, _given_up: Any) -> None:
        tensor = Tensor()
        kept.append(weakref.ref(tensor))
        raise MemoryError(f"of {len(inputs)}")

    model = Model(fail)
    opened = lanes(model)
    gc.disable()
    try:
        with pytest.raises(MemoryError, match="of 3") as caught:
            opened.answer([], "abc")
        assert kept[0]() is None  # also while the error is looked at, and before cycles are collected
        del caught
    finally:
        gc.enable()
    model.act = lambda _inputs, _given_up: None
    assert opened.answer([], None)[0].logprobs
    opened.close()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system cannot send a signal to one thread")
def test_whoever_is_interrupted_gives_the_batch_up() -> None:
    ended = threading.Event()

    def compute(_inputs: Any, given_up: Callable[[], bool]) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        latest = time.monotonic() + 30
        while not given_up() and time.monotonic() < latest:
            time.sleep(0.01)
        assert given_up()
        ended.set()

    opened = lanes(Model(compute))
    with pytest.raises(KeyboardInterrupt):
        opened.answer([], None)
    assert ended.wait(30)
    opened.close()


def test_threads_end_when_nobody_can_ask_any_more() -> None:
    model = Model()
    opened = lanes(model)
    opened.answer([], None)
    del opened
    gc.collect()
    model.threads[0].join(10)
    assert not model.threads[0].is_alive()


def test_closing_waits_for_what_is_computed() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def compute(_inputs: Any, _given_up: Any) -> None:
        asked.set()
        go_on.wait(10)

    opened = lanes(Model(compute))
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(opened.answer, [], None)
        assert asked.wait(10)
        closed = pool.submit(opened.close)
        assert not closed.done()
        go_on.set()
        assert answer.result(10)[0].logprobs
        closed.result(10)
