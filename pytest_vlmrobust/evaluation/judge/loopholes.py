"""Loopholes: parts of a policy that allow GO whatever a model answers. A gate refuses these and warns about doubtful rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import PolicyError
from pytest_vlmrobust.core.words import mixed_scripts, percent
from pytest_vlmrobust.evaluation.run.plan import GRIDS, PATCHES
from pytest_vlmrobust.perturbations.catalog import OFFERED_GRIDS
from pytest_vlmrobust.policies import Bound, Budgets, JudgedBy, MetricFacts, Policy, Rule, Tier, Waiver
from pytest_vlmrobust.policies.budgets import BUDGET_KEYS, BUILT_IN
from pytest_vlmrobust.policies.rules import FRACTION

from .measurements import metric_keys, quantities
from .scopes import ANY, idle_cap, meets

LONG = timedelta(days=5 * 365 + 1)
"""A waiver that holds for longer is no dated exception any more."""

_HARDLY = 0.01
"""A lower end below it was probably meant to be a hundred times as high: ``0.4%`` for ``0.4``."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A probable mistake: its place (``file:line``), what it is, and what to do."""

    source: str
    text: str
    refused: bool = False
    """Whether the policy should not be applied: a rule that claims to block a release blocks nothing."""
    noted: bool = False
    """Whether it needs no change, because other models could break the rule."""

    def __str__(self) -> str:
        return f"{self.source}: {self.text}"


def loopholes(policy: Policy, *, today: date, at_hand: metrics.Circumstances | None = None) -> list[Finding]:
    """Returns bounds that cannot be broken, waivers that cover everything or never expire, and budgets without effect."""
    findings = [finding for rule in policy.rules for finding in _bounds_nothing(rule, at_hand or metrics.Circumstances())]
    findings += _idle_budgets(policy.budgets)
    holding = [waiver for waiver in policy.waivers if not waiver.is_expired(today)]
    return findings + [finding for waiver in holding for finding in _too_generous(waiver, today)]


def warnings(policies: Iterable[Policy], today: date) -> list[str]:
    """Returns the loopholes that a gate warns of: it refuses the others."""
    findings = (finding for policy in policies for finding in loopholes(policy, today=today))
    return list(dict.fromkeys(str(finding) for finding in findings if not finding.refused))


def refuse_loopholes(policies: Iterable[Policy], today: date) -> None:
    """Looks whether each rule that blocks can fail, and each waiver can cover a breach, as ``vlmrobust check`` does."""
    policies = list(policies)
    refused = [str(finding) for policy in policies for finding in loopholes(policy, today=today) if finding.refused]
    for policy in policies:
        idle = {waiver: idle_cap(waiver, policy.rules) for waiver in policy.waivers}
        refused += [f"{waiver.source}: {sentence}" for waiver, sentence in idle.items() if sentence]
    if refused:
        raise PolicyError("\n".join(dict.fromkeys(refused)))


def _bounds_nothing(rule: Rule, at_hand: metrics.Circumstances) -> Iterator[Finding]:
    """Yields findings for a rule that always holds, or that can hardly be shown to hold."""
    low, high = _facts(rule.metric).bounds
    label = f"rule {rule.id} ({rule.metric} {rule.bound.condition})"
    blocks = rule.treatment.tier is Tier.BLOCK
    if rule.bound.holds(Bound(low, high)):
        text = f"{label} can never fail: no value of {rule.metric} lies beyond. Tighten it, or remove it"
        yield Finding(rule.source, text, refused=blocks)
    elif unbreakable := _unbreakable(rule, at_hand._replace(clean=None)):
        text = f"{label} can never fail {unbreakable}. Tighten it, or bound another metric"
        yield Finding(rule.source, text, refused=blocks)
    elif blocks and (unbreakable := _unbreakable(rule, at_hand)):
        yield Finding(rule.source, f"this model cannot break {label} {unbreakable}", noted=True)
    elif rule.bound.unit and 0.0 < rule.bound.low < _HARDLY and _facts(rule.metric).unit == FRACTION:
        meant = f"{rule.bound.low * 10_000:g}"
        text = f"{label} asks for less than 1 {rule.bound.unit}, which hardly any model misses"
        yield Finding(rule.source, f"{text}. Write {meant}{rule.bound.unit} if {meant} {rule.bound.unit} are meant")
    elif rule.treatment.judge is JudgedBy.INTERVAL and (rule.bound.high <= low or rule.bound.low >= high):
        text = f"{label} can hardly ever pass: it allows only the extreme value of {rule.metric}, and judges the interval"
        yield Finding(rule.source, f"{text}, which is wider. Loosen it, or judge: point")


