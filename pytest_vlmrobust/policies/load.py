"""Reads thresholds files: keys, values, and how later files override earlier ones; and their JSON Schema."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.errors import PolicyError, UnknownName, did_you_mean
from pytest_vlmrobust.core.sample import META, slice_name
from pytest_vlmrobust.files.document import Entry, parse_document, read_all, read_bytes, read_keys, shorten
from pytest_vlmrobust.files.values import IDENTIFIER, PERSON, TEXT, VISIBLE_TEXT, Value, choice, list_of, mapping, one_or_more
from pytest_vlmrobust.policies.budgets import BUDGET_KEYS, COVERAGE_KEYS, BlindModels, Budgets, Coverage, Extent
from pytest_vlmrobust.policies.policy import Policy, PolicyFile, Replacement
from pytest_vlmrobust.policies.rules import (
    EVERYTHING,
    FRACTION,
    NO_LEVEL,
    Bound,
    JudgedBy,
    Mode,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Purpose,
    Rule,
    Scope,
    Strictness,
    Tier,
    Treatment,
    Waiver,
    parse_quantity,
    unit_of,
)
from pytest_vlmrobust.shipped import shipped

Identified = TypeVar("Identified", Rule, Waiver)

VERSION = 1

TOP_KEYS = ("version", "mode", "purpose", "defaults", "budgets", "coverage", "rules", "waivers")
STRICTNESS = "strictness"
BOUND_KEYS = ("max", "min", "within")
RULE_REQUIRED = ("id", "metric")
_CELL_KEYS = ("setting", "family", "level")
_BACKWARDS = {("max", "higher"): "min", ("min", "lower"): "max"}


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """The facts that rules on a metric are checked against; the defaults are for a metric known only by name.

    ``unit`` is ``"fraction"`` or another unit, empty when unknown; ``better`` is ``"lower"``, ``"higher"`` or ``"none"``;
    ``scope`` is ``"cell"`` or ``"sweep"``, and ``interval`` whether its estimates have one. ``split`` says that a metric
    of a sweep covers one set of settings at a time, such as ``observatory_ood``: the ``setting`` of its rules.
    ``bounds`` are its smallest and largest value, possibly infinite. ``unmeasured`` says what it needs if no run
    provides that; rules then cannot use it.
    """

    unit: str = ""
    better: str = "none"
    scope: str = "cell"
    interval: bool = True
    split: bool = False
    bounds: tuple[float, float] = EVERYTHING
    unmeasured: str = ""


def load_policy(
    paths: Sequence[Path],
    *,
    known_metrics: Mapping[str, MetricFacts] | Collection[str],
    ambiguous: Mapping[str, Collection[str]] | None = None,
    root: Path | None = None,
) -> Policy:
    """Reads thresholds files; later ones override earlier ones.

    A rule or waiver replaces the earlier one with the same id completely; ``budgets`` and ``coverage`` concern the whole
    run and override key by key. The policy records all changes. The ``defaults`` of a file hold only for its own
    rules. Every file is checked completely, including overridden parts.

    ``known_metrics`` are the metrics that rules may name; their facts allow checks of units, directions and scopes.
    ``ambiguous`` are short names of several metrics, with the full names. Files below ``root`` are cited
    relative to it. A PolicyError names file, line, value and what was expected, one line a mistake.
    """
    names = [_display_path(path, root) for path in paths]
    contents = [_bytes(path, name) for path, name in zip(paths, names, strict=True)]
    return parse_policy(names, contents, known_metrics=known_metrics, ambiguous=ambiguous)


def parse_policy(
    names: Sequence[str],
    contents: Sequence[bytes],
    *,
    known_metrics: Mapping[str, MetricFacts] | Collection[str],
    ambiguous: Mapping[str, Collection[str]] | None = None,
) -> Policy:
    """Reads the bytes of thresholds files as :func:`load_policy` does; ``names`` are how messages and records cite them."""
    reader = Reader(known_metrics, ambiguous or {})
    documents = read_all(PolicyError, [partial(_document, *file) for file in zip(contents, names, strict=True)])
    tops = [document.known(TOP_KEYS) for document in documents]
    complete = partial(read_all, PolicyError, [partial(file.mapping, TOP_KEYS, required=("version",)) for file in documents])
    choices = partial(read_all, PolicyError, [partial(read_keys, top, CHOICES) for top in tops])
    per_file = partial(read_all, PolicyError, [partial(reader.rules_and_waivers, top) for top in tops])
    parts: list[Any] = read_all(
        PolicyError, [complete, choices, partial(_read_budgets, tops), partial(_read_coverage, tops), per_file]
    )
    _, chosen, budgets, coverages, things = parts
    rules: dict[str, Rule] = {}
    waivers: dict[str, Waiver] = {}
    replaced: list[Replacement] = []
    for own_rules, own_waivers in things:
        replaced += [Replacement.of_rule(rules[name], rule) for name, rule in own_rules.items() if name in rules]
        replaced += [Replacement.of_waiver(waivers[name], waiver) for name, waiver in own_waivers.items() if name in waivers]
        rules |= own_rules
        waivers |= own_waivers
    for key, kind in CHOICES.items():
        for first, second in pairwise(top[key] for top in tops if key in top):
            if (new := kind(second)) != (old := kind(first)):
                how = "another purpose" if key == "purpose" else "tighter" if new is Mode.FULL else "looser"
                change = (f"{old} becomes {new} ({how})",)
                replaced.append(Replacement(f"{key} of {first.where}", second.where, change, new is Mode.FULL))
    for before, after in pairwise(budgets):
        replaced += Replacement.of_budgets(before, after)
    for earlier, later in pairwise(coverages):
        replaced += Replacement.of_coverage(earlier, later)
    if not rules:
        alone = (
            "A file of waivers alone gates nothing: name your policy too, "
            "--vlm-thresholds=policy.yaml --vlm-thresholds=waivers.yaml"
        )
        where = ", ".join(names) or "no thresholds file"
        what_to_do = alone if waivers else "Add at least one rule"
        raise PolicyError(f"{where}: no rule at all, so nothing would be gated. {what_to_do}")
    files = tuple(PolicyFile(name, hashlib.sha256(content).hexdigest()) for name, content in zip(names, contents, strict=True))
    return Policy(
        tuple(rules.values()),
        tuple(waivers.values()),
        budgets[-1],
        files,
        coverage=coverages[-1],
        contents=tuple(contents),
        replaced=tuple(replaced),
        **{key: value for choices in chosen for key, value in choices.items()},
    )


def _display_path(path: Path, root: Path | None) -> str:
    """Returns the short path of a file below ``root`` or in the package, for citations."""
    if root is not None and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    folder = shipped("thresholds")
    within = path.is_relative_to(folder)
    return f"pytest_vlmrobust/thresholds/{path.relative_to(folder).as_posix()}" if within else path.as_posix()


def _bytes(path: Path, name: str) -> bytes:
    return read_bytes(path, what="thresholds file", error=PolicyError, file=name)


LARGEST_POLICY = 2**20
"""Bytes of a thresholds file, also in bundles: about ten thousand rules, which PyYAML reads in seconds."""


def _document(content: bytes, name: str) -> Entry:
    if len(content) > LARGEST_POLICY:
        raise PolicyError(
            f"{name}: the thresholds file has {len(content):,} bytes. Expected at most {LARGEST_POLICY:,}: several settings can "
            "share a rule, as where: {setting: [fog, rain]}, and several files a policy"
        )
    document = parse_document(content, name, error=PolicyError, expected="'version: 1' and a list 'rules:'")
    version = document.known(("version",)).get("version")
    if version and (version.scalar() != VERSION or isinstance(version.scalar(), bool)):
        version.refuse(f"{VERSION}: this release reads version {VERSION} only")
    return document


def _entries(top: Mapping[str, Entry], key: str) -> list[Entry]:
    return top[key].items() if key in top else []


def _read_defaults(top: Mapping[str, Entry]) -> Treatment:
    """Returns how the rules of a file are treated that do not say it themselves."""
    if "defaults" not in top:
        return Treatment()
    entries = top["defaults"].mapping(TREATMENT)
    if (
        entries
        and not _entries(top, "rules")
        and not ("budgets" in top and entries.keys() <= {STRICTNESS, "alpha_pass", "alpha_fail"})
    ):
        top["defaults"].fail(
            "apply to the rules of their own file, and it has none, so they would change nothing. Write them in the file "
            "that has the rules, or repeat those rules here"
        )
    return _treated(Treatment(), read_keys(entries, TREATMENT))


def _read_budgets(tops: Sequence[Mapping[str, Entry]]) -> list[Budgets]:
    """Returns the budgets that hold with the first file, with the first two, and so on.

    Each has the risks of the file that sets it, or of the first file.
    """
    budgets: list[Budgets] = []
    risks: dict[str, Treatment] = {}
    for top, entries in zip(tops, _so_far(tops, "budgets", BUDGET_KEYS), strict=True):
        treatment = _read_defaults(top)
        risks |= dict.fromkeys(top["budgets"].mapping(BUDGET_KEYS) if "budgets" in top else (), treatment)
        risks = dict.fromkeys(BUDGET_KEYS, treatment) | risks if not budgets else risks
        shares = read_keys(entries, BUDGETS)
        budgets.append(Budgets(**shares, sources=_sources(entries), risks=MappingProxyType(dict(risks))))
    return budgets


def _read_coverage(tops: Iterable[Mapping[str, Entry]]) -> list[Coverage]:
    """Returns the coverage required after the first file, after the first two, and so on."""
    coverages = []
    for entries in _so_far(tops, "coverage", COVERAGE_KEYS):
        values = read_keys(entries, COVERAGE)
        values |= values.pop("samples", {})
        coverages.append(Coverage(**values, sources=_sources(entries)))
    return coverages


def _so_far(tops: Iterable[Mapping[str, Entry]], name: str, keys: Sequence[str]) -> Iterator[dict[str, Entry]]:
    """Yields the merged mapping under a name after each file: later files override earlier ones key by key."""
    entries: dict[str, Entry] = {}
    for top in tops:
        entries |= top[name].mapping(keys) if name in top else {}
        yield entries


def _sources(entries: Mapping[str, Entry]) -> Mapping[str, str]:
    return MappingProxyType({key: entry.where for key, entry in entries.items()})


def _read_by_id(reads: Iterable[Callable[[], Identified]]) -> dict[str, Identified]:
    by_id: dict[str, Identified] = {}
    for thing in read_all(PolicyError, reads):
        if thing.id in by_id:
            kind = type(thing).__name__.lower()
            raise PolicyError(
                f"{thing.source}: {kind} id {thing.id!r} is taken already by {by_id[thing.id].source}. Choose another"
            )
        by_id[thing.id] = thing
    return by_id


class Reader:
    """Reads the rules and waivers of thresholds files, given the metrics that exist."""

    def __init__(
        self, known: Mapping[str, MetricFacts] | Collection[str], ambiguous: Mapping[str, Collection[str]] = MappingProxyType({})
    ) -> None:
        self._facts = dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, MetricFacts())
        self._measured = sorted(name for name, facts in self._facts.items() if not facts.unmeasured)
        self._ambiguous = ambiguous

    def values(self, metric: str = "") -> dict[str, Value]:
        """Returns the values of the keys of rules on a metric and of waivers for it."""
        facts = self._facts.get(metric, MetricFacts())
        metrics = {"anyOf": [{"enum": self._measured}, TEXT.schema], "description": "vlmrobust explain lists them"}
        two = list_of(_QUANTITY, minItems=2, maxItems=2, description="[low, high]")
        return {
            "id": IDENTIFIER,
            "metric": Value(self._metric, metrics),
            **dict.fromkeys(("where", "unless"), Value(partial(_read_scope, metric=metric, facts=facts), _SCOPE)),
            **{end: Value(partial(_read_end, end=end, metric=metric, facts=facts), _QUANTITY) for end in ("max", "min")},
            "within": Value(partial(_read_range, facts=facts), two),
            "cap": Value(partial(_read_quantity, facts=facts), _QUANTITY),
            **TREATMENT,
            **dict.fromkeys(("reason", "ticket"), VISIBLE_TEXT),
            "source": TEXT,
            "owner": PERSON,
            "expires": Value(Entry.date, _DAY),
        }

    def rules_and_waivers(self, top: Mapping[str, Entry]) -> tuple[dict[str, Rule], dict[str, Waiver]]:
        """Returns the rules and waivers of a file by id."""
        treatment = _read_defaults(top)
        rules = [partial(self.rule, entry, treatment) for entry in _entries(top, "rules")]
        waivers = [partial(self.waiver, entry) for entry in _entries(top, "waivers")]
        read: list[Any] = read_all(PolicyError, [partial(_read_by_id, rules), partial(_read_by_id, waivers)])
        return read[0], read[1]

    def rule(self, entry: Entry, treatment: Treatment) -> Rule:
        """Returns a rule; missing keys of its treatment come from ``treatment``."""
        entries = entry.known(RULE_KEYS)
        metric = _written_metric(entries)
        read: list[Any] = read_all(PolicyError, [partial(read_keys, entries, self.values(metric)), partial(_given_bound, entry)])
        values = read[0]
        treatment = _treated(treatment, {key: values.pop(key) for key in TREATMENT if key in values})
        if treatment.judge is JudgedBy.INTERVAL and not self._facts[metric].interval:
            entry.fail(f"judges the interval of {metric}, which has no interval, so nothing would ever pass. Write judge: point")
        evidence = values.pop("source", "")
        return Rule(bound=values.pop(read[1]), source=entry.where, treatment=treatment, evidence=evidence, **values)

    def waiver(self, entry: Entry) -> Waiver:
        """Returns a waiver; every key but ``ticket`` is required."""
        entries = entry.known(WAIVER_KEYS)
        complete = partial(entry.mapping, WAIVER_KEYS, required=WAIVER_REQUIRED)
        read: list[Any] = read_all(PolicyError, [complete, partial(read_keys, entries, self.values(_written_metric(entries)))])
        return Waiver(source=entry.where, unit=unit_of(entries["cap"].quantity()), **read[1])

    def _metric(self, entry: Entry) -> str:
        name = entry.text()
        if name in self._ambiguous:
            full = " or ".join(repr(choice) for choice in self._ambiguous[name])
            entry.fail(f"is {name!r}, a name that several metrics go by. Write {full}")
        if name not in self._facts:
            raise UnknownName("metric", shorten(name), self._measured, where=entry.where)
        if needed := self._facts[name].unmeasured:
            entry.fail(
                f"is {name!r}, which no run measures: it needs {needed}, and nothing asks a model for that. A rule or waiver "
                "about it would never decide anything: remove it"
            )
        return name


def _written_metric(entries: Mapping[str, Entry]) -> str:
    """Returns the metric of a rule or waiver as written, whether it exists or not; empty if it has none."""
    metric = entries.get("metric")
    return "" if metric is None or metric.is_mapping or metric.is_list else str(metric.node.value)


def _given_bound(rule: Entry) -> str:
    entries = rule.mapping(RULE_KEYS, required=RULE_REQUIRED)
    written = [key for key in BOUND_KEYS if key in entries]
    if len(written) != 1:
        rule.fail(f"has {' and '.join(written) or 'no bound'}. Expected one of max, min or within: [low, high]")
    return written[0]


def _treated(base: Treatment, values: dict[str, Any]) -> Treatment:
    """Returns ``base`` updated by the keys of a rule or of a file's defaults; single keys override ``strictness``."""
    strictness = values.pop(STRICTNESS, None)
    return replace(base, **{**(strictness.treatment if strictness else {}), **values})


