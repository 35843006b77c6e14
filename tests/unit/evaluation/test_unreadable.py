"""Answers that cannot be read are told apart from wrong ones, also in what a setting does to them."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.evaluation.judged import UNPARSED_INCREASE
from pytest_vlmrobust.evaluation.unreadable import unreadable_estimates

from .conftest import World, cell


def found(world: World, setting: str) -> dict[str, float]:
    evaluator = world.evaluator()
    clean, here = evaluator.result(cell("clean")), evaluator.result(cell(setting))
    return {name: estimate.value for name, estimate in unreadable_estimates(clean, here, 0.9)}


def test_the_increase_is_paired_with_clean(world: World) -> None:
    lost = {"clean": {"q1"}, "flip_h": {"q1", "q2", "q3"}}
    world.model.answer = lambda request: "well, who knows" if request.sample_id in lost.get(request.setting, ()) else "B"
    assert found(world, "flip_h") == {UNPARSED_INCREASE: pytest.approx(2 / 6)}


def test_a_wrong_answer_is_a_readable_one(world: World) -> None:
    world.model.answer = lambda request: "A" if request.setting == "flip_h" else "B"
    assert found(world, "flip_h") == {UNPARSED_INCREASE: 0.0}


def test_letters_scored_by_probability_say_nothing(world: World) -> None:
    world.model.answer = lambda _request: Prediction("B", "letter_logits")
    assert found(world, "flip_h") == {}


def test_clean_and_no_pictures_have_no_increase(world: World) -> None:
    world.model.answer = lambda _request: "B"
    assert found(world, "clean") == found(world, "no_image") == {}
