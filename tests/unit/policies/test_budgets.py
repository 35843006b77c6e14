from __future__ import annotations

import pytest

from pytest_vlmrobust.core.verdict import Outcome
from pytest_vlmrobust.policies import Budgets


def test_kept_budgets_say_nothing() -> None:
    assert Budgets().judge(n_requested=100, n_scored=100, n_errors=0, n_unparsed=5) == []


def test_a_failed_inference_is_infrastructure() -> None:
    (verdict,) = Budgets().judge(n_requested=100, n_scored=98, n_errors=2, n_unparsed=0)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason == (
        "error_rate 0.020 > 0.000 (budget max_error_rate, built-in default): "
        "2 of 100 inferences without an answer (2 failed, 0 missing)"
    )


def test_a_missing_sample_counts_as_an_error() -> None:
    (verdict,) = Budgets().judge(n_requested=869, n_scored=853, n_errors=0, n_unparsed=0)
    assert verdict.outcome is Outcome.ERROR
    assert "16 of 869 inferences without an answer (0 failed, 16 missing)" in verdict.reason


def test_unreadable_answers_are_a_breach_of_their_own() -> None:
    budgets = Budgets(sources={"max_unparsed_rate": "thresholds/default.yaml:17"})
    (verdict,) = budgets.judge(n_requested=100, n_scored=100, n_errors=0, n_unparsed=6)
    assert verdict.outcome is Outcome.FAIL
    assert verdict.reason == (
        "unparsed_rate 0.060 > 0.050 (budget max_unparsed_rate, thresholds/default.yaml:17): "
        "no answer could be read in 6 of 100 texts"
    )
    assert (verdict.metric, verdict.rule, verdict.threshold) == ("unparsed_rate", "max_unparsed_rate", "0.05")


def test_both_budgets_may_break_at_once() -> None:
    broken = Budgets().judge(n_requested=10, n_scored=8, n_errors=2, n_unparsed=8)
    assert [verdict.outcome for verdict in broken] == [Outcome.ERROR, Outcome.FAIL]


def test_a_generous_error_budget_does_not_pass_an_empty_measurement() -> None:
    (verdict,) = Budgets(max_error_rate=1.0).judge(n_requested=10, n_scored=0, n_errors=9, n_unparsed=0)
    assert verdict.outcome is Outcome.ERROR
    assert verdict.reason == "no sample was scored: of 10, 9 failed and 1 went missing"


def test_nothing_asked_is_undecided() -> None:
    (verdict,) = Budgets().judge(n_requested=0, n_scored=0, n_errors=0, n_unparsed=0)
    assert verdict.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("requested", "scored", "errors", "unparsed"), [(10, 9, 2, 0), (10, 5, 0, 6), (10, -1, 0, 0), (-1, 0, 0, 0)]
)
def test_contradictory_counts_are_refused(requested: int, scored: int, errors: int, unparsed: int) -> None:
    with pytest.raises(ValueError, match=f"contradict each other: {requested} requested, {scored} scored"):
        Budgets().judge(n_requested=requested, n_scored=scored, n_errors=errors, n_unparsed=unparsed)
