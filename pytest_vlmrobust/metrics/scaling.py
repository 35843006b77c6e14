"""What a family of models gains with its size.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 (scale consistency).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .scores import ROUNDING
from .statistics.curves import slope_weights


def scale_gain(parameters: Sequence[float], scores: Sequence[float]) -> float:
    """Average gain per doubling of the number of parameters: the least-squares slope of the score over log2 of the size.

    With two models it is their difference over the number of doublings between them. How the paper averages over more than two is
    not said; the slope weighs each step by the doublings it spans.

    Args:
        parameters: number of parameters of each model of a family, in any unit and order.
        scores: the score of each, an accuracy or a mean overlap.

    Returns:
        Score per doubling; NaN for fewer than two sizes or a missing score.

    Raises:
        ValueError: unequal lengths, or a size that is no positive number.

    >>> round(scale_gain([3, 6, 12], [0.50, 0.55, 0.70]), 3)
    0.1
    """
    sizes, values = _family(parameters, scores)
    if values.size < 2 or np.isnan(values).any() or not np.ptp(sizes) > 0.0:
        return math.nan
    return float(slope_weights(np.log2(sizes)) @ values)


def scale_consistency(parameters: Sequence[float], scores: Sequence[float]) -> float:
    """Share of the steps to the next larger model that lose nothing: 1.0 when scores rise with size throughout.

    Args:
        parameters: number of parameters of each model of a family, in any unit and order, all different.
        scores: the score of each; an equal score is no loss.

    Returns:
        A fraction in [0, 1]; NaN for fewer than two models or a missing score.

    Raises:
        ValueError: unequal lengths, a size that is no positive number, or two models of one size.

    >>> scale_consistency([3, 72, 7], [0.5, 0.6, 0.7])
    0.5
    """
    sizes, values = _family(parameters, scores)
    if np.unique(sizes).size < sizes.size:
        raise ValueError(
            f"parameters are {sizes.tolist()}: expected models of different sizes, or which step is larger is unknown"
        )
    if values.size < 2 or np.isnan(values).any():
        return math.nan
    steps = np.diff(values[np.argsort(sizes)])
    return float((steps >= -ROUNDING).mean())


def _family(parameters: Sequence[float], scores: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sizes, values = np.array(parameters, dtype=np.float64), np.array(scores, dtype=np.float64)
    if sizes.shape != values.shape:
        raise ValueError(f"{sizes.size} sizes and {values.size} scores: expected one score for each size")
    if (wrong := sizes[~((sizes > 0.0) & np.isfinite(sizes))]).size:
        raise ValueError(f"parameters has {float(wrong[0])!r}: expected a number of parameters above 0")
    return sizes, values
