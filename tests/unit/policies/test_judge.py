"""One rule against one estimate: the outcome, and the sentence that a failing test shows first."""

from __future__ import annotations

import bisect
import math
from dataclasses import replace
from datetime import date
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import WARNING, Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import ScoreTable
from pytest_vlmrobust.metrics.table import Scores
from pytest_vlmrobust.policies import (
    Bound,
    JudgedBy,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
)
from pytest_vlmrobust.policies.judge import (
    SamplesNeeded,
    _samples_in_words,
    early_verdict,
    judge_rule,
    outcome_of,
    samples_to_decide,
    undecided,
    verdict_of_part,
)
from tests.unit.evaluation.conftest import present

TODAY = date(2027, 6, 30)
POINT = Treatment(JudgedBy.POINT)
INTERVAL = Treatment(JudgedBy.INTERVAL)
CITED = "(rule drop-low, thresholds/default.yaml:14)"
OPEN = ", too few questions to tell if"
WARNS = Treatment(JudgedBy.POINT, tier=Tier.WARN)


def rule(bound: Bound | None = None, treatment: Treatment | None = None, metric: str = "accuracy_drop") -> Rule:
    return Rule("drop-low", metric, bound or Bound(high=0.05), "thresholds/default.yaml:14", treatment=treatment or POINT)


def waiver(cap: float = 0.2, expires: date = TODAY, name: str = "W1", ticket: str = "ROBUST-17") -> Waiver:
    return Waiver(name, "jane", "never enlarged", expires, "accuracy_drop", Scope(model=("m",)), cap, "t.yaml:30", ticket)


def judged(estimate: Estimate, of: Rule | None = None, *waivers: Waiver) -> Verdict:
    return judge_rule(of or rule(), estimate, waivers, TODAY)


def point(value: float) -> Estimate:
    return Estimate(value, 500)


def between(low: float, value: float, high: float) -> Estimate:
    return Estimate(value, 500, low, high, 0.99)


NO_GAIN = Estimate(math.nan, 5, valid=False, reason="no gain")


def test_the_first_line_of_a_breach() -> None:
    verdict = judged(point(0.124))
    assert verdict == Verdict(
        Outcome.FAIL,
        f"accuracy_drop 0.124 > 0.050 {CITED}",
        "accuracy_drop",
        "drop-low",
        "thresholds/default.yaml:14",
        "<= 0.05",
        ends=(0.05,),
        target="dataset",
    )


def test_a_value_rests_on_one_sample_or_more() -> None:
    assert [judged(Estimate(0.01, count)).outcome for count in (0, 1)] == [Outcome.INCONCLUSIVE, Outcome.PASS]


@pytest.mark.cases(
    ("bound", "value", "outcome", "text"),
    [
        (Bound(high=0.05), 0.012, Outcome.PASS, "0.012 <= 0.050"),
        (Bound(high=0.05), 0.30 - 0.25, Outcome.PASS, "0.050 <= 0.050"),
        (Bound(high=0.05), 0.0504, Outcome.FAIL, "0.0504 > 0.0500"),
        (Bound(high=0.0005), 0.0001, Outcome.PASS, "0.0001 <= 0.0005"),
        (Bound(low=0.8), 0.61, Outcome.FAIL, "0.610 < 0.800"),
        (Bound(low=0.8), 0.8, Outcome.PASS, "0.800 >= 0.800"),
        (Bound(-0.1, 0.3), 0.31, Outcome.FAIL, "0.310 > 0.300"),
        (Bound(-0.1, 0.3), -0.11, Outcome.FAIL, "-0.110 < -0.100"),
        (Bound(-0.1, 0.3), 0.0, Outcome.PASS, "0.000 in -0.100..0.300"),
    ],
)
def test_a_point_against_a_bound(bound: Bound, value: float, outcome: Outcome, text: str) -> None:
    verdict = judged(point(value), rule(bound))
    assert (verdict.outcome, verdict.reason) == (outcome, f"accuracy_drop {text} {CITED}")


@pytest.mark.cases(
    ("bound", "estimate", "outcome", "text"),
    [
        (Bound(high=0.05), between(0.01, 0.02, 0.05), Outcome.PASS, "0.020 [0.010, 0.050] <= 0.050"),
        (Bound(high=0.05), between(0.05, 0.07, 0.09), Outcome.INCONCLUSIVE, f"0.070 [0.050, 0.090]{OPEN} <= 0.050"),
        (Bound(high=0.05), between(0.01, 0.03, 0.051), Outcome.INCONCLUSIVE, f"0.030 [0.010, 0.051]{OPEN} <= 0.050"),
        (Bound(high=0.05), between(0.061, 0.092, 0.123), Outcome.FAIL, "0.092 [0.061, 0.123] > 0.050"),
        (Bound(low=0.8), between(0.8, 0.9, 0.95), Outcome.PASS, "0.900 [0.800, 0.950] >= 0.800"),
        (Bound(low=0.8), between(0.7, 0.9, 0.95), Outcome.INCONCLUSIVE, f"0.900 [0.700, 0.950]{OPEN} >= 0.800"),
        (Bound(low=0.8), between(0.5, 0.6, 0.7), Outcome.FAIL, "0.600 [0.500, 0.700] < 0.800"),
        (Bound(-0.1, 0.3), between(-0.1, 0.0, 0.3), Outcome.PASS, "0.000 [-0.100, 0.300] in -0.100..0.300"),
        (Bound(-0.1, 0.3), between(-0.2, 0.0, 0.4), Outcome.INCONCLUSIVE, f"0.000 [-0.200, 0.400]{OPEN} in -0.100..0.300"),
        (Bound(-0.1, 0.3), between(0.31, 0.4, 0.5), Outcome.FAIL, "0.400 [0.310, 0.500] > 0.300"),
        (Bound(-0.1, 0.3), between(-0.5, -0.4, -0.3), Outcome.FAIL, "-0.400 [-0.500, -0.300] < -0.100"),
        (Bound(high=0.05), between(0.01, 0.02, math.inf), Outcome.INCONCLUSIVE, f"0.020 [0.010, inf]{OPEN} <= 0.050"),
        (Bound(high=0.05), between(0.06, 0.07, math.inf), Outcome.FAIL, "0.070 [0.060, inf] > 0.050"),
    ],
)
def test_an_interval_against_a_bound(bound: Bound, estimate: Estimate, outcome: Outcome, text: str) -> None:
    verdict = judged(estimate, rule(bound, INTERVAL))
    reason, _, needed = verdict.reason.partition("; ")
    assert (verdict.outcome, reason, verdict.target) == (outcome, f"accuracy_drop {text} {CITED}", "population")
    assert bool(needed) is (outcome is Outcome.INCONCLUSIVE)


