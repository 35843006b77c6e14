"""How often tests that stop early err, whether they are the same when a run goes on or is repeated, and how much they save.

    python studies/verdicts/adaptive.py --jobs 2            # 2,000 runs a row
    python studies/verdicts/adaptive.py --runs 200          # fewer
    python studies/verdicts/adaptive.py --only savings      # one table: errors, same or savings
    python studies/verdicts/adaptive.py --row waiver        # errors of rows whose name contains this

Errors: cells and sweeps are judged by the gate's own adaptive judge, with answers from memory, and with the truth on the bound
(boundaries.py). Metrics that no rule bounds are left out, and so are examples of pictures; the first runs of each row are judged
with them, too, and have to give the same verdicts.

    wrong PASS, wrong FAIL    share of runs, with its Monte Carlo standard error
    declared                  the risk of each, in brackets what is documented of the interval where that is more. FAIL in one of
                              several cells that share a rule errs at that risk in all of them together
    asked                     share of the answers that all samples would take, at the bound
    *                         above the declared risk by more than Monte Carlo explains (p < 0.001): the program then ends with 1

Same: runs with a store, which are cut after some answers and started again, or judged in full after an adaptive run. Their
records are compared with those of runs that nothing happened to: equal or not, so that a tenth of the runs suffices.

Savings: answers are drawn from published profiles of models (VLM-RobustBench), judged in full and adaptively. "asked" is the
share of the answers about changed pictures; those about unchanged ones, and without pictures, are always asked for.
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest import mock

import numpy as np
from boundaries import RISK, SETTINGS, TODAY, Drawer, Row, policy_of, questions, rows, rule_of
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust import metrics
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import ModelRef, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge import measure as measuring
from pytest_vlmrobust.evaluation.judge import measurements
from pytest_vlmrobust.evaluation.judge.context import PlannedTest, Quantity
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.evaluation.power.published import nothing_lost, published_profiles
from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
from pytest_vlmrobust.policies import Bound, JudgedBy, Mode, Policy, Rule, Scope, load_policy
from pytest_vlmrobust.store import Store

SEED, RUNS, CERTAIN = 1234, 2_000, 0.001
WHOLE = 5
"""Runs of each row that are also judged with every metric."""
THRESHOLDS = Path(__file__).parents[2] / "thresholds" / "default.yaml"


# Errors at the boundary.


@contextmanager
def only_judged(row: Row) -> Iterator[None]:
    """Measures nothing but what rules bound, and writes down no examples."""
    bounded, applying = {rule.metric for rule in row.rules.values()}, measurements.applying
    known = dict[Planned, list[Quantity]]()

    def judged(test: PlannedTest) -> list[Quantity]:
        if test.planned not in known:
            known[test.planned] = [quantity for quantity in applying(test) if quantity.name in bounded]
        return known[test.planned]

    with (
        mock.patch.object(measurements, "applying", judged),
        mock.patch.object(measuring, "applying", judged),
        mock.patch.object(measuring, "examples", return_value=()),
    ):
        yield


@dataclass(frozen=True)
class Errors:
    """How often the rules of a row were judged wrongly."""

    row: Row
    runs: int
    passed: Counter[tuple[str, str]]
    failed: Counter[tuple[str, str]]
    asked_share: float

    @property
    def excessive(self) -> bool:
        """Whether a rate exceeds what is declared."""
        return any(self._exceeds(count) for counts in (self.passed, self.failed) for count in counts.values())

    def lines(self) -> Iterator[str]:
        """Yields the rows of a table, one for each rule."""
        names = {key: rule.metric if len(self.row.policies) == 1 else key[0] for key, rule in self.row.rules.items()}
        declared = f"{RISK:.3f}" + f" ({self.row.tolerated:.3f})" * (self.row.tolerated > RISK)
        for key, name in names.items():
            about = f": {name}" * (len(names) > 1)
            rates = [self._rate(counts[key]) for counts in (self.passed, self.failed)]
            yield f"| {self.row.name}{about} | {rates[0]} | {rates[1]} | {declared} | {self.runs:,} | {self.asked_share:.2f} |"

    def _rate(self, count: int) -> str:
        rate = count / self.runs
        error = math.sqrt(max(rate * (1.0 - rate), 1.0 / self.runs) / self.runs)
        return f"{rate:.4f} ± {error:.4f}{' *' if self._exceeds(count) else ''}"

    def _exceeds(self, count: int) -> bool:
        return bool(stats.binom.sf(count - 1, self.runs, self.row.tolerated) < CERTAIN)


def errors_of(row: Row, runs: int) -> Errors:
    """Judges a row so often on either side of its bound.

    Raises:
        RuntimeError: metrics that no rule bounds change a verdict.
    """
    rng = np.random.default_rng([SEED, zlib.crc32(row.name.encode())])
    wrong: dict[int, Counter[tuple[str, str]]] = {0: Counter(), 1: Counter()}
    shares, judged = [], list[tuple[Drawer, list[Record]]]()
    with only_judged(row):
        for run in range(runs):
            records: list[Record] = []
            for beyond in (0, 1):
                if not (beyond and row.of_population):  # whose truth is the bound, from both sides
                    drawer = row.draw(rng, beyond)
                    records = row.judged(drawer)
                    judged += [(drawer, records)] if run < WHOLE else []
                    everything = sum(record.n_samples or record.n_requested for record in records)
                    shares.append(sum(record.n_requested for record in records) / everything)
                wrong[beyond].update(row.mistakes(records, beyond))
    if any(verdicts(row, records) != verdicts(row, row.judged(drawer)) for drawer, records in judged):
        raise RuntimeError(f"{row.name}: a verdict depends on metrics that no rule bounds")
    return Errors(row, runs, wrong[1], wrong[0], float(np.mean(shares)))


def verdicts(row: Row, records: Iterable[Record]) -> list[tuple[str, str, str, Outcome, int]]:
    """Returns what rules say of tests, and how much was asked."""
    return [
        (record.id, measure.metric, measure.category, measure.outcome, record.n_requested)
        for record in records
        for measure in record.measures
        if (record.model, measure.rule) in row.rules
    ]


def _table(about: tuple[int, int]) -> tuple[bool, list[str]]:
    """Returns whether a row, by its number, exceeds its risk, and its lines of the table."""
    number, runs = about
    errors = errors_of(list(rows())[number], runs)
    return errors.excessive, list(errors.lines())


def print_errors(runs: int, only: str, jobs: int) -> bool:
    """Prints the table of errors; returns whether one exceeds its risk."""
    print("\n| truth on the bound | wrong PASS | wrong FAIL | declared | runs | asked |\n|---|--:|--:|---|--:|--:|", flush=True)
    any_exceeds = False
    chosen = [(number, runs) for number, row in enumerate(rows()) if only in row.name]
    with ProcessPoolExecutor(jobs) as pool:
        for exceeds, lines in pool.map(_table, chosen):
            any_exceeds |= exceeds
            print(*lines, sep="\n", flush=True)
    return any_exceeds


# Runs that go on, and runs that are repeated.


@dataclass(eq=False)
class Gate:
    """A model with scripted answers, about questions of a store."""

    wrong: dict[str, set[int]]
    """By the name of a setting, the numbers of the samples that are answered wrongly."""
    size: int
    policy: Policy
    requests: int = 0
    cut_at: int = -1

    def judged(self, store: Path, mode: Mode, cut_at: int = -1) -> list[str]:
        """Returns the records of all tests of a run as text; those before the cut, if it is cut after so many requests."""
        self.requests, self.cut_at = 0, cut_at
        evaluator = Evaluator(
            models={"m": ModelRef("m", "scripted", "")},
            datasets={"d": lambda: Questions(self.size)},
            open_backend=lambda _: ScriptedBackend(self.answer, version="1", name="m"),
            store=Store.open(store),
            options=EvaluationOptions(batch_size=4),
        )
        judge = Judge(evaluator, {"m": replace(self.policy, mode=mode)}, TODAY)
        settings = [Setting.parse(name) for name in self.wrong if name not in (CLEAN_NAME, NO_IMAGE_NAME)]
        records: list[Record] = []
        try:
            records.extend(judge.run(Cell("m", "d", setting)) for setting in settings)
            records.extend(judge.run(SweepMetric("m", "d", metric), settings) for metric in ("worst_case_drop", "mean_drop"))
        except KeyboardInterrupt:
            pass  # it was cut
        finally:
            evaluator.close()
            evaluator.store.close()
        # as text, where two missing numbers are the same; how much came from the store, and when, is all that may differ
        return [repr(replace(record, n_inferred=0, n_recalled=0, seconds=0.0)) for record in records]

    def answer(self, request: Request) -> str:
        """Returns the option A where the sample is answered wrongly, else B."""
        if self.requests == self.cut_at:
            signal.raise_signal(signal.SIGINT)
        self.requests += 1
        return "A" if int(request.sample_id) in self.wrong.get(request.setting, set()) else "B"


@dataclass(frozen=True)
class Noise:
    """A picture that is unlike any other."""

    number: int

    def load(self) -> NDArray[np.uint8]:
        """Returns its pixels."""
        return np.random.default_rng(self.number).integers(0, 256, (12, 16, 3), np.uint8)

    def identity(self) -> str:
        """Returns what tells it from others."""
        return str(self.number)


@dataclass(frozen=True)
class Questions:
    """A dataset of so many questions about pictures."""

    size: int
    name = "d"
    digest = "0" * 64
    native_long_edge = None

    def samples(self) -> list[Sample]:
        """Returns all samples."""
        return [
            # unlike each other without pictures too: what is asked in the same words gets the answer of whichever came first
            Sample(str(number), (Noise(number),), f"{number}?", "B", "choice", options={"A": "a", "B": "b"})
            for number in range(self.size)
        ]


def drawn_gate(rng: np.random.Generator) -> Gate:
    """Returns a model whose drops lie around the bounds of a policy."""
    size = int(rng.integers(24, 64))
    shares = {CLEAN_NAME: 0.05, NO_IMAGE_NAME: 0.5, "flip_h": rng.random() / 2, "flip_v": rng.random() / 3, "invert": 0.1}
    wrong = {name: set(np.flatnonzero(rng.random(size) < share).tolist()) for name, share in shares.items()}
    rules = (
        rule_of("accuracy_drop", 0.2, name="drop"),
        rule_of("accuracy", 0.0, JudgedBy.INTERVAL, name="accuracy", bound=Bound(low=0.5)),
        rule_of("worst_case_drop", 0.3, name="worst"),
        rule_of("mean_drop", 0.15, name="mean"),
    )
    return Gate(wrong, size, policy_of(*rules))


def print_same(runs: int) -> bool:
    """Prints how many runs are the same after a cut, and in full after an adaptive run; returns whether one differs."""
    rng = np.random.default_rng(SEED)
    same, stopped = Counter[str](), 0
    for _ in range(runs):
        gate = drawn_gate(rng)
        with tempfile.TemporaryDirectory() as folder:
            whole, cut = Path(folder) / "whole", Path(folder) / "cut"
            alone = gate.judged(whole, Mode.ADAPTIVE)
            n_requests = gate.requests
            stopped += any("n_samples=0," not in record for record in alone)
            before = gate.judged(cut, Mode.ADAPTIVE, int(rng.integers(n_requests)))
            same["cut and started again"] += len(before) < len(alone) and gate.judged(cut, Mode.ADAPTIVE) == alone
            same["asked for what was left only"] += gate.requests < n_requests or not before
            same["repeated from the store"] += gate.judged(whole, Mode.ADAPTIVE) == alone and gate.requests == 0
            full = gate.judged(Path(folder) / "full", Mode.FULL)
            same["full after adaptive"] += gate.judged(whole, Mode.FULL) == full
            same["adaptive after full"] += gate.judged(whole, Mode.ADAPTIVE) == alone and gate.requests == 0
    print(f"\n| a run | same records | runs |\n|---|--:|--:|\n| stopped early | {stopped:,} | {runs:,} |", flush=True)
    for name, count in same.items():
        print(f"| {name} | {count:,} | {runs:,} |", flush=True)
    return any(count < runs for name, count in same.items())


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

    shares: list[float] = field(default_factory=list)
    agree: list[bool] = field(default_factory=list)
    verdicts: list[Outcome] = field(default_factory=list)

    def add(self, record: Record, everything: int, full: Outcome) -> None:
        """Takes a test into account."""
        self.shares.append(record.n_requested / everything)
        self.agree.append(record.outcome is full)
        self.verdicts.append(full)

    @property
    def line(self) -> str:
        """The cells of a table."""
        outcomes = ", ".join(f"{self.verdicts.count(each)} {each}" for each in sorted(set(self.verdicts)))
        mean, most = float(np.mean(self.shares)), float(np.max(self.shares))
        return f"{mean:.2%} | {most:.2%} | {sum(self.agree)} of {len(self.agree)} | {outcomes}"


def sweep_savings(profile: Profile, metric: str, most: float, draws: int) -> Saved:
    """Judges a summary metric by its value in full and adaptively."""
    rng, saved = np.random.default_rng([SEED, zlib.crc32(profile.name.encode())]), Saved()
    settings, rule = [Setting.parse(name) for name in SETTINGS], rule_of(metric, most)
    for _ in range(draws):
        drawer = drawn(profile, rng)
        record = Judge(drawer, {"m": policy_of(rule)}, TODAY).run(SweepMetric("m", "d", metric), settings)
        value = metrics.get(metric).function(drawer.scores["clean"], {name: drawer.scores[name] for name in SETTINGS})
        full = Outcome.PASS if rule.bound.admits(value) else Outcome.FAIL
        saved.add(record, profile.samples * len(SETTINGS), full)
    return saved


def default_rules() -> list[Rule]:
    """Returns the default bounds on the drops of cells, judged by their value."""
    default = load_policy([THRESHOLDS], known_metrics=known_metrics(), root=THRESHOLDS.parent)
    ours = (rule for rule in default.rules if rule.metric == "accuracy_drop" and not rule.where.category)
    return [replace(rule, treatment=replace(rule.treatment, judge=JudgedBy.POINT)) for rule in ours]


def cell_savings(profile: Profile, draws: int, rules: Sequence[Rule], categories: int = 0) -> Saved:
    """Judges all cells by rules on them, or on each of so many categories of one size."""
    rng, saved = np.random.default_rng([SEED, zlib.crc32(profile.name.encode())]), Saved()
    policy = policy_of(*rules)
    for _ in range(draws):
        drawer = replace(drawn(profile, rng), everyone=questions(profile.samples, categories=categories))
        adaptive = Judge(drawer, {"m": policy}, TODAY)
        full = adaptive.in_full()
        for name in SETTINGS:
            cell = Cell("m", "d", Setting.parse(name))
            saved.add(adaptive.run(cell), profile.samples, full.run(cell).outcome)
    return saved


def print_savings(draws: int) -> None:
    """Prints the table of savings."""
    print("\n| profile | question | asked | at most | same verdict | verdicts of all answers |\n|---|---|---|---|---|---|")
    published: Iterable[Profile] = published_profiles().values()
    for profile in (robust(), *published):
        for metric, most in (("worst_case_drop", 0.10), ("mean_drop", 0.05), ("severe_failure_rate", 0.10)):
            savings = sweep_savings(profile, metric, most, draws)
            print(f"| {profile.name} | {metric} <= {most:.0%} | {savings.line} |", flush=True)
        some = max(1, draws // 20)
        print(f"| {profile.name} | each cell, default bounds | {cell_savings(profile, some, default_rules()).line} |", flush=True)
    each, of_four = rule_of("accuracy_drop", 0.2, where=Scope(category=("c*",))), "each of 4 categories of each cell <= 20%"
    print(f"| {robust().name} | {of_four} | {cell_savings(robust(), 1, [each], categories=4).line} |", flush=True)


def main() -> int:
    """Prints the tables; returns 1 where something errs more often than it says, or depends on how a run went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help="runs at each side of the bound (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=20, help="draws of each profile (default: %(default)s)")
    parser.add_argument("--only", choices=("errors", "same", "savings"), help="one of the tables")
    parser.add_argument("--row", default="", help="errors of rows whose name contains this")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has what it starts in the background ignore Ctrl-C
    chosen = {options.only} if options.only else {"errors"} if options.row else {"errors", "same", "savings"}
    failed = "errors" in chosen and print_errors(options.runs, options.row, options.jobs)
    failed |= "same" in chosen and print_same(max(1, options.runs // 10))
    if "savings" in chosen:
        print_savings(options.draws)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
