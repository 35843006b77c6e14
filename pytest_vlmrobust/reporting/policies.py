"""Policies: the applied rules and waivers from records, with details from the manifest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pytest_vlmrobust.core.decision import WORST_FIRST, NotShown, Outcome
from pytest_vlmrobust.core.record import Measure, Record

from .facts import RunFacts, mapping, objects, replacements_in, value_text

_Ruled: TypeAlias = tuple[Record, Measure]
"""A measure that a rule judged, and its test."""


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
            for about in measure.not_shown:
                one = OpenRule(record, measure, about)
                groups.setdefault((record.model, about.rule, one.undecided), []).append(one)
    return sorted((sorted(group, key=_openness) for group in groups.values()), key=lambda group: _openness(group[0]))


def _openness(one: OpenRule) -> tuple[bool, float, str]:
    beyond = one.about.beyond
    return not one.undecided, -beyond if math.isfinite(beyond) else -1.0, one.record.id


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


def applied_policies(records: Iterable[Record], facts: RunFacts) -> list[Applied]:
    """Returns the policy of each model or family of models in the records or the manifest."""
    known = mapping(facts.origins.get("policies"))
    by_model: dict[str, list[Record]] = {name: [] for name in (*known, *facts.policies)}
    for record in records:
        if record.policy_sha256 or any(measure.waiver for measure in record.measures):
            by_model.setdefault(record.model, []).append(record)
    return [_applied(model, own, facts, mapping(known.get(model))) for model, own in by_model.items()]


def _applied(model: str, records: Sequence[Record], facts: RunFacts, entry: Mapping[str, Any]) -> Applied:
    hashes = dict.fromkeys(record.policy_sha256 for record in records)
    files = [(value_text(file.get("name")), value_text(file.get("sha256"))) for file in objects(entry.get("files"))]
    ruled = [(record, measure) for record in records for measure in record.measures if measure.rule]
    return Applied(
        model,
        ", ".join(hashes) or value_text(entry.get("sha256")),
        files or [(facts.policies[model], "")] if model in facts.policies or files else [],
        _rules(ruled, open_rules(records), objects(entry.get("rules"))),
        _waivers(ruled, objects(entry.get("waivers"))),
        [
            f"{part} {key}: {value_text(value)}"
            for part in ("coverage", "budgets")
            for key, value in mapping(entry.get(part)).items()
        ],
        replacements_in(entry),
    )


def _rules(
    ruled: Iterable[_Ruled], open_groups: Iterable[Sequence[OpenRule]], entries: Iterable[Mapping[str, Any]]
) -> list[RuleUse]:
    """Returns every rule with verdicts, and the manifest's rules without any, worst first."""
    rules = {str(entry.get("id")): _known_rule(entry) for entry in entries}
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


def _known_rule(entry: Mapping[str, Any]) -> RuleUse:
    names = ("metric", "bound", "source", "reason", "evidence")
    metric, bound, source, reason, evidence = (str(entry.get(name) or "") for name in names)
    where = _scope(entry)
    return RuleUse(str(entry.get("id")), metric, bound, source, where=where, reason=reason, evidence=evidence)


def _scope(entry: Mapping[str, Any]) -> str:
    where = "; ".join(f"{name} {value_text(globs)}" for name, globs in mapping(entry.get("where")).items())
    unless = "; ".join(f"{name} {value_text(globs)}" for name, globs in mapping(entry.get("unless")).items())
    return f"{where}{' ' if where and unless else ''}{f'unless {unless}' if unless else ''}"


def _waivers(ruled: Iterable[_Ruled], entries: Iterable[Mapping[str, Any]]) -> list[WaiverUse]:
    """Returns every used waiver, and the manifest's unused waivers, most used first."""
    waivers = {str(entry.get("id")): _known_waiver(entry) for entry in entries}
    for record, measure in ruled:
        if measure.waiver:
            waiver = waivers.setdefault(measure.waiver, WaiverUse(measure.waiver, metric=measure.metric, reason=measure.reason))
            waiver.tests += [record] if record not in waiver.tests else []
    return sorted(waivers.values(), key=lambda waiver: (-len(waiver.tests), waiver.id))


def _known_waiver(entry: Mapping[str, Any]) -> WaiverUse:
    names = ("owner", "expires", "ticket", "metric", "cap", "reason")
    owner, expires, ticket, metric, cap, reason = ("" if entry.get(name) is None else str(entry[name]) for name in names)
    return WaiverUse(str(entry.get("id")), owner, expires, ticket, metric, _scope(entry), cap, reason)
