from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics

Array = NDArray[np.float64]


def _answers(rng: np.random.Generator, n: int, rates: Array) -> Array:
    ease = np.where(rng.random((n, rates.size)) < 0.15, rng.random((n, rates.size)), rng.random(n)[:, None])
    return (ease < rates).astype(float)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_flat_curves(rng: np.random.Generator) -> None:
    """On average the measured ACE is its noise floor, the debiased one about 0.6 of it and the split one 0."""
    samples = [_answers(rng, 200, np.full(12, 0.55)) for _ in range(60)]
    measured = np.mean([metrics.absolute_continuous_error(rungs.mean(axis=0).tolist()) for rungs in samples])
    floor = np.mean([metrics.resolution_noise_floor(rungs) for rungs in samples])
    debiased = np.mean([metrics.debiased_continuous_error(rungs) for rungs in samples])
    split = np.mean([metrics.split_continuous_error(rungs, rng, splits=10) for rungs in samples])
    assert measured == pytest.approx(floor, rel=0.06)
    assert 0.5 < debiased / floor < 0.75
    assert abs(split) < 0.2 * floor


def test_rising_curves(rng: np.random.Generator) -> None:
    """True ACE 0.24; at N = 1200 the noise adds a little, and splitting brackets it from below."""
    samples = [_answers(rng, 1200, np.linspace(0.36, 0.60, 12)) for _ in range(30)]
    measured = np.mean([metrics.absolute_continuous_error(rungs.mean(axis=0).tolist()) for rungs in samples])
    debiased = np.mean([metrics.debiased_continuous_error(rungs) for rungs in samples])
    split = np.mean([metrics.split_continuous_error(rungs, rng, splits=10) for rungs in samples])
    assert 0.18 < split < 0.24 < measured < 0.27
    assert debiased == pytest.approx(0.235, abs=0.02)


def test_a_debiased_error_is_never_above_the_measured_one(rng: np.random.Generator) -> None:
    for _ in range(10):
        rungs = _answers(rng, 40, np.linspace(0.2, 0.9, 5))
        measured = metrics.absolute_continuous_error(rungs.mean(axis=0).tolist())
        assert 0.0 <= metrics.debiased_continuous_error(rungs) <= measured


def test_steps_without_noise_stay() -> None:
    """All samples go from wrong to right at one resolution: the step has no error."""
    rungs = np.zeros((10, 4))
    rungs[:, 2:] = 1.0
    assert metrics.debiased_continuous_error(rungs) == pytest.approx(1.0)
    assert metrics.split_continuous_error(rungs, np.random.default_rng(0), splits=3) == pytest.approx(1.0)


def test_wobble_of_a_monotone_truth_is_seldom_significant(rng: np.random.Generator) -> None:
    p_values = [metrics.wobble_p_value(_answers(rng, 150, np.linspace(0.5, 0.6, 6)), rng, draws=99) for _ in range(100)]
    assert sum(p <= 0.05 for p in p_values) <= 10
    assert 0.4 < float(np.mean(p_values)) < 0.85


def test_a_true_wobble_is_significant(rng: np.random.Generator) -> None:
    rungs = _answers(rng, 1000, np.array([0.5, 0.62, 0.5, 0.62, 0.5, 0.62]))
    assert metrics.wobble_p_value(rungs, rng) == pytest.approx(1 / 1000)


def test_p_values_follow_the_generator(rng: np.random.Generator) -> None:
    rungs = _answers(rng, 100, np.full(5, 0.5))
    first, again = (metrics.wobble_p_value(rungs, np.random.default_rng(4)) for _ in range(2))
    assert first == again
    assert type(first) is float


def test_source_images_count_once(rng: np.random.Generator) -> None:
    rungs = np.tile(_answers(rng, 100, np.full(6, 0.5)), (9, 1))
    groups = [str(index) for index in range(100)] * 9
    assert metrics.debiased_continuous_error(rungs, groups) < metrics.debiased_continuous_error(rungs)
    naive, aware = (metrics.wobble_p_value(rungs, np.random.default_rng(0), images) for images in (None, groups))
    assert naive < 0.2 * aware


COMPANIONS: list[Callable[..., float]] = [
    lambda rungs, groups=None: metrics.debiased_continuous_error(rungs, groups),
    lambda rungs, groups=None: metrics.split_continuous_error(rungs, np.random.default_rng(0), groups),
    lambda rungs, groups=None: metrics.wobble_p_value(rungs, np.random.default_rng(0), groups),
]


@pytest.mark.parametrize("companion", COMPANIONS, ids=["debiased", "split", "wobble"])
def test_too_little_is_unknown(companion: Callable[..., float]) -> None:
    assert math.isnan(companion([[1, 0]]))
    assert math.isnan(companion([[1], [0]]))
    assert math.isnan(companion([[1, 0], [math.nan, 1]]))
    assert math.isnan(companion([[1, 0], [0, 1]], ["a", "a"]))
    assert math.isnan(companion(np.zeros((0, 3))))
    with pytest.raises(ValueError, match="1 source images for 2 samples"):
        companion([[1, 0], [0, 1]], ["a"])


def test_counts_of_draws_are_checked(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="splits is 0: expected at least 1"):
        metrics.split_continuous_error([[1, 0], [0, 1]], rng, splits=0)
    with pytest.raises(ValueError, match="draws is 0: expected at least 1"):
        metrics.wobble_p_value([[1, 0], [0, 1]], rng, draws=0)
