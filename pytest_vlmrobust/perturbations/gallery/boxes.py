"""Boxes: pictures and text put beside and below each other, measured first and painted afterwards, by Pillow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import MissingExtra

from ..pixels import BLACK, Color, Image

if TYPE_CHECKING:
    import PIL.Image
    import PIL.ImageFont

WHITE: Color = (255, 255, 255)

Paint = Callable[["PIL.Image.Image", int, int], None]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of known size that can be painted with its top left corner at (x, y)."""

    width: int
    height: int
    paint: Paint


def picture(image: Image) -> Box:
    """Returns a box of ``image``, uint8 RGB of shape (H, W, 3)."""

    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        import PIL.Image

        canvas.paste(PIL.Image.fromarray(image), (x, y))

    return Box(image.shape[1], image.shape[0], paint)


def text(words: str, size: int, width: int, colour: Color = BLACK) -> Box:
    """Returns a box of ``words`` in letters ``size`` pixels high, broken into lines of at most ``width`` pixels.

    The bundled typeface knows ASCII; other characters are written as Python escapes.
    """
    lines = _broken(words.encode("ascii", "backslashreplace").decode(), size, width)
    leading = round(1.35 * size)

    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        import PIL.ImageDraw

        draw = PIL.ImageDraw.Draw(canvas)
        for number, line in enumerate(lines):
            draw.text((x, y + number * leading), line, fill=colour, font=_font(size))

    return Box(width, leading * len(lines), paint)


def label(words: str, size: int) -> Box:
    """Returns a box that fits ``words``, white on black."""
    width = round(_font(size).getlength(words)) + size
    inner = text(words, size, width, WHITE)

    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        canvas.paste(BLACK, (x, y, x + width, y + inner.height))
        inner.paint(canvas, x + size // 2, y)

    return Box(width, inner.height, paint)


def over(below: Box, above: Box) -> Box:
    """Returns ``below`` with ``above`` in its top left corner."""

    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        below.paint(canvas, x, y)
        above.paint(canvas, x, y)

    return Box(max(below.width, above.width), max(below.height, above.height), paint)


def stacked(boxes: Sequence[Box], gap: int = 0) -> Box:
    """Returns ``boxes`` one below the other."""
    places, down = [], 0
    for box in boxes:
        places.append((box, 0, down))
        down += box.height + gap
    return _placed(places)


def flowing(boxes: Sequence[Box], width: int, gap: int, *, bottom: bool = False) -> Box:
    """Returns ``boxes`` side by side, in as many lines as a ``width`` asks for; aligned at the top of a line or at its bottom."""
    lines: list[list[Box]] = [[]]
    for box in boxes:
        if lines[-1] and sum(other.width + gap for other in lines[-1]) + box.width > width:
            lines.append([])
        lines[-1].append(box)
    return stacked([_beside(line, gap, bottom=bottom) for line in lines], gap)


def _beside(boxes: Sequence[Box], gap: int, *, bottom: bool) -> Box:
    places, right = [], 0
    highest = max((box.height for box in boxes), default=0)
    for box in boxes:
        places.append((box, right, highest - box.height if bottom else 0))
        right += box.width + gap
    return _placed(places)


def _placed(places: Sequence[tuple[Box, int, int]]) -> Box:
    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        for box, right, down in places:
            box.paint(canvas, x + right, y + down)

    width = max((right + box.width for box, right, _ in places), default=0)
    return Box(width, max((down + box.height for box, _, down in places), default=0), paint)


def _broken(words: str, size: int, width: int) -> list[str]:
    """Returns lines that fit: broken between words, and within a word that fits no line."""
    lines = [""]
    for word in words.split():
        longer = f"{lines[-1]} {word}".strip()
        if _font(size).getlength(longer) <= width:
            lines[-1] = longer
            continue
        *full, rest = _pieces(word, size, width)
        lines += [*full, rest] if lines[-1] else []
        lines = lines if lines != [""] else [*full, rest]
    return lines


def _pieces(word: str, size: int, width: int) -> list[str]:
    pieces = [""]
    for letter in word:
        if pieces[-1] and _font(size).getlength(pieces[-1] + letter) > width:
            pieces.append("")
        pieces[-1] += letter
    return pieces


@functools.lru_cache(maxsize=8)
def _font(size: int) -> PIL.ImageFont.FreeTypeFont:
    import PIL.ImageFont

    try:
        font = PIL.ImageFont.load_default(size)
    except ImportError as error:
        raise MissingExtra("drawing text", "Pillow with FreeType", install="--force-reinstall pillow") from error
    if not isinstance(font, PIL.ImageFont.FreeTypeFont):
        raise MissingExtra("drawing text", "Pillow with FreeType", install="--force-reinstall pillow")
    return font
