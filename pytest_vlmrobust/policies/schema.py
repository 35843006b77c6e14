"""The schema of a thresholds file: what a rule, a waiver, a scope and a bound may look like."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.document import ID_PATTERN, Entry, shortened
from pytest_vlmrobust.core.errors import UnknownName, did_you_mean

from .budgets import Extent
from .rules import (
    EVERYTHING,
    FRACTION,
    NO_LEVEL,
    Bound,
    Judge,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
    parse_quantity,
)

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
            entry.fail(f"judges the interval of {metric}, which has none, so that nothing would ever pass. Write judge: point")
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
            entry.fail(f"is {name!r}, a name that several metrics go by. Write {full}")
        if name not in self._facts:
            measured = [one for one, facts in self._facts.items() if not facts.unmeasured]
            raise UnknownName("metric", shortened(name), measured, where=entry.where)
        if needed := self._facts[name].unmeasured:
            entry.fail(
                f"is {name!r}, which no run measures: it needs {needed}, and nothing asks a model for that. A rule or waiver "
                "about it would never decide anything: remove it"
            )
        return name, self._facts[name]


def read_treatment(given: Mapping[str, Entry], base: Treatment) -> Treatment:
    """Returns ``base`` with what a rule, or the defaults of a file, say otherwise."""
    found = {key: read(given[key]) for key, read in _TREATMENT.items() if key in given}
    return replace(base, **found)


def read_share(entry: Entry) -> float:
    """Returns a budget: a share of samples in [0, 1]."""
    try:
        share = parse_quantity(entry.quantity(), FRACTION)
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
    value = entry.quantity()
    if value in list(Extent):
        return (1.0 if value == Extent.WHOLE else 0.0), 0
    if isinstance(value, str) and value.strip().endswith("%"):
        return read_share(entry), 0
    if not isinstance(value, int) or value < 1:
        near = did_you_mean(str(value), [str(extent) for extent in Extent])
        entry.refuse(f"whole, partial, a share such as 20%, or a number of samples such as 500.{near}")
    return 0.0, value


def _read_risk(entry: Entry) -> float:
    risk = entry.quantity()
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
        return parse_quantity(entry.quantity(), facts.unit, facts.bounds)
    except ValueError as error:
        entry.refuse(str(error))


def _read_bound(rule: Entry, given: Mapping[str, Entry], metric: str, facts: MetricFacts) -> Bound:
    written = [key for key in BOUND_KEYS if key in given]
    if len(written) != 1:
        found = " and ".join(written) or "no bound"
        rule.fail(f"has {found}. Expected one of max, min or within: [low, high]")
    kind, entry = written[0], given[written[0]]
    if kind == "within":
        return _read_range(entry, facts)
    advised = _BACKWARDS.get((kind, facts.better))
    if advised:
        entry.fail(
            f"bounds {metric} on the wrong side: {facts.better} is better, and a good model would fail. Write {advised}:, "
            "or within: [low, high] if both sides matter"
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
            given[key].fail(
                f"never matches: {metric} is measured over a whole sweep, which has no {key}. Expected model, dataset or category"
            )
    for level in given["level"].texts() if "level" in given else ():
        _check_level(given["level"], level)
    return Scope(**{key: value.texts() for key, value in given.items()})


def _check_level(entry: Entry, level: str) -> None:
    named = (*LEVELS, NO_LEVEL)
    if level.isalpha() and level not in named:
        entry.refuse(f"{', '.join(named)}, or the parameter of a setting such as '448'.{did_you_mean(level, named)}")


# The JSON Schema of thresholds files, from the keys and choices that the reader itself goes by.


FILE = "thresholds.schema.json"
"""Its name, beside the shipped thresholds files."""

_TEXT = {"type": "string", "minLength": 1}
_ID = {"type": "string", "pattern": f"^{ID_PATTERN}$"}
_WRITTEN = {"type": "string", "pattern": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*(pp|%)?\s*$"}
_QUANTITY = {"anyOf": [{"type": "number"}, _WRITTEN], "description": "5pp, 5% and 0.05 are the same number"}
_SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _WRITTEN], "description": "a share of samples, such as 5%"}
_PART = {"anyOf": [{"type": "number", "minimum": -1, "maximum": 1}, {"type": "string"}]}
"""A quantity of a fraction: beyond 1 it needs its unit, ``5pp``."""
_RISK = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5, "description": "one-sided, such as 0.05"}


def thresholds_schema(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the schema, draft 7, which editors know best.

    It accepts whatever the reader accepts, and refuses what the reader refuses but for what depends on other values, such as a
    bound on the wrong side of its metric, or beyond what it can be.

    Args:
        metrics: those to offer, with their units; others are accepted, for a metric may be a user's own.
    """
    measured = {name: facts for name, facts in metrics.items() if not facts.unmeasured}
    values, units = _values(measured), _units(measured)
    definitions = {
        "scope": _mapping(SCOPE_KEYS, values, minProperties=1),
        "rule": {**_mapping(RULE_KEYS, values, RULE_REQUIRED), "oneOf": [{"required": [key]} for key in BOUND_KEYS], **units},
        "waiver": {**_mapping(WAIVER_KEYS, values, WAIVER_REQUIRED), **units},
    }
    top = {
        "version": {"const": VERSION},
        "defaults": _mapping(TREATMENT_KEYS, values),
        "budgets": _mapping(BUDGET_KEYS, values),
        "coverage": _mapping(COVERAGE_KEYS, values),
        "rules": {"type": "array", "items": {"$ref": "#/definitions/rule"}},
        "waivers": {"type": "array", "items": {"$ref": "#/definitions/waiver"}},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Thresholds of pytest-vlmrobust",
        **_mapping(TOP_KEYS, top, ("version",)),
        "definitions": definitions,
    }


