from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.metrics import Metric, ScoreTable, get
from pytest_vlmrobust.policies import JudgedBy
from pytest_vlmrobust.testing import INTERVALS, LAWS, PROFILES, check_metric, checks_of, intervals
from pytest_vlmrobust.testing.intervals import trials

Bounds = tuple[float, float]
Change = Callable[[float, float], Bounds]


def load() -> Any:
    """Returns the benchmark of planted mistakes."""
    file = Path(__file__).parents[3] / "benchmarks" / "interval_mutants.py"
    spec = importlib.util.spec_from_file_location("interval_mutants", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["interval_mutants"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MUTANTS = load()


def changed(name: str, change: Change) -> Metric:
    """Returns a metric of a user's own: a built-in one with other ends of its interval."""
    base = get(name)

    def interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
        assert base.interval is not None
        return change(*base.interval(table, setting, confidence))

    return replace(base, name="mine", interval=interval)


def test_a_good_interval_holds_every_law() -> None:
    for law in set(checks_of("accuracy_drop")) & set(INTERVALS):
        check_metric(changed("accuracy_drop", lambda low, high: (low, high)), check=law, examples=30)


@pytest.mark.parametrize("mutant", MUTANTS.MUTANTS, ids=lambda mutant: mutant.name)
def test_the_fast_profile_finds_every_planted_mistake(mutant: Any) -> None:
    assert mutant.found_by(PROFILES["vlm-fast"])


def test_no_check_loads_the_distributions_of_scipy() -> None:
    program = (
        "import sys\n"
        "from pytest_vlmrobust.testing import INTERVALS, check_metric, checks_of\n"
        "for name in ('accuracy_drop', 'mean_drop'):\n"
        "    for law in set(checks_of(name)) & set(INTERVALS):\n"
        "        check_metric(name, check=law, examples=3)\n"
        "assert 'scipy.stats' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_chances_of_a_mixture_are_binomial() -> None:
    from scipy import stats

    for part, size in ((0, 7), (3, 1), (10, 40), (20, 12)):
        expected = stats.binom.pmf(range(size + 1), size, part / intervals._PARTS)
        assert intervals._chances(part, size) == pytest.approx(expected, rel=1e-12, abs=1e-14)


def test_ends_in_the_wrong_order_are_found() -> None:
    message = r"metric 'mine' has the interval \[.*\] at 50%, which does not hold its value .*\n    called with"
    with pytest.raises(AssertionError, match=message):
        check_metric(changed("accuracy", lambda low, high: (high, low)), check="ordered")


def test_half_an_interval_is_found() -> None:
    with pytest.raises(AssertionError, match=r"metric 'mine' has half an interval at 50%: \[nan, "):
        check_metric(changed("accuracy", lambda _, high: (float("nan"), high)), check="ordered")


def test_certainty_from_a_few_samples_is_found() -> None:
    def certain(low: float, high: float) -> Bounds:
        return (1.0, 1.0) if high == 1.0 else (low, high)

    with pytest.raises(AssertionError, match=r"metric 'mine' is certain of 1\.0: 5 samples that are alike leave a doubt"):
        check_metric(changed("accuracy", certain), check="doubtful")


def test_an_end_that_is_moved_by_a_millionth_is_found() -> None:
    with pytest.raises(
        AssertionError, match=r"metric 'mine' has .* with right answers for wrong ones and wrong for right: expected"
    ):
        check_metric(changed("accuracy_drop", lambda low, high: (low + 1e-6, high + 1e-6)), check="symmetric")


def test_an_interval_that_misses_the_truth_too_often_is_found() -> None:
    def narrow(low: float, high: float) -> Bounds:
        middle, half = (low + high) / 2.0, (high - low) / 6.0
        return middle - half, middle + half

    message = r"metric 'mine' has a low end at 90% that the truth misses with probability 0\.\d+ on average and 0\.\d+ at most"
    with pytest.raises(AssertionError, match=message):
        check_metric(changed("accuracy", narrow), check="binomial")
    message = (
        r"metric 'mine' has a (low|high) end at 90% that the truth .* misses in \d+ of 300 simulated runs\n    called with 60"
    )
    with pytest.raises(AssertionError, match=message):
        check_metric(changed("mean_drop", narrow), check="coverage")


def test_the_interval_of_a_built_in_metric_is_calculated_again() -> None:
    moved = replace(changed("accuracy", lambda low, high: (low - 1e-6, high + 1e-6)), name="accuracy")
    with pytest.raises(AssertionError, match=r"metric 'accuracy' has .* at 50%: expected \[.*\], by exact calculation\n"):
        check_metric(moved, check="reference")


def test_a_metric_without_an_interval_has_none_to_be_checked() -> None:
    for law in INTERVALS:
        check_metric(replace(get("accuracy"), interval=None), check=law)


def mine(interval: Callable[[ScoreTable, str | None, float], Bounds] | None) -> Metric:
    """Returns the accuracy with another interval."""
    return replace(get("accuracy"), name="mine", interval=interval)


def around(table: ScoreTable, margin: float) -> Bounds:
    value = float(table.by_setting["fog:low"].mean())
    return value - margin, value + margin


def test_a_good_interval_holds_every_law_of_verdicts() -> None:
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

    monkeypatch.setattr(intervals, "judge_rule", by_interval_alone)
    message = r"metric 'mine' is PASS with the bound .* and its value .* alone is FAIL: is it outside its interval, "
    with pytest.raises(AssertionError, match=message):
        check_metric(mine(get("accuracy").interval), check="point_value")


def test_a_judge_that_turns_as_samples_are_added_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    few = 10

    def by_number(_: Any, estimate: Any, *__: Any) -> Verdict:
        return Verdict(Outcome.PASS if estimate.n < few else Outcome.FAIL, "")

    monkeypatch.setattr(intervals, "judge_rule", by_number)
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

    monkeypatch.setattr(intervals, "judge_rule", upside_down)
    with pytest.raises(AssertionError, match=r"metric 'mine' is FAIL with the bound max .* and PASS with the tighter max"):
        check_metric(mine(None), check="tighter_bound")


def test_a_judge_that_passes_what_is_missing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "judge_rule", lambda *_: Verdict(Outcome.PASS, ""))
    with pytest.raises(AssertionError, match=r"metric 'mine' is PASS with a missing score: it has to be undecided\n"):
        check_metric(mine(None), check="unknown")


def test_a_judge_that_judges_what_does_not_apply_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(rule: Any, estimate: Any, *_: Any) -> Verdict:
        return Verdict(Outcome.FAIL if math.isfinite(estimate.value) else Outcome.INCONCLUSIVE, "")

    monkeypatch.setattr(intervals, "judge_rule", hasty)
    with pytest.raises(AssertionError, match=r"is INCONCLUSIVE although it does not apply: .* the visual gain"):
        check_metric("relative_corruption_error", check="unknown")


@pytest.mark.parametrize("name", ["accuracy_drop", "worst_case_drop", "relative_corruption_error", "pcri", "position_gap"])
def test_generated_verdicts_are_of_every_kind(name: str) -> None:
    """Laws about decisive verdicts would say nothing if there were none."""
    seen: Counter[Outcome] = Counter()

    trials(get(name), lambda trial: seen.update(trial.verdict(bound) for bound in trial.bounds), 24)
    assert all(seen[outcome] >= 4 for outcome in (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE))
    assert (seen[Outcome.NOT_APPLICABLE] > 0) is bool(get(name).gate)


def test_an_interval_that_raises_is_told_by_name() -> None:
    def broken(*_: Any) -> Bounds:
        raise KeyError("fog")

    with pytest.raises(AssertionError, match=r"metric 'mine' raised KeyError: 'fog'\n    called with clean=\[0\.0\]"):
        check_metric(mine(broken), check="tighter_bound")