def _read_share(entry: Entry) -> float:
    """Returns a budget: a share of samples in [0, 1]."""
    try:
        share = parse_quantity(entry.quantity(), FRACTION)
    except ValueError as error:
        entry.refuse(str(error))
    if not 0 <= share <= 1:
        entry.refuse("a share between 0 and 100%")
    return share


def _read_samples(entry: Entry) -> dict[str, float]:
    """Returns the share, or the number, of samples that a run must ask of each dataset."""
    value = entry.quantity()
    if value in list(Extent):
        return {"share": float(value == Extent.WHOLE)}
    if isinstance(value, str) and value.strip().endswith("%"):
        return {"share": _read_share(entry)}
    if not isinstance(value, int) or value < 1:
        near = did_you_mean(str(value), [str(extent) for extent in Extent])
        entry.refuse(f"whole, partial, a share such as 20%, or a number of samples such as 500.{near}")
    return {"share": 0.0, "samples": value}


LEAST_RISK = 1e-6
"""A smaller risk decides nothing: at 1e-12 no model could break a bound."""


def _read_risk(entry: Entry) -> float:
    risk = entry.quantity()
    if isinstance(risk, str) or not LEAST_RISK <= risk < 0.5:
        entry.refuse(
            "a probability from 0.000001 on and below 0.5, such as 0.05 (YAML reads 1e-3 as text, and 1.0e-3 as a number)"
        )
    return float(risk)


