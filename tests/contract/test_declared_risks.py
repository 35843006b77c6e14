"""Verdicts err as rarely as rules declare: a short run of benchmarks/verdicts.py, over every metric that a rule may bound."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.evaluation.policy_files import known_metrics

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUNS, CLUSTERED_RUNS = 120, 300
CERTAIN = 1e-4
"""Of some hundred rates, none is as far above its nominal value by chance."""
OF_CLUSTERS = {"spread": ("clean_accuracy", "mean_drop", "harmful_flip_rate", "accuracy_drop"), "local": ("pcri",)}
BY_VALUE = {
    *("resolution_correlation", "resolution_noise_floor", "tail_share", "mean_severity_violation", "mean_severity_correlation"),
    *(f"{name}.macro" for name in metrics.names() if name.startswith("resolution_") and name != "resolution_noise_floor"),
    *("absolute_continuous_error.macro", "relative_continuous_error.macro", "largest_downward_step.macro"),
}
"""Metrics without an interval: rules judge their value, and say so."""


@pytest.fixture(scope="module")
def verdicts() -> Iterator[Any]:
    """The benchmark."""
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("verdicts")
    sys.path.remove(str(BENCHMARKS))


def metric_of(label: str) -> str:
    return label.partition(" ")[0]


def gateable() -> set[str]:
    """Every metric of this package that a rule may bound; other tests register their own."""
    own = {name for name in metrics.names() if metrics.get(name).function.__module__.startswith("pytest_vlmrobust.")}
    return {name for name in known_metrics() if name in own or name not in metrics.names()}


def test_every_metric_that_a_rule_may_bound_is_simulated(verdicts: Any) -> None:
    simulated = {metric_of(label) for world in verdicts.WORLDS for label in world.measures}
    assert simulated >= gateable()


def test_nothing_else_is_judged_by_its_value_alone(verdicts: Any) -> None:
    asked = {
        question.metric: question.judge
        for world in verdicts.WORLDS
        for label, measure in world.measures.items()
        if label not in verdicts.SHARES
        for question in verdicts._questions(label, measure, world.whole)
    }
    assert {name for name, judge in asked.items() if judge == "point"} == BY_VALUE


@pytest.mark.parametrize(
    "world",
    [
        *("rare 1 %", "graded", "churn", "spread", "identical", "local", "flat", "zigzag", "POPE", "categories"),
        *("family", "pointing", "fixation"),
    ],
)
def test_verdicts_err_as_rarely_as_declared(verdicts: Any, world: str) -> None:
    """Each metric is judged in the first of these worlds that measures it."""
    order = [name.values[0] if hasattr(name, "values") else name for name in _worlds()]
    before = {label for name in order[: order.index(world)] for label in _world(verdicts, name).measures}
    labels = [label for label in _world(verdicts, world).measures if label not in before or world in {"local", "categories"}]
    hold(verdicts.rows(_world(verdicts, world), verdicts.Layout(100), RUNS, labels))


@pytest.mark.parametrize("world", OF_CLUSTERS)
def test_one_picture_may_hold_a_fifth_of_the_questions(verdicts: Any, world: str) -> None:
    hold(verdicts.rows(_world(verdicts, world), verdicts.UNEQUAL, CLUSTERED_RUNS, OF_CLUSTERS[world]))