@pytest.mark.cases(
    ("estimate", "text"),
    [
        (Estimate(math.nan, 500), "is undefined"),
        (Estimate(math.inf, 500), "is undefined"),
        (Estimate(-math.inf, 500), "is undefined"),
        (Estimate(0.01, 0), "rests on no sample"),
        (Estimate(math.nan, 0, reason="the model did not load"), "rests on no sample: the model did not load"),
    ],
)
@pytest.mark.cases("treatment", [POINT, INTERVAL])
@pytest.mark.cases("bound", [Bound(high=0.05), Bound(low=-5.0), Bound(-5.0, 5.0)])
def test_missing_evidence_never_passes(estimate: Estimate, text: str, treatment: Treatment, bound: Bound) -> None:
    verdict = judged(estimate, rule(bound, treatment), waiver())
    assert (verdict.outcome, verdict.reason) == (Outcome.INCONCLUSIVE, f"accuracy_drop {text} {CITED}")


@pytest.mark.parametrize("ends", [(math.nan, math.nan), (0.0, math.nan), (math.nan, 0.02)])
def test_an_interval_rule_needs_the_interval(ends: tuple[float, float]) -> None:
    verdict = judged(between(ends[0], 0.01, ends[1]), rule(treatment=INTERVAL))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    why = "has no interval, and the rule judges the interval: more samples, or judge: point to judge the value"
    assert verdict.reason == f"accuracy_drop 0.010 {why} {CITED}"


def test_an_impossible_interval_decides_nothing() -> None:
    verdict = judged(between(0.9, 0.01, 0.02), rule(treatment=INTERVAL))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.reason == f"accuracy_drop has the impossible interval [0.9, 0.02] {CITED}"


def test_a_metric_that_does_not_apply_says_why() -> None:
    estimate = Estimate(math.nan, 500, valid=False, reason="visual gain 0.004 is not above chance")
    verdict = judged(estimate)
    assert verdict.outcome is Outcome.NOT_APPLICABLE
    assert verdict.reason == f"accuracy_drop does not apply: visual gain 0.004 is not above chance {CITED}"
    assert judged(Estimate(0.0, 500, valid=False)).reason == f"accuracy_drop does not apply: no reason given {CITED}"


@pytest.mark.cases(
    ("treatment", "estimate", "reason"),
    [
        (WARNS, point(0.124), "warning: accuracy_drop 0.124 > 0.050"),
        (WARNS, point(math.nan), "warning: accuracy_drop is undefined"),
        (WARNS, point(0.01), "accuracy_drop 0.010 <= 0.050"),
        (replace(POINT, on_inconclusive=OnInconclusive.WARN), point(math.nan), "not shown: accuracy_drop is undefined"),
        (Treatment(on_not_applicable=OnNotApplicable.WARN), NO_GAIN, "not shown: accuracy_drop does not apply: no gain"),
    ],
)
def test_what_only_warns_is_measured(treatment: Treatment, estimate: Estimate, reason: str) -> None:
    verdict = judged(estimate, rule(treatment=treatment), waiver())
    assert (verdict.outcome, verdict.reason, verdict.waiver) == (Outcome.MEASURED, f"{reason} {CITED}", "")


def test_a_rule_that_lets_the_undecided_pass_says_what_it_does_not_show() -> None:
    estimate = Estimate(0.04, 100, 0.0, 0.08, 0.90)
    open_rule = rule(treatment=Treatment(on_inconclusive=OnInconclusive.WARN))
    blocking, verdict = judged(estimate, rule(treatment=INTERVAL)), judged(estimate, open_rule, waiver())
    about = verdict.not_shown
    assert about is not None
    assert (verdict.outcome, verdict.waiver, blocking.not_shown) == (Outcome.MEASURED, "", None)
    assert (about.rule, about.outcome, about.bound, about.source) == (
        open_rule.id,
        Outcome.INCONCLUSIVE,
        "<= 0.05",
        open_rule.source,
    )
    assert verdict.reason == f"not shown: {about.reason}"
    assert (about.reason, about.samples_needed, about.samples_needed_least) == (
        blocking.reason,
        blocking.samples_needed,
        blocking.samples_needed_least,
    )
    assert (about.low, about.high) == pytest.approx(estimate.interval(0.90))
    assert about.beyond == pytest.approx(3 / 8)
    idle = judged(NO_GAIN, rule(treatment=Treatment(on_not_applicable=OnNotApplicable.WARN)))
    assert idle.not_shown is not None
    assert idle.not_shown.outcome is Outcome.NOT_APPLICABLE
    assert math.isnan(idle.not_shown.beyond)
    assert judged(estimate, rule(treatment=Treatment(tier=Tier.WARN, on_inconclusive=OnInconclusive.WARN))).not_shown is None


