"""Reading of thresholds files: their keys and values, and how a later file overrides an earlier one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.document import Entry, parse_document, read_bytes, shorten
from pytest_vlmrobust.core.errors import PolicyError, UnknownName, did_you_mean
from pytest_vlmrobust.core.sample import META, slice_name
from pytest_vlmrobust.shipped import shipped

from .budgets import BUDGET_KEYS, COVERAGE_KEYS, BlindModels, Budgets, Coverage, Extent
from .policy import Policy, PolicyFile, Replacement
from .rules import (
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

Identified = TypeVar("Identified", Rule, Waiver)
Choice = TypeVar("Choice", Mode, Purpose)

VERSION = 1

TOP_KEYS = ("version", "mode", "purpose", "defaults", "budgets", "coverage", "rules", "waivers")
STRICTNESS = "strictness"
TREATMENT_KEYS = (STRICTNESS, *(part.name for part in fields(Treatment)))
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
    """What rules on a metric are checked against; the defaults describe a metric of which only the name is known.

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


def load_policy(
    paths: Sequence[Path],
    *,
    known_metrics: Mapping[str, MetricFacts] | Collection[str],
    ambiguous: Mapping[str, Collection[str]] | None = None,
    root: Path | None = None,
) -> Policy:
    """Reads thresholds files; later ones override earlier ones.

    A rule or waiver replaces the earlier one with the same id as a whole; ``budgets`` and ``coverage`` are about the run as a
    whole, and override key by key. The policy says what either changed. The ``defaults`` of a file are those of its own rules and
    of no others. Every file is checked in full, overridden parts included.

    ``known_metrics`` are those that rules may name; with their facts, units, directions and scopes are checked as well.
    ``ambiguous`` are short names that mean several metrics, with the full names to choose from. Files below ``root`` are cited
    relative to it. A PolicyError names file, line, value and what was expected.
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
    reader = _Reader(known_metrics, ambiguous or {})
    tops = [_read_top(content, name) for content, name in zip(contents, names, strict=True)]
    budgets, coverages = _read_budgets(tops), _read_coverage(tops)
    rules: dict[str, Rule] = {}
    waivers: dict[str, Waiver] = {}
    replaced: list[Replacement] = []
    for top in tops:
        treatment = _read_defaults(top)
        own_rules = _by_id(reader.rule(entry, treatment) for entry in _entries(top, "rules"))
        own_waivers = _by_id(reader.waiver(entry) for entry in _entries(top, "waivers"))
        replaced += [Replacement.of_rule(rules[name], rule) for name, rule in own_rules.items() if name in rules]
        replaced += [Replacement.of_waiver(waivers[name], waiver) for name, waiver in own_waivers.items() if name in waivers]
        rules |= own_rules
        waivers |= own_waivers
    for key, kind, tight in (("mode", Mode, Mode.FULL), ("purpose", Purpose, None)):
        for first, second in pairwise(top[key] for top in tops if key in top):
            if (new := second.choice(kind)) != (old := first.choice(kind)):
                how = "another purpose" if tight is None else "tighter" if new is tight else "looser"
                change = (f"{old} becomes {new} ({how})",)
                replaced.append(Replacement(f"{key} of {first.where}", second.where, change, new is tight))
    for before, after in pairwise(budgets):
        replaced += Replacement.of_budgets(before, after)
    for earlier, later in pairwise(coverages):
        replaced += Replacement.of_coverage(earlier, later)
    if not rules:
        raise PolicyError(f"{', '.join(names) or 'no thresholds file'}: no rule at all, so nothing would be gated. Add rules:")
    files = tuple(PolicyFile(name, hashlib.sha256(content).hexdigest()) for name, content in zip(names, contents, strict=True))
    return Policy(
        tuple(rules.values()),
        tuple(waivers.values()),
        budgets[-1],
        files,
        coverage=coverages[-1],
        mode=_read_last(tops, "mode", Mode, Mode.FULL),
        purpose=_read_last(tops, "purpose", Purpose, Purpose.RELEASE),
        contents=tuple(contents),
        replaced=tuple(replaced),
    )


def _display_path(path: Path, root: Path | None) -> str:
    """Returns how a file is cited: shortly if it is below ``root``, or comes with the package."""
    if root is not None and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    folder = shipped("thresholds")
    within = path.is_relative_to(folder)
    return f"pytest_vlmrobust/thresholds/{path.relative_to(folder).as_posix()}" if within else path.as_posix()


def _bytes(path: Path, name: str) -> bytes:
    return read_bytes(path, what="thresholds file", error=PolicyError, file=name)


LARGEST_POLICY = 2**20
"""Bytes of a thresholds file, also of one in a bundle: about ten thousand rules, and seconds of PyYAML."""


def _read_top(content: bytes, name: str) -> dict[str, Entry]:
    if len(content) > LARGEST_POLICY:
        raise PolicyError(
            f"{name}: the thresholds file has {len(content):,} bytes. Expected at most {LARGEST_POLICY:,}: several settings can "
            "share a rule, as where: {setting: [fog, rain]}, and several files a policy"
        )
    document = parse_document(content, name, error=PolicyError, expected="'version: 1' and a list 'rules:'")
    top = document.mapping(TOP_KEYS, required=("version",))
    version = top["version"]
    if version.scalar() != VERSION or isinstance(version.scalar(), bool):
        version.refuse(f"{VERSION}: this release reads version {VERSION} only")
    return top


def _entries(top: Mapping[str, Entry], key: str) -> list[Entry]:
    return top[key].items() if key in top else []


def _read_defaults(top: Mapping[str, Entry]) -> Treatment:
    """Returns how the rules of a file are treated that do not say it themselves."""
    if "defaults" not in top:
        return Treatment()
    entries = top["defaults"].mapping(TREATMENT_KEYS)
    if (
        entries
        and not _entries(top, "rules")
        and not ("budgets" in top and entries.keys() <= {STRICTNESS, "alpha_pass", "alpha_fail"})
    ):
        top["defaults"].fail(
            "apply to the rules of their own file, and it has none, so they would change nothing. Write them in the file "
            "that has the rules, or repeat those rules here"
        )
    return _read_treatment(entries, Treatment())


def _read_last(tops: Iterable[Mapping[str, Entry]], key: str, kind: type[Choice], usual: Choice) -> Choice:
    """Returns the value of a key in the last file that has it."""
    values = [top[key].choice(kind) for top in tops if key in top]
    return values[-1] if values else usual


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
        shares = {key: _read_share(entry) for key, entry in entries.items()}
        budgets.append(Budgets(**shares, sources=_sources(entries), risks=MappingProxyType(dict(risks))))
    return budgets


def _read_coverage(tops: Iterable[Mapping[str, Entry]]) -> list[Coverage]:
    """Returns the coverage that is asked for with the first file, with the first two, and so on."""
    return [
        Coverage(**_read_coverage_keys(entries), sources=_sources(entries))
        for entries in _so_far(tops, "coverage", COVERAGE_KEYS)
    ]


def _so_far(tops: Iterable[Mapping[str, Entry]], name: str, keys: Sequence[str]) -> Iterator[dict[str, Entry]]:
    """Yields the merged mapping under a name after each file: later files override earlier ones key by key."""
    entries: dict[str, Entry] = {}
    for top in tops:
        entries = {**entries, **(top[name].mapping(keys) if name in top else {})}
        yield entries


def _sources(entries: Mapping[str, Entry]) -> Mapping[str, str]:
    return MappingProxyType({key: entry.where for key, entry in entries.items()})


def _by_id(things: Iterable[Identified]) -> dict[str, Identified]:
    by_id: dict[str, Identified] = {}
    for thing in things:
        if thing.id in by_id:
            kind = type(thing).__name__.lower()
            raise PolicyError(
                f"{thing.source}: {kind} id {thing.id!r} is taken already by {by_id[thing.id].source}. Choose another"
            )
        by_id[thing.id] = thing
    return by_id


class _Reader:
    """Reads the rules and waivers of thresholds files, given the metrics that exist."""

    def __init__(self, known: Mapping[str, MetricFacts] | Collection[str], ambiguous: Mapping[str, Collection[str]]) -> None:
        self._facts = dict(known) if isinstance(known, Mapping) else dict.fromkeys(known, MetricFacts())
        self._ambiguous = ambiguous

    def rule(self, entry: Entry, treatment: Treatment) -> Rule:
        """Returns a rule; keys of its treatment that it does not set are taken from ``treatment``."""
        entries = entry.mapping(RULE_KEYS, required=RULE_REQUIRED)
        metric, facts = self._metric(entries["metric"])
        rule_treatment = _read_treatment(entries, treatment)
        if rule_treatment.judge is JudgedBy.INTERVAL and not facts.interval:
            entry.fail(f"judges the interval of {metric}, which has no interval, so nothing would ever pass. Write judge: point")
        return Rule(
            id=entries["id"].identifier(),
            metric=metric,
            bound=_read_bound(entry, entries, metric, facts),
            source=entry.where,
            where=_read_scope(entries["where"], metric, facts) if "where" in entries else Scope(),
            unless=_read_scope(entries["unless"], metric, facts) if "unless" in entries else None,
            treatment=rule_treatment,
            reason=entries["reason"].visible_text() if "reason" in entries else "",
            evidence=entries["source"].text() if "source" in entries else "",
        )

    def waiver(self, entry: Entry) -> Waiver:
        """Returns a waiver; every key but ``ticket`` is required."""
        entries = entry.mapping(WAIVER_KEYS, required=WAIVER_REQUIRED)
        metric, facts = self._metric(entries["metric"])
        return Waiver(
            id=entries["id"].identifier(),
            owner=entries["owner"].person(),
            reason=entries["reason"].visible_text(),
            expires=entries["expires"].date(),
            metric=metric,
            where=_read_scope(entries["where"], metric, facts),
            cap=_read_quantity(entries["cap"], facts),
            source=entry.where,
            ticket=entries["ticket"].visible_text() if "ticket" in entries else "",
        )

    def _metric(self, entry: Entry) -> tuple[str, MetricFacts]:
        name = entry.text()
        if name in self._ambiguous:
            full = " or ".join(repr(choice) for choice in self._ambiguous[name])
            entry.fail(f"is {name!r}, a name that several metrics go by. Write {full}")
        if name not in self._facts:
            measured = [metric for metric, facts in self._facts.items() if not facts.unmeasured]
            raise UnknownName("metric", shorten(name), measured, where=entry.where)
        if needed := self._facts[name].unmeasured:
            entry.fail(
                f"is {name!r}, which no run measures: it needs {needed}, and nothing asks a model for that. A rule or waiver "
                "about it would never decide anything: remove it"
            )
        return name, self._facts[name]


def _read_treatment(entries: Mapping[str, Entry], base: Treatment) -> Treatment:
    """Returns ``base`` with the keys that a rule, or the defaults of a file, set; a single key outranks ``strictness``."""
    if STRICTNESS in entries:
        base = replace(base, **entries[STRICTNESS].choice(Strictness).treatment)
    return replace(base, **{key: read(entries[key]) for key, read in _TREATMENT.items() if key in entries})


def _read_share(entry: Entry) -> float:
    """Returns a budget: a share of samples in [0, 1]."""
    try:
        share = parse_quantity(entry.quantity(), FRACTION)
    except ValueError as error:
        entry.refuse(str(error))
    if not 0 <= share <= 1:
        entry.refuse("a share between 0 and 100%")
    return share


def _read_coverage_keys(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Returns the fields of a coverage that a file sets."""
    coverage: dict[str, Any] = {}
    if "tests" in entries:
        coverage["tests"] = entries["tests"].choice(Extent)
    if "rules" in entries:
        coverage["rules"] = entries["rules"].choice(Extent)
    if "blind_models" in entries:
        coverage["blind_models"] = entries["blind_models"].choice(BlindModels)
    if "samples" in entries:
        coverage["share"], coverage["samples"] = _read_samples(entries["samples"])
    if "suites" in entries:
        coverage["suites"] = tuple(dict.fromkeys(entry.identifier() for entry in entries["suites"].items()))
    return coverage


