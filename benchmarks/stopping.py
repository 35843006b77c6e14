"""How early other ways to stop would decide: other parts of the risk for looks, and an audit of two strata.

    python benchmarks/stopping.py                  # both tables, 2,000 runs a row
    python benchmarks/stopping.py --only looks     # one of them: looks or strata

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

import numpy as np
from boundaries import HELPFUL, RIGHT, RISK, clean_scores
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust.evaluation.judge.audits import moments
from pytest_vlmrobust.evaluation.judge.looks import look_sizes, risk_shares
from pytest_vlmrobust.metrics.sequential import Audit, Order, max_drop, stratified_order
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
    return np.diff([0.0, *totals]).tolist()


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
    is_open, asked = np.ones(values.shape[2], bool), np.full(values.shape[2], looks[-1])
    for found, look, part in zip(values, looks, parts, strict=True):
        shown = is_open & (found <= RISK * part).any(axis=0)
        asked[shown] = look
        is_open &= ~shown
    return f"{1.0 - is_open.mean():.2f} @ {asked.mean() / looks[-1]:.2f}"


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


def asked_of_audit(clean: Array, most: float, drop: float, way: tuple[str, float], runs: int) -> float:
    """Returns the share of the samples that an audit of a cell asks, at a risk of 5 % each way."""
    (evidence, pace), n = way, len(clean)
    rng = np.random.default_rng([SEED, n])
    helpful = round(HELPFUL * n)
    answers = np.tile(clean, (runs, 1))
    for own in answers:
        own[rng.choice(np.flatnonzero(clean > 0.0), round(drop * n) + helpful, replace=False)] = 0.0
        own[rng.choice(np.flatnonzero(clean == 0.0), helpful, replace=False)] = 1.0
    if pace:
        orders = [stratified_order(SEED, "m", "d", str(run), clean, pace=pace) for run in range(runs)]
    else:
        orders = [Order(rng.permutation(n), "uniform") for _ in range(runs)]
    audit = Audit([max_drop(clean, most)] * runs, orders, evidence="stratified" if evidence == "strata" else "betting")
    asked = np.full(runs, n)
    undecided = np.arange(runs)
    for before, moment in zip((0, *moments(n)), moments(n), strict=False):
        cells, samples = audit.upcoming(undecided, moment - before)
        audit.advance(cells, samples, answers[cells, samples])
        verdicts = audit.verdicts(RISK, RISK)
        done = undecided[~verdicts.undecided[undecided]]
        asked[done] = moment
        undecided = np.setdiff1d(undecided, done)
    return float(asked.mean() / n)


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
