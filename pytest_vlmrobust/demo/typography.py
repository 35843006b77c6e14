"""Words in print: black on white, in one of several typefaces, casings, positions and rotations, with exact boxes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import file_digest

from .scenes import held_out

# Typefaces: fonts, and letters written with a pen, which need no font.


SUFFIXES = (".ttf", ".otf")


class Typeface(Protocol):
    """How letters look, at any size. Its ``repr`` includes everything that determines the pixels."""

    @property
    def name(self) -> str:
        """Unique among the typefaces in use."""
        ...

    @property
    def slant(self) -> float:
        """How far the top of a letter leans to the right, per height."""
        ...

    @property
    def width(self) -> float:
        """The factor by which letters are widened."""
        ...

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink of upright, unwidened letters at ``size`` pixels: uint8, shape (H, W), 0 to 255.

        The height depends only on the size, and has room for all ascenders and descenders.
        """
        ...


@dataclass(frozen=True, slots=True)
class FontFace:
    """A TrueType or OpenType font."""

    name: str
    weight: float = 0.0
    """The width added around the outline of a letter, as a share of the size."""
    slant: float = 0.0
    width: float = 1.0
    digest: str = ""
    """SHA-256 of the font file, in hex; empty for the font that comes with Pillow."""
    path: Path | None = field(default=None, repr=False, compare=False)
    """The font file; none for the font that comes with Pillow."""

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink as in ``Typeface``; letters made bolder keep their distance."""
        from PIL import Image, ImageDraw

        font, stroke = _font(self.path, size), round(self.weight * size)
        top, bottom = _reach(self.path, size, stroke)
        # each letter begins at the end of those before it, so that pairs are kerned
        starts = [font.getlength(text[:place]) + 2 * stroke * place for place in range(len(text))]
        boxes = [font.getbbox(letter, anchor="ls", stroke_width=stroke) for letter in text]
        left = math.floor(min(start + box[0] for start, box in zip(starts, boxes, strict=True)))
        right = math.ceil(max(start + box[2] for start, box in zip(starts, boxes, strict=True)))
        image = Image.new("L", (right - left, bottom - top))
        pen = ImageDraw.Draw(image)
        for start, letter in zip(starts, text, strict=True):
            pen.text((start - left, -top), letter, fill=255, font=font, anchor="ls", stroke_width=stroke)
        return np.asarray(image, np.uint8)


EM = 20.0
"""Units of the font size. Capitals are 14 units high, small letters 10, with ascenders 15; descenders reach down to -5."""
_LETTERS = Path(__file__).with_name("assets") / "letters.yaml"
_TOP, _BOTTOM = 16.5, -7.0
_STEPS = 24
_SUBPIXEL = 4
_SERIFS = {"both": (1, 1), "left": (1, 0), "right": (0, 1)}
"""Extent of a serif to the left and to the right, in units of its length, by side."""


@dataclass(frozen=True, slots=True)
class StrokeFace:
    """A typeface written with a pen; one unit of length is a twentieth of the font size."""

    name: str
    pen: float = 1.6
    """Width of upright lines."""
    contrast: float = 1.0
    """Ratio of the thickness of upright lines to that of level lines."""
    serif: float = 0.0
    """Length of a serif to each side; 0 for none."""
    gap: float = 3.6
    """Distance between the outermost lines of adjacent letters, middle to middle."""
    cell: float = 0.0
    """Width of every letter, including the gap; 0 if letters differ in width."""
    slant: float = 0.0
    width: float = 1.0

    def line(self, text: str, size: int) -> NDArray[np.uint8]:
        """Returns the ink of upright letters at ``size`` pixels: uint8, shape (H, W), 0 to 255.

        The height depends only on the size.
        """
        import cv2

        strokes, advance = self._strokes(text)
        scale, room = size / EM, self.pen
        # a round pen on letters stretched vertically becomes a flat nib when their height is restored
        high = scale * self.contrast
        height, width = round((_TOP - _BOTTOM) * scale), round((advance + 2 * room) * scale)
        canvas = np.zeros((round(height * self.contrast), width), np.uint8)
        placed = [(stroke * (1, -1) + (room, _TOP)) * (scale, high) for stroke in strokes]
        points = [np.round(stroke * 2**_SUBPIXEL).astype(np.int32) for stroke in placed]
        cv2.polylines(canvas, points, False, 255, max(1, round(self.pen * scale)), cv2.LINE_AA, _SUBPIXEL)
        return np.asarray(cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA), np.uint8)

    def _strokes(self, text: str) -> tuple[list[NDArray[np.float64]], float]:
        """Returns the lines of all letters, each of shape (N, 2), and their right end."""
        strokes: list[NDArray[np.float64]] = []
        at, end = 0.0, 0.0
        for letter in text:
            lines = _letter(letter, self.serif)
            left, right = (float(side(np.concatenate(lines)[:, 0])) for side in (np.min, np.max))
            wide = min(right - left, self.cell - self.gap) if self.cell else right - left
            shrink = wide / (right - left) if wide else 1.0
            start = at + (self.cell - self.gap - wide) / 2 if self.cell else at
            strokes += [(line - (left, 0)) * (shrink, 1) + (start, 0) for line in lines]
            end = max(end, start + wide)
            at += self.cell or wide + self.gap
        return strokes, end


@cache
def _letter(letter: str, serif: float) -> list[NDArray[np.float64]]:
    """Returns the lines of a letter, with its serifs unless their length is 0."""
    form = _letters()[letter]
    lines = [np.concatenate([_piece(piece) for piece in line]) for line in form["lines"]]
    if serif:
        for side, (left, right) in _SERIFS.items():
            lines += [np.array([[x - left * serif, y], [x + right * serif, y]]) for x, y in form.get("serifs", {}).get(side, ())]
    return lines


@cache
def _letters() -> Mapping[str, Any]:
    import yaml

    content: Mapping[str, Any] = yaml.load(_LETTERS.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return content


def _piece(numbers: Sequence[float]) -> NDArray[np.float64]:
    """Returns the points of a point or of an arc, shape (N, 2)."""
    if len(numbers) == 2:
        return np.array([numbers], float)
    x, y, wide, high, start, end = numbers
    turn = np.radians(np.linspace(start, end, _STEPS + 1))
    return np.column_stack([x + wide * np.cos(turn), y + high * np.sin(turn)])


BUILT_IN: tuple[Typeface, ...] = (
    FontFace("sans"),
    FontFace("sans_bold", weight=0.024),
    FontFace("sans_oblique", slant=0.24),
    StrokeFace("pen", pen=1.5),
    StrokeFace("serif", pen=2.1, contrast=2.3, serif=1.7, gap=2.9),
    StrokeFace("typewriter", pen=1.2, serif=2.0, gap=2.7, cell=12.6),
)
"""Variants of the font that comes with Pillow, and three faces of this package; independent of installed fonts."""


def typefaces_in(folder: Path) -> tuple[FontFace, ...]:
    """Returns the fonts of a folder, named like their files, in the order of their names.

    Each must have the letters from a to z.
    """
    files = sorted(path for path in folder.glob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        state = "holds no file that ends with .ttf or .otf" if folder.is_dir() else "is not a folder"
        raise DatasetError(
            f"fonts: {folder} {state}. Expected: a folder of TrueType or OpenType fonts. Name another one, or none."
        )
    return tuple(_check_face(path) for path in files)


def _check_face(path: Path) -> FontFace:
    try:
        font = _font(path, 32)
    except OSError as error:
        raise DatasetError(f"fonts: {path} cannot be read as a font ({error}). Repair or remove it.") from error
    lacking = "".join(_lacking(font, ascii_lowercase) + _lacking(font, ascii_uppercase))
    if lacking:
        raise DatasetError(f"fonts: {path} has no letters {lacking}. Expected: a to z and A to Z. Remove it.")
    return FontFace(path.name, digest=file_digest(path), path=path)


def _lacking(font: Any, letters: str) -> list[str]:
    """Returns the letters without a glyph in a font: it draws the same box for all of them, or nothing."""
    drawn = {letter: bytes(font.getmask(letter)) for letter in letters}
    often = Counter(drawn.values())
    return [letter for letter, ink in drawn.items() if not any(ink) or often[ink] > 1]


@lru_cache(maxsize=256)
def _reach(path: Path | None, size: int, stroke: int) -> tuple[int, int]:
    """Returns the highest and lowest row of all letters, from the base line."""
    _, top, _, bottom = _font(path, size).getbbox(ascii_uppercase + ascii_lowercase, anchor="ls", stroke_width=stroke)
    return math.floor(top), math.ceil(bottom)


@lru_cache(maxsize=256)
def _font(path: Path | None, size: int) -> Any:
    from PIL import ImageFont

    # the other engine is not part of every Pillow, and sets some letters closer
    basic = ImageFont.Layout.BASIC
    if path is not None:
        return ImageFont.truetype(str(path), size, layout_engine=basic)
    font: Any = ImageFont.load_default(size)
    return font.font_variant(layout_engine=basic)


# Words in print: one word on a white square.


CASINGS = ("upper", "lower", "title")
POSITIONS = {"top": 0.1, "centre": 0.5, "bottom": 0.9}
"""Position of the middle of the line by name, as a share of the side; moved inwards if letters would be cut off."""
ROTATIONS = (-45, 0, 45)
"""Degrees, counter-clockwise."""
FONT_SIZE = 250 / 1024
"""Size of the letters as a share of the side, unless the word is too long for it."""
MARGIN = 0.02
"""White margin along every edge, as a share of the side."""
_LONGEST = 0.9
_FINE = 640
_FAINT = 24


@dataclass(frozen=True, slots=True)
class Style:
    """How a word is printed."""

    typeface: Typeface
    casing: str
    position: str
    rotation: int

    def in_casing(self, word: str) -> str:
        """Returns the word in this casing."""
        return str(getattr(word, self.casing)())

    def holds_out(self, word: str) -> bool:
        """Returns whether this word in this style is reserved for evaluation, at any size, and must never be trained on."""
        return held_out(repr((word, self.typeface.name, self.casing, self.position, self.rotation)))


@dataclass(frozen=True, slots=True)
class Print:
    """A word on a white square."""

    word: str
    style: Style
    side: int
    """Side of the picture, pixels."""
    size: int
    """Size of the letters, pixels."""

    @property
    def text(self) -> str:
        """The word as written."""
        return self.style.in_casing(self.word)

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the evaluation split."""
        return self.style.holds_out(self.word)

    def with_word(self, word: str) -> Print:
        """Returns another word, printed in the same style and size."""
        return replace(self, word=word)


