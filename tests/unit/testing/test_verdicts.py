from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.metrics import Metric, ScoreTable, get
from pytest_vlmrobust.policies import JudgedBy
from pytest_vlmrobust.testing import LAWS, check_metric, verdicts
from pytest_vlmrobust.testing.verdicts import trials

Bounds = tuple[float, float]


def mine(interval: Callable[[ScoreTable, str | None, float], Bounds] | None) -> Metric:
    """Returns the accuracy with another interval."""
    return replace(get("accuracy"), name="mine", interval=interval)


def around(table: ScoreTable, margin: float) -> Bounds:
    value = float(table.by_setting["fog:low"].mean())
    return value - margin, value + margin


def test_a_good_interval_holds_every_law() -> None:
    for law in LAWS:
        check_metric(mine(get("accuracy").interval), check=law)


def test_an_interval_that_widens_as_risk_grows_is_found() -> None:
    record = mine(lambda table, _, confidence: around(table, 0.3 * (1.01 - confidence)))
    message = (
        r"metric 'mine' (passes|fails) (max|min|within) .* at the risk 0\.\d+ and not at the larger risk 0\.\d+\n    called with"
    )
    with pytest.raises(AssertionError, match=message):
        check_metric(record, check="more_risk")


def test_a_judge_that_passes_what_its_samples_fail_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_interval_alone(rule: Any, *_: Any) -> Verdict:
        point = rule.treatment.judge is JudgedBy.POINT
        return Verdict(Outcome.FAIL if point else Outcome.PASS, "")

    monkeypatch.setattr(verdicts, "judge_rule", by_interval_alone)
    message = r"metric 'mine' is PASS with the bound .* and its value .* alone is FAIL: is it outside its interval, "
    with pytest.raises(AssertionError, match=message):
        check_metric(mine(get("accuracy").interval), check="point_value")


def test_a_judge_that_turns_as_samples_are_added_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 10

    def by_number(_: Any, estimate: Any, *__: Any) -> Verdict:
        return Verdict(Outcome.PASS if estimate.n < few else Outcome.FAIL, "")

    monkeypatch.setattr(verdicts, "judge_rule", by_number)
    message = r"metric 'mine' is PASS with .*, and FAIL with [25] times the same samples\n"
    with pytest.raises(AssertionError, match=message):
        check_metric(mine(get("accuracy").interval), check="more_samples")


@pytest.mark.parametrize("law", ["point_value", "more_samples"])
def test_an_interval_beside_its_value_decides_nothing(law: str) -> None:
    """Its own check, ``ordered``, refuses it; until then a rule that it would turn is undecided."""
    record = mine(lambda table, _, confidence: (around(table, 0.0)[0] + 0.1, around(table, 0.0)[0] + 0.2 + 0.1 * confidence))
    check_metric(record, check=law)
    with pytest.raises(AssertionError, match="which does not hold its value"):
        check_metric(record, check="ordered")


def test_a_judge_that_rewards_a_tighter_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def upside_down(rule: Any, *_: Any) -> Verdict:
        wide = math.isfinite(rule.bound.low) or rule.bound.high > 0.5
        return Verdict(Outcome.FAIL if wide else Outcome.PASS, "")

    monkeypatch.setattr(verdicts, "judge_rule", upside_down)
    with pytest.raises(AssertionError, match=r"metric 'mine' is FAIL with the bound max .* and PASS with the tighter max"):
        check_metric(mine(None), check="tighter_bound")


def test_a_judge_that_passes_what_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "judge_rule", lambda *_: Verdict(Outcome.PASS, ""))
    with pytest.raises(AssertionError, match=r"metric 'mine' is PASS with a missing score: it has to be undecided\n"):
        check_metric(mine(None), check="unknown")


def test_a_judge_that_judges_what_does_not_apply_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(rule: Any, estimate: Any, *_: Any) -> Verdict:
        return Verdict(Outcome.FAIL if math.isfinite(estimate.value) else Outcome.INCONCLUSIVE, "")

    monkeypatch.setattr(verdicts, "judge_rule", hasty)
    with pytest.raises(AssertionError, match=r"is INCONCLUSIVE although it does not apply: .* the visual gain"):
        check_metric("relative_corruption_error", check="unknown")


@pytest.mark.parametrize("name", ["accuracy_drop", "worst_case_drop", "relative_corruption_error", "pcri", "position_gap"])
def test_generated_verdicts_are_of_every_kind(name: str) -> None:
    """Laws about decisive verdicts would say nothing if there were none."""
    seen: Counter[Outcome] = Counter()

    trials(get(name), lambda trial: seen.update(trial.verdict(bound) for bound in trial.bounds), 60)
    assert all(seen[outcome] >= 10 for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE))
    assert (seen[Outcome.NOT_APPLICABLE] > 0) is bool(get(name).gate)


def test_an_interval_that_raises_is_told_by_name() -> None:
    def broken(*_: Any) -> Bounds:
        raise KeyError("fog")

    with pytest.raises(AssertionError, match=r"metric 'mine' raised KeyError: 'fog'\n    called with clean=\[0\.0\]"):
        check_metric(mine(broken), check="tighter_bound")
