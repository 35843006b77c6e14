from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.policies import (
    MetricKey,
    Missed,
    Misspelling,
    Policy,
    Rule,
    Scope,
    WaiverState,
    idle_summaries,
    idle_summaries_shortfall,
    misspellings,
    ungated_data,
    unmatched_rules,
    unmet_rules,
    waiver_report,
)
from pytest_vlmrobust.policies.usage import intended_name

Load = Callable[..., Policy]

TODAY = date(2027, 1, 1)


RULES = """\
version: 1
defaults: {judge: point}
rules:
  - {id: drop, metric: accuracy_drop, max: 5pp}
  - {id: lost, metric: accuracy_drop, max: 5pp, where: {setting: glas_blur}}
  - {id: art, metric: accuracy_drop, max: 5pp, where: {category: Art}}
waivers:
  - {id: W1, metric: accuracy_drop, where: WHERE, cap: 60pp, owner: jane, reason: why, expires: DAY}
"""


def text(where: str = "{setting: fog}", expires: str = "2027-06-30") -> str:
    return RULES.replace("WHERE", where).replace("DAY", expires)


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


@pytest.mark.parametrize(
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
def test_a_waiver_is_used_or_can_go(
    load: Load, where: str, expires: str, drop: float, expected: tuple[WaiverState, int, int]
) -> None:
    policy = load(text(where, expires))
    (use,) = waiver_report(policy, records(policy, fog=drop, snow=0.0), today=TODAY)
    assert (use.state, use.matched, use.used) == expected


@pytest.mark.parametrize(
    ("where", "expires", "drop", "advice"),
    [
        ("{model: m}", "2027-06-30", 0.2, "waived 1 of the 2 tests it covers"),
        ("{model: m}", "2027-06-30", 0.01, "was not needed by the 2 tests it covers: remove it, or lower its cap"),
        (
            "{model: m}",
            "2027-06-30",
            0.7,
            (
                "has a cap of 0.6, and 1 of the 2 tests it covers may be beyond it: fix what it covers, use more "
                "questions, or have its owner change the cap"
            ),
        ),
        ("{model: n}", "2027-06-30", 0.2, "covers no test of this run: look for a misspelt scope"),
        ("{model: m}", "2026-06-30", 0.2, "expired on 2026-06-30: renew or remove it"),
    ],
)
def test_the_report_says_what_to_do(load: Load, where: str, expires: str, drop: float, advice: str) -> None:
    policy = load(text(where, expires))
    (use,) = waiver_report(policy, records(policy, fog=drop, snow=0.0), today=TODAY)
    assert str(use) == f"a.yaml:8: waiver W1 of jane {advice}"


def test_a_waiver_that_covers_one_test_and_not_another_is_used(load: Load) -> None:
    policy = load(text("{model: m}"))
    (use,) = waiver_report(policy, records(policy, fog=0.7, snow=0.2), today=TODAY)
    assert (use.state, use.used, use.exceeded) == (WaiverState.USED, 1, 1)


def test_a_breach_that_another_waiver_answers_for_is_no_use_of_this_one(load: Load) -> None:
    other = "  - {id: W2, metric: accuracy_drop, where: {setting: fog}, cap: 60pp, owner: jo, reason: why, expires: 2027-06-30}\n"
    policy = load(text() + other)
    uses = waiver_report(policy, records(policy, fog=0.2), today=TODAY)
    assert sorted((use.matched, use.used) for use in uses) == [(1, 0), (1, 1)]


def test_what_was_not_measured_is_not_worse_than_a_cap(load: Load) -> None:
    policy = load(text("{setting: fog}"))
    (use,) = waiver_report(policy, records(policy, fog=float("nan")), today=TODAY)
    assert (use.state, use.exceeded) == (WaiverState.UNNEEDED, 0)


def test_rules_that_met_no_test_are_named(load: Load) -> None:
    policy = load(text())
    assert [rule.id for rule in unmatched_rules(policy, records(policy, fog=0.0))] == ["lost"]
    assert [rule.id for rule in unmatched_rules(policy, [])] == ["drop", "lost", "art"]


def test_a_rule_about_a_split_meets_the_summary_over_it(load: Load) -> None:
    policy = load("version: 1\nrules:\n  - {id: seen, metric: accuracy_drop, where: {setting: clean}, max: 5pp}\n")
    measure = policy.measure(MetricKey("m", "d", "accuracy_drop", "clean"), Estimate(0.0, 100), today=TODAY)
    over_it = Record("sweep", "m-d-accuracy_drop-clean", "m", "d", split="clean", measures=(measure,))
    assert unmatched_rules(policy, [over_it]) == ()
    assert [rule.id for rule in unmatched_rules(policy, [replace(over_it, split="fog")])] == ["seen"]


def test_a_rule_about_a_further_grouping_meets_no_test_because_none_is_judged_by_it(load: Load) -> None:
    policy = load("version: 1\nrules:\n  - {id: sex, metric: accuracy_drop, where: {category: sex}, max: 5pp}\n")
    gap = Measure("accuracy_drop", 0.5, category="sex")
    sweep = Record("sweep", "m-d-gap-clean", "m", "d", split="clean", task="matching", measures=(gap,))
    assert [rule.id for rule in unmatched_rules(policy, [sweep])] == ["sex"]
    assert unmatched_rules(policy, [replace(sweep, task="")]) == ()


@pytest.mark.parametrize(
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
def test_what_an_unmatched_waiver_came_near_to(load: Load, where: str, missed: Missed | None) -> None:
    policy = load(text(where))
    (use,) = waiver_report(policy, records(policy, fog=0.2), today=TODAY)
    assert use.missed is missed
    assert (use.state is WaiverState.UNMATCHED) == (missed is not None)


# Rules that have no say in a run that measures what they bound, and data that nobody gates.


CATEGORIES = {"cats", "dogs", ""}


def cell(setting: str, dataset: str = "my", category: str = "") -> Record:
    measure = Measure("accuracy_drop", 0.1, category=category)
    level = setting.partition(":")[2]
    return Record("cell", f"qwen-{dataset}-{setting}", "qwen", dataset, setting, "weather", level, measures=(measure,))


SWEEP = Record("sweep", "qwen-my-worst", "qwen", "my", measures=(Measure("worst_case_drop", 0.1),))
RUN = [cell("fog:low"), cell("fog:high"), SWEEP]


def policy_of(load: Load, rule: str, rules: str = "whole") -> Policy:
    return load(f"version: 1\ncoverage: {{rules: {rules}}}\nrules:\n  - {{id: r, {rule}}}\n")


def said(load: Load, rule: str, rules: str = "whole") -> list[str]:
    policy = policy_of(load, rule, rules)
    found = unmet_rules(policy.rules, RUN, lambda: CATEGORIES)
    return [one.shortfall(policy.coverage) for one in found if not one.is_allowed(policy.coverage)]


@pytest.mark.parametrize(
    ("rule", "lacks"),
    [
        (
            "metric: accuracy_drop, where: {dataset: ym}, max: 5pp",
            "it asks for dataset 'ym', and the run has my. Did you mean 'my'?",
        ),
        ("metric: accuracy_drop, where: {dataset: other}, max: 5pp", "it asks for dataset 'other', and the run has my."),
        ("metric: accuracy_drop, where: {model: [a, 'b*']}, max: 5pp", "it asks for model 'a', 'b*', and the run has qwen."),
        (
            "metric: accuracy_drop, where: {category: dogz}, max: 5pp",
            "it asks for category 'dogz', and the run has cats, dogs. Did you mean 'dogs'?",
        ),
        ("metric: accuracy_drop, where: {level: mid}, max: 5pp", "it asks for level 'mid', and the run has high, low."),
        (
            "metric: accuracy_drop, where: {setting: invert, model: tiny}, max: 5pp",
            "it asks for model 'tiny', and the run has qwen; it asks for setting 'invert', and the run has fog:high, fog:low.",
        ),
        (
            "metric: accuracy_drop, where: {level: low}, unless: {setting: fog}, max: 5pp",
            "its unless leaves out every test that its where admits.",
        ),
        (
            "metric: accuracy_drop, where: {setting: 'fog:low', level: high}, max: 5pp",
            "no single test has everything that its scope asks for.",
        ),
        (
            "metric: worst_case_drop, where: {category: cats}, max: 5pp",
            "worst_case_drop is measured on whole datasets, and it asks for a category.",
        ),
    ],
)
def test_a_rule_that_meets_no_test_says_what_it_asks_for(load: Load, rule: str, lacks: str) -> None:
    metric = rule.removeprefix("metric: ").partition(",")[0]
    assert said(load, rule) == [
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
def test_others_are_met_or_do_not_block_or_are_about_another_suite(load: Load, rule: str) -> None:
    assert said(load, rule) == []


def test_rules_may_be_about_what_a_run_leaves_out_and_not_nearly_about_what_it_has(load: Load) -> None:
    assert said(load, "metric: accuracy_drop, where: {dataset: other}, max: 5pp", "partial") == []
    assert said(load, "metric: accuracy_drop, where: {category: dogz}, max: 5pp", "partial") == []
    (sentence,) = said(load, "metric: accuracy_drop, where: {dataset: ym}, max: 5pp", "partial")
    assert sentence == (
        "rule r (a.yaml:4) applied to no test, though this run measures accuracy_drop: it asks for dataset 'ym', and the run has "
        "my. Did you mean 'my'? A rule may name what a run leaves out (coverage rules: partial, a.yaml:2), but this name "
        "looks misspelt: correct it"
    )


def test_categories_are_only_looked_up_for_a_rule_about_one(load: Load) -> None:
    def never() -> set[str]:
        raise AssertionError("data were read")

    policy = policy_of(load, "metric: accuracy_drop, where: {dataset: ym}, max: 5pp")
    assert len(unmet_rules(policy.rules, RUN, never)) == 1


def test_a_rule_about_a_category_is_met_where_that_was_measured(load: Load) -> None:
    policy = policy_of(load, "metric: accuracy_drop, where: {category: dogs}, max: 5pp")
    assert unmet_rules(policy.rules, [*RUN, cell("fog:low", category="dogs")], lambda: CATEGORIES) == []


def test_data_that_nobody_gates_beside_data_that_somebody_does(load: Load) -> None:
    rules = policy_of(load, "metric: accuracy_drop, where: {dataset: my}, max: 5pp").rules
    assert ungated_data(rules, [*RUN, cell("fog:low", "other")]) == ["other"]
    assert ungated_data(rules, RUN) == []
    assert ungated_data(rules, [cell("fog:low", "other")]) == []  # nothing is gated: the run is not GO for that
    warning = policy_of(load, "metric: accuracy_drop, max: 5pp, tier: warn").rules
    assert ungated_data((*rules, *warning), [*RUN, cell("fog:low", "other")]) == ["other"]


def is_summary(rule: Rule) -> bool:
    return rule.metric == "worst_case_drop"


@pytest.mark.parametrize(
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
def test_rules_that_see_the_whole_are_idle_where_none_of_them_met_a_test(load: Load, rules: list[str], idle: list[str]) -> None:
    lines = "".join(f"  - {{id: r{number}, {rule}}}\n" for number, rule in enumerate(rules))
    found = idle_summaries(load(f"version: 1\nrules:\n{lines}").rules, RUN, is_summary)
    assert [rule.id for rule in found] == idle
    if found:
        said = idle_summaries_shortfall(found, "summary metrics")
        assert said.startswith("1 blocking rule on summary metrics (r0; the first in ")
        assert "and none applied to a test" in said
        assert "Add such a rule without a where" in said


# Names that are nearly right, and names that are others.


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("qwn", "qwen"),
        ("qween", "qwen"),
        ("ym", "my"),
        ("QWEN", "qwen"),
        ("qwen2_vl-2B", "qwen2-vl-2b"),
        ("qwen2vl2b", "qwen2-vl-2b"),
        ("intervl3.5-4b", "internvl3.5-4b"),
        ("faces.matchnig", "faces.matching"),
        ("MMStar*", "mmstar_val"),
        ("qwn*", "qwen2-vl-2b"),
        ("mmbench-", "mmbench"),
    ],
)
def test_a_misspelling_means_a_name(glob: str, name: str) -> None:
    assert intended_name(glob, ["unlike", name]) == name


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("qwen", "qwen"),
        ("mmbench_cn", "mmbench_en"),
        ("llama", "llava"),
        ("qwen2-vl-2b", "qwen2-vl-7b"),
        ("qwen2", "qwen3"),
        ("qwen2", "qwen"),
        ("qwen12", "qwen21"),
        ("a", "ab"),
        ("model", "model-a"),
        ("qwen", "internvl"),
        ("BLINK*", "blind"),
        ("*MMBench*", "mmbench_dev"),
        ("q?n", "qwen"),
        ("*", "qwen"),
        ("", "qwen"),
        ("qwen-vl-x", "qwen-lv-y"),
    ],
)
def test_another_name_is_no_misspelling(glob: str, name: str) -> None:
    assert intended_name(glob, [name]) == ""


