"""Replacement: what a later thresholds file changes about what an earlier one says, or about what holds where none says it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from .budgets import BUILT_IN, Budgets, Coverage, Extent
from .rules import Rule, Scope, Waiver


@dataclass(frozen=True, slots=True)
class Replacement:
    """That what a later file says holds in place of what was said before it: a rule or a waiver of the same id, or a key."""

    before: str
    """The earlier one, as messages call it: ``rule drop of a.yaml:7``, ``budget max_error_rate (built-in default)``."""
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

    @classmethod
    def of_budgets(cls, before: Budgets, after: Budgets) -> list[Replacement]:
        """Returns what the budgets of a later file change, ``after`` being what holds with it and ``before`` what held."""
        found = []
        for key in _said_anew(before.sources, after.sources):
            old, new = getattr(before, key), getattr(after, key)
            change = _becomes(_percent(old), _percent(new), tighter=new <= old, looser=new >= old)
            found.append(cls(f"budget {key} {_origin(before.sources, key)}", after.sources[key], change, new <= old))
        return found

    @classmethod
    def of_coverage(cls, before: Coverage, after: Coverage) -> list[Replacement]:
        """Returns what the coverage of a later file changes, ``after`` being what holds with it and ``before`` what held."""
        found = []
        for key in _said_anew(before.sources, after.sources):
            (old, new), tighter = (_asked(one, key) for one in (before, after)), _asks_as_much(after, before, key)
            change = _becomes(old, new, tighter=tighter, looser=_asks_as_much(before, after, key))
            found.append(cls(f"coverage {key} {_origin(before.sources, key)}", after.sources[key], change, tighter))
        return found

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


def _said_anew(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Returns the keys that a later file says; both map a key to where it was said."""
    return [key for key, source in after.items() if before.get(key) != source]


def _origin(sources: Mapping[str, str], key: str) -> str:
    return f"of {sources[key]}" if key in sources else f"({BUILT_IN})"


def _becomes(before: str, after: str, *, tighter: bool, looser: bool) -> tuple[str, ...]:
    if before == after:
        return ()
    how = "tighter" if tighter else "looser" if looser else "neither tighter nor looser"
    return (f"{before} becomes {after} ({how})",)


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _asked(coverage: Coverage, key: str) -> str:
    """Returns what a coverage asks for as a thresholds file spells it."""
    if key == "suites":
        return f"[{', '.join(coverage.suites)}]"
    if key == "samples":
        share = {1.0: str(Extent.WHOLE), 0.0: str(Extent.PARTIAL)}.get(coverage.share, _percent(coverage.share))
        return str(coverage.samples) if coverage.samples else share
    return str(getattr(coverage, key))


def _asks_as_much(one: Coverage, other: Coverage, key: str) -> bool:
    """Whether whatever has all that ``one`` asks for has what ``other`` does."""
    if key == "suites":
        return set(one.suites) >= set(other.suites)
    if key == "samples":
        return one.share >= 1.0 or (one.share >= other.share and one.samples >= other.samples)
    return getattr(one, key) in {Extent.WHOLE, getattr(other, key)}
