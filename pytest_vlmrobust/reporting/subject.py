"""Subject: what a run judged (models, data, date, version), and its policies: the rules and waivers that were applied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pytest_vlmrobust.core.decision import WORST_FIRST, NotShown, Outcome
from pytest_vlmrobust.core.fingerprint import canonical_json
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.words import first_few, on_one_line, quantity

from .facts import RunFacts, mapping, objects, replacements_in, value_text

_SHOWN = 12
"""Digits of a SHA-256 or of a revision that people compare."""
_UNKNOWN = "revision not recorded"
_PATCHES = "patches"
_MOST = 4
"""Datasets that a title names."""
_Ruled: TypeAlias = tuple[Record, Measure]
"""A measure that a rule judged, and its test."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its name in test ids, its origin, and its version."""

    name: str
    location: str = ""
    version: str = _UNKNOWN
    """The requested revision, else the beginning of the SHA-256 of its weights."""
    mode: str = ""
    """Its prompt mode: direct, cot, thinking."""
    deployment: str = ""
    """Its declared deployment settings; empty if none."""

    def __str__(self) -> str:
        from_a_hub = self.location != self.name and not Path(self.location).is_absolute()
        return f"{self.name} ({', '.join(filter(None, (self.location if from_a_hub else '', self.version)))})"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run judged. Facts that were not recorded are shown as unknown."""

    models: tuple[Model, ...]
    data: Mapping[str, int]
    """Samples by dataset; 0 if unknown."""
    policies: Sequence[Applied]
    run: str
    date: str
    version: str

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The label and text of each line."""
        several = len({policy.sha256 for policy in self.policies}) > 1
        named = [(f"policy of {policy.model}" if several else "policy", str(policy)) for policy in self.policies]
        return [
            ("model" if len(self.models) == 1 else "models", ", ".join(map(str, self.models)) or "none"),
            *(("asked with", f"{model.name}: {model.deployment}") for model in self.models if model.deployment),
            ("data", ", ".join(self.datasets) or "none"),
            ("date", self.date or "not recorded"),
            ("gate", f"pytest-vlmrobust {self.version or 'of a version not recorded'}"),
            *(dict.fromkeys(named) or [("policy", "none: nothing was gated")]),
            *([("run", self.run)] if self.run else []),
        ]

    @property
    def datasets(self) -> list[str]:
        """Its datasets, each with its samples."""
        return [f"{name} ({quantity(count, 'sample')})" if count else name for name, count in self.data.items()]

    def title(self, decision: str) -> str:
        """Returns the title of the run's page, for browsers and PDF files."""
        models, data = first_few(map(str, self.models), _MOST), first_few(self.datasets, _MOST)
        judged = " on ".join(filter(None, (models, data)))
        policies = " ".join(dict.fromkeys(policy.sha256[:_SHOWN] for policy in self.policies if policy.sha256))
        versions = (self.date, f"pytest-vlmrobust {self.version}".strip(), f"policy {policies}" if policies else "no policy")
        return on_one_line(", ".join(filter(None, (f"{decision}: {judged}" if judged else decision, *versions))))


def subject(records: Sequence[Record], origins: Mapping[str, object], policies: Sequence[Applied]) -> Subject:
    """Returns the subject of a run under these policies."""
    models = mapping(origins.get("models"))
    names = sorted({*models, *(record.model for record in records if record.model and record.dataset)})  # as manifests do
    run, date, version = (str(origins.get(name) or "") for name in ("run", "date", "version"))
    return Subject(
        tuple(_model(name, mapping(models.get(name))) for name in names),
        _data(records),
        policies,
        run,
        date,
        version,
    )


def _model(name: str, origin: Mapping[str, Any]) -> Model:
    fingerprint = mapping(origin.get("fingerprint"))
    weights = mapping(fingerprint.get("weights")) or mapping(mapping(fingerprint.get("identity")).get("model"))
    digest = str(weights.get("sha256") or weights.get("commit") or "")[:_SHOWN]
    revision = str(origin.get("revision") or "")
    version = f"revision {revision}" if revision else f"weights {digest}" if digest else _UNKNOWN
    return Model(name, str(origin.get("location") or ""), version, str(origin.get("prompt_mode") or ""), _deployment(origin))


