"""`words`: multiple-choice and yes/no questions about pictures of words."""

from __future__ import annotations

import codecs
import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.fingerprint import fingerprint, rng_for
from pytest_vlmrobust.core.sample import Sample

from .lettering import INKS, WORDS, Page, draw_page, pages
from .questions import LETTERS
from .scenes import CANVAS
from .shapes import EVALUATION_SEED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Questions about pictures of words; distractors are the other word of the picture, then look-alikes.


@dataclass(frozen=True, slots=True)
class WordQuestion:
    """A question about a page with its answer; ``options`` is empty for yes/no questions."""

    kind: str
    category: str
    text: str
    answer: str
    options: tuple[str, ...]
    about_color: bool = False
    about_place: bool = False


def _shuffled(rng: np.random.Generator, options: list[str]) -> tuple[str, ...]:
    return tuple(options[i] for i in rng.permutation(len(options)))


@cache
def look_alikes(word: str) -> tuple[str, ...]:
    """Returns the other words of the vocabulary, most similar spelling first."""
    return tuple(sorted((w for w in WORDS if w != word), key=lambda w: (-difflib.SequenceMatcher(None, word, w).ratio(), w)))


def _read(rng: np.random.Generator, page: Page) -> WordQuestion:
    asked = page.letterings[int(rng.integers(len(page.letterings)))]
    others = [w.word for w in page.letterings if w is not asked]
    near = [w for w in look_alikes(asked.word)[:6] if w not in others]
    near = [near[i] for i in rng.permutation(len(near))]
    options = [asked.word, *others, *near][: len(LETTERS)]
    text = f"Which word is at the {asked.place}?" if others else "Which word is in the picture?"
    return WordQuestion("read", "read", text, asked.word, _shuffled(rng, options), about_place=bool(others))


def _ink(rng: np.random.Generator, page: Page) -> WordQuestion:
    asked = page.letterings[int(rng.integers(len(page.letterings)))]
    by_word = rng.random() < 0.5
    text = f"What color is the word {asked.word}?" if by_word else f"What color is the word at the {asked.place}?"
    present = [w.color for w in page.letterings if w is not asked]
    absent = [color for color in INKS if color != asked.color and color not in present]
    options = [asked.color, *present, *(absent[i] for i in rng.permutation(len(absent)))][: len(LETTERS)]
    return WordQuestion("ink", "ink", text, asked.color, _shuffled(rng, options), about_color=True, about_place=not by_word)


def _spelled(rng: np.random.Generator, page: Page) -> WordQuestion:
    present = [w.word for w in page.letterings]
    there = bool(rng.random() < 0.5)
    source = present[int(rng.integers(len(present)))]
    near = [w for w in look_alikes(source) if w not in present][:4]
    word = source if there else near[int(rng.integers(len(near)))]
    return WordQuestion("spelled", "yes_no", f"Does the picture show the word {word}?", "yes" if there else "no", ())


WORD_KINDS: dict[str, Callable[[np.random.Generator, Page], WordQuestion]] = {"read": _read, "ink": _ink, "spelled": _spelled}
"""Kind of question to the function that asks it."""


VERSION = 1
"""Changes whenever a pixel or a question changes."""


@dataclass(frozen=True, slots=True)
class PageImage:
    """The picture of one page, drawn when loaded."""

    page: Page

    def load(self) -> NDArray[np.uint8]:
        """Draws the page: RGB, uint8, shape (160, 160, 3)."""
        return draw_page(self.page)

    def identity(self) -> str:
        """Returns what the pixels are a function of; the renderer is part of it, as glyphs differ between its versions."""
        from PIL import __version__

        return fingerprint(["page", VERSION, __version__, repr(self.page)])


@dataclass(frozen=True)
class Words:
    """Questions in equal numbers per kind, all kinds about each page, from the evaluation split."""

    name: str = "words"
    per_kind: int = 24
    kinds: tuple[str, ...] = tuple(WORD_KINDS)
    seed: int = EVALUATION_SEED

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return CANVAS

    @property
    def digest(self) -> str:
        """SHA-256 of what determines the samples."""
        return fingerprint(["words", VERSION, self.per_kind, list(self.kinds), self.seed])

    def samples(self) -> Sequence[Sample]:
        """Returns the questions in the order of their pages."""
        return self._samples

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        rng = rng_for(self.seed, "words")
        source = pages(rng, evaluation=True)
        asked = [(number, page) for number, page in zip(range(self.per_kind), source, strict=False)]
        return tuple(_sample(number, page, WORD_KINDS[kind](rng, page)) for number, page in asked for kind in self.kinds)


def _sample(number: int, page: Page, question: WordQuestion) -> Sample:
    options = dict(zip(LETTERS, question.options, strict=False))
    target = next((letter for letter, text in options.items() if text == question.answer), question.answer)
    # a mirrored word is still the same word: only a flip from top to bottom moves it elsewhere
    changed = [*(["colour"] if question.about_color else ()), *(["up_down"] if question.about_place else ())]
    return Sample(
        id=f"words-{number:04d}-{question.kind}",
        images=(PageImage(page),),
        question=question.text,
        target=target,
        task="choice" if options else "yes_no",
        options=options,
        category=question.category,
        group=f"page-{number:04d}",
        changed_by=frozenset(changed),
    )


# Words and what is easily read for them: a vocabulary in categories, and strings that differ by one letter.


SHIPPED = Path(__file__).with_name("vocabulary.yaml")
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
class Family:
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
def families(word: str) -> tuple[Family, ...]:
    """Returns what each place of a word, and each gap between letters, can become; strings that might offend are left out."""
    return tuple(_family(word, members) for members in _members(word))


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
    found, longer = families(word), rng.random() < _LONGER
    mixed = [found[i] for i in rng.permutation(len(found))]
    order = sorted(mixed, key=lambda family: _preference(family, longer=longer and not has_real_family(word)))
    return tuple(dict.fromkeys(other for family in order for other in family.shuffled(rng)))


def _preference(family: Family, *, longer: bool) -> tuple[bool, int, int]:
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


def _family(word: str, members: frozenset[str]) -> Family:
    real = members & known()
    made_up = {member for member in members - real if not _avoided().search(member)}
    well_formed = {member for member in made_up if _well_formed(member)}
    inserted = all(len(member) > len(word) for member in members)
    return Family(inserted, tuple(sorted(real)), tuple(sorted(well_formed)), tuple(sorted(made_up - well_formed)))


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
