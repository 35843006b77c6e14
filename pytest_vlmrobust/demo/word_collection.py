"""The Observatory's words: a vocabulary, strings easily misread as its words, and printed words with such neighbours."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import islice
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import file_digest, fingerprint, rng_for
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets import Entity

from .shapes import EVALUATION_SEED
from .typography import BUILT_IN, Print, Style, Typeface, box_of, draw_print, print_of, styles, typefaces_in

# The vocabulary in categories, and the neighbours of its words: strings that differ by one letter.


SHIPPED = Path(__file__).with_name("assets") / "vocabulary.yaml"
LENGTHS = (2, 10)
"""Letters of the shortest and of the longest word."""
ENOUGH = 3
"""Maximum number of real neighbours that a task asks for."""
_LONGER = 0.09
"""Share of made-up neighbours longer than the word: equal to the share of shorter ones, so that length reveals nothing."""
_EDGE = " "


@cache
def vocabulary() -> Mapping[str, tuple[str, ...]]:
    """Returns the categories and their words, lower case, 2 to 10 letters; no word is in two categories."""
    return {category: tuple(words.split()) for category, words in _shipped_vocabulary()["categories"].items()}


@cache
def known_words() -> frozenset[str]:
    """Returns all words of the vocabulary."""
    return frozenset(word for words in vocabulary().values() for word in words)


@dataclass(frozen=True, slots=True)
class Variants:
    """Variants of a word at one position: all these strings, and the word, are one edit from each other."""

    inserted: bool
    """Whether the others have an extra letter there; otherwise they have another letter or, in one case, none."""
    real: tuple[str, ...]
    """Words of the vocabulary."""
    pronounceable: tuple[str, ...]
    """Not words, but all their letter triples, and the pairs at either end, also occur in words of the vocabulary."""
    other: tuple[str, ...]
    """The others."""

    def in_random_order(self, rng: np.random.Generator) -> list[str]:
        """Returns all strings: real words first, then the pronounceable, each part in random order."""
        return [part[i] for part in (self.real, self.pronounceable, self.other) for i in rng.permutation(len(part))]


@cache
def variants(word: str) -> tuple[Variants, ...]:
    """Returns the variants of a word at each letter and at each gap between letters, without possibly offensive strings."""
    return tuple(_variants(word, members) for members in _members(word))


@cache
def has_real_family(word: str) -> bool:
    """Returns whether ``ENOUGH`` real words differ from a word, and from each other, by one edit."""
    return any(len(members & known_words()) >= ENOUGH for members in _members(word))


def lookalikes(word: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Returns all neighbours of a word at one edit: a substitution, an insertion or a deletion.

    Those of one family come first, because neighbours two edits from each other, but one from the word, would reveal
    the word. It is a random family among those with the most real words, up to ``ENOUGH``, then with the most pronounceable
    strings; in it, real words come first.
    """
    families, longer = variants(word), rng.random() < _LONGER
    mixed = [families[i] for i in rng.permutation(len(families))]
    order = sorted(mixed, key=lambda family: _preference(family, longer=longer and not has_real_family(word)))
    return tuple(dict.fromkeys(other for family in order for other in family.in_random_order(rng)))


def _preference(family: Variants, *, longer: bool) -> tuple[bool, int, int]:
    """Returns a sort key, smallest for the best family; a family of real words serves at any length."""
    real, usable = len(family.real), len(family.real) + len(family.pronounceable)
    return real < ENOUGH and family.inserted != longer, -min(real, ENOUGH), -min(usable, ENOUGH)


def _members(word: str) -> list[frozenset[str]]:
    """Returns the strings that differ at one position, for each position; for gaps, those that fill it."""
    places = [(word[:at], word[at + 1 :]) for at in range(len(word))]
    gaps = [(word[:at], word[at:]) for at in range(len(word) + 1)]
    return [_fillings(head, tail) - {word} for head, tail in places + gaps]


def _fillings(head: str, tail: str) -> frozenset[str]:
    shortest, longest = LENGTHS
    return frozenset(text for letter in ("", *ascii_lowercase) if shortest <= len(text := head + letter + tail) <= longest)


