"""Thresholds files to Policy: the files in order, and what a later one overrides."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pytest_vlmrobust.core.errors import PolicyError

from .budgets import Budgets
from .coverage import Coverage
from .document import Entry, parse_document, read_bytes
from .policy import Policy, PolicyFile
from .replacement import Replacement
from .rules import Rule, Treatment, Waiver
from .schema import (
    BUDGET_KEYS,
    COVERAGE_KEYS,
    TOP_KEYS,
    TREATMENT_KEYS,
    VERSION,
    MetricFacts,
    Schema,
    read_coverage,
    read_share,
    read_treatment,
)

Identified = TypeVar("Identified", Rule, Waiver)


def load_policy(
    paths: Sequence[Path],
    *,
    known_metrics: Mapping[str, MetricFacts] | Collection[str],
    ambiguous: Mapping[str, Collection[str]] | None = None,
    root: Path | None = None,
) -> Policy:
    """Reads thresholds files, of which later ones override earlier ones.

    A rule or waiver replaces the earlier one with the same id as a whole, and the policy says what that changed; ``budgets`` and
    ``coverage`` are about the run as a whole, and override key by key. The ``defaults`` of a file are those of its own rules and
    of no others. Every file is checked in full, what is overridden too.

    Args:
        paths: One file or more.
        known_metrics: The metrics that rules may name; with their facts, units, directions and scopes are checked as well.
        ambiguous: Short names that mean several metrics, with the full names to choose from.
        root: Files below this directory are cited relative to it.

    Raises:
        PolicyError: a file that cannot be read or honoured, with file, line, what was found and what was expected.
        UnknownName: a metric that is not known, with the nearest one.
    """
    names = [_shown(path, root) for path in paths]
    contents = [read_bytes(path, name) for path, name in zip(paths, names, strict=True)]
    return parse_policy(names, contents, known_metrics=known_metrics, ambiguous=ambiguous)


def parse_policy(
    names: Sequence[str],
    contents: Sequence[bytes],
    *,
    known_metrics: Mapping[str, MetricFacts] | Collection[str],
    ambiguous: Mapping[str, Collection[str]] | None = None,
) -> Policy:
    """Reads the bytes of thresholds files as :func:`load_policy` does; ``names`` are how messages and records cite them.

    Raises:
        PolicyError: a file that cannot be honoured, with file, line, what was found and what was expected.
        UnknownName: a metric that is not known, with the nearest one.
    """
    schema = Schema(known_metrics, ambiguous or {})
    tops = [_read_top(content, name) for content, name in zip(contents, names, strict=True)]
    budgets = _read_budgets(tops)
    rules: dict[str, Rule] = {}
    waivers: dict[str, Waiver] = {}
    replaced: list[Replacement] = []
    for top in tops:
        treatment = _read_defaults(top)
        own_rules = _by_id(schema.rule(entry, treatment) for entry in _listed(top, "rules"))
        own_waivers = _by_id(schema.waiver(entry) for entry in _listed(top, "waivers"))
        replaced += [Replacement.of_rule(rules[name], rule) for name, rule in own_rules.items() if name in rules]
        replaced += [Replacement.of_waiver(waivers[name], waiver) for name, waiver in own_waivers.items() if name in waivers]
        rules |= own_rules
        waivers |= own_waivers
    if not rules:
        raise PolicyError(f"{', '.join(names) or 'no thresholds file'}: no rule at all, so nothing would be gated. Add rules:")
    files = tuple(PolicyFile(name, hashlib.sha256(content).hexdigest()) for name, content in zip(names, contents, strict=True))
    return Policy(
        tuple(rules.values()),
        tuple(waivers.values()),
        budgets,
        files,
        coverage=_read_coverage(tops),
        contents=tuple(contents),
        replaced=tuple(replaced),
    )


def _shown(path: Path, root: Path | None) -> str:
    return (path.relative_to(root) if root is not None and path.is_relative_to(root) else path).as_posix()


def _read_top(content: bytes, name: str) -> dict[str, Entry]:
    document = parse_document(content, name)
    top = document.mapping(TOP_KEYS, required=("version",))
    version = top["version"]
    if version.scalar() != VERSION or isinstance(version.scalar(), bool):
        version.refuse(f"{VERSION}: this release reads version {VERSION} only")
    return top


def _listed(top: Mapping[str, Entry], key: str) -> list[Entry]:
    return top[key].items() if key in top else []


def _read_defaults(top: Mapping[str, Entry]) -> Treatment:
    """Returns how the rules of a file are treated that do not say it themselves."""
    if "defaults" not in top:
        return Treatment()
    given = top["defaults"].mapping(TREATMENT_KEYS)
    if given and not _listed(top, "rules"):
        raise PolicyError(
            f"{top['defaults'].where}: defaults are those of the rules of their own file, and it has none: they would change "
            "nothing. Write them in the file whose rules are meant, or repeat here the rules to be treated otherwise"
        )
    return read_treatment(given, Treatment())


def _read_budgets(tops: Iterable[Mapping[str, Entry]]) -> Budgets:
    given: dict[str, Entry] = {}
    for top in tops:
        if "budgets" in top:
            given |= top["budgets"].mapping(BUDGET_KEYS)
    shares = {key: read_share(entry) for key, entry in given.items()}
    return Budgets(**shares, sources=MappingProxyType({key: entry.where for key, entry in given.items()}))


def _read_coverage(tops: Iterable[Mapping[str, Entry]]) -> Coverage:
    given: dict[str, Entry] = {}
    for top in tops:
        if "coverage" in top:
            given |= top["coverage"].mapping(COVERAGE_KEYS)
    return Coverage(**read_coverage(given), sources=MappingProxyType({key: entry.where for key, entry in given.items()}))


def _by_id(things: Iterable[Identified]) -> dict[str, Identified]:
    found: dict[str, Identified] = {}
    for thing in things:
        if thing.id in found:
            kind = type(thing).__name__.lower()
            raise PolicyError(
                f"{thing.source}: {kind} id {thing.id!r} is taken already by {found[thing.id].source}. Choose another"
            )
        found[thing.id] = thing
    return found
