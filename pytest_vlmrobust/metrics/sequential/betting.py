"""Evidence from betting against a null hypothesis, sample by sample, over a mixture of stakes.

Source: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting", J. R. Statist. Soc. B 86 (2024),
for means of a finite list sampled without replacement; used as risk-limiting audits are (RiLACS, SHANGRLA), with the clean
answers in the place of the machine count. That the capital rarely exceeds 1/alpha under the null is Ville's inequality, so it may
be looked at at any time. The control variate is ours: what the clean answers still to come average is known exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from .limits import Limit, contrast_of
from .tally import Counts, Draws, bound_missing

Array = NDArray[np.float64]

GRID = (0.02, 0.05, 0.1, 0.18, 0.28, 0.4, 0.52, 0.65, 0.78, 0.9, 0.98)
"""Stakes as fractions of the largest one that cannot ruin; each starts with an equal share of the capital."""

_NARROWEST = 1e-9
_RUIN = -1.0 + 1e-12


def log_factors(values: Array, mean: Array, ceiling: Array, grid: Array) -> Array:
    """Returns the growth of a capital that bets against "the next value averages at least ``mean``".

    Where the null is impossible (``mean`` above ``ceiling``) the capital explodes; where it is certain the capital only falls. It
    is one-sided, unlike capital processes for intervals.

    Args:
        values: what was drawn, any shape.
        mean: smallest mean of the null for each draw, of the same shape.
        ceiling: largest value that could have been drawn, of the same shape.
        grid: stakes in (0, 1), shape (g,).

    Returns:
        Natural logarithms of the factors, one more axis of length g.
    """
    stakes = grid / np.maximum(ceiling - mean, _NARROWEST)[..., None]
    factors: Array = np.log1p(np.maximum(-stakes * (values - mean)[..., None], _RUIN))
    return factors


def slope(counts: Counts) -> Array:
    """Returns the coefficient of the control variate from past answers alone: the harmful plus the helpful flip rate, shrunk.

    It is the regression of the difference on the clean answer. Missing answers count as no flip.
    """
    harmful = (counts.harmful_least + 0.5) / (counts.right + 10.0)
    helpful = (counts.helpful_least + 0.5) / (counts.wrong + 20.0)
    return harmful + helpful


def log_capital(logs: Array) -> Array:
    """Returns the logarithm of the mean capital over the grid, shape (cells, g) to (cells,)."""
    peak = logs.max(axis=-1)
    total: Array = peak + np.log(np.exp(logs - peak[..., None]).mean(axis=-1))
    return total


class Betting:
    """The capital of many cells, each betting against its two nulls: that all N answers fail the gate, and that they pass it."""

    def __init__(self, limits: Sequence[Limit], *, population: bool, control: bool, grid: Sequence[float]) -> None:
        """Starts every stake of ``grid`` with capital 1; ``control`` bets on the part that clean answers do not explain."""
        stakes = np.asarray(grid, dtype=np.float64)
        if stakes.ndim != 1 or not stakes.size or not ((stakes > 0.0) & (stakes < 1.0)).all():
            raise ValueError(f"grid is {list(grid)!r}: expected at least one stake, each a fraction between 0 and 1")
        self._grid = stakes
        self._population, self._control = population, control and not population
        self._most, self._least_failing = (
            np.array(column) for column in zip(*(_bounds(limit, population) for limit in limits), strict=True)
        )
        self._low, self._high = (
            np.array(column) for column in zip(*(_range(limit, population) for limit in limits), strict=True)
        )
        self._logs = np.zeros((2, len(limits), stakes.size))

    def absorb(self, draws: Draws) -> None:
        """Updates the capital by a batch; each bet depends only on what was drawn before it."""
        coefficient = slope(draws.before) if self._control else np.zeros(draws.left.shape)
        expected = draws.right_left / draws.left
        low, high = ((edge - coefficient * (edge - expected)) for edge in self._columns(draws.rows, self._low, self._high))
        adjusted = draws.offset - coefficient * (draws.offset - expected)
        pass_mean, fail_mean = self._null_means(draws)
        wrong, right = bound_missing(draws.outcomes)
        growth = np.stack(
            [
                log_factors(adjusted - wrong, pass_mean, np.maximum(low, high), self._grid),
                log_factors(right - adjusted, -fail_mean, 1.0 - np.minimum(low, high), self._grid),
            ]
        )
        growth = np.where(draws.filled[..., None], growth, 0.0)
        start = self._logs[:, draws.rows, None]
        # one draw after the other, so that batches of any split give the same bits
        self._logs[:, draws.rows] = np.cumsum(np.concatenate([start, growth], axis=2), axis=2)[:, :, -1]

    def logs(self, counts: Counts) -> tuple[Array, Array]:  # noqa: ARG002  the signature of any evidence
        """Returns the natural logarithms of the e-values for PASS and for FAIL, shape (cells,) each."""
        capital = log_capital(self._logs)
        return capital[0], capital[1]

    def _null_means(self, draws: Draws) -> tuple[Array, Array]:
        """Returns the smallest mean of the next difference if the gate fails, and the largest if it passes."""
        most, failing = self._columns(draws.rows, self._most, self._least_failing)
        if self._population:
            everywhere = np.zeros(draws.left.shape)
            return failing + everywhere, most + everywhere
        return (failing - draws.before.sum_most) / draws.left, (most - draws.before.sum_least) / draws.left

    @staticmethod
    def _columns(rows: NDArray[np.intp], first: Array, second: Array) -> tuple[Array, Array]:
        return first[rows, None], second[rows, None]


def _bounds(limit: Limit, population: bool) -> tuple[float, float]:
    """Returns the largest sum that passes and the smallest that fails; of a distribution, the bound of its mean, twice."""
    if not population:
        return limit.most, limit.most + limit.step
    bound = contrast_of(limit).bound
    return bound, bound


def _range(limit: Limit, population: bool) -> tuple[float, float]:
    """Returns the smallest and the largest offset that can be drawn."""
    if population:
        contrast = contrast_of(limit)
        return contrast.low, contrast.high
    known = limit.reference[limit.member]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)


# Evidence from likelihood ratios within two strata, for models that are often wrong already when clean.
#
# Samples right when clean (C of them) hold H harmful flips, the others (W) hold G helpful ones; the verdict of all N is
# whether H - G <= K. The numerator is a fixed mixture over flip rates, the denominator the largest exact probability of the
# drawn sequence (without replacement) that the null allows, so under the null the ratio averages at most 1 however the strata
# are interleaved.
#
# Source: the ratio of a mixture to the maximum over the null is a test supermartingale by Ville's inequality (universal
# inference: L. Wasserman, A. Ramdas and S. Balakrishnan, PNAS 117 (2020) 16880-16890); stratified audits: SHANGRLA (P. Stark
# 2020).


HARMFUL_PRIOR = (0.7, 7.0)
"""Beta prior of the harmful flip rate: where the numerator expects it."""
HELPFUL_PRIOR = (0.7, 14.0)
"""Beta prior of the helpful flip rate."""


class Drawn(NamedTuple):
    """Answers so far, arrays of shape (cells,)."""

    harmful: Array
    """Harmful flips among the drawn samples that were right when clean."""
    right: Array
    """How many of those were drawn."""
    helpful: Array
    """Helpful flips among the drawn samples that were wrong when clean."""
    wrong: Array
    """How many of those were drawn."""


class Strata(NamedTuple):
    """Counts known before the first answer, arrays of shape (cells,)."""

    right: Array
    """C, how many samples were right when clean."""
    wrong: Array
    """W, how many were wrong."""
    most: Array
    """K, the largest H - G that passes."""

    @property
    def helpful_totals(self) -> Array:
        """Every G that any cell could have, shape (largest W + 1,)."""
        return np.arange(float(self.wrong.max(initial=0.0)) + 1.0)


def log_e_pass(drawn: Drawn, strata: Strata) -> Array:
    """Returns the logarithm of the evidence against "the gate fails", H - G >= K + 1; infinite where that is impossible.

    Returns:
        Natural logarithms, shape (cells,); time and memory grow with the largest W.
    """
    lowest = strata.most[:, None] + 1.0 + strata.helpful_totals
    return _log_mixture(drawn) - _log_null(drawn, strata, lowest, np.full(lowest.shape, np.inf))


def log_e_fail(drawn: Drawn, strata: Strata) -> Array:
    """Returns the logarithm of the evidence against "the gate passes", H - G <= K; otherwise as :func:`log_e_pass`."""
    highest = strata.most[:, None] + strata.helpful_totals
    return _log_mixture(drawn) - _log_null(drawn, strata, np.full(highest.shape, -np.inf), highest)


class Stratified:
    """The evidence of many cells, computed from their counts at each look."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        """Counts the strata of each limit.

        Raises:
            ValueError: a limit of graded scores.
        """
        if any(limit.step == 0.0 for limit in limits):
            raise ValueError("stratified evidence counts flips: graded scores have none. Use the betting evidence")
        right = np.array([float(limit.reference[limit.member].sum()) for limit in limits])
        size = np.array([float(limit.size) for limit in limits])
        self._strata = Strata(right, size - right, np.array([limit.most for limit in limits]))

    def absorb(self, draws: Draws) -> None:
        """Does nothing: the counts are sufficient."""

    def logs(self, counts: Counts) -> tuple[Array, Array]:
        """Returns the natural logarithms of the e-values for PASS and for FAIL, shape (cells,) each."""
        worst = Drawn(counts.harmful_most, counts.right, counts.helpful_least, counts.wrong)
        best = Drawn(counts.harmful_least, counts.right, counts.helpful_most, counts.wrong)
        return log_e_pass(worst, self._strata), log_e_fail(best, self._strata)


def _log_mixture(drawn: Drawn) -> Array:
    """Returns the log probability of the drawn sequences under the priors, shape (cells,)."""
    (a, b), (c, d) = HARMFUL_PRIOR, HELPFUL_PRIOR
    in_right: Array = scipy.special.betaln(a + drawn.harmful, b + drawn.right - drawn.harmful) - scipy.special.betaln(a, b)
    in_wrong: Array = scipy.special.betaln(c + drawn.helpful, d + drawn.wrong - drawn.helpful) - scipy.special.betaln(c, d)
    return in_right + in_wrong


def _log_null(drawn: Drawn, strata: Strata, lowest: Array, highest: Array) -> Array:
    """Returns the largest log probability over every G and the H within its bounds, shape (cells,).

    Args:
        drawn: answers so far.
        strata: sizes of the strata.
        lowest: smallest H that the null allows with each G, shape (cells, G).
        highest: largest H that the null allows with each G, shape (cells, G).
    """
    k, a, j, b = (column[:, None] for column in drawn)
    c, w, helpful = strata.right[:, None], strata.wrong[:, None], strata.helpful_totals
    low, high = np.maximum(k, lowest), np.minimum(c - (a - k), highest)
    # the likelihood rises in H up to k (C + 1) / a and falls beyond, so its constrained maximum is the nearest allowed H
    mode = np.floor(k * (c + 1.0) / np.maximum(a, 1.0))
    harmful = np.clip(mode, low, np.maximum(high, low))
    feasible = (low <= high) & (helpful >= j) & (helpful <= w - (b - j))
    logs = _log_sequence(k, a, harmful, c) + _log_sequence(j, b, helpful, w)
    largest: Array = np.where(feasible, logs, -np.inf).max(axis=1)
    return largest


def _log_sequence(flips: Array, drawn: Array, total: Array, size: Array) -> Array:
    """Returns the log probability of one sequence of ``drawn`` answers with ``flips`` flips, of ``size`` with ``total``."""
    logs: Array = _log_falling(total, flips) + _log_falling(size - total, drawn - flips) - _log_falling(size, drawn)
    return logs


def _log_falling(size: Array, drawn: Array) -> Array:
    """Returns the logarithm of size (size - 1) ... (size - drawn + 1); arbitrary where ``drawn`` exceeds ``size``."""
    left = np.maximum(size - drawn, 0.0)
    logs: Array = scipy.special.gammaln(np.maximum(size, 0.0) + 1.0) - scipy.special.gammaln(left + 1.0)
    return logs
