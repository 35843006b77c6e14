"""What flips when answers are asked for again, and what that puts on metrics; asking itself is tested with the plugin."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.after.repeat import ACE, compare_with_rules, flip_rate, noise, uncompared_rules
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.metrics import absolute_continuous_error
from pytest_vlmrobust.policies import Rule, load_policy
from pytest_vlmrobust.store.repeatability import Repeatability

N, RATE, RUNS, RUNGS = 400, 0.04, 4000, 12


def test_the_noise_on_a_drop_is_what_repeating_it_gives() -> None:
    rng = np.random.default_rng(0)
    # some samples answer by a coin each time: half of them toggle between two runs, so that twice the rate has to
    fickle = rng.random((RUNS, 1, N)) < 2 * RATE
    scores = np.where(fickle, rng.random((RUNS, 4, N)) < 0.5, True).mean(axis=2)
    between = (scores[:, 0] - scores[:, 1]) - (scores[:, 2] - scores[:, 3])
    assert np.quantile(np.abs(between), 0.95) == pytest.approx(noise(RATE, N)["accuracy_drop"], rel=0.08)


def test_the_noise_on_ace_is_that_of_a_flat_curve() -> None:
    rng = np.random.default_rng(1)
    fickle = rng.random((300, 1, N)) < 2 * RATE
    curves = np.where(fickle, rng.random((300, RUNGS, N)) < 0.5, True).mean(axis=2)
    measured = np.mean([absolute_continuous_error(list(curve)) for curve in curves])
    assert measured == pytest.approx(noise(RATE, N)[ACE], rel=0.08)


def test_without_flips_there_is_no_noise_and_an_upper_end() -> None:
    rate, low, high = flip_rate([0.0] * 200)
    assert (rate, low) == (0.0, 0.0)
    assert high == pytest.approx(1.0 - 0.05 ** (1 / 200))
    assert set(noise(rate, 100).values()) == {0.0}


def test_of_nothing_nothing_is_known() -> None:
    assert all(map(math.isnan, flip_rate([])))
    assert all(map(math.isnan, noise(math.nan, 100).values()))


def test_grades_count_in_part() -> None:
    rate, low, high = flip_rate([0.5, -0.5, 0.0, 0.0])
    assert rate == 0.125
    assert low == 0.0
    assert high == pytest.approx(flip_rate([1.0, -1.0, 0.0, 0.0])[2])


# Which rules an A/A comparison is about.


MEASURED = Repeatability(
    "m", "d", 200, 20, samples=100, rate=0.1, noise={"accuracy_drop": 0.0877}, noise_high={"accuracy_drop": 0.1}
)


def cell(setting: str, family: str, level: str, *, dataset: str = "d", model: str = "m", category: str = "") -> Record:
    measures = (Measure("accuracy_drop", 0.1, category=category), Measure("accuracy", 0.8))
    return Record("cell", f"{model}-{dataset}-{setting}", model, dataset, setting, family, level, measures=measures)


RECORDS = [cell("fog:low", "weather", "low"), cell("gaussian_blur:high", "blur", "high"), cell("fog:low", "", "low", dataset="e")]


@pytest.fixture
def rules(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Rule, ...]:
    lines = "".join(f"  - {{id: r{number}, {text}}}\n" for number, text in enumerate(request.param))
    (tmp_path / "p.yaml").write_text(f"version: 1\nrules:\n{lines}")
    return tuple(load_policy([tmp_path / "p.yaml"], known_metrics=known_metrics(), root=tmp_path).rules)


@pytest.mark.parametrize(
    ("rules", "compared", "tighter"),
    [
        (["metric: accuracy_drop, max: 5pp"], ["r0"], ["r0"]),
        (["metric: accuracy_drop, max: 10pp"], ["r0"], []),
        (["metric: accuracy_drop, where: {model: m, dataset: d}, max: 5pp"], ["r0"], ["r0"]),
        (["metric: accuracy_drop, where: {model: other}, max: 5pp"], [], []),
        (["metric: accuracy_drop, where: {dataset: e}, max: 5pp"], [], []),
        (["metric: accuracy_drop, where: {family: digital}, max: 5pp", "metric: accuracy_drop, max: 6pp"], ["r1"], ["r1"]),
        (["metric: accuracy_drop, where: {setting: fog, level: low}, max: 5pp"], ["r0"], ["r0"]),
        (["metric: accuracy_drop, unless: {dataset: [d]}, max: 5pp"], [], []),
        (["metric: accuracy_drop, where: {category: count}, max: 5pp"], [], []),
        (["metric: accuracy, min: 80%"], [], []),
        (["metric: worst_case_drop, max: 5pp"], [], []),
    ],
    indirect=["rules"],
)
def test_a_rule_is_compared_with_what_its_scope_admits(rules: tuple[Rule, ...], compared: list[str], tighter: list[str]) -> None:
    noise = compare_with_rules(MEASURED, rules, RECORDS)
    assert [sentence.split(":")[0] for sentence in noise.beside] == [f"rule {name}" for name in compared]
    assert [sentence.partition("rule ")[2].split()[0] for sentence in noise.tighter] == tighter


@pytest.mark.parametrize("rules", [["metric: accuracy_drop, max: 5pp"]], indirect=True)
def test_what_is_said(rules: tuple[Rule, ...]) -> None:
    noise = compare_with_rules(MEASURED, rules, RECORDS)
    assert noise.beside == ("rule r0: accuracy_drop <= 5 pp, noise 8.8 pp (at most 10.0 pp)",)
    (sentence,) = noise.tighter
    assert sentence.startswith("p.yaml:3: rule r0 (accuracy_drop <= 5 pp) is tighter than the noise of 8.8 pp that was measured")


@pytest.mark.parametrize("rules", [["metric: accuracy_drop, max: 5pp"]], indirect=True)
@pytest.mark.parametrize("failed", [Repeatability("m", "d", problem="gone"), Repeatability("m", "d", failed=9)])
def test_what_was_not_measured_says_nothing_of_rules(rules: tuple[Rule, ...], failed: Repeatability) -> None:
    assert compare_with_rules(failed, rules, RECORDS) == failed
    assert uncompared_rules([failed], rules, RECORDS) == []


@pytest.mark.parametrize("rules", [["metric: accuracy_drop, where: {category: count}, max: 5pp"]], indirect=True)
def test_a_category_has_a_noise_of_its_own(rules: tuple[Rule, ...]) -> None:
    records = [cell("fog:low", "weather", "low", category="count")]
    assert compare_with_rules(MEASURED, rules, records).beside == ()
    assert uncompared_rules([MEASURED], rules, records) == [
        "r0: not compared with that noise, as the run measured nothing on a whole dataset that they bound"
    ]


@pytest.mark.parametrize(
    "rules",
    [
        [
            "metric: accuracy_drop, where: {model: other}, max: 5pp",
            "metric: accuracy_drop, where: {dataset: e}, max: 5pp",
            "metric: accuracy, min: 80%",
            "metric: accuracy_drop, max: 20pp",
        ]
    ],
    indirect=True,
)
def test_what_is_not_compared_is_said(rules: tuple[Rule, ...]) -> None:
    other = dataclasses.replace(MEASURED, dataset="e", repeated=0, noise={}, noise_high={}, problem="gone")
    assert uncompared_rules([MEASURED, other], rules, RECORDS) == [
        "r0: not compared with that noise, as the run measured nothing on a whole dataset that they bound",
        "1 of 4 rules are about other metrics than accuracy_drop, whose noise is not known",
    ]
