"""Metric: the record of all facts about one metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from pytest_vlmrobust.core.errors import UnknownName, UsageError, did_you_mean
from pytest_vlmrobust.core.registry import DISABLE_VARIABLE, Registry

from .statistics.paired import drop_interval, mean_interval
from .table import WITHOUT_SCORES, Needs, Scores, ScoreTable, per_sample

Better: TypeAlias = Literal["lower", "higher", "none"]
Scope: TypeAlias = Literal["cell", "sweep"]
Interval: TypeAlias = "Callable[[ScoreTable, str | None, float], tuple[float, float]]"
"""``(table, setting, confidence) -> (low, high)``; the level is two-sided."""
Gate: TypeAlias = "Callable[[ScoreTable, str | None], str]"
"""``(table, setting) -> why the metric does not apply``, or an empty string when it does."""
Note: TypeAlias = "Callable[[ScoreTable], str]"
"""``table -> a note for readers of the value``, or an empty string."""
Read: TypeAlias = "Callable[[ScoreTable, str | None], Scores]"
"""``(table, setting) -> a score of each sample``, shape (N,)."""
Direction: TypeAlias = Literal[-1, 0, 1]
"""Effect of a rising score of an argument on the value: it never falls (1), never rises (-1), or does not depend on it (0)."""


def scores_of(need: Needs) -> Read:
    """Returns a function that reads one array of a table."""
    return lambda table, setting: table.required(need, setting)


def mean_over_settings(need: Needs = Needs.PERTURBED_BY_SETTING) -> Read:
    """Returns a function that reads each sample's mean over the settings of a table."""

    def read(table: ScoreTable, _setting: str | None) -> Scores:
        scores = table.required(need)
        return per_sample({setting: scores[setting] for setting in table.by_setting})

    return read


