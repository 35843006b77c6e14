"""How early other ways to stop would decide: other parts of the risk for looks, and an audit of two strata.

    python studies/verdicts/stopping.py                  # both tables, 2,000 runs a row
    python studies/verdicts/stopping.py --only looks     # one of them: looks or strata

Looks: the interval of the drop of one cell (a bound of 5 pp, 5 % risk each way) is looked at after 24, 48, 96 ... samples.
Each entry is "decided @ asked": the share of runs that end PASS or FAIL, and the share of the samples that they ask.

    all      one look, at all samples
    halves   the looks before the last one have half of the risk, in equal parts
    square   what runs use: the risk spent is the square of the share asked
    cube     its third power
    OBF      the spending function of Lan and DeMets that is like the bounds of O'Brien and Fleming

Strata: an audit of one cell as in runs (betting, the clean answer as control variate, a random order), and one by the likelihood
ratio of harmful flips among samples that are right when clean and of helpful ones among the others. Its order is random, or draws
samples that are right when clean four times as fast. Each entry is the share of the samples asked, a tenth of the runs a row.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from boundaries import HELPFUL, RIGHT, RISK, clean_scores
from numpy.typing import NDArray
from scipy import special, stats

from pytest_vlmrobust.evaluation.judge.audits import checkpoints
from pytest_vlmrobust.evaluation.judge.stopping import look_sizes, risk_shares
from pytest_vlmrobust.metrics.sequential import Audit, max_drop
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.paired import drop_test

Array = NDArray[np.float64]
SEED, RUNS = 1234, 2_000
BOUND = 0.05
PACE = 4.0


# Looks.


def spent(looks: Sequence[int], share: Callable[[float], float]) -> list[float]:
    """Returns the parts of the risk of looks, the last of them at all samples, by how much is spent up to a share of these."""
    totals = [share(look / looks[-1]) for look in looks]
    return [float(part) for part in np.diff([0.0, *totals])]


def obrien_fleming(share: float) -> float:
    """Returns the part of the risk that is spent up to a share of the samples."""
    return float(2.0 * stats.norm.sf(stats.norm.isf(RISK / 2.0) / math.sqrt(share)) / RISK)


def p_values(n: int, drop: float, looks: Sequence[int], runs: int, rng: np.random.Generator) -> Array:
    """Returns the p-values against FAIL and PASS of answers of a population at each look, shape (looks, 2, runs)."""
    clean = rng.permutation(clean_scores(n))
    harmful = rng.random((n, runs)) < (drop + HELPFUL) / RIGHT
    helpful = rng.random((n, runs)) < HELPFUL / (1.0 - RIGHT)
    after = np.where(clean[:, None] > 0.0, ~harmful, helpful).astype(float)
    tests = [drop_test(clean[:look], after[:look], Clusters.of(None, look)) for look in looks]
    return np.array([(test.p_above(BOUND), test.p_below(BOUND)) for test in tests])


def decided(values: Array, looks: Sequence[int], parts: Sequence[float]) -> str:
    """Returns the share of runs that are decided, and the share of samples that they ask."""
    is_open, n_asked = np.ones(values.shape[2], bool), np.full(values.shape[2], looks[-1])
    for at_look, look, part in zip(values, looks, parts, strict=True):
        shown = is_open & (at_look <= RISK * part).any(axis=0)
        n_asked[shown] = look
        is_open &= ~shown
    return f"{1.0 - is_open.mean():.2f} @ {n_asked.mean() / looks[-1]:.2f}"


def print_looks(runs: int) -> None:
    """Prints the table of looks."""
    rng = np.random.default_rng(SEED)
    print("\n| samples | true drop | all | halves | square | cube | OBF |\n|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for n in (128, 200, 324, 869):
        looks = [*look_sizes(n), n]
        early = len(looks) - 1
        parts = [[0.5 / early] * early + [0.5], list(risk_shares(n).values())]
        parts += [spent(looks, lambda share: share**3), spent(looks, obrien_fleming)]
        for drop in (0.0, 0.01, 0.02, 0.03, 0.08, 0.10, 0.30):
            values = p_values(n, drop, looks, runs, rng)
            cells = [decided(values[-1:], [n], [1.0]), *(decided(values, looks, part) for part in parts)]
            print(f"| {n} | {drop:.0%} | {' | '.join(cells)} |", flush=True)


# Strata.
#
# Samples right when clean (C of them) hold H harmful flips, the others (W) hold G helpful ones; the verdict of all N is
# whether H - G <= K. The numerator is a fixed mixture over flip rates, the denominator the largest exact probability of the
# drawn sequence (without replacement) that the null allows. Under the null the ratio averages at most 1 however the strata
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
    logs: Array = special.gammaln(np.maximum(size, 0.0) + 1.0) - special.gammaln(left + 1.0)
    return logs


def stratified_order(rng: np.random.Generator, clean: Array, pace: float) -> NDArray[np.intp]:
    """Returns an order that is random within each stratum; samples right when clean are used up ``pace`` times as fast."""
    shuffled = rng.permutation(len(clean))
    is_right = clean[shuffled] > 0.0
    due = np.where(is_right, np.cumsum(is_right) / is_right.sum() / pace, np.cumsum(~is_right) / (~is_right).sum())
    return shuffled[np.lexsort((~is_right, due))]


def bets(clean: Array, most: float, orders: Sequence[NDArray[np.intp]], answers: Array, n_asked: int) -> Array:
    """Returns the logarithms of the e-values that runs use, shape (2, runs)."""
    logs = []
    for order, scores in zip(orders, answers, strict=True):
        audit = Audit([max_drop(clean, most)], order.tolist())
        audit.advance(0, scores[order[:n_asked]])
        logs.append(audit.evidence()[:, 0, 0])
    return np.array(logs).T


def ratios(clean: Array, most: float, orders: Sequence[NDArray[np.intp]], answers: Array, n_asked: int) -> Array:
    """Returns the logarithms of the likelihood ratios of two strata, shape (2, runs)."""
    limit = max_drop(clean, most)
    places = np.array([order[:n_asked] for order in orders])
    known, seen = clean[places] > 0.0, np.take_along_axis(answers, places, axis=1) > 0.0
    drawn = Drawn(*(part.sum(axis=1).astype(float) for part in (known & ~seen, known, ~known & seen, ~known)))
    strata = Strata(*(np.full(len(orders), value) for value in (limit.right, limit.size - limit.right, limit.most)))
    return np.array([log_e_pass(drawn, strata), log_e_fail(drawn, strata)])


def asked_of_audit(clean: Array, most: float, drop: float, way: tuple[str, float], runs: int) -> float:
    """Returns the share of the samples that an audit of a cell asks, at a risk of 5 % each way."""
    (evidence, pace), n = way, len(clean)
    rng = np.random.default_rng([SEED, n])
    helpful = round(HELPFUL * n)
    answers = np.tile(clean, (runs, 1))
    for scores in answers:
        scores[rng.choice(np.flatnonzero(clean > 0.0), round(drop * n) + helpful, replace=False)] = 0.0
        scores[rng.choice(np.flatnonzero(clean == 0.0), helpful, replace=False)] = 1.0
    orders = [stratified_order(rng, clean, pace) if pace else rng.permutation(n) for _ in range(runs)]
    n_asked = np.full(runs, n)
    is_open = np.ones(runs, bool)
    for moment in checkpoints(n):
        logs = (ratios if evidence == "strata" else bets)(clean, most, orders, answers, moment)
        done = is_open & ((logs >= -math.log(RISK)).sum(axis=0) == 1)
        n_asked[done] = moment
        is_open &= ~done
    return float(n_asked.mean() / n)


def print_strata(runs: int) -> None:
    """Prints the table of audits of strata."""
    ways = (("betting", 0.0), ("strata", 0.0), ("strata", PACE))
    print("\n| samples | right when clean | bound | true drop | betting | strata | strata, right ones first |")
    print("|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for n, right in ((324, 0.36), (869, RIGHT)):
        for most in (0.05, 0.10):
            for drop in (0.0, 0.02, 0.03, 0.15, 0.30):
                cells = " | ".join(f"{asked_of_audit(clean_scores(n, right), most, drop, way, runs):.2f}" for way in ways)
                print(f"| {n} | {right:.0%} | {most:.0%} | {drop:.0%} | {cells} |", flush=True)


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each row (default: %(default)s)")
    parser.add_argument("--only", choices=("looks", "strata"), help="one of the tables")
    options = parser.parse_args()
    if options.only != "strata":
        print_looks(options.runs)
    if options.only != "looks":
        print_strata(max(1, options.runs // 10))
    return 0


if __name__ == "__main__":
    sys.exit(main())
