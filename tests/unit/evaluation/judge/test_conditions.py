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
from pytest_vlmrobust.core.decision import Decision, Outcome, RunScope
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.judge.conditions import Conditions, asks_for_all_samples, refuse_unknown_scopes
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.policies import MetricKey, Policy, parse_policy

RULES = """\
version: 1
rules:
  - {id: drop, metric: accuracy_drop, max: 5pp}
"""
MODELS = {"m": ModelRef("m", "scripted", "m")}


def policy(more: str = "") -> Policy:
    return parse_policy(["p.yaml"], [f"{RULES}{more}".encode()], known_metrics=known_metrics(), ambiguous={})


def conditions(own: Policy, **facts: Any) -> Conditions:
    facts = {"planned": 1, "selected": 1, "narrowed": "", "today": date(2026, 1, 1), "has_baseline": False, **facts}
    return Conditions({"m": own}, MODELS, **facts)


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
    facts = {"planned": 1, "selected": 1, "narrowed": "", "today": date(2026, 1, 1), "has_baseline": False}
    models = {"m": ModelRef("m", "openai", "http://a/v1#org/m", revision)}
    return Conditions({"m": policy()}, models, **facts).shortfalls([record()])  # type: ignore[arg-type]  # as above


def test_a_served_model_needs_a_declared_revision() -> None:
    (shortfall,) = served("")
    assert "m is on a server, where nobody can see which weights answer, and GO requires a declared revision" in shortfall
    assert "openai:http://a/v1#org/m@REVISION" in shortfall
    assert served("2024-06-01") == []


def test_a_complete_run_lacks_nothing() -> None:
    assert conditions(policy()).shortfalls([record()]) == []
    assert conditions(policy()).warnings([record()]) == []


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"planned": 3}, "2 of 3 tests were not selected, and GO requires all (coverage tests: whole, built-in default)"),
        ({"narrowed": "--lf"}, "--lf may leave out files, and GO requires all (coverage tests: whole, built-in default)"),
        ({"samples_asked": lambda: {"d": (5, 9)}}, "5 of 9 samples of d were asked, and GO requires 9"),
    ],
)
def test_what_was_left_out_is_a_shortfall(facts: Mapping[str, Any], sentence: str) -> None:
    (shortfall,) = conditions(policy(), **facts).shortfalls([record()])
    assert shortfall.startswith(sentence)


@pytest.mark.parametrize(
    ("facts", "whole"),
    [({"planned": 3, "selected": 3}, True), ({"planned": 3}, False), ({"narrowed": "--lf"}, False), ({}, True)],
)
def test_a_run_is_whole_where_nothing_was_left_out_of_it(facts: Mapping[str, Any], whole: bool) -> None:
    assert conditions(policy(), **facts).is_whole is whole


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
    own = conditions(policy(WAIVER.format(where) + coverage))
    found = [sentence for sentence in own.shortfalls([record()]) if "waiver W" in sentence]
    warned = [sentence for sentence in own.warnings([record()]) if "1 of 1 waiver covers no test of m" in sentence]
    assert (len(found), len(warned)) == ((1, 0) if needless else (0, 1))


def test_samples_that_were_not_asked_are_an_allowance_where_a_policy_lets_that_pass() -> None:
    own = policy("coverage: {samples: partial}\n")
    own_run = conditions(own, samples_asked=lambda: {"d": (30, 128)})
    assert own_run.shortfalls([record()]) == []
    (allowed,) = own_run.allowances([record()])
    assert str(allowed).startswith("30 of 128 samples of d were asked (allowed by ")
    assert str(allowed).endswith(", coverage samples: partial)")
    assert asks_for_all_samples([policy()])
    assert not asks_for_all_samples([own])


def test_a_rule_that_met_no_test_is_a_shortfall_of_a_complete_run_alone() -> None:
    own = policy("  - {id: art, metric: accuracy_drop, max: 5pp, where: {setting: snow*}}\n")
    (shortfall,) = conditions(own).shortfalls([record()])
    assert shortfall.startswith("rule art (p.yaml:4) applied to no test, though this run measures accuracy_drop: ")
    assert conditions(own, selected=2, planned=2).shortfalls([record()]) == []  # a test is missing, and that is said
    assert conditions(own).shortfalls([record(outcome=Outcome.ERROR)]) == []


