"""Metrics of the curve of accuracy over resolution.

Source: Res-Bench, equations 2 to 5. ACE adds up absolute steps, so that noise adds to it as well as change does; its two parts,
net change and wobble, and the noise floor are ours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import curve_intervals
from .record import Needs
from .registry import metric
from .scores import Scores, as_scores, mean
from .severity import spearman
from .statistics.clusters import Clusters
from .statistics.curves import flat_variation, slope_weights, step_errors, variation, wobble

_SHAPE = "it is about the shape of the curve: better at one resolution is not better at the next"


@metric(
    needs=(Needs.ACCURACIES,),
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="Res-Bench equation 2",
    suite="resolution",
    interval=curve_intervals.mean_accuracy,
    monotone={Needs.ACCURACIES: 1},
)
def resolution_accuracy(accuracies: Sequence[float]) -> float:
    """Acc_avg: the mean accuracy over all resolutions.

    Formula: ``mean_k(A_k), with A_k the accuracy at the k-th resolution``

    Args:
        accuracies: one in [0, 1] for each resolution.

    Returns:
        A fraction in [0, 1]; NaN for no accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(resolution_accuracy([0.4, 0.6, 0.5]), 3)
    0.5
    """
    return mean(as_scores(accuracies, "accuracies"))


@metric(
    needs=(Needs.ACCURACIES,),
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 4",
    suite="resolution",
    interval=curve_intervals.continuous_error,
    note=curve_intervals.noise_alone,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def absolute_continuous_error(accuracies: Sequence[float]) -> float:
    """ACE: how far accuracy moves in all from one resolution to the next, the sum of absolute steps.

    ``ACE = |net| + wobble``: its largest part is usually the rise from the lowest to the highest resolution
    (:func:`resolution_net`), and noise adds to it: on a flat curve it is all noise (:func:`resolution_noise_floor`). For
    instability ask :func:`resolution_wobble` or :func:`largest_downward_step`.

    Formula: ``sum_k |A_(k+1) - A_k|, with A_k the accuracy at the k-th resolution``

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        At least 0; NaN for fewer than two accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(absolute_continuous_error([0.4, 0.6, 0.5]), 3)
    0.3
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(variation(curve))


