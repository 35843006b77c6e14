"""Intervals of the metrics of the curve of accuracy over resolution, and what a reader should know about its noise.

ACE is the largest of 2^(R-1) linear contrasts. A naive bootstrap fails here: on a flat curve its interval does not reach down
to 0. How sums of steps are bounded instead, see :class:`StepTest`. For more than 16 resolutions the intervals of ACE, RCE and
wobble are as wide as can be: they show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .intervals import mean_bounds
from .scores import Scores, as_scores, clusters_of
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
    wobble,
)
from .statistics.means import BoundedMeanTest
from .statistics.paired import TangoTest, drop_test
from .table import ScoreTable

Bounds = tuple[float, float]

NULL_DRAWS = 999
_ANYTHING = (-math.inf, math.inf)
_SEED = 0


def mean_accuracy(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001  the signature of an interval
    """Bounds the mean accuracy over all resolutions by guarded Student's t over the samples' own means."""
    return mean_bounds(table, _rungs(table).mean(axis=1), confidence)


def net(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the change from the lowest to the highest resolution: by tails of flips for 0/1 scores, else by guarded t."""
    rungs = _rungs(table)
    tail, losses = one_sided(confidence), drop_test(rungs[:, 0], rungs[:, -1:], table.clusters)
    return -float(losses.upper(tail)[0]), -float(losses.lower(tail)[0])


