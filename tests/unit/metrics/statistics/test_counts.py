from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.metrics.statistics.counts import count_interval, partial_conjunction

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def test_partial_conjunction_of_the_golden_p_values() -> None:
    p_values = np.array([0.5, 0.001, 0.03, 0.004, 0.2, 0.01])
    assert partial_conjunction(p_values) == pytest.approx([0.006, 0.02, 0.04, 0.09, 0.4, 0.5])


def test_p_values_never_exceed_one() -> None:
    assert partial_conjunction(np.array([0.9, 0.9])).tolist() == [1.0, 1.0]


def test_a_count_is_bounded_from_both_sides() -> None:
    """Three are shown to be true and two to be false, of six."""
    true = np.array([1e-6, 1e-5, 1e-4, 0.5, 0.999, 0.9999])
    assert count_interval(true, 1 - true, 0.05) == (3, 4)


def test_nothing_shown_leaves_everything_open() -> None:
    assert count_interval(np.full(133, 0.5), np.full(133, 0.5), 0.05) == (0, 133)


@laws
@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=40))
def test_the_count_of_more_likely_than_not_is_inside(p_values: list[float]) -> None:
    array = np.array(p_values)
    low, high = count_interval(array, 1 - array, 0.05)
    assert 0 <= low <= (array < 0.5).sum() <= high <= array.size


def test_bounds_err_as_seldom_as_they_promise() -> None:
    """20 of 60 statements are true by a wide margin, the others false at their very boundary: the worst case for the bound."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(1000):
        p_values = np.concatenate([np.full(20, 1e-9), rng.random(40)])
        wrong += count_interval(p_values, 1 - p_values, 0.05)[0] > 20
    assert wrong <= 70
