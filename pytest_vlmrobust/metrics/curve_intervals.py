"""Intervals of the metrics of the curve of accuracy over resolution, and what a reader should know about its noise.

ACE is the largest of 2^(R-1) linear contrasts, so no bootstrap is needed (a naive one fails here: on a flat curve its interval
does not reach down to 0). Its upper bound is the largest of their upper bounds, without correction, because ACE is below a
threshold only if each contrast is shown to be (intersection-union); its lower bound is simultaneous (max-t, simulated with a
fixed seed). For more than 16 resolutions the intervals of ACE, RCE and wobble are as wide as can be: they show nothing.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from .scores import Scores
from .statistics.curves import (
    MOST_POINTS,
    ContrastTest,
    flat_variation,
    sign_contrasts,
    simulated_wobbles,
    slope_weights,
    step_errors,
    step_sums,
    wobble,
)
from .statistics.differences import drop_test
from .statistics.quantiles import one_sided
from .table import ScoreTable

Bounds = tuple[float, float]

NULL_DRAWS = 999
_ANYTHING = (-math.inf, math.inf)
_SEED = 0


def mean_accuracy(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001  the signature of an interval
    """Bounds the mean accuracy over all resolutions by Student's t over the samples' own means."""
    rungs = _rungs(table)
    return _one_contrast(table, rungs, np.full(rungs.shape[1], 1.0 / rungs.shape[1]), confidence)


def net(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the change from the lowest to the highest resolution: by tails of flips for 0/1 scores, else by guarded t."""
    rungs = _rungs(table)
    tail, test = one_sided(confidence), drop_test(rungs[:, -1], rungs[:, :1], table.clusters)
    return float(test.lower(tail)[0]), float(test.upper(tail)[0])


def slope(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the least-squares slope, a weighted sum of the accuracies, by Student's t over the samples' own slopes."""
    doublings = np.log2([float(edge) for edge, _ in table.resolutions()])
    return _one_contrast(table, _rungs(table), slope_weights(doublings), confidence)


def continuous_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds ACE by its sign contrasts."""
    rungs, tail = _rungs(table), one_sided(confidence)
    if rungs.shape[1] > MOST_POINTS:
        return _ANYTHING
    test = ContrastTest.of(rungs, sign_contrasts(rungs.shape[1]), table.clusters)
    return test.lower(tail, _seeded()), test.upper(tail)


def relative_continuous_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds Res-Bench's RCE: above by contrasts of each signed sum against the mean, below by ACE over the mean.

    The lower bound divides the lower bound of ACE by the upper bound of the mean accuracy, each at half the error.
    """
    rungs, tail = _rungs(table), one_sided(confidence)
    points = rungs.shape[1]
    if points > MOST_POINTS:
        return _ANYTHING
    test = ContrastTest.of(rungs, sign_contrasts(points), table.clusters)
    average = np.full(points, 1.0 / points)
    mean_at_most = min(ContrastTest.of(rungs, average[None], table.clusters).upper(tail / 2.0), 1.0)
    return max(test.lower(tail / 2.0, _seeded()), 0.0) / mean_at_most, test.ratio_upper(average, tail)


def wobble_bounds(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds wobble, twice the smaller of all rises and all falls, by the sums of any steps.

    It is large only if both are shown to be (each at the full error), and small if either is shown to be (each at half of it).
    """
    rungs, tail = _rungs(table), one_sided(confidence)
    if rungs.shape[1] > MOST_POINTS:
        return _ANYTHING
    sums = step_sums(rungs.shape[1])
    rises, falls = (ContrastTest.of(rungs, weights, table.clusters) for weights in (sums, -sums))
    low = min(rises.lower(tail, _seeded()), falls.lower(tail, _seeded()))
    high = min(rises.upper(tail / 2.0), falls.upper(tail / 2.0))
    return 2.0 * max(low, 0.0), 2.0 * max(high, 0.0)


def downward_step(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest loss from one resolution to a higher one, by the tests of all R (R - 1) / 2 pairs.

    As for the largest drop of a sweep: above without correction, below by Bonferroni's.
    """
    rungs, tail = _rungs(table), one_sided(confidence)
    columns = range(rungs.shape[1])
    tests = [drop_test(rungs[:, lower], rungs[:, lower + 1 :], table.clusters) for lower in columns[:-1]]
    pairs = len(list(itertools.combinations(columns, 2)))
    low = max(float(test.lower(tail / pairs).max()) for test in tests)
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


def _one_contrast(table: ScoreTable, rungs: Scores, weights: Scores, confidence: float) -> Bounds:
    tail = one_sided(confidence)
    above, below = (ContrastTest.of(rungs, sign * weights[None], table.clusters).upper(tail) for sign in (1.0, -1.0))
    return -below, above


def _rungs(table: ScoreTable) -> Scores:
    return table.matrix([setting for _, setting in table.resolutions()])


def _seeded() -> np.random.Generator:
    # a verdict must not depend on when it is asked for
    return np.random.default_rng(_SEED)
