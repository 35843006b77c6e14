"""The registered metrics, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_vlmrobust.core.errors import UnknownName, UsageError, did_you_mean
from pytest_vlmrobust.core.registry import Registry

from .record import Better, Coverage, Direction, Gate, Interval, Metric, Note, Reach, Scope
from .table import Needs

Function = TypeVar("Function", bound=Callable[..., float])

AMBIGUOUS = {"rce": ("relative_corruption_error", "relative_continuous_error")}
"""Abbreviations that two papers use for different things: refused, with both full names."""


def ambiguous_message(name: str) -> str:
    """Returns why an ambiguous abbreviation is refused, and what to write."""
    first, second = AMBIGUOUS[name]
    return f"{name!r} is ambiguous: write {first!r} (VLM-RobustBench) or {second!r} (Res-Bench)"


class MetricRegistry(Registry[Metric]):
    """The registry of metrics, which also refuses abbreviations that two papers share."""

    def __init__(self) -> None:
        super().__init__("metric", group="metrics")
        self._by_function: dict[Callable[..., Any], Metric] = {}

    def add(self, name: str, thing: Metric, *, replace: bool = False, origin: str = "") -> Metric:
        """Registers a metric."""
        if name in AMBIGUOUS:
            raise UsageError(f"a metric cannot be called {name!r}: {ambiguous_message(name)}, or choose another name")
        self._by_function[thing.function] = thing
        return super().add(name, thing, replace=replace, origin=origin)

    def get(self, name: str) -> Metric:
        """Returns the metric called ``name``.

        Raises:
            UnknownName: nothing has that name, or it is ambiguous; the message offers what to write.
            UsageError: an installed package offers it and fails to import, or offers something that is not a metric.
        """
        if name in AMBIGUOUS:
            raise UnknownName("metric", name, AMBIGUOUS[name], more=ambiguous_message(name))
        registered: object = super().get(name)
        if isinstance(registered, Metric):
            return registered
        record = self.of_function(registered) if callable(registered) else None
        if record is None:
            raise UsageError(
                f"metric {name!r} of an installed package is a {type(registered).__name__}, expected a function decorated with "
                "@pytest_vlmrobust.metrics.metric, or a Metric"
            )
        return super().add(name, record, replace=True)

    def of_function(self, function: Callable[..., Any]) -> Metric | None:
        """Returns the record that was registered for ``function``, or None."""
        return self._by_function.get(function)


REGISTRY = MetricRegistry()


def get(name: str) -> Metric:
    """Returns the record of the metric called ``name``.

    Raises:
        UnknownName: nothing has that name, or it is ambiguous (``rce``); the message offers what to write.
    """
    return REGISTRY.get(name)


def names(scope: Scope | None = None, suite: str | None = None) -> list[str]:
    """Returns the names of all metrics, or of those of one scope (``"cell"``, ``"sweep"``) or one suite.

    A metric that names no suite belongs to every suite.
    """
    if scope is None and suite is None:
        return REGISTRY.names()
    records = {name: REGISTRY.get(name) for name in REGISTRY.names()}
    return [
        name
        for name, record in records.items()
        if scope in (None, record.scope) and (suite is None or record.suite in ("", suite))
    ]


def metric(
    *,
    name: str = "",
    needs: Sequence[Needs] = (),
    unit: str = "fraction",
    better: Better = "none",
    bounds: tuple[float, float] = (float("-inf"), float("inf")),
    perfect: float | None = None,
    reference: str = "",
    validity: str = "",
    unsuited: str = "",
    suite: str = "",
    interval: Interval | None = None,
    gate: Gate | None = None,
    coverage: Coverage | None = None,
    note: Note | None = None,
    unchanged: float | None = None,
    blind: float | None = None,
    monotone: Mapping[Needs, Direction] | None = None,
    not_monotone: Mapping[Needs, str] | None = None,
    best_patch_is_enough: bool = False,
    label_preserving: bool = False,
    counts_settings: bool = False,
    reach: Reach | None = None,
    replace: bool = False,
) -> Callable[[Function], Function]:
    """Registers a function as a metric and returns it unchanged; works in a package and in a ``conftest.py``.

    Args:
        name: what policies and reports call it; the function's own name by default.
        needs: the arguments of the call in order; by default, read from the names of the function's parameters.
        unit: ``"fraction"``, ``"ratio"``, ``"correlation"`` ...
        better: which direction is good.
        bounds: the smallest and largest possible value.
        perfect: its value for a model that answers everything right with the image and nothing without it. Of this and the next
            two, NaN claims that it is undefined there, and None claims nothing.
        reference: paper, section and equation of the formula.
        validity: when the value means something, in words.
        unsuited: when the value misleads or cannot be used, and what to use instead, in sentences.
        suite: the suite it belongs to; empty for every suite.
        interval: computes ``(low, high)`` from ``(table, setting, confidence)``.
        gate: computes from ``(table, setting)`` why the metric does not apply; an empty string when it does.
        coverage: what the published quantity is taken over.
        note: computes from ``table`` what a reader should know about the value.
        unchanged: its value when no setting, patch or earlier run changes any score.
        blind: its value when the questions score as much without their images.
        monotone: what it does when one score of an argument rises: 1 never falls, -1 never rises, 0 stays. ``better`` claims it
            for the scores of the judged model (under perturbation, where it reads such).
        not_monotone: arguments whose rising scores may move it either way, and why; these are exceptions to ``better``.
        best_patch_is_enough: whether it depends only on each sample's best patch and the number of patches.
        label_preserving: whether a gate computes it from answers that a setting leaves right only.
        counts_settings: whether it is the share of settings on one side of a line.
        reach: computes the lowest and the highest possible value from what is known before anything is measured.
        replace: take the place of a registered metric of that name.

    Raises:
        UsageError: the name of a parameter is not a need, the name of the metric is taken or ambiguous, or the record is
        inconsistent.

    >>> from pytest_vlmrobust.metrics import metric
    >>> @metric(better="lower", bounds=(0.0, 1.0), name="error_rate_of_the_docs", replace=True)
    ... def error_rate(perturbed):
    ...     '''Share of wrong answers.'''
    ...     return float(1 - perturbed.mean())
    """

    def register(function: Function) -> Function:
        record = Metric(
            name or function.__name__,
            function,
            tuple(needs) or needs_of(function),
            unit,
            better,
            bounds,
            perfect,
            reference,
            validity,
            unsuited,
            suite,
            interval,
            gate,
            coverage,
            note,
            unchanged,
            blind,
            dict(monotone or {}),
            dict(not_monotone or {}),
            best_patch_is_enough,
            label_preserving,
            counts_settings,
            reach,
        )
        REGISTRY.add(record.name, record, replace=replace, origin=function.__module__)
        return function

    return register


def needs_of(function: Callable[..., Any]) -> tuple[Needs, ...]:
    """Returns what a function needs, read from the names of its parameters; those with a default are left alone."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    known = {need.value: need for need in Needs}
    for parameter in parameters:
        if parameter.name not in known:
            raise UsageError(
                f"metric {function.__name__!r}: nothing is known about its parameter {parameter.name!r}."
                f"{did_you_mean(parameter.name, known)} Known: {', '.join(known)}. Rename it, or pass needs=(Needs...., ...)"
            )
    return tuple(known[parameter.name] for parameter in parameters)
