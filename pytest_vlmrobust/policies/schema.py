"""The schema of a thresholds file: what a rule, a waiver, a scope and a bound may look like."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_vlmrobust.core.errors import PolicyError, UnknownName, did_you_mean
from pytest_vlmrobust.core.setting import LEVELS

from .bound import EVERYTHING, FRACTION, Bound, parse_quantity
from .coverage import Extent
from .document import Entry
from .rules import NO_LEVEL, Judge, Multiplicity, OnInconclusive, OnNotApplicable, Rule, Scope, Tier, Treatment, Waiver

VERSION = 1

TOP_KEYS = ("version", "defaults", "budgets", "coverage", "rules", "waivers")
TREATMENT_KEYS = tuple(part.name for part in fields(Treatment))
BUDGET_KEYS = ("max_error_rate", "max_unparsed_rate")
COVERAGE_KEYS = ("tests", "samples", "suites", "rules")
BOUND_KEYS = ("max", "min", "within")
RULE_KEYS = ("id", "metric", "where", "unless", *BOUND_KEYS, *TREATMENT_KEYS, "reason", "source")
WAIVER_KEYS = ("id", "metric", "where", "cap", "owner", "reason", "ticket", "expires")
RULE_REQUIRED = ("id", "metric")
WAIVER_REQUIRED = tuple(key for key in WAIVER_KEYS if key != "ticket")
SCOPE_KEYS = tuple(part.name for part in fields(Scope))
_CELL_KEYS = ("setting", "family", "level")
_BACKWARDS = {("max", "higher"): "min", ("min", "lower"): "max"}


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """What rules on a metric are checked against; as it stands, the facts of a metric of which only the name is known.

    ``unit`` is ``"fraction"`` or another unit, empty when unknown; ``better`` is ``"lower"``, ``"higher"`` or ``"none"``;
    ``scope`` is ``"cell"`` or ``"sweep"``, and ``interval`` whether estimates of it come with one. ``split`` says that a metric
    of a sweep is taken over one set of settings at a time, such as ``observatory_ood``: the ``setting`` of its rules.
    ``bounds`` are its smallest and largest value, infinite where there is none. ``unmeasured`` says what it needs where no run
    asks for that: then no rule may be about it.
    """

    unit: str = ""
    better: str = "none"
    scope: str = "cell"
    interval: bool = True
    split: bool = False
    bounds: tuple[float, float] = EVERYTHING
    unmeasured: str = ""


class Schema:
    """Reads the entries of a thresholds file as rules and waivers, given the metrics that exist."""

    def __init__(self, known: Mapping[str, MetricFacts] | Collection[str], ambiguous: Mapping[str, Collection[str]]) -> None:
        self._facts = dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, MetricFacts())
        self._ambiguous = ambiguous

    def rule(self, entry: Entry, treatment: Treatment) -> Rule:
        """Returns a rule; what it does not say about its treatment is taken from ``treatment``."""
        given = entry.mapping(RULE_KEYS, required=RULE_REQUIRED)
        metric, facts = self._metric(given["metric"])
        own = read_treatment(given, treatment)
        if own.judge is Judge.INTERVAL and not facts.interval:
            raise PolicyError(
                f"{entry.where}: {entry.path} judges the interval of {metric}, which has none, so that nothing would ever pass. "
                "Write judge: point"
            )
        return Rule(
            id=given["id"].identifier(),
            metric=metric,
            bound=_read_bound(entry, given, metric, facts),
            source=entry.where,
            where=_read_scope(given["where"], metric, facts) if "where" in given else Scope(),
            unless=_read_scope(given["unless"], metric, facts) if "unless" in given else None,
            treatment=own,
            reason=given["reason"].text() if "reason" in given else "",
            evidence=given["source"].text() if "source" in given else "",
        )

    def waiver(self, entry: Entry) -> Waiver:
        """Returns a waiver; everything but its ticket has to be there."""
        given = entry.mapping(WAIVER_KEYS, required=WAIVER_REQUIRED)
        metric, facts = self._metric(given["metric"])
        return Waiver(
            id=given["id"].identifier(),
            owner=given["owner"].text(),
            reason=given["reason"].text(),
            expires=given["expires"].date(),
            metric=metric,
            where=_read_scope(given["where"], metric, facts),
            cap=_read_quantity(given["cap"], facts),
            source=entry.where,
            ticket=given["ticket"].text() if "ticket" in given else "",
        )

    def _metric(self, entry: Entry) -> tuple[str, MetricFacts]:
        name = entry.text()
        if name in self._ambiguous:
            full = " or ".join(repr(choice) for choice in self._ambiguous[name])
            raise PolicyError(f"{entry.where}: {entry.path} is {name!r}, a name that several metrics go by. Write {full}")
        if name not in self._facts:
            measured = [one for one, facts in self._facts.items() if not facts.unmeasured]
            raise UnknownName("metric", name, measured, where=entry.where)
        if needed := self._facts[name].unmeasured:
            raise PolicyError(
                f"{entry.where}: {entry.path} is {name!r}, which no run measures: it needs {needed}, and nothing asks a model "
                "for that. A rule or waiver about it would never decide anything: remove it"
            )
        return name, self._facts[name]


def read_treatment(given: Mapping[str, Entry], base: Treatment) -> Treatment:
    """Returns ``base`` with what a rule, or the defaults of a file, say otherwise."""
    found = {key: read(given[key]) for key, read in _TREATMENT.items() if key in given}
    return replace(base, **found)


def read_share(entry: Entry) -> float:
    """Returns a budget: a share of samples in [0, 1]."""
    try:
        share = parse_quantity(entry.number(), FRACTION)
    except ValueError as error:
        entry.refuse(str(error))
    if not 0 <= share <= 1:
        entry.refuse("a share between 0 and 100%")
    return share


def read_coverage(given: Mapping[str, Entry]) -> dict[str, Any]:
    """Returns the fields of a coverage that a file sets."""
    found: dict[str, Any] = {}
    if "tests" in given:
        found["tests"] = given["tests"].choice(Extent)
    if "rules" in given:
        found["rules"] = given["rules"].choice(Extent)
    if "samples" in given:
        found["share"], found["samples"] = _read_samples(given["samples"])
    if "suites" in given:
        listed = given["suites"].items()
        found["suites"] = tuple(dict.fromkeys(entry.identifier() for entry in listed))
    return found


def _read_samples(entry: Entry) -> tuple[float, int]:
    """Returns the share and the number of the samples of each data set that have to be asked."""
    value = entry.number()
    if value in list(Extent):
        return (1.0 if value == Extent.WHOLE else 0.0), 0
    if isinstance(value, str) and value.strip().endswith("%"):
        return read_share(entry), 0
    if not isinstance(value, int) or value < 1:
        near = did_you_mean(str(value), [str(extent) for extent in Extent])
        entry.refuse(f"whole, partial, a share such as 20%, or a number of samples such as 500.{near}")
    return 0.0, value


def _read_risk(entry: Entry) -> float:
    risk = entry.number()
    if isinstance(risk, str) or not 0.0 < risk < 0.5:
        entry.refuse("a probability above 0 and below 0.5, such as 0.05")
    return float(risk)


_TREATMENT: dict[str, Callable[[Entry], Any]] = {
    "judge": lambda entry: entry.choice(Judge),
    "alpha_pass": _read_risk,
    "alpha_fail": _read_risk,
    "multiplicity": lambda entry: entry.choice(Multiplicity),
    "tier": lambda entry: entry.choice(Tier),
    "on_inconclusive": lambda entry: entry.choice(OnInconclusive),
    "on_not_applicable": lambda entry: entry.choice(OnNotApplicable),
}


def _read_quantity(entry: Entry, facts: MetricFacts) -> float:
    try:
        return parse_quantity(entry.number(), facts.unit, facts.bounds)
    except ValueError as error:
        entry.refuse(str(error))


def _read_bound(rule: Entry, given: Mapping[str, Entry], metric: str, facts: MetricFacts) -> Bound:
    written = [key for key in BOUND_KEYS if key in given]
    if len(written) != 1:
        found = " and ".join(written) or "no bound"
        raise PolicyError(f"{rule.where}: {rule.path} has {found}. Expected one of max, min or within: [low, high]")
    kind, entry = written[0], given[written[0]]
    if kind == "within":
        return _read_range(entry, facts)
    advised = _BACKWARDS.get((kind, facts.better))
    if advised:
        raise PolicyError(
            f"{entry.where}: {entry.path} bounds {metric} on the wrong side: {facts.better} is better, "
            f"and a good model would fail. Write {advised}:, or within: [low, high] if both sides matter"
        )
    value = _read_quantity(entry, facts)
    return Bound(high=value) if kind == "max" else Bound(low=value)


def _read_range(entry: Entry, facts: MetricFacts) -> Bound:
    ends = entry.items()
    if len(ends) != 2:
        entry.refuse(f"two numbers, [low, high]; {len(ends)} given")
    low, high = (_read_quantity(end, facts) for end in ends)
    if low >= high:
        entry.refuse(f"low below high; found {low:g} and {high:g}")
    return Bound(low, high)


def _read_scope(entry: Entry, metric: str, facts: MetricFacts) -> Scope:
    given = entry.mapping(SCOPE_KEYS)
    if not given:
        entry.refuse(f"at least one of {', '.join(SCOPE_KEYS)}")
    for key in _CELL_KEYS:
        if key in given and facts.scope == "sweep" and not (facts.split and key == "setting"):
            raise PolicyError(
                f"{given[key].where}: {given[key].path} never matches: {metric} is measured over a whole sweep, "
                f"which has no {key}. Expected model, dataset or category"
            )
    for level in given["level"].texts() if "level" in given else ():
        _check_level(given["level"], level)
    return Scope(**{key: value.texts() for key, value in given.items()})


def _check_level(entry: Entry, level: str) -> None:
    named = (*LEVELS, NO_LEVEL)
    if level.isalpha() and level not in named:
        entry.refuse(f"{', '.join(named)}, or the parameter of a setting such as '448'.{did_you_mean(level, named)}")
