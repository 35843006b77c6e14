"""Replacement: what a later thresholds file changes about a rule or a waiver of an earlier one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from .rules import Rule, Scope, Waiver


@dataclass(frozen=True, slots=True)
class Replacement:
    """That a rule or a waiver of a later file holds in place of the one of the same id before it."""

    before: str
    """The earlier one, as messages call it: ``rule drop of a.yaml:7``."""
    source: str
    """``file:line`` of the later one."""
    changes: tuple[str, ...]
    """What becomes of each part that decides about verdicts; empty where both mean the same."""
    only_tightens: bool
    """Whether nothing changes but a bound, and whatever keeps the later bound keeps the earlier one."""

    @classmethod
    def of_rule(cls, before: Rule, after: Rule) -> Replacement:
        """Returns what a later rule changes."""
        bound, others = tuple(_of_bound(before, after)), tuple(_beside_bound(before, after))
        tightens = before.metric == after.metric and before.bound.holds(after.bound) and not others
        return cls(f"rule {before.id} of {before.source}", after.source, bound + others, tightens)

    @classmethod
    def of_waiver(cls, before: Waiver, after: Waiver) -> Replacement:
        """Returns what a later waiver changes."""
        changes = tuple(_of_waiver(before, after))
        return cls(f"waiver {before.id} of {before.source}", after.source, changes, not changes)

    def __str__(self) -> str:
        return f"{self.before} is replaced by {self.source}: {'; '.join(self.changes) or 'nothing changes'}"


def _of_bound(before: Rule, after: Rule) -> Iterator[str]:
    if before.metric != after.metric:
        yield f"{before.metric} {before.bound.condition} becomes {after.metric} {after.bound.condition} (another metric)"
    elif before.bound != after.bound:
        how = "tighter" if before.bound.holds(after.bound) else "looser" if after.bound.holds(before.bound) else "another range"
        yield f"{before.metric} {before.bound.condition} becomes {after.bound.condition} ({how})"


def _beside_bound(before: Rule, after: Rule) -> Iterator[str]:
    yield from _changed("where", _described(before.where), _described(after.where))
    yield from _changed("unless", _described(before.unless), _described(after.unless))
    for part in fields(before.treatment):
        yield from _changed(part.name, getattr(before.treatment, part.name), getattr(after.treatment, part.name))


def _of_waiver(before: Waiver, after: Waiver) -> Iterator[str]:
    yield from _changed("metric", before.metric, after.metric)
    yield from _changed("where", _described(before.where), _described(after.where))
    yield from _changed("cap", f"{before.cap:g}", f"{after.cap:g}")
    yield from _changed("expires", before.expires.isoformat(), after.expires.isoformat())


def _changed(name: str, before: object, after: object) -> Iterator[str]:
    if before != after:
        yield f"{name}: {before} becomes {after}"


def _described(scope: Scope | None) -> str:
    """Returns a scope as a thresholds file spells it; ``nothing`` without one, ``everything`` where it narrows nothing down."""
    if scope is None:
        return "nothing"
    parts = [f"{part.name}: [{', '.join(globs)}]" for part in fields(scope) if (globs := getattr(scope, part.name))]
    return f"{{{', '.join(parts)}}}" if parts else "everything"
