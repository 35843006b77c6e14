from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.sequential import next_cells
from pytest_vlmrobust.metrics.sequential.schedule import CELLS, SAMPLES

LOGS = np.array([0.5, 2.0, 1.0, 2.0, -3.0, 0.0])
EQUAL = np.full(6, 1 / 6)
ALL = np.ones(6, dtype=np.bool_)


def test_the_strongest_evidence_comes_first() -> None:
    assert next_cells(LOGS, EQUAL, ALL).tolist() == [1, 3, 2, 0]
    assert (CELLS, SAMPLES) == (4, 8)


def test_ties_go_to_the_lower_index() -> None:
    many = np.full(500, 1 / 500)
    assert next_cells(np.arange(500.0) % 2.0, many, many > 0.0, 250).tolist() == list(range(1, 500, 2))


def test_weights_count_like_evidence() -> None:
    """Three on top of no evidence outrank evidence of two."""
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.exp(3.0)])
    assert next_cells(LOGS, weights, ALL, 2).tolist() == [5, 1]


def test_only_open_cells_are_chosen() -> None:
    open_cells = np.array([True, False, True, False, True, False])
    assert next_cells(LOGS, EQUAL, open_cells).tolist() == [2, 0, 4]
    assert next_cells(LOGS, EQUAL, ~ALL).size == 0


def test_a_cell_without_weight_comes_last() -> None:
    assert next_cells(LOGS, np.array([0.2, 0.0, 0.2, 0.2, 0.2, 0.2]), ALL, 6).tolist() == [3, 2, 0, 5, 4, 1]


@pytest.mark.parametrize(("weights", "most"), [(EQUAL, 0), (EQUAL[:5], 4)])
def test_impossible_requests_are_refused(weights: NDArray[np.float64], most: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"most={most} of (6,) e-values, {weights.shape} weights and (6,) flags")):
        next_cells(LOGS, weights, ALL, most)
