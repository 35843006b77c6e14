"""How often tests that stop early err, and how much they save.

    python benchmarks/adaptive.py                     # 2,000 runs a row
    python benchmarks/adaptive.py --runs 200          # fewer
    python benchmarks/adaptive.py --only savings      # one table: errors or savings

Errors: cells and sweeps are judged by the gate's own adaptive judge, with answers from memory. The truth lies on the bound: once
exactly on it, so that FAIL is wrong, and once one answer beyond it, so that PASS is. A rule that judges the value is about the
samples at hand, and what is random is where their answers come in the order in which they are asked. A rule that judges the
interval is about a population, whose drop is a hair beside the bound: all answers are drawn anew.

    wrong PASS, wrong FAIL    share of runs, with its Monte Carlo standard error
    declared                  the risk of each; FAIL in one of m cells of a sweep errs at that risk in all of them together
    asked                     share of the answers that all samples would take, at the bound
    *                         above the declared risk by more than Monte Carlo explains (p < 0.001): the program then ends with 1

Savings: answers are drawn from published profiles of models (VLM-RobustBench), judged in full and adaptively. "asked" is the
share of the answers about changed pictures; those about unchanged ones, and without pictures, are always asked for.
"""

from __future__ import annotations

import argparse
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Cell, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, ModelRef, Prediction, Score
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.evaluation.judge.adaptive import AdaptiveJudge
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.replay import NoThumbnails
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.power.profiles import Profile, nothing_lost, published_profiles
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.policies import Bound, JudgedBy, Mode, Policy, Rule, Treatment, load_policy
from pytest_vlmrobust.policies.budgets import Budgets

Array = NDArray[np.float64]
SEED, RUNS, RISK, CERTAIN = 1234, 2_000, 0.05, 0.001
CLEAN = 0.88
"""Accuracy on unchanged pictures, unless a row says otherwise."""
HELPFUL = 0.015
"""The share of answers that turn right by luck."""
SETTINGS = perturbations.names("robustbench")
TODAY = date(2026, 6, 1)
ANSWER = Prediction("B", LETTER_LOGITS)
READ, UNREAD, FAILED = Score(1.0, "letter", "B"), Score(0.0, "none", None, "unparsed"), Score(math.nan, "down", None, "error")
THRESHOLDS = Path(__file__).parent.parent / "thresholds" / "default.yaml"


@dataclass(frozen=True, slots=True, eq=False)
class Drawn(CellResult):
    """A cell whose scores are numbers."""

    numbers: Array = field(default_factory=lambda: np.empty(0))

    @property
    def values(self) -> Array:
        """The scores, shape (N,)."""
        return self.numbers

    @property
    def by_view(self) -> Array:
        """The scores, shape (N, 1)."""
        return self.numbers[:, None]


