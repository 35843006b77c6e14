"""`words`: pictures of one or two words with exact boxes, and questions about them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample, text_of_height

from .scenes import CANVAS, COLORS, held_out
from .shapes import LETTERS, DrawnQuestions, Question, sample_of

# Pictures: one or two words at different places, with exact boxes.


VOCABULARY = {
    "animals": ("cat", "dog", "bird", "fish", "horse", "cow", "lion", "bear"),
    "food": ("bread", "apple", "milk", "rice", "cake", "egg", "soup", "corn"),
    "things": ("chair", "table", "book", "door", "lamp", "clock", "cup", "bed"),
    "nature": ("tree", "sun", "moon", "river", "rain", "hill", "sea", "wind"),
}
WORDS = tuple(word for words in VOCABULARY.values() for word in words)
INKS = tuple(color for color in COLORS if color != "yellow")
"""Colours that are readable on a light ground."""
PLACES = ("top", "bottom")
CASES = ("lower", "upper", "title")
CAPITAL, SMALL = 0.72, 0.53
"""Heights of the capitals and of the "x" of Pillow's typeface, as shares of its size."""


@dataclass(frozen=True, slots=True)
class Lettering:
    """One word of a picture; ``box`` is (x1, y1, x2, y2) in canvas pixels, exact, right and bottom exclusive."""

    word: str
    color: str
    place: str
    case: str
    size: int
    origin: tuple[int, int]
    box: tuple[int, int, int, int]
    rgb: tuple[int, int, int]

    @property
    def text(self) -> str:
        """The word as written."""
        return str(getattr(self.word, self.case)())

    @property
    def letter_height(self) -> float:
        """Height of its lowest letters in pixels: that of the capitals if it has no others, else that of the "x"."""
        return self.size * (CAPITAL if self.case == "upper" else SMALL)


@dataclass(frozen=True, slots=True)
class Page:
    """Words on a tinted, framed ground."""

    letterings: tuple[Lettering, ...]
    background: tuple[int, int, int]

    @property
    def signature(self) -> str:
        """The words and their places, without jitter."""
        return repr(sorted((w.place, w.word, w.color, w.case) for w in self.letterings))

    @property
    def held_out(self) -> bool:
        """Whether the content belongs to the evaluation split."""
        return held_out(self.signature)


def random_page(rng: np.random.Generator) -> Page:
    """Returns a page of either split, with two words in three of four cases, else one."""
    count = 2 if rng.random() < 0.75 else 1
    words = [WORDS[i] for i in rng.permutation(len(WORDS))[:count]]
    places = [PLACES[i] for i in rng.permutation(2)[:count]]
    colors = [INKS[i] for i in rng.permutation(len(INKS))[:count]]
    letterings = tuple(_lettering(rng, *facts) for facts in zip(words, places, colors, strict=True))
    base, tint = int(rng.integers(214, 248)), rng.integers(-7, 8, 3)
    return Page(letterings, (base + int(tint[0]), base + int(tint[1]), base + int(tint[2])))


def pages(rng: np.random.Generator, *, evaluation: bool) -> Iterator[Page]:
    """Yields pages of one split without end."""
    while True:
        page = random_page(rng)
        if page.held_out == evaluation:
            yield page