def test_a_run_that_was_stopped_is_not_asked_for_what_its_other_tests_would_have_met() -> None:
    """Its tests that left no verdict are reported; that rules and waivers met none of them is no news."""
    own = policy("  - {id: worst, metric: worst_case_drop, max: 5pp}\n" + WAIVER.format("{setting: snow}"))
    whole, stopped = conditions(own), conditions(own, planned=2, selected=2)
    assert any("none applied to a test" in said for said in whole.shortfalls([record()]))
    assert any("covers no test" in said for said in whole.warnings([record()]))
    assert stopped.shortfalls([record()]) == []
    assert not [said for said in stopped.warnings([record()]) if "no test" in said]


def test_rules_on_summaries_that_met_none_are_news_where_no_test_was_left_out_or_some_may_be() -> None:
    idle = "  - {id: worst, metric: worst_case_drop, max: 5pp}\n"

    def said(own: Policy, **facts: Any) -> int:
        return sum("none applied to a test" in sentence for sentence in conditions(own, **facts).shortfalls([record()]))

    assert said(policy(idle)) == 1
    assert said(policy(idle), planned=3) == 0  # that tests are lacking is said
    assert said(policy(f"{idle}coverage: {{tests: partial}}\n"), planned=3) == 1


def test_what_another_model_was_asked_shows_nothing_about_this_one() -> None:
    other = replace(record(), model="n", dataset="e", id="n-e-clean", measures=record().measures[:1])
    assert conditions(policy()).shortfalls([record(), other]) == []


def test_a_rule_about_an_earlier_run_needs_one() -> None:
    own = policy("  - {id: since, metric: baseline_drop, max: 5pp}\n")
    (shortfall,) = conditions(own).shortfalls([record()])
    assert shortfall.startswith("rule since (p.yaml:4) is not applicable: baseline_drop compares with an earlier run, and no")
    assert conditions(own, has_baseline=True).shortfalls([record()]) == []


@pytest.mark.parametrize(
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
    own = parse_policy(
        ["p.yaml"], [f"{RULES}defaults: {{judge: {judged}}}\n".encode()], known_metrics=known_metrics(), ambiguous={}
    )
    gain = Measure("gain_over_blind", value, low, 0.2, n=100)
    blind = Record(test="cell", id="m-d-no_image", model="m", dataset="d", setting="no_image", measures=(gain,))
    reason = "not probed: 12 have a sampled answer" if same is not None and math.isnan(same) else ""
    probed = [] if same is None else [Measure("same_when_exchanged_rate", same, n=12, reason=reason)]
    clean = replace(record(), measures=(*record().measures, *probed))
    found = conditions(own, planned=2, selected=2).shortfalls([clean, blind])
    expected = [] if shown else ["m is not shown to look at the images of d"]
    assert [sentence.partition(":")[0] for sentence in found] == expected
    allowed = parse_policy(
        ["p.yaml"],
        [f"{RULES}defaults: {{judge: {judged}}}\ncoverage: {{blind_models: allow}}\n".encode()],
        known_metrics=known_metrics(),
        ambiguous={},
    )
    lenient = conditions(allowed, planned=2, selected=2)
    assert lenient.shortfalls([clean, blind]) == []
    assert [one.fact.partition(":")[0] for one in lenient.allowances([clean, blind])] == expected
    assert {one.allowed_by for one in lenient.allowances([clean, blind])} <= {"p.yaml:5, coverage blind_models: allow"}


@pytest.mark.parametrize(("reason", "said"), [("", "bring, no blocking"), ("no answer scored", "bring: no answer scored, no bl")])
def test_a_gain_that_is_not_known_is_no_number(reason: str, said: str) -> None:
    gain = Measure("gain_over_blind", math.nan, reason=reason)
    blind = Record(test="cell", id="m-d-no_image", model="m", dataset="d", setting="no_image", measures=(gain,))
    (shortfall,) = conditions(policy(), planned=2, selected=2).shortfalls([record(), blind])
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
    found = conditions(policy(more), planned=len(records), selected=len(records)).shortfalls(records)
    said = f"m is not shown to look at the images of d: {why}, and GO requires that images matter"
    assert [sentence.partition(" (coverage")[0] for sentence in found] == ([said] if why else [])
    allowed = conditions(policy(f"{more}coverage: {{blind_models: allow}}\n"), planned=len(records), selected=len(records))
    assert allowed.shortfalls(records) == []


def test_a_whole_run_without_a_test_of_clean_shows_nothing_of_other_pictures() -> None:
    blind = replace(record(), setting="no_image")
    (said,) = conditions(policy()).shortfalls([blind])
    assert "no test has the setting clean, beside which a few questions are asked with the images of others" in said
    assert conditions(policy("coverage: {tests: partial}\n"), planned=2).shortfalls([blind]) == []


def test_a_whole_run_that_measures_nothing_about_looking_is_told_how() -> None:
    silent = replace(record(), setting="fog:mid", measures=record().measures[:1])
    (shortfall,) = conditions(policy()).shortfalls([silent])
    assert "no test has the setting clean or no_image, beside which that is measured" in shortfall
    assert conditions(policy("coverage: {tests: partial, rules: partial}\n"), planned=3).shortfalls([silent]) == []
    assert conditions(policy("coverage: {blind_models: allow}\n")).shortfalls([silent]) == []


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

    def decided(facts: Conditions) -> Decision:
        scope = RunScope(planned=facts.planned, selected=facts.selected, models=["m"], shortfalls=facts.shortfalls(records))
        return scope.decision(records)

    asked = conditions(policy(), planned=planned, selected=selected, narrowed=narrowed)
    whole = replace(asked, planned=selected, narrowed="")
    assert rank[decided(asked)] <= rank[decided(whole)]
    if not asked.is_whole and selected < planned:
        assert decided(asked) is not Decision.GO


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("{setting: glas_blur}", r"p.yaml:4: rule art gates nothing there: setting 'glas_blur' matches no setting that is known"),
        ("{model: tinny}", "this run has no model 'tinny'. Did you mean 'tiny'"),
    ],
)
def test_names_that_mean_nothing_are_refused(where: str, message: str) -> None:
    own = policy(f"  - {{id: art, metric: accuracy_drop, max: 5pp, where: {where}}}\n")
    plan = [Cell("tiny", "d", Setting.parse("fog:mid"))]
    tests = [MetricKey("tiny", "d", "accuracy_drop", "fog:mid", "weather", "mid")]
    with pytest.raises(PolicyError, match=message):
        refuse_unknown_scopes([own], plan, tests, models=["tiny"], datasets=["d"])


