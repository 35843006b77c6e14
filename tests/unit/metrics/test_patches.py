from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest

from pytest_vlmrobust import metrics


def test_the_best_patch_of_each_sample_counts() -> None:
    """Whole: 2 of 4. Best patch: 1, 0, 1, 1 = 3 of 4. 1 - 3/2."""
    patches = [[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]
    assert metrics.pcri([1, 1, 0, 0], patches) == -0.5
    assert metrics.rci([1, 1, 0, 0], patches) == -0.5


def test_graded_scores() -> None:
    assert metrics.pcri([0.8, 0.4], [[0.2, 0.4], [0.2, 0.0]]) == pytest.approx(1 - 0.6 / 1.2)


@pytest.mark.parametrize(("options", "patches", "index"), [(4, 4, -1.734), (2, 4, -0.875), (3, 4, -1.41), (4, 2, -0.75)])
def test_pure_guessing_has_the_index_of_luck(options: int, patches: int, index: float) -> None:
    """Every combination of guesses once: 1 - k (1 - (1 - 1/k)^m)."""
    guesses = list(itertools.product(range(options), repeat=patches))
    views = [[float(guess == 0) for guess in row] for row in guesses]
    whole = [float(row[0] == 0) for row in guesses]
    assert metrics.pcri(whole, views) == pytest.approx(index, abs=5e-3)
    assert metrics.pcri(whole, views) == pytest.approx(1 - options * (1 - (1 - 1 / options) ** patches))


@pytest.mark.parametrize("index", [metrics.pcri, metrics.rci])
def test_a_model_that_cannot_solve_the_whole_has_no_index(index: Callable[..., float]) -> None:
    assert math.isnan(index([0, 0], [[1, 1], [0, 0]]))


def test_a_missing_patch_might_have_been_the_best() -> None:
    assert math.isnan(metrics.pcri([1.0, 1.0], [[1.0, math.nan], [1.0, 0.0]]))


def test_no_patches_are_no_zero() -> None:
    assert math.isnan(metrics.pcri([1, 1], [[], []]))


def test_lengths_are_named() -> None:
    with pytest.raises(ValueError, match="whole has 2 scores and patches has 1"):
        metrics.pcri([1, 1], [[1, 1]])


def test_contributions_add_up() -> None:
    shares = metrics.patch_contribution([[1, 0, 0, 0.5], [1, 0.5, 0, 0]])
    assert shares == pytest.approx((2 / 3, 1 / 6, 0, 1 / 6))
    assert all(type(share) is float for share in shares)


@pytest.mark.parametrize("patches", [[[0, 0]], [[1, math.nan]]])
def test_contributions_of_nothing_are_unknown(patches: list[list[float]]) -> None:
    assert all(math.isnan(share) for share in metrics.patch_contribution(patches))
