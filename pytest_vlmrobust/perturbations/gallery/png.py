"""A gallery as one PNG file, drawn by Pillow: what the page in HTML shows, without the details."""

from __future__ import annotations

import io
from collections.abc import Iterator

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.errors import UsageError

from ..pixels import Color
from . import boxes, wording
from .boxes import Box, flowing, stacked, text
from .sheet import Gallery, Layout, Row, Section, Tile, columns, reduced

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
    """Returns the gallery as a PNG file.

    Raises:
        UsageError: it would have more pixels than browsers and Pillow open.
    """
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
    clean = [boxes.picture(picture) for picture in gallery.clean.pictures]
    parts = [
        text(wording.title(gallery), TITLE, width, INK),
        text(", ".join(wording.header(gallery)), CAPTION, width, INK),
        text(wording.LEGEND, CAPTION, width, FAINT),
        *clean,
        *(_section(section, gallery, width) for section in gallery.sections),
    ]
    return stacked(parts, GAP)


def _section(section: Section, gallery: Gallery, width: int) -> Box:
    about = wording.ABOUT_SHEETS[section.layout]
    return stacked(
        [
            stacked([], 0),
            text(section.heading, HEADING, width, INK),
            *([text(about, CAPTION, width, FAINT)] if about else []),
            flowing([_row(row, section.layout, gallery, width) for row in section.rows], width, GAP),
        ],
        GAP,
    )


def _row(row: Row, layout: Layout, gallery: Gallery, width: int) -> Box:
    tiles = [_tile(tile, row, layout, gallery) for tile in row.tiles]
    own = width if layout is not Layout.TILES else min(width, len(tiles) * (gallery.tile + GAP) - GAP)
    return stacked(
        [
            text(row.name, NAME, own, INK),
            text(row.about, CAPTION, own, FAINT),
            flowing(tiles, own, GAP, bottom=layout is Layout.SIZES),
        ],
        GAP // 2,
    )


def _tile(tile: Tile, row: Row, layout: Layout, gallery: Gallery) -> Box:
    drawn = {Layout.TILES: _plain, Layout.VIEWS: _grid, Layout.SIZES: _scaled}[layout](tile, row, gallery)
    width = max(gallery.tile, drawn.width) if layout is not Layout.SIZES else max(drawn.width, gallery.tile * 2 // 3)
    lines = stacked(list(_caption(tile, gallery, width)))
    return stacked([drawn, Box(width, lines.height, lines.paint)], GAP // 2)


def _caption(tile: Tile, gallery: Gallery, width: int) -> Iterator[Box]:
    yield text(tile.setting, CAPTION + 1, width, INK)
    for line in wording.facts(tile, gallery.clean):
        yield text(line, CAPTION, width, FAINT)
    for note in tile.notes:
        yield text(note, CAPTION, width, NOTE)


def _plain(tile: Tile, _row: Row, gallery: Gallery) -> Box:
    return boxes.picture(tile.pictures[0]) if tile.pictures else text("no picture", CAPTION, gallery.tile, FAINT)


def _grid(tile: Tile, _row: Row, gallery: Gallery) -> Box:
    if not tile.pictures:
        return _plain(tile, _row, gallery)
    views = [
        boxes.over(boxes.picture(view), boxes.label(str(number), CAPTION)) for number, view in enumerate(tile.pictures, start=1)
    ]
    across = columns(len(views))
    return flowing(views, across * (max(view.width for view in views) + GAP // 2) - GAP // 2, GAP // 2)


def _scaled(tile: Tile, row: Row, gallery: Gallery) -> Box:
    if not tile.pictures:
        return _plain(tile, row, gallery)
    longest = max(max(other.size) for other in row.tiles)
    shown = 2 * gallery.tile * max(tile.size) / longest
    (picture,) = tile.pictures
    return boxes.picture(reduced(picture, min(1.0, shown / max(picture.shape[:2]))))