@dataclass(eq=False)
class Drawer:
    """Answers from memory: of each setting an array of scores, NaN where an inference failed."""

    samples_of_all: tuple[Sample, ...]
    scores: Mapping[str, Array]
    unread: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    models: Mapping[str, ModelRef] = field(default_factory=lambda: {"m": ModelRef("m", "scripted", "")})
    album: NoThumbnails = field(default_factory=NoThumbnails)
    inferred: int = 0
    recalled: int = 0

    def samples(self, dataset: str) -> tuple[Sample, ...]:  # noqa: ARG002 - there is one
        """Returns all samples."""
        return self.samples_of_all

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:  # noqa: ARG002
        """Returns nothing."""
        return {}

    def corpus_metric(self, dataset: str) -> str:  # noqa: ARG002
        """Returns the mean of scores."""
        return "accuracy"

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the scores of a cell."""
        name, all_samples = str(cell.setting), self.samples_of_all
        chosen = list(range(len(all_samples)) if places is None else places)
        values = self.scores[name][chosen]
        unread = self.unread[name][chosen].tolist() if name in self.unread else [False] * len(chosen)
        scores = tuple(
            UNREAD if hidden else READ if value == value else FAILED  # noqa: PLR0124 - NaN
            for hidden, value in zip(unread, values.tolist(), strict=True)
        )
        kept = all_samples if places is None else tuple(all_samples[place] for place in chosen)
        answers, keys = (ANSWER,) * len(chosen), ("",) * len(chosen)
        stopped = None if places is None else tuple(chosen)
        return Drawn(cell, kept, answers, scores, len(chosen), 0, 0.0, keys=keys, places=stopped, numbers=values)


@lru_cache(maxsize=16)
def questions(n: int, cluster: int = 1) -> tuple[Sample, ...]:
    """Returns samples without pictures, of which ``cluster`` each share a source."""
    return tuple(
        Sample(f"q{i}", (), "?", "B", "choice", options={"A": "a", "B": "b"}, group=f"g{i // cluster}") for i in range(n)
    )


def rule_of(metric: str, most: float, judge: JudgedBy = JudgedBy.POINT, name: str = "r") -> Rule:
    """Returns a rule that bounds a metric from above at a risk of 5 % each way."""
    return Rule(name, metric, Bound(high=most), "benchmark", treatment=Treatment(judge=judge))


def policy_of(*rules: Rule) -> Policy:
    """Returns an adaptive policy without budgets."""
    return Policy(rules, budgets=Budgets(max_error_rate=1.0, max_unparsed_rate=1.0), mode=Mode.ADAPTIVE)


# Errors at the boundary.


@dataclass(frozen=True)
class Row:
    """A test whose truth lies on the bound."""

    name: str
    rules: tuple[Rule, ...]
    draw: Callable[[np.random.Generator, int], Drawer]
    """Draws answers, given how many answers lie beyond the bound: 0, or 1."""
    about: str = "cell"
    """``cell``, or the summary metric."""
    settings: int = 1

    def judged(self, drawer: Drawer) -> Record:
        """Returns what the adaptive judge says."""
        judge = AdaptiveJudge(Judge(drawer, {"m": policy_of(*self.rules)}, TODAY))
        settings = [Setting.parse(name) for name in SETTINGS[: self.settings]]
        if self.about == "cell":
            return judge.cell(Cell("m", "d", settings[0]))
        return judge.sweep(SweepMetric("m", "d", self.about), settings)


def clean_scores(n: int, share: float = CLEAN) -> Array:
    """Returns so many right answers, the rest wrong."""
    return (np.arange(n) < round(share * n)).astype(float)


def changed(clean: Array, net: int, helpful: int) -> Array:
    """Returns answers of which ``net`` more turn wrong than right, in the order of the samples."""
    after = clean.copy()
    after[: net + helpful] = 0.0
    after[len(after) - helpful :] = 1.0
    return after


def shuffled(rng: np.random.Generator, n: int, *arrays: Array, cluster: int = 1) -> list[Array]:
    """Returns arrays in one random order, in which clusters stay together."""
    blocks = rng.permutation(math.ceil(n / cluster))
    order = np.concatenate([np.arange(block * cluster, min((block + 1) * cluster, n)) for block in blocks])
    return [array[order] for array in arrays]


def one_cell(n: int, most: float, *, cluster: int = 1, unread: float = 0.0, failed: int = 0, graded: bool = False) -> Row:
    """Returns a row about one cell whose drop is judged by its value."""

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        clean = clean_scores(n)
        after = changed(clean, math.floor(most * n + 1e-9) + beyond, round(HELPFUL * n))
        if graded:  # scores of 0.6 and 0.4 in the place of pairs of 1 and 0: the same sum
            pairs = min(20, n // 20)
            after[n // 2 : n // 2 + pairs], wrong = 0.6, np.flatnonzero(after == 0.0)[:pairs]
            after[wrong] = 0.4
        clean, after = shuffled(rng, n, clean, after, cluster=cluster)
        hidden = (after == 0.0) & (rng.random(n) < unread)
        if failed:
            after[rng.choice(n, failed, replace=False)] = np.nan
        scores = {"clean": clean, "no_image": np.full(n, np.nan), SETTINGS[0]: after}
        return Drawer(questions(n, cluster), scores, {SETTINGS[0]: hidden})

    what = f"clusters of {cluster}" if cluster > 1 else "graded scores" if graded else "0/1"
    what += ", half of the wrong answers unreadable" * bool(unread) + f", {failed} failed" * bool(failed)
    return Row(f"one cell, N={n}, bound {most:.0%}, {what}", (rule_of("accuracy_drop", most),), draw)


def two_rules(n: int) -> Row:
    """Returns a row about two rules on one cell, both on their bounds."""
    net, helpful = round(0.05 * n), round(HELPFUL * n)
    rules = rule_of("accuracy_drop", net / n), rule_of("harmful_flip_rate", (net + helpful) / n, name="s")
    return replace(one_cell(n, net / n), name=f"two rules on one cell, N={n}", rules=rules)


def sweep_row(metric: str, n: int, cells: int, drops: Sequence[float]) -> Row:
    """Returns a row about a sweep; ``drops`` gives those of its first cells, of which the first is the critical one."""
    most = max(drops) if metric == "worst_case_drop" else sum(math.floor(d * n + 1e-9) for d in drops) / n / cells

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:
        clean = clean_scores(n)
        table = {}
        for place, name in enumerate(SETTINGS[:cells]):
            net = math.floor(drops[place] * n + 1e-9) if place < len(drops) else 0
            changed_scores = changed(clean, net + (beyond if place == 0 else 0), round(HELPFUL * n))
            right = clean == 1.0
            # which samples change is random in each setting
            for members in (right, ~right):
                changed_scores[members] = rng.permutation(changed_scores[members])
            table[name] = changed_scores
        names = list(table)
        mixed = shuffled(rng, n, clean, *table.values())
        return Drawer(
            questions(n), {"clean": mixed[0], "no_image": np.full(n, np.nan), **dict(zip(names, mixed[1:], strict=True))}
        )

    every = "all" if len(drops) == cells else f"{len(drops)}"
    return Row(f"{metric}, {cells} cells of N={n}, {every} on the bound", (rule_of(metric, most),), draw, metric, cells)


def interval_row(n: int, most: float, *, cluster: int = 1) -> Row:
    """Returns a row about a population: all answers are drawn anew."""

    def draw(rng: np.random.Generator, beyond: int) -> Drawer:  # noqa: ARG001 - the truth is the bound, from both sides
        sources = math.ceil(n / cluster)
        turn = rng.choice(3, sources, p=[most + HELPFUL, HELPFUL, 1.0 - most - 2 * HELPFUL])
        before = rng.random(sources) < (CLEAN - most - HELPFUL) / (1.0 - most - 2 * HELPFUL)
        clean = np.where(turn == 0, 1.0, np.where(turn == 1, 0.0, before)).repeat(cluster)[:n]
        after = np.where(turn == 0, 0.0, np.where(turn == 1, 1.0, before)).repeat(cluster)[:n]
        return Drawer(questions(n, cluster), {"clean": clean, "no_image": np.full(n, np.nan), SETTINGS[0]: after})

    what = f", sources of {cluster} samples" if cluster > 1 else ""
    rules = (rule_of("accuracy_drop", most, JudgedBy.INTERVAL),)
    return Row(f"interval of one cell, N={n}, bound {most:.0%}{what}", rules, draw)


def rows() -> Iterator[Row]:
    """Returns what is judged at the boundary."""
    for n in (128, 324, 869):
        yield one_cell(n, 0.05)
    yield one_cell(324, 0.15)
    yield one_cell(324, 0.05, cluster=4)
    yield one_cell(324, 0.05, unread=0.5)
    yield one_cell(324, 0.05, failed=3)
    yield one_cell(324, 0.05, graded=True)
    yield two_rules(324)
    yield sweep_row("worst_case_drop", 324, 20, [0.05])
    yield sweep_row("worst_case_drop", 324, 20, [0.05] * 20)
    yield sweep_row("mean_drop", 128, 20, [0.2, 0.1, 0.1, 0.05, 0.05])
    for n in (128, 324, 869):
        yield interval_row(n, 0.05)
    yield interval_row(324, 0.05, cluster=4)


def error_rates(row: Row, runs: int) -> tuple[dict[str, tuple[float, float]], float]:
    """Returns the shares of wrong PASS and wrong FAIL by rule, and the share of answers asked."""
    rng = np.random.default_rng([SEED, zlib.crc32(row.name.encode())])
    wrong = {rule.id: [0, 0] for rule in row.rules}
    asked = []
    for beyond, mistake in ((1, Outcome.PASS), (0, Outcome.FAIL)):
        for _ in range(runs):
            drawer = row.draw(rng, beyond)
            record = row.judged(drawer)
            for measure in record.measures:
                if measure.rule in wrong:
                    wrong[measure.rule][1 - beyond] += measure.outcome is mistake
            asked.append(record.n_requested / (len(drawer.samples_of_all) * row.settings))
    return {name: (passed / runs, failed / runs) for name, (passed, failed) in wrong.items()}, float(np.mean(asked))


def excessive(rate: float, runs: int) -> bool:
    """Whether a rate exceeds the declared risk by more than Monte Carlo explains."""
    return bool(stats.binom.sf(round(rate * runs) - 1, runs, RISK) < CERTAIN)


def print_errors(runs: int, only: str) -> bool:
    """Prints the table of errors; returns whether one exceeds its risk."""
    print("\n| truth on the bound | wrong PASS | wrong FAIL | declared | asked |\n|---|---|---|---|---|")
    found = False
    for row in rows():
        if only and only not in row.name:
            continue
        rates, asked = error_rates(row, runs)
        for name, pair in rates.items():
            label = row.name + (f", {next(r.metric for r in row.rules if r.id == name)}" if len(rates) > 1 else "")
            cells = [_rate(rate, runs) for rate in pair]
            found |= any(excessive(rate, runs) for rate in pair)
            print(f"| {label} | {cells[0]} | {cells[1]} | {RISK:.3f} | {asked:.2f} |", flush=True)
    return found


def _rate(rate: float, runs: int) -> str:
    error = math.sqrt(max(rate * (1.0 - rate), 1.0 / runs) / runs)
    return f"{rate:.4f} ± {error:.4f}{' *' if excessive(rate, runs) else ''}"


# Savings on published profiles.


def robust() -> Profile:
    """Returns a model that loses 0 to 1.5 pp under each setting, and 0.75 pp on average."""
    base = nothing_lost("MMBench")
    drops = {name: 0.015 * place / (len(SETTINGS) - 1) for place, name in enumerate(SETTINGS)}
    return replace(base, name="robust (0 to 1.5 pp)", samples=869, drops=drops)


def drawn(profile: Profile, rng: np.random.Generator) -> Drawer:
    """Returns answers of a profile under all settings."""
    n = profile.samples
    table = profile.draw(n, ["corruptions"], rng)["corruptions"]
    no_image = table.no_image
    assert no_image is not None
    return Drawer(questions(n), {"clean": table.clean, "no_image": no_image, **table.by_setting})


@dataclass
class Saved:
    """How much was asked, and whether verdicts agree with those of all answers."""

    asked: list[float] = field(default_factory=list)
    agree: list[bool] = field(default_factory=list)
    verdicts: list[Outcome] = field(default_factory=list)

    def add(self, record: Record, everything: int, full: Outcome) -> None:
        """Takes a test into account."""
        self.asked.append(record.n_requested / everything)
        self.agree.append(record.outcome is full)
        self.verdicts.append(full)

    @property
    def line(self) -> str:
        """The cells of a table."""
        outcomes = ", ".join(f"{self.verdicts.count(each)} {each}" for each in sorted(set(self.verdicts)))
        mean, most = float(np.mean(self.asked)), float(np.max(self.asked))
        return f"{mean:.2%} | {most:.2%} | {sum(self.agree)} of {len(self.agree)} | {outcomes}"


def sweep_savings(profile: Profile, metric: str, most: float, draws: int) -> Saved:
    """Judges a summary metric by its value in full and adaptively."""
    rng, saved = np.random.default_rng([SEED, zlib.crc32(profile.name.encode())]), Saved()
    settings, rule = [Setting.parse(name) for name in SETTINGS], rule_of(metric, most)
    for _ in range(draws):
        drawer = drawn(profile, rng)
        record = AdaptiveJudge(Judge(drawer, {"m": policy_of(rule)}, TODAY)).sweep(SweepMetric("m", "d", metric), settings)
        losses = np.array([drawer.scores["clean"].mean() - drawer.scores[name].mean() for name in SETTINGS])
        value = losses.max() if metric == "worst_case_drop" else losses.mean()
        full = Outcome.PASS if rule.bound.admits(float(value)) else Outcome.FAIL
        saved.add(record, profile.samples * len(SETTINGS), full)
    return saved


def cell_savings(profile: Profile, draws: int) -> Saved:
    """Judges all cells by the value of their drops under the default bounds."""
    rng, saved = np.random.default_rng([SEED, zlib.crc32(profile.name.encode())]), Saved()
    default = load_policy([THRESHOLDS], known_metrics=known_metrics(), root=THRESHOLDS.parent)
    ours = (rule for rule in default.rules if rule.metric == "accuracy_drop" and not rule.where.category)
    rules = tuple(replace(rule, treatment=replace(rule.treatment, judge=JudgedBy.POINT)) for rule in ours)
    policy = policy_of(*rules)
    for _ in range(draws):
        drawer = drawn(profile, rng)
        judge = Judge(drawer, {"m": policy}, TODAY)
        for name in SETTINGS:
            cell = Cell("m", "d", Setting.parse(name))
            saved.add(AdaptiveJudge(judge).cell(cell), profile.samples, judge.cell(cell).outcome)
    return saved


def print_savings(draws: int) -> None:
    """Prints the table of savings."""
    print("\n| profile | question | asked | at most | same verdict | verdicts of all answers |\n|---|---|---|---|---|---|")
    published: Iterable[Profile] = published_profiles().values()
    for profile in (robust(), *published):
        for metric, most in (("worst_case_drop", 0.10), ("mean_drop", 0.05)):
            found = sweep_savings(profile, metric, most, draws)
            print(f"| {profile.name} | {metric} <= {most:.0%} | {found.line} |", flush=True)
        print(f"| {profile.name} | each cell, default bounds | {cell_savings(profile, max(1, draws // 20)).line} |", flush=True)


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs at each side of the bound (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=20, help="draws of each profile (default: %(default)s)")
    parser.add_argument("--only", choices=("errors", "savings"), help="one of the tables")
    parser.add_argument("--row", default="", help="errors of rows whose name contains this")
    options = parser.parse_args()
    failed = options.only != "savings" and print_errors(options.runs, options.row)
    if options.only != "errors" and not options.row:
        print_savings(options.draws)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
