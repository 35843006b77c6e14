"""Metrics of the curve of accuracy over resolution; each is defined after its interval.

ACE adds up absolute steps, so both change and noise increase it; its two parts, net change and wobble, and the noise
floor are ours. ACE is the largest of 2^(R-1) linear contrasts. A naive bootstrap fails: on a flat curve its interval does
not reach down to 0. See :class:`StepTest` for the bounds of sums of steps. For more than 16 resolutions the intervals of ACE, RCE
and wobble are infinite.

Source: Res-Bench, equations 2 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .accuracy import Bounds
from .record import Read, metric, of_gain, of_mean
from .severity import spearman
from .statistics.clusters import Clusters, one_sided
from .statistics.curves import (
    MOST_POINTS,
    ContrastTest,
    StepTest,
    falls,
    flat_variation,
    sign_contrasts,
    simulated_wobbles,
    slope_weights,
    step_errors,
    step_sums,
    variation,
    wobble,
)
from .statistics.means import BoundedMeanTest
from .statistics.paired import TangoTest, drop_test, interval_of
from .table import Needs, Scores, ScoreTable, as_scores, clusters_of, mean

NULL_DRAWS = 999
_ANYTHING = (-math.inf, math.inf)
_SEED = 0
_SHAPE = "it is about the shape of the curve: better at one resolution is not better at the next"

curve_metric = partial(
    metric,
    suite="resolution",
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    unchanged=0.0,
    not_monotone={Needs.ACCURACIES: _SHAPE},
)


@metric(
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="Res-Bench equation 2",
    unsuited="A model that fails on small images and one that is mediocre on all of them can have the same mean. Use "
    "`resolution_net` for what small images cost.",
    suite="resolution",
    interval=of_mean(lambda table, _: table.required(Needs.RUNGS).mean(axis=1)),
    monotone={Needs.ACCURACIES: 1},
)
def resolution_accuracy(accuracies: Sequence[float]) -> float:
    """Acc_avg: the mean accuracy over all resolutions.

    Formula: ``mean_k(A_k), with A_k the accuracy at the k-th resolution``

    Returns: A fraction in [0, 1]; NaN for no accuracies or a missing one.

    >>> round(resolution_accuracy([0.4, 0.6, 0.5]), 3)
    0.5
    """
    return mean(as_scores(accuracies, "accuracies"))


def absolute_continuous_error_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds ACE below by steps whose sign is shown and by the net change, above by all signed sums of steps."""
    rungs, tail = table.required(Needs.RUNGS), one_sided(confidence)
    if not 2 <= rungs.shape[1] <= MOST_POINTS:
        return _ANYTHING
    test = StepTest.of(rungs, table.clusters)
    return test.lower(tail), test.upper(sign_contrasts(rungs.shape[1]), tail)


def noise_alone(table: ScoreTable) -> str:
    """Returns the ACE that a flat curve would show on these samples."""
    rungs = table.required(Needs.RUNGS)
    if table.clusters.count < 2 or rungs.shape[1] < 2:
        return ""
    return f"sampling noise alone would give {flat_variation(step_errors(rungs, table.clusters)):.3f} on a flat curve"


@curve_metric(
    reference="Res-Bench equation 4",
    unsuited="It is no measure of unsteadiness: most of it is usually the rise from small to large images, and on a few "
    "dozen questions noise. Use `resolution_wobble` or `largest_downward_step`, and compare it with "
    "`resolution_noise_floor`.",
    interval=absolute_continuous_error_interval,
    note=noise_alone,
)
def absolute_continuous_error(accuracies: Sequence[float]) -> float:
    """ACE: the total movement of accuracy over the resolutions, the sum of absolute steps.

    ``ACE = |net| + wobble``: its largest part is usually the rise from the lowest to the highest resolution
    (:func:`resolution_net`), and noise increases it: on a flat curve it is all noise (:func:`resolution_noise_floor`). For
    instability use :func:`resolution_wobble` or :func:`largest_downward_step`.

    Formula: ``sum_k |A_(k+1) - A_k|, with A_k the accuracy at the k-th resolution``

    Returns: At least 0; NaN for fewer than two accuracies or a missing one.

    >>> round(absolute_continuous_error([0.4, 0.6, 0.5]), 3)
    0.3
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(variation(curve))


def relative_continuous_error_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds Res-Bench's RCE as ACE, each sum less a multiple of the mean accuracy (Fieller)."""
    rungs, tail = table.required(Needs.RUNGS), one_sided(confidence)
    points = rungs.shape[1]
    if not 2 <= points <= MOST_POINTS:
        return _ANYTHING
    test, average = StepTest.of(rungs, table.clusters), np.full(points, 1.0 / points)
    return test.ratio_lower(average, tail), test.ratio_upper(sign_contrasts(points), average, tail)