@metric(
    needs=(Needs.ACCURACIES,),
    unit="ratio",
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 5",
    validity="the mean accuracy is above 0",
    suite="resolution",
    interval=curve_intervals.relative_continuous_error,
    note=curve_intervals.noise_alone,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def relative_continuous_error(accuracies: Sequence[float]) -> float:
    """Res-Bench's RCE: the absolute continuous error relative to the mean accuracy.

    Not to be confused with VLM-RobustBench's :func:`relative_corruption_error`.

    Formula: ``[sum_k |A_(k+1) - A_k|] / mean_k(A_k), with A_k the accuracy at the k-th resolution``

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
    perfect=math.nan,
    reference="Res-Bench equation 3, with average ranks for ties (as its tables have)",
    validity="at least two resolutions, and accuracies that differ",
    suite="resolution",
    unchanged=math.nan,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def resolution_correlation(resolutions: Sequence[float], accuracies: Sequence[float]) -> float:
    """Spearman's rank correlation of accuracy with resolution; ties get average ranks.

    Formula: ``Pearson correlation of the average ranks of resolutions and accuracies``

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


@metric(
    needs=(Needs.ACCURACIES,),
    better="none",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="Res-Bench equation 4, its part that is a trend (our decomposition)",
    suite="resolution",
    interval=curve_intervals.net,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def resolution_net(accuracies: Sequence[float]) -> float:
    """Net change of accuracy from the lowest to the highest resolution: the part of ACE that is a trend, with its sign.

    Formula: ``A_R - A_1, with A_k the accuracy at the k-th of R resolutions``

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        A fraction in [-1, 1], above 0 when resolution helps; NaN for fewer than two accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(resolution_net([0.4, 0.6, 0.5]), 3)
    0.1
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(curve[-1] - curve[0])


@metric(
    needs=(Needs.ACCURACIES,),
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 4, its part that is no trend (our decomposition)",
    suite="resolution",
    interval=curve_intervals.wobble_bounds,
    note=curve_intervals.wobble_of_noise,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def resolution_wobble(accuracies: Sequence[float]) -> float:
    """Wobble: ACE less the net change, twice the smaller of all rises and all falls; 0 for a monotone curve.

    Noise gives some, too: compare with what a monotone curve would show on as many samples (:func:`wobble_p_value`).

    Formula: ``2 min(sum_k max(A_(k+1) - A_k, 0), sum_k max(A_k - A_(k+1), 0))``

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        At least 0; NaN for fewer than two accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(resolution_wobble([0.4, 0.6, 0.5]), 3)
    0.2
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(wobble(curve))


@metric(
    needs=(Needs.ACCURACIES,),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="Res-Bench section 3.3 (stability); the measure is ours",
    suite="resolution",
    interval=curve_intervals.downward_step,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def largest_downward_step(accuracies: Sequence[float]) -> float:
    """Largest loss of accuracy from one resolution to any higher one: how much a better image can cost.

    Formula: ``max over k <= l of A_k - A_l, with A_k the accuracy at the k-th resolution``

    Args:
        accuracies: one in [0, 1] for each resolution, in ascending order of resolution.

    Returns:
        A fraction in [0, 1], 0 for a curve that never falls; NaN for fewer than two accuracies or a missing one.

    Raises:
        ValueError: an accuracy outside [0, 1].

    >>> round(largest_downward_step([0.4, 0.6, 0.55, 0.5]), 3)
    0.1
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float((np.maximum.accumulate(curve) - curve).max())


@metric(
    needs=(Needs.RESOLUTIONS, Needs.ACCURACIES),
    better="none",
    perfect=0.0,
    reference="Res-Bench section 4.1 and figure 3 (linear regression), per doubling",
    validity="at least two resolutions",
    suite="resolution",
    interval=curve_intervals.slope,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)
def resolution_slope(resolutions: Sequence[float], accuracies: Sequence[float]) -> float:
    """Accuracy gained with each doubling of resolution: the least-squares slope over log2 of the long edge.

    Formula: ``sum_k (x_k - mean(x)) A_k / sum_k (x_k - mean(x))^2, with x_k = log2 of the k-th resolution``

    Args:
        resolutions: long edges in pixels, in any order.
        accuracies: one in [0, 1] for each resolution.

    Returns:
        A fraction per doubling; NaN for fewer than two different resolutions or a missing accuracy.

    Raises:
        ValueError: unequal lengths, a resolution that is no positive number, or an accuracy outside [0, 1].

    >>> round(resolution_slope([112, 224, 448], [0.4, 0.5, 0.6]), 3)
    0.1
    """
    edges, curve = _trend_points(resolutions, accuracies)
    return _slope(np.log2(edges), curve)


@metric(
    needs=(Needs.RUNGS,),
    better="none",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="Res-Bench equation 4, its expectation on a flat curve (our companion)",
    validity="at least two samples and two resolutions",
    suite="resolution",
    unchanged=0.0,
    not_monotone={Needs.RUNGS: "it measures how much scores vary, not how high they are"},
)
def resolution_noise_floor(rungs: ArrayLike) -> float:
    """ACE that sampling noise alone would give on a flat curve: sqrt(2/pi) times the sum of the steps' standard errors.

    An ACE near it says nothing about the model. Samples are taken as independent here; the note of ACE takes source images into
    account.

    Formula: ``sqrt(2 / pi) sum_k SE(A_(k+1) - A_k)``

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.

    Returns:
        At least 0; NaN for fewer than two samples or resolutions or a missing score.

    Raises:
        ValueError: a score outside [0, 1], or another shape.

    >>> round(resolution_noise_floor([[0, 1], [1, 0], [1, 1], [0, 0]]), 3)
    0.326
    """
    points = as_scores(rungs, "rungs", axes=2)
    if min(points.shape) < 2 or np.isnan(points).any():
        return math.nan
    return flat_variation(step_errors(points, Clusters.of(None, len(points))))


class LinearTrend(NamedTuple):
    """A straight line through a curve of accuracies, ``accuracy = slope * pixels + intercept``."""

    slope: float
    intercept: float


def linear_trend(resolutions: Sequence[float], accuracies: Sequence[float]) -> LinearTrend:
    """Fits the paper's regression line: accuracy against the long edge in pixels, by least squares.

    Args:
        resolutions: long edges in pixels, in any order; one may occur several times (points of several models).
        accuracies: one in [0, 1] for each resolution.

    Returns:
        Accuracy per pixel, and the accuracy at 0 pixels; NaN for fewer than two different resolutions or a missing accuracy.

    Raises:
        ValueError: unequal lengths, a resolution that is no positive number, or an accuracy outside [0, 1].

    Source: Res-Bench section 4.1 and figure 3.

    >>> line = linear_trend([100, 200, 300], [0.4, 0.5, 0.6])
    >>> round(line.slope, 6), round(line.intercept, 6)
    (0.001, 0.3)
    """
    edges, curve = _trend_points(resolutions, accuracies)
    slope = _slope(edges, curve)
    return LinearTrend(slope, math.nan if math.isnan(slope) else mean(curve) - slope * mean(edges))


def macro_accuracies(rungs: ArrayLike, categories: Sequence[Hashable]) -> tuple[float, ...]:
    """Averages the accuracy at each resolution over categories, each category counting the same.

    Res-Bench's overall curve: the mean of its six capability dimensions. Equal to the plain mean when categories are of one size,
    as there.

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.
        categories: the category of each sample, N names.

    Returns:
        R fractions in [0, 1]; NaN without samples, or where a score is missing.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    Source: Res-Bench, published evaluation code (overall accuracy at one resolution).

    >>> macro_accuracies([[1, 0], [1, 0], [1, 0], [0, 1]], ["a", "a", "a", "b"])
    (0.5, 0.5)
    """
    points = as_scores(rungs, "rungs", axes=2)
    if len(categories) != len(points):
        raise ValueError(f"rungs has {len(points)} samples and categories has {len(categories)}: expected one for each sample")
    if not len(points):
        return tuple([math.nan] * int(points.shape[1]))
    members: dict[Hashable, list[int]] = {}
    for sample, category in enumerate(categories):
        members.setdefault(category, []).append(sample)
    return tuple(np.mean([points[rows].mean(axis=0) for rows in members.values()], axis=0).tolist())


def _curve(accuracies: Sequence[float]) -> Scores | None:
    """Returns the accuracies, or None when there are fewer than two or one is missing."""
    curve = as_scores(accuracies, "accuracies")
    return None if curve.size < 2 or np.isnan(curve).any() else curve


def _trend_points(resolutions: Sequence[float], accuracies: Sequence[float]) -> tuple[NDArray[np.float64], Scores]:
    curve, edges = as_scores(accuracies, "accuracies"), np.asarray([float(edge) for edge in resolutions])
    if len(edges) != len(curve):
        raise ValueError(f"{len(edges)} resolutions and {len(curve)} accuracies: expected one accuracy for each resolution")
    if (wrong := edges[~((edges > 0.0) & np.isfinite(edges))]).size:
        raise ValueError(f"resolutions has {float(wrong[0])!r}: expected long edges in pixels, above 0")
    return edges, curve


def _slope(positions: NDArray[np.float64], curve: Scores) -> float:
    if curve.size < 2 or np.isnan(curve).any() or not np.ptp(positions) > 0.0:
        return math.nan
    return float(slope_weights(positions) @ curve)
