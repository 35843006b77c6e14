"""Evidence from likelihood ratios within two strata, for models that are often wrong already when clean.

Samples right when clean (C of them) hold H harmful flips, the others (W) hold G helpful ones; the verdict of all N is whether
H - G <= K. The numerator is a fixed mixture over flip rates, the denominator the largest exact probability of the drawn sequence
(without replacement) that the null allows, so under the null the ratio averages at most 1 however the strata are interleaved.

Source: the ratio of a mixture to the maximum over the null is a test supermartingale by Ville's inequality (universal inference:
L. Wasserman, A. Ramdas and S. Balakrishnan, PNAS 117 (2020) 16880-16890); stratified audits: SHANGRLA (P. Stark 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .limits import Limit
from .tally import Counts, Draws

Array = NDArray[np.float64]

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
    """What is known before the first answer, arrays of shape (cells,)."""

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
        """Does nothing: the counts hold all that matters."""

    def logs(self, counts: Counts) -> tuple[Array, Array]:
        """Returns the natural logarithms of the e-values for PASS and for FAIL, shape (cells,) each."""
        worst = Drawn(counts.harmful_most, counts.right, counts.helpful_least, counts.wrong)
        best = Drawn(counts.harmful_least, counts.right, counts.helpful_most, counts.wrong)
        return log_e_pass(worst, self._strata), log_e_fail(best, self._strata)


def _log_mixture(drawn: Drawn) -> Array:
    """Returns the log probability of the drawn sequences under the priors, shape (cells,)."""
    (a, b), (c, d) = HARMFUL_PRIOR, HELPFUL_PRIOR
    in_right: Array = special.betaln(a + drawn.harmful, b + drawn.right - drawn.harmful) - special.betaln(a, b)
    in_wrong: Array = special.betaln(c + drawn.helpful, d + drawn.wrong - drawn.helpful) - special.betaln(c, d)
    return in_right + in_wrong


def _log_null(drawn: Drawn, strata: Strata, lowest: Array, highest: Array) -> Array:
    """Returns the largest log probability over every G and the H within its bounds, shape (cells,).

    Args:
        drawn: answers so far.
        strata: sizes of the strata.
        lowest: smallest H that the null allows with each G, shape (cells, G).
        highest: largest H that the null allows with each G, shape (cells, G).
    """
    k, a, j, b = (one[:, None] for one in drawn)
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
    """Returns the logarithm of size (size - 1) ... (size - drawn + 1), of anything where ``drawn`` exceeds ``size``."""
    left = np.maximum(size - drawn, 0.0)
    logs: Array = special.gammaln(np.maximum(size, 0.0) + 1.0) - special.gammaln(left + 1.0)
    return logs
