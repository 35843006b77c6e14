from __future__ import annotations

import math
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable
from pytest_vlmrobust.metrics.record import REGISTRY, MetricRegistry

CONFIDENCE = {
    "area_under_risk_coverage",
    "brier_score",
    "brier_score_increase",
    "calibration_error_increase",
    "coverage_at_90_precision",
    "coverage_at_90_precision_drop",
    "expected_calibration_error",
    "risk_coverage_increase",
}
CELL = {"accuracy", "accuracy_drop", "relative_corruption_error", "harmful_flip_rate", "helpful_flip_rate"}
PATCHES = {"pcri", "rci", "pcri_excess", "pcri_matched"}
CURVE = {
    "absolute_continuous_error",
    "largest_downward_step",
    "relative_continuous_error",
    "resolution_accuracy",
    "resolution_correlation",
    "resolution_net",
    "resolution_noise_floor",
    "resolution_slope",
    "resolution_wobble",
}
BASELINE = {"baseline_drop", "baseline_flip_rate", "drop_increase", "mean_baseline_drop"}
OBSERVATORY = {"group_gap", "identity_drop", "position_gap", "transfer_retention"}
SWEEP = {
    "always_lost_rate",
    "worst_category_accuracy",
    "worst_category_drop",
    "tail_share",
    "visual_gain",
    "accuracy_above_chance",
    "clean_accuracy",
    "mean_drop",
    "mean_drop_at_low",
    "worst_tenth_drop",
    "mean_relative_corruption_error",
    "mean_corruption_error",
    "effective_robustness",
    "relative_mean_corruption_error",
    "worst_case_drop",
    "severe_failure_rate",
    "catastrophic_rate",
    "worst_at_low",
    "benign_at_low",
    "mean_severity_violation",
    "mean_severity_correlation",
    "mean_harmful_flip_rate",
    "mean_helpful_flip_rate",
}


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics registered by a test disappear with it."""
    monkeypatch.setattr(REGISTRY, "_things", dict(REGISTRY._things))
    monkeypatch.setattr(REGISTRY, "_by_function", dict(REGISTRY._by_function))


def test_names_by_scope_and_suite() -> None:
    assert set(metrics.names(scope="cell", suite="corruptions")) == CELL | CONFIDENCE
    assert set(metrics.names(scope="sweep", suite="corruptions")) == SWEEP
    assert set(metrics.names(suite="patches")) == (CELL - {"relative_corruption_error"}) | PATCHES
    assert set(metrics.names(scope="sweep", suite="resolution")) == CURVE
    assert set(metrics.names()) >= OBSERVATORY
    assert set(metrics.names(suite="baseline")) - set(metrics.names(suite="resolution")) == BASELINE
    assert set(metrics.names()) == set(metrics.names(scope="cell")) | set(metrics.names(scope="sweep"))


def test_get_returns_the_record() -> None:
    record = metrics.get("worst_case_drop")
    assert record.function is metrics.worst_case_drop
    assert record.needs == (Needs.CLEAN, Needs.PERTURBED_BY_SETTING)
    assert (record.scope, record.better, record.bounds, record.unit) == ("sweep", "lower", (-1.0, 1.0), "fraction")
    assert record.summary == "Largest accuracy drop over all settings."
    assert "VLM-RobustBench" in record.reference


def test_an_unknown_name_comes_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown metric 'worst_case_dorp'\. Did you mean 'worst_case_drop'\?"):
        metrics.get("worst_case_dorp")


def test_rce_is_refused_with_both_full_names() -> None:
    both = "write 'relative_corruption_error' .VLM-RobustBench. or 'relative_continuous_error' .Res-Bench."
    with pytest.raises(AttributeError, match=f"'rce' is ambiguous: {both}"):
        metrics.rce  # noqa: B018  that is the point
    with pytest.raises(UnknownName, match=f"unknown metric 'rce'.*'rce' is ambiguous: {both}"):
        metrics.get("rce")
    with pytest.raises(UsageError, match=f"a metric cannot be called 'rce': 'rce' is ambiguous: {both}"):
        metrics.metric(name="rce")(_share_right)


def test_any_other_attribute_is_just_missing() -> None:
    with pytest.raises(AttributeError, match=r"module 'pytest_vlmrobust\.metrics' has no attribute 'nothing'"):
        metrics.nothing  # noqa: B018


def _share_right(perturbed: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Share of right answers."""
    return float(perturbed.mean()) if perturbed.size else math.nan


