"""How often the shipped estimators and gates err: every metric that a rule may bound, judged with its true value on the bound.

    python studies/verdicts/metrics_at_bounds.py --jobs 2  # 2,000 runs a row
    python studies/verdicts/metrics_at_bounds.py --quick  # 300 runs a row
    python studies/verdicts/metrics_at_bounds.py --telling  # each metric where it errs most
    python studies/verdicts/metrics_at_bounds.py --metric 'mean_*' --world 'rare*'  # some of it
    python studies/verdicts/metrics_at_bounds.py --json rows.json  # all rows, for a program

Answers are drawn from populations whose true values are known (populations.py). The bound lies a hair beside the truth: once so
that PASS is wrong, once so that FAIL is. Verdicts are those of ``judge_rule`` at a risk of 5 % each, and for FAIL also as one of
133 tests that share it. What has no interval, and what some policies judge so, is judged by its value (``judge`` says which).

    wrong PASS      share of runs that pass what breaks the bound
    wrong FAIL      share of runs that fail what keeps it, as the only test of the rule
    of 133          the same as one of 133 tests: their sum over all tests is to be 5 % at most
    INCONCLUSIVE    share of runs without PASS and FAIL where the bound is kept, those without a value among them
    width           median width of the 90 % interval
    error           Monte Carlo standard error of the larger of wrong PASS and wrong FAIL
    *               the rate is above its nominal one by more than Monte Carlo explains (p < 0.001)
    **              it is above one and a half times the nominal one by more than that: the program then ends with 1
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import math
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
import populations
from populations import SHARES, UNEQUAL, WORLDS, Array, Draw, Layout, Measure, World
from scipy import stats

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics.statistics import paired
from pytest_vlmrobust.policies import Bound, JudgedBy, Rule, Treatment
from pytest_vlmrobust.policies.judge import judge_rule
from pytest_vlmrobust.policies.rules import OnInconclusive

RUNS, QUICK_RUNS = 2_000, 300
LAYOUTS = (Layout(100), Layout(324), Layout(853), UNEQUAL)
_USUAL = Layout(324)
_OF_CLUSTERS = ("accuracy", "*_accuracy", "visual_gain", "*_retention", "accuracy_drop", "mean_*drop", "mean_*error", "*harmful*")
TELLING: tuple[tuple[str, Layout, tuple[str, ...]], ...] = (
    ("spread", _USUAL, ("*",)),
    ("rare 3 %", _USUAL, ("*",)),
    ("neutral", _USUAL, ("*",)),
    ("flat", _USUAL, ("*",)),
    ("local", UNEQUAL, ("pcri*",)),
    ("POPE", UNEQUAL, ("*",)),
    ("flat", UNEQUAL, ("resolution_accuracy", "absolute_continuous_error", "resolution_slope")),
    ("zigzag", _USUAL, (*populations.STRATA,)),
    ("POPE", _USUAL, ("*",)),
    ("family", _USUAL, ("*",)),
    ("pointing", _USUAL, ("*",)),
    ("fixation", _USUAL, ("*",)),
    ("pointing", UNEQUAL, ("*",)),
    ("rare 3 %", UNEQUAL, _OF_CLUSTERS),
    ("spread", UNEQUAL, _OF_CLUSTERS),
)
"""What shows each metric where it is most likely to err: world, layout and labels."""
SHARED = 133
"""Tests that share a rule in a full sweep."""
NOMINAL = 0.05
TOLERATED = 1.5
"""How many times the nominal rate an approximate interval may err, by what its documentation says."""
CERTAIN = 0.001
"""How unlikely a rate must be at its nominal value to be marked."""
SEED = 1234
_HAIR = 2e-9
"""By which a bound is missed: more than policies take for rounding, less than any score can make up."""
_TODAY = date(2000, 1, 1)


@dataclass(frozen=True)
class Row:
    """What became of the verdicts on one metric in one world."""

    metric: str
    world: str
    n: int
    clusters: int
    judge: str
    truth: float
    bound: str
    wrong_pass: float
    wrong_fail: float
    wrong_fail_shared: float
    undecided: float
    width: float
    runs: int

    @property
    def error(self) -> float:
        """Monte Carlo standard error of the larger of the two rates."""
        rate = max(self.wrong_pass, self.wrong_fail)
        return math.sqrt(rate * (1.0 - rate) / self.runs)

    def excessive(self, rate: float, nominal: float = NOMINAL, certain: float = CERTAIN) -> bool:
        """Whether a rate exceeds a nominal one by more than Monte Carlo explains."""
        return bool(stats.binom.sf(round(rate * self.runs) - 1, self.runs, nominal) < certain)

    @property
    def rates(self) -> dict[str, float]:
        """The nominal rate of each kind of error that its judge promises to keep; nothing where values are judged."""
        kinds = {"wrong_pass": NOMINAL, "wrong_fail": NOMINAL, "wrong_fail_shared": NOMINAL / SHARED}
        return kinds if self.judge == JudgedBy.INTERVAL else {}

    def marks(self, kind: str) -> str:
        """Returns the stars of a rate."""
        nominal = self.rates.get(kind)
        beyond = (1.0, TOLERATED) if nominal else ()
        return "*" * sum(self.excessive(getattr(self, kind), (nominal or 0.0) * times) for times in beyond)

    def cells(self) -> tuple[str, ...]:
        """Returns the row as tables show it."""
        return (
            *(self.metric, self.world, str(self.n), str(self.clusters), self.judge, f"{self.truth:.4f}", self.bound),
            f"{self.wrong_pass:.3f}{self.marks('wrong_pass')}",
            f"{self.wrong_fail:.3f}{self.marks('wrong_fail')}",
            f"{self.wrong_fail_shared:.4f}{self.marks('wrong_fail_shared')}",
            *(f"{self.undecided:.3f}", "" if math.isnan(self.width) else f"{self.width:.4f}", f"{self.error:.3f}"),
            str(self.runs),
        )


HEADINGS = (
    *("metric", "world", "n", "clusters", "judge", "truth", "bound", "wrong PASS", "wrong FAIL", f"of {SHARED}"),
    *("INCONCLUSIVE", "width", "error", "runs"),
)


@dataclass(frozen=True)
class Question:
    """A metric and a side of its bound; what is asked of every run."""

    label: str
    side: str
    judge: JudgedBy
    truth: float

    @property
    def metric(self) -> str:
        """The name that a rule gives."""
        return self.label.partition(" ")[0]

    def outcomes(self, estimate: Estimate) -> tuple[Outcome, Outcome, Outcome]:
        """Returns the verdicts where PASS is wrong, where FAIL is, and there as one of many tests."""
        sign = 1.0 if self.side == "<=" else -1.0
        kept = self._verdict(estimate, self.truth + sign * _HAIR, 1)
        broken = self._verdict(estimate, self.truth - sign * _HAIR, 1)
        return broken, kept, self._verdict(estimate, self.truth + sign * _HAIR, SHARED)

    def _verdict(self, estimate: Estimate, end: float, tests: int) -> Outcome:
        bound = Bound(high=end) if self.side == "<=" else Bound(low=end)
        # what is undecided is only said here: counting the questions that would decide it takes as long as the rest
        treatment = Treatment(judge=self.judge, on_inconclusive=OnInconclusive.WARN)
        rule = Rule("simulated", self.metric, bound, "studies/verdicts/metrics_at_bounds.py", treatment=treatment)
        return judge_rule(rule, estimate, (), _TODAY, tests).outcome


def rows(world: World, layout: Layout, runs: int, names: Sequence[str] = ("*",), seed: int = SEED) -> list[Row]:
    """Simulates one world: every run is drawn once and measured by every metric whose label matches one of the globs."""
    measures = {label: measure for label, measure in world.measures.items() if _matches(label, names)}
    questions = {label: _questions(label, measure, world.whole) for label, measure in measures.items()}
    rng = np.random.default_rng([seed, zlib.crc32(world.name.encode()), layout.n, layout.clusters])
    seen: dict[Question, Counter[str]] = {question: Counter() for listed in questions.values() for question in listed}
    widths: dict[str, list[float]] = {label: [] for label in questions}
    with _no_flips_twice():
        for _ in range(runs):
            draw = world.drawn(rng, layout)
            for label, listed in questions.items():
                estimate = _remembered(measures[label](draw))
                widths[label].append(estimate.high - estimate.low)
                for question in listed:
                    seen[question].update(_tally(question, estimate))
    return [
        _row(question, (world.name, layout), seen[question], widths[label])
        for label, listed in questions.items()
        for question in listed
    ]


def _matches(label: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(label, glob) for glob in globs)


def _questions(label: str, measure: Measure, whole: Draw) -> list[Question]:
    """Returns what is asked about a metric: on the side of its bound, on both where neither is better; by value as well."""
    facts = known_metrics()[label.partition(" ")[0]]
    estimate = measure(whole)
    if math.isnan(estimate.value):
        return []  # of a flat curve no correlation is defined
    sides = {"lower": ["<="], "higher": [">="]}.get(facts.better, ["<=", ">="])
    judges = [JudgedBy.POINT] if math.isnan(estimate.low) else [JudgedBy.INTERVAL, *([JudgedBy.POINT] if label in SHARES else [])]
    return [Question(label, side, judge, estimate.value) for side in sides for judge in judges]


@contextlib.contextmanager
def _no_flips_twice() -> Iterator[None]:
    """Bounds no drop twice for the same counts of flips: they return in many runs, and take most of the time."""
    bound, known = paired.exact_lower, dict[tuple[float, ...], float]()

    def recalled(harmful: Array, helpful: Array, n: Array, tail: float) -> Array:
        counts = list(zip(harmful.tolist(), helpful.tolist(), n.tolist(), strict=True))
        new = sorted({counted for counted in counts if (*counted, tail) not in known})
        if new:
            harmful, helpful, n = np.array(new).T
            lows = bound(harmful, helpful, n, tail).tolist()
            known.update(((*counted, tail), low) for counted, low in zip(new, lows, strict=True))
        return np.array([known[(*counted, tail)] for counted in counts])

    with mock.patch.object(paired, "exact_lower", recalled):  # which bounds from above as well
        yield


def _remembered(estimate: Estimate) -> Estimate:
    """Returns an estimate that computes no interval twice."""
    at, known = estimate.at, {estimate.confidence: (estimate.low, estimate.high)}
    if at is None:
        return estimate

    def recalled(level: float) -> tuple[float, float]:
        if level not in known:
            known[level] = at(level)
        return known[level]

    return replace(estimate, at=recalled)


def _tally(question: Question, estimate: Estimate) -> list[str]:
    breaking, keeping, shared = question.outcomes(estimate)
    happened = {
        "pass": breaking is Outcome.PASS,
        "fail": keeping is Outcome.FAIL,
        "shared": shared is Outcome.FAIL,
        "undecided": keeping not in {Outcome.PASS, Outcome.FAIL},
    }
    return [name for name, did in happened.items() if did]


def _row(question: Question, where: tuple[str, Layout], seen: Counter[str], widths: Sequence[float]) -> Row:
    (world, layout), runs = where, len(widths)
    known = [width for width in widths if not math.isnan(width)]
    return Row(
        question.label,
        world,
        layout.n,
        layout.clusters,
        str(question.judge),
        question.truth,
        f"{question.side} {question.truth:.4f}",
        seen["pass"] / runs,
        seen["fail"] / runs,
        seen["shared"] / runs,
        seen["undecided"] / runs,
        float(np.median(known)) if known else math.nan,
        runs,
    )


Job: TypeAlias = tuple[str, Layout, tuple[str, ...]]
"""A world, a layout, and the labels that are measured."""


def jobs(worlds: Sequence[str] = ("*",), names: Sequence[str] = ("*",), *, telling: bool = False) -> list[Job]:
    """Returns every world with every layout that it may have, or what is :data:`TELLING`, as far as globs choose it."""
    every = [(world.name, layout, ("*",)) for world in WORLDS for layout in LAYOUTS if world.clustered or not layout.sizes]
    measures = {world.name: world.measures for world in WORLDS}
    chosen = [
        (name, layout, tuple(label for label in measures[name] if _matches(label, globs) and _matches(label, names)))
        for name, layout, globs in (TELLING if telling else every)
        if _matches(name, worlds)
    ]
    return [job for job in chosen if job[2]]


def _job(about: tuple[Job, int, int]) -> list[Row]:
    (name, layout, names), runs, seed = about
    return rows(next(world for world in WORLDS if world.name == name), layout, runs, names, seed)


def simulated(chosen: Sequence[Job], runs: int, seed: int, workers: int) -> Iterator[Row]:
    """Yields the rows of every job, in their order."""
    given = [(job, runs, seed) for job in chosen]
    if workers == 1:
        for job in given:
            yield from _job(job)
        return
    with ProcessPoolExecutor(workers) as pool:
        for rows_of_job in pool.map(_job, given):
            yield from rows_of_job


def _print(rows: Iterator[Row], chosen: Sequence[Job], write: Callable[[Sequence[Row]], None]) -> list[Row]:
    """Prints rows as they come and writes those that are known; returns all of them."""
    widths = [max(len(label) for _, _, labels in chosen for label in labels), 10, 3, 8, 8, 8, 11, 10, 10, 8, 12, 8, 5, 5]
    kept: list[Row] = []
    for row in rows:
        for line in (*(() if kept else (HEADINGS,)), row.cells()):
            print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip(), flush=True)
        kept.append(row)
        write(kept)
    return kept


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where a rate is far above its nominal one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--metric", nargs="+", default=["*"], metavar="GLOB", help="labels of rows")
    parser.add_argument("--world", nargs="+", default=["*"], metavar="GLOB", help="names of populations")
    parser.add_argument("--n", nargs="+", type=int, metavar="N", help=f"sizes, of {sorted({layout.n for layout in LAYOUTS})}")
    parser.add_argument("--telling", action="store_true", help="each metric in the world where it is most likely to err")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs a row instead of {RUNS}")
    parser.add_argument("--runs", type=int, help="runs a row")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rows")
    options: Any = parser.parse_args(arguments)
    runs = options.runs or (QUICK_RUNS if options.quick else RUNS)
    every = jobs(options.world, options.metric, telling=options.telling)
    chosen = [job for job in every if not options.n or job[1].n in options.n]
    if not chosen:
        parser.error("nothing has such a name: see WORLDS in studies/verdicts/populations.py")

    def write(rows: Sequence[Row]) -> None:
        if options.json:
            options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")

    return _concluded(_print(simulated(chosen, runs, options.seed, options.jobs), chosen, write))


def _concluded(rows: Sequence[Row]) -> int:
    """Prints how many rows err more often than they say; returns 1 where some err much more often."""
    stars = [max(map(len, map(row.marks, row.rates)), default=0) for row in rows]
    some, many = sum(map(bool, stars)), stars.count(2)
    print(f"\n{some} of {len(rows)} rows err more often than they say, {many} of them more than {TOLERATED} times as often")
    return int(many > 0)


if __name__ == "__main__":
    sys.exit(main())
