"""Lanes: threads that have a model compute, one batch at a time each, for whoever waits for the answers.

Whoever waits may be another thread each time. If it computed itself, batches would take their memory from the pieces that the C
library keeps for its own thread, and would find little of what they touch in the cache of the processor.
"""

from __future__ import annotations

import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias

from .guard import LANE

if TYPE_CHECKING:
    from .answering import Answered, Answerer, Job


@dataclass(eq=False, slots=True)
class _Call:
    """A batch on its way to a lane."""

    batch: Sequence[Job]
    inputs: Any
    returned: Future[tuple[Answered, float]] = field(default_factory=Future)
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for it any more."""


_Calls: TypeAlias = "SimpleQueue[_Call | None]"


class Lanes:
    """The lanes of one loaded model; their threads end when they are closed, or when nobody has a reference to them."""

    def __init__(self, answerer: Answerer, most: int, begin: Callable[[], None]) -> None:
        """Keeps the model; threads start as batches come that find none free.

        Args:
            answerer: what the first lane computes with, and other lanes with twins of it.
            most: how many lanes there are at most.
            begin: called in each thread before its first batch.
        """
        self.answerer = answerer
        self._most, self._begin = most, begin
        self._lock = threading.Lock()
        self._calls: _Calls = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._asked = 0
        self._end = weakref.finalize(self, self._calls.put, None)

    def answer(self, batch: Sequence[Job], inputs: Any) -> tuple[Answered, float]:
        """Returns what a model gives for a batch, and the seconds that it took once a lane was free; any thread may call it.

        Args:
            batch: the jobs, all to be answered the same way.
            inputs: what ``Answerer.encoded`` made of them.

        Raises:
            Exception: whatever the model does.
            KeyboardInterrupt: somebody ended the run; the lane writes no further token of this batch.
        """
        call = _Call(batch, inputs)
        with self._lock:
            self._asked += 1
        try:
            self._start_missing()
            self._calls.put(call)
            return call.returned.result()
        finally:
            call.given_up.set()
            call.returned.cancel()
            del call  # or an error and its frames, of which this is one, would keep each other
            with self._lock:
                self._asked -= 1

    def close(self) -> None:
        """Ends the threads once they have computed what they are at; a second Ctrl-C does not wait for that."""
        self._end()
        for thread in self._threads:
            thread.join()

    def _start_missing(self) -> None:
        with self._lock:
            if len(self._threads) >= min(self._asked, self._most):
                return
            answerer = self.answerer.twin() if self._threads else self.answerer
            about = (answerer, self._calls, self._begin)
            self._threads.append(threading.Thread(target=_compute, args=about, name=LANE, daemon=True))
            self._threads[-1].start()


def _compute(answerer: Answerer, calls: _Calls, begin: Callable[[], None]) -> None:
    """Computes what comes until it is told to end."""
    begin()
    while (call := calls.get()) is not None:
        returned, began = call.returned, time.perf_counter()
        if not returned.set_running_or_notify_cancel():
            continue
        try:
            answered = answerer.answer(call.batch, call.inputs, call.given_up.is_set)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            traceback.clear_frames(error.__traceback__)  # tensors that did not fit are free before anybody makes room for others
            del call
            returned.set_exception(error)
        else:
            del call
            returned.set_result((answered, time.perf_counter() - began))
            del answered
        del returned
    calls.put(None)  # for the other lanes