def test_a_warning_for_the_undecided_still_fails_a_breach() -> None:
    treatment = Treatment(JudgedBy.POINT, on_inconclusive=OnInconclusive.WARN, on_not_applicable=OnNotApplicable.WARN)
    assert judged(point(0.124), rule(treatment=treatment)).outcome is Outcome.FAIL


def test_an_active_waiver_signs_the_breach() -> None:
    verdict = judged(point(0.124), None, waiver())
    assert (verdict.outcome, verdict.waiver) == (Outcome.WAIVED, "W1")
    assert verdict.reason == (
        f"the bound is broken: accuracy_drop 0.124 > 0.050 {CITED}; "
        "waived by W1 (owner jane, ROBUST-17, until 2027-06-30): never enlarged"
    )
    assert "(owner jane, until" in judged(point(0.124), None, waiver(ticket="")).reason


def test_an_expired_waiver_is_named() -> None:
    verdict = judged(point(0.124), None, waiver(expires=date(2027, 6, 29)))
    assert (verdict.outcome, verdict.waiver) == (Outcome.FAIL, "")
    assert verdict.reason == f"accuracy_drop 0.124 > 0.050 {CITED}; waiver W1 of jane expired on 2027-06-29 (t.yaml:30)"


def test_a_waiver_covers_up_to_its_cap() -> None:
    assert judged(point(0.2), None, waiver(cap=0.2)).outcome is Outcome.WAIVED
    verdict = judged(point(0.2004), None, waiver(cap=0.2))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason.endswith("; waiver W1 of jane covers it only up to 0.2000, and it is 0.2004 (t.yaml:30)")


@pytest.mark.cases(
    ("bound", "value", "cap", "outcome"),
    [
        (Bound(low=0.8), 0.7, 0.6, Outcome.WAIVED),
        (Bound(low=0.8), 0.5, 0.6, Outcome.FAIL),
        (Bound(-0.1, 0.3), 0.4, 0.5, Outcome.WAIVED),
        (Bound(-0.1, 0.3), 0.6, 0.5, Outcome.FAIL),
        (Bound(-0.1, 0.3), -0.2, -0.3, Outcome.WAIVED),
        (Bound(-0.1, 0.3), -0.4, -0.3, Outcome.FAIL),
    ],
)
def test_the_cap_lies_on_the_side_of_the_breach(bound: Bound, value: float, cap: float, outcome: Outcome) -> None:
    assert judged(point(value), rule(bound), waiver(cap=cap)).outcome is outcome


@pytest.mark.parametrize(
    ("estimate", "state"),
    [
        (between(0.06, 0.12, 0.25), "broken: accuracy_drop 0.120 [0.060, 0.250] > 0.050"),
        (between(0.01, 0.04, 0.25), f"undecided with all samples: accuracy_drop 0.040 [0.010, 0.250]{OPEN} <= 0.050"),
        (between(0.01, 0.12, 0.25), f"undecided with all samples: accuracy_drop 0.120 [0.010, 0.250]{OPEN} <= 0.050"),
    ],
)
def test_the_cap_of_an_interval_rule_is_compared_with_the_interval(estimate: Estimate, state: str) -> None:
    verdict = judged(estimate, rule(treatment=INTERVAL), waiver(cap=0.25))
    assert verdict.outcome is Outcome.WAIVED
    assert verdict.reason.startswith(f"the bound is {state} {CITED}; ")
    alone, refused = judged(estimate, rule(treatment=INTERVAL)), judged(estimate, rule(treatment=INTERVAL), waiver(cap=0.24))
    assert refused.outcome is alone.outcome
    assert refused.reason.endswith("; waiver W1 of jane covers it only up to 0.240, and its interval reaches 0.250 (t.yaml:30)")


def test_a_cap_at_the_bound_makes_nothing_of_what_is_undecided() -> None:
    """The value keeps both; the interval keeps neither."""
    for cap in (0.05, 0.04, 0.06):
        verdict = judged(between(0.01, 0.03, 0.09), rule(treatment=INTERVAL), waiver(cap=cap))
        assert (verdict.outcome, verdict.waiver) == (Outcome.INCONCLUSIVE, "")


def test_a_cap_needs_the_risk_of_pass_and_not_that_which_tests_share() -> None:
    """The 90 % interval keeps the cap of 0.115; the interval of a failure among 133 tests is wider."""
    waived = judge_rule(rule(treatment=INTERVAL), normal(0.09, 0.015), [waiver(cap=0.115)], TODAY, tests=133)
    assert waived.outcome is Outcome.WAIVED
    strict = Treatment(alpha_pass=0.01)
    assert judge_rule(rule(treatment=strict), normal(0.09, 0.015), [waiver(cap=0.115)], TODAY).outcome is not Outcome.WAIVED


def test_one_waiver_covers_one_end_of_a_range() -> None:
    wide = between(-0.2, 0.1, 0.4)
    verdict = judged(wide, rule(Bound(-0.1, 0.3), INTERVAL), waiver(cap=0.5))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "covers it only up to -0.100, and its interval reaches -0.200" in verdict.reason


def test_one_good_waiver_is_enough_and_all_bad_ones_are_named() -> None:
    bad = [waiver(cap=0.1, name="W1"), waiver(expires=date(2020, 1, 1), name="W2")]
    assert judged(point(0.124), None, *bad, waiver(name="W3")).waiver == "W3"
    reason = judged(point(0.124), None, *bad).reason
    assert "waiver W1 of jane covers it only up to 0.100, and it is 0.124" in reason
    assert "waiver W2 of jane expired on 2020-01-01" in reason


