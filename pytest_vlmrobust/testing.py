"""Property checks for metrics, also for a user's own.

from pytest_vlmrobust.testing import check_metric

def test_my_metric():
check_metric(my_metric)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.metrics import REGISTRY, Metric, Needs
from pytest_vlmrobust.metrics.registry import needs_of

__all__ = ["check_metric"]

_TOLERANCE = 1e-9
_PHASES = (Phase.generate, Phase.shrink)
_SETTINGS = ("fog:low", "fog:mid", "fog:high", "glass_blur:low", "glass_blur:mid", "glass_blur:high", "flip_v")
_RESOLUTIONS = (112.0, 224.0, 448.0)
_PATCHES = 4
_BINARY, _GRADED = (0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0)
_MAPPINGS = {Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING}
_WITHOUT_SCORES = {Needs.LABELS, Needs.RESOLUTIONS}
_WITHOUT_SAMPLES = {Needs.RESOLUTIONS, Needs.ACCURACIES}


def check_metric(metric: Metric | Callable[..., float] | str, *, examples: int = 100) -> None:
    """Checks what every metric must hold, on generated scores; the same ones each time.

    A metric returns a built-in float, the same one for the same scores and for the samples in any order, inside its bounds, NaN
    rather than infinity where it is undefined, and leaves its arguments as they were. With a missing (NaN) score, or without
    samples, it returns NaN or raises ValueError: never a number. It has its declared value for a perfect model.

    Args:
        metric: a registered metric, by name, record or function; or any function whose parameters are named as in
            :class:`~pytest_vlmrobust.metrics.Needs` (``clean``, ``perturbed``, ``perturbed_by_setting``, ``no_image`` ...).
        examples: how many generated score tables to try.

    Raises:
        AssertionError: a property does not hold; the message shows the scores and what came out.
        UnknownName: no metric has that name.
        UsageError: a parameter whose name says nothing about what it needs.
    """
    record = _record(metric)

    @settings(max_examples=examples, phases=_PHASES, deadline=None, derandomize=True, database=None, report_multiple_bugs=False)
    @given(_cases(record.needs))
    def check(case: _Case) -> None:
        _check_value(record, case)
        _check_order(record, case)
        _check_missing(record, case)

    _check_nothing(record)
    _check_perfect(record)
    check()


@dataclass(frozen=True)
class _Case:
    """Arguments of one call, another order of their samples, and the sample whose score will be missing."""

    arguments: Sequence[Any]
    order: Sequence[int]
    gap: int


def _record(metric: Metric | Callable[..., float] | str) -> Metric:
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str):
        return REGISTRY.get(metric)
    known = REGISTRY.of_function(metric)
    return known or Metric(getattr(metric, "__name__", "metric"), metric, needs_of(metric))


@st.composite
def _cases(draw: st.DrawFn, needs: Sequence[Needs]) -> _Case:
    samples = draw(st.integers(1, 8))
    score = st.sampled_from(draw(st.sampled_from([_BINARY, _GRADED])))

    def scores(shape: tuple[int, ...]) -> Any:
        count = math.prod(shape)
        return np.array(draw(st.lists(score, min_size=count, max_size=count))).reshape(shape)

    labels = draw(st.lists(st.sampled_from("abc"), min_size=samples, max_size=samples))
    arguments = [_argument(need, samples, scores, labels) for need in needs]
    return _Case(arguments, draw(st.permutations(range(samples))), draw(st.integers(0, samples - 1)))


def _argument(need: Needs, samples: int, scores: Callable[[tuple[int, ...]], Any], labels: Sequence[str]) -> Any:
    if need in _MAPPINGS:
        return {setting: scores((samples,)) for setting in _SETTINGS}
    if need is Needs.PATCHES:
        return scores((samples, _PATCHES))
    if need is Needs.LABELS:
        return list(labels)
    if need is Needs.RESOLUTIONS:
        return list(_RESOLUTIONS) if samples else []
    if need is Needs.ACCURACIES:
        return scores((len(_RESOLUTIONS),)).tolist() if samples else []
    return scores((samples,))


def _check_value(record: Metric, case: _Case) -> None:
    arguments = copy.deepcopy(case.arguments)
    value = _call(record, arguments)
    shown = _shown(record, case.arguments)
    _require(type(value) is float, record, f"returned {value!r} of type {type(value).__name__}: expected a built-in float", shown)
    _require(not math.isinf(value), record, "returned infinity: a metric that is undefined is NaN", shown)
    changed = _shown(record, arguments)
    _require(changed == shown, record, f"changed its arguments to {changed}", shown)
    again = _call(record, copy.deepcopy(case.arguments))
    _require(_same(value, again, 0.0), record, f"returned {value!r}, then {again!r} for the same scores", shown)
    low, high = record.bounds
    inside = math.isnan(value) or low - _TOLERANCE <= value <= high + _TOLERANCE
    _require(inside, record, f"returned {value!r}, outside its bounds {low} to {high}", shown)


def _check_order(record: Metric, case: _Case) -> None:
    pairs = zip(record.needs, case.arguments, strict=True)
    reordered = [value if need in _WITHOUT_SAMPLES else _reordered(value, case.order) for need, value in pairs]
    value, other = _call(record, copy.deepcopy(case.arguments)), _call(record, copy.deepcopy(reordered))
    problem = f"depends on the order of the samples: {value!r}, but {other!r} for {_shown(record, reordered)}"
    _require(_same(value, other, _TOLERANCE), record, problem, _shown(record, case.arguments))


def _check_missing(record: Metric, case: _Case) -> None:
    for position, need in enumerate(record.needs):
        if need in _WITHOUT_SCORES:
            continue
        arguments = list(copy.deepcopy(case.arguments))
        arguments[position] = _with_gap(arguments[position], case.gap)
        problem = f"returned a number although a score in {need.value} is missing (NaN)"
        _require(_is_unknown(record, arguments), record, problem, _shown(record, arguments))


def _check_nothing(record: Metric) -> None:
    arguments = [_argument(need, 0, np.zeros, ()) for need in record.needs]
    _require(_is_unknown(record, arguments), record, "returned a number without any samples", _shown(record, arguments))


def _check_perfect(record: Metric) -> None:
    if math.isnan(record.perfect):
        return
    wrong = {Needs.NO_IMAGE, Needs.REFERENCE_BY_SETTING}
    arguments = [_argument(need, 4, np.zeros if need in wrong else np.ones, "aabb") for need in record.needs]
    value = _call(record, copy.deepcopy(arguments))
    problem = f"returned {value!r} for a perfect model: expected {record.perfect!r}, as declared"
    _require(_same(value, record.perfect, _TOLERANCE), record, problem, _shown(record, arguments))


def _call(record: Metric, arguments: Sequence[Any]) -> float:
    shown = _shown(record, arguments)
    try:
        return record.function(*arguments)
    except Exception as error:
        raise AssertionError(f"metric {record.name!r} raised {type(error).__name__}: {error}\n    called with {shown}") from error


def _is_unknown(record: Metric, arguments: Sequence[Any]) -> bool:
    """Returns whether the metric answers NaN or ValueError."""
    try:
        value: object = record.function(*copy.deepcopy(arguments))
    except ValueError:
        return True
    return isinstance(value, float) and math.isnan(value)


def _reordered(value: Any, order: Sequence[int]) -> Any:
    if isinstance(value, Mapping):
        return {setting: _reordered(scores, order) for setting, scores in value.items()}
    return value[list(order)] if isinstance(value, np.ndarray) else [value[index] for index in order]


def _with_gap(value: Any, index: int) -> Any:
    if isinstance(value, Mapping):
        return {setting: _with_gap(scores, index) for setting, scores in value.items()}
    value[index % len(value)] = math.nan
    return value


def _same(value: float, other: float, tolerance: float) -> bool:
    return (math.isnan(value) and math.isnan(other)) or abs(value - other) <= tolerance


def _shown(record: Metric, arguments: Sequence[Any]) -> str:
    pairs = zip(record.needs, arguments, strict=True)
    return ", ".join(f"{need.value}={_plain(value)}" for need, value in pairs)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {setting: _plain(scores) for setting, scores in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


def _require(holds: bool, record: Metric, problem: str, shown: str) -> None:
    if not holds:
        raise AssertionError(f"metric {record.name!r} {problem}\n    called with {shown}")
