from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pytest_vlmrobust.backends import lanes as lanes_module
from pytest_vlmrobust.backends.contract import LANE
from pytest_vlmrobust.backends.lanes import Lanes
from pytest_vlmrobust.core.errors import BackendError

GivenUp = Callable[[], bool]


class Tensor:
    """Something that takes memory."""


class Model:
    """Stands in for an answerer."""

    def __init__(self) -> None:
        self.twins: list[Model] = []

    def twin(self) -> Model:
        self.twins.append(Model())
        return self.twins[-1]


def lanes(most: int = 1, begin: Callable[[], None] = lambda: None) -> Lanes:
    made: Any = Lanes
    opened: Lanes = made(Model(), most, begin)
    return opened


def thread(_model: object, _given_up: GivenUp) -> threading.Thread:
    return threading.current_thread()


def test_all_is_computed_by_one_thread_whoever_waits_for_it() -> None:
    opened = lanes()
    with ThreadPoolExecutor(3) as pool:
        [used] = set(pool.map(lambda _: opened.run(thread), range(9)))
    assert used.name == LANE
    assert used.daemon
    opened.close()
    assert not used.is_alive()


def test_as_many_compute_at_a_time_as_there_are_lanes_each_with_a_model_of_its_own() -> None:
    meeting = threading.Barrier(2)
    begun: list[int] = []

    def work(model: object, given_up: GivenUp) -> tuple[object, threading.Thread]:
        meeting.wait(60)  # each meets another one, or this fails
        return model, thread(model, given_up)

    opened = lanes(2, lambda: begun.append(1))
    with ThreadPoolExecutor(4) as pool:
        results = set(pool.map(lambda _: opened.run(work), range(8)))
    assert len(results) == len(begun) == 2
    assert {model for model, _ in results} == {opened.answerer, *opened.answerer.twins}  # type: ignore[attr-defined]
    opened.close()


def test_lanes_that_are_narrowed_compute_one_at_a_time() -> None:
    meeting, go_on = threading.Barrier(3), threading.Event()
    inside: list[int] = []

    def first(_model: object, _given_up: GivenUp) -> None:
        meeting.wait(60)
        assert go_on.wait(60)

    def alone(_model: object, _given_up: GivenUp) -> int:
        inside.append(1)
        time.sleep(0.002)
        return len(inside) - inside.pop()  # 0, unless another one came in

    opened = lanes(2)
    with ThreadPoolExecutor(8) as pool:
        both = [pool.submit(opened.run, first) for _ in range(2)]
        meeting.wait(60)
        narrowing = [pool.submit(opened.narrow) for _ in range(2)]
        assert not any(future.done() for future in narrowing)  # two are computed still
        go_on.set()
        assert [future.result(60) for future in both + narrowing] == [None] * 4
        assert opened.width == 1
        assert set(pool.map(lambda _: opened.run(alone), range(20))) == {0}
    opened.close()