def test_what_is_undecided_is_waived_as_well_and_what_passes_or_was_not_measured_is_not() -> None:
    verdict = judged(between(0.01, 0.04, 0.09), rule(treatment=INTERVAL), waiver())
    assert (verdict.outcome, verdict.waiver) == (Outcome.WAIVED, "W1")
    assert "0.040 [0.010, 0.090], too few questions to tell if <= 0.050" in verdict.reason
    assert judged(between(0.01, 0.3, 0.6), rule(treatment=INTERVAL), waiver()).outcome is Outcome.INCONCLUSIVE
    assert judged(point(0.01), None, waiver()).waiver == ""
    assert judged(point(math.nan), None, waiver()).outcome is Outcome.INCONCLUSIVE


def normal(value: float, error: float, n: int = 869) -> Estimate:
    """Returns an estimate whose interval at any level is the normal one."""

    def at(confidence: float) -> tuple[float, float]:
        half = NormalDist().inv_cdf((1 + confidence) / 2) * error
        return value - half, value + half

    return Estimate(value, n, *at(0.90), 0.90, at=at)


def test_pass_and_fail_err_at_risks_of_their_own() -> None:
    strict = Treatment(alpha_pass=0.01)
    estimate = normal(0.05 - 2 * 0.01, 0.01)  # two standard errors below the bound: enough at 5 %, not at 1 %
    assert judged(estimate, rule(treatment=INTERVAL)).outcome is Outcome.PASS
    assert judged(estimate, rule(treatment=strict)).outcome is Outcome.INCONCLUSIVE
    above = normal(0.05 + 2 * 0.01, 0.01)
    assert judged(above, rule(treatment=strict)).outcome is Outcome.FAIL
    assert judged(above, rule(treatment=Treatment(alpha_fail=0.01))).outcome is Outcome.INCONCLUSIVE


def test_tests_that_share_a_rule_share_the_risk_of_failing_and_not_that_of_passing() -> None:
    below, above = normal(0.05 - 1.7 * 0.01, 0.01), normal(0.05 + 3 * 0.01, 0.01)
    assert judge_rule(rule(treatment=INTERVAL), below, (), TODAY, tests=133).outcome is Outcome.PASS
    assert judge_rule(rule(treatment=INTERVAL), above, (), TODAY).outcome is Outcome.FAIL
    assert judge_rule(rule(treatment=INTERVAL), above, (), TODAY, tests=133).outcome is Outcome.INCONCLUSIVE
    alone = Treatment(multiplicity=Multiplicity.NONE)
    assert judge_rule(rule(treatment=alone), above, (), TODAY, tests=133).outcome is Outcome.FAIL
    plain = judge_rule(rule(treatment=INTERVAL), normal(0.3, 0.01), (), TODAY, tests=133)
    assert plain.reason == f"accuracy_drop 0.300 [0.266, 0.334] > 0.050, risk split over 133 tests {CITED}"
    shared, single = (judge_rule(rule(treatment=INTERVAL), normal(0.3, 0.01), (), TODAY, tests=count).reason for count in (2, 1))
    assert ("split over 2 tests" in shared, "split over" in single) == (True, False)


def test_the_interval_that_leaves_it_open_is_the_one_that_is_printed() -> None:
    """Of 0.080 +- 0.010 the 90 % interval lies above 0.050; at the risk of one among 133 tests it does not."""
    above = normal(0.05 + 3 * 0.01, 0.01)
    said = "accuracy_drop 0.080 [0.046, 0.114], too few questions to tell if <= 0.050, risk split over 133 tests"
    verdict = judge_rule(rule(treatment=INTERVAL), above, (), TODAY, tests=133)
    assert (verdict.outcome, verdict.reason.partition(" (rule")[0]) == (Outcome.INCONCLUSIVE, said)
    waived = judge_rule(rule(treatment=INTERVAL), above, [waiver()], TODAY, tests=133)
    reason = f"the bound is undecided with all samples: {said}"
    assert (waived.outcome, waived.reason.partition(" (rule")[0]) == (Outcome.WAIVED, reason)
    inside = judge_rule(rule(treatment=INTERVAL), normal(0.045, 0.01), (), TODAY, tests=133)
    assert inside.reason.startswith("accuracy_drop 0.045 [0.029, 0.061], too few questions to tell if <= 0.050 (rule")


def test_either_end_of_a_range_takes_half_of_the_risk_of_failing() -> None:
    above = normal(0.3 + 1.8 * 0.01, 0.01)
    assert judged(above, rule(Bound(high=0.3), INTERVAL)).outcome is Outcome.FAIL
    assert judged(above, rule(Bound(-0.1, 0.3), INTERVAL)).outcome is Outcome.INCONCLUSIVE


def test_the_undecided_says_how_many_samples_would_decide() -> None:
    """869 * ((1.644854 + z) * 0.0152 / 0.02)^2, z = 0 and 1.281552: the bound is 2 pp away, the standard error 1.52 pp."""
    verdict = judged(normal(0.03, 0.0152), rule(treatment=INTERVAL))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.samples_needed_least == math.ceil(869 * (1.6448536 * 0.0152 / 0.02) ** 2) == 1359
    assert verdict.samples_needed == math.ceil(869 * ((1.6448536 + 1.2815516) * 0.0152 / 0.02) ** 2) == 4299
    assert verdict.reason.endswith("; about 4,300 questions would decide it if this value is the true one")
    on_it = judged(normal(0.05, 0.01), rule(treatment=INTERVAL))
    assert on_it.samples_needed is None
    assert on_it.reason.endswith("; questions needed: the value lies on the bound, which no number of questions decides")


