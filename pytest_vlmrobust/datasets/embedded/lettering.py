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


# Letters as lines of a pen, with and without serifs, so that a collection has faces that no library has to bring.


EM = 20.0
"""Units of the font size. Capitals are 14 units high, small letters 10, with ascenders 15; descenders reach down to -5."""
_TOP, _BOTTOM = 16.5, -7.0
_STEPS = 24
_SUBPIXEL = 4
_SIDES = {"=": (1, 1), "<": (1, 0), ">": (0, 1)}

# Strokes are separated by "/". "x,y" is a point (y upwards, 0 is the base line), "cx,cy,rx,ry,from,to" an arc in degrees,
# counter-clockwise from the right where "to" is larger. After "|" stand the serifs: a point, and "=" for both sides, "<" for the
# left or ">" for the right.
_FORMS = {
    "a": "4.5,6.5,4,3.5,150,0 8.5,0 / 8.5,5.8 4,5.8 4,2.9,3.8,2.9,90,270 5.5,0 8.5,2 | 8.5,0>",
    "b": "0,15 0,0 / 4.5,5,4.5,5,0,360 | 0,15<",
    "c": "4.8,5,4.8,5,40,320",
    "d": "9,15 9,0 / 4.5,5,4.5,5,0,360 | 9,15< 9,0>",
    "e": "0.2,5 9,5 4.5,5,4.5,5,0,312",
    "f": "5,12,3,3,60,180 2,0 / -0.6,10 5.4,10 | 2,0=",
    "g": "9,10 9,-1 4.5,-1,4.5,4,0,-150 / 4.5,5,4.5,5,0,360 | 9,10>",
    "h": "0,15 0,0 / 4,6,4,4,180,0 8,0 | 0,15< 0,0= 8,0=",
    "i": "0,10 0,0 / 0,13.4 0,14.1 | 0,10< 0,0=",
    "j": "3,10 3,-2 0.3,-2,2.7,2.8,0,-120 / 3,13.4 3,14.1 | 3,10<",
    "k": "0,15 0,0 / 7,10 0,3.5 / 2.6,5.8 7.5,0 | 0,15< 0,0= 7,10= 7.5,0=",
    "l": "0,15 0,0 | 0,15< 0,0=",
    "m": "0,10 0,0 / 3.2,6.4,3.2,3.6,180,0 6.4,0 / 9.6,6.4,3.2,3.6,180,0 12.8,0 | 0,10< 0,0= 6.4,0= 12.8,0=",
    "n": "0,10 0,0 / 4,6,4,4,180,0 8,0 | 0,10< 0,0= 8,0=",
    "o": "4.8,5,4.8,5,0,360",
    "p": "0,10 0,-5 / 4.5,5,4.5,5,0,360 | 0,10< 0,-5=",
    "q": "9,10 9,-5 / 4.5,5,4.5,5,0,360 | 9,10> 9,-5=",
    "r": "0,10 0,0 / 4,6,4,4,180,55 | 0,10< 0,0=",
    "s": "3.6,7.5,3.2,2.5,30,270 3.6,2.5,3.5,2.5,90,-150",
    "t": "2,14 2,3 5,3,3,3,180,290 / -0.6,10 5.4,10",
    "u": "0,10 4,4,4,4,180,360 8,10 / 8,10 8,0 | 0,10< 8,10< 8,0>",
    "v": "0,10 4,0 8,10 | 0,10= 8,10=",
    "w": "0,10 3.2,0 6.4,10 9.6,0 12.8,10 | 0,10= 12.8,10=",
    "x": "0,10 7.5,0 / 7.5,10 0,0 | 0,10= 7.5,10= 0,0= 7.5,0=",
    "y": "0,10 4.2,0 / 8,10 2.2,-5 | 0,10= 8,10= 2.2,-5=",
    "z": "0.3,10 7.2,10 0,0 7.5,0",
    "A": "0,0 5.5,14 11,0 / 2,5 9,5 | 0,0= 11,0=",
    "B": "0,0 0,14 5,14 5,10.6,3.4,3.4,90,-90 0,7.2 / 5,7.2 5.2,3.6,3.8,3.6,90,-90 0,0 | 0,14< 0,0<",
    "C": "6.6,7,6.6,7,45,315",
    "D": "0,0 0,14 4,14 4,7,6.8,7,90,-90 0,0 | 0,14< 0,0<",
    "E": "8,14 0,14 0,0 8.4,0 / 0,7.2 7,7.2 | 0,14< 0,0<",
    "F": "8,14 0,14 0,0 / 0,7 6.8,7 | 0,14< 0,0=",
    "G": "6.6,7,6.6,7,45,360 8,7",
    "H": "0,0 0,14 / 10,0 10,14 / 0,7.2 10,7.2 | 0,0= 0,14= 10,0= 10,14=",
    "I": "0,0 0,14 | 0,0= 0,14=",
    "J": "6.2,14 6.2,3.6 3,3.6,3.2,3.6,0,-155 | 6.2,14=",
    "K": "0,0 0,14 / 9,14 0,5 / 3,8 9.5,0 | 0,0= 0,14= 9,14= 9.5,0=",
    "L": "0,14 0,0 7.5,0 | 0,14= 0,0<",
    "M": "0,0 0,14 6,3 12,14 12,0 | 0,0= 0,14< 12,14> 12,0=",
    "N": "0,0 0,14 10,0 10,14 | 0,0= 0,14< 10,14=",
    "O": "7,7,7,7,0,360",
    "P": "0,0 0,14 5,14 5,10.3,3.8,3.7,90,-90 0,6.6 | 0,14< 0,0=",
    "Q": "7,7,7,7,0,360 / 8.5,4 13.4,-1.2",
    "R": "0,0 0,14 5,14 5,10.3,3.8,3.7,90,-90 0,6.6 / 4.5,6.6 9,0 | 0,14< 0,0= 9,0>",
    "S": "4.5,10.5,4.1,3.5,30,270 4.5,3.5,4.6,3.5,90,-150",
    "T": "0,14 10,14 / 5,14 5,0 | 5,0=",
    "U": "0,14 5,5,5,5,180,360 10,14 | 0,14= 10,14=",
    "V": "0,14 5.3,0 10.6,14 | 0,14= 10.6,14=",
    "W": "0,14 4,0 8,14 12,0 16,14 | 0,14= 16,14=",
    "X": "0,14 10,0 / 10,14 0,0 | 0,14= 10,14= 0,0= 10,0=",
    "Y": "0,14 5,7 10,14 / 5,7 5,0 | 0,14= 10,14= 5,0=",
    "Z": "0.4,14 9.5,14 0,0 10,0",
}


