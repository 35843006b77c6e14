"""What policies ask of a whole run; every sentence is tested through a run as well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.backends.generation import TEXT_INSTEAD
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.run_scope import RunScope
from pytest_vlmrobust.evaluation.judge.requirements import (
    Missed,
    PolicyUse,
    Requirements,
    WaiverState,
    WaiverUse,
    asks_for_all_samples,
)
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics, refuse_unknown_scopes
from pytest_vlmrobust.policies import MetricKey, Policy, Rule, parse_policy

RULES = """\
version: 1
rules:
  - {id: drop, metric: accuracy_drop, max: 5pp}
"""
MODELS = {"m": ModelRef("m", "scripted", "m")}


def policy(more: str = "") -> Policy:
    return parse_policy(["p.yaml"], [f"{RULES}{more}".encode()], known_metrics=known_metrics(), ambiguous={})


def requirements(judged: Policy, *records: Record, **facts: Any) -> Requirements:
    facts = {"planned": 1, "selected": 1, "narrowed": "", "today": date(2026, 1, 1), "has_baseline": False, **facts}
    return Requirements({"m": judged}, facts.pop("models", MODELS), records or [record()], **facts)


def record(outcome: Outcome = Outcome.PASS) -> Record:
    measure = Measure("accuracy_drop", 0.01, n=100, outcome=outcome, rule="drop")
    return Record(
        test="cell",
        id="m-d-clean",
        model="m",
        dataset="d",
        setting="clean",
        outcome=outcome,
        measures=(measure, Measure("gain_over_blind", 0.5, 0.4, 0.6, n=100)),
        nodeid="test_a.py::t[fog]",
    )


def served(revision: str) -> list[str]:
    models = {"m": ModelRef("m", "openai", "http://a/v1#org/m", revision)}
    return requirements(policy(), models=models).shortfalls


def test_a_served_model_needs_a_declared_revision() -> None:
    (shortfall,) = served("")
    assert "m is on a server, where nobody can see which weights answer, and GO requires a declared revision" in shortfall
    assert "openai:http://a/v1#org/m@REVISION" in shortfall
    assert served("2024-06-01") == []


def test_a_complete_run_lacks_nothing() -> None:
    assert requirements(policy()).shortfalls == []
    assert requirements(policy()).warnings == []


@pytest.mark.cases(
    ("facts", "whole", "sentence"),
    [
        ({"planned": 3}, False, "2 of 3 tests were not selected, and GO requires all (coverage tests: whole, built-in default)"),
        ({"narrowed": "--lf"}, False, "--lf may leave out files, and GO requires all (coverage tests: whole, built-in default)"),
        ({"samples_asked": lambda: {"d": (5, 9)}}, True, "5 of 9 samples of d were asked, and GO requires 9"),
        ({"planned": 3, "selected": 3}, True, ""),
        ({}, True, ""),
    ],
)
def test_what_was_left_out_is_a_shortfall(facts: Mapping[str, Any], whole: bool, sentence: str) -> None:
    required = requirements(policy(), **facts)
    assert required.is_whole is whole
    if sentence:
        (shortfall,) = required.shortfalls
        assert shortfall.startswith(sentence)


WAIVER = "waivers: [{{id: W, owner: jo, reason: known, expires: 2999-01-01, metric: accuracy_drop, cap: 10pp, where: {}}}]\n"


@pytest.mark.parametrize(
    ("where", "coverage", "needless"),
    [
        ("{category: odd}", "", True),
        ("{setting: snow}", "", False),  # a suite that has snow may have been left out
        ("{setting: snow}", "coverage: {suites: [a]}\n", True),
        ("{model: other, setting: snow}", "coverage: {suites: [a]}\n", False),
    ],
)
def test_a_waiver_that_can_apply_to_nothing_is_a_shortfall(where: str, coverage: str, needless: bool) -> None:
    required = requirements(policy(WAIVER.format(where) + coverage))
    shortfalls = [sentence for sentence in required.shortfalls if "waiver W" in sentence]
    warned = [sentence for sentence in required.warnings if "1 of 1 waiver covers no test of m" in sentence]
    assert (len(shortfalls), len(warned)) == ((1, 0) if needless else (0, 1))


def test_samples_that_were_not_asked_are_an_allowance_where_a_policy_lets_that_pass() -> None:
    lenient = policy("coverage: {samples: partial}\n")
    own_run = requirements(lenient, samples_asked=lambda: {"d": (30, 128)})
    assert own_run.shortfalls == []
    (allowed,) = own_run.allowances
    assert str(allowed).startswith("30 of 128 samples of d were asked (allowed by ")
    assert str(allowed).endswith(", coverage samples: partial)")
    assert asks_for_all_samples([policy()])
    assert not asks_for_all_samples([lenient])


def test_a_rule_that_met_no_test_is_a_shortfall_of_a_complete_run_alone() -> None:
    about_art = policy("  - {id: art, metric: accuracy_drop, max: 5pp, where: {setting: snow*}}\n")
    (shortfall,) = requirements(about_art).shortfalls
    assert shortfall.startswith("rule art (p.yaml:4) applied to no test, though this run measures accuracy_drop: ")
    assert requirements(about_art, selected=2, planned=2).shortfalls == []  # a test is missing, and that is said
    assert requirements(about_art, record(outcome=Outcome.ERROR)).shortfalls == []


def test_a_run_that_was_stopped_is_not_asked_for_what_its_other_tests_would_have_met() -> None:
    """Its tests that left no verdict are reported; that rules and waivers met none of them is no news."""
    about_summaries = policy("  - {id: worst, metric: worst_case_drop, max: 5pp}\n" + WAIVER.format("{setting: snow}"))
    whole, stopped = requirements(about_summaries), requirements(about_summaries, planned=2, selected=2)
    assert any("none applied to a test" in said for said in whole.shortfalls)
    assert any("covers no test" in said for said in whole.warnings)
    assert stopped.shortfalls == []
    assert not [said for said in stopped.warnings if "no test" in said]


def test_rules_on_summaries_that_met_none_are_news_where_no_test_was_left_out_or_some_may_be() -> None:
    idle = "  - {id: worst, metric: worst_case_drop, max: 5pp}\n"

    def said(judged: Policy, **facts: Any) -> int:
        return sum("none applied to a test" in sentence for sentence in requirements(judged, **facts).shortfalls)

    assert said(policy(idle)) == 1
    assert said(policy(idle), planned=3) == 0  # that tests are lacking is said
    assert said(policy(f"{idle}coverage: {{tests: partial}}\n"), planned=3) == 1


def test_what_another_model_was_asked_shows_nothing_about_this_one() -> None:
    other = replace(record(), model="n", dataset="e", id="n-e-clean", measures=record().measures[:1])
    assert requirements(policy(), record(), other).shortfalls == []


def test_a_rule_about_an_earlier_run_needs_one() -> None:
    relative = policy("  - {id: since, metric: baseline_drop, max: 5pp}\n")
    (shortfall,) = requirements(relative).shortfalls
    assert shortfall.startswith("rule since (p.yaml:4) is not applicable: baseline_drop compares with an earlier run, and no")
    assert requirements(relative, has_baseline=True).shortfalls == []


@pytest.mark.cases(
    ("value", "low", "judged", "same", "shown"),
    [
        (0.10, 0.04, "interval", None, True),
        (0.10, -0.01, "interval", 0.5, False),
        (0.10, 0.0, "interval", None, False),
        (0.10, math.nan, "interval", None, False),
        (0.10, -0.01, "point", 0.5, True),
        (0.10, -0.01, "point", None, False),  # fewer than ten questions, or one picture for all
        (0.10, -0.01, "point", math.nan, False),  # sampled answers
        (0.10, 0.04, "point", None, True),
        (0.10, 0.04, "point", math.nan, True),
        (0.0, -0.01, "point", 0.5, False),
        (math.nan, math.nan, "point", 0.5, False),
    ],
)
def test_pictures_that_are_not_shown_to_matter_are_a_shortfall(
    value: float, low: float, judged: str, same: float | None, shown: bool
) -> None:
    judging = f"defaults: {{judge: {judged}}}\n"
    gain = Measure("gain_over_blind", value, low, 0.2, n=100)
    blind = Record(test="cell", id="m-d-no_image", model="m", dataset="d", setting="no_image", measures=(gain,))
    reason = "not probed: 12 have a sampled answer" if same is not None and math.isnan(same) else ""
    probed = [] if same is None else [Measure("same_when_exchanged_rate", same, n=12, reason=reason)]
    clean = replace(record(), measures=(*record().measures, *probed))
    shortfalls = requirements(policy(judging), clean, blind, planned=2, selected=2).shortfalls
    expected = [] if shown else ["m is not shown to look at the images of d"]
    assert [sentence.partition(":")[0] for sentence in shortfalls] == expected
    allowed = policy(f"{judging}coverage: {{blind_models: allow}}\n")
    lenient = requirements(allowed, clean, blind, planned=2, selected=2)
    assert lenient.shortfalls == []
    assert [allowance.fact.partition(":")[0] for allowance in lenient.allowances] == expected
    assert {allowance.allowed_by for allowance in lenient.allowances} <= {"p.yaml:5, coverage blind_models: allow"}


@pytest.mark.parametrize(
    ("reason", "said"), [("", "bring, and no blocking"), ("no answer scored", "bring: no answer scored, and no bl")]
)
def test_a_gain_that_is_not_known_is_no_number(reason: str, said: str) -> None:
    gain = Measure("gain_over_blind", math.nan, reason=reason)
    blind = Record(test="cell", id="m-d-no_image", model="m", dataset="d", setting="no_image", measures=(gain,))
    (shortfall,) = requirements(policy(), record(), blind, planned=2, selected=2).shortfalls
    assert f"the images of d: it is not known what they {said}" in shortfall
    assert "nan" not in shortfall


@pytest.mark.parametrize(
    ("same", "reason", "why"),
    [
        (0.9, "", ""),
        (1.0, "", "it answers 12 questions the same with the images of others"),
        (0.9, "warning: chance", "other images change no more of its answers than chance explains"),
        (math.nan, "not probed: lost", "what other images change was not probed: lost"),
        (math.nan, "not probed: 12 have a sampled answer", ""),
    ],
)
@pytest.mark.parametrize("more", ["", "  - {id: gain, metric: visual_gain, min: 0pp}\n"], ids=["drops", "gain"])
def test_answers_that_other_pictures_do_not_change_are_a_shortfall_however_sure_the_gain(
    same: float, reason: str, why: str, more: str
) -> None:
    """Without pictures a model may say that it sees none, and be worse than with one that it does not look at."""
    probed = Measure("same_when_exchanged_rate", same, n=12, reason=reason)
    clean = replace(record(), measures=(*record().measures, probed))
    gain = Measure("visual_gain", 0.5, 0.4, 0.6, n=100, outcome=Outcome.PASS, rule="gain")
    sweep = Record(test="sweep", id="m-d-visual_gain", model="m", dataset="d", outcome=Outcome.PASS, measures=(gain,))
    records = [clean, *([sweep] if more else [])]
    counts = {"planned": len(records), "selected": len(records)}
    shortfalls = requirements(policy(more), *records, **counts).shortfalls
    said = f"m is not shown to look at the images of d: {why}, and GO requires that images matter"
    assert [sentence.partition(" (coverage")[0] for sentence in shortfalls] == ([said] if why else [])
    assert requirements(policy(f"{more}coverage: {{blind_models: allow}}\n"), *records, **counts).shortfalls == []


def test_a_whole_run_without_a_test_of_clean_shows_nothing_of_other_pictures() -> None:
    blind = replace(record(), setting="no_image")
    (said,) = requirements(policy(), blind).shortfalls
    assert "no test has the setting clean, beside which a few questions are asked with the images of others" in said
    assert requirements(policy("coverage: {tests: partial}\n"), blind, planned=2).shortfalls == []


def test_a_whole_run_that_measures_nothing_about_looking_is_told_how() -> None:
    silent = replace(record(), setting="fog:mid", measures=record().measures[:1])
    (shortfall,) = requirements(policy(), silent).shortfalls
    assert "no test has the setting clean or no_image, beside which that is measured" in shortfall
    assert requirements(policy("coverage: {tests: partial, rules: partial}\n"), silent, planned=3).shortfalls == []
    assert requirements(policy("coverage: {blind_models: allow}\n"), silent).shortfalls == []


@given(
    planned=st.integers(0, 4),
    selected=st.integers(0, 4),
    narrowed=st.sampled_from(["", "--lf"]),
    outcomes=st.lists(st.sampled_from(Outcome), max_size=4),
)
def test_a_smaller_selection_never_improves_the_decision(
    planned: int, selected: int, narrowed: str, outcomes: Sequence[Outcome]
) -> None:
    records = [replace(record(), nodeid=f"test_a.py::t[{place}]", outcome=outcome) for place, outcome in enumerate(outcomes)]
    rank = {Decision.NO_GO: 0, Decision.INCOMPLETE: 1, Decision.INCONCLUSIVE: 2, Decision.GO: 3}

    def decided(facts: Requirements) -> Decision:
        scope = RunScope(planned=facts.planned, selected=facts.selected, models=["m"], shortfalls=facts.shortfalls)
        return scope.decision(records)

    facts = {"planned": planned, "selected": selected, "narrowed": narrowed}
    selection = replace(requirements(policy(), **facts), records=records)
    whole = replace(selection, planned=selected, narrowed="")
    assert rank[decided(selection)] <= rank[decided(whole)]
    if not selection.is_whole and selected < planned:
        assert decided(selection) is not Decision.GO


REGISTER = "One of your own is known once a conftest.py that is collected registers it"
LEAVE = "If it is another one, leave it out of the policy of this run"


@pytest.mark.cases(
    ("scope", "effect", "problem", "advice"),
    [
        ("where: {family: blurr}", "gates", "family 'blurr' matches no family that is known. Did you mean 'blur'?", REGISTER),
        (
            "where: {setting: fogg}, tier: warn",
            "gates",
            "setting 'fogg' matches no setting that is known. Did you mean",
            REGISTER,
        ),
        ("unless: {level: 'hi?'}", "excludes", "level 'hi?' matches no level that is known.", REGISTER),
        ("where: {dataset: ['other*', dtaa]}", "gates", "this run has no dataset 'dtaa'. Did you mean 'data'?", LEAVE),
        ("unless: {model: Tiny}", "excludes", "this run has no model 'Tiny'. Did you mean 'tiny'?", LEAVE),
        ("{setting: invrt}", "covers", "setting 'invrt' matches no setting that is known. Did you mean 'invert'?", REGISTER),
        ("{dataset: dtaa}", "covers", "this run has no dataset 'dtaa'. Did you mean 'data'?", LEAVE),
        ("{model: tinny}", "covers", "this run has no model 'tinny'. Did you mean 'tiny'?", LEAVE),
    ],
)
def test_names_that_mean_nothing_are_refused(scope: str, effect: str, problem: str, advice: str) -> None:
    of_waiver = effect == "covers"
    misspelt = policy(WAIVER.format(scope) if of_waiver else f"  - {{id: art, metric: accuracy_drop, max: 5pp, {scope}}}\n")
    plan = [Cell("tiny", "data", Setting.parse("fog:mid"))]
    tests = [MetricKey("tiny", "data", "accuracy_drop", "fog:mid", "weather", "mid")]
    with pytest.raises(PolicyError) as caught:
        refuse_unknown_scopes([misspelt], plan, tests, models=["tiny"], datasets=["data"])
    about = "waiver W covers nothing" if of_waiver else f"rule art {effect} nothing there"
    assert str(caught.value).startswith(f"p.yaml:4: {about}: {problem}")
    assert str(caught.value).endswith(advice)


def test_code_of_a_checkpoint_that_was_allowed_to_run_is_a_warning() -> None:
    models = {"m": ModelRef("m", "transformers", "here", remote_code=True)}
    warnings = requirements(policy(), models=models).warnings
    assert any(warning.startswith("m runs Python code that comes with its checkpoint (remote_code: true") for warning in warnings)
    assert not any("Python code" in warning for warning in requirements(policy()).warnings)


def test_letters_that_hold_little_of_the_probability_are_a_warning() -> None:
    rare = "clean: in 3 of 400 answers the letters hold less than half of the probability"
    few = replace(record(), notes=(f"{rare}. {TEXT_INSTEAD}",))
    warnings = requirements(policy(), few, replace(few, id="other"), replace(few, id="third", notes=(rare,))).warnings
    begin = f"{few.model}: in 2 tests 5 % of the answers or more would not begin with a letter"
    assert any(warning.startswith(begin) for warning in warnings)
    assert not any("letters hold" in warning for warning in requirements(policy()).warnings)


def test_what_stopped_early_is_said_with_what_its_values_are_worth() -> None:
    part = replace(record(), n_samples=100, n_requested=30)
    warnings = requirements(policy(), part, replace(part, id="m-d-no_image", setting="no_image")).warnings
    assert any(warning.startswith("2 tests stopped early (adaptive mode): they used 60 of 200 answers.") for warning in warnings)
    assert not any("stopped early" in warning for warning in requirements(policy(), replace(part, n_requested=100)).warnings)


@pytest.mark.parametrize(
    ("judged", "tests", "smoke"), [("point", "partial", 1), ("point", "whole", 0), ("interval", "partial", 0)]
)
def test_a_policy_that_judges_values_of_a_part_is_called_a_smoke_test(judged: str, tests: str, smoke: int) -> None:
    smoky = policy(f"defaults: {{judge: {judged}}}\ncoverage: {{tests: {tests}}}\n")
    warnings = [warning for warning in requirements(smoky).warnings if "smoke test" in warning]
    assert len(warnings) == smoke
    assert all("of m is a smoke test: it judges values" in warning for warning in warnings)


def test_pictures_that_could_not_be_compared_are_said_of_data_that_were_asked() -> None:
    def said(name: str) -> list[str]:
        return [warning for warning in requirements(policy(), without_pictures=[name]).warnings if "images of" in warning]

    assert said("d")[0].startswith("the baseline does not say which images of d it showed")
    assert said("other") == []


# What the tests of a run make of one policy.


TODAY = date(2027, 1, 1)


WAIVED = """\
version: 1
defaults: {judge: point}
rules:
  - {id: drop, metric: accuracy_drop, max: 5pp}
  - {id: lost, metric: accuracy_drop, max: 5pp, where: {setting: glas_blur}}
  - {id: art, metric: accuracy_drop, max: 5pp, where: {category: Art}}