@pytest.mark.parametrize(
    ("value", "bound", "tests", "risk"),
    [
        (0.08, Bound(high=0.05), 133, 0.05 / 133),  # beyond the bound: all tests share the risk of failing
        (0.08, Bound(-0.2, 0.05), 133, 0.05 / 133 / 2),  # and each end has half of it
        (0.02, Bound(high=0.05), 133, 0.05),  # inside: no test shares the risk of passing
        (0.02, Bound(-0.01, 0.05), 133, 0.05),
    ],
)
def test_the_samples_needed_are_for_the_risk_that_the_test_has(value: float, bound: Bound, tests: int, risk: float) -> None:
    """869 * ((z + luck) * 0.02 / 0.03)^2, z of the risk: the bound is 3 pp away, the standard error 2 pp."""
    verdict = judge_rule(rule(bound, INTERVAL), normal(value, 0.02), (), TODAY, tests=tests)
    quantile = -NormalDist().inv_cdf(risk)
    assert verdict.samples_needed_least == math.ceil(869 * (quantile * 0.02 / 0.03) ** 2)
    assert verdict.samples_needed == math.ceil(869 * ((quantile - NormalDist().inv_cdf(0.1)) * 0.02 / 0.03) ** 2)


def test_of_a_share_of_settings_nobody_knows_how_many_samples_would_decide() -> None:
    verdict = judged(replace(normal(0.03, 0.0152), counts_settings=True), rule(treatment=INTERVAL))
    assert (verdict.outcome, verdict.samples_needed, verdict.samples_needed_least) == (Outcome.INCONCLUSIVE, None, None)
    assert verdict.reason.endswith("; questions needed: not known for a share of settings, which noise carries across its line")


def test_without_the_scores_a_wider_interval_stands_in_and_a_narrower_one_does_not() -> None:
    kept = Estimate(0.2, 869, 0.1, 0.3, 0.90)
    assert judge_rule(rule(treatment=INTERVAL), kept, (), TODAY).outcome is Outcome.FAIL
    verdict = judge_rule(rule(treatment=INTERVAL), kept, (), TODAY, tests=133)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "has no interval" in verdict.reason


@pytest.mark.cases("value", [0.0, 0.04, 0.05, 0.06, 0.2, math.nan])
@pytest.mark.cases("treatment", [POINT, INTERVAL])
def test_tightening_a_bound_never_turns_a_fail_into_a_pass(value: float, treatment: Treatment) -> None:
    estimate = between(value - 0.01, value, value + 0.01)
    order = {Outcome.PASS: 0, Outcome.INCONCLUSIVE: 1, Outcome.FAIL: 2}
    ranks = [order[judged(estimate, rule(Bound(high=high), treatment)).outcome] for high in (0.3, 0.1, 0.05, 0.03, -0.1)]
    assert ranks == sorted(ranks)


# Tests that stop before all samples are asked.


def shown(of: Rule, shows: dict[Bound, Outcome], *waivers: Waiver) -> Verdict | None:
    """Returns what follows from what is shown about bounds; of any other bound nothing is shown."""
    return early_verdict(of, lambda bound: shows.get(bound, Outcome.INCONCLUSIVE), waivers, TODAY, "shown by 9 of 99 answers")


CAP, BOUND = Bound(high=0.2), Bound(high=0.05)


def test_what_is_shown_about_a_bound_is_the_verdict() -> None:
    kept, broken = shown(rule(), {BOUND: Outcome.PASS}), shown(rule(), {BOUND: Outcome.FAIL})
    assert kept is not None
    assert (kept.outcome, kept.reason) == (Outcome.PASS, f"accuracy_drop <= 0.05: shown by 9 of 99 answers {CITED}")
    assert broken is not None
    assert (broken.outcome, broken.target) == (Outcome.FAIL, "dataset")
    assert broken.reason == f"accuracy_drop is not <= 0.05: shown by 9 of 99 answers {CITED}"
    assert shown(rule(), {}) is None


@pytest.mark.cases(
    ("bound", "cap", "outcome"),
    [
        (Outcome.PASS, Outcome.PASS, Outcome.PASS),
        (Outcome.FAIL, Outcome.PASS, Outcome.WAIVED),
        (Outcome.INCONCLUSIVE, Outcome.PASS, None),
        (Outcome.FAIL, Outcome.FAIL, Outcome.FAIL),
        (Outcome.FAIL, Outcome.INCONCLUSIVE, None),
        (Outcome.INCONCLUSIVE, Outcome.INCONCLUSIVE, None),
    ],
)
def test_with_a_waiver_a_part_decides_its_bound_and_then_its_cap(bound: Outcome, cap: Outcome, outcome: Outcome | None) -> None:
    verdict = shown(rule(), {BOUND: bound, CAP: cap}, waiver())
    assert (verdict and verdict.outcome) == outcome
    assert (verdict.waiver if verdict else "") == ("W1" if outcome is Outcome.WAIVED else "")


def test_an_expired_waiver_counts_for_nothing_in_a_part() -> None:
    verdict = shown(rule(), {BOUND: Outcome.FAIL, CAP: Outcome.PASS}, waiver(expires=date(2027, 6, 29)))
    assert verdict
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize(("outcome", "starts"), [(Outcome.PASS, "accuracy_drop <= 0.05"), (Outcome.FAIL, WARNING)])
def test_a_rule_that_warns_only_warns_of_a_part(outcome: Outcome, starts: str) -> None:
    warns = rule(treatment=WARNS)
    verdict = shown(warns, {BOUND: outcome}, waiver())
    assert verdict is not None
    assert (verdict.outcome, verdict.waiver) == (Outcome.MEASURED, "")
    assert verdict.reason.startswith(starts)
    assert shown(warns, {CAP: Outcome.PASS}, waiver()) is None