def test_a_users_metric_is_registered_and_estimated() -> None:
    decorated = metrics.metric(better="higher", bounds=(0.0, 1.0))(_share_right)
    assert decorated is _share_right
    record = metrics.get("_share_right")
    assert (record.needs, record.scope, record.interval) == ((Needs.PERTURBED,), "cell", None)
    estimate = metrics.estimate("_share_right", ScoreTable(np.ones(4), {"fog:low": np.array([1.0, 0, 0, 0])}), "fog:low")
    assert (estimate.value, estimate.n, estimate.valid, estimate.reason) == (0.25, 4, True, "")
    assert all(math.isnan(number) for number in (estimate.low, estimate.high, estimate.confidence))


def test_a_users_sweep_metric_says_how_many_settings_it_saw() -> None:
    @metrics.metric()
    def smallest(perturbed_by_setting: dict[str, np.ndarray[Any, np.dtype[np.float64]]]) -> float:
        """Smallest accuracy over all settings."""
        return float(min(scores.mean() for scores in perturbed_by_setting.values()))

    estimate = metrics.estimate("smallest", ScoreTable(np.ones(2), {"a": np.ones(2), "b": np.zeros(2)}))
    assert (estimate.value, estimate.reason) == (0.0, "over 2 settings")


def test_needs_are_read_from_parameters_without_default() -> None:
    @metrics.metric()
    def with_options(clean: object, no_image: object, strict: bool = True) -> float:
        """A metric with an option."""
        return 0.0

    assert metrics.get("with_options").needs == (Needs.CLEAN, Needs.NO_IMAGE)


def test_a_parameter_that_says_nothing_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"metric 'wrong': nothing is known about its parameter 'cleen'\. Did you mean 'clean'\?"
    ):

        @metrics.metric()
        def wrong(cleen: object) -> float:
            """A metric with a misspelt parameter."""
            return 0.0


def test_a_metric_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"metric 'constant' needs nothing: list at least one of Needs\.CLEAN"):

        @metrics.metric()
        def constant() -> float:
            """Always the same."""
            return 0.0


def test_a_taken_name_is_refused_unless_replaced() -> None:
    with pytest.raises(UsageError, match=r"metric 'accuracy' is registered already by pytest_vlmrobust\.metrics\.accuracy"):
        metrics.metric(name="accuracy")(_share_right)
    metrics.metric(name="accuracy", replace=True)(_share_right)
    assert metrics.get("accuracy").function is _share_right


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"better": "up"}, "better is 'up', expected 'lower', 'higher' or 'none'"),
        ({"bounds": (1.0, 1.0)}, r"bounds are \(1\.0, 1\.0\), expected \(low, high\) with low < high"),
        ({"bounds": (math.nan, 1.0)}, "bounds are"),
    ],
)
def test_nonsense_in_a_record_is_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"metric 'mine': {message}"):
        Metric(_share_right, "mine", (Needs.PERTURBED,), **facts)


def _installed(thing: object, monkeypatch: pytest.MonkeyPatch) -> MetricRegistry:
    """A registry in which an installed package offers ``thing`` as metric ``theirs``."""
    entry = EntryPoint(name="theirs", value="their_package:thing", group="pytest_vlmrobust.metrics")
    monkeypatch.setattr(EntryPoint, "load", lambda self: thing)
    registry = MetricRegistry()
    monkeypatch.setattr(registry, "_entry_points", {"theirs": entry})
    return registry


def test_a_package_may_offer_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Metric(_share_right, "theirs", (Needs.PERTURBED,))
    registry = _installed(record, monkeypatch)
    assert registry.names() == ["theirs"]
    assert registry.get("theirs") is record