def print_of(word: str, style: Style, side: int) -> Print:
    """Returns a word with room for one more letter, so that every neighbour fits in the same size.

    The size does not depend on position and rotation.
    """
    probe, room = 200, style.in_casing(word) + ("m" if style.casing == "lower" else "W")
    needed = style.typeface.line(room, probe).shape[1] * style.typeface.width
    return Print(word, style, side, int(min(FONT_SIZE * side, _LONGEST * side * probe / needed)))


def draw_print(what: Print) -> NDArray[np.uint8]:
    """Draws a word: uint8 RGB, shape (side, side, 3)."""
    import cv2

    return np.asarray(cv2.cvtColor(cv2.bitwise_not(_ink(what)), cv2.COLOR_GRAY2RGB), np.uint8)


def box_of(what: Print) -> tuple[int, int, int, int]:
    """Returns the tight box of the ink: (x1, y1, x2, y2) in pixels, right and bottom exclusive."""
    import cv2

    x, y, width, height = cv2.boundingRect(_ink(what))
    return int(x), int(y), int(x + width), int(y + height)


def styles(rng: np.random.Generator, typefaces: Sequence[Typeface], count: int) -> tuple[Style, ...]:
    """Returns random styles; typefaces, casings, positions and rotations are equally frequent, up to a difference of one."""
    faces, casings, positions, rotations = (
        _balanced_levels(rng, len(levels), count) for levels in (typefaces, CASINGS, POSITIONS, ROTATIONS)
    )
    places = tuple(POSITIONS)
    return tuple(
        Style(typefaces[face], CASINGS[casing], places[place], ROTATIONS[rotation])
        for face, casing, place, rotation in zip(faces, casings, positions, rotations, strict=True)
    )


