"""Gates over many cells: counts of cells that fail, weights that say where to look first, and verdicts at a few fixed looks.

"At most so many cells fail" is a partial conjunction (Y. Benjamini and R. Heller, Biometrics 64 (2008), with means of e-values in
the place of multiplied p-values: V. Vovk and R. Wang, Ann. Statist. 49 (2021)). With none allowed it is the worst case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.metrics.scores import ROUNDING, Scores
from pytest_vlmrobust.metrics.statistics.paired import tango_statistic
from pytest_vlmrobust.metrics.statistics.proportions import is_binary

from .audit import Reason, Verdicts, needed_log, outcome
from .tally import bound_missing

Array = NDArray[np.float64]

PRIOR_WORST = (
    *("upsample:high", "elastic_transform:high", "zoom_blur:mid", "zoom_blur:high"),
    *("glass_blur:low", "solarize:high", "flip_v", "invert"),
)
"""Settings that cost most in published sweeps (VLM-RobustBench): a failure is searched for here first."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The verdict of an audit on a gate over several cells."""

    outcome: Outcome
    """PASS, FAIL or INCONCLUSIVE."""
    reason: Reason
    log10_pass: float
    """Decimal logarithm of the e-value against "the gate fails"; infinite when that is impossible."""
    log10_fail: float
    """Decimal logarithm of the e-value against "the gate passes"; infinite when that is impossible."""


def prior_weights(settings: Sequence[str], worst: Iterable[str] = PRIOR_WORST) -> Array:
    """Returns weights that sum to 1: half on the settings among ``worst``, half on all; equal if none is.

    They must be fixed before the run. Bad weights cost inferences, but never validity.

    Args:
        settings: the sweep's settings as text, at least one.
        worst: settings expected to cost most.

    Returns:
        Shape (m,), each positive.

    >>> prior_weights(["flip_v", "fog:low"]).tolist()
    [0.75, 0.25]
    """
    wanted = set(worst)
    expected = np.array([setting in wanted for setting in settings])
    everywhere = np.full(len(settings), 1.0 / len(settings))
    return (expected / expected.sum() + everywhere) / 2.0 if expected.any() else everywhere


