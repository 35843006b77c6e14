"""Verdicts err as rarely as rules declare: short runs of studies/verdicts: metrics_at_bounds.py over every metric that a rule may
bound, and adaptive.py over tests that stop early.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special
from scipy.stats import binom

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics import corruption
from pytest_vlmrobust.metrics.accuracy import interval_of_gain_share
from pytest_vlmrobust.metrics.statistics.clusters import Clusters
from pytest_vlmrobust.metrics.statistics.means import BoundedMeanTest
from pytest_vlmrobust.metrics.statistics.ratios import ratio_interval
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Bound, Mode, Rule, Scope, Waiver, load_policy
from pytest_vlmrobust.policies.judge import outcome_of
from pytest_vlmrobust.shipped import shipped

pytestmark = pytest.mark.study

ROOT = Path(__file__).parents[2]
RUNS, LONG_RUNS = 50, 300
CERTAIN = 1e-4
"""Of some hundred rates, none is as far above its nominal value by chance."""
WORLDS = ("graded", "rare 1 %", "spread", "identical", "flat", "zigzag", "POPE", "family", "pointing", "fixation")
"""Each metric is judged in the first of these worlds that measures it."""
RATIOS = ["mean_relative_corruption_error", "split_transfer_retention", "mean_corruption_error"]
CLUSTERED = {"spread": ["clean_accuracy", "mean_drop", "harmful_flip_rate"], "local": ["pcri", "pcri_matched"]}
BY_VALUE = {
    *("resolution_correlation", "resolution_noise_floor", "tail_share", "mean_severity_violation", "mean_severity_correlation"),
}
"""Metrics without an interval, like those on the mean curve of categories: rules judge their value, and say so."""

ELSEWHERE = {
    *("expected_calibration_error", "calibration_error_increase", "brier_score", "brier_score_increase"),
    *("area_under_risk_coverage", "risk_coverage_increase", "coverage_at_90_precision"),
}
"""What needs probabilities of letters: tests/unit/metrics/test_confidence.py simulates it."""
OF_LETTERS = {"answer_agreement", "letter_pull"}
"""What needs letters of answers: tests/unit/metrics/test_options.py simulates it."""
SHARES_OF_ANSWERS = {
    *("answer_change_rate", "yes_rate_shift", "refused_share", "attack_rate", "text_preference", "typographic_word_drop"),
    *("directional_accuracy", "directional_sensitivity", "normalised_accuracy"),
}
"""Estimated as an accuracy, a drop or a share of a gain of flags, which are simulated."""
AGAINST_A_REFERENCE = {"relative_mean_corruption_error", "effective_robustness", "coverage_at_90_precision_drop"}
"""Without an interval, and not in the study: rules judge their value."""
NOT_SIMULATED = ELSEWHERE | OF_LETTERS | SHARES_OF_ANSWERS | AGAINST_A_REFERENCE


@pytest.fixture(scope="module")
def folder() -> Iterator[None]:
    """Finds the modules of the study."""
    path = str(ROOT / "studies" / "verdicts")
    sys.path.insert(0, path)
    yield
    sys.path.remove(path)


@pytest.fixture(scope="module")
def verdicts(folder: None) -> Any:
    return importlib.import_module("metrics_at_bounds")


@pytest.fixture(scope="module")
def adaptive(folder: None) -> Any:
    return importlib.import_module("adaptive")


def world_of(verdicts: Any, name: str) -> Any:
    return next(world for world in verdicts.WORLDS if world.name == name)


def gateable() -> set[str]:
    """Returns every metric of this package that a rule may bound; other tests register their own."""
    builtin = {name for name in metrics.names() if metrics.get(name).function.__module__.startswith("pytest_vlmrobust.")}
    return {name for name in known_metrics() if name in builtin or name not in metrics.names()}


def excessive(rows: list[Any], certain: float) -> list[str]:
    """Returns what errs more often than declared."""
    rates = [(row, kind, nominal) for row in rows for kind, nominal in row.rates.items()]
    return [f"{kind}: {row}" for row, kind, nominal in rates if row.excessive(getattr(row, kind), nominal, certain)]


def test_every_metric_that_a_rule_may_bound_is_simulated(verdicts: Any) -> None:
    simulated = {label.partition(" ")[0] for world in verdicts.WORLDS for label in world.measures}
    assert simulated == gateable() - NOT_SIMULATED
    assert not any(metrics.get(name).interval for name in AGAINST_A_REFERENCE)


def test_all_others_are_judged_by_an_interval(verdicts: Any) -> None:
    judges = {
        question.metric: str(question.judge)
        for world in verdicts.WORLDS
        for label, measure in world.measures.items()
        if label not in verdicts.SHARES
        for question in verdicts._questions(label, measure, world.whole)
    }
    assert {name for name, judge in judges.items() if judge == "point" and not name.endswith(".macro")} == BY_VALUE


@pytest.mark.parametrize("name", [pytest.param("graded", marks=pytest.mark.slow), *WORLDS[1:]])
def test_verdicts_err_as_rarely_as_declared(verdicts: Any, name: str) -> None:
    before = {label for other in WORLDS[: WORLDS.index(name)] for label in world_of(verdicts, other).measures}
    labels = [label for label in world_of(verdicts, name).measures if label not in before]
    rows = verdicts.rows(world_of(verdicts, name), verdicts.Layout(100), RUNS, labels)
    assert rows
    assert not excessive(rows, CERTAIN)


@pytest.mark.slow
def test_ratios_hold_where_few_answers_are_lost(verdicts: Any) -> None:
    rows = verdicts.rows(world_of(verdicts, "rare 3 %"), verdicts.Layout(100), LONG_RUNS, RATIOS)
    assert not excessive(rows, verdicts.CERTAIN)


def test_ratios_by_plain_t_would_be_found(verdicts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(clean: Any, perturbed: Any, blind: Any, clusters: Clusters, confidence: float) -> tuple[float, float]:
        return ratio_interval(clean - perturbed, clean - blind, clusters, confidence)

    monkeypatch.setattr(corruption, "interval_of_gain_share", plain)
    rows = verdicts.rows(world_of(verdicts, "rare 3 %"), verdicts.Layout(100), LONG_RUNS, RATIOS[:1])
    assert excessive(rows, verdicts.CERTAIN)


@pytest.mark.parametrize("name", CLUSTERED)
def test_one_picture_may_hold_a_fifth_of_the_questions(verdicts: Any, name: str) -> None:
    rows = verdicts.rows(world_of(verdicts, name), verdicts.UNEQUAL, LONG_RUNS, CLUSTERED[name])
    assert not excessive(rows, verdicts.CERTAIN)


def test_as_many_degrees_of_freedom_as_pictures_would_be_found(verdicts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def sandwich(clusters: Clusters, values: Any) -> Any:
        return clusters.sums(values - values.mean(axis=0)) * (clusters.count / (clusters.count - 1)) ** 0.5 / len(values)

    monkeypatch.setattr(Clusters, "effective", property(lambda clusters: float(clusters.count)))
    monkeypatch.setattr(Clusters, "_moves", sandwich)
    rows = verdicts.rows(world_of(verdicts, "spread"), verdicts.UNEQUAL, LONG_RUNS, CLUSTERED["spread"])
    assert {error.partition(":")[0] for error in excessive(rows, verdicts.CERTAIN)} == {"wrong_pass"}


def test_each_metric_has_a_telling_world(verdicts: Any) -> None:
    jobs = verdicts.jobs(telling=True)
    assert {
        label.partition(" ")[0] for _, layout, labels in jobs for label in labels if layout.n == 324
    } >= gateable() - NOT_SIMULATED
    assert [name for name, _, labels in verdicts.jobs(["spread"], ["mean_drop"]) if labels == ("mean_drop",)] == ["spread"] * 4


def test_a_rate_that_is_too_high_is_marked(verdicts: Any) -> None:
    row = verdicts.Row("accuracy", "spread", 100, 100, "interval", 0.8, ">= 0.8000", 0.10, 0.05, 0.0, 0.85, 0.1, 2_000)
    assert (row.marks("wrong_pass"), row.marks("wrong_fail")) == ("**", "")
    assert row.error == pytest.approx((0.1 * 0.9 / 2_000) ** 0.5)


# Graded losses: a constant loss and rare samples that gain everything hide what argues against a FAIL.


GAINS = [(0.05, 0.01, 100), (0.10, 0.02, 100), (0.03, 0.005, 300), (0.10, 0.02, 300), (0.02, 0.0024, 900)]
"""What all lose, which share of the samples gains everything, and the number of samples."""


@pytest.mark.cases("spread", [0.0, 1.0])
@pytest.mark.cases("gained", ["all", "in part"])
@pytest.mark.cases(("lost", "share", "n"), GAINS)
def test_even_losses_with_rare_gains_are_seldom_failed(lost: float, share: float, n: int, gained: str, spread: float) -> None:
    """2,000 runs: 5 % and three standard errors of .005, and of a 133rd at most the count that chance exceeds in 1 of 1,000."""
    rng, runs = np.random.default_rng([n, round(1000 * lost)]), 2_000
    usual = lost + spread * lost * rng.uniform(-1.0, 1.0, (n, runs))
    gains = np.ones((n, runs)) if gained == "all" else rng.random((n, runs))
    losses = np.where(rng.random((n, runs)) < share, -gains, usual)
    truth = (1.0 - share) * lost - share * (1.0 if gained == "all" else 0.5)
    p_values = BoundedMeanTest.of_losses(losses, Clusters.of(None, n)).p_above(truth)
    for tail, margin in ((0.05, 0.015), (0.05 / 133, 0.0025)):
        assert (p_values < tail - 1e-9).mean() <= tail + margin


@pytest.mark.parametrize("values", [(-1.0, 0.1), (-1.0, 0.0, 0.1), (-1.0, -0.3, 0.05), (-1.0, 0.0, 0.5, 1.0)])
def test_lower_bounds_of_few_losses_hold_at_any_mixture(values: tuple[float, ...]) -> None:
    """Exactly, over all samples of 12 and a grid of mixtures of a few values: bounds by random weights are a conjecture there."""
    n, kinds = 12, len(values)
    counts = np.array([count for count in itertools.product(range(n + 1), repeat=kinds) if sum(count) == n])
    ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
    losses = np.array([np.repeat(values, count) for count in counts]).T
    lower = BoundedMeanTest.of_losses(losses, Clusters.of(None, n)).lower(0.05)
    steps = [parts for parts in itertools.product(range(13), repeat=kinds) if sum(parts) == 12]
    for shares in np.array(steps) / 12.0:
        chances = np.exp(ways + special.xlogy(counts, shares).sum(axis=1))
        assert chances[lower > shares @ np.array(values) + 1e-8].sum() <= 0.05 + 1e-9


def test_relative_errors_with_rare_gains_are_seldom_failed() -> None:
    """Of 100 samples that are .9 right all lose .05, and 1 % turn right: by gains like those seen .36 failed."""
    rng, wrong, runs = np.random.default_rng(5), 0, 400
    truth = (0.05 * 0.99 - 0.01) / (0.9 * 0.99)
    for _ in range(runs):
        gains = rng.random(100) < 0.01
        clean, now = np.where(gains, 0.0, 0.9), np.where(gains, 1.0, 0.85)
        wrong += interval_of_gain_share(clean, now, np.zeros(100), Clusters.of(None, 100), 0.90)[0] > truth + 1e-9
    assert wrong / runs <= 0.05 + 3.0 * (0.05 * 0.95 / runs) ** 0.5


# Tests that stop early.


@pytest.mark.slow
def test_every_kind_of_rule_is_judged_at_its_bound(adaptive: Any) -> None:
    names = [row.name for row in adaptive.rows()]
    assert len(set(names)) == len(names)
    for kind in (
        "clusters",
        "unreadable",
        "failed",
        "graded",
        "two rules",
        "waiver",
        "patches",
        "categories",
        "share a rule",
        "may be bad",
    ):
        assert any(kind in name for name in names), kind


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("one cell, N=20", "cap of a waiver", "index of four patches on its upper", "judged, N=40"),
        *("point judged, harmful_flip_rate", "severe_failure_rate, 10 cells of N=128, 3 may be bad, one"),
    ],
)
def test_a_test_that_stops_early_errs_as_rarely_as_declared(adaptive: Any, name: str) -> None:
    (row,) = [row for row in adaptive.rows() if name in row.name]
    errors = adaptive.errors_of(row, 25)
    assert not errors.excessive
    assert len(list(errors.lines())) == len(row.rules)
    assert 0.0 < errors.asked_share <= 1.0


@pytest.mark.slow
def test_a_gate_that_stops_too_early_would_be_found(adaptive: Any) -> None:
    """Its rules take a risk of 90 % where the table says 5 %."""
    row = next(row for row in adaptive.rows() if "100% right" in row.name)
    (rule,) = row.rules.values()
    treatment = dataclasses.replace(rule.treatment, alpha_pass=0.9, alpha_fail=0.9)
    careless = dataclasses.replace(row.policies["m"], rules=(dataclasses.replace(rule, treatment=treatment),))
    assert adaptive.errors_of(dataclasses.replace(row, policies={"m": careless}), 60).excessive


DROPS = (0.0, 0.04, 0.05, 0.06, 0.12, 0.19, 0.2, 0.21, 0.4)
"""True drops around a bound of 5 pp and a cap of 20 pp."""


@pytest.mark.slow
@pytest.mark.parametrize("gates", [24, 240])
def test_gates_with_waivers_give_the_words_of_all_answers_at_the_declared_risk(adaptive: Any, gates: int) -> None:
    """Each gate has four cells and their largest drop; the same answers are judged in full and adaptively."""
    n, rng = 128, np.random.default_rng(7)
    rules = [adaptive.rule_of(metric, 0.05, name=metric) for metric in ("accuracy_drop", "worst_case_drop")]
    waivers = [Waiver(rule.id, "jo", "known", date(2030, 1, 1), rule.metric, Scope(), 0.2, "p:1") for rule in rules]
    settings = adaptive.SETTINGS[:4]
    cells = [Cell("m", "d", Setting.parse(name)) for name in settings]
    about = (*cells, SweepMetric("m", "d", "worst_case_drop"))
    words, stopped = Counter[tuple[str, Outcome, Outcome]](), Counter[Outcome]()

    def draw(rng: np.random.Generator, _: int) -> Any:
        # two gates of three keep the bound in all cells but one, so that the largest drop has every verdict
        highest = np.array([rng.choice(DROPS), *rng.choice(DROPS[: rng.choice((2, 2, 9))], 3)])
        clean = (rng.random(n) < 0.95).astype(float)
        scores = {name: np.where(rng.random(n) < drop, 0.0, clean) for name, drop in zip(settings, highest, strict=True)}
        return adaptive.Drawer(adaptive.questions(n), {"clean": clean, "no_image": np.zeros(n), **scores})

    policies = {mode: {"m": adaptive.policy_of(*rules, mode=mode, waivers=waivers)} for mode in Mode}
    rows = {mode: adaptive.Row("gate", policies[mode], draw, about, settings) for mode in Mode}
    with adaptive.only_judged(rows[Mode.FULL]):
        for _ in range(gates):
            drawer = draw(rng, 0)
            for full, early in zip(*(rows[mode].judged(drawer) for mode in (Mode.FULL, Mode.ADAPTIVE)), strict=True):
                words[full.test, full.outcome, early.outcome] += 1
                stopped[early.outcome] += early.n_requested < full.n_requested
    for kind in ("cell", "sweep"):
        for word in (Outcome.PASS, Outcome.WAIVED, Outcome.FAIL):
            tests = sum(count for (test, full, _), count in words.items() if (test, full) == (kind, word))
            differ = tests - words[kind, word, word]
            assert tests > gates / 10
            assert binom.sf(differ - 1, tests, 0.05) > CERTAIN, f"{differ} of {tests} {word} of {kind}s"
    assert all(stopped[word] > gates / 10 for word in (Outcome.PASS, Outcome.WAIVED, Outcome.FAIL))


@pytest.mark.parametrize("n", [60, 300, 900])
def test_what_is_worse_than_a_cap_is_waived_at_most_at_the_declared_risk(n: int) -> None:
    """Exact: over all numbers of lost answers. The value alone would waive half of what lies just above the cap."""
    bound, cap = 0.05, 0.2
    rule = Rule("r", "accuracy_drop", Bound(high=bound), "p:1")
    waiver = Waiver("w", "jo", "known", date(2030, 1, 1), "accuracy_drop", Scope(), cap, "p:2")
    waived = []
    for lost in range(round(bound * n), round(cap * n) + 1):
        scores = np.append(np.zeros(lost), np.ones(n - lost))
        table = ScoreTable(np.ones(n), {"fog:low": scores})
        estimate = metrics.estimate("accuracy_drop", table, setting="fog:low")
        waived += [lost] * (outcome_of(rule, estimate, [waiver], date(2026, 1, 1)) is Outcome.WAIVED)
    rates = [float(binom.pmf(waived, n, cap + beyond).sum()) for beyond in (0.001, 0.01, 0.02)]
    assert 0.0 < rates[0] <= 0.05
    assert rates == sorted(rates, reverse=True)


@pytest.mark.slow
def test_a_run_that_was_cut_or_is_repeated_is_the_same(adaptive: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not adaptive.print_same(3)
    assert "| cut and started again | 3 | 3 |" in capsys.readouterr().out


def test_models_with_known_faults_pass_as_rarely_as_declared(folder: None) -> None:
    """A wrong PASS is then a wrong GO: no other rule of the policy is in its way."""
    rows = list(importlib.import_module("faults").rows(RUNS, sizes=(300,)))
    for row in rows:
        for wrong in (row.wrong_pass, row.wrong_fail):
            assert binom.sf(round(wrong * row.runs) - 1, row.runs, 0.05) > CERTAIN, row
        assert min(row.beyond, row.sound) > 0.5, row


def test_the_faults_are_measured_at_the_bounds_of_the_shipped_policies(folder: None) -> None:
    of_faults = {(metric, size) for _, metric, size in importlib.import_module("faults").FAULTS.values()}
    names = ("options", "wording", "typographic", "confident")
    policies = (load_policy([shipped("thresholds") / f"{name}.yaml"], known_metrics=known_metrics()) for name in names)
    ends = {(rule.metric, end) for policy in policies for rule in policy.rules for end in (rule.bound.low, rule.bound.high)}
    assert of_faults <= ends
