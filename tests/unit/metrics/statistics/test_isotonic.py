from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from pytest_vlmrobust.metrics.statistics.isotonic import rising_fit


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=12))
def test_it_agrees_with_scipy(values: list[int]) -> None:
    curve = np.array(values, dtype=np.float64)
    assert rising_fit(curve).tolist() == pytest.approx(isotonic_regression(curve).x.tolist())


def test_a_rising_curve_is_its_own_fit() -> None:
    curve = np.array([0.1, 0.1, 0.3])
    assert rising_fit(curve).tolist() == curve.tolist()


def test_a_falling_curve_is_flat() -> None:
    assert rising_fit(np.array([3.0, 2.0, 1.0])).tolist() == [2.0, 2.0, 2.0]
