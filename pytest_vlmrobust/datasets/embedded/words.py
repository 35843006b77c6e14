"""`words`: multiple-choice and yes/no questions about pictures of words."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

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
