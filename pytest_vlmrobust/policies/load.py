"""Thresholds files to Policy: the files in order, and what a later one overrides."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from pytest_vlmrobust.core.document import Entry, parse_document, read_bytes
from pytest_vlmrobust.core.errors import PolicyError

from .budgets import Budgets, Coverage
from .policy import Policy, PolicyFile
from .replacement import Replacement
from .rules import Rule, Scope, Treatment, Waiver
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

    A rule or waiver replaces the earlier one with the same id as a whole; ``budgets`` and ``coverage`` are about the run as a
    whole, and override key by key. The policy says what either changed. The ``defaults`` of a file are those of its own rules and
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
    contents = [_bytes(path, name) for path, name in zip(paths, names, strict=True)]
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
    budgets, coverages = _read_budgets(tops), _read_coverage(tops)
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
    replaced += [one for before, after in pairwise(budgets) for one in Replacement.of_budgets(before, after)]
    replaced += [one for before, after in pairwise(coverages) for one in Replacement.of_coverage(before, after)]
    if not rules:
        raise PolicyError(f"{', '.join(names) or 'no thresholds file'}: no rule at all, so nothing would be gated. Add rules:")
    files = tuple(PolicyFile(name, hashlib.sha256(content).hexdigest()) for name, content in zip(names, contents, strict=True))
    return Policy(
        tuple(rules.values()),
        tuple(waivers.values()),
        budgets[-1],
        files,
        coverage=coverages[-1],
        contents=tuple(contents),
        replaced=tuple(replaced),
    )


def _shown(path: Path, root: Path | None) -> str:
    return (path.relative_to(root) if root is not None and path.is_relative_to(root) else path).as_posix()


def _bytes(path: Path, name: str) -> bytes:
    return read_bytes(path, what="thresholds file", error=PolicyError, file=name)


def _read_top(content: bytes, name: str) -> dict[str, Entry]:
    document = parse_document(content, name, error=PolicyError, expected="'version: 1' and a list 'rules:'")
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
        top["defaults"].fail(
            "are those of the rules of their own file, and it has none: they would change nothing. Write them in the file whose "
            "rules are meant, or repeat here the rules to be treated otherwise"
        )
    return read_treatment(given, Treatment())


def _read_budgets(tops: Iterable[Mapping[str, Entry]]) -> list[Budgets]:
    """Returns the budgets that hold with the first file, with the first two, and so on."""
    return [
        Budgets(**{key: read_share(entry) for key, entry in given.items()}, sources=_sources(given))
        for given in _so_far(tops, "budgets", BUDGET_KEYS)
    ]


def _read_coverage(tops: Iterable[Mapping[str, Entry]]) -> list[Coverage]:
    """Returns the coverage that is asked for with the first file, with the first two, and so on."""
    return [Coverage(**read_coverage(given), sources=_sources(given)) for given in _so_far(tops, "coverage", COVERAGE_KEYS)]


def _so_far(tops: Iterable[Mapping[str, Entry]], name: str, keys: Sequence[str]) -> Iterator[dict[str, Entry]]:
    """Yields what each file and those before it say under a name, of which later ones override earlier ones key by key."""
    given: dict[str, Entry] = {}
    for top in tops:
        given = {**given, **(top[name].mapping(keys) if name in top else {})}
        yield given


def _sources(given: Mapping[str, Entry]) -> Mapping[str, str]:
    return MappingProxyType({key: entry.where for key, entry in given.items()})


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


# Slips: names that are meant to be another one and are written a little otherwise.


_TOKEN = re.compile(r"[a-z]+|[0-9]+|[^a-z0-9]+")
_SHORTEST = 2
"""A word of one letter is no slip of another one: ``a`` and ``ab`` are two names."""


@dataclass(frozen=True, slots=True)
class Slip:
    """A glob of a scope that is none of the names there are, and nearly one of them."""

    field: str
    glob: str
    name: str


def slips(scope: Scope, names: Mapping[str, Collection[str]]) -> list[Slip]:
    """Returns the globs that match no name and are a slip of one which no other glob of their field matches.

    ``names`` says for fields of scopes, such as ``dataset``, which names there are; others are not looked at.
    """
    found = []
    for field, known in names.items():
        unmatched = [name for name in known if not scope.admits(field, name)]
        for glob in getattr(scope, field):
            matched = any(Scope(**{field: (glob,)}).admits(field, name) for name in known)
            if not matched and (name := meant(glob, unmatched)):
                found.append(Slip(field, glob, name))
    return found


def meant(glob: str, names: Iterable[str]) -> str:
    """Returns the first of ``names`` that ``glob`` is a slip of; an empty string where there is none.

    A slip is another case, another separator, and in one word a letter too few or too many, or two neighbours swapped. Another
    letter in the place of one is none, and neither is another number: that is how siblings differ, such as the English and the
    Chinese half of a benchmark, or two sizes of a model. Of globs, only those whose one wildcard is a ``*`` at their end are
    looked at.

    >>> meant("qwn", ["tiny", "qwen"]), meant("MMStar*", ["mmstar_val"]), meant("bench_cn", ["bench_en"])
    ('qwen', 'mmstar_val', '')
    """
    stem, open_end = glob.removesuffix("*"), glob.endswith("*")
    if any(sign in stem for sign in "*?["):
        return ""
    return next((name for name in names if any(_is_slip(stem, part) for part in _beginnings(stem, name, open_end))), "")


def _beginnings(stem: str, name: str, open_end: bool) -> list[str]:
    """Returns what a stem may stand for: the name, or before a ``*`` each beginning of it of about that length."""
    if not open_end:
        return [name]
    parts = (name[:length] for length in range(max(0, len(stem) - 1), len(stem) + 2))
    return [part for part in parts if part and stem and part[-1].casefold() == stem[-1].casefold()]


def _is_slip(written: str, name: str) -> bool:
    if written == name:
        return False
    one, other = _tokens(written), _tokens(name)
    if one == other or "".join(one) == "".join(other):
        return True
    differing = [(a, b) for a, b in zip(one, other, strict=False) if a != b]
    return len(one) == len(other) and len(differing) == 1 and _is_one_edit(*differing[0])


def _tokens(name: str) -> list[str]:
    """Returns the words and numbers of a name."""
    return [token for token in _TOKEN.findall(name.casefold()) if token.isalnum()]


def _is_one_edit(one: str, other: str) -> bool:
    """Whether two words differ by a letter that one has and the other lacks, or by two neighbours that are swapped."""
    short, long = sorted((one, other), key=len)
    if not (one.isalpha() and other.isalpha()) or len(short) < _SHORTEST:
        return False
    if len(long) == len(short) + 1:
        return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
    swaps = (one[:place] + one[place + 1] + one[place] + one[place + 2 :] for place in range(len(one) - 1))
    return other in swaps
