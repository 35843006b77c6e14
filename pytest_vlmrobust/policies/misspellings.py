"""Misspellings: globs of a scope that misspell an existing name."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from .rules import Scope

_TOKEN = re.compile(r"[a-z]+|[0-9]+|[^a-z0-9]+")
_SHORTEST = 2
"""Letters of a word that may be misspelt: ``a`` and ``ab`` are two names."""


def misspellings(scope: Scope, names: Mapping[str, Collection[str]]) -> list[tuple[str, str, str]]:
    """Returns field, glob and name for each glob that matches no name and misspells a name without another matching glob.

    ``names`` holds the existing names by field, such as ``dataset``; other fields are not checked.
    """
    misspelt = []
    for field, known in names.items():
        unmatched = [name for name in known if not scope.admits(field, name)]
        for glob in getattr(scope, field):
            matched = any(Scope(**{field: (glob,)}).admits(field, name) for name in known)
            if not matched and (name := intended_name(glob, unmatched)):
                misspelt.append((field, glob, name))
    return misspelt


def intended_name(glob: str, names: Iterable[str]) -> str:
    """Returns the first of ``names`` that ``glob`` misspells, or an empty text.

    A misspelling differs in case, in a separator, by a missing or extra letter in one word, or by two swapped neighbouring
    letters. A different letter or number makes another name, such as the English and Chinese halves of a benchmark or two
    sizes of a model. Globs are only checked if their only wildcard is a ``*`` at the end.

    >>> intended_name("qwn", ["tiny", "qwen"]), intended_name("MMStar*", ["mmstar_val"]), intended_name("bench_cn", ["bench_en"])
    ('qwen', 'mmstar_val', '')
    """
    stem, open_end = glob.removesuffix("*"), glob.endswith("*")
    if any(sign in stem for sign in "*?["):
        return ""
    return next((name for name in names if any(_is_misspelling(stem, part) for part in _beginnings(stem, name, open_end))), "")


def _beginnings(stem: str, name: str, open_end: bool) -> list[str]:
    """Returns what a stem may mean: the name, or before a ``*`` each prefix of about that length."""
    if not open_end:
        return [name]
    parts = (name[:length] for length in range(max(0, len(stem) - 1), len(stem) + 2))
    return [part for part in parts if part and stem and part[-1].casefold() == stem[-1].casefold()]


def _is_misspelling(written: str, name: str) -> bool:
    if written == name:
        return False
    written_tokens, name_tokens = _tokens(written), _tokens(name)
    if written_tokens == name_tokens or "".join(written_tokens) == "".join(name_tokens):
        return True
    differing = [(a, b) for a, b in zip(written_tokens, name_tokens, strict=False) if a != b]
    return len(written_tokens) == len(name_tokens) and len(differing) == 1 and _is_one_edit(*differing[0])


def _tokens(name: str) -> list[str]:
    """Returns the words and numbers of a name."""
    return [token for token in _TOKEN.findall(name.casefold()) if token.isalnum()]


def _is_one_edit(word: str, other: str) -> bool:
    """Whether two words differ by one missing letter or two swapped neighbours."""
    short, long = sorted((word, other), key=len)
    if not (word.isalpha() and other.isalpha()) or len(short) < _SHORTEST:
        return False
    if len(long) == len(short) + 1:
        return any(long[:place] + long[place + 1 :] == short for place in range(len(long)))
    swaps = (word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in range(len(word) - 1))
    return other in swaps