waivers:
  - {id: W1, metric: accuracy_drop, where: WHERE, cap: 60pp, owner: jane, reason: why, expires: DAY}
"""


def load_text(content: str) -> Policy:
    return parse_policy(["a.yaml"], [content.encode()], known_metrics=known_metrics(), ambiguous={})


def idle_rules(policy: Policy, records: Sequence[Record]) -> list[str]:
    return [rule.id for rule, tests in PolicyUse(policy, records, TODAY).met.items() if not tests]


def text(where: str = "{setting: fog}", expires: str = "2027-06-30") -> str:
    return WAIVED.replace("WHERE", where).replace("DAY", expires)


def records(policy: Policy, **drops: float) -> list[Record]:
    made = []
    for name, drop in drops.items():
        test = MetricKey("m", "d", "accuracy_drop", f"{name}:low", "any", "low")
        measure = policy.measure(test, Estimate(drop, 100), today=TODAY)
        art = replace(measure, category="Art", outcome=Outcome.MEASURED, waiver="")
        made.append(
            Record(
                "cell", f"m-d-{name}:low", "m", "d", f"{name}:low", "any", "low", measures=(measure, art), categories={"Art": 0.5}
            )
        )
    return made


def waiver_use(where: str, expires: str = "2027-06-30", **drops: float) -> WaiverUse:
    policy = load_text(text(where, expires))
    (use,) = PolicyUse(policy, records(policy, **drops), TODAY).waivers
    return use


@pytest.mark.cases(
    ("where", "expires", "drop", "expected"),
    [
        ("{setting: fog}", "2027-06-30", 0.2, (WaiverState.USED, 1, 1)),
        ("{setting: fog}", "2027-06-30", 0.01, (WaiverState.UNNEEDED, 1, 0)),
        ("{setting: fogg}", "2027-06-30", 0.2, (WaiverState.UNMATCHED, 0, 0)),
        ("{setting: fog}", "2027-06-30", 0.7, (WaiverState.EXCEEDED, 1, 0)),
        ("{model: m}", "2027-06-30", 0.7, (WaiverState.EXCEEDED, 2, 0)),
        ("{setting: fog}", "2026-06-30", 0.7, (WaiverState.EXPIRED, 1, 0)),
        ("{setting: fog}", "2026-06-30", 0.2, (WaiverState.EXPIRED, 1, 0)),
        ("{model: m}", "2027-06-30", 0.2, (WaiverState.USED, 2, 1)),
        ("{category: Art}", "2027-06-30", 0.2, (WaiverState.UNNEEDED, 2, 0)),
    ],
)
def test_a_waiver_is_used_or_can_go(where: str, expires: str, drop: float, expected: tuple[WaiverState, int, int]) -> None:
    use = waiver_use(where, expires, fog=drop, snow=0.0)
    assert (use.state, use.matched, use.used) == expected


BEYOND = "fix what it covers, use more questions, or have its owner change the cap"


@pytest.mark.cases(
    ("where", "expires", "drop", "advice"),
    [
        ("{model: m}", "2027-06-30", 0.2, "waived 1 of 2 tests it covers"),
        ("{model: m}", "2027-06-30", 0.01, "covers 2 tests, but was not needed: remove it, or lower its cap"),
        ("{model: m}", "2027-06-30", 0.7, f"has a cap of 60 pp, and 1 of 2 tests it covers may be beyond it: {BEYOND}"),
        ("{model: n}", "2027-06-30", 0.2, "covers no test of this run: look for a misspelt scope"),
        ("{model: m}", "2026-06-30", 0.2, "expired on 2026-06-30: renew or remove it"),
    ],
)
def test_the_report_says_what_to_do(where: str, expires: str, drop: float, advice: str) -> None:
    assert str(waiver_use(where, expires, fog=drop, snow=0.0)) == f"a.yaml:8: waiver W1 of jane {advice}"


def test_a_waiver_that_covers_one_test_and_not_another_is_used() -> None:
    use = waiver_use("{model: m}", fog=0.7, snow=0.2)
    assert (use.state, use.used, use.exceeded) == (WaiverState.USED, 1, 1)


def test_a_breach_that_another_waiver_answers_for_is_no_use_of_this_one() -> None:
    other = "  - {id: W2, metric: accuracy_drop, where: {setting: fog}, cap: 60pp, owner: jo, reason: why, expires: 2027-06-30}\n"
    policy = load_text(text() + other)
    uses = PolicyUse(policy, records(policy, fog=0.2), TODAY).waivers
    assert sorted((use.matched, use.used) for use in uses) == [(1, 0), (1, 1)]


def test_what_was_not_measured_is_not_worse_than_a_cap() -> None:
    use = waiver_use("{setting: fog}", fog=float("nan"))
    assert (use.state, use.exceeded) == (WaiverState.UNNEEDED, 0)


def test_rules_that_met_no_test_are_named() -> None:
    policy = load_text(text())
    assert idle_rules(policy, records(policy, fog=0.0)) == ["lost"]
    assert idle_rules(policy, []) == ["drop", "lost", "art"]


def test_a_rule_about_a_split_meets_the_summary_over_it() -> None:
    policy = load_text("version: 1\nrules:\n  - {id: seen, metric: accuracy_drop, where: {setting: clean}, max: 5pp}\n")
    measure = policy.measure(MetricKey("m", "d", "accuracy_drop", "clean"), Estimate(0.0, 100), today=TODAY)
    over_it = Record("sweep", "m-d-accuracy_drop-clean", "m", "d", split="clean", measures=(measure,))
    assert idle_rules(policy, [over_it]) == []
    assert idle_rules(policy, [replace(over_it, split="fog")]) == ["seen"]


def test_a_rule_about_a_further_grouping_meets_no_test_because_none_is_judged_by_it() -> None:
    policy = load_text("version: 1\nrules:\n  - {id: sex, metric: accuracy_drop, where: {category: sex}, max: 5pp}\n")
    gap = Measure("accuracy_drop", 0.5, category="sex")
    sweep = Record("sweep", "m-d-gap-clean", "m", "d", split="clean", task="matching", measures=(gap,))
    assert idle_rules(policy, [sweep]) == ["sex"]
    assert idle_rules(policy, [replace(sweep, task="")]) == []


@pytest.mark.cases(
    ("where", "missed"),
    [
        ("{setting: fog, category: Aart}", Missed.CATEGORY),
        ("{setting: snow}", Missed.SETTING),
        ("{level: high, dataset: d}", Missed.SETTING),
        ("{setting: fog, model: n}", Missed.ALL),
        ("{setting: fog, dataset: e}", Missed.ALL),
        ("{setting: fog}", None),
    ],
)
def test_what_an_unmatched_waiver_came_near_to(where: str, missed: Missed | None) -> None:
    use = waiver_use(where, fog=0.2)
    assert use.missed is missed
    assert (use.state is WaiverState.UNMATCHED) == (missed is not None)


# Rules that have no say in a run that measures what they bound, and data that nobody gates.


CATEGORIES = {"cats", "dogs", ""}


def cell(setting: str, dataset: str = "my", category: str = "") -> Record:
    measure = Measure("accuracy_drop", 0.1, category=category)
    level = setting.partition(":")[2]
    return Record("cell", f"qwen-{dataset}-{setting}", "qwen", dataset, setting, "weather", level, measures=(measure,))


SWEEP = Record("sweep", "qwen-my-worst", "qwen", "my", measures=(Measure("worst_case_drop", 0.1),))
RECORDS = [cell("fog:low"), cell("fog:high"), SWEEP]


def policy_of(rule: str, rules: str = "whole") -> Policy:
    return load_text(f"version: 1\ncoverage: {{rules: {rules}}}\nrules:\n  - {{id: r, {rule}}}\n")


def unmet_said(rule: str, rules: str = "whole") -> list[str]:
    policy = policy_of(rule, rules)
    conditions = PolicyUse(policy, RECORDS, TODAY).unmet_rules(lambda: CATEGORIES)
    return [unmet.shortfall for unmet in conditions if not unmet.allowed]


@pytest.mark.cases(
    ("scope", "lacks"),
    [
        ("where: {dataset: ym}", "it asks for dataset 'ym', and the run has my. Did you mean 'my'?"),
        ("where: {dataset: other}", "it asks for dataset 'other', and the run has my."),
        ("where: {model: [a, 'b*']}", "it asks for model 'a', 'b*', and the run has qwen."),
        ("where: {category: dogz}", "it asks for category 'dogz', and the run has cats, dogs. Did you mean 'dogs'?"),
        ("where: {level: mid}", "it asks for level 'mid', and the run has high, low."),
        (
            "where: {setting: invert, model: tiny}",
            "it asks for model 'tiny', and the run has qwen; it asks for setting 'invert', and the run has fog:high, fog:low.",
        ),
        ("where: {level: low}, unless: {setting: fog}", "its unless leaves out every test that its where admits."),
        ("where: {setting: 'fog:low', level: high}", "no single test has everything that its scope asks for."),
        ("where: {category: cats}", "worst_case_drop is measured on whole datasets, and it asks for a category."),
    ],
)
def test_a_rule_that_meets_no_test_says_what_it_asks_for(scope: str, lacks: str) -> None:
    metric = "worst_case_drop" if lacks.startswith("worst_case_drop") else "accuracy_drop"
    assert unmet_said(f"metric: {metric}, {scope}, max: 5pp") == [
        (
            f"rule r (a.yaml:4) applied to no test, though this run measures {metric}: {lacks} GO requires that every such rule "
            "applies to a test (coverage rules: whole, a.yaml:2): correct it, measure what it asks for, or allow this with "
            "coverage: {rules: partial}"
        )
    ]


@pytest.mark.parametrize(
    "rule",
    [
        "metric: accuracy_drop, where: {level: low}, max: 5pp",
        "metric: accuracy_drop, where: {dataset: [my, other]}, max: 5pp",
        "metric: accuracy_drop, where: {dataset: ym}, max: 5pp, tier: warn",
        "metric: accuracy, where: {dataset: ym}, min: 5pp",  # not measured: another suite's
    ],
)
def test_others_are_met_or_do_not_block_or_are_about_another_suite(rule: str) -> None:
    assert unmet_said(rule) == []


def test_rules_may_be_about_what_a_run_leaves_out_and_not_nearly_about_what_it_has() -> None:
    assert unmet_said("metric: accuracy_drop, where: {dataset: other}, max: 5pp", "partial") == []
    assert unmet_said("metric: accuracy_drop, where: {category: dogz}, max: 5pp", "partial") == []
    (sentence,) = unmet_said("metric: accuracy_drop, where: {dataset: ym}, max: 5pp", "partial")
    assert sentence == (
        "rule r (a.yaml:4) applied to no test, though this run measures accuracy_drop: it asks for dataset 'ym', and the run has "
        "my. Did you mean 'my'? A rule may name what a run leaves out (coverage rules: partial, a.yaml:2), but this name "
        "looks misspelt: correct it"
    )


def test_categories_are_only_looked_up_for_a_rule_about_one() -> None:
    def never() -> set[str]:
        raise AssertionError("data were read")

    policy = policy_of("metric: accuracy_drop, where: {dataset: ym}, max: 5pp")
    assert len(PolicyUse(policy, RECORDS, TODAY).unmet_rules(never)) == 1


def test_a_rule_about_a_category_is_met_where_that_was_measured() -> None:
    policy = policy_of("metric: accuracy_drop, where: {category: dogs}, max: 5pp")
    assert PolicyUse(policy, [*RECORDS, cell("fog:low", category="dogs")], TODAY).unmet_rules(lambda: CATEGORIES) == []


def test_data_that_nobody_gates_beside_data_that_somebody_does() -> None:
    rule, other = "metric: accuracy_drop, where: {dataset: my}, max: 5pp", cell("fog:low", "other")

    def ungated(records: Sequence[Record], more: str = "") -> list[str]:
        return PolicyUse(policy_of(rule + more), records, TODAY).ungated_data

    assert ungated([*RECORDS, other]) == ["other"]
    assert ungated(RECORDS) == []
    assert ungated([other]) == []  # nothing is gated: the run is not GO for that
    assert ungated([*RECORDS, other], "}\n  - {id: w, metric: accuracy_drop, max: 5pp, tier: warn") == ["other"]


def is_summary(rule: Rule) -> bool:
    return rule.metric == "worst_case_drop"


@pytest.mark.cases(
    ("rules", "idle"),
    [
        (["metric: worst_case_drop, max: 5pp"], []),
        (["metric: worst_case_drop, where: {dataset: other}, max: 5pp"], ["r0"]),
        (["metric: worst_case_drop, where: {dataset: other}, max: 5pp", "metric: worst_case_drop, max: 9pp"], []),
        (["metric: worst_case_drop, where: {dataset: other}, max: 5pp", "metric: worst_case_drop, max: 9pp, tier: warn"], ["r0"]),
        (["metric: worst_case_drop, where: {dataset: other}, max: 5pp, tier: warn"], []),
        (["metric: accuracy_drop, where: {dataset: other}, max: 5pp"], []),
    ],
)
def test_rules_that_see_the_whole_are_idle_where_none_of_them_met_a_test(rules: list[str], idle: list[str]) -> None:
    lines = "".join(f"  - {{id: r{number}, {rule}}}\n" for number, rule in enumerate(rules))
    loaded = load_text(f"version: 1\nrules:\n{lines}")
    assert [rule.id for rule in PolicyUse(loaded, RECORDS, TODAY).idle_summaries(is_summary)] == idle


def test_settings_without_levels_are_named_by_none() -> None:
    policy = policy_of("metric: accuracy_drop, max: 5pp, where: {level: mid}")
    conditions = PolicyUse(policy, [*RECORDS, replace(cell("flip_v"), level="")], TODAY).unmet_rules(lambda: CATEGORIES)
    assert "it asks for level 'mid', and the run has high, low, none." in conditions[0].shortfall