def slope(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the least-squares slope, a weighted sum of the accuracies, by guarded Student's t over the samples' own slopes.

    A further sample may be right where the weights are above 0, and wrong elsewhere; or the other way round.
    """
    weights = slope_weights(np.log2([float(edge) for edge, _ in table.resolutions()]))
    most, tail = float(weights.clip(min=0.0).sum()), one_sided(confidence)
    test = BoundedMeanTest.of(_rungs(table) @ weights[:, None], table.clusters, -most, most)
    return float(test.lower(tail)[0]), float(test.upper(tail)[0])


def continuous_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds ACE below by steps whose sign is shown and by the net change, above by all sums of steps with signs."""
    rungs, tail = _rungs(table), one_sided(confidence)
    if not 2 <= rungs.shape[1] <= MOST_POINTS:
        return _ANYTHING
    test = StepTest.of(rungs, table.clusters)
    return test.lower(tail), test.upper(sign_contrasts(rungs.shape[1]), tail)


def relative_continuous_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds Res-Bench's RCE as ACE, each sum less a multiple of the mean accuracy (Fieller)."""
    rungs, tail = _rungs(table), one_sided(confidence)
    points = rungs.shape[1]
    if not 2 <= points <= MOST_POINTS:
        return _ANYTHING
    test, average = StepTest.of(rungs, table.clusters), np.full(points, 1.0 / points)
    return test.ratio_lower(average, tail), test.ratio_upper(sign_contrasts(points), average, tail)


def wobble_bounds(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds wobble, twice the smaller of all rises and all falls, by bounds of both.

    It is large only if both are shown to be (each at the full error), and small if either is shown to be (each at half of it).
    """
    rungs, tail = _rungs(table), one_sided(confidence)
    if not 2 <= rungs.shape[1] <= MOST_POINTS:
        return _ANYTHING
    test, sums = StepTest.of(rungs, table.clusters), step_sums(rungs.shape[1])
    high = min(test.upper(sums, tail / 2.0), test.upper(-sums, tail / 2.0))
    return max(min(test.lower(tail, net=1.0), test.lower(tail, net=-1.0)), 0.0), 2.0 * max(high, 0.0)


def downward_step(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest loss from one resolution to a higher one, by the tests of all R (R - 1) / 2 pairs.

    Above without correction, as for the largest drop of a sweep; below at the critical value that holds for all pairs together
    (max-t). Bonferroni's would be larger, for pairs share their resolutions.
    """
    rungs, tail = _rungs(table), one_sided(confidence)
    columns = range(rungs.shape[1])
    tests = [drop_test(rungs[:, lower], rungs[:, lower + 1 :], table.clusters) for lower in columns[:-1]]
    flips = [test for test in tests if isinstance(test, TangoTest)]
    if len(flips) == len(tests) > 1:
        tests = [TangoTest.joined(flips)]  # much faster
    share = ContrastTest.of(rungs, falls(len(columns)), table.clusters).share(tail, _seeded())
    low = max(float(test.lower(share).max()) for test in tests)
    high = max(float(test.upper(tail).max()) for test in tests)
    return max(low, 0.0), max(high, 0.0)


def noise_alone(table: ScoreTable) -> str:
    """Returns which ACE a flat curve would show on these samples."""
    rungs = _rungs(table)
    if table.clusters.count < 2 or rungs.shape[1] < 2:
        return ""
    return f"sampling noise alone would give {flat_variation(step_errors(rungs, table.clusters)):.3f} on a flat curve"


def wobble_of_noise(table: ScoreTable) -> str:
    """Returns how much wobble a monotone curve would show on these samples, and how often as much as this one."""
    rungs = _rungs(table)
    if table.clusters.count < 2 or rungs.shape[1] < 2:
        return ""
    drawn = simulated_wobbles(rungs, table.clusters, _seeded(), NULL_DRAWS)
    p = exceedance(drawn, float(wobble(rungs.mean(axis=0))))
    return f"sampling noise alone would give up to {float(np.quantile(drawn, 0.95)):.3f} (95 %) on a monotone curve, p={p:.3f}"


def exceedance(drawn: Scores, value: float) -> float:
    """Returns the Monte Carlo p-value of ``value`` among values drawn under the null: (1 + as large ones) / (1 + draws)."""
    return (1.0 + int((drawn >= value - 1e-12).sum())) / (1.0 + drawn.size)


def _rungs(table: ScoreTable) -> Scores:
    return table.matrix([setting for _, setting in table.resolutions()])


def _seeded() -> np.random.Generator:
    # a verdict must not depend on when it is asked for
    return np.random.default_rng(_SEED)


# What of ACE and wobble is sampling noise: a debiased point, a lower bracket and a p-value.
#
# The measured ACE of Res-Bench (equation 4) adds up absolute values of noisy steps, so that it is too large on average. All of
# these companions are ours.


def wobble_p_value(
    rungs: ArrayLike, generator: np.random.Generator, groups: Sequence[str] | None = None, draws: int = NULL_DRAWS
) -> float:
    """Probability that a monotone curve shows at least as much wobble by sampling noise alone.

    The null is the monotone curve nearest to the measured one (isotonic regression in the direction of the net change), with
    normal noise of the measured covariance.

    Args:
        rungs: shape (N, R), scores in [0, 1], resolutions in ascending order.
        generator: draws the noise.
        groups: source image of each sample; None when all samples are independent.
        draws: how many curves to draw, at least 1; no p-value is below 1 / (1 + draws).

    Returns:
        A probability in (0, 1]; NaN for fewer than two samples, groups or resolutions, or a missing score.

    Raises:
        ValueError: no draw, a score outside [0, 1], or another shape.

    Source: wobble is ours, see :func:`resolution_wobble`; parametric bootstrap of Res-Bench's curves.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws!r}: expected at least 1")
    known = _known(rungs, groups)
    if known is None:
        return math.nan
    points, clusters = known
    return exceedance(simulated_wobbles(points, clusters, generator, draws), float(wobble(points.mean(axis=0))))


def _known(rungs: ArrayLike, groups: Sequence[str] | None) -> tuple[Scores, Clusters] | None:
    """Returns the scores and their clusters, or None when they are too few or one is missing."""
    points = as_scores(rungs, "rungs", axes=2)
    clusters = clusters_of(groups, len(points))
    return None if clusters.count < 2 or points.shape[1] < 2 or np.isnan(points).any() else (points, clusters)
