"""Properties of the formula of a metric, on generated scores: one check for each; and which checks passed before."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import platform
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

import pytest_vlmrobust
from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.metrics import REGISTRY, SHIPPED, Metric, Needs
from pytest_vlmrobust.metrics.record import Direction
from pytest_vlmrobust.metrics.table import COMPANIONS

from . import oracles
from .cases import Case, Table, cases, describe_arguments, needs_with_scores, nothing, of_samples, perfect, plain, tables

# Properties are tried on generated examples, the same each time. A failure shows the smallest failing example.


THOROUGH = "vlm-thorough"
PROFILES = {"vlm-fast": 12, THOROUGH: 300}
"""Hypothesis profiles of the property suite, and their number of examples for each property."""
VARIABLE = "VLMROBUST_PROFILE"
"""Environment variable with the name of a profile."""

_ALWAYS: dict[str, Any] = {
    "phases": (Phase.generate, Phase.shrink),
    "deadline": None,
    "derandomize": True,
    "database": None,
    "report_multiple_bugs": False,
    "verbosity": Verbosity.quiet,  # the message shows the example itself
    "suppress_health_check": (HealthCheck.too_slow,),  # a busy machine is no problem of a metric
}

for _name, _examples in PROFILES.items():
    settings.register_profile(_name, max_examples=_examples, **_ALWAYS)


def examples_of(profile: str | None = None) -> int:
    """Returns how many examples a Hypothesis profile tries for each property.

    An empty profile means that of the environment variable ``VLMROBUST_PROFILE``, else ``vlm-fast``.
    """
    if profile:
        return settings.get_profile(profile).max_examples
    name = _in_environment()
    if name not in PROFILES:
        raise UnknownName("profile", name, PROFILES, where=VARIABLE)
    return PROFILES[name]


def is_thorough(profile: str | None = None) -> bool:
    """Returns whether a Hypothesis profile, given as in :func:`examples_of`, is ``vlm-thorough``."""
    return (profile or _in_environment()) == THOROUGH


def _in_environment() -> str:
    return os.environ.get(VARIABLE) or next(iter(PROFILES))


def try_examples(name: str, strategy: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int) -> None:
    """Runs ``check`` on examples of ``strategy``, and shrinks an example that fails."""
    __tracebackhide__ = True

    @settings(max_examples=examples, **_ALWAYS)
    @given(strategy)
    def attempt(example: Any) -> None:
        check(example)

    try:
        attempt()
    except Flaky as error:
        raise AssertionError(f"metric {name!r} fails for some scores and not when it is asked for the same ones again") from error
    except AssertionError as error:
        raise AssertionError(str(error)) from error.__cause__


def fails(name: str, problem: str, example: str) -> NoReturn:
    """Raises an AssertionError with the problem of a metric and the scores that show it."""
    __tracebackhide__ = True
    raise AssertionError(f"metric {name!r} {problem}\n    called with {example}")


BUILT_IN = "pytest_vlmrobust.metrics."
_LIKE_CLEAN = {
    *(Needs.CLEAN, Needs.PERTURBED, Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING),
    *(Needs.REFERENCE_CLEAN, Needs.BASELINE, Needs.BASELINE_CLEAN, Needs.PATCHES, *COMPANIONS),
}
_NEVER = {1: "falls", -1: "rises", 0: "changes"}


@dataclass(frozen=True)
class Property:
    """A property that a metric must have.

    ``hold`` takes the metric and a number of examples, and raises AssertionError if the property fails. ``concerns`` is False for
    metrics to which it does not apply. ``unclaimed`` returns why there is nothing to check, or an empty string.
    """

    meaning: str
    hold: Callable[[Metric, int], None]
    concerns: Callable[[Metric], bool] = lambda _: True
    unclaimed: Callable[[Metric], str] = lambda _: ""


def same(value: float, other: float, tolerance: float = ROUNDING) -> bool:
    """Whether two values are equal up to rounding; NaN equals NaN."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(value) and math.isnan(other)
    return math.isclose(value, other, rel_tol=tolerance, abs_tol=tolerance)