@curve_metric(
    unit="ratio",
    reference="Res-Bench equation 5",
    validity="the mean accuracy is above 0",
    unsuited="The same steps count more for a model that is seldom right, because they are divided by its mean accuracy. Use "
    "`resolution_wobble` and `resolution_net` to compare models of different accuracy.",
    interval=relative_continuous_error_interval,
    note=noise_alone,
)
def relative_continuous_error(accuracies: Sequence[float]) -> float:
    """Res-Bench's RCE: the absolute continuous error relative to the mean accuracy.

    Not to be confused with VLM-RobustBench's :func:`relative_corruption_error`.

    Formula: ``[sum_k |A_(k+1) - A_k|] / mean_k(A_k), with A_k the accuracy at the k-th resolution``

    Returns: At least 0; NaN for fewer than two accuracies, a missing one, or a mean of 0 (undefined; the paper's code says 0).

    >>> round(relative_continuous_error([0.4, 0.6, 0.5]), 3)
    0.6
    """
    curve = as_scores(accuracies, "accuracies")
    if not (curve.size and curve.mean() > 0.0):
        return math.nan
    return absolute_continuous_error(accuracies) / float(curve.mean())


@curve_metric(
    unit="correlation",
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=math.nan,
    reference="Res-Bench equation 3, with average ranks for ties (as its tables have)",
    validity="at least two resolutions, and accuracies that differ",
    unsuited="It does not say how much pixels help: a steady rise by 1 point has the same value as one by 50. Use "
    "`resolution_slope` or `resolution_net`, which have intervals.",
    unchanged=math.nan,
)
def resolution_correlation(resolutions: Sequence[float], accuracies: Sequence[float]) -> float:
    """Spearman's rank correlation of accuracy with resolution; ties get average ranks.

    Formula: ``Pearson correlation of the average ranks of resolutions and accuracies``

    Returns: In [-1, 1]; NaN for fewer than two resolutions, equal accuracies (undefined) or a missing one.

    >>> round(resolution_correlation([112, 224, 336], [0.4, 0.6, 0.5]), 3)
    0.5
    """
    curve = as_scores(accuracies, "accuracies")
    if len(resolutions) != len(curve):
        raise ValueError(f"{len(resolutions)} resolutions and {len(curve)} accuracies: expected one accuracy for each resolution")
    return spearman([float(edge) for edge in resolutions], curve.tolist())


def _rung(place: int) -> Read:
    return lambda table, _setting: table.required(Needs.RUNGS)[:, place]


resolution_net_interval = of_gain(_rung(0), _rung(-1))


@curve_metric(
    better="none",
    bounds=(-1.0, 1.0),
    reference="Res-Bench equation 4, its part that is a trend (our decomposition)",
    unsuited="It reads the smallest and the largest size only, and sees nothing between them. Use `largest_downward_step` "
    "for falls on the way and `resolution_slope` for the trend of all sizes.",
    interval=resolution_net_interval,
)
def resolution_net(accuracies: Sequence[float]) -> float:
    """Net change of accuracy from the lowest to the highest resolution: the part of ACE that is a trend, with its sign.

    Formula: ``A_R - A_1, with A_k the accuracy at the k-th of R resolutions``

    Returns: A fraction in [-1, 1], above 0 if resolution helps; NaN for fewer than two accuracies or a missing one.

    >>> round(resolution_net([0.4, 0.6, 0.5]), 3)
    0.1
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(curve[-1] - curve[0])


def resolution_wobble_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds wobble, twice the smaller of all rises and all falls, by bounds of both.

    It is large only if both are shown to be large (each at the full error), and small if either is (each at half of it).
    """
    rungs, tail = table.required(Needs.RUNGS), one_sided(confidence)
    if not 2 <= rungs.shape[1] <= MOST_POINTS:
        return _ANYTHING
    test, sums = StepTest.of(rungs, table.clusters), step_sums(rungs.shape[1])
    high = min(test.upper(sums, tail / 2.0), test.upper(-sums, tail / 2.0))
    return max(min(test.lower(tail, net=1.0), test.lower(tail, net=-1.0)), 0.0), 2.0 * max(high, 0.0)