def _units(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns that plain numbers about a fraction lie between -1 and 1."""
    fractions = sorted(name for name, facts in metrics.items() if facts.unit == FRACTION)
    bounds = {**dict.fromkeys(("max", "min", "cap"), _PART), "within": {"type": "array", "items": _PART}}
    return {"if": {"properties": {"metric": {"enum": fractions}}}, "then": {"properties": bounds}}


def _values(metrics: Iterable[str]) -> dict[str, Any]:
    """Returns what each key but those at the top may hold."""
    return {
        "id": _ID,
        "metric": {"anyOf": [{"enum": sorted(metrics)}, _TEXT], "description": "vlmrobust explain lists them"},
        "where": {"$ref": "#/definitions/scope"},
        "unless": {"$ref": "#/definitions/scope"},
        "max": _QUANTITY,
        "min": _QUANTITY,
        "within": {"type": "array", "items": _QUANTITY, "minItems": 2, "maxItems": 2, "description": "[low, high]"},
        "cap": _QUANTITY,
        **{key: _choice(kind) for key, kind in _CHOICES.items()},
        **dict.fromkeys(("alpha_pass", "alpha_fail"), _RISK),
        **dict.fromkeys(("reason", "source", "owner", "ticket"), _TEXT),
        "expires": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "the last day, such as 2027-06-30"},
        **dict.fromkeys(BUDGET_KEYS, _SHARE),
        "tests": _choice(Extent),
        "rules": _choice(Extent),
        "samples": {
            "anyOf": [
                _choice(Extent),
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$"},
            ],
            "description": "of each data set: whole, partial, 20% or 500",
        },
        "suites": {"type": "array", "items": _ID, "description": "test files without test_ and .py, such as corruptions"},
        **dict.fromkeys(("model", "dataset", "setting", "family", "category"), _globs()),
        "level": _globs([*LEVELS, NO_LEVEL]),
    }


_CHOICES = {
    "judge": Judge,
    "multiplicity": Multiplicity,
    "tier": Tier,
    "on_inconclusive": OnInconclusive,
    "on_not_applicable": OnNotApplicable,
}


def _choice(kind: Iterable[str]) -> dict[str, Any]:
    return {"enum": [str(option) for option in kind]}


def _globs(offered: Sequence[str] = ()) -> dict[str, Any]:
    one: dict[str, Any] = {"anyOf": [{"enum": list(offered)}, _TEXT]} if offered else _TEXT
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}], "description": "a glob, or a list of globs"}


def _mapping(keys: Iterable[str], values: Mapping[str, Any], required: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "additionalProperties": False, **needed, "properties": {key: values[key] for key in keys}, **more}
