"""Questions about pictures of words; distractors are the other word of the picture, then look-alikes."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from .lettering import INKS, WORDS, Page
from .questions import LETTERS

if TYPE_CHECKING:
    import numpy as np

from dataclasses import dataclass


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