def _on_cases(check: Callable[[Metric, Case], None]) -> Callable[[Metric, int], None]:
    def hold(record: Metric, examples: int) -> None:
        __tracebackhide__ = True
        try_examples(record.name, cases(record.needs), lambda case: check(record, case), examples)

    return hold


def _check_float(record: Metric, case: Case) -> None:
    value: object = _call(record, case.copy_arguments())
    if type(value) is not float:
        _fails(record, f"returned {value!r} of type {type(value).__name__}: expected a built-in float", case.arguments)


def _check_pure(record: Metric, case: Case) -> None:
    # Hypothesis starts every example at seed 0, where a metric's own seed(0) would go unnoticed; it restores the state later
    random.random()
    np.random.random()  # noqa: NPY002
    arguments, drawn_before = case.copy_arguments(), _global_randomness()
    value = _call(record, arguments)
    if (changed := describe_arguments(record.needs, arguments)) != describe_arguments(record.needs, case.arguments):
        _fails(record, f"changed its arguments to {changed}", case.arguments)
    again = _call(record, case.copy_arguments())
    if not same(value, again, 0.0):
        _fails(record, f"returned {value!r}, then {again!r} for the same scores", case.arguments)
    if _global_randomness() != drawn_before:
        problem = "used or reseeded the global random state, which everything else in the process shares"
        _fails(record, f"{problem}: use a generator of its own, numpy.random.default_rng(0)", case.arguments)


def _global_randomness() -> tuple[object, ...]:
    numpys = np.random.get_state(legacy=False)["state"]  # noqa: NPY002  a metric must not change this state
    return random.getstate(), numpys["key"].tobytes(), numpys["pos"]


def _check_bounds(record: Metric, case: Case) -> None:
    value, (low, high) = _call(record, case.copy_arguments()), record.bounds
    if math.isinf(value):
        _fails(record, "returned infinity: a metric that is undefined is NaN", case.arguments)
    if not math.isnan(value) and not low - ROUNDING <= value <= high + ROUNDING:
        _fails(record, f"returned {value!r}, outside its bounds {low} to {high}", case.arguments)


def _check_permutation(record: Metric, examples: int) -> None:
    __tracebackhide__ = True
    if of_samples(record.needs):
        _on_cases(_check_permuted_samples)(record, examples)
    else:
        try_examples(record.name, tables(record), lambda table: _check_permuted_table(record, table), examples)


def _check_permuted_samples(record: Metric, case: Case) -> None:
    value = _call(record, case.copy_arguments())
    for order in case.orders:
        other = _call(record, case.reorder_samples(order))
        if not same(value, other):
            reordered = describe_arguments(record.needs, case.reorder_samples(order))
            _fails(record, f"depends on the order of the samples: {value!r}, but {other!r} for {reordered}", case.arguments)


def _check_permuted_table(record: Metric, table: Table) -> None:
    value, other = (table.measure(record, scores).value for scores in (table.scores, table.reorder_samples()))
    if not same(value, other):
        problem = f"depends on the order of the samples: {value!r}, but {other!r} in the order {list(table.order)}"
        fails(record.name, problem, table.describe())


def _check_missing(record: Metric, case: Case) -> None:
    for need in needs_with_scores(record.needs):
        arguments = case.with_gap(need)
        if not _is_unknown(record, arguments):
            _fails(record, f"returned a number although a score in {need.value} is missing (NaN)", arguments)


def _check_empty(record: Metric, examples: int) -> None:  # noqa: ARG001  the signature of a property
    __tracebackhide__ = True
    arguments = nothing(record.needs)
    if not _is_unknown(record, arguments):
        _fails(record, "returned a number without any samples", arguments)


def _check_monotone(record: Metric, case: Case) -> None:
    before = _call(record, case.copy_arguments())
    for need, direction in record.directions.items():
        arguments = case.raise_score(need)
        if arguments is None:
            continue  # all of its scores are at the maximum
        after = _call(record, arguments)
        if not _moved_as_declared(before, after, direction):
            then = describe_arguments([need], [arguments[record.needs.index(need)]])
            moved = f"moved from {before!r} to {after!r} when one score in {need.value} rose: {_claim(record, need, direction)}"
            _fails(record, moved, case.arguments, f"\n    and then with {then}")


