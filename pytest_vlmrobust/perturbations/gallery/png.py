"""A gallery as one PNG file, drawn by Pillow: the content of the HTML page without the details."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import MissingExtra, UsageError
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.perturbations.pixels import BLACK, Color, Image

from . import sheet
from .sheet import Gallery, Row, Section, Tile, TileLayout, columns, shrink_picture

if TYPE_CHECKING:
    import PIL.Image
    import PIL.ImageFont


# Boxes: layout of pictures and text side by side and below each other. They are measured first and painted afterwards.


WHITE: Color = (255, 255, 255)

Paint = Callable[["PIL.Image.Image", int, int], None]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle of known size that can be painted with its top left corner at (x, y)."""

    width: int
    height: int
    paint: Paint


def picture_box(image: Image) -> Box:
    """Returns a box of ``image``, uint8 RGB of shape (H, W, 3)."""

    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        import PIL.Image

        canvas.paste(PIL.Image.fromarray(image), (x, y))

    return Box(image.shape[1], image.shape[0], paint)


def text(words: str, size: int, width: int, colour: Color = BLACK) -> Box:
    """Returns a box of ``words`` in letters ``size`` pixels high, broken into lines of at most ``width`` pixels.

    The bundled typeface knows ASCII; other characters are written as Python escapes.
    """
    lines = _break_lines(words.encode("ascii", "backslashreplace").decode(), size, width)
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


def stack_boxes(boxes: Sequence[Box], gap: int = 0) -> Box:
    """Returns ``boxes`` one below the other."""
    places, down = [], 0
    for box in boxes:
        places.append((box, 0, down))
        down += box.height + gap
    return _place_boxes(places)


def flow_boxes(boxes: Sequence[Box], width: int, gap: int, *, bottom: bool = False) -> Box:
    """Returns ``boxes`` side by side, in as many lines as a ``width`` asks for; aligned at the top of a line or at its bottom."""
    lines: list[list[Box]] = [[]]
    for box in boxes:
        if lines[-1] and sum(other.width + gap for other in lines[-1]) + box.width > width:
            lines.append([])
        lines[-1].append(box)
    return stack_boxes([_beside(line, gap, bottom=bottom) for line in lines], gap)


def _beside(boxes: Sequence[Box], gap: int, *, bottom: bool) -> Box:
    places, right = [], 0
    highest = max((box.height for box in boxes), default=0)
    for box in boxes:
        places.append((box, right, highest - box.height if bottom else 0))
        right += box.width + gap
    return _place_boxes(places)


def _place_boxes(places: Sequence[tuple[Box, int, int]]) -> Box:
    def paint(canvas: PIL.Image.Image, x: int, y: int) -> None:
        for box, right, down in places:
            box.paint(canvas, x + right, y + down)

    width = max((right + box.width for box, right, _ in places), default=0)
    return Box(width, max((down + box.height for box, _, down in places), default=0), paint)


def _break_lines(words: str, size: int, width: int) -> list[str]:
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


COLUMNS = 6
MARGIN = 24
GAP = 12
TITLE, HEADING, NAME, CAPTION = 26, 22, 16, 12
INK: Color = (29, 32, 36)
FAINT: Color = (91, 99, 109)
NOTE: Color = (138, 75, 0)
PAPER: Color = (255, 255, 255)
LONGEST = 32_767
"""Pixels of a side that browsers and editors still open."""
LARGEST = 80_000_000
"""Pixels of a picture that Pillow opens without a warning, less a margin."""


def page(gallery: Gallery) -> bytes:
    """Returns the gallery as a PNG file."""
    import PIL.Image

    whole = _gallery(gallery)
    width, height = whole.width + 2 * MARGIN, whole.height + 2 * MARGIN
    if max(width, height) > LONGEST or width * height > LARGEST:
        raise UsageError(
            f"{quantity(gallery.count, 'setting')} would make a picture of {width} x {height} pixels. "
            f"Expected sides of at most {LONGEST} and "
            f"{LARGEST // 1_000_000} megapixels: show fewer settings or smaller tiles, or write .html"
        )
    canvas = PIL.Image.new("RGB", (width, height), PAPER)
    whole.paint(canvas, MARGIN, MARGIN)
    stream = io.BytesIO()
    canvas.save(stream, "PNG", compress_level=4)
    return stream.getvalue()


