from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.policies import Bound, Budgets, Coverage, Extent, JudgedBy, Policy, suites_of


def test_answers_that_came_and_a_share_within_the_budget_say_nothing() -> None:
    assert Budgets().judge_failures(n_requested=100, n_errors=0) == []
    assert Budgets(max_error_rate=0.01).judge_failures(n_requested=100, n_errors=2) == []


def test_a_failed_inference_is_infrastructure() -> None:
    (verdict,) = Budgets().judge_failures(n_requested=100, n_errors=2)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason == "error_rate 2.0 % > 0 % (rule max_error_rate, built-in default): 2 of 100 inferences failed"
    assert (verdict.metric, verdict.rule, verdict.bound) == ("error_rate", "max_error_rate", "<= 0 %")


@pytest.mark.parametrize("most", [0.0, 1.0])
def test_a_generous_error_budget_does_not_pass_an_empty_measurement(most: float) -> None:
    (verdict,) = Budgets(max_error_rate=most).judge_failures(n_requested=10, n_errors=10)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason == "no sample was scored: all 10 inferences failed"


def test_nothing_asked_is_undecided() -> None:
    (verdict,) = Budgets().judge_failures(n_requested=0, n_errors=0)
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("requested", "errors"), [(10, 11), (10, -1), (-1, 0)])
def test_contradictory_counts_are_refused(requested: int, errors: int) -> None:
    with pytest.raises(ValueError, match=f"{errors} errors of {requested} requested answers"):
        Budgets().judge_failures(n_requested=requested, n_errors=errors)


def test_a_budget_is_a_rule_and_a_budget_of_zero_is_exact() -> None:
    budgets = Budgets(max_refusal_rate=0.0, sources={"max_unparsed_rate": "thresholds/default.yaml:17"})
    rule = budgets.rule("unparsed_rate")
    assert (rule.id, rule.metric, rule.source) == ("max_unparsed_rate", "unparsed_rate", "thresholds/default.yaml:17")
    assert (rule.bound, rule.treatment.judge) == (Bound(high=0.05), JudgedBy.INTERVAL)
    assert budgets.rule("unparsed_rate", JudgedBy.POINT).treatment.judge is JudgedBy.POINT
    assert budgets.rule("refusal_rate").treatment.judge is JudgedBy.POINT


def test_a_budget_has_the_risks_of_the_file_that_sets_it_or_of_the_first(load: Load) -> None:
    strict = "defaults: {alpha_pass: 0.01, alpha_fail: 0.02}\n"
    second = "version: 1\ndefaults: {alpha_pass: 0.001}\nbudgets: {max_refusal_rate: 5%}\n"
    policy = load(RULES + strict + "budgets: {max_unparsed_rate: 4%, max_refusal_rate: 5%}\n", second)
    risks = {
        metric: (treatment.alpha_pass, treatment.alpha_fail)
        for metric in ("error_rate", "unparsed_rate", "refusal_rate")
        for treatment in [policy.budgets.rule(metric).treatment]
    }
    assert risks == {"error_rate": (0.01, 0.02), "unparsed_rate": (0.01, 0.02), "refusal_rate": (0.001, 0.05)}
    (said,) = [str(replacement) for replacement in policy.replaced if not replacement.only_tightens]
    assert said.startswith("budget max_refusal_rate of a.yaml:5 is replaced by b.yaml:3: ")
    assert said.endswith("alpha_pass: 0.01 becomes 0.001; alpha_fail: 0.02 becomes 0.05")
    assert load(RULES).budgets.rule("unparsed_rate").treatment.alpha_pass == 0.05


# What has to have been measured before a run may be GO.


Load = Callable[..., Policy]

RULES = "version: 1\nrules:\n  - {id: drop, metric: accuracy_drop, max: 5pp}\n"
WHOLE: dict[str, Any] = {"planned": 8, "selected": 8, "narrowed": "", "samples": {}, "suites": {"corruptions"}}


def shortfalls(coverage: Coverage, **facts: Any) -> list[str]:
    return [lack.shortfall for lack in coverage.conditions(**facts) if not lack.allowed]


def covered(load: Load, text: str) -> Coverage:
    return load(f"{RULES}coverage: {text}\n").coverage


def test_everything_is_asked_for_where_nothing_is_said(load: Load) -> None:
    coverage = load(RULES).coverage
    assert (coverage.tests, coverage.share, coverage.samples, coverage.suites) == (Extent.WHOLE, 1.0, 0, ())
    assert shortfalls(coverage, **WHOLE) == []


ALL_TESTS = "and GO requires all (coverage tests: whole, built-in default)"


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (
            {"selected": 3},
            f"5 of 8 tests were not selected, {ALL_TESTS}: run without -k, -m, --lf, --vlm-rerun and test ids, or ",
        ),
        ({"narrowed": "--lf"}, f"--lf may leave out files, {ALL_TESTS}"),
    ],
)
def test_a_selection_of_tests_or_files_is_too_little(load: Load, fact: dict[str, Any], words: str) -> None:
    (sentence,) = shortfalls(load(RULES).coverage, **{**WHOLE, **fact})
    assert sentence.startswith(words)
    assert sentence.endswith(" allow it with coverage: {tests: partial}")
    assert shortfalls(covered(load, "{tests: partial}"), **{**WHOLE, **fact}) == []