def _read_samples(entry: Entry) -> tuple[float, int]:
    """Returns the share and the number of samples that a run must ask of each dataset."""
    value = entry.quantity()
    if value in list(Extent):
        return (1.0 if value == Extent.WHOLE else 0.0), 0
    if isinstance(value, str) and value.strip().endswith("%"):
        return _read_share(entry), 0
    if not isinstance(value, int) or value < 1:
        near = did_you_mean(str(value), [str(extent) for extent in Extent])
        entry.refuse(f"whole, partial, a share such as 20%, or a number of samples such as 500.{near}")
    return 0.0, value


LEAST_RISK = 1e-6
"""A smaller risk decides nothing: at 1e-12 no model could break a bound."""


def _read_risk(entry: Entry) -> float:
    risk = entry.quantity()
    if isinstance(risk, str) or not LEAST_RISK <= risk < 0.5:
        entry.refuse(
            "a probability from 0.000001 on and below 0.5, such as 0.05 (YAML reads 1e-3 as text, and 1.0e-3 as a number)"
        )
    return float(risk)


_TREATMENT: dict[str, Callable[[Entry], Any]] = {
    "judge": lambda entry: entry.choice(JudgedBy),
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


def _read_bound(rule: Entry, entries: Mapping[str, Entry], metric: str, facts: MetricFacts) -> Bound:
    written = [key for key in BOUND_KEYS if key in entries]
    if len(written) != 1:
        rule.fail(f"has {' and '.join(written) or 'no bound'}. Expected one of max, min or within: [low, high]")
    kind, entry = written[0], entries[written[0]]
    if kind == "within":
        return _read_range(entry, facts)
    advised = _BACKWARDS.get((kind, facts.better))
    if advised:
        entry.fail(
            f"bounds {metric} on the wrong side: {facts.better} is better, and a good model would fail. Write {advised}:, "
            "or within: [low, high] if both sides matter"
        )
    value = _read_quantity(entry, facts)
    unit = unit_of(entry.quantity())
    return Bound(high=value, unit=unit) if kind == "max" else Bound(low=value, unit=unit)


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
    entries = entry.mapping([*SCOPE_KEYS, *columns])
    if not entries:
        entry.refuse(f"at least one of {', '.join(SCOPE_KEYS)}")
    for key in _CELL_KEYS:
        if key in entries and facts.scope == "sweep" and not (facts.split and key == "setting"):
            entries[key].fail(
                f"never matches: {metric} is measured over a whole sweep, which has no {key}. Expected model, dataset or category"
            )
    for value in entries.values():
        for part in value.items() if value.is_list else [value]:
            part.visible_text()
    for level in entries["level"].texts() if "level" in entries else ():
        _check_level(entries["level"], level)
    scope = {key: value.texts() for key, value in entries.items()}
    slices = tuple(slice_name(key.removeprefix(META), value) for key in columns for value in scope.pop(key))
    if slices and (len(columns) > 1 or "category" in scope):
        both = " and ".join(key for key in (*columns, "category") if key in entries)
        entry.fail(f"asks for {both}. Expected one of them: put what should hold together into one column of the data")
    return Scope(**scope, **({"category": slices} if slices else {}))


def _check_level(entry: Entry, level: str) -> None:
    named = (*LEVELS, NO_LEVEL)
    if level.isalpha() and level not in named:
        entry.refuse(f"{', '.join(named)}, or the parameter of a setting such as '448'.{did_you_mean(level, named)}")
