"""Several rules about one test, and the line of a record that comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome, Verdict, decide
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.policies import BUDGET_CELLS, BUDGET_DATASETS, MetricKey, Policy
from pytest_vlmrobust.policies.policy import policy_content

Load = Callable[..., Policy]

TODAY = date(2027, 1, 1)
TEST = MetricKey("m", "d", "accuracy_drop", "fog:low", "weather", "low")

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


@pytest.mark.parametrize("value", [0.005, 0.10, 0.30, math.nan])
def test_the_outcome_without_a_sentence_is_the_same(load: Load, value: float) -> None:
    policy = load(SEVERAL)
    estimate = Estimate(value, 100)
    with_sentences = {verdict.rule: verdict.outcome for verdict in policy.judge(TEST, estimate, today=TODAY)}
    applying = [rule for rule in policy.rules if rule.applies(TEST)]
    assert {rule.id: policy.outcome(rule, TEST, estimate, today=TODAY) for rule in applying} == with_sentences


def test_what_was_decided_early_stays_and_the_rest_is_undecided(load: Load) -> None:
    """The value of those samples alone would break both rules."""
    early = Verdict(Outcome.PASS, "early", "accuracy_drop", "loose")
    verdicts = load(SEVERAL).judge(TEST, Estimate(0.30, 100), today=TODAY, decided={"loose": early})
    assert {verdict.rule: verdict.outcome for verdict in verdicts} == {
        "tight": Outcome.INCONCLUSIVE,
        "loose": Outcome.PASS,
        "say": Outcome.MEASURED,
    }
    assert early in verdicts


def test_without_a_rule_nothing_is_gated(load: Load) -> None:
    for policy in (Policy(), load(SEVERAL)):
        (verdict,) = policy.judge(MetricKey("m", "d", "pcri"), Estimate(0.1, 100), today=TODAY)
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
        bound="<= 5 pp",
        unit="pp",
        ends=(0.05,),
        outcome=Outcome.FAIL,
        reason="accuracy_drop 10.0 pp > 5 pp (rule tight, a.yaml:5); warning: accuracy_drop 10.0 pp > 1 pp (rule say, a.yaml:6)",
        rule="tight",
        source="a.yaml:5",
        target="dataset",
    )


def test_a_measure_that_passes_keeps_the_warning(load: Load) -> None:
    measure = load(SEVERAL).measure(TEST, Estimate(0.02, 100), today=TODAY)
    assert measure.outcome is Outcome.PASS
    assert measure.reason.endswith("; warning: accuracy_drop 2.0 pp > 1 pp (rule say, a.yaml:6)")


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
    tests = [MetricKey("m", "d", "accuracy_drop", f"{name}:{level}", "any", level) for name in "ab" for level in ("low", "high")]
    twice = tests[0]  # by two suites
    planned = policy.for_tests([*tests, twice, MetricKey("m", "d", "worst_case_drop")])
    assert planned.shared_by == {"low": 2, "art": 4, "worst": 1, BUDGET_CELLS: 4, BUDGET_DATASETS: 1}
    assert (planned.sharing_budget(BUDGET_CELLS), planned.sharing_budget(BUDGET_DATASETS)) == (8, 2), "half of the risk each"
    assert planned.sha256 == policy.sha256
    levels: list[float] = []

    def at(confidence: float) -> tuple[float, float]:
        levels.append(confidence)
        return -1.0, 1.0

    for test, risk in ((tests[0], 0.1 / 2), (replace(tests[0], category="Art", strata=3), 0.1 / 12)):
        for value, first in ((0.0, 0.1), (0.1, risk)):  # which keeps the bound and may PASS, which breaks it and may FAIL
            levels.clear()
            planned.judge(test, Estimate(value, 9, at=at), today=TODAY)
            assert round(1 - levels[0], 9) == round(first, 9)


def test_a_sentence_about_a_category_names_it(load: Load) -> None:
    policy = load(
        "version: 1\ndefaults: {judge: point}\nrules:\n"
        "  - {id: cat, metric: accuracy, min: 90%, where: {category: '*'}}\n"
        "  - {id: all, metric: accuracy, min: 90%}\n"
    )
    low, undefined = Estimate(0.4, 40), Estimate(math.nan, 40, valid=False, reason="why")
    whole, part = MetricKey("m", "d", "accuracy", "clean"), MetricKey("m", "d", "accuracy", "clean", category="sub0")
    said = [policy.judge(test, low, today=TODAY)[0].reason for test in (part, whole)]
    assert said == ["accuracy (sub0) 40.0 % < 90 % (rule cat, a.yaml:4)", "accuracy 40.0 % < 90 % (rule all, a.yaml:5)"]
    assert policy.judge(part, undefined, today=TODAY)[0].reason.startswith("accuracy (sub0) does not apply: why")
    nothing = policy.judge(part, Estimate(0.4, 0), today=TODAY)[0].reason
    assert nothing == "accuracy (sub0) rests on no sample (rule cat, a.yaml:4)"


MEANING = """\
version: 1
defaults: {judge: point}
budgets: {max_error_rate: 1%, max_unparsed_rate: 5%}
coverage: {tests: whole, samples: 500, suites: [corruptions, patches], rules: whole}
rules:
  - {id: one, metric: accuracy_drop, max: 20pp, where: {level: low}, unless: {setting: fog}, reason: why}
  - {id: two, metric: pcri, within: [0.1, 0.2]}
