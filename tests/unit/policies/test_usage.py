from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date

import pytest

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.policies import JudgedTest, Missed, Policy, WaiverState, unmatched_rules, waiver_report

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
        test = JudgedTest("m", "d", "accuracy_drop", f"{name}:low", "any", "low")
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
        ("{model: m}", "2027-06-30", 0.2, "waived 1 of 2 tests it speaks about"),
        ("{model: m}", "2027-06-30", 0.01, "was not needed by the 2 tests it speaks about: remove it, or lower its cap"),
        (
            "{model: m}",
            "2027-06-30",
            0.7,
            (
                "covers breaches up to 0.6, and 1 of the 2 tests it speaks about are worse: mend what it covers, or have "
                "somebody answer for a larger cap"
            ),
        ),
        ("{model: n}", "2027-06-30", 0.2, "speaks about no test of this run: look for a misspelt scope"),
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
    measure = policy.measure(JudgedTest("m", "d", "accuracy_drop", "clean"), Estimate(0.0, 100), today=TODAY)
    over_it = Record("sweep", "m-d-accuracy_drop-clean", "m", "d", split="clean", measures=(measure,))
    assert unmatched_rules(policy, [over_it]) == ()
    assert [rule.id for rule in unmatched_rules(policy, [replace(over_it, split="fog")])] == ["seen"]


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