def _balanced_levels(rng: np.random.Generator, levels: int, count: int) -> list[int]:
    rounds = [level for _ in range(math.ceil(count / levels)) for level in rng.permutation(levels).tolist()]
    return [rounds[i] for i in rng.permutation(count)]


def _ink(what: Print) -> NDArray[np.uint8]:
    import cv2

    fine = max(1, round(_FINE / what.side))
    side = fine * what.side
    line = what.style.typeface.line(what.text, fine * what.size)
    canvas = cv2.warpAffine(line, _placement(what.style, line.shape, side), (side, side), flags=cv2.INTER_LINEAR)
    ink = cv2.resize(canvas, (what.side, what.side), interpolation=cv2.INTER_AREA)
    # pixels indistinguishable from the ground are not ink, and must not widen the box
    return np.asarray(cv2.threshold(ink, _FAINT, 0, cv2.THRESH_TOZERO)[1], np.uint8)


def _placement(style: Style, shape: tuple[int, ...], side: int) -> NDArray[np.float64]:
    """Returns the affine map, shape (2, 3), from the upright line to the picture of ``side`` pixels."""
    face, angle = style.typeface, math.radians(style.rotation)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    linear = turn @ np.array([[face.width, -face.slant], [0.0, 1.0]])
    inset = MARGIN * side + _extent(linear, shape) / 2
    if inset.max() > side / 2:
        raise DatasetError(f"a line of {shape[1]} pixels does not fit a picture of {side} in {style}. Print it smaller.")
    middle = np.clip(np.array([0.5, POSITIONS[style.position]]) * side, inset, side - inset)
    centre = np.array([shape[1], shape[0]]) / 2
    # upright letters stay on whole pixels, so that nothing blurs them
    offset = np.round(middle - linear @ centre) if style.rotation == 0 else middle - linear @ centre
    return np.asarray(np.column_stack([linear, offset]))


def _extent(linear: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    height, width = shape
    corners = linear @ np.array([[0, width, width, 0], [0, 0, height, height]], np.float64)
    return np.asarray(np.ptp(corners, axis=1))