waivers:
  - {id: W, metric: pcri, where: {model: m}, cap: 60pp, owner: jo, ticket: T1, reason: known, expires: 2027-06-30}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("20pp", "0.2"),
        ("reason: why", "reason: because"),
        ("[corruptions, patches]", "[patches, corruptions]"),
        ("rules:\n", "rules: # a comment\n\n"),
        ("defaults: {judge: point}\n", "defaults: {judge: point}\nmode: full\n"),
    ],
)
def test_what_changes_no_verdict_changes_no_digest(load: Load, before: str, after: str) -> None:
    assert before in MEANING
    assert load(MEANING.replace(before, after)).sha256 == load(MEANING).sha256


@pytest.mark.cases(
    ("before", "after"),
    [
        ("20pp", "21pp"),
        ("20pp", "20pp, tier: warn"),
        ("id: one", "id: first"),
        ("level: low", "level: high"),
        ("setting: fog", "setting: snow"),
        (", unless: {setting: fog}", ""),
        ("judge: point", "judge: interval"),
        ("[0.1, 0.2]", "[0.1, 0.3]"),
        ("metric: pcri, within", "metric: relative_corruption_error, within"),
        ("max_error_rate: 1%", "max_error_rate: 2%"),
        (", max_unparsed_rate: 5%", ""),  # then a share within 5 % need not be shown
        ("{judge: point}", "{judge: point, alpha_pass: 0.01}"),
        ("max_unparsed_rate: 5%", "max_unparsed_rate: 6%"),
        ("tests: whole", "tests: partial"),
        ("samples: 500", "samples: 501"),
        ("samples: 500", "samples: 20%"),
        ("rules: whole", "rules: whole, blind_models: allow"),
        ("suites: [corruptions, patches]", "suites: [patches]"),
        ("model: m", "model: n"),
        ("model: m", "dataset: m"),
        (MEANING[MEANING.index("waivers:") :], ""),
        ("60pp", "61pp"),
        ("owner: jo", "owner: al"),
        ("T1", "T2"),
        ("2027-06-30", "2027-06-29"),
        ("version: 1\n", "version: 1\nmode: adaptive\n"),
    ],
)
def test_what_can_change_a_verdict_or_who_answers_for_it_changes_the_digest(load: Load, before: str, after: str) -> None:
    assert before in MEANING
    assert load(MEANING.replace(before, after, 1)).sha256 != load(MEANING).sha256


def test_the_digest_of_a_policy_stays_from_release_to_release() -> None:
    """Records, bundles and baselines hold it: keys that later releases added are left out at their defaults."""
    assert Policy().sha256 == "221531be624b382b74e9198c3cf81fd916a64dab3344f134d630962ab60d65ef"


def test_a_manifest_holds_the_policy_in_full(load: Load) -> None:
    content: Any = policy_content(load(MEANING))
    assert "replaced" not in content
    first, second = content["rules"]
    assert (first["id"], first["where"], first["unless"], first["reason"]) == (
        "one",
        {"level": ["low"]},
        {"setting": ["fog"]},
        "why",
    )
    assert (second["bound"], second["unless"]) == ("in 0.1..0.2", {})
    (waiver,) = content["waivers"]
    assert (waiver["owner"], waiver["cap"], waiver["expires"], waiver["where"]) == ("jo", "60 pp", "2027-06-30", {"model": ["m"]})


def test_a_rule_that_bounds_one_test_shares_its_risk_with_none(load: Load) -> None:
    policy = load("version: 1\nrules: [{id: drop, metric: accuracy_drop, max: 5pp}]\n")
    (rule,) = policy.rules
    assert policy.sharing(rule, TEST) == 1
    assert policy.sharing(rule, replace(TEST, strata=3)) == 3
    assert replace(policy, shared_by={rule.id: 5}).sharing(rule, TEST) == 5
    columns = replace(rule, where=replace(rule.where, category=("Art", "Law", "meta.camera=*", "meta.light=*")))
    assert policy.sharing(columns, replace(TEST, category="meta.light=dim", strata=3)) == 9  # each column has a third of the risk
    assert policy.sharing_budget(BUDGET_CELLS) == 2, "half of the risk is for data sets"
