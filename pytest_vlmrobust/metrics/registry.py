"""The registered metrics, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.core.registry import Registry

from .record import Metric, Scope

Function = TypeVar("Function", bound=Callable[..., float])
Named = ParamSpec("Named")

AMBIGUOUS = {"rce": ("relative_corruption_error", "relative_continuous_error")}
"""Abbreviations that two papers use for different things: refused, with both full names."""


def ambiguous_message(name: str) -> str:
    """Returns the error message for an ambiguous abbreviation, with the names to write."""
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
            UnknownName: nothing has this name, or it is ambiguous; the message suggests names.
            UsageError: an installed package that provides it fails to import, or provides something else than a metric.
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
        """Returns the record registered for ``function``, or None."""
        return self._by_function.get(function)


REGISTRY = MetricRegistry()


def get(name: str) -> Metric:
    """Returns the record of the metric called ``name``.

    Raises:
        UnknownName: nothing has this name, or it is ambiguous (``rce``); the message suggests names.
    """
    return REGISTRY.get(name)


def names(scope: Scope | None = None, suite: str | None = None) -> list[str]:
    """Returns the names of all metrics, or only of one scope (``"cell"``, ``"sweep"``) or one suite.

    A metric without a suite belongs to every suite.
    """
    if scope is None and suite is None:
        return REGISTRY.names()
    records = {name: REGISTRY.get(name) for name in REGISTRY.names()}
    return [
        name
        for name, record in records.items()
        if scope in (None, record.scope) and (suite is None or record.suite in ("", suite))
    ]


def _registers(
    record: Callable[Concatenate[Callable[..., float], Named], Metric],
) -> Callable[Named, Callable[[Function], Function]]:
    """Returns a decorator that takes the facts of a record."""

    @wraps(record)
    def of_facts(*facts: Named.args, **named: Named.kwargs) -> Callable[[Function], Function]:
        def register(function: Function) -> Function:
            made = record(function, *facts, **named)
            REGISTRY.add(made.name, made, replace=made.replace, origin=function.__module__)
            return function

        return register

    return of_facts


metric = _registers(Metric)
"""Registers a function as a metric and returns it unchanged; works in a package and in a ``conftest.py``. Takes the facts of a
:class:`Metric`."""
