"""Simulated runs are judged as real ones are."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import numpy as np
import pytest

from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.power import profiles, published
from pytest_vlmrobust.evaluation.power.grouping import Grouping
from pytest_vlmrobust.evaluation.power.simulation import Simulation, plan, shift, values
from pytest_vlmrobust.policies import Bound, Coverage, JudgedBy, OnInconclusive, Policy, Rule, Scope, Tier, Treatment, load_policy
from pytest_vlmrobust.shipped import shipped

TODAY = date(2030, 1, 1)
FEW = [f"{name}:{level}" for name in ("glass_blur", "fog", "jpeg_compression", "upsample") for level in ("low", "mid", "high")]


def on_few_settings(truth: profiles.Profile) -> profiles.Profile:
    """Returns a model that is asked under 12 settings in place of 133, for what does not depend on their number."""
    return replace(truth, drops={name: truth.drops[name] for name in FEW})


NOTHING = on_few_settings(published.nothing_lost())


def rule(metric: str, low: float = -np.inf, high: float = np.inf, **facts: object) -> Rule:
    return Rule(facts.pop("id", metric), metric, Bound(low, high), "p.yaml:1", **facts)  # type: ignore[arg-type]


def policy(*rules: Rule, suites: tuple[str, ...] = ()) -> Policy:
    return Policy(rules=rules, coverage=Coverage(suites=suites))


def simulated(truth: profiles.Profile, *rules: Rule, n: int = 300, runs: int = 30):  # type: ignore[no-untyped-def]
    return Simulation(policy(*rules), truth, TODAY).run(n, runs, np.random.default_rng(0))


def test_a_model_far_inside_is_go_and_one_far_outside_no_go() -> None:
    inside = simulated(NOTHING, rule("mean_drop", high=0.10), runs=5)
    assert inside.share(Decision.GO) == 1.0
    worse = shift(published.typical(), "mean_drop", 0.20)
    assert simulated(worse, rule("mean_drop", high=0.10), runs=5).share(Decision.NO_GO) == 1.0


def test_at_the_bound_a_verdict_is_wrong_about_as_often_as_it_says() -> None:
    """A proportion of .85 at the bound of .85: each of PASS and FAIL in 5 % of runs; 200 runs have an error of 1.5 %."""
    at_the_bound = replace(NOTHING, clean=0.85)
    shares = simulated(at_the_bound, rule("clean_accuracy", low=0.85), n=853, runs=200).outcomes["clean_accuracy"]
    assert shares[Outcome.PASS] == pytest.approx(0.05, abs=0.045)
    assert shares[Outcome.FAIL] == pytest.approx(0.05, abs=0.045)


def test_risk_is_shared_by_all_tests_that_a_run_plans() -> None:
    planned = plan(policy(rule("accuracy_drop", high=0.1, where=Scope(level=("low",)))), published.nothing_lost())
    assert planned.policy.shared_by["accuracy_drop"] == 42


EVERY = (
    rule("accuracy_drop", high=0.05, where=Scope(level=("low",)), id="drop-low"),
    rule("accuracy_drop", high=0.12, id="drop"),
    rule("relative_corruption_error", high=0.3),
    rule("relative_corruption_error", high=0.8, id="only-breaches", treatment=Treatment(on_inconclusive=OnInconclusive.WARN)),
    rule("harmful_flip_rate", high=0.1),
    rule("baseline_drop", high=0.04),
    rule("drop_increase", high=0.06),
    rule("worst_case_drop", high=0.4),
    rule("worst_at_low", high=0.1),
)


class Plain(Simulation):
    """Judges every test of every rule by its real interval."""

    def _decisive(self, rule, tests, tables, known):  # type: ignore[no-untyped-def]
        return [self._outcome(rule, test, self._estimate(suite, test, tables, known), tables[suite]) for suite, test in tests]


@pytest.mark.parametrize(
    ("truth", "n"),
    [
        (published.typical(), 300),
        (published.published_profiles()["MMMU-Pro/Qwen3-VL-4B"], 200),
        (replace(published.typical(), grouping=Grouping.equal(300, 80, 0.7)), 300),
        (replace(published.published_profiles()["MMBench/Molmo2-8B"], grouping=Grouping.equal(150, 40, 0.4)), 150),
    ],
    ids=["typical", "little-gain", "in-groups", "in-few-groups"],
)
def test_what_is_not_judged_says_nothing_else_than_what_is(truth: profiles.Profile, n: int) -> None:
    """Of many settings at most two are judged, and by p-values: judged one by one, by their intervals, they conclude the same."""
    profile = replace(on_few_settings(truth), churn=0.01, lost=0.02)
    rng, seen = np.random.default_rng(0), set()
    quick, plain = (kind(policy(*EVERY), profile, TODAY) for kind in (Simulation, Plain))
    for _ in range(2):
        tables = profile.draw(n, ("corruptions",), rng)
        outcomes = quick.outcomes(tables)
        assert outcomes == plain.outcomes(tables)
        seen |= set(outcomes.values())
    assert {Outcome.FAIL, Outcome.INCONCLUSIVE} <= seen


def test_a_category_of_which_nothing_was_drawn_has_no_say() -> None:
    """Of a file with 50 samples in each of two categories two are drawn, about half of the time of one category."""
    labels = ("easy",) * 50 + ("hard",) * 50
    truth = replace(NOTHING, grouping=Grouping(np.arange(100), 0.5, labels))
    drop = rule("accuracy_drop", high=1.0, where=Scope(category=("*",)), treatment=Treatment(judge=JudgedBy.POINT))
    shares = simulated(truth, drop, n=2, runs=20).outcomes["accuracy_drop"]
    assert shares == {Outcome.PASS: 1.0}
    absent = replace(drop, where=Scope(category=("hard",)))
    assert simulated(truth, absent, n=1, runs=20).outcomes["accuracy_drop"].keys() == {Outcome.PASS, Outcome.NOT_APPLICABLE}


def test_a_model_that_never_looks_is_not_above_the_commonest_letter() -> None:
    blind = replace(NOTHING, clean=0.25, blind=0.25)
    above = simulated(blind, rule("accuracy_above_chance", low=0.05), n=853, runs=20)
    assert above.share(Decision.NO_GO) > 0.9  # its true value is -2 pp, with a standard error of 2 pp
    assert simulated(NOTHING, rule("accuracy_above_chance", low=0.05), runs=5).share(Decision.GO) == 1.0


@pytest.mark.parametrize("name", ["options", "wording", "typographic", "confident"])
def test_a_model_without_faults_is_go_by_each_policy_of_questions_and_confidence(name: str) -> None:
    shipped_policy = load_policy([shipped("thresholds") / f"{name}.yaml"], known_metrics=known_metrics())
    simulation = Simulation(shipped_policy, NOTHING, TODAY)
    assert not simulation.planned.left_out
    assert simulation.run(600, 2, np.random.default_rng(3)).share(Decision.GO) == 1.0


def test_rules_that_are_not_simulated_are_said() -> None:
    rules = (
        rule("mean_drop", high=0.1),
        rule("clean_accuracy", low=0.5, id="warns", treatment=Treatment(tier=Tier.WARN)),
        rule("clean_accuracy", low=0.5, id="other", where=Scope(dataset=("MMMU*",))),
        rule("baseline_drop", high=0.1),
        rule("identity_drop", high=0.1),
    )
    more = (
        rule("fixation_rate", high=0.5, id="pointing", where=Scope(dataset=("*.pointing",))),
        rule("fixation_rate", high=0.5, id="elsewhere", where=Scope(dataset=("MMMU*",))),
        rule("accuracy_drop", high=0.1, id="of-a-part", where=Scope(category=("ocr",))),
        rule("corpus_score", low=0.1),
        rule("pcri_matched", low=-0.1, id="another-suite"),
    )
    planned = plan(policy(*rules, *more, suites=("corruptions", "observatory")), NOTHING)
    assert set(planned.tests) == {"mean_drop"}
    assert planned.left_out == {
        "identity_drop": "is about a suite that is not simulated here",
        "pointing": "is about a suite that is not simulated here",
        "of-a-part": "is about the category ocr, and nothing-lost has none",
        "corpus_score": "the number that a benchmark publishes for all of its answers is not simulated",
        "observatory": "profiles answer questions; models at the Observatory's tasks are simulated where a policy asks for no "
        "other suite",
    }
    assert planned.given == "given that identity_drop, pointing, of-a-part, corpus_score are kept"
    assert set(planned.idle) == {"warns", "other", "baseline_drop", "elsewhere", "another-suite"}
    assert planned.shortfalls == (
        "rule other meets no test, and coverage asks that all rules do",
        "rule baseline_drop asks for --vlm-baseline",
    )


MATCHED = rule("pcri_matched", low=-0.1)


@pytest.mark.cases(
    ("name", "outcome"),
    [
        ("neutral-independent", Outcome.PASS),
        ("neutral-identical", Outcome.PASS),
        ("neutral-guesses", Outcome.PASS),
        ("neutral-unshaken", Outcome.INCONCLUSIVE),  # docs/patches.md: what luck may explain is never FAIL, nor PASS
        ("needs-context", Outcome.PASS),
        ("distracted", Outcome.FAIL),
    ],
)
def test_patches_are_compared_with_as_many_attempts(name: str, outcome: Outcome) -> None:
    truth = published.context_profile(name)
    simulation = Simulation(policy(MATCHED, suites=("patches",)), truth, TODAY)
    assert [test.setting for _, test in simulation.planned.tests["pcri_matched"]] == ["patches:2", "patches:3"]
    assert simulation.run(853, 10, np.random.default_rng(0)).outcomes["pcri_matched"].get(outcome, 0.0) >= 0.9


def test_several_models_all_have_to_be_go() -> None:
    single = simulated(replace(NOTHING, clean=0.87), rule("clean_accuracy", low=0.85), n=853, runs=100)
    three = single.of_models(3)
    assert three.share(Decision.GO) == pytest.approx(single.share(Decision.GO) ** 3)
    assert sum(three.decisions.values()) == pytest.approx(1.0)


def test_more_samples_decide_and_the_range_says_how_many() -> None:
    """By the normal approximation (1.645 + 0.842)^2 * .87 * .13 / .02^2 = 1,748 samples decide .87 against .85."""
    simulation = Simulation(policy(rule("clean_accuracy", low=0.85)), replace(NOTHING, clean=0.87), TODAY)
    low, high = simulation.samples_to_decide(400, 60, np.random.default_rng(0))
    assert high is not None
    assert 700 <= low < high <= 3600


def test_a_metric_of_categories_can_be_shifted() -> None:
    moved = shift(published.typical(), "worst_category_drop", 0.1)
    (table,) = moved.exact(4000, ("corruptions",)).values()
    assert values("worst_category_drop", table, "") == pytest.approx(0.1, abs=0.005)
