from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import ScoreTable, estimate

Array = NDArray[np.float64]
Rows = list[dict[str, str]]


def test_published_orders_of_luck(golden: Callable[[str], Rows]) -> None:
    for row in golden("pcri_luck"):
        options = int(row["options"])
        for attempts in (4, 9):
            printed = row[f"patches{attempts}"]
            whole = float(row["whole"] or 1 / options)  # without a score, a model that guesses
            value = metrics.pcri_neutral(whole, options, attempts)
            assert value == pytest.approx(float(printed), abs=0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9), row


def test_one_attempt_has_no_luck() -> None:
    assert metrics.pcri_neutral(0.6, 4, 1) == pytest.approx(0.0)


def test_a_guesser_has_the_best_of_as_many_guesses_as_there_are_patches() -> None:
    for options in (2, 3, 7):
        best = 1 - (1 - 1 / options) ** 9
        assert metrics.pcri_neutral(1 / options, options, 9) == pytest.approx(1 - options * best)


def test_open_questions_leave_nothing_to_luck() -> None:
    assert metrics.pcri_neutral(0.5, math.inf, 9) == 0.0


def test_options_may_differ_between_questions() -> None:
    """A yes/no question that is answered, and one of ten options that is not."""
    missed = (1 - 1.0) * 0.5**3 + (1 - 0.0) * 0.9**3
    assert metrics.pcri_neutral([1, 0], [2, 10], 4) == pytest.approx(1 - (2 - missed) / 1)
    assert metrics.pcri_neutral([0.8] * 3, 4, 4) == pytest.approx(metrics.pcri_neutral(0.8, [4] * 3, 4))


@pytest.mark.parametrize("whole", [0.0, math.nan, []])
def test_luck_of_nothing_is_unknown(whole: float | list[float]) -> None:
    assert math.isnan(metrics.pcri_neutral(whole, 4, 4))


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="attempts is 0: expected the number of patches, at least 1"):
        metrics.pcri_neutral(0.8, 4, 0)
    with pytest.raises(ValueError, match=r"options has 0\.25: expected at least 1, and infinity for an open question"):
        metrics.pcri_neutral(0.8, 0.25, 4)
    with pytest.raises(ValueError, match="whole_score has 2 scores and options has 3"):
        metrics.pcri_neutral([1, 0], [4, 4, 4], 4)
    with pytest.raises(ValueError, match=r"whole_score\[0\] is 80\.0"):
        metrics.pcri_neutral(80.0, 4, 4)


def _answers(seed: int = 3, n: int = 60) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    return (
        (rng.random(n) < 0.7).astype(float),
        (rng.random((n, 4)) < 0.4).astype(float),
        rng.choice([0.0, 0.25, 0.5], n),
    )


def test_the_excess_is_the_raw_index_less_luck() -> None:
    whole, patches, chances = _answers()
    options = [1 / chance if chance else math.inf for chance in chances.tolist()]
    difference = metrics.pcri(whole, patches) - metrics.pcri_neutral(whole, options, 4)
    assert metrics.pcri_excess(whole, patches, chances) == pytest.approx(difference)


def test_without_chance_the_excess_is_the_raw_index() -> None:
    whole, patches, _ = _answers()
    raw = metrics.pcri(whole, patches)
    assert metrics.pcri_excess(whole, patches, np.zeros(60)) == pytest.approx(raw - metrics.pcri_neutral(whole, math.inf, 4))
    assert metrics.pcri_neutral(whole, math.inf, 4) == 0.0


def test_companions_of_a_model_without_right_answers_are_unknown() -> None:
    wrong, patches = np.zeros(3), np.ones((3, 4))
    assert math.isnan(metrics.pcri_excess(wrong, patches, np.full(3, 0.25)))
    assert math.isnan(metrics.pcri_matched(wrong, patches, np.zeros((3, 4))))


