"""How often verdicts err: what is declared beside what is measured.

    python studies/verdicts/study.py --jobs 2                  # all of it, about 15 minutes of two cores; writes table.json
    python studies/verdicts/study.py --only rare_gains budgets # some parts, printed only

Two tables. In ``verdicts`` one rule is judged many times, with the truth on its bound: a PASS is wrong if the model is a hair
worse than the bound, a FAIL if it is a hair better. Where all outcomes can be counted the rates are exact, and ``runs`` is 0.
In ``decisions`` a whole shipped policy decides about models whose truth is known, by the code of ``vlmrobust power``. Answers are
simulated; no model is run. ``README.md`` shows both tables from the frozen ``table.json``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

import means
import numpy as np
import tails
from numpy.typing import NDArray
from scipy import special, stats

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.evaluation.judge.budgets import _Share
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.power.grouping import Grouping
from pytest_vlmrobust.evaluation.power.profiles import Profile
from pytest_vlmrobust.evaluation.power.published import hidden_loss, nothing_lost, published_profiles, typical
from pytest_vlmrobust.evaluation.power.simulation import Simulation
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.metrics.statistics.clusters import Clusters, critical_value
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest
from pytest_vlmrobust.metrics.statistics.paired import TangoTest
from pytest_vlmrobust.metrics.statistics.ratios import SHARED_CLEAN, restricted_score, restricted_tail
from pytest_vlmrobust.policies import Bound, Budgets, JudgedBy, Rule, Scope, Waiver, load_policy
from pytest_vlmrobust.policies.judge import outcome_of

Array = NDArray[np.float64]
Generator = np.random.Generator

HERE = Path(__file__).parent
FROZEN = HERE / "table.json"
TODAY = date(2026, 1, 1)
RISK, SHARED = 0.05, 133
"""Declared risk of a wrong verdict, and the number of tests that share the risk of a wrong FAIL in a whole sweep."""
LEVEL = 1.0 - 2.0 * RISK
HAIR = 1e-9
CELLS = 133


@dataclass(frozen=True)
class VerdictRow:
    """How often one rule was judged wrongly; None where the row is about the other kind of verdict only."""

    world: str
    metric: str
    n: str
    wrong_pass: float | None
    wrong_fail: float | None
    runs: int
    """0 where every outcome was counted."""


def _rates(wrong: Array) -> tuple[float, float]:
    """Returns the shares of wrong PASS and wrong FAIL as numbers that can be written as JSON."""
    wrong_pass, wrong_fail = wrong.tolist()
    return wrong_pass, wrong_fail


@dataclass(frozen=True)
class DecisionRow:
    """How often a policy decided how."""

    policy: str
    model: str
    questions: int
    pictures: int
    go: float
    no_go: float
    kept_by: str
    """The rule that kept most runs from GO."""
    wanted: str
    runs: int


Row = VerdictRow | DecisionRow


def _rng(*name: object) -> Generator:
    return np.random.default_rng(zlib.crc32(" ".join(map(str, name)).encode()))


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean())


# One rule, with the truth on its bound.


def binary_drops() -> Iterator[VerdictRow]:
    """The drop of one setting, right or wrong answers; exact, at the worst of several shares of answers that turn right."""
    bound = 0.05
    for n in (8, 20, 60, 300):
        worst_pass = worst_fail = 0.0
        for helpful_share in (0.0, 0.01, 0.05, 0.15, 0.3):
            harmful, helpful, weights = tails.outcomes(n, helpful_share + bound, helpful_share)
            test = TangoTest(harmful, helpful, np.full(harmful.shape, float(n)), math.inf)
            worst_pass = max(worst_pass, float(weights[test.p_below(bound) <= RISK].sum()))
            worst_fail = max(worst_fail, float(weights[test.p_above(bound) <= RISK].sum()))
        yield VerdictRow("right or wrong answers", "accuracy_drop", f"{n}", worst_pass, worst_fail, 0)


def clusters() -> Iterator[VerdictRow]:
    """Several questions share a picture, and their answers go together fully or with a correlation of .3."""
    runs = 2_000
    layouts = {
        "60 pictures of 5": [5] * 60,
        "180 pictures of 5": [5] * 180,
        "50 pictures of 18": [18] * 50,
        "60 pictures of 1 to 40": [max(1, round(40 * 0.93**rank)) for rank in range(60)],
        "one picture of 60, 240 of 1": [60] + [1] * 240,
    }
    for name, sizes in layouts.items():
        groups = Clusters(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
        for alike in (0.3, 1.0):
            rng = _rng("clusters", name, alike)
            values, chances = (1.0, -1.0, 0.0), (0.06, 0.01, 0.93)
            common = rng.choice(values, size=(groups.count, runs), p=chances)[groups.codes]
            alone = rng.choice(values, size=common.shape, p=chances)
            test = TangoTest.of(np.where(rng.random(common.shape) < math.sqrt(alike), common, alone), groups)
            wrong = _share(test.upper(RISK) < 0.05 - HAIR), _share(test.lower(RISK) > 0.05 + HAIR)
            yield VerdictRow(f"{name}, correlation {alike:g}", "accuracy_drop", f"{sum(sizes)}", *wrong, runs)


def graded() -> Iterator[VerdictRow]:
    """Graded scores: answers in thirds, and overlaps of boxes."""
    for world in (means.thirds(0.2), means.overlaps(0.07)):
        for n in (8, 20, 60, 300):
            yield _of_losses(world, n, 4_000)


def rare_gains() -> Iterator[VerdictRow]:
    """Graded scores of which all lose a little, and a few gain everything."""
    for lost, share, n in ((0.05, 0.01, 100), (0.10, 0.02, 100), (0.03, 0.005, 300), (0.10, 0.02, 300), (0.02, 0.0024, 900)):
        world = means.rare(share, 1.0, means.constant(lost), -1.0)
        yield _of_losses(replace(world, name=f"all lose {100 * lost:g} pp, {100 * share:g} % gain everything"), n, 6_000)


def _of_losses(world: means.World, n: int, runs: int) -> VerdictRow:
    losses = world.draw(_rng(world.name, n), n, runs)
    test = BoundedMeanTest.of_losses(losses, Clusters.of(None, n))
    wrong = _share(test.upper(RISK) < world.truth - HAIR), _share(test.lower(RISK) > world.truth + HAIR)
    return VerdictRow(f"graded scores: {world.name}", "accuracy_drop", f"{n}", wrong[0], wrong[1], runs)


def ratios() -> Iterator[VerdictRow]:
    """The share of the visual gain that a setting costs, where seeing brings little or much."""
    runs, critical, clean, guess, helpful = 20_000, critical_value(RISK), 0.8, 0.2, 0.02
    for gain in (0.05, 0.10, 0.40):
        right = (clean - gain - (1.0 - clean) * guess) / clean
        model = tails.Answers(clean, (0.3 * gain + (1.0 - clean) * helpful) / clean, helpful, right, guess)
        for n in (100, 300, 900):
            tables, times = np.unique(
                _rng("ratios", gain, n).multinomial(n, model.chances(), size=runs), axis=0, return_counts=True
            )
            contrast = np.tile(SHARED_CLEAN @ np.array([1.0, -model.ratio]), (len(tables), 1))
            score, tail = (statistic(tables.astype(np.float64), contrast) for statistic in (restricted_score, restricted_tail))
            wrong = [float(times[side & (tail <= RISK)].sum() / runs) for side in (score < -critical, score > critical)]
            yield VerdictRow(f"visual gain {100 * gain:g} pp", "relative_corruption_error", f"{n}", wrong[0], wrong[1], runs)


def sweeps() -> Iterator[VerdictRow]:
    """133 settings whose answers go together: 132 lose 2 pp, one loses 15 pp."""
    runs, drops = 120, np.array([0.02] * (CELLS - 1) + [0.15])
    names = ("worst_case_drop", "mean_drop", "mean_harmful_flip_rate")
    truths = (0.15, float(drops.mean()), float(drops.mean()))
    quantiles = special.ndtri(drops)
    for each in (1, 5):
        pictures, rng = 300 // each, _rng("sweeps", each)
        wrong = np.zeros((len(names), 2))
        groups = [str(number // each) for number in range(300)]
        for _ in range(runs):
            shared = np.repeat(rng.standard_normal(pictures), each)
            latent = math.sqrt(0.5) * shared[:, None] + math.sqrt(0.5) * rng.standard_normal((300, CELLS))
            scores = (latent > quantiles).astype(float)
            by_setting = {f"kind{kind}:high": column for kind, column in enumerate(scores.T)}
            table = ScoreTable(np.ones(300), by_setting, groups=groups if each > 1 else None)
            for place, (name, truth) in enumerate(zip(names, truths, strict=True)):
                estimate = metrics.estimate(replace(metrics.get(name), note=None), table)
                wrong[place] += (estimate.high < truth - HAIR, estimate.low > truth + HAIR)
        for place, name in enumerate(names):
            yield VerdictRow(f"133 correlated settings, {each} a picture", name, "300", *_rates(wrong[place] / runs), runs)


def hidden_losses() -> Iterator[VerdictRow]:
    """Questions that are lost under every setting, and one category of thirty that loses more than the others."""
    runs = 300
    for n in (300, 900, 3_000):
        share, rng = 0.025, _rng("always lost", n)
        wrong = np.zeros(2)
        for _ in range(runs):
            kept = (rng.random(n) >= share).astype(float)
            table = ScoreTable(np.ones(n), {"jpeg_compression:low": kept, "autocontrast": kept})
            estimate = metrics.estimate(replace(metrics.get("always_lost_rate"), note=None), table)
            wrong += (estimate.high < share - HAIR, estimate.low > share + HAIR)
        yield VerdictRow("some questions lost everywhere", "always_lost_rate", f"{n}", *_rates(wrong / runs), runs)
    for name, truth in (("worst_category_drop", 0.25), ("worst_category_accuracy", 0.75), ("worst_group_drop", 0.25)):
        lost, rng, wrong = np.repeat([0.25, *[0.05] * 9], 60), _rng(name), np.zeros(2)
        labels = np.repeat([f"kind {kind}" for kind in range(10)], 60).tolist()
        for _ in range(runs):
            kept = (rng.random((lost.size, 2)) >= lost[:, None]).astype(float)
            by_setting = {"jpeg_compression:low": kept[:, 0], "autocontrast": kept[:, 1]}
            table = ScoreTable(np.ones(lost.size), by_setting, categories=labels, people=labels)
            estimate = metrics.estimate(replace(metrics.get(name), note=None), table)
            wrong += (estimate.high < truth - HAIR, estimate.low > truth + HAIR)
        yield VerdictRow("one of ten kinds loses most", name, "10 x 60", *_rates(wrong / runs), runs)


def few_pictures() -> Iterator[VerdictRow]:
    """Pictures that lose all their questions under all settings, and may not have been seen; exact."""
    for name, bound in (("mean_drop", 0.05), ("mean_drop_at_low", 0.04)):
        fewest = next(count for count in range(2, 500) if _upper_of_zeros(count) <= bound)
        for count in (fewest - 1, fewest, 180):
            lost = np.arange(count + 1)
            ends = np.array([_upper_of_zeros(count, int(k)) if k / count < bound else 1.0 for k in lost])
            wrong = float(stats.binom.pmf(lost, count, bound)[ends <= bound].sum())
            yield VerdictRow("whole pictures lost, n pictures", name, f"{count}", wrong, None, 0)


def _upper_of_zeros(count: int, lost: int = 0) -> float:
    losses = (np.arange(count) < lost).astype(float)[:, None]
    return float(BoundedMeanTest.of_losses(losses, Clusters.of(None, count)).upper(RISK)[0])


def budgets() -> Iterator[VerdictRow]:
    """Unreadable answers in 133 cells: at 60 and 150 % of the budget, and on it."""
    for n, runs in ((128, 200), (300, 100), (853, 24)):
        rng = _rng("budgets", n)
        stopped = sum(_budget(rng.random((n, CELLS)) < 0.03) is not Outcome.PASS for _ in range(runs)) / runs
        passed = sum(_budget(rng.random((n, CELLS)) < 0.075) is Outcome.PASS for _ in range(runs)) / runs
        yield VerdictRow("unreadable: 60 % of the budget", "max_unparsed_rate", f"{n} x 133", None, stopped, runs)
        yield VerdictRow("unreadable: 150 % of the budget", "max_unparsed_rate", f"{n} x 133", passed, None, runs)
    n, runs = 128, 400
    for cells, always in ((133, 0.0), (20, 0.4), (133, 0.2), (133, 0.4), (133, 0.7), (133, 1.0)):
        rng, stuck = _rng("budgets", cells, always), 0.05 * always
        others, outcomes = (0.05 - stuck) / (1.0 - stuck), list[Outcome]()
        for _ in range(runs):
            outcomes.append(_budget((rng.random((n, cells)) < others) | (rng.random((n, 1)) < stuck)))
        wrong = outcomes.count(Outcome.PASS) / runs, outcomes.count(Outcome.FAIL) / runs
        about = f"unreadable: on the budget, {always:.0%} always the same questions"
        yield VerdictRow(about, "max_unparsed_rate", f"{n} x {cells}", *wrong, runs)


def _budget(unread: NDArray[np.bool_]) -> Outcome:
    samples, cells = unread.shape
    places = np.repeat(np.arange(samples), cells)
    share = _Share("unparsed_rate", unread.reshape(-1), places, Clusters(places, samples))
    return share.judge(Budgets(max_unparsed_rate=0.05), JudgedBy.INTERVAL, TODAY, 2)[1].outcome


def waivers() -> Iterator[VerdictRow]:
    """A drop that is worse than the cap of its waiver, 20 pp: WAIVED is wrong; exact."""
    bound, cap = 0.05, 0.2
    rule = Rule("r", "accuracy_drop", Bound(high=bound), "p:1")
    waiver = Waiver("w", "jo", "known", date(2030, 1, 1), "accuracy_drop", Scope(), cap, "p:2")
    for n in (60, 300, 900):
        waived = []
        for lost in range(round(bound * n), round(cap * n) + 1):
            scores = np.append(np.zeros(lost), np.ones(n - lost))
            estimate = metrics.estimate("accuracy_drop", ScoreTable(np.ones(n), {"fog:low": scores}), setting="fog:low")
            waived += [lost] * (outcome_of(rule, estimate, [waiver], TODAY) is Outcome.WAIVED)
        for beyond in (0.001, 0.02):
            wrong = float(stats.binom.pmf(waived, n, cap + beyond).sum())
            yield VerdictRow(f"waiver: the cap and {100 * beyond:g} pp", "accuracy_drop", f"{n}", wrong, None, 0)


def gaps() -> Iterator[VerdictRow]:
    """Two groups of people near the ceiling, exact; and a gap of 25 pp below it, simulated."""
    for n in (25, 100, 200):
        right = np.arange(n + 1)
        weights = stats.binom.pmf(right, n, 0.9)
        wrong = np.zeros(2)
        for count in right[weights > 1e-7].tolist():
            low, high = _gap(n, n, count)
            wrong += weights[count] * np.array([high < 0.1 - HAIR, low > 0.1 + HAIR])
        yield VerdictRow("group means 100 % and 90 %", "group_gap", f"2 x {n}", *_rates(wrong), 0)
    for n, runs in ((50, 400), (100, 400)):
        rng, wrong = _rng("gaps", n), np.zeros(2)
        for first, second in zip(rng.binomial(n, 0.95, runs).tolist(), rng.binomial(n, 0.70, runs).tolist(), strict=True):
            low, high = _gap(n, first, second)
            wrong += (high < 0.25 - HAIR, low > 0.25 + HAIR)
        yield VerdictRow("group means 95 % and 70 %", "group_gap", f"2 x {n}", *_rates(wrong / runs), runs)


@cache
def _gap(n: int, first: int, second: int) -> tuple[float, float]:
    scores = np.concatenate([(np.arange(n) < first), (np.arange(n) < second)]).astype(float)
    table = ScoreTable(scores, {"fog:low": scores}, people=["a"] * n + ["b"] * n)
    estimate = metrics.estimate(replace(metrics.get("group_gap"), note=None), table, setting="fog:low")
    return estimate.low, estimate.high


VERDICTS: dict[str, Callable[[], Iterator[VerdictRow]]] = {
    study.__name__: study
    for study in (binary_drops, clusters, graded, rare_gains, ratios, sweeps, hidden_losses, few_pictures, budgets, waivers, gaps)
}


# Whole policies.


@dataclass(frozen=True)
class Question:
    """A model of known truth, and the questions that a policy decides on."""

    name: str
    make: Callable[[], Profile]
    questions: int
    pictures: int
    wanted: str
    correlation: float = 0.5
    runs: int = 40


def _nearly_blind(loss: float) -> Profile:
    """Returns a model that is right on 50 %, on 45 % without the picture, and loses as much under every setting."""
    base = nothing_lost()
    return replace(base, name="nearly blind", clean=0.5, blind=0.45, drops=dict.fromkeys(base.drops, loss))


def _published(name: str) -> Callable[[], Profile]:
    return lambda: published_profiles()[name]


PUBLISHED = [name.removeprefix("MMBench/") for name in published_profiles() if name.startswith("MMBench/")]
GOOD, BAD, COPIES = "GO", "GO at most .05", 229
ASKED = (
    Question("loses nothing", nothing_lost, 300, 300, GOOD),
    Question("loses nothing", nothing_lost, 300, 60, "INCONCLUSIVE: fewer than 119 pictures"),
    Question("loses nothing", nothing_lost, 900, 50, "INCONCLUSIVE: fewer than 119 pictures"),
    Question("loses nothing", nothing_lost, 900, 180, GOOD),
    Question("typical of the nine published", typical, 300, 300, GOOD),
    Question("typical of the nine published", typical, 900, 180, GOOD),
    Question("typical of the nine published", typical, 900, 900, GOOD),
    Question("typical, MMBench's copies", typical, 853, COPIES, GOOD, 0.7),
    *(Question(f"{name}, MMBench's copies", _published(f"MMBench/{name}"), 853, COPIES, GOOD, 0.7) for name in PUBLISHED),
    *(Question(f"{name}, MMMU-Pro", _published(f"MMMU-Pro/{name}"), 324, 324, GOOD) for name in PUBLISHED),
    Question("3 % of the questions lost everywhere", lambda: hidden_loss(share=0.03), 900, 900, BAD),
    Question("3 % of the questions lost everywhere", lambda: hidden_loss(share=0.03), 3_000, 3_000, BAD, runs=20),
    Question("nearly blind, loses 3 of the 5 pp that seeing brings", lambda: _nearly_blind(0.03), 900, 900, BAD),
    Question("nearly blind, loses 3 of the 5 pp that seeing brings", lambda: _nearly_blind(0.03), 3_000, 3_000, BAD, runs=20),
)


def decision(case: Question) -> DecisionRow:
    """Simulates one row under thresholds/default.yaml."""
    policy = load_policy([HERE.parents[1] / "thresholds" / "default.yaml"], known_metrics=known_metrics())
    profile = replace(case.make(), dataset="own")  # the rules on one benchmark are left out
    if case.pictures == COPIES:
        profile = replace(profile, dataset="MMBench")
    if case.pictures < case.questions:
        profile = replace(profile, grouping=Grouping.equal(case.questions, case.pictures, case.correlation))
    power = Simulation(policy, profile, TODAY).run(case.questions, case.runs, _rng(case.name, case.questions, case.pictures))
    kept = {rule: 1.0 - outcomes.get(Outcome.PASS, 0.0) for rule, outcomes in power.outcomes.items()}
    worst = max(kept, key=lambda rule: kept[rule])
    by = f"{worst} {kept[worst]:.2f}" if power.share(Decision.GO) < 0.995 else ""
    go, no_go = power.share(Decision.GO), power.share(Decision.NO_GO)
    return DecisionRow("default", case.name, case.questions, case.pictures, go, no_go, by, case.wanted, case.runs)


# The program.


def _part(name: str) -> list[Row]:
    if name in VERDICTS:
        return list(VERDICTS[name]())
    return [decision(ASKED[int(name.partition(" ")[2])])]


PARTS = (*VERDICTS, *(f"decision {place}" for place in range(len(ASKED))))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints all rows, and freezes them where no part is left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes")
    options = parser.parse_args(arguments)
    all_rows: list[Row] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for rows in pool.map(_part, options.only or PARTS):
            for row in rows:
                print(row, flush=True)
            all_rows += rows
    if not options.only:
        frozen = json.loads(FROZEN.read_text(encoding="utf-8")) | {  # faults.py writes a table of its own into it
            "made": datetime.now(UTC).date().isoformat(),
            "verdicts": [asdict(row) for row in all_rows if isinstance(row, VerdictRow)],
            "decisions": [asdict(row) for row in all_rows if isinstance(row, DecisionRow)],
        }
        FROZEN.write_text(json.dumps(frozen, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
