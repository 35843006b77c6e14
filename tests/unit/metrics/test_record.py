from __future__ import annotations

import inspect
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


@pytest.fixture(autouse=True)
def _registry_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics registered by a test disappear with it."""
    monkeypatch.setattr(REGISTRY, "_things", dict(REGISTRY._things))
    monkeypatch.setattr(REGISTRY, "_by_function", dict(REGISTRY._by_function))


def test_names_by_scope_and_suite() -> None:
    """The suite of each stands in docs/reference/metrics.md, which is generated."""
    cells, sweeps = ({*metrics.names(scope=scope, suite="corruptions")} for scope in ("cell", "sweep"))
    assert cells.isdisjoint(sweeps)
    assert {"accuracy_drop", "brier_score", "relative_corruption_error"} <= cells
    assert {"visual_gain", "tail_share", "worst_case_drop"} <= sweeps
    patches = {*metrics.names(suite="patches")}
    assert {"pcri", "accuracy_drop"} <= patches
    assert patches.isdisjoint({"relative_corruption_error", "tail_share", "resolution_net"})
    assert {*metrics.names()} == {*metrics.names(scope="cell")} | {*metrics.names(scope="sweep")}
    assert {*metrics.names()} >= cells | sweeps | patches | {"baseline_drop", "group_gap", "resolution_net"}


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
    with pytest.raises(
        UsageError, match=r"metric 'theirs' of an installed package is a \w+, .* decorated with .* Fix or uninstall it"
    ):
        registry.get("theirs")


def _required(function: Callable[..., object]) -> set[str]:
    return {name for name, parameter in inspect.signature(function).parameters.items() if parameter.default is parameter.empty}


def test_every_public_function_of_scores_is_registered_or_a_formula_of_parts() -> None:
    parts = {"corruption_errors", "flip_rates", "linear_trend", "macro_accuracies", "patch_contribution"}
    functions = {name for name in metrics.__all__ if name[0].islower()}
    assert all(isinstance(getattr(metrics, name), Callable) for name in functions)  # type: ignore[arg-type]
    needs = {need.value for need in Needs}
    of_scores = {name for name in functions if (needed := _required(getattr(metrics, name))) and needed <= needs}
    assert set(metrics.names()) <= functions
    assert of_scores - set(metrics.names()) == parts


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