def allowed_violations(rate: float, cells: int) -> int:
    """Returns how many of the cells may violate their limits at a rate of at most ``rate``.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"rate is {rate!r}: expected a fraction between 0 and 1")
    return math.floor(rate * cells + ROUNDING)


def at_most(verdicts: Verdicts, allowed: int) -> GateVerdict:
    """Judges "at most ``allowed`` of the m cells fail" (severe-failure rate).

    PASS: the mean of the ``allowed`` + 1 smallest e-values for PASS reaches 1 / alpha. FAIL: the mean of the m - ``allowed``
    smallest e-values for FAIL does. Some ``allowed`` + 1 cells would have to fail for a wrong PASS, and the mean over those is an
    e-value that the smallest ones do not exceed. The cells' own verdicts play no part; to see which cells to advance, ask the
    audit for verdicts at alpha_pass / (allowed + 1).

    Args:
        verdicts: of the m cells, with the error rates of the gate.
        allowed: how many may fail, at least 0; see :func:`allowed_violations`.

    Raises:
        ValueError: ``allowed`` is negative.
    """
    cells = verdicts.used.size
    if allowed < 0:
        raise ValueError(f"allowed is {allowed}: expected a count of at least 0")
    log_pass = _log_mean_of_smallest(verdicts.sure_log_pass, allowed + 1)
    log_fail = _log_mean_of_smallest(verdicts.sure_log_fail, cells - allowed)
    return _gate_verdict(
        certain_pass=int((~verdicts.certain_pass).sum()) <= allowed,
        certain_fail=int(verdicts.certain_fail.sum()) > allowed,
        passed=log_pass >= needed_log(verdicts.alpha_pass),
        failed=log_fail >= needed_log(verdicts.alpha_fail),
        logs=(log_pass, log_fail),
    )


def _gate_verdict(
    *, certain_pass: bool, certain_fail: bool, passed: bool, failed: bool, logs: tuple[float, float]
) -> GateVerdict:
    certain = certain_pass or certain_fail
    verdict = outcome(passed=certain_pass, failed=certain_fail) if certain else outcome(passed=passed, failed=failed)
    undecided = verdict is Outcome.INCONCLUSIVE
    reason = Reason.CERTAIN if certain else Reason.UNDECIDED if undecided else Reason.EVIDENCE
    log_pass = math.inf if certain_pass else -math.inf if certain_fail else logs[0]
    log_fail = math.inf if certain_fail else -math.inf if certain_pass else logs[1]
    return GateVerdict(verdict, reason, log_pass / math.log(10.0), log_fail / math.log(10.0))


def _log_mean_of_smallest(logs: Array, count: int) -> float:
    """Returns the log of the mean of the ``count`` smallest e-values; infinite if there are fewer, negatively so for none."""
    if count > logs.size:
        return math.inf
    if count <= 0:
        return -math.inf
    smallest = np.sort(logs)[:count]
    peak = float(smallest[-1])
    return peak if math.isinf(peak) else peak + math.log(float(np.exp(smallest - peak).mean()))


# Verdicts about the population at a few looks fixed before the run: Tango's score statistic against O'Brien-Fleming bounds.
#
# Source: P. O'Brien and T. Fleming, Biometrics 35 (1979) 549-556, for the shape (bounds fall with the root of the fraction seen);
# T. Tango, Statistics in Medicine 17 (1998), for the statistic of paired answers.


Flags = NDArray[np.bool_]

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0)
"""Shares of the N samples at which the looks are."""
BOUNDS = (5.63, 3.98, 3.25, 2.82, 2.52, 2.30, 2.13, 1.93, 1.78)
"""Critical values of the statistic at each look; 5 % one-sided over all of them."""


def look_sizes(samples: int) -> tuple[int, ...]:
    """Returns after how many samples to look.

    >>> look_sizes(869)
    (87, 174, 261, 348, 435, 522, 609, 739, 869)
    """
    return tuple(math.ceil(fraction * samples - ROUNDING) for fraction in FRACTIONS)


def look_verdicts(clean: ArrayLike, outcomes: ArrayLike, samples: int, most: float) -> tuple[Flags, Flags]:
    """Judges "the true drop is at most ``most``" for m cells at the look that the number of answers belongs to.

    The first verdict of a cell counts. Approximate (normal limit); each of the two errors is made with probability about 5 %.
    A missing answer counts as wrong towards PASS and as right towards FAIL.

    Args:
        clean: clean scores of the first n samples in the cell's order, shape (n,) or (m, n), each 0 or 1.
        outcomes: perturbed scores of the same, shape (m, n), each 0, 1 or NaN.
        samples: N, how many samples the whole run has.
        most: the drop that passes, inside (-1, 1).

    Returns:
        ``(passed, failed)``, shape (m,) each, never both true.

    Raises:
        ValueError: n is no look, scores that are not 0 or 1, unequal lengths, or ``most`` outside (-1, 1).
    """
    after = np.atleast_2d(np.asarray(outcomes, dtype=np.float64))
    before = np.broadcast_to(np.asarray(clean, dtype=np.float64), after.shape)
    critical = _critical(after.shape[1], samples)
    wrong, right = bound_missing(after)
    if not is_binary(before, wrong, right) or not -1.0 < most < 1.0:
        raise ValueError(
            f"expected scores of 0 and 1 (or NaN for a missing answer) and a drop inside (-1, 1), found a drop of {most!r}"
        )
    return _statistic(before, wrong, most) <= -critical, _statistic(before, right, most) >= critical


def _critical(seen: int, samples: int) -> float:
    sizes = look_sizes(samples)
    if seen not in sizes:
        raise ValueError(
            f"{seen} answers of {samples}: looks were fixed at {', '.join(map(str, sizes))}. Looking elsewhere voids the level"
        )
    # tiny runs look twice after the same sample: the stricter bound holds
    return BOUNDS[sizes.index(seen)]


def _statistic(clean: Scores, outcomes: Scores, drop: float) -> Scores:
    loss = clean - outcomes
    harmful, helpful = (loss > 0.0).sum(axis=1).astype(np.float64), (loss < 0.0).sum(axis=1).astype(np.float64)
    size = np.full(harmful.shape, float(loss.shape[1]))
    return tango_statistic(harmful, helpful, size, np.full(harmful.shape, drop))
