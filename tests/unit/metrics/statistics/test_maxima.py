"""The largest of many noisy drops: how biased it is, and that what is said about it holds all the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.differences import TangoTest
from pytest_vlmrobust.metrics.statistics.maxima import cross_validated_maximum, max_t_lower

Array = NDArray[np.float64]

SAMPLES, SETTINGS, TRUTH = 324, 133, 0.01
ALONE = Clusters.of(None, SAMPLES)


def _noise(rng: np.random.Generator) -> Array:
    """One sweep in which each setting truly costs 1 pp: 3 % harmful and 2 % helpful flips."""
    return rng.choice([1.0, -1.0, 0.0], size=(SAMPLES, SETTINGS), p=[0.03, 0.02, 0.95])


def test_the_largest_of_133_noise_cells_is_biased_and_its_cross_validation_is_not() -> None:
    """MMMU-Pro size, a flat profile: the largest drop reads three times the truth; the bound above it holds."""
    rng = np.random.default_rng(12)
    largest, fair, upper = [], [], []
    for _ in range(60):
        sweep = _noise(rng)
        largest.append(float(sweep.mean(axis=0).max()))
        fair.append(cross_validated_maximum(sweep, ALONE, np.random.default_rng(0)))
        upper.append(float(TangoTest.of(sweep, ALONE).upper(0.05).max()))
    assert np.mean(largest) - TRUTH > 0.02
    assert abs(np.mean(fair) - TRUTH) < 3 * np.std(fair) / math.sqrt(60)
    assert np.std(fair) / math.sqrt(60) < 0.003
    assert min(upper) > TRUTH
    assert sum(largest[run] - 0.02 > TRUTH for run in range(60)) > 20


def test_a_setting_that_dominates_is_judged_as_it_is() -> None:
    rng = np.random.default_rng(13)
    sweep = _noise(rng)
    sweep[:, 7] = rng.choice([1.0, 0.0], size=SAMPLES, p=[0.3, 0.7])
    assert cross_validated_maximum(sweep, ALONE, rng) == pytest.approx(sweep[:, 7].mean())


def test_one_setting_is_its_own_cross_validation() -> None:
    sweep = _noise(np.random.default_rng(14))[:, :1]
    assert cross_validated_maximum(sweep, ALONE, np.random.default_rng(1)) == pytest.approx(sweep.mean())


def test_clusters_stay_in_one_fold() -> None:
    """Copies of a sample in another fold would vouch for the setting that they chose."""
    rng = np.random.default_rng(15)
    single = _noise(rng)[:60]
    copies, groups = np.repeat(single, 5, axis=0), [f"{index:03}" for index in range(60) for _ in range(5)]
    together = cross_validated_maximum(copies, Clusters.of(groups, 300), np.random.default_rng(2))
    assert together == pytest.approx(cross_validated_maximum(single, Clusters.of(None, 60), np.random.default_rng(2)))
    apart = cross_validated_maximum(copies, Clusters.of(None, 300), np.random.default_rng(2))
    assert apart > together + 0.02


def test_too_few_clusters_to_split() -> None:
    one = Clusters.of(["a"] * 4, 4)
    assert math.isnan(cross_validated_maximum(np.ones((4, 2)), one, np.random.default_rng(0)))
    assert max_t_lower(np.ones((4, 2)), one, 0.05, np.random.default_rng(0)) == -math.inf
    two = Clusters.of(["a", "a", "b", "b"], 4)
    assert cross_validated_maximum(np.ones((4, 2)), two, np.random.default_rng(0)) == 1.0


def test_the_same_generator_gives_the_same_bound() -> None:
    sweep = _noise(np.random.default_rng(16))
    first, second = (max_t_lower(sweep, ALONE, 0.05, np.random.default_rng(0), draws=200) for _ in range(2))
    assert first == second < sweep.mean(axis=0).max()


def test_max_t_of_one_setting_is_about_the_t_bound() -> None:
    sweep = _noise(np.random.default_rng(17))[:, :1]
    margin = 1.645 * float(ALONE.standard_errors(sweep)[0])
    assert max_t_lower(sweep, ALONE, 0.05, np.random.default_rng(0)) == pytest.approx(sweep.mean() - margin, abs=0.15 * margin)


def test_max_t_bounds_err_seldom() -> None:
    rng = np.random.default_rng(18)
    wrong = sum(max_t_lower(_noise(rng)[:200, :12], Clusters.of(None, 200), 0.05, rng, draws=400) > TRUTH for _ in range(100))
    assert wrong <= 11


def test_max_t_gains_from_settings_that_move_together() -> None:
    """Forty copies of one setting count as one, where Bonferroni would count them as forty."""
    column = _noise(np.random.default_rng(19))[:, :1]
    alone = max_t_lower(column, ALONE, 0.05, np.random.default_rng(0))
    copies = max_t_lower(np.repeat(column, 40, axis=1), ALONE, 0.05, np.random.default_rng(0))
    assert copies == pytest.approx(alone)