def _lettering(rng: np.random.Generator, word: str, place: str, color: str) -> Lettering:
    case = CASES[int(rng.integers(3))]
    text = str(getattr(word, case)())
    size = int(rng.integers(34, 47))
    left, top, right, bottom = _extent(text, size)
    while right - left > CANVAS - 16:
        size -= 2
        left, top, right, bottom = _extent(text, size)
    spare = CANVAS - 12 - (right - left)
    x = 6 + int(rng.integers(spare // 4, spare - spare // 4 + 1))
    middle = (CANVAS // 4 if place == "top" else 3 * CANVAS // 4) + int(rng.integers(-6, 7))
    y = middle - (bottom - top) // 2
    red, green, blue = (int(min(255, max(0, c + d))) for c, d in zip(COLORS[color], rng.integers(-12, 13, 3), strict=True))
    return Lettering(
        word, color, place, case, size, (x - left, y - top), (x, y, x + right - left, y + bottom - top), (red, green, blue)
    )


def centred_word(rng: np.random.Generator, word: str, *, size: int) -> Lettering:
    """Returns a word in the middle of the page in black, in a random case, as large as ``size`` or as fits."""
    case = CASES[int(rng.integers(3))]
    text = str(getattr(word, case)())
    left, top, right, bottom = _extent(text, size)
    while right - left > CANVAS - 16:
        size -= 2
        left, top, right, bottom = _extent(text, size)
    x, y = (CANVAS - (right - left)) // 2, (CANVAS - (bottom - top)) // 2
    box = (x, y, x + right - left, y + bottom - top)
    return Lettering(word, "black", "middle", case, size, (x - left, y - top), box, COLORS["black"])


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


@cache
def _extent(text: str, size: int) -> tuple[int, int, int, int]:
    left, top, right, bottom = _font(size).getbbox(text)
    return int(left), int(top), int(right), int(bottom)


def draw_page(page: Page) -> NDArray[np.uint8]:
    """Draws a page: uint8 RGB, shape (160, 160, 3). The font is the one that comes with Pillow."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (CANVAS, CANVAS), page.background)
    pen = ImageDraw.Draw(image)
    for lettering in page.letterings:
        pen.text(lettering.origin, lettering.text, fill=lettering.rgb, font=_font(lettering.size))
    frame = tuple(int(c * 0.45) for c in page.background)
    pen.rectangle((0, 0, CANVAS - 1, CANVAS - 1), outline=frame, width=3)
    return np.asarray(image, np.uint8).copy()


# Questions about pictures of words; distractors are the picture's other word, then look-alikes.


@dataclass(frozen=True, slots=True)
class WordQuestion(Question):
    """A question about a page."""

    changed_by: frozenset[str]
    """Changes after which another answer is right, or none can be determined: members of ``perturbations.CHANGES``."""


_PLACE = frozenset({"up_down"})
"""A mirrored word is still the same word: only a flip from top to bottom moves it elsewhere."""


def _reading(lettering: Lettering) -> frozenset[str]:
    """Returns the change that affects an answer based on reading a word: letters of its height become unreadable."""
    return frozenset({text_of_height(lettering.letter_height)})


def _shuffle(rng: np.random.Generator, options: list[str]) -> tuple[str, ...]:
    return tuple(options[i] for i in rng.permutation(len(options)))


@cache
def look_alikes(word: str) -> tuple[str, ...]:
    """Returns the other words of the vocabulary, the most similar spelling first."""
    return tuple(sorted((w for w in WORDS if w != word), key=lambda w: (-difflib.SequenceMatcher(None, word, w).ratio(), w)))


def _reading_question(rng: np.random.Generator, page: Page) -> WordQuestion:
    target = page.letterings[int(rng.integers(len(page.letterings)))]
    others = [w.word for w in page.letterings if w is not target]
    near = [w for w in look_alikes(target.word)[:6] if w not in others]
    near = [near[i] for i in rng.permutation(len(near))]
    options = [target.word, *others, *near][: len(LETTERS)]
    text = f"Which word is at the {target.place}?" if others else "Which word is in the picture?"
    changed_by = _reading(target) | (_PLACE if others else frozenset())
    return WordQuestion("read", "read", text, target.word, _shuffle(rng, options), changed_by)


def _ink(rng: np.random.Generator, page: Page) -> WordQuestion:
    target = page.letterings[int(rng.integers(len(page.letterings)))]
    by_word = rng.random() < 0.5
    text = f"What color is the word {target.word}?" if by_word else f"What color is the word at the {target.place}?"
    present = [w.color for w in page.letterings if w is not target]
    absent = [color for color in INKS if color != target.color and color not in present]
    options = [target.color, *present, *(absent[i] for i in rng.permutation(len(absent)))][: len(LETTERS)]
    changed_by = frozenset({"colour"}) | (_reading(target) if by_word else _PLACE)
    return WordQuestion("ink", "ink", text, target.color, _shuffle(rng, options), changed_by)


def _spelling_question(rng: np.random.Generator, page: Page) -> WordQuestion:
    present = [w.word for w in page.letterings]
    there = bool(rng.random() < 0.5)
    source = present[int(rng.integers(len(present)))]
    near = [w for w in look_alikes(source) if w not in present][:4]
    word = source if there else near[int(rng.integers(len(near)))]
    changed_by = frozenset({"presence"}).union(*map(_reading, page.letterings))
    return WordQuestion("spelled", "yes_no", f"Does the picture show the word {word}?", "yes" if there else "no", (), changed_by)


WORD_KINDS: dict[str, Callable[[np.random.Generator, Page], WordQuestion]] = {
    "read": _reading_question,
    "ink": _ink,
    "spelled": _spelling_question,
}
"""Functions that ask a question, by kind."""


# The dataset.


VERSION = 1
"""Changes whenever a pixel or a question changes."""


@dataclass(frozen=True)
class PageImage:
    """The picture of one page, drawn when loaded."""

    page: Page

    def load(self) -> NDArray[np.uint8]:
        """Draws the page: RGB, uint8, shape (160, 160, 3)."""
        return draw_page(self.page)

    def identity(self) -> str:
        """Returns everything that determines the pixels, including the renderer: glyphs differ between its versions."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        from PIL import __version__

        return fingerprint(["page", VERSION, __version__, repr(self.page)])


@dataclass(frozen=True)
class Words(DrawnQuestions):
    """Questions in equal numbers per kind, all kinds about each page."""

    source, version = "words", VERSION
    name: str = "words"
    per_kind: int = 24
    kinds: tuple[str, ...] = tuple(WORD_KINDS)

    def draw(self, rng: np.random.Generator) -> Iterator[Sample]:
        """Yields the questions in the order of their pages."""
        for number, page in enumerate(list(islice(pages(rng, evaluation=True), self.per_kind))):
            for kind in self.kinds:
                question, group = WORD_KINDS[kind](rng, page), f"page-{number:04d}"
                yield sample_of(question, PageImage(page), dataset="words", group=group, changed_by=question.changed_by)