def test_misspellings_of_a_scope_are_globs_that_match_nothing() -> None:
    names = {"model": ["qwen", "tiny"], "dataset": {"my"}}
    assert misspellings(Scope(model=("qwn", "tiny"), dataset=("ym",), setting=("fogg",)), names) == [
        Misspelling("model", "qwn", "qwen"),
        Misspelling("dataset", "ym", "my"),
    ]
    assert misspellings(Scope(model=("qwen", "qwn")), names) == []  # the one that is meant is there
    assert misspellings(Scope(model=("qwe*",), dataset=("other",)), names) == []
    assert misspellings(Scope(), names) == []


def test_settings_without_levels_are_named_by_none(load: Load) -> None:
    policy = policy_of(load, "metric: accuracy_drop, max: 5pp, where: {level: mid}")
    found = unmet_rules(policy.rules, [*RUN, replace(cell("flip_v"), level="")], lambda: CATEGORIES)
    assert "it asks for level 'mid', and the run has high, low, none." in found[0].shortfall(policy.coverage)


def test_a_beginning_may_be_misspelt_by_one_letter_more_or_less() -> None:
    assert intended_name("MMBenc*", ["MMBench_dev"]) == ""  # it matches, and so is no misspelling
    assert intended_name("MMBench*", ["MMBnch_dev"]) == "MMBnch_dev"
    assert intended_name("MMBnch*", ["MMBench_dev"]) == "MMBench_dev"
    assert intended_name("MMBh*", ["MMBench_dev"]) == ""
