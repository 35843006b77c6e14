"""Spearman's rank correlation of few numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_DECIMALS = 12
"""Values that agree to this many decimals differ by float rounding only: they are ties."""


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ranks from 1, shape (k,); ties share the mean of their ranks."""
    _, inverse, counts = np.unique(np.round(values, _DECIMALS), return_inverse=True, return_counts=True)
    last = counts.cumsum()
    shared: NDArray[np.float64] = ((last - counts + 1) + last) / 2.0
    return shared[inverse.reshape(-1)]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the correlation of the average ranks, in [-1, 1]; NaN for fewer than two pairs, a constant side or a NaN."""
    pairs = np.array([first, second], dtype=np.float64)
    if pairs.shape[1] < 2 or np.isnan(pairs).any():
        return math.nan
    deviations = np.stack([average_ranks(row) for row in pairs]) - (pairs.shape[1] + 1) / 2.0
    spread = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    if spread == 0.0:
        return math.nan
    return min(max(float(deviations[0] @ deviations[1]) / spread, -1.0), 1.0)