@pytest.mark.parametrize(
    ("share", "needed", "written"),
    [("whole", 400, "whole"), ("50%", 200, "50%"), ("150", 150, "150"), ("0.5%", 2, "0.5%"), ("1000", 400, "1000")],
)
def test_samples_that_were_not_asked(load: Load, share: str, needed: int, written: str) -> None:
    coverage = covered(load, f"{{samples: {share}}}")
    assert shortfalls(coverage, **{**WHOLE, "samples": {"data": (needed, 400), "more": (900, 900)}}) == []
    (sentence,) = shortfalls(coverage, **{**WHOLE, "samples": {"data": (needed - 1, 400), "more": (900, 900)}})
    assert sentence == (
        f"{needed - 1} of 400 samples of data were asked, and GO requires {needed} (coverage samples: {written}, a.yaml:4): "
        f"run with a larger --vlm-sample or without it, or allow it with coverage: {{samples: {needed - 1}}}"
    )


def test_any_number_of_samples_may_do(load: Load) -> None:
    coverage = covered(load, "{samples: partial}")
    assert not coverage.counts_samples
    assert shortfalls(coverage, **{**WHOLE, "samples": {"data": (1, 400)}}) == []
    assert load(RULES).coverage.counts_samples
    assert covered(load, "{samples: 1}").counts_samples


def test_a_suite_that_did_not_run(load: Load) -> None:
    coverage = covered(load, "{suites: [corruptions, patches]}")
    (sentence,) = shortfalls(coverage, **WHOLE)
    assert sentence == (
        "no gated test of test_patches.py ran (ran: corruptions), and GO requires it (coverage suites: patches, a.yaml:4): "
        "collect it too, or take 'patches' off coverage: {suites: [...]}"
    )
    assert shortfalls(coverage, **{**WHOLE, "suites": {"corruptions", "patches", "mine"}}) == []


def test_suites_are_known_by_the_files_of_their_tests() -> None:
    shipped = ["suites/test_patches.py::test_cell[m-d-patches:2]", "suites/test_patches.py::test_cell[m-d-patches:3]"]
    assert suites_of([*shipped, "gate/mine.py::test_cell[m-d-fog:low]", ""]) == {"patches", "mine"}


def test_later_files_override_key_by_key(load: Load) -> None:
    first = f"{RULES}coverage: {{tests: partial, suites: [patches]}}\n"
    coverage = load(first, "version: 1\ncoverage: {tests: whole}\n").coverage
    assert (coverage.tests, coverage.suites) == (Extent.WHOLE, ("patches",))
    assert dict(coverage.sources) == {"tests": "b.yaml:2", "suites": "a.yaml:4"}


@pytest.mark.parametrize(
    "text", ["{tests: partial}", "{samples: 50%}", "{samples: 50}", "{suites: [patches]}", "{rules: partial}"]
)
def test_what_is_asked_for_is_part_of_what_a_policy_means(load: Load, text: str) -> None:
    assert load(f"{RULES}coverage: {text}\n").sha256 != load(RULES).sha256
    assert load(f"{RULES}coverage: {{tests: whole, samples: whole, rules: whole}}\n").sha256 == load(RULES).sha256


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{test: whole}", "a.yaml:4: unknown key 'test' in coverage. Did you mean 'tests'?"),
        ("{tests: hole}", "a.yaml:4: coverage.tests is the text 'hole'. Expected one of whole, partial. Did you mean 'whole'?"),
        ("{rules: hole}", "a.yaml:4: coverage.rules is the text 'hole'. Expected one of whole, partial. Did you mean 'whole'?"),
        ("{samples: 1e400%}", "a.yaml:4: coverage.samples is the text '1e400%'. Expected a finite number"),
        ("{samples: 1e99999999999999999999%}", "Expected a number such as 0.05, 5pp or 5%"),
        ("{tests: true}", "coverage.tests is 'true'. Expected one of whole, partial"),
        ("{samples: hole}", "a number of samples such as 500. Did you mean 'whole'?"),
        ("{samples: 0}", "Expected whole, partial, a share such as 20%, or a number of samples such as 500"),
        ("{samples: 0.5}", "Expected whole, partial, a share such as 20%"),
        ("{samples: 120%}", "Expected a share between 0 and 100%"),
        ("{samples: true}", "coverage.samples is 'true'"),
        ("{suites: patches}", "coverage.suites is the text 'patches'. Expected a list"),
        ('{suites: ["a b"]}', "Expected letters, digits"),
    ],
)
def test_what_cannot_be_honoured_is_refused(load: Load, text: str, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        covered(load, text)
    assert words in str(caught.value)
