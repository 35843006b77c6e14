"""Tails of the normal and of Student's distribution (an infinite ``df`` is the normal one)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]


def critical_value(tail: float, df: float = math.inf) -> float:
    """Returns the value that is exceeded with probability ``tail``; infinite without degrees of freedom."""
    if df <= 0:
        return math.inf
    return float(-special.ndtri(tail) if math.isinf(df) else -special.stdtrit(df, tail))


def upper_tail(value: Array, df: float = math.inf) -> Array:
    """Returns the probability of exceeding ``value``; 1 without degrees of freedom (nothing can be shown)."""
    if df <= 0:
        return np.ones_like(value)
    tail: Array = special.ndtr(-value) if math.isinf(df) else special.stdtr(df, -value)
    return tail


def normal_tail(tail: float, df: float) -> float:
    """Returns the normal tail beyond Student's quantile of ``tail``; 0 without degrees of freedom."""
    return tail if math.isinf(df) else float(special.ndtr(-critical_value(tail, df)))


def student_tail(tails: Array, df: float) -> Array:
    """Returns Student's tails beyond the normal quantiles of ``tails``: the inverse of :func:`normal_tail`."""
    return tails if math.isinf(df) else upper_tail(-special.ndtri(tails), df)


def one_sided(confidence: float) -> float:
    """Returns the probability in each tail outside a two-sided interval.

    Raises:
        ValueError: ``confidence`` outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence!r}: expected a number between 0 and 1, such as 0.90")
    return (1.0 - confidence) / 2.0