@dataclass(frozen=True, slots=True)
class StrokeFace:
    """A typeface written with a pen; lengths in units of which the font size has 20."""

    name: str
    pen: float = 1.6
    """Width of upright lines."""
    contrast: float = 1.0
    """How many times thicker upright lines are than level ones."""
    serif: float = 0.0
    """Length of a serif to each side; 0 for none."""
    gap: float = 3.6
    """From the outermost line of a letter to that of the next, middle to middle."""
    cell: float = 0.0
    """Width of every letter, the gap included; 0 where letters differ in width."""
    slant: float = 0.0
    width: float = 1.0

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink of upright letters at ``size`` pixels: uint8, shape (H, W), 0 to 255.

        The height depends on the size alone.
        """
        import cv2
        import numpy as np

        strokes, advance = self._strokes(text)
        scale, room = size / EM, self.pen
        # a round pen on letters that are pulled high is a flat nib once they have their height back
        high = scale * self.contrast
        height, width = round((_TOP - _BOTTOM) * scale), round((advance + 2 * room) * scale)
        canvas = np.zeros((round(height * self.contrast), width), np.uint8)
        placed = [(stroke * (1, -1) + (room, _TOP)) * (scale, high) for stroke in strokes]
        points = [np.round(one * 2**_SUBPIXEL).astype(np.int32) for one in placed]
        cv2.polylines(canvas, points, False, 255, max(1, round(self.pen * scale)), cv2.LINE_AA, _SUBPIXEL)
        return np.asarray(cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA), np.uint8)

    def _strokes(self, text: str) -> tuple[list[NDArray[np.float64]], float]:
        """Returns the lines of all letters, each of shape (N, 2), and how far they reach to the right."""
        import numpy as np

        strokes: list[NDArray[np.float64]] = []
        at, end = 0.0, 0.0
        for letter in text:
            lines = _form(letter, self.serif)
            left, right = (float(side(np.concatenate(lines)[:, 0])) for side in (np.min, np.max))
            wide = min(right - left, self.cell - self.gap) if self.cell else right - left
            shrink = wide / (right - left) if wide else 1.0
            start = at + (self.cell - self.gap - wide) / 2 if self.cell else at
            strokes += [(line - (left, 0)) * (shrink, 1) + (start, 0) for line in lines]
            end = max(end, start + wide)
            at += self.cell or wide + self.gap
        return strokes, end


@cache
def _form(letter: str, serif: float) -> list[NDArray[np.float64]]:
    """Returns the lines of a letter, with its serifs where they have a length."""
    import numpy as np

    lines, _, ends = _FORMS[letter].partition("|")
    drawn = [np.concatenate([_piece(piece) for piece in line.split()]) for line in lines.split("/")]
    for end in ends.split() if serif else ():
        x, y = map(float, end[:-1].split(","))
        left, right = _SIDES[end[-1]]
        drawn.append(np.array([[x - left * serif, y], [x + right * serif, y]]))
    return drawn


def _piece(text: str) -> NDArray[np.float64]:
    import numpy as np

    numbers = [float(number) for number in text.split(",")]
    if len(numbers) == 2:
        return np.array([numbers])
    x, y, wide, high, start, end = numbers
    turn = np.radians(np.linspace(start, end, _STEPS + 1))
    return np.column_stack([x + wide * np.cos(turn), y + high * np.sin(turn)])
