from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from pytest_vlmrobust.metrics import benjamini_hochberg, holm

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)
lists = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=30).map(np.array)

PUBLISHED = np.array([0.0001, 0.004, 0.019, 0.095, 0.201, 0.278, 0.298, 0.344, 0.459, 0.324, 0.426, 0.572, 0.653, 0.759, 1.0])
"""The example of Benjamini and Hochberg 1995, section 3.2; adjusted values as statsmodels gives them."""


def test_holm_of_the_published_example() -> None:
    assert holm(PUBLISHED) == pytest.approx([0.0015, 0.056, 0.247] + [1.0] * 12)


def test_benjamini_hochberg_of_the_published_example() -> None:
    assert benjamini_hochberg(PUBLISHED)[:5] == pytest.approx([0.0015, 0.03, 0.095, 0.35625, 0.573333], abs=5e-7)


@laws
@given(lists)
def test_benjamini_hochberg_is_scipys(p_values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    assert benjamini_hochberg(p_values) == pytest.approx(stats.false_discovery_control(p_values))


@laws
@given(lists, st.floats(0.001, 0.5))
def test_holm_is_the_step_down_procedure(p_values: np.ndarray[tuple[int], np.dtype[np.float64]], alpha: float) -> None:
    """Reject the smallest while each is at most alpha divided by how many are left."""
    rejected = 0
    for rank, p in enumerate(sorted(p_values)):
        if p * (len(p_values) - rank) > alpha:
            break
        rejected += 1
    assert int((holm(p_values) <= alpha).sum()) == rejected


@laws
@given(lists, st.integers(0, 99))
def test_adjusting_follows_the_p_values(p_values: np.ndarray[tuple[int], np.dtype[np.float64]], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(p_values))
    for adjust in (holm, benjamini_hochberg):
        assert adjust(p_values[order]) == pytest.approx(adjust(p_values)[order])
        assert (adjust(p_values) >= p_values * (1 - 1e-12)).all()
        assert (adjust(p_values) <= 1.0).all()


def test_of_nothing_nothing_is_adjusted() -> None:
    assert holm(np.zeros(0)).size == benjamini_hochberg(np.zeros(0)).size == 0


@pytest.mark.parametrize("adjusted", [holm, benjamini_hochberg])
def test_lists_are_taken_and_what_is_no_p_value_is_refused(adjusted: Callable[[ArrayLike], NDArray[np.float64]]) -> None:
    assert adjusted([0.5, 0.5]).tolist() == adjusted(np.array([0.5, 0.5])).tolist()
    for wrong in (math.nan, -0.1, 1.5):
        with pytest.raises(ValueError, match=r"p_values\[1\] is .*: expected a probability in \[0, 1\]"):
            adjusted([0.01, wrong])