def _read_quantity(entry: Entry, facts: MetricFacts) -> float:
    try:
        return parse_quantity(entry.quantity(), facts.unit, facts.bounds)
    except ValueError as error:
        entry.refuse(str(error))


def _read_end(entry: Entry, end: str, metric: str, facts: MetricFacts) -> Bound:
    if advised := _BACKWARDS.get((end, facts.better)):
        entry.fail(
            f"bounds {metric} on the wrong side: {facts.better} is better, and a good model would fail. Write {advised}:, "
            "or within: [low, high] if both sides matter"
        )
    value, unit = _read_quantity(entry, facts), unit_of(entry.quantity())
    return Bound(high=value, unit=unit) if end == "max" else Bound(low=value, unit=unit)


def _read_range(entry: Entry, facts: MetricFacts) -> Bound:
    ends = entry.items()
    if len(ends) != 2:
        entry.refuse(f"two numbers, [low, high]; {len(ends)} given")
    low, high = (_read_quantity(end, facts) for end in ends)
    if low >= high:
        entry.refuse(f"low below high; found {low:g} and {high:g}")
    return Bound(low, high, unit_of(*(end.quantity() for end in ends)))


def _read_scope(entry: Entry, metric: str, facts: MetricFacts) -> Scope:
    columns = [key for key in entry.table() if key.startswith(META)] if entry.is_mapping else []
    entries = entry.mapping([*SCOPE, *columns, f"{META}COLUMN"])  # the last for the message
    if not entries:
        entry.refuse(f"at least one of {', '.join(SCOPE)}")
    for key in _CELL_KEYS:
        if key in entries and facts.scope == "sweep" and not (facts.split and key == "setting"):
            entries[key].fail(
                f"never matches: {metric} is measured over a whole sweep, which has no {key}. Expected model, dataset or category"
            )
    scope = read_keys(entries, {**SCOPE, **dict.fromkeys(columns, GLOBS)})
    slices = tuple(slice_name(key.removeprefix(META), value) for key in columns for value in scope.pop(key))
    if slices and (len(columns) > 1 or "category" in scope):
        both = " and ".join(key for key in (*columns, "category") if key in entries)
        entry.fail(f"asks for {both}. Expected one of them: put what should hold together into one column of the data")
    return Scope(**scope, **({"category": slices} if slices else {}))


