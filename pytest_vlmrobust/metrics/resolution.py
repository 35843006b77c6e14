"""Metrics of the curve of accuracy over resolution.

Source: Res-Bench, equations 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .ranks import spearman
from .record import Needs
from .registry import metric
from .scores import as_scores


@metric(
    needs=(Needs.ACCURACIES,),
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 4",
    suite="resolution",
)
def absolute_continuous_error(accuracies: Sequence[float]) -> float:
    """ACE: how far accuracy moves in all from one resolution to the next, the sum of absolute steps.

    Its largest part is usually the rise from the lowest to the highest resolution; sampling noise adds to it.

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        At least 0; NaN for fewer than two accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(absolute_continuous_error([0.4, 0.6, 0.5]), 3)
    0.3
    """
    curve = as_scores(accuracies, "accuracies")
    steps = abs(curve[1:] - curve[:-1])
    return float(steps.sum()) if steps.size else math.nan


@metric(
    needs=(Needs.ACCURACIES,),
    unit="ratio",
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 5",
    validity="the mean accuracy is above 0",
    suite="resolution",
)
def relative_continuous_error(accuracies: Sequence[float]) -> float:
    """Res-Bench's RCE: the absolute continuous error relative to the mean accuracy.

    Not to be confused with VLM-RobustBench's :func:`relative_corruption_error`.

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        At least 0; NaN for fewer than two accuracies, a missing one, or a mean of 0 (undefined; the paper's code says 0).

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(relative_continuous_error([0.4, 0.6, 0.5]), 3)
    0.6
    """
    curve = as_scores(accuracies, "accuracies")
    if not (curve.size and curve.mean() > 0.0):
        return math.nan
    return absolute_continuous_error(accuracies) / float(curve.mean())


@metric(
    needs=(Needs.RESOLUTIONS, Needs.ACCURACIES),
    unit="correlation",
    better="higher",
    bounds=(-1.0, 1.0),
    reference="Res-Bench equation 3, with average ranks for ties (as its tables have)",
    validity="at least two resolutions, and accuracies that differ",
    suite="resolution",
)
def resolution_correlation(resolutions: Sequence[float], accuracies: Sequence[float]) -> float:
    """Spearman's rank correlation of accuracy with resolution; ties get average ranks.

    Args:
        resolutions: long edges in pixels, in any order.
        accuracies: one in [0, 1] for each resolution.

    Returns:
        In [-1, 1]; NaN for fewer than two resolutions, equal accuracies (undefined) or a missing one.

    Raises:
        ValueError: unequal lengths, or an accuracy outside [0, 1].

    >>> round(resolution_correlation([112, 224, 336], [0.4, 0.6, 0.5]), 3)
    0.5
    """
    curve = as_scores(accuracies, "accuracies")
    if len(resolutions) != len(curve):
        raise ValueError(f"{len(resolutions)} resolutions and {len(curve)} accuracies: expected one accuracy for each resolution")
    return spearman([float(edge) for edge in resolutions], curve.tolist())
