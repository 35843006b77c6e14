from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import Score
from pytest_vlmrobust.core.sample import Sample


def test_wrong_unreadable_and_failed_are_three_things() -> None:
    wrong, unreadable, failed = Score(0.0, "letter", "A"), Score.unparsed(), Score.unscored("down")
    assert [score.state for score in (wrong, unreadable, failed)] == ["scored", "unparsed", "error"]
    assert unreadable.value == 0.0
    assert math.isnan(failed.value)
    assert failed.rule == "down"
    assert unreadable.answer is failed.answer is None


@pytest.mark.parametrize(("task", "options", "chance"), [("choice", "ABCD", 0.25), ("yes_no", "", 0.5), ("open", "", 0.0)])
def test_chance_is_what_a_uniform_guess_scores(task: str, options: str, chance: float) -> None:
    sample = Sample("1", (), "?", "A", task, options=dict.fromkeys(options, "x"))
    assert sample.chance == chance


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_only_numbers_are_finite(value: float) -> None:
    assert not Estimate(value, 3).finite
    assert Estimate(0.0, 3).finite
