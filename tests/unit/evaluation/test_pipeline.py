from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.pipeline import AHEAD, Pipeline
from pytest_vlmrobust.evaluation.views import View, ViewMaker

from .conftest import sample


class Recorder(ViewMaker):
    """Makes views named after their samples: slow ones on even numbers, none on ``broken`` ones."""

    def __init__(self, *broken: str) -> None:
        super().__init__(seed=0)
        self.made: list[str] = []
        self.broken = broken
        self.lock = threading.Lock()

    def view(self, sample: Sample, setting: Setting) -> View:
        del setting
        with self.lock:
            self.made.append(sample.id)
        if int(sample.id[1:]) % 2 == 0:
            time.sleep(0.002)
        if sample.id in self.broken:
            raise ImageError(sample.id)
        return View((), (sample.id,))


def wanted(count: int) -> list[tuple[Sample, Setting, str]]:
    return [(sample(i), CLEAN, f"recipe {i}") for i in range(count)]


@pytest.fixture(params=[1, 4])
def threads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def taken(views: Iterator[View]) -> list[str]:
    return [view.digests[0] for view in views]


def test_order_is_kept(threads: int) -> None:
    pipeline = Pipeline(Recorder(), threads=threads)
    assert taken(pipeline.views(wanted(200))) == [f"q{i}" for i in range(200)]
    pipeline.close()


def test_nothing_wanted_is_nothing_made() -> None:
    pipeline = Pipeline(Recorder(), threads=1)
    assert taken(pipeline.views([])) == []
    pipeline.close()


def test_an_error_is_raised_in_its_turn(threads: int) -> None:
    pipeline = Pipeline(Recorder("q3"), threads=threads)
    views = pipeline.views(wanted(10))
    assert [next(views).digests[0] for _ in range(3)] == ["q0", "q1", "q2"]
    with pytest.raises(ImageError, match="q3"):
        next(views)
    pipeline.close()


def test_equal_recipes_are_made_once(threads: int) -> None:
    recorder = Recorder()
    pipeline = Pipeline(recorder, threads=threads)
    one, other = wanted(2)
    found = taken(pipeline.views([one, one, other, one, other]))
    assert found == ["q0", "q0", "q1", "q0", "q1"]
    assert sorted(recorder.made) == ["q0", "q1"]
    pipeline.close()


def test_it_never_runs_further_ahead_than_it_may() -> None:
    recorder = Recorder()
    pipeline = Pipeline(recorder, threads=4)
    views = pipeline.views(wanted(3 * AHEAD))
    next(views)
    time.sleep(0.2)
    assert len(recorder.made) <= AHEAD
    for _ in range(AHEAD):
        next(views)
    assert len(recorder.made) <= 2 * AHEAD
    pipeline.close()


def test_closing_drops_what_was_not_begun() -> None:
    recorder = Recorder()
    pipeline = Pipeline(recorder, threads=1)
    next(pipeline.views(wanted(AHEAD)))
    pipeline.close()
    assert len(recorder.made) < AHEAD
