"""Which samples stand for a cell, and what is shown of them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import CLEAN, Cell
from pytest_vlmrobust.core.prediction import Request
from pytest_vlmrobust.core.record import Example, Record
from pytest_vlmrobust.core.sample import IMAGE_MARK
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.evidence import examples, image_names, patch_name, spread
from tests.unit.evaluation.conftest import MemoryImage, World, cell, picture, sample


def shown(evaluator: Evaluator, of: Cell) -> tuple[Example, ...]:
    clean = evaluator.result(Cell(of.model, of.dataset, CLEAN))
    return examples(clean, evaluator.result(of), evaluator.thumbnails)


def pixels(folder: Path, file: str) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(folder / file) as image:
        return np.asarray(image.convert("RGB"))


def wrong_when_mirrored(request: Request) -> str:
    return "A" if request.setting == "flip_v" and request.sample_id != "q0" else "B"


def test_a_sample_that_turned_wrong_is_shown_before_and_after(world: World, tmp_path: Path) -> None:
    world.model.answer = wrong_when_mirrored
    examples = shown(world.evaluator(pictures=tmp_path / "pictures"), cell("flip_v"))
    first = examples[0]
    assert (first.sample, first.kind, first.question, first.target) == ("q1", "newly_wrong", "Number 1?", "B")
    assert (first.options, first.category) == ({"A": "cat", "B": "dog"}, "odd")
    assert [(reply.about, reply.text, reply.answer, reply.value) for reply in first.replies] == [
        ("clean", "B", "B", 1.0),
        ("flip_v", "A", "A", 0.0),
    ]
    assert all(reply.rule and reply.state == "scored" for reply in first.replies)
    clean, mirrored = first.pictures
    assert (clean.caption, mirrored.caption, clean.frame, mirrored.frame) == ("clean", "flip_v", "", "")
    before, after = (pixels(tmp_path / "pictures", each.file).astype(int) for each in (clean, mirrored))
    assert before.shape == after.shape == (12, 16, 3)
    near = np.abs(before[::-1].mean(axis=2) - after.mean(axis=2)).mean()
    assert near < np.abs(before.mean(axis=2) - after.mean(axis=2)).mean(), "the second is the first one upside down"


def test_they_are_spread_over_categories_and_few(world: World) -> None:
    world.samples = [sample(number, category="a" if number < 5 else "b") for number in range(8)]
    world.model.answer = wrong_when_mirrored
    assert [example.sample for example in shown(world.evaluator(), cell("flip_v"))] == ["q1", "q5", "q2"]
    assert spread([], world.samples, 3) == []


@pytest.mark.parametrize("setting", ["clean", "no_image"])
def test_a_baseline_shows_nothing(world: World, setting: str) -> None:
    world.model.answer = lambda request: "A" if request.setting == setting else "B"
    assert shown(world.evaluator(), cell(setting)) == ()


def test_what_failed_is_no_example_of_a_wrong_answer(world: World) -> None:
    world.model.answer = lambda request: failed_prediction("down") if request.setting == "flip_v" else "B"
    assert shown(world.evaluator(), cell("flip_v")) == ()


def test_of_patches_both_ways_are_shown_with_frames(world: World, tmp_path: Path) -> None:
    """q0 is right as a whole alone; q1 from its second patch alone."""
    second = perturbations.get("patches:2")(picture(1), seed=1)[1].tobytes()

    def answer(request: Request) -> str:
        whole = request.images[0].shape == (12, 16, 3)
        return "B" if (request.sample_id == "q0" and whole) or request.images[0].tobytes() == second else "A"

    world.model.answer = answer
    whole_only, patch_only = shown(world.evaluator(pictures=tmp_path / "pictures"), cell("patches:2"))
    names = ["clean", "patch 1,1", "patch 1,2", "patch 2,1", "patch 2,2"]
    assert (whole_only.sample, whole_only.kind, patch_only.sample, patch_only.kind) == ("q0", "whole_only", "q1", "patch_only")
    for example in (whole_only, patch_only):
        assert [reply.about for reply in example.replies] == [each.caption for each in example.pictures] == names
    assert [each.frame for each in whole_only.pictures] == ["right", *["wrong"] * 4]
    assert [each.frame for each in patch_only.pictures] == ["wrong", "wrong", "right", "wrong", "wrong"]
    assert [reply.value for reply in patch_only.replies] == [0, 0, 1, 0, 0]
    assert pixels(tmp_path / "pictures", patch_only.pictures[2].file).shape == (6, 8, 3)


def test_at_most_four_of_each_kind(world: World) -> None:
    world.samples = [sample(number) for number in range(12)]
    world.model.answer = lambda request: "B" if request.images[0].shape == (12, 16, 3) else "A"
    examples = shown(world.evaluator(), cell("patches:2"))
    assert [example.sample for example in examples] == ["q0", "q1", "q2", "q3"]
    assert {example.kind for example in examples} == {"whole_only"}


def test_equal_views_share_a_file_and_a_repeated_run_makes_none(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    shared = MemoryImage(picture(3))
    world.samples = [sample(number, images=(shared,)) for number in range(2)]
    world.model.answer = lambda request: "A" if request.setting == "flip_v" else "B"
    evaluator = world.evaluator(pictures=folder)
    first = shown(evaluator, cell("flip_v"))
    assert len(first) == 2
    assert len(list(folder.iterdir())) == 2
    loaded = shared.loaded
    again = world.evaluator(pictures=folder)
    assert shown(again, cell("flip_v")) == first
    assert shared.loaded == loaded


def test_offline_there_are_the_pictures_that_there_are(world: World, tmp_path: Path) -> None:
    world.model.answer = wrong_when_mirrored
    folder = tmp_path / "pictures"
    without = shown(world.evaluator(), cell("flip_v"))
    assert all(example.pictures == () and len(example.replies) == 2 for example in without)
    assert [example.pictures for example in shown(world.evaluator(offline=True, pictures=folder), cell("flip_v"))] == [(), (), ()]
    assert not folder.exists()
    made = shown(world.evaluator(pictures=folder), cell("flip_v"))
    assert shown(world.evaluator(offline=True, pictures=folder), cell("flip_v")) == made


def test_of_several_images_those_that_changed_are_shown_again(world: World, tmp_path: Path) -> None:
    images = tuple(MemoryImage(picture(number)) for number in (0, 10, 11))
    question = sample(
        0, images=images, question=f"{IMAGE_MARK} Which is it?", options={"A": IMAGE_MARK, "B": IMAGE_MARK}, perturbed=(1, 2)
    )
    world.samples = [question]
    world.model.answer = lambda request: "A" if request.setting == "flip_v" else "B"
    (example,) = shown(world.evaluator(pictures=tmp_path), cell("flip_v"))
    assert example.question == "[picture 1] Which is it?"
    assert example.options == {"A": "[picture]", "B": "[picture]"}
    captions = ["clean, image 1", "clean, A", "clean, B", "flip_v, A", "flip_v, B"]
    assert [each.caption for each in example.pictures] == captions
    assert image_names(sample(0, images=images)) == ["image 1", "image 2", "image 3"]


def test_they_survive_json_and_long_texts_are_cut(world: World) -> None:
    world.samples = [sample(0, question="why? " * 300)]
    world.model.answer = lambda request: "I do not know. " * 99 if request.setting == "flip_v" else "B"
    examples = shown(world.evaluator(), cell("flip_v"))
    assert (len(examples[0].question), len(examples[0].replies[1].text)) == (500, 500)
    assert examples[0].replies[1].state == "unparsed"
    record = Record("cell", "x", "model", "data", examples=examples)
    assert Record.from_json(record.to_json()).examples == examples


def test_a_sample_with_a_failed_patch_shows_neither(world: World, tmp_path: Path) -> None:
    """One patch failed: whether another one was the best is unknown, so that the sample shows neither."""
    missing = perturbations.get("patches:2")(picture(1), seed=1)[1].tobytes()
    world.model.answer = lambda request: (
        failed_prediction("down") if request.images[0].tobytes() == missing else "B" if request.images[0].size == 576 else "A"
    )
    examples = shown(world.evaluator(pictures=tmp_path), cell("patches:2"))
    assert "q1" not in [example.sample for example in examples]
    assert not any(math.isnan(reply.value) for example in examples for reply in example.replies)


def test_patches_are_named_by_row_and_column() -> None:
    assert [patch_name(view, 9) for view in (0, 2, 3, 8)] == ["patch 1,1", "patch 1,3", "patch 2,1", "patch 3,3"]
