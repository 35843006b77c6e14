"""Lanes: threads that run a model, each one batch at a time, for the threads that wait for answers.

The waiting thread may be another one each time. If it computed itself, each batch would use the memory pool of another thread
and find a cold processor cache.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pytest_vlmrobust.core.errors import BackendError

from .contract import END_SECONDS, LANE

if TYPE_CHECKING:
    from .answering import Answerer


T = TypeVar("T")
Work: TypeAlias = "Callable[[Answerer, Callable[[], bool]], T]"
"""A function that computes. It gets an answerer for itself alone, and a function that says whether the caller
has given up."""


@dataclass(eq=False, slots=True)
class _Call:
    work: Work[Any]
    returned: Future[Any] = field(default_factory=Future)
    given_up: threading.Event = field(default_factory=threading.Event)


_Calls: TypeAlias = "SimpleQueue[_Call | None]"
_EXIT_SECONDS = 5.0
"""Seconds that Python waits at exit for lanes that were not closed."""


class Lanes:
    """The lanes of one loaded model; their threads end when they are closed or no longer referenced."""

    def __init__(self, answerer: Answerer, most: int, begin: Callable[[], None]) -> None:
        """Keeps the model; a thread starts when work arrives and no thread is free."""
        self.answerer = answerer
        self.width = most
        """How many pieces of work may run at the same time now."""
        self.meetings = 0
        """How often work arrived while other work was running."""
        self._begin = begin
        self._open()
        _opened.add(self)

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._calls: _Calls = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._in_progress = 0
        self._narrowing, self._turns = threading.Lock(), threading.Semaphore(self.width)
        self._end = weakref.finalize(self, self._calls.put, None)

    def open_in_child(self) -> None:
        """Starts again in a forked process, which has none of the threads."""
        if self._end.detach():
            self._open()

    def run(self, work: Work[T]) -> T:
        """Runs a piece of work on the next free lane; any thread may call it."""
        call = _Call(work)
        with self._lock:
            self.meetings += self._in_progress > 0
            self._in_progress += 1
        try:
            self._put(call)
            result: T = call.returned.result()
            return result
        finally:
            call.given_up.set()
            call.returned.cancel()
            del call  # otherwise an error and its frames, including this one, would keep each other alive
            with self._lock:
                self._in_progress -= 1

    def narrow(self) -> None:
        """Allows only one piece of work at a time from now on; returns when none is running."""
        with self._narrowing:
            held = 0
            try:
                while held < self.width:
                    self._turns.acquire()
                    held += 1
                self.width = held = 1
            finally:  # all held turns after an interrupt, else the single turn that remains
                for _ in range(held):
                    self._turns.release()

    def close(self, seconds: float | None = None) -> None:
        """Ends each thread after its work and waits for it."""
        with self._lock:
            self._end()
        latest = time.monotonic() + (END_SECONDS if seconds is None else seconds)
        for thread in self._threads:
            thread.join(max(0.0, latest - time.monotonic()))

    def _put(self, call: _Call) -> None:
        with self._lock:
            if not self._end.alive:
                raise BackendError("the model was closed while it was asked. Ask again, and it is loaded again")
            if len(self._threads) < min(self._in_progress, self.width):
                answerer = self.answerer.twin() if self._threads else self.answerer
                arguments = (answerer, self._calls, self._turns, self._begin)
                thread = threading.Thread(target=_compute, args=arguments, name=LANE, daemon=True)
                thread.start()  # before it is counted: if the system refuses a thread, nothing may wait for it
                self._threads.append(thread)
            self._calls.put(call)


_opened: weakref.WeakSet[Lanes] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes lanes that are still open: a thread inside torch during interpreter shutdown may abort the process."""
    for lanes in list(_opened):
        lanes.close(_EXIT_SECONDS)


def _open_in_child() -> None:
    for lanes in list(_opened):
        lanes.open_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_in_child)


def _compute(answerer: Answerer, calls: _Calls, turns: threading.Semaphore, begin: Callable[[], None]) -> None:
    has_begun = False
    while (call := calls.get()) is not None:
        returned = call.returned
        try:
            with turns:
                if not returned.set_running_or_notify_cancel():
                    continue
                if not has_begun:
                    begin()
                    has_begun = True
                result = call.work(answerer, call.given_up.is_set)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            traceback.clear_frames(error.__traceback__)  # frees the tensors that did not fit before room is made
            del call
            returned.set_exception(error)
        else:
            del call
            returned.set_result(result)
            del result
        del returned  # otherwise tensors would live until the next piece of work
    calls.put(None)  # for the other lanes
