from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.statistics.jackknife import guarded_jackknife_interval, joined
from pytest_vlmrobust.metrics.statistics.quantiles import critical_value

Array = NDArray[np.float64]


def mean(sums: Array) -> Array:
    found: Array = sums[..., 0] / sums[..., 1]
    return found


def f1(sums: Array) -> Array:
    found: Array = 2 * sums[..., 0] / (2 * sums[..., 0] + sums[..., 1] + sums[..., 2])
    return found


AGAINST: dict[str, Any] = {"against_low": np.array([0.0, 1.0]), "against_high": np.array([1.0, 1.0])}
AGAINST_F1: dict[str, Any] = {"against_low": np.array([0.0, 1.0, 0.0]), "against_high": np.array([1.0, 0.0, 0.0])}


def test_of_a_mean_it_is_the_t_interval_with_one_sample_more_against_each_bound() -> None:
    values = np.array([0.2, 0.9, 0.4, 0.7, 0.5])
    low, high = guarded_jackknife_interval(np.stack([values, np.ones(5)], axis=1), mean, 0.90, **AGAINST)
    for bound, extra, sign in ((low, 0.0, -1.0), (high, 1.0, 1.0)):
        grown = np.append(values, extra)
        margin = critical_value(0.05, 5) * grown.std(ddof=1) / math.sqrt(6)
        assert bound == pytest.approx(grown.mean() + sign * margin)


def test_the_value_lies_inside_and_a_higher_level_is_wider() -> None:
    rng = np.random.default_rng(0)
    rows = rng.multinomial(1, [0.6, 0.3, 0.1], 80).astype(float)
    value = float(f1(rows.sum(axis=0)))
    narrow, wide = (guarded_jackknife_interval(rows, f1, level, **AGAINST_F1) for level in (0.90, 0.999))
    assert wide[0] < narrow[0] < value < narrow[1] < wide[1]


def test_without_a_wrong_answer_nothing_is_certain() -> None:
    """100 of 100: a one-sided 95 % bound of an exact test is 0.970."""
    rows = np.tile([1.0, 0.0, 0.0], (100, 1))
    low, high = guarded_jackknife_interval(rows, f1, 0.90, **AGAINST_F1)
    assert 0.95 < low < 0.99
    assert high >= 1.0


def test_what_cannot_be_known_is_not_bounded() -> None:
    assert guarded_jackknife_interval(np.ones((1, 2)), mean, 0.90, **AGAINST) == (-math.inf, math.inf)
    only = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 1.0, 0.0]])

    def needs_the_second(sums: Array) -> Array:
        return np.where(sums[..., 2] > 0, mean(sums), np.nan)

    low, high = guarded_jackknife_interval(only, needs_the_second, 0.90, against_low=np.zeros(3), against_high=np.zeros(3))
    assert math.isnan(low)
    assert math.isnan(high)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 90.0])
def test_a_level_is_a_probability(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence is"):
        guarded_jackknife_interval(np.ones((3, 2)), mean, confidence, **AGAINST)


def test_samples_of_a_group_and_of_a_unit_stay_together() -> None:
    clusters = joined(["a", "a", "b", "c", "d"], [(0, 1), (2, 3)])
    assert clusters.count == 3
    assert clusters.codes[0] == clusters.codes[1]
    assert clusters.codes[2] == clusters.codes[3]
    assert len({*clusters.codes.tolist()}) == 3
    chained = joined(["a", "b", "c", "d"], [(0, 1), (1, 2)])
    assert chained.count == 2
    assert joined(["", ""], []).count == 2


@pytest.mark.parametrize(
    ("images", "per_image", "rate", "change"),
    [(60, 1, 0.9, 0.0), (60, 6, 0.85, 0.0), (200, 1, 0.97, 0.0), (60, 1, 0.9, 0.1), (150, 2, 0.8, 0.05), (300, 1, 0.95, 0.02)],
)
def test_bounds_of_a_drop_of_f1_err_as_often_as_they_say(images: int, per_image: int, rate: float, change: float) -> None:
    """Half of the questions want yes; ``change`` is the share of right answers that turn wrong. One-sided errors at 5 %."""
    rng = np.random.default_rng(images + per_image)

    def function(sums: Array) -> Array:
        return f1(sums[..., :3]) - f1(sums[..., 3:])

    after = rate * (1 - change)
    truth = 2 * rate / (2 * rate + 2 * (1 - rate)) - 2 * after / (2 * after + 2 * (1 - after))
    too_high = too_low = 0
    runs = 600
    for _ in range(runs):
        skill = np.clip(rng.normal(rate, 0.05 if per_image > 1 else 0.0, (images, 1)), 0, 1)
        clean = rng.random((images, per_image)) < skill
        perturbed = clean & (rng.random(clean.shape) >= change)
        wants = np.arange(images * per_image).reshape(clean.shape) % 2 == 0

        def rows(right: NDArray[np.bool_], wants: NDArray[np.bool_] = wants) -> Array:
            parts = (right & wants, ~right & wants, ~right & ~wants)
            return np.stack([part.sum(axis=1) for part in parts], axis=1).astype(float)

        low, high = guarded_jackknife_interval(
            np.hstack([rows(clean), rows(perturbed)]),
            function,
            0.90,
            against_low=per_image * np.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.0]),
            against_high=per_image * np.array([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
        )
        too_high += low > truth + 1e-12
        too_low += high < truth - 1e-12
    assert too_high / runs < 0.075, "as often as Tango's interval errs with clusters"
    assert too_low / runs < 0.075