@pytest.mark.cases("treatment", [POINT, INTERVAL])
@pytest.mark.cases(("value", "outcome"), [(0.0, Outcome.PASS), (0.07, None), (0.2, Outcome.FAIL)])
def test_a_part_is_judged_by_its_interval_at_a_part_of_the_risk(
    treatment: Treatment, value: float, outcome: Outcome | None
) -> None:
    """With 0.0152 for a standard error, a tenth of 5 % takes 2.58 of them; a value of 0.07 lies 1.3 above the bound."""
    spread = NormalDist().inv_cdf(1.0 - 0.005) * 0.0152
    asked_of: list[float] = []

    def at(level: float) -> tuple[float, float]:
        asked_of.append(level)
        return value - spread, value + spread

    estimate = Estimate(value, 99, at=at)
    verdict = verdict_of_part(rule(treatment=treatment), estimate, (), TODAY, 1, share=0.1, progress="9 of 99 answers")
    assert (verdict and verdict.outcome) == outcome
    assert asked_of[0] == pytest.approx(1.0 - 2.0 * 0.05 * 0.1)
    if verdict:
        assert f"shown by 9 of 99 answers, {value:.3f} in them" in verdict.reason


@pytest.mark.parametrize(
    ("value", "risk"), [(0.0, 0.005), (0.5, 0.005 / 20)], ids=["kept, at that of PASS", "broken, at that of FAIL"]
)
def test_tests_that_share_a_rule_share_its_risk_of_fail_in_a_part(value: float, risk: float) -> None:
    """Only the interval that can decide is computed: the other one would cost as much."""
    asked_of: set[float] = set()

    def at(level: float) -> tuple[float, float]:
        asked_of.add(level)
        return 0.0, 1.0

    verdict_of_part(rule(treatment=INTERVAL), Estimate(value, 99, at=at), (), TODAY, 20, share=0.1, progress="")
    assert list(asked_of) == [pytest.approx(1.0 - 2.0 * risk)]


@pytest.mark.parametrize(
    "estimate",
    [Estimate(math.nan, 9, 0.0, 0.01, 0.99), Estimate(0.0, 9, valid=False, reason="no"), Estimate(0.0, 0, 0.0, 0.01, 0.99)],
)
def test_nothing_follows_from_a_part_without_a_value(estimate: Estimate) -> None:
    assert verdict_of_part(rule(), estimate, (), TODAY, 1, share=0.1, progress="") is None


def test_a_rule_that_was_not_judged_says_so() -> None:
    verdict = undecided(rule())
    assert (verdict.outcome, verdict.reason) == (
        Outcome.INCONCLUSIVE,
        f"accuracy_drop was not judged: the test stopped before that {CITED}",
    )
    assert undecided(rule(treatment=Treatment(tier=Tier.WARN))).outcome is Outcome.MEASURED
    let_pass = undecided(rule(treatment=Treatment(on_inconclusive=OnInconclusive.WARN)))
    assert (let_pass.outcome, let_pass.not_shown and let_pass.not_shown.reason) == (Outcome.MEASURED, verdict.reason)


@pytest.mark.cases("value", [math.nan, 0.01, 0.049, 0.06, 0.15, 0.3])
@pytest.mark.cases("width", [0.0, 0.02, math.nan])
@pytest.mark.cases("treatment", [POINT, INTERVAL, Treatment(JudgedBy.INTERVAL, tier=Tier.WARN)])
@pytest.mark.cases("waivers", [(), (waiver(),), (waiver(cap=0.07),), (waiver(expires=date(2027, 6, 29)),)])
def test_an_outcome_without_a_sentence_is_that_of_the_verdict(
    value: float, width: float, treatment: Treatment, waivers: tuple[Waiver, ...]
) -> None:
    """Those who judge thousands take a shorter way, which has to end where the other does."""
    estimate, about = between(value - width, value, value + width), rule(treatment=treatment)
    assert outcome_of(about, estimate, waivers, TODAY) is judge_rule(about, estimate, waivers, TODAY).outcome
    shared = judge_rule(about, estimate, waivers, TODAY, 40).outcome
    assert outcome_of(about, estimate, waivers, TODAY, 40) is shared


def test_questions_that_are_needed_are_one_number_with_their_images() -> None:
    needed, seen = SamplesNeeded(400, 911), Estimate(0.1, 60)
    assert _samples_in_words(needed, seen) == "about 920 questions would decide it if this value is the true one"
    assert _samples_in_words(needed, replace(seen, groups=10)).startswith("about 920 questions (160 images) would decide it if ")


@pytest.mark.parametrize(("most", "n", "hopeless"), [(110_000, 900, True), (15_000, 900, False), (900, 20, False)])
def test_a_value_almost_on_the_bound_is_not_decided_by_more_questions(most: int, n: int, *, hopeless: bool) -> None:
    said = _samples_in_words(SamplesNeeded(400, most), Estimate(0.1, n))
    assert ("almost on the bound, so more questions hardly help. Improve the model" in said) is hopeless


TAIL, LUCK = NormalDist().inv_cdf(0.95), NormalDist().inv_cdf(0.9)

laws = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def _estimate(value: float, low: float, high: float, n: int = 869) -> Estimate:
    return Estimate(value, n, low, high, 0.90)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.03, 0.015, 0.055), (1358, 4298, "")),
        ((0.07, 0.045, 0.5), (1358, 4298, "")),  # only the side towards the bound counts
        ((0.03, 0.015, 0.045), (869, 869, "")),  # decided already
    ],
)
def test_by_hand(ends: tuple[float, float, float], expected: tuple[int, int, str]) -> None:
    """Half-width 2.5 pp, 2 pp to the bound: 869 * 1.25^2 = 1357.8, times ((1.644854 + 1.281552) / 1.644854)^2 = 4297.8."""
    assert samples_to_decide(_estimate(*ends), 0.05) == expected


