"""Tasks about the embedded faces and words, at the size of the embedded model."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pytest_vlmrobust.core.boxes import overlap
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.prediction import PROMPT_MODES
from pytest_vlmrobust.datasets.embedded.faces import FaceCollection
from pytest_vlmrobust.datasets.embedded.word_collection import WordCollection
from pytest_vlmrobust.datasets.protocol import Collection
from pytest_vlmrobust.evaluation.run.prompts import prompt
from pytest_vlmrobust.evaluation.run.views import ViewMaker
from pytest_vlmrobust.evaluation.tasks import TASKS, task_dataset
from pytest_vlmrobust.evaluation.tasks.pictures import Collage

FACES = FaceCollection("faces_160", side=160, count=6)
WORDS = WordCollection("words_160", side=160, count=6)
NUMBERS = re.compile(r"\d+")
PAIRS = pytest.mark.parametrize(("collection", "other"), [(FACES, WORDS), (WORDS, FACES)], ids=["faces", "words"])


@PAIRS
@pytest.mark.parametrize("task", ["matching", "pointing", "pointing_3x3"])
def test_all_candidates_differ_as_they_are_sent(task: str, collection: Collection, other: Collection) -> None:
    for sample in list(task_dataset(task, collection, other).samples())[:9:4]:
        grid = sample.images[1]
        candidates = [part.load() for part in grid.parts] if isinstance(grid, Collage) else [i.load() for i in sample.images[1:]]
        assert {picture.shape for picture in candidates} == {(160, 160, 3)}
        assert len({picture.tobytes() for picture in candidates}) == len(candidates)
        assert sum(picture.tobytes() == sample.images[0].load().tobytes() for picture in candidates) == 1


@PAIRS
@pytest.mark.parametrize("task", TASKS)
def test_prompts_do_not_depend_on_who_it_is(task: str, collection: Collection, other: Collection) -> None:
    for mode in PROMPT_MODES:
        texts = {prompt(sample, mode) for sample in task_dataset(task, collection, other).samples()}
        assert len({NUMBERS.sub("#", text) for text in texts}) == 1


@PAIRS
def test_under_a_setting_candidates_still_differ(collection: Collection, other: Collection) -> None:
    sample = task_dataset("matching", collection, other).samples()[0]
    view = ViewMaker(1234).view(sample, Setting.parse("observatory_gaussian_blur"))
    assert len(set(view.digests)) == 5


@PAIRS
def test_boxes_lie_in_the_picture(collection: Collection, other: Collection) -> None:
    for sample in task_dataset("guided", collection, other).samples():
        assert sample.localisation is not None
        for left, top, right, bottom in sample.localisation.boxes.values():
            assert 0 <= left < right <= 160
            assert 0 <= top < bottom <= 160


@pytest.mark.parametrize(("collection", "other", "most"), [(FACES, WORDS, 0.07), (WORDS, FACES, 0.42)], ids=["faces", "words"])
def test_boxes_that_are_told_cannot_be_copied(collection: Collection, other: Collection, most: float) -> None:
    def copied(task: str, seed: int) -> list[float]:
        abouts = [sample.localisation for sample in task_dataset(task, collection, other, seed=seed).samples()]
        return [overlap(about.given[name], box) for about in abouts if about for name, box in about.boxes.items()]

    assert set(copied("guided_published", 0)) == {1.0}
    assert np.mean([copied("guided", seed) for seed in range(40)]) < most
