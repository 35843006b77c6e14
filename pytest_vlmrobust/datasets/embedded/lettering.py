"""Pictures of words: one or two words, each in a place of its own, with exact boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .scenes import CANVAS, COLORS, held_out

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        """The word as it is written."""
        return str(getattr(self.word, self.case)())


@dataclass(frozen=True, slots=True)
class Page:
    """Words on a tinted, framed ground."""

    letterings: tuple[Lettering, ...]
    background: tuple[int, int, int]

    @property
    def signature(self) -> str:
        """What is written where, without jitter."""
        return repr(sorted((w.place, w.word, w.color, w.case) for w in self.letterings))

    @property
    def held_out(self) -> bool:
        """Whether the content belongs to the evaluation split."""
        return held_out(self.signature)


def random_page(rng: np.random.Generator) -> Page:
    """Returns a page of either split: two words in three cases of four, else one."""
    count = 2 if rng.random() < 0.75 else 1
    words = [WORDS[i] for i in rng.permutation(len(WORDS))[:count]]
    places = [PLACES[i] for i in rng.permutation(2)[:count]]
    colors = [INKS[i] for i in rng.permutation(len(INKS))[:count]]
    letterings = tuple(_lettering(rng, *facts) for facts in zip(words, places, colors, strict=True))
    base, tint = int(rng.integers(214, 248)), rng.integers(-7, 8, 3)
    return Page(letterings, (base + int(tint[0]), base + int(tint[1]), base + int(tint[2])))


def pages(rng: np.random.Generator, *, evaluation: bool) -> Iterator[Page]:
    """Yields pages of one split for ever."""
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


def centred(rng: np.random.Generator, word: str, *, size: int) -> Lettering:
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
    import numpy as np
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (CANVAS, CANVAS), page.background)
    pen = ImageDraw.Draw(image)
    for lettering in page.letterings:
        pen.text(lettering.origin, lettering.text, fill=lettering.rgb, font=_font(lettering.size))
    frame = tuple(int(c * 0.45) for c in page.background)
    pen.rectangle((0, 0, CANVAS - 1, CANVAS - 1), outline=frame, width=3)
    return np.asarray(image, np.uint8).copy()