def wobble_of_noise(table: ScoreTable) -> str:
    """Returns the wobble that a monotone curve would show on these samples, and the p-value of this one."""
    rungs = table.required(Needs.RUNGS)
    if table.clusters.count < 2 or rungs.shape[1] < 2:
        return ""
    drawn = simulated_wobbles(rungs, table.clusters, _generator(), NULL_DRAWS)
    p = exceedance(drawn, float(wobble(rungs.mean(axis=0))))
    return f"sampling noise alone would give up to {float(np.quantile(drawn, 0.95)):.3f} (95 %) on a monotone curve, p={p:.3f}"


@curve_metric(
    reference="Res-Bench equation 4, its part that is no trend (our decomposition)",
    unsuited="A curve that only falls has 0, like one that only rises: bound `resolution_net` or `largest_downward_step` "
    "beside it. On few questions noise makes every curve turn, so judge by the interval.",
    interval=resolution_wobble_interval,
    note=wobble_of_noise,
)
def resolution_wobble(accuracies: Sequence[float]) -> float:
    """Wobble: ACE less the net change, twice the smaller of all rises and all falls; 0 for a monotone curve.

    Noise alone causes some: compare with a monotone curve on the same number of samples (:func:`wobble_p_value`).

    Formula: ``2 min(sum_k max(A_(k+1) - A_k, 0), sum_k max(A_k - A_(k+1), 0))``

    Returns: At least 0; NaN for fewer than two accuracies or a missing one.

    >>> round(resolution_wobble([0.4, 0.6, 0.5]), 3)
    0.2
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float(wobble(curve))


def wobble_p_value(
    rungs: ArrayLike, generator: np.random.Generator, groups: Sequence[str] | None = None, draws: int = NULL_DRAWS
) -> float:
    """Probability that a monotone curve shows at least this much wobble from sampling noise alone.

    The null is the monotone curve closest to the measured one (isotonic regression in the direction of the net change), with
    normal noise of the measured covariance.

    Returns a probability in (0, 1]; NaN for fewer than two samples, groups or resolutions, or a missing score.

    Source: wobble is ours, see :func:`resolution_wobble`; parametric bootstrap of Res-Bench's curves.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws!r}: expected at least 1")
    known = _complete_rungs(rungs, groups)
    if known is None:
        return math.nan
    points, clusters = known
    return exceedance(simulated_wobbles(points, clusters, generator, draws), float(wobble(points.mean(axis=0))))


def _complete_rungs(rungs: ArrayLike, groups: Sequence[str] | None) -> tuple[Scores, Clusters] | None:
    """Returns the scores and their clusters, or None if there are too few or one is missing."""
    points = as_scores(rungs, "rungs", axes=2)
    clusters = clusters_of(groups, len(points))
    return None if clusters.count < 2 or points.shape[1] < 2 or np.isnan(points).any() else (points, clusters)


def exceedance(drawn: Scores, value: float) -> float:
    """Returns the Monte Carlo p-value of ``value`` among values drawn under the null: (1 + values as large) / (1 + draws)."""
    return (1.0 + int((drawn >= value - 1e-12).sum())) / (1.0 + drawn.size)