def _read_globs(entry: Entry) -> tuple[str, ...]:
    for part in entry.items() if entry.is_list else [entry]:
        part.visible_text()
    return entry.texts()


def _read_levels(entry: Entry) -> tuple[str, ...]:
    named = (*LEVELS, NO_LEVEL)
    for level in (levels := _read_globs(entry)):
        if level.isalpha() and level not in named:
            entry.refuse(f"{', '.join(named)}, or the parameter of a setting such as '448'.{did_you_mean(level, named)}")
    return levels


# The keys whose values are read without a metric, and the JSON Schemas of values.


_WRITTEN = {"type": "string", "pattern": r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?\s*(pp|%)?\s*$"}
_QUANTITY = {"anyOf": [{"type": "number"}, _WRITTEN], "description": "5pp, 5% and 0.05 are the same number"}
_SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, _WRITTEN], "description": "a share of samples, such as 5%"}
_RISK = {"type": "number", "minimum": LEAST_RISK, "exclusiveMaximum": 0.5, "description": "one-sided, such as 0.05"}
_SCOPE = {"$ref": "#/definitions/scope"}
_DAY = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "the last day, such as 2027-06-30"}
_SAMPLES = {
    "anyOf": [
        choice(Extent).schema,
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^\s*(\d+\.?\d*|\.\d+)\s*%\s*$"},
    ],
    "description": "of each dataset: whole, partial, 20% or 500",
}
_A_GLOB = "a glob, or a list of globs"

