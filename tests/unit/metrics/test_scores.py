from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import SettingError
from pytest_vlmrobust.metrics.scores import against_clean, as_scores, by_setting, drops, mean, pair_scores, stack_settings


@pytest.mark.parametrize("values", [[1, 0, 1], [True, False, True], (1.0, 0.0, 1.0), np.array([1, 0, 1], dtype=np.uint8)])
def test_anything_like_an_array_of_numbers_is_accepted(values: object) -> None:
    scores = as_scores(values, "clean")  # type: ignore[arg-type]  # that is the point
    assert scores.dtype == np.float64
    assert scores.tolist() == [1.0, 0.0, 1.0]


def test_the_result_is_a_copy() -> None:
    given = np.array([0.0, 1.0])
    as_scores(given, "clean")[0] = 0.5
    assert given.tolist() == [0.0, 1.0]


def test_missing_scores_are_kept() -> None:
    assert math.isnan(as_scores([1.0, math.nan], "clean")[1])


@pytest.mark.parametrize("value", [1.5, -0.01, 26.3, math.inf, -math.inf])
def test_a_score_outside_the_unit_interval_is_refused_with_its_place(value: float) -> None:
    with pytest.raises(
        ValueError, match=r"^clean\[2\] is .*: a score lies in \[0, 1\] \(a fraction, not a percentage\), or is NaN$"
    ):
        as_scores([0.0, 1.0, value], "clean")


def test_a_patch_score_outside_is_refused_with_row_and_column() -> None:
    with pytest.raises(ValueError, match=r"^patches\[1, 0\] is 2\.0: a score lies in"):
        as_scores([[0, 1], [2, 1]], "patches", axes=2)


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^clean: expected scores of shape \(N,\), found shape \(1, 2\)$"):
        as_scores([[0, 1]], "clean")
    with pytest.raises(ValueError, match=r"^patches: expected scores of shape \(N, n\*n\), found shape \(2,\)$"):
        as_scores([0, 1], "patches", axes=2)


def test_answers_are_no_scores() -> None:
    with pytest.raises(
        ValueError, match=r"^clean: expected numbers in \[0, 1\], found values of dtype <U1\. Score the answers first$"
    ):
        as_scores(["A", "B"], "clean")


def test_unequal_lengths_are_refused_with_both() -> None:
    with pytest.raises(ValueError, match=r"^clean has 3 scores and perturbed has 2: paired scores belong to the same samples"):
        pair_scores(clean=[1, 0, 1], perturbed=[1, 0])
    with pytest.raises(ValueError, match=r"^clean has 2 scores and perturbed_by_setting\['fog:low'\] has 3"):
        against_clean([1, 0], {"fog:low": [1, 0, 1]})
    with pytest.raises(ValueError, match=r"perturbed_by_setting\['a'\] has 1 scores and perturbed_by_setting\['b'\] has 2"):
        by_setting({"a": [1], "b": [1, 0]})


def test_settings_are_known_by_their_text() -> None:
    scores = by_setting({Setting.parse("fog:low"): [1.0]})
    assert list(scores) == ["fog:low"]


def test_one_array_may_stand_for_several_settings() -> None:
    blind, own = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    scores = by_setting({"a": blind, "b": blind, "c": own, "d": blind})
    assert {name: values.tolist() for name, values in scores.items()} == {
        "a": [0.0, 1.0],
        "b": [0.0, 1.0],
        "c": [1.0, 1.0],
        "d": [0.0, 1.0],
    }
    blind[0] = 1.0
    assert scores["a"].tolist() == [0.0, 1.0], "the caller's array is copied"


def test_a_setting_given_twice_is_refused() -> None:
    twice: dict[str | Setting, list[int]] = {"fog:low": [1], Setting.parse("fog:low"): [0]}
    with pytest.raises(ValueError, match="the setting 'fog:low' is given twice, as text and as Setting"):
        by_setting(twice)  # type: ignore[arg-type]  # that is the point


def test_a_key_that_is_no_setting_is_refused() -> None:
    with pytest.raises(SettingError, match="cannot read 'Fog Low'"):
        by_setting({"Fog Low": [1]})


def test_nothing_has_no_mean() -> None:
    assert math.isnan(mean(np.zeros(0)))
    assert math.isnan(mean(np.array([1.0, math.nan])))
    assert type(mean(np.array([1.0, 0.0]))) is float


def test_drops_of_equal_scores_are_exactly_zero() -> None:
    graded = np.random.default_rng(1).random(1000)
    assert drops(graded, graded[:, None]).tolist() == [0.0]


def test_drops_without_samples_are_unknown() -> None:
    assert np.isnan(drops(np.zeros(0), np.zeros((0, 3)))).tolist() == [True] * 3


def test_stacking_nothing_keeps_the_samples() -> None:
    assert stack_settings({}, 5).shape == (5, 0)