def test_a_package_may_offer_a_decorated_function(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = _installed(_share_right, monkeypatch)
    record = registry.add("inside", Metric(_share_right, "inside", (Needs.PERTURBED,)))
    assert registry.get("theirs") is record
    assert registry.get("theirs") is record


@pytest.mark.parametrize("thing", [_share_right, 7])
def test_a_package_that_offers_something_else_is_named(thing: object, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = _installed(thing, monkeypatch)
    with pytest.raises(UsageError, match=r"metric 'theirs' of an installed package is a \w+, expected a function decorated with"):
        registry.get("theirs")


def test_every_public_metric_function_is_registered_or_a_formula_of_parts() -> None:
    parts = {
        "applicable",
        "best_patches",
        "by_level",
        "category_sensitivity",
        "changed_samples",
        "corpus_pcri",
        "corruption_errors",
        "coverage",
        "does_the_task",
        "estimate",
        "exact_interval",
        "exceeds_the_prompt",
        "fixation",
        "fixation_rate",
        "flip_rates",
        "gain_interval",
        "get",
        "grid_distance",
        "grid_error",
        "group_means",
        "human_reference",
        "identity_drop_by_split",
        "intersection_over_union",
        "linear_trend",
        "macro_accuracies",
        "mean_effects",
        "mean_overlap",
        "metric",
        "names",
        "paired_drop_interval",
        "patch_contribution",
        "pcri_neutral",
        "percentile_bands",
        "rci_band",
        "rci_correlation",
        "relative_index_change",
        "robustness_tier",
        "scale_consistency",
        "scale_consistency_interval",
        "scale_gain",
        "scale_gain_interval",
        "severity_correlation",
        "severity_violation",
        "signed_group_gap",
        "size_trend",
        "size_weights",
        "tier_shares",
        "prompt_leakage_iou",
        "wobble_p_value",
    }
    functions = {name for name in metrics.__all__ if name[0].islower()}
    assert functions == parts | set(metrics.names())
    assert all(isinstance(getattr(metrics, name), Callable) for name in functions)  # type: ignore[arg-type]


NEEDS = (Needs.CLEAN, Needs.PERTURBED, Needs.PEOPLE)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"monotone": {Needs.NO_IMAGE: 1}}, r"metric 'mine' reads no scores called 'no_image'\. Leave no_image out of monotone"),
        ({"monotone": {Needs.PEOPLE: 1}}, r"metric 'mine' reads no scores called 'people'"),
        ({"not_monotone": {Needs.BASELINE: "why"}}, r"metric 'mine' reads no scores called 'baseline'"),
        ({"monotone": {Needs.CLEAN: 2}}, r"metric 'mine': monotone has 2 for clean, expected 1, 0 or -1"),
        (
            {"monotone": {Needs.CLEAN: 1}, "not_monotone": {Needs.CLEAN: "why"}},
            r"metric 'mine': clean is in monotone and in not_monotone\. Leave it out of one",
        ),
        ({"not_monotone": {Needs.CLEAN: " "}}, r"metric 'mine': not_monotone has no reason for clean\. Say why"),
        (
            {"better": "higher", "monotone": {Needs.PERTURBED: -1}},
            r"metric 'mine': higher is better, and monotone says that a better score in perturbed makes it worse\. Change one of",
        ),
    ],
)
def test_directions_that_make_no_sense_are_refused(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Metric(_share_right, "mine", NEEDS, **facts)


def test_a_better_direction_is_one_about_the_judged_model() -> None:
    def directions(*needs: Needs, **facts: Any) -> dict[Needs, int]:
        return dict(Metric(_share_right, "mine", needs, **facts).directions)

    assert directions(Needs.CLEAN, Needs.PERTURBED, better="lower") == {Needs.PERTURBED: -1}
    assert directions(Needs.CLEAN, better="higher") == {Needs.CLEAN: 1}
    assert directions(Needs.CLEAN, Needs.PERTURBED_BY_SETTING, better="none") == {}
    assert directions(Needs.PERTURBED, better="lower", not_monotone={Needs.PERTURBED: "why"}) == {}
    both = directions(Needs.CLEAN, Needs.PERTURBED, better="lower", monotone={Needs.CLEAN: 1})
    assert both == {Needs.CLEAN: 1, Needs.PERTURBED: -1}
    assert directions(Needs.PERTURBED, better="lower", monotone={Needs.PERTURBED: 0}) == {Needs.PERTURBED: 0}