CHOICES = {"mode": choice(Mode), "purpose": choice(Purpose)}
TREATMENT: dict[str, Value] = {
    STRICTNESS: choice(Strictness),
    "judge": choice(JudgedBy),
    **dict.fromkeys(("alpha_pass", "alpha_fail"), Value(_read_risk, _RISK)),
    "multiplicity": choice(Multiplicity),
    "tier": choice(Tier),
    "on_inconclusive": choice(OnInconclusive),
    "on_not_applicable": choice(OnNotApplicable),
}
BUDGETS = dict.fromkeys(BUDGET_KEYS, Value(_read_share, _SHARE))
COVERAGE = {
    "tests": choice(Extent),
    "samples": Value(_read_samples, _SAMPLES),
    "suites": Value(
        lambda entry: tuple(dict.fromkeys(suite.identifier() for suite in entry.items())),
        list_of(IDENTIFIER.schema, description="test files without test_ and .py, such as corruptions"),
    ),
    "rules": choice(Extent),
    "blind_models": choice(BlindModels),
}
GLOBS = Value(_read_globs, one_or_more(TEXT.schema, description=_A_GLOB))
SCOPE = {
    **dict.fromkeys(("model", "dataset", "setting", "family"), GLOBS),
    "level": Value(_read_levels, one_or_more({"anyOf": [{"enum": [*LEVELS, NO_LEVEL]}, TEXT.schema]}, description=_A_GLOB)),
    "category": GLOBS,
}
RULE_KEYS = ("id", "metric", "where", "unless", *BOUND_KEYS, *TREATMENT, "reason", "source")
WAIVER_KEYS = ("id", "metric", "where", "cap", "owner", "reason", "ticket", "expires")
WAIVER_REQUIRED = tuple(key for key in WAIVER_KEYS if key != "ticket")


