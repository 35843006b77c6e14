"""Several rules about one test, and the line of a record that comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome, decide
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.policies import JudgedTest, Policy

Load = Callable[..., Policy]

TODAY = date(2027, 1, 1)
TEST = JudgedTest("m", "d", "accuracy_drop", "fog:low", "weather", "low")

SEVERAL = """\
version: 1
defaults: {judge: point}
rules:
  - {id: loose, metric: accuracy_drop, max: 20pp}
  - {id: tight, metric: accuracy_drop, max: 5pp, where: {level: low}}
  - {id: say, metric: accuracy_drop, max: 1pp, tier: warn}
  - {id: other, metric: accuracy_drop, max: 0, where: {level: high}}
"""


def outcomes(policy: Policy, value: float) -> list[tuple[str, str]]:
    return [(verdict.rule, verdict.outcome.value) for verdict in policy.judge(TEST, Estimate(value, 100), today=TODAY)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.005, [("loose", "PASS"), ("tight", "PASS"), ("say", "MEASURED")]),
        (0.02, [("loose", "PASS"), ("tight", "PASS"), ("say", "MEASURED")]),
        (0.10, [("tight", "FAIL"), ("loose", "PASS"), ("say", "MEASURED")]),
        (0.30, [("loose", "FAIL"), ("tight", "FAIL"), ("say", "MEASURED")]),
        (math.nan, [("loose", "INCONCLUSIVE"), ("tight", "INCONCLUSIVE"), ("say", "MEASURED")]),
    ],
)
def test_every_rule_has_a_say_and_the_worst_comes_first(load: Load, value: float, expected: list[tuple[str, str]]) -> None:
    assert outcomes(load(SEVERAL), value) == expected


def test_without_a_rule_nothing_is_gated(load: Load) -> None:
    for policy in (Policy(), load(SEVERAL)):
        (verdict,) = policy.judge(JudgedTest("m", "d", "pcri"), Estimate(0.1, 100), today=TODAY)
        assert (verdict.outcome, verdict.rule, verdict.reason) == (Outcome.MEASURED, "", "no rule applies to pcri here")


def test_warnings_alone_are_no_go(load: Load) -> None:
    policy = load("version: 1\ndefaults: {judge: point}\nrules: [{id: say, metric: accuracy_drop, max: 90pp, tier: warn}]\n")
    verdicts = policy.judge(TEST, Estimate(0.0, 100), today=TODAY)
    assert decide(verdict.outcome for verdict in verdicts) is Decision.INCONCLUSIVE


def test_a_measure_is_the_estimate_with_its_worst_verdict(load: Load) -> None:
    measure = load(SEVERAL).measure(TEST, Estimate(0.1, 100, 0.08, 0.13), today=TODAY)
    assert measure == Measure(
        metric="accuracy_drop",
        value=0.1,
        low=0.08,
        high=0.13,
        n=100,
        threshold="0.05",
        outcome=Outcome.FAIL,
        reason="accuracy_drop 0.100 > 0.050 (rule tight, a.yaml:5); warning: accuracy_drop 0.100 > 0.010 (rule say, a.yaml:6)",
        rule="tight",
        source="a.yaml:5",
        target="dataset",
    )


def test_a_measure_that_passes_keeps_the_warning(load: Load) -> None:
    measure = load(SEVERAL).measure(TEST, Estimate(0.02, 100), today=TODAY)
    assert measure.outcome is Outcome.PASS
    assert measure.reason.endswith("; warning: accuracy_drop 0.020 > 0.010 (rule say, a.yaml:6)")


def test_a_lone_warning_is_said_once(load: Load) -> None:
    policy = load("version: 1\ndefaults: {judge: point}\nrules: [{id: say, metric: accuracy_drop, max: 1pp, tier: warn}]\n")
    measure = policy.measure(TEST, Estimate(0.02, 100), today=TODAY)
    assert (measure.outcome, measure.reason.count("warning: ")) == (Outcome.MEASURED, 1)


def test_a_waiver_for_one_rule_does_not_hide_another_breach(load: Load) -> None:
    waivers = (
        "waivers: [{id: W, metric: accuracy_drop, where: {model: m}, cap: 10pp, owner: jane, reason: why, expires: 2027-06-30}]\n"
    )
    policy = load(SEVERAL + waivers)
    assert outcomes(policy, 0.1)[0] == ("tight", "WAIVED")
    assert outcomes(policy, 0.3)[:2] == [("loose", "FAIL"), ("tight", "FAIL")]
    assert policy.measure(TEST, Estimate(0.1, 100), today=TODAY).waiver == "W"
    assert policy.judge(TEST, Estimate(0.1, 100), today=date(2027, 7, 1))[0].outcome is Outcome.FAIL


def test_the_tests_of_a_run_share_the_risk_of_a_rule(load: Load) -> None:
    policy = load(
        "version: 1\nrules:\n"
        "  - {id: low, metric: accuracy_drop, max: 5pp, where: {level: low}}\n"
        "  - {id: art, metric: accuracy_drop, max: 5pp, where: {category: Art}}\n"
        "  - {id: worst, metric: worst_case_drop, max: 5pp}\n"
    )
    tests = [JudgedTest("m", "d", "accuracy_drop", f"{name}:{level}", "any", level) for name in "ab" for level in ("low", "high")]
    twice = tests[0]  # by two suites
    planned = policy.for_tests([*tests, twice, JudgedTest("m", "d", "worst_case_drop")])
    assert planned.shared_by == {"low": 2, "art": 4, "worst": 1}
    assert planned.sha256 == policy.sha256
    asked: list[float] = []

    def at(confidence: float) -> tuple[float, float]:
        asked.append(confidence)
        return -1.0, 1.0

    for test, risk in ((tests[0], 0.1 / 2), (replace(tests[0], category="Art", strata=3), 0.1 / 12)):
        asked.clear()
        planned.judge(test, Estimate(0.0, 9, at=at), today=TODAY)
        assert [round(1 - confidence, 9) for confidence in asked[:2]] == [0.1, round(risk, 9)]  # then, how many samples would do


def test_a_sentence_about_a_category_names_it(load: Load) -> None:
    policy = load(
        "version: 1\ndefaults: {judge: point}\nrules:\n"
        "  - {id: cat, metric: accuracy, min: 90%, where: {category: '*'}}\n"
        "  - {id: all, metric: accuracy, min: 90%}\n"
    )
    low, undefined = Estimate(0.4, 40), Estimate(math.nan, 40, valid=False, reason="why")
    whole, part = JudgedTest("m", "d", "accuracy", "clean"), JudgedTest("m", "d", "accuracy", "clean", category="sub0")
    said = [policy.judge(test, low, today=TODAY)[0].reason for test in (part, whole)]
    assert said == ["accuracy (sub0) 0.400 < 0.900 (rule cat, a.yaml:4)", "accuracy 0.400 < 0.900 (rule all, a.yaml:5)"]
    assert policy.judge(part, undefined, today=TODAY)[0].reason.startswith("accuracy (sub0) does not apply: why")
    nothing = policy.judge(part, Estimate(0.4, 0), today=TODAY)[0].reason
    assert nothing == "accuracy (sub0) rests on no sample (rule cat, a.yaml:4)"
