from __future__ import annotations

import math

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.metrics import chance_floor
from pytest_vlmrobust.metrics.accuracy import unseeing

CLEAN = [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def test_flip_rates_have_names() -> None:
    rates = metrics.flip_rates(CLEAN, [1, 1, 1, 0, 0, 1, 0, 0, 0, 0])
    assert rates.harmful == 0.2
    assert rates.helpful == 0.1
    assert type(rates.harmful) is type(rates.helpful) is float


def test_flip_rates_of_graded_scores_are_loss_and_gain() -> None:
    rates = metrics.flip_rates([0.5, 0.5], [0.25, 1.0])
    assert rates == (0.125, 0.25)
    assert metrics.accuracy_drop([0.5, 0.5], [0.25, 1.0]) == rates.harmful - rates.helpful


def test_flip_rates_count_all_samples_not_those_right_when_clean() -> None:
    """VLM-RobustBench tables 21 and 25: the same 90 flips are 11.7 % of 769 clean-correct items and 10.6 % of all 853."""
    clean = [1] * 769 + [0] * 84
    perturbed = [0] * 90 + [1] * 679 + [0] * 84
    assert round(100 * metrics.flip_rates(clean, perturbed).harmful, 1) == 10.6


def test_flip_rates_of_missing_scores_are_unknown() -> None:
    assert all(math.isnan(rate) for rate in metrics.flip_rates([1, math.nan], [1, 0]))
    assert all(math.isnan(rate) for rate in metrics.flip_rates([], []))


def test_rce_of_the_published_adversarial_cell() -> None:
    """Qwen3-VL-4B on MMMU-Pro: 24 of 324 items lost, with a visual gain of 23, exceed 100 % (VLM-RobustBench section 5.6)."""
    clean = [1] * 102 + [0] * 222
    perturbed = [1] * 78 + [0] * 246
    blind = [1] * 79 + [0] * 245
    assert round(metrics.relative_corruption_error(clean, perturbed, blind), 2) == 1.04


@pytest.mark.parametrize("blind", [[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]])
def test_rce_without_visual_gain_is_undefined(blind: list[int]) -> None:
    assert math.isnan(metrics.relative_corruption_error([1, 1, 0, 0], [1, 0, 0, 0], blind))


def test_rce_is_not_blown_up_by_rounding() -> None:
    """0.1 + 0.2 exceeds 0.3 by a rounding error: that is no visual gain."""
    assert math.isnan(metrics.relative_corruption_error([0.1, 0.2], [0.1, 0.1], [0.3, 0.0]))


def test_two_arrays_of_different_length_are_named() -> None:
    with pytest.raises(ValueError, match="clean has 10 scores and no_image has 2"):
        metrics.visual_gain(CLEAN, [0, 0])


def test_floors_by_task() -> None:
    assert chance_floor("choice", 4) == 0.25
    assert chance_floor("yes_no") == 0.5
    assert chance_floor("open") == 0.0


def test_a_majority_raises_the_floor_where_it_can_be_repeated() -> None:
    assert chance_floor("yes_no", targets=["yes"] * 7 + ["no"] * 3) == 0.7
    assert chance_floor("yes_no", targets=["yes", "no"]) == 0.5
    assert chance_floor("open", targets=["2", "2", "cat", "a dog"]) == 0.5
    assert chance_floor("choice", 4, targets=["A", "A", "B", "C"]) == 0.5
    assert chance_floor("choice", 4, targets=["A", "B", "C", "D", "A", "B", "C", "D"]) == 0.25


@pytest.mark.parametrize(("task", "options"), [("choice", 3), ("yes_no", 0), ("open", 0)])
def test_floors_are_those_of_the_samples(task: str, options: int) -> None:
    letters = dict.fromkeys("ABCDE"[:options], "text")
    assert chance_floor(task, options) == Sample("1", (), "?", "A", task, options=letters).chance


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="a choice among 0 options: expected at least 1, the number of options shown"):
        chance_floor("choice")
    with pytest.raises(UnknownName, match=r"unknown task 'yesno'\. Did you mean 'yes_no'\?"):
        chance_floor("yesno")


def test_the_same_answer_throughout_counts_where_it_is_better_than_guessing() -> None:
    guesses = [0.5, 0.5, 0.5, 0.5]
    found = unseeing(guesses, {"yes": [1, 0, 0, 0], "no": [0, 1, 1, 1]})
    assert (found.scores.tolist(), found.answer) == ([0, 1, 1, 1], "no")
    even = unseeing(guesses, {"no": [0, 1, 0, 1]})
    assert (even.scores.tolist(), even.answer) == (guesses, "")
    assert unseeing([], {"no": []}).scores.tolist() == []


def test_answers_belong_to_the_samples() -> None:
    with pytest.raises(ValueError, match="guesses has 2 scores and scores has 1"):
        unseeing([0.5, 0.5], {"no": [1]})