def largest_downward_step_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest loss from one resolution to a higher one, by the tests of all R (R - 1) / 2 pairs.

    Above without correction, as for the largest drop of a sweep; below at the critical value for all pairs together
    (max-t). Bonferroni's would be larger, because pairs share resolutions.
    """
    rungs, tail = table.required(Needs.RUNGS), one_sided(confidence)
    columns = range(rungs.shape[1])
    tests = [drop_test(rungs[:, lower], rungs[:, lower + 1 :], table.clusters) for lower in columns[:-1]]
    flips = [test for test in tests if isinstance(test, TangoTest)]
    if len(flips) == len(tests) > 1:
        tests = [TangoTest.join(flips)]  # much faster
    share = ContrastTest.of(rungs, falls(len(columns)), table.clusters).share(tail, _generator())
    seen = [test.seen() if isinstance(test, TangoTest) else test for test in tests]
    low = max(float(test.lower(share).max(initial=0.0)) for test in seen)
    high = max(float(test.upper(tail).max(initial=0.0)) for test in tests)
    return low, high


@curve_metric(
    bounds=(0.0, 1.0),
    reference="Res-Bench section 3.3 (stability); the measure is ours",
    unsuited="It does not say what small images cost: a curve that only rises has 0, however steep it is. Bound "
    "`resolution_net` for that, and judge by the interval, for the largest of all pairs is above 0 by noise alone.",
    interval=largest_downward_step_interval,
)
def largest_downward_step(accuracies: Sequence[float]) -> float:
    """Largest loss of accuracy from one resolution to any higher one: the cost of a better image.

    Formula: ``max over k <= l of A_k - A_l, with A_k the accuracy at the k-th resolution``

    Returns: A fraction in [0, 1], 0 for a curve that never falls; NaN for fewer than two accuracies or a missing one.

    >>> round(largest_downward_step([0.4, 0.6, 0.55, 0.5]), 3)
    0.1
    """
    curve = _curve(accuracies)
    return math.nan if curve is None else float((np.maximum.accumulate(curve) - curve).max())


def resolution_slope_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the least-squares slope, a weighted sum of the accuracies, by guarded Student's t over the samples' own slopes.

    A further sample may be right at weights above 0 and wrong at the others, or the opposite.
    """
    weights = slope_weights(np.log2([float(edge) for edge, _ in table.resolutions()]))
    most = float(weights.clip(min=0.0).sum())
    slopes = table.required(Needs.RUNGS) @ weights[:, None]
    return interval_of(BoundedMeanTest.of(slopes, table.clusters, -most, most), confidence)


@curve_metric(
    better="none",
    bounds=(-math.inf, math.inf),
    reference="Res-Bench section 4.1 and figure 3 (linear regression), per doubling",
    validity="at least two resolutions",
    unsuited="A curve that rises early and then stays flat, or falls again, has no single slope. Use `resolution_net` for "
    "its ends and `largest_downward_step` for its falls.",
    interval=resolution_slope_interval,
)
def resolution_slope(resolutions: Sequence[float], accuracies: Sequence[float]) -> float:
    """Accuracy gained with each doubling of resolution: the least-squares slope over log2 of the long edge.

    Formula: ``sum_k (x_k - mean(x)) A_k / sum_k (x_k - mean(x))^2, with x_k = log2 of the k-th resolution``

    Returns: A fraction per doubling; NaN for fewer than two different resolutions or a missing accuracy.

    >>> round(resolution_slope([112, 224, 448], [0.4, 0.5, 0.6]), 3)
    0.1
    """
    edges, curve = _trend_points(resolutions, accuracies)
    return _slope(np.log2(edges), curve)


@curve_metric(
    better="none",
    reference="Res-Bench equation 4, its expectation on a flat curve (our companion)",
    validity="at least two samples and two resolutions",
    unsuited="It is a property of the samples, not of the model: more questions alone lower it. Bound `resolution_wobble` or "
    "`absolute_continuous_error`, and read this beside them.",
    not_monotone={Needs.RUNGS: "it measures how much scores vary, not how high they are"},
)
def resolution_noise_floor(rungs: ArrayLike) -> float:
    """ACE that sampling noise alone would give on a flat curve: sqrt(2/pi) times the sum of the steps' standard errors.

    An ACE near it says nothing about the model. Samples are treated as independent; the note of ACE takes source images into
    account.

    Formula: ``sqrt(2 / pi) sum_k SE(A_(k+1) - A_k)``

    Returns: At least 0; NaN for fewer than two samples or resolutions or a missing score.

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

    Returns accuracy per pixel, and the accuracy at 0 pixels; NaN for fewer than two different resolutions or a missing accuracy.

    Source: Res-Bench section 4.1 and figure 3.

    >>> line = linear_trend([100, 200, 300], [0.4, 0.5, 0.6])
    >>> round(line.slope, 6), round(line.intercept, 6)
    (0.001, 0.3)
    """
    edges, curve = _trend_points(resolutions, accuracies)
    slope = _slope(edges, curve)
    return LinearTrend(slope, math.nan if math.isnan(slope) else mean(curve) - slope * mean(edges))


def macro_accuracies(rungs: ArrayLike, categories: Sequence[Hashable]) -> tuple[float, ...]:
    """Averages the accuracy at each resolution over categories with equal weights.

    Res-Bench's overall curve: the mean of its six capability dimensions. Equal to the plain mean if categories have equal sizes,
    as there.

    Returns R fractions in [0, 1]; NaN without samples, or if a score is missing.

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
    """Returns the accuracies, or None if there are fewer than two or one is missing."""
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


def _generator() -> np.random.Generator:
    # fixed, so that a verdict does not change when it is computed again
    return np.random.default_rng(_SEED)
