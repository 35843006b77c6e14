"""Property checks for metrics and contract checks for backends, including your own.

from pytest_vlmrobust.testing import check_backend, check_metric

def test_my_metric():
    check_metric(my_metric)

def test_my_backend():
    check_backend(open_backend(resolve("my-model", models_file=Path("models.yaml"))))

The shipped suite ``suites/test_metric_properties.py`` makes each check a separate test for every registered metric.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.metrics import REGISTRY, Metric

from .backends import BACKEND_CHECKS, check_backend
from .intervals import INTERVALS, LAWS
from .properties import PROFILES, PROPERTIES, VARIABLE, Property, examples_of

__all__ = [
    "BACKEND_CHECKS",
    "CHECKS",
    "INTERVALS",
    "LAWS",
    "PROFILES",
    "PROPERTIES",
    "VARIABLE",
    "Property",
    "check_backend",
    "check_metric",
    "checks_of",
    "examples_of",
    "unclaimed",
]

CHECKS: dict[str, Property] = {**PROPERTIES, **INTERVALS, **LAWS}
"""All checks of metrics: first of the formula, then of the interval, then of the verdicts."""

MetricLike = Metric | Callable[..., float] | str


def check_metric(metric: MetricLike, *, examples: int = 100, check: str = "") -> None:
    """Checks the properties that every metric must have, on generated scores that are the same every time.

    A metric returns a built-in float, the same for the same scores and for the samples in any order, inside its bounds, NaN
    rather than infinity if it is undefined, and leaves its arguments unchanged. With a missing (NaN) score, or without
    samples, it returns NaN or raises ValueError, never a number. When one score rises, the metric moves as its record claims: if
    lower is better, it never rises when the model answers better. It has its declared values for a perfect model, for unchanged
    scores and for images that add nothing. Its interval contains the value, and contains the truth at the declared rate:
    see :data:`INTERVALS`. Verdicts on it are monotone: see :data:`LAWS`.

    The metric is registered (given by name, record or function), or any function with parameters named as in
    :class:`~pytest_vlmrobust.metrics.Needs` (``clean``, ``perturbed``, ``perturbed_by_setting``, ``no_image`` ...). Each check
    tries score tables (``examples`` sets how many). ``check`` names one of :data:`CHECKS`; if empty, all that apply run.
    The AssertionError of a violated property shows the smallest scores that violate it and the result.
    """
    __tracebackhide__ = True
    record = _record(metric)
    if check and check not in CHECKS:
        raise UnknownName("check", check, CHECKS)
    for name in [check] if check else checks_of(record):
        if not unclaimed(record, name):
            CHECKS[name].hold(record, examples)


def checks_of(metric: MetricLike) -> list[str]:
    """Returns the names of the checks that apply to a metric, including those for which its record makes no claim."""
    record = _record(metric)
    return [name for name, check in CHECKS.items() if check.concerns(record)]


def unclaimed(metric: MetricLike, check: str) -> str:
    """Returns why a check has nothing to test (the claim missing in the record), or an empty string."""
    return CHECKS[check].unclaimed(_record(metric))


def _record(metric: MetricLike) -> Metric:
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return REGISTRY.get(metric)
    record = REGISTRY.of_function(metric)
    return record or Metric(metric)
