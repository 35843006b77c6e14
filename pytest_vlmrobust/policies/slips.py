"""Slips: names that are meant to be another one and are written a little otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .rules import Scope

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