def _unbreakable(rule: Rule, at_hand: metrics.Circumstances) -> str:
    """Returns the circumstances in which no outcome could break a rule; an empty string if some outcome could."""
    record = metrics.get(rule.metric) if rule.metric in metrics.names() else None
    if record is None or record.reach is None:
        return ""
    for grid in _grids(rule) if metrics.Needs.PATCHES in record.needs else [None]:
        about = at_hand._replace(attempts=grid and grid * grid)
        low, high = record.reaches(about)
        if rule.bound.holds(Bound(low, high)):
            return f"{_circumstances_text(about, grid)}: no outcome gives a value outside {low:.3f} to {high:.3f}"
    return ""


def _grids(rule: Rule) -> list[int | None]:
    """Returns the grids that a rule applies to: the default grids of a run, and those named in the rule."""
    named = [n for n in OFFERED_GRIDS if f"{PATCHES}:{n}" in rule.where.setting]
    return [n for n in dict.fromkeys((*GRIDS, *named)) if not rule.where.setting or _meets_grid(rule, n)]


def _meets_grid(rule: Rule, n: int) -> bool:
    cell = Cell(ANY, ANY, Setting.parse(f"{PATCHES}:{n}"))
    return any(meets(rule.where, rule.unless, test) for test in metric_keys(cell, attempts=True))


def _circumstances_text(about: metrics.Circumstances, grid: int | None) -> str:
    parts = [
        f"at {PATCHES}:{grid}" if grid else "",
        ""
        if about.options is None or not grid
        else "for open questions"
        if math.isinf(about.options)
        else f"among {about.options:g} options",
        "" if about.clean is None else f"at a clean accuracy of {about.clean:g}",
    ]
    return " ".join(filter(None, parts)) or "at all"


def _facts(metric: str) -> MetricFacts:
    return quantities()[metric].policy_facts if metric in quantities() else MetricFacts()


def _idle_budgets(budgets: Budgets) -> Iterator[Finding]:
    """Yields the budgets that allow any loss or any unreadable answer."""
    for name in BUDGET_KEYS:
        share = getattr(budgets, name)
        if share >= 1.0:
            text = f"budget {name} of {percent(share, 0)} can never be broken: no rate is above it. Lower it"
            yield Finding(budgets.sources.get(name, BUILT_IN), text)


def _covers_everything(waiver: Waiver) -> bool:
    facts = _facts(waiver.metric)
    low, high = facts.bounds
    return (facts.better != "higher" and waiver.cap >= high) or (facts.better != "lower" and waiver.cap <= low)


def _too_generous(waiver: Waiver, today: date) -> Iterator[Finding]:
    """Yields findings for a waiver that practically never expires, or covers every value."""
    named = f"waiver {waiver.id} of {waiver.owner}"
    if waiver.expires - today > LONG:
        text = f"{named} expires on {waiver.expires}, in {waiver.expires.year - today.year} years, which is as good as never. "
        yield Finding(waiver.source, f"{text}Give it a date by which somebody reviews it")
    if letter := mixed_scripts(waiver.owner):
        yield Finding(
            waiver.source, f"{named}: its owner mixes letters of several scripts ({letter}), and may look like another one"
        )
    if _covers_everything(waiver):
        text = f"{named} covers every breach: {waiver.metric} is never worse than its cap of {waiver.written_cap}. "
        yield Finding(waiver.source, f"{text}Lower it to what is known and accepted")