def of_mean(read: Read) -> Interval:
    """Returns the interval of the mean of values in [0, 1]."""

    def interval(table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
        """Bounds the mean over samples: Clopper-Pearson for 0/1 scores, guarded Student's t for graded ones."""
        return mean_interval(read(table, setting), table.clusters, confidence)

    return interval


def of_loss(before: Read, after: Read) -> Interval:
    """Returns the interval of the mean of ``before - after``."""

    def interval(table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
        """Bounds the mean loss: by tails of flips for 0/1 scores, by guarded Student's t for graded ones."""
        return drop_interval(before(table, setting), after(table, setting), table.clusters, confidence)

    return interval


def of_gain(before: Read, after: Read) -> Interval:
    """Returns the interval of the mean of ``after - before``."""
    of_losses = of_loss(before, after)

    def interval(table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
        """Bounds the mean gain: by tails of flips for 0/1 scores, by guarded Student's t for graded ones."""
        low, high = of_losses(table, setting, confidence)
        return -high, -low

    return interval


class Circumstances(NamedTuple):
    """Facts known before the run that narrow the range of a metric; None if unknown."""

    attempts: int | None = None
    """Patches of an image, n * n."""
    options: float | None = None
    """Options of a question, 2 for yes/no and infinite for an open one."""
    clean: float | None = None
    """Accuracy on whole, unchanged images, above 0 and at most 1."""


Reach: TypeAlias = "Callable[[Circumstances], tuple[float, float]]"
"""``circumstances -> the lowest and the highest possible value``."""


def loss_reach(circumstances: Circumstances) -> tuple[float, float]:
    """Returns the range of a loss of the clean accuracy A: from A - 1 (all right afterwards) to A (nothing right)."""
    return (-1.0, 1.0) if circumstances.clean is None else (circumstances.clean - 1.0, circumstances.clean)


_JUDGED = (Needs.PERTURBED, Needs.PERTURBED_BY_SETTING, Needs.ACCURACIES, Needs.RUNGS, Needs.CLEAN)
"""Scores of the judged model: the better direction of a metric is about the first of these that it needs."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """The settings of the published quantity; a value over fewer settings must not be mistaken for it.

    ``select`` picks the settings that a metric uses; ``per`` is the number of settings in each of the ``full`` units counted.
    """

    noun: str
    full: int
    select: Callable[[Iterable[str]], tuple[str, ...]] = tuple
    per: int = 1

    def count(self, settings: Iterable[str]) -> int:
        """Returns the number of counted units in ``settings``."""
        return len(self.select(settings)) // self.per


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFacts:
    """The facts about every quantity that reports, policies and docs read."""

    unit: str = "fraction"
    better: Better = "none"
    bounds: tuple[float, float] = (float("-inf"), float("inf"))
    suite: str = ""
    """The suite it belongs to, empty for every suite."""
    reference: str = ""
    """Paper, section and equation of the formula."""
    validity: str = ""
    """When the value is meaningful, in words."""
    unsuited: str = ""
    """When the value misleads or cannot be used, and alternatives, in sentences; other metrics in backticks."""


@dataclass(frozen=True, slots=True)
class Metric(CommonFacts):
    """One metric: its formula, and all facts that reports, policies, docs and tests read.

    Three of the facts are values that the formula must give: NaN if it must be undefined there, None for no claim. The
    decorator ``metric`` takes the same facts.

    >>> from pytest_vlmrobust.metrics import metric
    >>> @metric(better="lower", bounds=(0.0, 1.0), name="error_rate_of_the_docs", replace=True)
    ... def error_rate(perturbed):
    ...     '''Share of wrong answers.'''
    ...     return float(1 - perturbed.mean())
    """

    function: Callable[..., float]
    name: str = ""
    """By default the function's own name."""
    needs: tuple[Needs, ...] = ()
    """The arguments of the function in order; by default read from the names of its parameters."""
    _: KW_ONLY
    perfect: float | None = None
    """Its value for a model that answers everything right with the image and nothing without it."""
    interval: Interval | None = field(default=None, repr=False)
    gate: Gate | None = field(default=None, repr=False)
    coverage: Coverage | None = field(default=None, repr=False)
    note: Note | None = field(default=None, repr=False)
    unchanged: float | None = None
    """Its value, if defined, when every setting, patch, earlier run and reference model scores the same as the clean image."""
    blind: float | None = None
    """Its value when the same questions score as much without their images: no visual benefit."""
    monotone: Mapping[Needs, Direction] = field(default_factory=dict, hash=False)
    """Effect of a rising score of an argument on the value."""
    not_monotone: Mapping[Needs, str] = field(default_factory=dict, hash=False)
    """Arguments whose rising scores may move the value either way, and why."""
    best_patch_is_enough: bool = False
    """Whether value, interval and gate depend only on each sample's best patch and the number of patches: a model need not be
    asked about further patches of a sample once one is right."""
    label_preserving: bool = False
    """Whether a gate computes it from answers that a setting leaves right only."""
    counts_settings: bool = False
    """Whether it is a share of settings on one side of a threshold. Noise moves settings across it, so the number of samples
    needed to decide a bound is unknown."""
    reach: Reach | None = field(default=None, repr=False)
    """The range of possible values under given circumstances; None if only ``bounds`` are known."""
    replace: bool = field(default=False, repr=False, compare=False)
    """Whether it replaces a registered metric of the same name."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or getattr(self.function, "__name__", "metric"))
        object.__setattr__(self, "needs", tuple(self.needs) or needs_of(self.function))
        if self.better not in ("lower", "higher", "none"):
            raise UsageError(f"metric {self.name!r}: better is {self.better!r}, expected 'lower', 'higher' or 'none'")
        if not self.needs:
            raise UsageError(f"metric {self.name!r} needs nothing: list at least one of {_list_needs(tuple(Needs))}")
        if not self.bounds[0] < self.bounds[1]:
            raise UsageError(f"metric {self.name!r}: bounds are {self.bounds}, expected (low, high) with low < high")
        _check_directions(self)

    @property
    def directions(self) -> Mapping[Needs, Direction]:
        """Effect of a rising score of an argument on the value: as declared, and as implied by ``better``.

        If lower is better the metric must not rise, and if higher is better it must not fall, when the judged model answers one
        question better (under a perturbation, if the metric reads such scores); ``not_monotone`` makes exceptions.
        """
        return _direction_of_better(self) | dict(self.monotone)

    def reaches(self, circumstances: Circumstances) -> tuple[float, float]:
        """Returns the lowest and the highest possible value under some circumstances."""
        low, high = self.reach(circumstances) if self.reach else self.bounds
        return max(low, self.bounds[0]), min(high, self.bounds[1])

    @property
    def scope(self) -> Scope:
        """``"cell"`` for a metric of one setting, ``"sweep"`` for one of all settings."""
        return "cell" if any(need.of_one_setting for need in self.needs) else "sweep"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts(CommonFacts):
    """Facts about a quantity without a registered formula, because it needs more than scores."""

    name: str
    about: str
    """Text like a docstring: one sentence, caveats, and paragraphs ``Formula: ...`` and ``Returns: ...``."""
    reads: str
    """Its inputs, in words."""
    scope: Scope = "cell"
    interval: str = ""
    """A description of its interval; empty if it has none."""

    @property
    def summary(self) -> str:
        """The first sentence of ``about``."""
        return self.about.strip().partition("\n")[0]


def _list_needs(needs: Sequence[Needs]) -> str:
    return ", ".join(f"Needs.{need.name}" for need in needs)


def _direction_of_better(metric: Metric) -> dict[Needs, Direction]:
    judged = next((need for need in _JUDGED if need in metric.needs), None)
    if metric.better == "none" or judged is None or judged in metric.not_monotone:
        return {}
    return {judged: 1 if metric.better == "higher" else -1}


def _check_directions(metric: Metric) -> None:
    for need in (*metric.monotone, *metric.not_monotone):
        if need not in metric.needs or need in WITHOUT_SCORES:
            raise UsageError(f"metric {metric.name!r} reads no scores called {need.value!r}. Leave {need.value} out of monotone")
        if need in metric.monotone and need in metric.not_monotone:
            raise UsageError(f"metric {metric.name!r}: {need.value} is in monotone and in not_monotone. Leave it out of one")
    for need, direction in metric.monotone.items():
        if direction not in (-1, 0, 1):
            raise UsageError(f"metric {metric.name!r}: monotone has {direction!r} for {need.value}, expected 1, 0 or -1")
        if direction * _direction_of_better(metric).get(need, 0) < 0:
            raise UsageError(
                f"metric {metric.name!r}: {metric.better} is better, and monotone says that a better score in {need.value} "
                "makes it worse. Change one of the two"
            )
    for need, why in metric.not_monotone.items():
        if not why.strip():
            raise UsageError(f"metric {metric.name!r}: not_monotone has no reason for {need.value}. Say why")


def needs_of(function: Callable[..., Any]) -> tuple[Needs, ...]:
    """Returns the needs of a function from its parameter names; parameters with a default are ignored."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    known = {need.value: need for need in Needs}
    for parameter in parameters:
        if parameter.name not in known:
            raise UsageError(
                f"metric {function.__name__!r}: nothing is known about its parameter {parameter.name!r}."
                f"{did_you_mean(parameter.name, known)} Known: {', '.join(known)}. Rename it, or pass needs=(Needs...., ...)"
            )
    return tuple(known[parameter.name] for parameter in parameters)


# The registered metrics, by name.


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
                f"metric {name!r} of {self.owner(name) or 'this process'} is a {type(registered).__name__}, expected a function "
                f"decorated with @pytest_vlmrobust.metrics.metric, or a Metric. Fix or uninstall it, or set {DISABLE_VARIABLE}=1"
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
