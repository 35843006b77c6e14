"""How often verdicts on the curve of accuracy over resolution err, and how often they decide, before and after.

    python studies/verdicts/curves.py                               # 2,000 runs a row: about half an hour of one core
    python studies/verdicts/curves.py --quick                       # 200 runs a row
    python studies/verdicts/curves.py --sizes 1200 --curves rise    # some of it
    python studies/verdicts/curves.py --metrics absolute_continuous_error --runs 500
    python studies/verdicts/curves.py --json rows.json              # the numbers, for a program

Answers are right or wrong, and those of one sample mostly the same at all twelve resolutions: a question has one difficulty, and
a share of its answers, ``redrawn``, is drawn anew at each resolution. With 4 and 15 % neighbouring resolutions disagree in 4 and
14 % of the samples, as published curves may. With ``clustered`` one to nine questions share a picture, and half of them its
difficulty.

Each row judges by the one-sided bounds at 5 % that a rule with ``judge: interval`` uses.

    bound = truth   PASS and FAIL are both the errors of a model whose true value is just beyond the bound, and just within it
    bound > truth   PASS is right, FAIL is wrong; where bound < truth it is the other way round
    before          max-t over all 2^11 sums of steps with signs below, Student's t of each above
    error           Monte Carlo standard error of the larger error, or of the right verdict where the bound is not the truth
    *               an error above 5 % by more than three times its Monte Carlo standard error

The last lines say how close an upper bound of ACE can come at all: see :func:`least_excess`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.metrics import ScoreTable, resolution
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.curves import ContrastTest, sign_contrasts, slope_weights, step_errors, variation, wobble

Array = NDArray[np.float64]

RUNS, QUICK_RUNS = 2_000, 200
SIZES = (200, 600, 1_200, 4_000)
POINTS = 12
EDGES = [112 * (rung + 1) for rung in range(POINTS)]
TAIL = 0.05
SEED = 2024
_ONE_SIDED = 1.6448536269514722
_ROUNDING = 1e-9

_TURNS = np.array([-1.0, 1.0] * 6)
CURVES: dict[str, Array] = {
    "flat": np.full(POINTS, 0.55),
    "rise": np.linspace(0.36, 0.60, POINTS),
    "rise of .20": np.linspace(0.40, 0.60, POINTS),
    "rise of .45": np.linspace(0.30, 0.75, POINTS),
    "GPT-4o": np.array([0.423, 0.474, 0.498, 0.510, 0.522, 0.534, 0.548, 0.548, 0.564, 0.557, 0.560, 0.567]),
    "Qwen2.5-VL": np.array([0.362, 0.445, 0.504, 0.532, 0.565, 0.575, 0.582, 0.598, 0.607, 0.586, 0.609, 0.599]),
    "zig-zag of .30": 0.55 + 0.15 / 11 * _TURNS,
    "zig-zag of .60": 0.55 + 0.30 / 11 * _TURNS,
    "one step up": np.repeat([0.45, 0.60], 6),
    "one step down": np.repeat([0.62, 0.50], 6),
}
"""Accuracy at each resolution; Res-Bench Table 2 for the two models."""


@dataclass(frozen=True)
class Metric:
    """One interval, the true value that it is about, and bounds that somebody could set."""

    truth: Callable[[Array], float]
    interval: Callable[[ScoreTable, str | None, float], tuple[float, float]]
    bounds: tuple[float, ...] = ()


def before(table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:  # noqa: ARG001  as an interval
    """Returns the bounds of ACE that were used before: max-t below, a t bound of each contrast above."""
    rungs = table.matrix([name for _, name in table.resolutions()])
    test = ContrastTest.of(rungs, sign_contrasts(rungs.shape[1]), table.clusters)
    tail = (1.0 - confidence) / 2.0
    return float(test.lowers(tail, np.random.default_rng(0)).max()), test.upper(tail)


def largest_fall(rates: Array) -> float:
    """Returns the largest loss from one point to any later one."""
    return float((np.maximum.accumulate(rates) - rates).max())


METRICS = {
    "absolute_continuous_error": Metric(
        lambda rates: float(variation(rates)), resolution.absolute_continuous_error_interval, (0.20, 0.30)
    ),
    "absolute_continuous_error, before": Metric(lambda rates: float(variation(rates)), before, (0.20, 0.30)),
    "relative_continuous_error": Metric(
        lambda rates: float(variation(rates) / rates.mean()), resolution.relative_continuous_error_interval, (0.60,)
    ),
    "resolution_wobble": Metric(lambda rates: float(wobble(rates)), resolution.resolution_wobble_interval, (0.25,)),
    "largest_downward_step": Metric(largest_fall, resolution.largest_downward_step_interval, (0.06,)),
    "resolution_net": Metric(lambda rates: float(rates[-1] - rates[0]), resolution.resolution_net_interval, (0.30,)),
    "resolution_slope": Metric(lambda rates: float(slope_weights(np.log2(EDGES)) @ rates), resolution.resolution_slope_interval),
}


@dataclass(frozen=True)
class Row:
    """What became of the verdicts on one bound."""

    metric: str
    curve: str
    redrawn: float
    n: int
    clustered: bool
    truth: float
    bound: float
    passes: float
    fails: float
    runs: int

    @property
    def undecided(self) -> float:
        """Share of runs without a PASS and a FAIL."""
        return 1.0 - self.passes - self.fails

    @property
    def error(self) -> float:
        """Monte Carlo standard error."""
        rate = max(self.passes, self.fails)
        return math.sqrt(rate * (1.0 - rate) / self.runs)

    @property
    def errs(self) -> bool:
        """Whether an error is above its nominal rate by more than Monte Carlo explains."""
        beyond, within = self.bound <= self.truth + _ROUNDING, self.bound >= self.truth - _ROUNDING
        wrong = max(self.passes if beyond else 0.0, self.fails if within else 0.0)
        return wrong > TAIL + 3.0 * math.sqrt(TAIL * (1.0 - TAIL) / self.runs)


def answers(rates: Array, n: int, redrawn: float, groups: list[str] | None, rng: np.random.Generator) -> Array:
    """Returns right and wrong answers of n samples at each resolution, shape (n, R)."""
    ease = rng.random(n)
    if groups is not None:
        shared = rng.random(n)[np.unique(groups, return_inverse=True)[1]]
        ease = np.where(rng.random(n) < 0.5, shared, ease)
    again = rng.random((n, len(rates)))
    difficulty = np.where(again < redrawn, rng.random((n, len(rates))), ease[:, None])
    return (difficulty < rates).astype(np.float64)


def pictures(n: int) -> list[str]:
    """Returns the picture of each of n questions: one to nine questions have the same."""
    sizes = 1 + np.arange(n) % 9
    return [f"picture {name}" for name in np.repeat(np.arange(n), sizes)[:n]]


def rows(curve: str, n: int, redrawn: float, *, clustered: bool, names: Sequence[str], runs: int) -> Iterator[Row]:
    """Yields the rows of one population: every metric at its true value, and at the bounds that somebody could set."""
    rates, groups = CURVES[curve], pictures(n) if clustered else None
    rng = np.random.default_rng([SEED, n, round(1000 * redrawn), clustered, zlib.crc32(curve.encode())])
    ends = np.empty((len(names), runs, 2))
    for run in range(runs):
        drawn = answers(rates, n, redrawn, groups, rng)
        settings = {f"resolution:{edge}": drawn[:, rung] for rung, edge in enumerate(EDGES)}
        table = ScoreTable(drawn[:, -1], settings, groups=groups)
        for index, name in enumerate(names):
            ends[index, run] = METRICS[name].interval(table, None, 1.0 - 2.0 * TAIL)
    for index, name in enumerate(names):
        truth = METRICS[name].truth(rates)
        for bound in (truth, *METRICS[name].bounds):
            passes = float((ends[index, :, 1] < bound - _ROUNDING).mean())
            fails = float((ends[index, :, 0] > bound + _ROUNDING).mean())
            yield Row(name, curve, redrawn, n, clustered, truth, bound, passes, fails, runs)


def least_excess(n: int, redrawn: float) -> tuple[float, float]:
    """Returns how far above 0 an upper bound of ACE has to be on a flat curve, and how far above it is, both in the middle.

    A zig-zag between neighbouring resolutions, with an ACE of t, is hidden by noise while t is small. The best test of *that*
    curve against a flat one, which knows where it turns (Neyman and Pearson), tells them apart in half of the samples at a t that
    no valid upper bound can undercut more often. A bound that does not know the curve stands further off.
    """
    rng = np.random.default_rng([SEED, n])
    big = answers(CURVES["flat"], 200_000, redrawn, None, rng)
    direction = _TURNS / float(variation(_TURNS))
    distance = math.sqrt(float(direction @ np.linalg.solve(np.cov(big.T) / n, direction)))
    highs = []
    for _ in range(100):
        drawn = answers(CURVES["flat"], n, redrawn, None, rng)
        settings = {f"resolution:{edge}": drawn[:, rung] for rung, edge in enumerate(EDGES)}
        highs.append(resolution.absolute_continuous_error_interval(ScoreTable(drawn[:, -1], settings), None, 1.0 - 2.0 * TAIL)[1])
    return _ONE_SIDED / distance, float(np.median(highs))


def disagreement(redrawn: float) -> float:
    """Returns the share of samples that a flat curve answers differently at neighbouring resolutions."""
    drawn = answers(CURVES["flat"], 20_000, redrawn, None, np.random.default_rng(SEED))
    error = step_errors(drawn, Clusters.of(None, len(drawn)))
    return float((error**2).mean() * len(drawn))


def populations(sizes: Sequence[int], curves: Sequence[str]) -> Iterator[tuple[str, int, float, bool]]:
    """Yields curve, n, share of answers redrawn, and whether the samples are clustered."""
    for curve in curves:
        for n in sizes:
            for redrawn in (0.04, 0.15):
                yield curve, n, redrawn, False
        if 1_200 in sizes and curve in {"flat", "rise", "zig-zag of .60"}:
            yield curve, 1_200, 0.15, True


def main() -> int:
    """Prints the table; returns 1 where an error is above its nominal rate by more than Monte Carlo explains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs a row instead of {RUNS:,}")
    parser.add_argument("--runs", type=int, help="so many runs a row")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of samples")
    parser.add_argument(
        "--curves", nargs="+", default=list(CURVES), choices=list(CURVES), metavar="CURVE", help=", ".join(CURVES)
    )
    parser.add_argument(
        "--metrics", nargs="+", default=list(METRICS), choices=list(METRICS), metavar="METRIC", help=", ".join(METRICS)
    )
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    print("| metric | curve | redrawn | n | truth | bound | PASS | FAIL | INCONCLUSIVE | error | runs |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    all_rows: list[Row] = []
    for curve, n, redrawn, clustered in populations(options.sizes, options.curves):
        for row in rows(curve, n, redrawn, clustered=clustered, names=options.metrics, runs=runs):
            all_rows.append(row)
            size = f"{n:,} clustered" if clustered else f"{n:,}"
            cells = [row.metric, curve, f"{redrawn:.0%}", size, f"{row.truth:.3f}", f"{row.bound:.3f}"]
            shares = [f"{share:.3f}" for share in (row.passes, row.fails, row.undecided, row.error)]
            print(f"| {' | '.join([*cells, *shares, str(runs)])} |{' *' if row.errs else ''}", flush=True)
    for n in options.sizes:
        least, ours = least_excess(n, 0.15)
        print(
            f"\nOn a flat curve of {n:,} samples of which {disagreement(0.15):.0%} disagree from one resolution to the next, the "
            f"upper bound of ACE is {ours:.3f} in the middle; one that knew where it may turn could not be below {least:.3f}."
        )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in all_rows], indent=1) + "\n", encoding="utf-8")
    return int(any(row.errs for row in all_rows if "before" not in row.metric))


if __name__ == "__main__":
    sys.exit(main())