SCHEMA_FILE = "thresholds.schema.json"
"""Its file name, next to the shipped thresholds files."""

_PART = {"anyOf": [{"type": "number", "minimum": -1, "maximum": 1}, {"type": "string"}]}
"""A quantity of a fraction: beyond 1 it needs its unit, ``5pp``."""


def thresholds_schema(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the schema in draft 7, which editors support best.

    It accepts everything that the reader accepts, and refuses what the reader refuses unless that depends on other values, such
    as a bound on the wrong side of its metric or out of its range. Known metrics are offered with their units; others are
    accepted, because users can add metrics.
    """
    values, units = Reader(metrics).values(), _units(metrics)
    bounds = [{"required": [key]} for key in BOUND_KEYS]
    properties = {
        "version": {"const": VERSION},
        **{key: value.schema for key, value in CHOICES.items()},
        "defaults": mapping(TREATMENT),
        "budgets": mapping(BUDGETS),
        "coverage": mapping(COVERAGE),
        "rules": list_of({"$ref": "#/definitions/rule"}),
        "waivers": list_of({"$ref": "#/definitions/waiver"}),
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Thresholds of pytest-vlmrobust",
        "type": "object",
        "additionalProperties": False,
        "required": ["version"],
        "properties": properties,
        "definitions": {
            "scope": mapping(SCOPE, minProperties=1, patternProperties={f"^{re.escape(META)}.": GLOBS.schema}),
            "rule": mapping({key: values[key] for key in RULE_KEYS}, RULE_REQUIRED, oneOf=bounds, **units),
            "waiver": mapping({key: values[key] for key in WAIVER_KEYS}, WAIVER_REQUIRED, **units),
        },
    }


def _units(metrics: Mapping[str, MetricFacts]) -> dict[str, Any]:
    """Returns the condition that plain numbers for fractions lie between -1 and 1."""
    fractions = sorted(name for name, facts in metrics.items() if facts.unit == FRACTION and not facts.unmeasured)
    bounds = {**dict.fromkeys(("max", "min", "cap"), _PART), "within": list_of(_PART)}
    return {"if": {"properties": {"metric": {"enum": fractions}}}, "then": {"properties": bounds}}