def _deployment(origin: Mapping[str, Any]) -> str:
    """Returns an adapter, a system prompt, and other settings of every question, by key."""
    given = {name: origin[name] for name in ("adapter", "quantization") if name in origin}
    declared = {**given, **mapping(origin.get("deployment"))}
    decoding = mapping(mapping(origin.get("fingerprint")).get("decoding"))
    if "temperature" in decoding and decoding["temperature"] is None:
        declared["temperature"] = "none"
    return ", ".join(f"{key}: {value if isinstance(value, str) else canonical_json(value)}" for key, value in declared.items())


def _data(records: Iterable[Record]) -> dict[str, int]:
    """Returns how many samples each dataset has. Cells of patches count views, and cells that were not asked about nothing."""
    counts: dict[str, int] = {}
    for record in records:
        if not record.dataset:
            continue
        cell = record.test == "cell" and record.family != _PATCHES
        count = (record.n_samples or record.n_requested) if cell else 0
        counts[record.dataset] = max(counts.get(record.dataset, 0), count)
    return dict(sorted(counts.items()))


# Policies, as applied: from the records, with details from the manifest.


@dataclass(frozen=True, slots=True)
class OpenRule:
    """A blocking rule that a test does not show to hold, with the test and measure."""

    record: Record
    measure: Measure
    about: NotShown

    @property
    def undecided(self) -> bool:
        """Whether the samples do not decide it; otherwise it did not apply."""
        return self.about.outcome is Outcome.INCONCLUSIVE


def open_rules(records: Iterable[Record]) -> list[list[OpenRule]]:
    """Returns the blocking rules that are not shown to hold, grouped by rule and model.

    Undecided rules come before rules that did not apply, and the most likely breach comes first,
    among groups and within each.
    """
    groups: dict[tuple[str, str, bool], list[OpenRule]] = {}
    for record in records:
        for measure in record.measures:
            for not_shown in measure.not_shown:
                rule = OpenRule(record, measure, not_shown)
                groups.setdefault((record.model, not_shown.rule, rule.undecided), []).append(rule)
    return sorted((sorted(group, key=_openness) for group in groups.values()), key=lambda group: _openness(group[0]))


def _openness(rule: OpenRule) -> tuple[bool, float, str]:
    beyond = rule.about.beyond
    return not rule.undecided, -beyond if math.isfinite(beyond) else -1.0, rule.record.id


@dataclass(slots=True)
class RuleUse:
    """A rule and its verdicts, with its reason and source of its number if in the manifest."""

    id: str
    metric: str = ""
    bound: str = ""
    source: str = ""
    where: str = ""
    judges: str = ""
    reason: str = ""
    evidence: str = ""
    outcomes: dict[Outcome, int] = field(default_factory=dict)
    not_shown: int = 0
    """Measures by which it is not shown to hold, each let pass."""


@dataclass(slots=True)
class WaiverUse:
    """A waiver, and the tests that it covered."""

    id: str
    owner: str = ""
    expires: str = ""
    ticket: str = ""
    metric: str = ""
    where: str = ""
    cap: str = ""
    reason: str = ""
    tests: list[Record] = field(default_factory=list)


_Use = TypeVar("_Use", RuleUse, WaiverUse)


@dataclass(frozen=True, slots=True)
class Applied:
    """The policy of a model."""

    model: str
    sha256: str
    files: list[tuple[str, str]]
    """Name and SHA-256 of each thresholds file; without the manifest a line without a hash."""
    rules: list[RuleUse]
    waivers: list[WaiverUse]
    conditions: list[str]
    """Requirements of GO for the whole run, and the budgets."""
    replaced: list[str]
    """Changes by later files other than tightening, a sentence each."""

    def __str__(self) -> str:
        files = ", ".join(name for name, _ in self.files)
        return " ".join(filter(None, (files, self.sha256[:_SHOWN] or "hash unknown")))