def _variants(word: str, members: frozenset[str]) -> Variants:
    real = members & known_words()
    made_up = {member for member in members - real if not _avoided_pattern().search(member)}
    well_formed = {member for member in made_up if _triples(member) <= _usual_triples()}
    inserted = all(len(member) > len(word) for member in members)
    return Variants(inserted, tuple(sorted(real)), tuple(sorted(well_formed)), tuple(sorted(made_up - well_formed)))


def _triples(text: str) -> set[str]:
    framed = _EDGE + text + _EDGE
    return {framed[at : at + 3] for at in range(len(framed) - 2)}


@cache
def _usual_triples(at_least: int = 2) -> frozenset[str]:
    counts = Counter(triple for word in known_words() for triple in _triples(word))
    return frozenset(triple for triple, count in counts.items() if count >= at_least)


@cache
def _avoided_pattern() -> re.Pattern[str]:
    return re.compile("|".join(codecs.decode(_shipped_vocabulary()["avoided_rot13"], "rot13").split()))


@cache
def _shipped_vocabulary() -> Mapping[str, Any]:
    import yaml

    content: Mapping[str, Any] = yaml.load(SHIPPED.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content


# The collection: printed words with exact boxes, and neighbours at one edit printed in the same style.


VERSION = 2
"""Changes whenever a pixel, a word or a neighbour changes."""
SHOWN = 3
"""Members of a family shown together in matching and in a grid of four: each is the target equally often."""
SMALLEST = 96
"""Smallest side, in pixels, of a picture in which a word of ten letters is readable."""


@dataclass(frozen=True)
class PrintImage:
    """The picture of one word, drawn when loaded."""

    what: Print

    def load(self) -> NDArray[np.uint8]:
        """Draws the word: RGB, uint8, shape (side, side, 3)."""
        return draw_print(self.what)

    def identity(self) -> str:
        """Returns everything that determines the pixels, including the versions of the libraries that rasterise the letters."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        import cv2
        import PIL

        return fingerprint(["print", VERSION, PIL.__version__, cv2.__version__, repr(self.what)])


@dataclass(frozen=True)
class WordCollection:
    """Words of the evaluation split, evenly spread over categories, typefaces, casings, positions and rotations.

    ``side`` of the images is in pixels; ``count`` of the words are all different. ``fonts`` is a folder of ``.ttf`` and ``.otf``
    files used in addition to the package's typefaces.
    """

    name: str = "words"
    side: int = 1024
    count: int = 100
    seed: int = EVALUATION_SEED
    fonts: Path | None = None
    domain: str = field(default="word", init=False)
    hinted: str = field(default="corner", init=False)

    def __post_init__(self) -> None:
        for what, value, least in (("side", self.side, SMALLEST), ("count", self.count, 1)):
            if value < least:
                raise DatasetError(f"collection {self.name}: {what} is {value}. Expected: at least {least}.")

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the pictures."""
        faces = [repr(face) for face in self._typefaces]
        return fingerprint(["word collection", VERSION, file_digest(SHIPPED), self.side, self.count, self.seed, faces])

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return self.side

    def entities(self) -> Sequence[Entity]:
        """Returns the words, in the order of their numbers."""
        return self._entities

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        """Returns other words at one edit in the style and size of this one: those of its family first.

        The first neighbours do not depend on ``count``. Their prints may be of either split. The word and the
        first two are the same set whichever of them is the target: being a word of the vocabulary does not give it away.
        """
        what, family = self._prints.get(entity.id), self._families.get(entity.id)
        if what is None or family is None:
            raise DatasetError(f"collection {self.name}: no word {entity.id!r}. Ask for neighbours of its own words.")
        alike = lookalikes(what.word, rng_for(self.seed, "word neighbours", entity.id))
        others = list(dict.fromkeys([*(word for word in family.others if word in alike), *alike]))
        if len(others) < count:
            problem = f"{entity.id} has {len(others)} neighbours at one edit, {count} are wanted"
            raise DatasetError(f"collection {self.name}: {problem}. Ask for fewer.")
        return tuple(PrintImage(what.with_word(other)) for other in others[:count])

    @cached_property
    def _typefaces(self) -> tuple[Typeface, ...]:
        return BUILT_IN + (typefaces_in(self.fonts) if self.fonts is not None else ())

    @cached_property
    def _chosen(self) -> dict[str, tuple[Family, Style]]:
        rng = rng_for(self.seed, "word collection")
        chosen = _choose(rng, styles(rng, self._typefaces, self.count))
        return {f"word-{number:04d}": choice for number, choice in enumerate(chosen)}

    @cached_property
    def _families(self) -> dict[str, Family]:
        return {name: family for name, (family, _) in self._chosen.items()}

    @cached_property
    def _prints(self) -> dict[str, Print]:
        return {name: print_of(family.meant, style, self.side) for name, (family, style) in self._chosen.items()}

    @cached_property
    def _entities(self) -> tuple[Entity, ...]:
        categories = {word: category for category, words in vocabulary().items() for word in words}
        return tuple(_entity(name, what, categories[self._families[name].root]) for name, what in self._prints.items())


@dataclass(frozen=True, slots=True)
class Family:
    """Words easily mistaken for one another, and which of them is the target."""

    root: str
    """The word of the vocabulary from which the others are made."""
    meant: str
    others: tuple[str, ...]

    @classmethod
    def of(cls, root: str, rng: np.random.Generator) -> Family:
        """Returns the family of a word; the target is any of the first ``SHOWN``, all equally likely."""
        members = (root, *lookalikes(root, rng))
        meant = members[int(rng.integers(min(SHOWN, len(members))))]
        return cls(root, meant, tuple(member for member in members if member != meant))


def _entity(name: str, what: Print, category: str) -> Entity:
    box = box_of(what)
    return Entity(name, what.word, PrintImage(what), (what.side, what.side), {"word": box}, category=category)


def _choose(rng: np.random.Generator, wanted: Sequence[Style]) -> Iterator[tuple[Family, Style]]:
    """Yields a family for each style, from each category in turn, with a target from the evaluation split.

    Every other root has a family of real words, if there is one. No word is the target twice.
    """
    left = {category: [words[i] for i in rng.permutation(len(words))] for category, words in vocabulary().items()}
    order = [tuple(left)[i] for i in rng.permutation(len(left))]
    meant: set[str] = set()
    for number, style in enumerate(wanted):
        turn = number % len(order)
        pools = [left[category] for category in order[turn:] + order[:turn]]
        family = _next_family(rng, pools, style, meant, confusable=number % 2 == 0)
        meant.add(family.meant)
        yield family, style


def _next_family(
    rng: np.random.Generator, pools: Sequence[list[str]], style: Style, taken: set[str], *, confusable: bool
) -> Family:
    """Removes a root from the first pool that has one with a family for the style, and returns the family."""
    for pool in pools:
        preferred = [word for word in pool if has_real_family(word)] if confusable else []
        for word in [*preferred, *(word for word in pool if word not in preferred)]:
            family = Family.of(word, rng)
            if style.holds_out(family.meant) and family.meant not in taken:
                pool.remove(word)
                return family
    raise DatasetError(f"words: none left for {style}. Ask for fewer words, or for another seed.")


def random_prints(
    rng: np.random.Generator, side: int, *, evaluation: bool, count: int = 3, typefaces: Sequence[Typeface] = BUILT_IN
) -> Iterator[tuple[PrintImage, ...]]:
    """Yields, without end, a word and ``count`` of its neighbours in a random style, all from one split."""
    words = sorted(known_words())
    while True:
        (style,) = styles(rng, typefaces, 1)
        word = words[int(rng.integers(len(words)))]
        others = (other for other in lookalikes(word, rng) if style.holds_out(other) == evaluation)
        near = tuple(islice(others, count))
        if style.holds_out(word) == evaluation and len(near) == count:
            what = print_of(word, style, side)
            yield (PrintImage(what), *(PrintImage(what.with_word(other)) for other in near))


WORDS_160 = partial(WordCollection, "words_160", side=160, count=24)
"""Small enough for ``tiny``."""