def test_inside_a_range_both_ends_must_be_left_behind() -> None:
    near, far = samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06), samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.19)
    assert samples_to_decide(_estimate(0.1, 0.0, 0.2), 0.06, 0.19) == near
    assert (near.least or 0) > (far.least or 0) > 869
    assert (near.most or 0) > (far.most or 0) > 869


def test_outside_a_range_the_nearer_end_counts() -> None:
    assert samples_to_decide(_estimate(0.25, 0.1, 0.4), -0.2, 0.2) == samples_to_decide(_estimate(0.25, 0.1, 0.4), 0.2)


@pytest.mark.cases(
    ("estimate", "reason"),
    [
        (_estimate(0.05, 0.02, 0.08), "the value lies on the bound, which no number of questions decides"),
        (_estimate(0.0501, 0.02, 0.08), "the value is at the bound: no practical number of questions decides it"),
        (_estimate(math.nan, math.nan, math.nan), "the value is undefined"),
        (Estimate(0.03, 869), "there is no interval"),
        (_estimate(0.03, 0.01, 0.06, n=0), "there is no sample"),
        (_estimate(0.03, 0.01, math.inf), "the interval has no end towards the bound"),
        (
            replace(_estimate(0.03, 0.015, 0.055), counts_settings=True),
            "not known for a share of settings, which noise carries across its line",
        ),
    ],
)
def test_what_cannot_be_told_comes_with_a_reason(estimate: Estimate, reason: str) -> None:
    assert samples_to_decide(estimate, 0.05) == (None, None, reason)


def test_one_end_that_cannot_be_left_behind_is_enough() -> None:
    assert samples_to_decide(_estimate(0.1, -math.inf, 0.2), 0.06, 0.19)[:2] == (None, None)


@pytest.mark.parametrize("ends", [(), (math.inf,), (0.1, math.nan)])
def test_a_bound_needs_finite_ends(ends: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="expected at least one, each a finite number"):
        samples_to_decide(_estimate(0.1, 0.0, 0.2), *ends)


@laws
@given(st.floats(0, 0.2), st.floats(0.001, 0.2), st.integers(1, 5000), st.floats(0, 0.4))
def test_with_that_many_the_scaled_interval_is_decisive(value: float, half: float, n: int, bound: float) -> None:
    needed = samples_to_decide(_estimate(value, value - half, value + half, n), bound)
    if needed.least is None or needed.most is None:
        assert abs(value - bound) <= 1e-9 or needed.reason.startswith("the value is at the bound")
    else:
        assert needed.most >= needed.least >= n
        assert half * math.sqrt(n / needed.least) <= abs(value - bound) + 1e-9


def test_the_two_counts_decide_as_often_as_they_say() -> None:
    """Means of standard normal values, 0.1 from the bound: the share of them whose 95 % bound keeps it, with each count."""
    normal = NormalDist()
    half = normal.inv_cdf(0.95) / math.sqrt(100)
    needed = samples_to_decide(_estimate(0.0, -half, half, 100), 0.1)
    for count, power in ((needed.least, 0.5), (needed.most, 0.9)):
        assert count is not None
        assert normal.cdf(0.1 * math.sqrt(count) - normal.inv_cdf(0.95)) == pytest.approx(power, abs=0.01)