def applied_policies(records: Iterable[Record], facts: RunFacts) -> list[Applied]:
    """Returns the policy of each model or family of models in the records or the manifest."""
    policies = mapping(facts.origins.get("policies"))
    by_model: dict[str, list[Record]] = {name: [] for name in (*policies, *facts.policies)}
    for record in records:
        if record.policy_sha256 or any(measure.waiver for measure in record.measures):
            by_model.setdefault(record.model, []).append(record)
    return [_applied(model, group, facts, mapping(policies.get(model))) for model, group in by_model.items()]


def _applied(model: str, records: Sequence[Record], facts: RunFacts, entry: Mapping[str, Any]) -> Applied:
    hashes = dict.fromkeys(record.policy_sha256 for record in records)
    files = [(value_text(file.get("name")), value_text(file.get("sha256"))) for file in objects(entry.get("files"))]
    ruled = [(record, measure) for record in records for measure in record.measures if measure.rule]
    return Applied(
        model,
        ", ".join(filter(None, hashes)) or str(entry.get("sha256") or ""),
        files or [(facts.policies[model], "")] if model in facts.policies or files else [],
        _rules(ruled, open_rules(records), objects(entry.get("rules"))),
        _waivers(ruled, objects(entry.get("waivers"))),
        [
            f"{part} {key}: {value_text(value)}"
            for part in ("coverage", "budgets")
            for key, value in mapping(entry.get(part)).items()
            if value != "[]"  # no suite is required
        ],
        replacements_in(entry),
    )


def _rules(
    ruled: Iterable[_Ruled], open_groups: Iterable[Sequence[OpenRule]], entries: Iterable[Mapping[str, Any]]
) -> list[RuleUse]:
    """Returns every rule with verdicts, and the manifest's rules without any, worst first."""
    rules = {str(entry.get("id")): _known(RuleUse, entry) for entry in entries}
    for _, measure in ruled:
        rule = rules.setdefault(measure.rule, RuleUse(measure.rule))
        rule.metric, rule.source = measure.metric, measure.source
        rule.bound, rule.judges = rule.bound or measure.bound, measure.target or rule.judges
        rule.outcomes[measure.outcome] = rule.outcomes.get(measure.outcome, 0) + 1
    for group in open_groups:
        rules.setdefault(group[0].about.rule, RuleUse(group[0].about.rule)).not_shown += len(group)
    return sorted(rules.values(), key=lambda rule: (_rank(rule), rule.id))


def _rank(rule: RuleUse) -> int:
    return min((WORST_FIRST.index(outcome) for outcome in rule.outcomes), default=len(WORST_FIRST))


def _known(kind: type[_Use], entry: Mapping[str, Any]) -> _Use:
    """Returns what the manifest says of a rule or a waiver."""
    names = [field.name for field in fields(kind) if field.type == "str" and entry.get(field.name) is not None]
    texts: dict[str, Any] = {name: str(entry[name]) for name in names}
    return kind(**{"id": "", **texts, "where": _scope(entry)})


def _scope(entry: Mapping[str, Any]) -> str:
    where = "; ".join(f"{name} {value_text(globs)}" for name, globs in mapping(entry.get("where")).items())
    unless = "; ".join(f"{name} {value_text(globs)}" for name, globs in mapping(entry.get("unless")).items())
    return f"{where}{' ' if where and unless else ''}{f'unless {unless}' if unless else ''}"


def _waivers(ruled: Iterable[_Ruled], entries: Iterable[Mapping[str, Any]]) -> list[WaiverUse]:
    """Returns every used waiver, and the manifest's unused waivers, most used first."""
    waivers = {str(entry.get("id")): _known(WaiverUse, entry) for entry in entries}
    for record, measure in ruled:
        if measure.waiver:
            waiver = waivers.setdefault(measure.waiver, WaiverUse(measure.waiver, metric=measure.metric, reason=measure.reason))
            waiver.tests += [record] if record not in waiver.tests else []
    return sorted(waivers.values(), key=lambda waiver: (-len(waiver.tests), waiver.id))
