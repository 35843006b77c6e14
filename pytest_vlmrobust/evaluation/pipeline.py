"""Pipeline: views are made on threads while the model works; a bounded number of them waits in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.sample import Sample

from .views import View, ViewMaker

AHEAD = 32
"""Views that may wait, and as many that may be used again: at 1344 x 1008 pixels up to 260 MB."""


class Pipeline:
    """Makes views in order, ahead of whoever takes them."""

    def __init__(self, maker: ViewMaker, *, threads: int) -> None:
        self._maker = maker
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="vlm-views")

    def views(self, wanted: Sequence[tuple[Sample, Setting, str]]) -> Iterator[View]:
        """Yields the view of each (sample, setting, recipe), in order; equal recipes in a row are made once.

        Raises:
            ImageError: a source picture cannot be read; raised when its turn comes.
        """
        waiting: deque[Future[View]] = deque()
        recent: dict[str, Future[View]] = {}
        rest = iter(wanted)
        while True:
            for sample, setting, recipe in islice(rest, AHEAD - len(waiting)):
                if recipe not in recent:
                    if len(recent) >= AHEAD:
                        recent.clear()
                    recent[recipe] = self._pool.submit(self._maker.view, sample, setting)
                waiting.append(recent[recipe])
            if not waiting:
                return
            yield waiting.popleft().result()

    def close(self) -> None:
        """Stops the threads; views not yet begun are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)