def _gallery(gallery: Gallery) -> Box:
    width = COLUMNS * (gallery.tile + GAP) - GAP
    clean = [picture_box(picture) for picture in gallery.clean.pictures]
    parts = [
        text(sheet.title(gallery), TITLE, width, INK),
        text(", ".join(sheet.header(gallery)), CAPTION, width, INK),
        text(sheet.LEGEND, CAPTION, width, FAINT),
        *clean,
        *(_section(section, gallery, width) for section in gallery.sections),
    ]
    return stack_boxes(parts, GAP)


def _section(section: Section, gallery: Gallery, width: int) -> Box:
    about = sheet.ABOUT_SHEETS[section.layout]
    return stack_boxes(
        [
            stack_boxes([], 0),
            text(section.heading, HEADING, width, INK),
            *([text(about, CAPTION, width, FAINT)] if about else []),
            flow_boxes([_row(row, section.layout, gallery, width) for row in section.rows], width, GAP),
        ],
        GAP,
    )


def _row(row: Row, layout: TileLayout, gallery: Gallery, width: int) -> Box:
    tiles = [_tile(tile, row, layout, gallery) for tile in row.tiles]
    row_width = width if layout is not TileLayout.TILES else min(width, len(tiles) * (gallery.tile + GAP) - GAP)
    return stack_boxes(
        [
            text(row.name, NAME, row_width, INK),
            text(row.about, CAPTION, row_width, FAINT),
            flow_boxes(tiles, row_width, GAP, bottom=layout is TileLayout.SIZES),
        ],
        GAP // 2,
    )


def _tile(tile: Tile, row: Row, layout: TileLayout, gallery: Gallery) -> Box:
    drawn = {TileLayout.TILES: _plain, TileLayout.VIEWS: _grid, TileLayout.SIZES: _scaled_picture}[layout](tile, row, gallery)
    width = max(gallery.tile, drawn.width) if layout is not TileLayout.SIZES else max(drawn.width, gallery.tile * 2 // 3)
    lines = stack_boxes(list(_caption(tile, gallery, width)))
    return stack_boxes([drawn, Box(width, lines.height, lines.paint)], GAP // 2)


def _caption(tile: Tile, gallery: Gallery, width: int) -> Iterator[Box]:
    yield text(tile.setting, CAPTION + 1, width, INK)
    for line in sheet.facts(tile, gallery.clean):
        yield text(line, CAPTION, width, FAINT)
    for note in tile.notes:
        yield text(note, CAPTION, width, NOTE)


def _plain(tile: Tile, _row: Row, gallery: Gallery) -> Box:
    return picture_box(tile.pictures[0]) if tile.pictures else text("no picture", CAPTION, gallery.tile, FAINT)


def _grid(tile: Tile, _row: Row, gallery: Gallery) -> Box:
    if not tile.pictures:
        return _plain(tile, _row, gallery)
    views = [over(picture_box(view), label(str(number), CAPTION)) for number, view in enumerate(tile.pictures, start=1)]
    across = columns(len(views))
    return flow_boxes(views, across * (max(view.width for view in views) + GAP // 2) - GAP // 2, GAP // 2)


def _scaled_picture(tile: Tile, row: Row, gallery: Gallery) -> Box:
    if not tile.pictures:
        return _plain(tile, row, gallery)
    longest = max(max(other.size) for other in row.tiles)
    shown = 2 * gallery.tile * max(tile.size) / longest
    (picture,) = tile.pictures
    return picture_box(shrink_picture(picture, min(1.0, shown / max(picture.shape[:2]))))