def _claim(record: Metric, need: Needs, direction: Direction) -> str:
    never = f"so that it never {_NEVER[direction]}"
    if need in record.monotone:
        return f"its record says monotone={{Needs.{need.name}: {direction}}}, {never}"
    way_out = f"say not_monotone={{Needs.{need.name}: 'why'}} where its definition lets it"
    return f"its record says better={record.better!r}, {never}; {way_out}"


def _moved_as_declared(before: float, after: float, direction: Direction) -> bool:
    if direction == 0:
        return same(before, after)
    # nothing to compare if the value is undefined before or after
    return math.isnan(before) or math.isnan(after) or same(before, after) or (after - before) * direction > 0.0


def _check_perfect(record: Metric, examples: int) -> None:  # noqa: ARG001  the signature of a property
    __tracebackhide__ = True
    _expect(record, perfect(record.needs), record.perfect, "for a perfect model")


def _check_unchanged(record: Metric, case: Case) -> None:
    _expect(record, case.unchanged_arguments(), record.unchanged, "when nothing changes a score", undefined=True)


def _check_blind(record: Metric, case: Case) -> None:
    _expect(record, case.blind(), record.blind, "when images add nothing")


def _expect(record: Metric, arguments: list[Any], value: float | None, when: str, *, undefined: bool = False) -> None:
    """Requires the value that a record declares; with ``undefined``, NaN is also accepted."""
    __tracebackhide__ = True
    result = _call(record, arguments)
    if value is not None and not same(result, value) and not (undefined and math.isnan(result)):
        _fails(record, f"returned {result!r} {when}: expected {value!r}, as declared", arguments)


def _check_oracle(record: Metric, case: Case) -> None:
    value, expected = _call(record, case.copy_arguments()), oracles.value(record.name, [plain(part) for part in case.arguments])
    if not same(value, expected):
        _fails(record, f"returned {value!r}: expected {expected!r}, by its formula in plain Python", case.arguments)


def _call(record: Metric, arguments: Sequence[Any]) -> float:
    __tracebackhide__ = True
    try:
        return record.function(*arguments)
    except Exception as error:
        raised = f"raised {type(error).__name__}: {error}"
        raise AssertionError(
            f"metric {record.name!r} {raised}\n    called with {describe_arguments(record.needs, arguments)}"
        ) from error


def _is_unknown(record: Metric, arguments: Sequence[Any]) -> bool:
    try:
        value: object = record.function(*arguments)
    except ValueError:
        return True
    return isinstance(value, float) and math.isnan(value)


def _fails(record: Metric, problem: str, arguments: Sequence[Any], more: str = "") -> None:
    __tracebackhide__ = True
    fails(record.name, problem, describe_arguments(record.needs, arguments) + more)


def _no_claim(fact: str, what: str) -> Callable[[Metric], str]:
    return lambda record: f"its record claims no value {what} ({fact}=)" if getattr(record, fact) is None else ""


def _no_direction(record: Metric) -> str:
    if record.directions:
        return ""
    exempt = "; ".join(f"{need.value}: {why}" for need, why in record.not_monotone.items())
    return f"not monotone by its definition: {exempt}" if exempt else "its record claims no direction (better=, monotone=)"


def _no_oracle(record: Metric) -> str:
    is_built_in = record.function.__module__.startswith(BUILT_IN)
    return "" if is_built_in else "no formula in plain Python to compare with: that is for the metrics of this package"


def _reads_scores(record: Metric) -> bool:
    return bool(needs_with_scores(record.needs))


def _compares(record: Metric) -> bool:
    needs = set(record.needs)
    return len(needs & _LIKE_CLEAN) > 1 or bool(needs & {Needs.ACCURACIES, Needs.RUNGS})