@pytest.mark.parametrize("turn", [1, 2])
def test_narrowing_that_is_interrupted_keeps_no_turn(monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    opened, acquire, came = lanes(2), threading.Semaphore.acquire, []

    def interrupted(turns: threading.Semaphore, *_about: Any) -> bool:
        came.append(turns)
        if len(came) == turn:
            raise KeyboardInterrupt
        return acquire(turns)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Semaphore, "acquire", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.narrow()
    assert opened.width == 2
    opened.narrow()
    assert opened.run(thread).name == LANE
    opened.close()


def test_a_second_lane_starts_only_where_the_first_is_busy() -> None:
    opened = lanes(2)
    assert len({opened.run(thread) for _ in range(5)}) == 1
    opened.close()


def test_an_error_is_raised_where_it_is_waited_for_and_keeps_no_tensor() -> None:
    kept: list[weakref.ref[Tensor]] = []

    def fail(_model: object, _given_up: GivenUp) -> None:
        tensor = Tensor()
        kept.append(weakref.ref(tensor))
        raise MemoryError("of a batch")

    opened = lanes()
    gc.disable()
    try:
        with pytest.raises(MemoryError, match="of a batch") as caught:
            opened.run(fail)
        assert kept[0]() is None  # also while the error is looked at, and before cycles are collected
        del caught
    finally:
        gc.enable()
    assert opened.run(thread).is_alive()
    opened.close()


def test_an_error_at_the_beginning_of_a_thread_is_raised_as_well() -> None:
    left = [ValueError("no such number of threads")]

    def begin() -> None:
        if left:
            raise left.pop()

    opened = lanes(begin=begin)
    with pytest.raises(ValueError, match="no such number"):
        opened.run(thread)
    assert opened.run(thread).is_alive()
    opened.close()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system cannot send a signal to one thread")
def test_work_is_told_when_whoever_waits_for_it_is_interrupted() -> None:
    ended = threading.Event()

    def work(_model: object, given_up: GivenUp) -> None:
        assert not given_up()
        time.sleep(0.2)  # Python can miss a signal just when it begins to wait
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        latest = time.monotonic() + 30
        while not given_up() and time.monotonic() < latest:
            time.sleep(0.01)
        assert given_up()
        ended.set()

    opened = lanes()
    with pytest.raises(KeyboardInterrupt):
        opened.run(work)
    assert ended.wait(30)
    opened.close()


def test_threads_end_when_nobody_can_ask_any_more() -> None:
    opened = lanes()
    used = opened.run(thread)
    del opened
    gc.collect()
    used.join(60)
    assert not used.is_alive()


def test_closing_waits_for_what_is_computed() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work(_model: object, _given_up: GivenUp) -> bool:
        begun.set()
        return go_on.wait(60)

    opened = lanes()
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(opened.run, work)
        assert begun.wait(60)
        closed = pool.submit(opened.close)
        assert not closed.done()
        go_on.set()
        assert answer.result(60)
        closed.result(60)


def test_closing_leaves_what_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "END_SECONDS", 0.2)
    begun, go_on = threading.Event(), threading.Event()

    def work(_model: object, _given_up: GivenUp) -> bool:
        begun.set()
        return go_on.wait(30)

    opened = lanes()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(opened.run, work)
        assert begun.wait(60)
        opened.close()
        assert not answer.done()
        go_on.set()
        assert answer.result(30)


def test_python_waits_at_its_end_for_lanes_that_nobody_closed() -> None:
    program = """
import atexit, threading, time
atexit.register(lambda: print([thread.name for thread in threading.enumerate() if thread.name == "vlm-lane"], flush=True))
from pytest_vlmrobust.backends.lanes import Lanes
opened = Lanes(None, 1, lambda: None)
begun = threading.Event()
work = lambda _model, _given_up: (begun.set(), time.sleep(0.5))
threading.Thread(target=opened.run, args=(work,), daemon=True).start()
begun.wait()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[]\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process is forked here")
def test_a_process_that_was_forked_off_computes_on_threads_of_its_own() -> None:
    program = """
import os
from pytest_vlmrobust.backends.lanes import Lanes
opened, closed = Lanes(None, 1, lambda: None), Lanes(None, 1, lambda: None)
opened.run(lambda _model, _given_up: 1)
closed.close()
if os.fork() == 0:
    try:
        closed.run(lambda _model, _given_up: 2)
    except Exception as error:
        print(error)
    print(opened.run(lambda _model, _given_up: 3), flush=True)
    opened.close()
    os._exit(0)
print(os.wait()[1])
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    refused, result, status = ended.stdout.splitlines()
    assert refused.startswith("the model was closed")
    assert (result, status, ended.returncode) == ("3", "0", 0)


def test_nothing_is_asked_of_lanes_that_are_closed() -> None:
    opened = lanes()
    opened.run(thread)
    opened.close()
    with pytest.raises(BackendError, match="was closed while it was asked"):
        opened.run(thread)
    opened.close()


def test_a_thread_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = lanes()

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            opened.run(thread)
    assert opened.run(thread).is_alive()
    opened.close()
