"""`words`: multiple-choice and yes/no questions about pictures of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.seeding import rng_for

from .lettering import Page, draw_page, pages
from .questions import LETTERS
from .scenes import CANVAS
from .shapes import EVALUATION_SEED
from .word_questions import WORD_KINDS, WordQuestion

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