def _table(n: int, rng: np.random.Generator, per_image: int = 1) -> ScoreTable:
    """Returns 0/1 scores: 85 % right, 20 % of them wrong under noise, and 35 % right without the image."""
    clean = np.repeat(rng.random(n // per_image) < 0.85, per_image) & (rng.random(n) < 0.97)
    noisy, blind = clean & (rng.random(n) < 0.8), rng.random(n) < 0.35
    return _times(1, clean.astype(np.float64), noisy.astype(np.float64), blind.astype(np.float64), per_image)


def _times(times: int, clean: Scores, noisy: Scores, blind: Scores, per_image: int) -> ScoreTable:
    clean, noisy, blind = (np.tile(scores, times) for scores in (clean, noisy, blind))
    images = [str(index // per_image) for index in range(clean.size)] if per_image > 1 else None
    return ScoreTable(clean, {"blur:low": noisy}, no_image=blind, groups=images)


@pytest.mark.cases("confidence", [0.90, 0.998])  # the second when 50 tests share the risk
@pytest.mark.cases("per_image", [1, 3])
@pytest.mark.cases("metric", ["clean_accuracy", "visual_gain", "harmful_flip_rate"])
def test_a_bound_at_the_ends_for_eight_times_the_answers_needs_eight_times_as_many(
    metric: str, per_image: int, confidence: float
) -> None:
    """The same answers, each on eight images, have the same value and the interval of eight times as many samples."""
    setting = "blur:low" if metric == "harmful_flip_rate" else None
    table = _table(480, np.random.default_rng(0), per_image)
    scores = table.clean, table.by_setting["blur:low"], present(table.no_image)
    some = metrics.estimate(metric, table, setting, confidence)
    many = metrics.estimate(metric, _times(8, *scores, per_image), setting, confidence)
    assert many.value == pytest.approx(some.value)
    tail = NormalDist().inv_cdf((1.0 + confidence) / 2.0)
    for end in (many.low, many.high):
        needed = samples_to_decide(some, end)
        assert needed.least == pytest.approx(8 * 480, rel=0.1)
        assert needed.most == pytest.approx(8 * 480 * ((tail + LUCK) / tail) ** 2, rel=0.1)


@pytest.mark.parametrize("n", [60, 128, 300])
def test_three_lost_answers_are_a_small_count_and_no_event_that_never_occurred(n: int) -> None:
    """Its exact interval grows in steps with the level, which no smooth curve fits: the lower end of 8 times as many tells."""

    def seen(times: int) -> Estimate:
        lost = (np.arange(times * n) >= 3 * times).astype(np.float64)
        return metrics.estimate("accuracy_drop", ScoreTable(np.ones(times * n), {"blur:low": lost}), "blur:low")

    needed = samples_to_decide(seen(1), seen(8).low)
    assert needed.least == pytest.approx(8 * n, rel=0.15)
    assert present(needed.most) > 1.5 * present(needed.least)


@pytest.mark.parametrize("bound", [0.87, 0.93])
def test_a_share_is_decided_as_often_as_the_counts_say(bound: float) -> None:
    """Exact: the binomial probability of as many right answers as keep, or break, a lower bound."""

    def seen(right: int, n: int) -> Estimate:
        return metrics.estimate("clean_accuracy", ScoreTable((np.arange(n) < right).astype(np.float64), {}))

    def decisive(right: int, n: int) -> bool:
        return seen(right, n).high < bound if bound > 0.9 else seen(right, n).low >= bound

    needed = samples_to_decide(seen(180, 200), bound)
    for n, power in ((present(needed.least), 0.5), (present(needed.most), 0.9)):
        first = bisect.bisect_left(range(n), True, key=lambda right: decisive(right, n) is (bound < 0.9))
        decided = binom.cdf(first - 1, n, 0.9) if bound > 0.9 else binom.sf(first - 1, n, 0.9)
        assert decided == pytest.approx(power, abs=0.05)


def _shaped(fixed: float, chance: float, square: float, n: int = 100) -> Estimate:
    """Returns the estimate 0 whose ends are ``fixed + chance z + square z^2`` away."""

    def at(level: float) -> tuple[float, float]:
        z = NormalDist().inv_cdf((1.0 + level) / 2.0)
        half = fixed + chance * z + square * z**2
        return -half, half

    return Estimate(0.0, n, *at(0.90), 0.90, at=at)


@pytest.mark.cases("square", [0.02, 0.0, -0.02])
@pytest.mark.cases("side", [-1, 1])
def test_chance_shrinks_with_the_root_and_its_square_with_the_sample_size(square: float, side: int) -> None:
    """With x the root of the part of the samples at hand: ``square TAIL^2 x^2 + chance (TAIL + luck) x = distance``."""
    chance, distance = 0.2, 0.05
    needed = samples_to_decide(_shaped(0.0, chance, square), side * distance)
    for count, luck in ((needed.least, 0.0), (needed.most, LUCK)):
        roots = np.roots([square * TAIL**2, chance * (TAIL + luck), -distance])
        assert count == pytest.approx(100 / min(roots[roots > 0.0]) ** 2, abs=1.0)


def test_a_constant_part_moves_the_end_and_adds_to_the_spread() -> None:
    """One more sample ``fixed * n`` off: with y = n / count, the variance is ``(chance^2 - fixed^2) y + (fixed y)^2``."""
    fixed, chance, distance = 0.1, 0.3, 0.06
    needed = samples_to_decide(_shaped(fixed, chance, 0.0), distance)
    spread = math.sqrt(chance**2 - fixed**2)
    squared = [fixed**2 * (TAIL**2 - 1.0), TAIL**2 * spread**2 + 2.0 * fixed * distance, -(distance**2)]
    assert needed.least == pytest.approx(100 / max(np.roots(squared)), abs=1.0)
    y = 100 / present(needed.most)
    assert fixed * y + TAIL * math.hypot(spread * math.sqrt(y), fixed * y) + LUCK * spread * math.sqrt(y) == pytest.approx(
        distance, rel=1e-3
    )


@pytest.mark.parametrize("fixed", [0.0, 0.25])
def test_an_event_that_never_occurred_has_no_luck(fixed: float) -> None:
    """Its end shrinks with the sample size itself, and every sample repeats it: both counts are equal."""
    never = _shaped(fixed, 0.0, 0.1)
    assert samples_to_decide(never, never.high / 16)[:2] == (1600, 1600)


def test_a_whole_number_of_samples_is_not_one_more() -> None:
    assert samples_to_decide(_estimate(0.0, -0.5, 0.5, 100), 0.125).least == 1600


def test_the_largest_practical_number_is_a_million() -> None:
    """869 at hand; the distance at which ``most`` is a million, and 0.001 % less."""
    at_most = 0.025 * (TAIL + LUCK) / TAIL * math.sqrt(869 / 999_999.5)
    assert samples_to_decide(_estimate(0.0, -0.025, 0.025), at_most).most == 1_000_000
    assert samples_to_decide(_estimate(0.0, -0.025, 0.025), at_most * 0.99999).most is None


@pytest.mark.cases("halves", [(0.1, math.inf), (math.nan, 0.05), (0.1, 0.2), (0.3, 0.1), (0.1, 0.0), (0.19, 0.02)])
def test_ends_that_make_no_sense_at_other_levels_leave_only_chance(halves: tuple[float, float]) -> None:
    """``halves`` are half-widths at a half and a quarter of the quantile; the last fits only a curve that turns round."""

    def at(level: float) -> tuple[float, float]:
        half = halves[level < 0.5]
        return -half, half

    odd = Estimate(0.0, 100, -0.2, 0.2, 0.90, at=at)
    assert samples_to_decide(odd, 0.05) == samples_to_decide(replace(odd, at=None), 0.05)
