"""Rules that have no say in a run that measures what they bound, and data that nobody gates."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.policies import Policy, Rule, idle_summaries, idle_summaries_shortfall, ungated_data, unmet_rules

Load = Callable[..., Policy]

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
    return [text for one in found if (text := one.shortfall(policy.coverage))]


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
            "no test has all together that its scope asks for.",
        ),
        (
            "metric: worst_case_drop, where: {category: cats}, max: 5pp",
            "worst_case_drop is measured on whole data sets, and it asks for a category.",
        ),
    ],
)
def test_a_rule_that_meets_no_test_says_what_it_asks_for(load: Load, rule: str, lacks: str) -> None:
    metric = rule.removeprefix("metric: ").partition(",")[0]
    assert said(load, rule) == [
        (
            f"rule r (a.yaml:4) met no test, though this run measures {metric}: {lacks} GO asks that every such rule has a say "
            "(coverage rules: whole, a.yaml:2): correct it, measure what it asks for, or allow it with coverage: {rules: partial}"
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
        "rule r (a.yaml:4) met no test, though this run measures accuracy_drop: it asks for dataset 'ym', and the run has my. "
        "Did you mean 'my'? A rule may be about what a run leaves out (coverage rules: partial, a.yaml:2), and not nearly about "
        "what it has: correct the name"
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
        assert "and none met a test" in said
        assert "Add such a rule without a where" in said
