"""Settings that make several views of a picture: each is asked about, stored and scored by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date

import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import failed_prediction
from pytest_vlmrobust.core.cell import CLEAN, Setting
from pytest_vlmrobust.core.prediction import Prediction, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.policies import Policy

from .conftest import MemoryImage, World, cell, picture, sample

PATCHES = cell("patches:2")


def patch(number: int, index: int) -> bytes:
    """Returns the pixels of one patch of a sample's picture."""
    return bytes(perturbations.get("patches:2")(picture(number), seed=1)[index].tobytes())


def sees(*patches: bytes) -> object:
    """Answers B (right) where it sees the whole picture or one of ``patches``, else A."""

    def answer(request: Request) -> str:
        whole = request.images and request.images[0].shape == (12, 16, 3)
        return "B" if whole or (request.images and request.images[0].tobytes() in patches) else "A"

    return answer


def judge(world: World) -> Judge:
    return Judge(world.evaluator(), {"model": Policy()}, date(2026, 6, 1))


def test_every_patch_is_asked_about_once_row_by_row(world: World) -> None:
    result = world.evaluator().result(PATCHES)
    assert (result.views, result.n_requested, result.n_inferred) == (4, 24, 24)
    assert world.model.asked_about == [f"q{number}" for number in range(6) for _ in range(4)]
    asked = [request.images for request in world.model.asked]
    assert all(len(images) == 1 for images in asked)
    assert [images[0].tobytes() for images in asked] == [patch(number, index) for number in range(6) for index in range(4)]
    again = world.evaluator().result(PATCHES)
    assert (again.n_inferred, again.predictions) == (0, result.predictions)


def test_the_score_of_a_sample_is_that_of_its_best_patch(world: World) -> None:
    world.model.answer = sees(patch(0, 1), patch(0, 2), patch(3, 3))  # type: ignore[assignment]
    result = world.evaluator().result(PATCHES)
    assert result.by_view[[0, 1, 3]].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    assert result.values.tolist() == [1, 0, 0, 1, 0, 0]


def test_a_patch_without_an_answer_leaves_the_sample_without_a_score(world: World) -> None:
    missing = patch(2, 0)
    world.model.answer = lambda request: failed_prediction("down") if request.images[0].tobytes() == missing else "B"
    values = world.evaluator().result(PATCHES).values
    assert math.isnan(values[2])
    assert not np.isnan(np.delete(values, 2)).any()


def test_of_several_pictures_the_patches_of_one_position_go_together(world: World) -> None:
    world.samples = [sample(0, images=(MemoryImage(picture(0)), MemoryImage(picture(9))))]
    world.evaluator().result(PATCHES)
    assert [[image.tobytes() for image in request.images] for request in world.model.asked] == [
        [patch(0, index), patch(9, index)] for index in range(4)
    ]


def test_a_cell_of_patches_is_measured_by_the_index_and_says_where_answers_come_from(world: World) -> None:
    world.samples = [sample(number, target="AB"[number % 2]) for number in range(6)]
    seen: Callable[[Request], str] = sees(patch(0, 1), patch(1, 1), patch(2, 1), patch(2, 3))  # type: ignore[assignment]
    world.model.answer = lambda request: "AB"[(int(request.sample_id[1:]) + (seen(request) != "B")) % 2]
    record = judge(world).cell(PATCHES)
    found = {measure.metric: measure for measure in record.measures}
    assert found["accuracy"].value == 0.5
    assert found["pcri"].value == found["rci"].value == pytest.approx(0.5)
    assert {"pcri_excess", "accuracy_drop"} <= {*found}
    assert not {"pcri_matched", "relative_corruption_error"} & {*found}
    assert record.positions == pytest.approx((0, 0.75, 0, 0.25))
    assert record.notes == ("patches:2: an RCI of 0.500 is strong global",)
    assert (record.n, record.n_requested, found["pcri"].n) == (24, 24, 6)
    assert Record.from_json(record.to_json()).positions == record.positions


def received(**grids: str) -> object:
    """Answers B and says at which size the picture arrived: by setting without its colon."""

    def answer(request: Request) -> Prediction:
        grid = grids.get(request.setting.replace(":", ""), "")
        return Prediction("B", "generate", details={"image_grid_thw": grid} if grid else {})

    return answer


def test_rungs_that_reach_the_model_as_one_are_named(world: World) -> None:
    from pytest_vlmrobust.core.cell import SweepMetric

    world.model.answer = received(resolution4="1x2x2", resolution8="1x2x2", resolution12="1x3x4", resolution16="1x4x4")  # type: ignore[assignment]
    settings = [Setting.parse(f"resolution:{edge}") for edge in (4, 8, 12, 15)]
    judged = judge(world)
    assert judged.cell(cell("resolution:8")).received == "image grid thw 1x2x2"
    assert judged.cell(cell("resolution:15")).received == ""
    record = judged.sweep(SweepMetric("model", "data", "resolution_accuracy"), [CLEAN, *settings])
    unknown, collapsed = record.notes
    assert unknown == "the model does not say at which size it received resolution:15: whether these differ is unknown"
    assert collapsed.startswith(
        "resolution:4, resolution:8 reached the model at one size (image grid thw 1x2x2): the size limits of its"
    )


def test_rungs_that_show_the_same_pictures_are_no_ladder(world: World) -> None:
    """Pictures that are smaller than the lowest rung are left as they are: a model cannot lose on them."""
    from pytest_vlmrobust.core.cell import SweepMetric
    from pytest_vlmrobust.core.decision import Outcome

    judged, edge = judge(world), max(picture(0).shape)
    large = [Setting.parse(f"resolution:{size}") for size in (edge, edge + 8, edge + 40)]
    for metric in ("absolute_continuous_error", "largest_downward_step", "resolution_accuracy"):
        record = judged.sweep(SweepMetric("model", "data", metric), [CLEAN, *large])
        assert record.outcome is Outcome.NOT_APPLICABLE
        assert record.reason == "all 3 rungs showed the same pictures, as happens when no picture is larger than the lowest rung"
        assert all(not math.isfinite(measure.value) for measure in record.measures)
    lower = Setting.parse("resolution:8")
    record = judged.sweep(SweepMetric("model", "data", "absolute_continuous_error"), [CLEAN, lower, *large])
    assert math.isfinite(record.measures[0].value)
    named = ", ".join(map(str, large))
    assert record.notes[0] == f"{named} showed the same pictures, as happens when no picture is larger than the lowest of these"
