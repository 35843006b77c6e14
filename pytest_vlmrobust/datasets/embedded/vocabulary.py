"""Words and what is easily read for them: a vocabulary in categories, and strings that differ by one letter."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


SHIPPED = Path(__file__).with_name("assets") / "vocabulary.yaml"
LENGTHS = (2, 10)
"""Letters of the shortest and of the longest word."""
ENOUGH = 3
"""Real neighbours that a task asks for at most."""
_LONGER = 0.09
"""How often made-up neighbours are longer than the word: as often as one of them is shorter, so that length tells nothing."""
_EDGE = " "


@cache
def vocabulary() -> Mapping[str, tuple[str, ...]]:
    """Returns the categories and their words, lower case, 2 to 10 letters; no word is in two categories."""
    return {category: tuple(words.split()) for category, words in _shipped()["categories"].items()}


@cache
def known() -> frozenset[str]:
    """Returns every word of the vocabulary."""
    return frozenset(word for words in vocabulary().values() for word in words)


@dataclass(frozen=True, slots=True)
class Variants:
    """What a word becomes when one place of it changes: all these strings, and the word, are one edit from each other."""

    inserted: bool
    """Whether the others have one letter more; otherwise they have another letter there, or, one of them, none."""
    real: tuple[str, ...]
    """Words of the vocabulary."""
    pronounceable: tuple[str, ...]
    """No words, but each three letters in a row, and each two at either end, also occur in words of the vocabulary."""
    other: tuple[str, ...]
    """What is left."""

    def shuffled(self, rng: np.random.Generator) -> list[str]:
        """Returns all strings: real words first, then the pronounceable, each part in random order."""
        return [part[i] for part in (self.real, self.pronounceable, self.other) for i in rng.permutation(len(part))]


@cache
def variants(word: str) -> tuple[Variants, ...]:
    """Returns what each place of a word, and each gap between letters, can become; strings that might offend are left out."""
    return tuple(_variants(word, members) for members in _members(word))


@cache
def has_real_family(word: str) -> bool:
    """Returns whether ``ENOUGH`` real words differ from a word, and from each other, by one edit."""
    return any(len(members & known()) >= ENOUGH for members in _members(word))


def lookalikes(word: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Returns all neighbours of a word at one edit: a substitution, an insertion or a deletion.

    Those of one family come first, because neighbours that are two edits from each other, but one from the word, would give away
    which one it is. It is a random one of those with the most real words, up to ``ENOUGH``, then with the most pronounceable
    strings; in it, real words come first.
    """
    found, longer = variants(word), rng.random() < _LONGER
    mixed = [found[i] for i in rng.permutation(len(found))]
    order = sorted(mixed, key=lambda family: _preference(family, longer=longer and not has_real_family(word)))
    return tuple(dict.fromkeys(other for family in order for other in family.shuffled(rng)))


def _preference(family: Variants, *, longer: bool) -> tuple[bool, int, int]:
    """Returns what is least for the family that serves best; one of real words serves at any length."""
    real, usable = len(family.real), len(family.real) + len(family.pronounceable)
    return real < ENOUGH and family.inserted != longer, -min(real, ENOUGH), -min(usable, ENOUGH)


def _members(word: str) -> list[frozenset[str]]:
    """Returns all strings that change one and the same place, for each place; for gaps, those that fill it."""
    places = [(word[:at], word[at + 1 :]) for at in range(len(word))]
    gaps = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return [_fillings(head, tail) - {word} for head, tail in places + gaps]


def _fillings(head: str, tail: str) -> frozenset[str]:
    shortest, longest = LENGTHS
    return frozenset(text for letter in ("", *ascii_lowercase) if shortest <= len(text := head + letter + tail) <= longest)


def _variants(word: str, members: frozenset[str]) -> Variants:
    real = members & known()
    made_up = {member for member in members - real if not _avoided().search(member)}
    well_formed = {member for member in made_up if _well_formed(member)}
    inserted = all(len(member) > len(word) for member in members)
    return Variants(inserted, tuple(sorted(real)), tuple(sorted(well_formed)), tuple(sorted(made_up - well_formed)))


def _well_formed(text: str) -> bool:
    return _triples(text) <= _usual_triples()


def _triples(text: str) -> set[str]:
    framed = _EDGE + text + _EDGE
    return {framed[at : at + 3] for at in range(len(framed) - 2)}


@cache
def _usual_triples(at_least: int = 2) -> frozenset[str]:
    counts = Counter(triple for word in known() for triple in _triples(word))
    return frozenset(triple for triple, count in counts.items() if count >= at_least)


@cache
def _avoided() -> re.Pattern[str]:
    return re.compile("|".join(codecs.decode(_shipped()["avoided_rot13"], "rot13").split()))


@cache
def _shipped() -> Mapping[str, Any]:
    import yaml

    content: Mapping[str, Any] = yaml.load(SHIPPED.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content