def test_no_patches_are_no_zero() -> None:
    nothing = np.zeros((2, 0))
    assert math.isnan(metrics.pcri_excess([1, 1], nothing, [0.5, 0.5]))
    assert math.isnan(metrics.pcri_matched([1, 1], nothing, nothing))


def test_matched_compares_like_with_like() -> None:
    attempts = [[1, 0], [0, 0], [0, 1], [1, 1]]
    assert metrics.pcri_matched([1, 0, 0, 1], attempts, attempts) == 0.0
    assert metrics.pcri_matched([1, 0, 0, 1], [[0, 0]] * 4, attempts) == 1.0


def test_unequal_numbers_of_attempts_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"patches has 4 attempts for each sample and .* has 3: expected the same number, because"
    ):
        metrics.pcri_matched([1, 1], np.ones((2, 4)), np.ones((2, 3)))


def _table(whole: Array, patches: Array, **more: object) -> ScoreTable:
    return ScoreTable(whole, patches_by_setting={"patches:2": patches}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("pcri_matched", "there are no scores of further attempts at the whole image"),
        ("pcri_excess", "there are no chance levels of the samples"),
    ],
)
def test_what_a_companion_lacks_is_named(name: str, missing: str) -> None:
    result = estimate(name, _table(np.ones(5), np.ones((5, 4))), "patches:2")
    assert math.isnan(result.value)
    assert result.reason == missing


def test_a_gap_in_a_companion_is_named() -> None:
    attempts = np.ones((5, 4))
    attempts[2, 1] = math.nan
    result = estimate("pcri_matched", _table(np.ones(5), np.ones((5, 4)), chance=0.25, whole_attempts=attempts), "patches:2")
    assert math.isnan(result.value)
    lacking = "1 in scores of further attempts at the whole image of patches:2"
    assert result.reason == f"scores of 1 of 5 samples are missing: {lacking}"


def test_the_first_attempts_at_the_whole_image_are_used() -> None:
    attempts = np.zeros((4, 9))
    attempts[:, 1], attempts[:2, 8] = 1.0, 1.0
    table = _table(np.ones(4), np.ones((4, 4)), chance=0.25, whole_attempts=attempts)
    assert estimate("pcri_matched", table, "patches:2").value == 0.0


def test_the_raw_index_comes_with_its_luck() -> None:
    whole, patches, _ = _answers()
    result = estimate("pcri", _table(whole, patches, chance=0.25), "patches:2")
    assert result.reason == f"luck alone gives {metrics.pcri_neutral(whole, 4, 4):.3f} to 0 (patches:2)"
    each = estimate("rci", _table(whole, patches, chances=np.full(60, 0.25)), "patches:2")
    assert (each.valid, each.reason) == (True, result.reason)


def test_chances_of_each_sample_take_the_place_of_one_for_all() -> None:
    whole, patches, chances = _answers()
    one = estimate("pcri_excess", _table(whole, patches, chance=0.25), "patches:2")
    assert one.value == pytest.approx(metrics.pcri_excess(whole, patches, np.full(60, 0.25)))
    each = estimate("pcri_excess", _table(whole, patches, chances=chances), "patches:2")
    assert each.value == pytest.approx(metrics.pcri_excess(whole, patches, chances))
    assert each.valid


def test_chances_belong_to_the_samples() -> None:
    whole, patches, _ = _answers()
    with pytest.raises(ValueError, match="clean has 60 scores and chances has 2"):
        _table(whole, patches, chances=np.array([0.25, 0.5]))
    with pytest.raises(ValueError, match=r"chances\[0\] is 4\.0: a score lies in \[0, 1\]"):
        _table(whole, patches, chances=np.full(60, 4.0))


def test_too_few_attempts_at_the_whole_image_are_refused() -> None:
    table = _table(np.ones(4), np.ones((4, 4)), chance=0.25, whole_attempts=np.ones((4, 3)))
    with pytest.raises(ValueError, match="patches has 4 attempts for each sample and whole_attempts has 3"):
        estimate("pcri_matched", table, "patches:2")