PROPERTIES = {
    "float": Property("returns a built-in float", _on_cases(_check_float)),
    "pure": Property(
        "returns the same for the same scores, and leaves its arguments and the global random state as they were",
        _on_cases(_check_pure),
    ),
    "bounds": Property("stays in its bounds, and is NaN rather than infinite where it is undefined", _on_cases(_check_bounds)),
    "permutation": Property("does not depend on the order of the samples and settings", _check_permutation),
    "missing": Property("is NaN or raises ValueError when a score is missing", _on_cases(_check_missing), _reads_scores),
    "empty": Property("is NaN or raises ValueError without samples", _check_empty),
    "monotone": Property(
        "moves as its record says when one score rises", _on_cases(_check_monotone), _reads_scores, _no_direction
    ),
    "perfect": Property(
        "has its declared value for a perfect model", _check_perfect, unclaimed=_no_claim("perfect", "for a perfect model")
    ),
    "unchanged": Property(
        "has its declared value, or is undefined, when nothing changes a score",
        _on_cases(_check_unchanged),
        _compares,
        _no_claim("unchanged", "for scores that nothing changes"),
    ),
    "blind": Property(
        "has its declared value when images add nothing",
        _on_cases(_check_blind),
        lambda record: {Needs.CLEAN, Needs.NO_IMAGE} <= set(record.needs),
        _no_claim("blind", "for images that add nothing"),
    ),
    "oracle": Property("agrees with its formula in plain Python", _on_cases(_check_oracle), unclaimed=_no_oracle),
}
"""All properties of a formula, by their name in test ids."""


# Passed checks of the package's own metrics: made once per installation, and remembered in the store.
#
# The metrics of this package are the same in every gate. Only the installation can differ: its Python, NumPy, SciPy and machine,
# and the code of the package itself, which changes without a new version in an editable installation. A user's own metrics, and
# replaced metrics of this package, are never remembered.


FILE_NAME = "checks.jsonl"
EXAMPLES_SHARE = 4
"""A gate tries a metric of this package on one in this many examples of its profile; the tests of this package try all."""

_CODE = ("core", "metrics", "policies", "testing")
"""Folders of this package on which the result of a check depends."""


def is_shipped(name: str) -> bool:
    """Returns whether a metric is one of this package, registered unchanged."""
    return SHIPPED.get(name) is REGISTRY.get(name)


@cache
def installation() -> str:
    """Describes everything on which the result of a check depends: versions, machine, and a digest of the code."""
    libraries = ", ".join(f"{package} {version(package)}" for package in ("numpy", "scipy"))
    machine = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return f"pytest-vlmrobust {pytest_vlmrobust.__version__} ({_code_digest()[:12]}), {libraries}, {machine}"


def _code_digest() -> str:
    root, digest = Path(pytest_vlmrobust.__file__).parent, hashlib.sha256()
    for file in sorted(file for folder in _CODE for file in (root / folder).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


class CheckMemory:
    """The tests that passed, by metric, in ``checks.jsonl`` of a store.

    Any number of processes may share the file: each pass is one line, appended in a single write. A line torn by a
    killed process is not a pass.
    """

    def __init__(self, directory: Path, on: str) -> None:
        """Takes the directory of a store, which need not exist, and the :func:`installation` on which the checks are made."""
        self.path = directory / FILE_NAME
        self.on = on

    def passed(self, test: str, metric: str, examples: int) -> str:
        """Returns the date on which a test of a metric passed here with at least ``examples``; empty if none did."""
        tried, day = self._passes.get((test, metric), (0, ""))
        return day if tried >= examples else ""

    def remember(self, test: str, metric: str, examples: int) -> None:
        """Remembers that a test of a metric passed; if the store cannot be written, it runs again next time."""
        day = date.today().isoformat()  # noqa: DTZ011  for a reader, like the dates of waivers
        self._passes[test, metric] = (examples, day)
        line = json.dumps({"test": test, "metric": metric, "examples": examples, "date": day, "installation": self.on})
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(file, f"\n{line}\n".encode())  # the first newline ends a line left by a killed process
            finally:
                os.close(file)

    @cached_property
    def _passes(self) -> dict[tuple[str, str], tuple[int, str]]:
        return {(test, metric): (examples, day) for test, metric, examples, day in self._lines()}

    def _lines(self) -> Iterator[tuple[str, str, int, str]]:
        try:
            lines = self.path.read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                result = json.loads(line)
                if result["installation"] == self.on:
                    yield str(result["test"]), str(result["metric"]), int(result["examples"]), str(result["date"])