def test_code_of_a_checkpoint_that_was_allowed_to_run_is_a_warning() -> None:
    facts = {"planned": 1, "selected": 1, "narrowed": "", "today": date(2026, 1, 1), "has_baseline": False}
    models = {"m": ModelRef("m", "transformers", "here", remote_code=True)}
    found = Conditions({"m": policy()}, models, **facts).warnings([record()])  # type: ignore[arg-type]  # as above
    assert any(warning.startswith("m runs Python code that comes with its checkpoint (remote_code: true") for warning in found)
    assert not any("Python code" in warning for warning in conditions(policy()).warnings([record()]))


def test_letters_that_hold_little_of_the_probability_are_a_warning() -> None:
    rare = "clean: in 3 of 400 answers the letters hold less than half of the probability"
    few = replace(record(), notes=(f"{rare}. {TEXT_INSTEAD}",))
    found = conditions(policy()).warnings([few, replace(few, id="other"), replace(few, id="third", notes=(rare,))])
    begin = f"{few.model}: in 2 tests 5% of the answers or more would not begin with a letter"
    assert any(warning.startswith(begin) for warning in found)
    assert not any("letters hold" in warning for warning in conditions(policy()).warnings([record()]))


def test_what_stopped_early_is_said_with_what_its_values_are_worth() -> None:
    part = replace(record(), n_samples=100, n_requested=30)
    found = conditions(policy()).warnings([part, replace(part, id="m-d-no_image", setting="no_image")])
    assert any(warning.startswith("2 tests stopped early (adaptive mode): they used 60 of 200 answers.") for warning in found)
    assert not any("stopped early" in warning for warning in conditions(policy()).warnings([replace(part, n_requested=100)]))


@pytest.mark.parametrize(
    ("judged", "tests", "smoke"), [("point", "partial", 1), ("point", "whole", 0), ("interval", "partial", 0)]
)
def test_a_policy_that_judges_values_of_a_part_is_called_a_smoke_test(judged: str, tests: str, smoke: int) -> None:
    own = policy(f"defaults: {{judge: {judged}}}\ncoverage: {{tests: {tests}}}\n")
    found = [warning for warning in conditions(own).warnings([record()]) if "smoke test" in warning]
    assert len(found) == smoke
    assert all("of m is a smoke test: it judges values" in warning for warning in found)


def test_pictures_that_could_not_be_compared_are_said_of_data_that_were_asked() -> None:
    def said(name: str) -> list[str]:
        return [
            warning for warning in conditions(policy(), without_pictures=[name]).warnings([record()]) if "images of" in warning
        ]

    assert said("d")[0].startswith("the baseline does not say which images of d it showed")
    assert said("other") == []
