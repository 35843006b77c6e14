"""A gallery as one HTML file: no script, no network, light and dark, for wide and narrow screens."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import escape

from pytest_vlmrobust.core.printing import printable

from ..opencv import opencv
from ..pixels import Image
from . import wording
from .quality import psnr
from .sheet import Gallery, Layout, Row, Section, Tile, columns
from .style import STYLE

QUALITY = 82
LOSSLESS = 101
ACROSS = 3
"""Tiles side by side on a narrow screen."""
FAINT = 30.0
"""PSNR of a detail against the clean one above which it is compressed without loss."""

Encoded = dict[int, str]
"""``id`` of an array of pixels to its ``data:`` URL."""


def page(gallery: Gallery) -> bytes:
    """Returns the gallery as a UTF-8 page."""
    urls = _encoded(gallery)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>{escape(wording.title(gallery))}</title>\n<style>{STYLE}</style>\n</head>\n",
        f'<body style="--tile: {gallery.tile}px">\n',
        *_head(gallery, urls),
        *(part for section in _numbered(gallery) for part in _section(*section, gallery, urls)),
        "</main>\n</body>\n</html>\n",
    ]
    return "".join(parts).encode()


def _head(gallery: Gallery, urls: Encoded) -> Iterator[str]:
    yield f"<header>\n<h1>{escape(wording.title(gallery))}</h1>\n"
    yield f"<figure class=clean>{_images(gallery.clean, gallery, urls)}"
    yield f"<figcaption><b>clean</b> {escape(', '.join(wording.header(gallery)))}</figcaption></figure>\n"
    yield f"<p>{escape(wording.LEGEND)}</p>\n</header>\n<nav aria-label=Contents>\n"
    for drawn in Layout:
        links = [(name, section) for name, section in _numbered(gallery) if section.layout is drawn]
        if links:
            items = "".join(f"<li><a href=#{name}>{escape(section.heading)}</a></li>" for name, section in links)
            yield f"<h2>{wording.SHEETS[drawn]}</h2>\n<ul>{items}</ul>\n"
    yield "</nav>\n"
    yield _SWITCH
    yield "<main>\n"


_SWITCH = (
    "<fieldset><legend>Show</legend>"
    "<label><input type=radio name=shown checked> whole pictures</label> "
    "<label><input type=radio name=shown id=details> details: the centre, enlarged</label></fieldset>\n"
)


def _numbered(gallery: Gallery) -> list[tuple[str, Section]]:
    return [(f"s{number}", section) for number, section in enumerate(gallery.sections, 1)]


def _section(name: str, section: Section, gallery: Gallery, urls: Encoded) -> Iterator[str]:
    yield f"<section id={name} class={section.layout.value}>\n<h2>{escape(section.heading)}</h2>\n"
    if wording.ABOUT_SHEETS[section.layout]:
        yield f"<p>{wording.ABOUT_SHEETS[section.layout]}</p>\n"
    yield "<div class=rows>\n"
    for row in section.rows:
        yield _opened(row)
        yield f"<h3>{_breakable(row.name)}</h3>\n<p>{escape(row.about)}</p>\n"
        yield "<div class=strip>\n"
        yield from (_figure(tile, row, section.layout, gallery, urls) for tile in row.tiles)
        yield "</div>\n</div>\n"
    yield "</div>\n</section>\n"


def _opened(row: Row) -> str:
    count = len(row.tiles)
    kind = "row single" if count == 1 else "row"
    return f'<div class="{kind}" style="--tiles: {count}; --across: {min(ACROSS, count)}">\n'


def _figure(tile: Tile, row: Row, drawn: Layout, gallery: Gallery, urls: Encoded) -> str:
    pictures = _views(tile, urls) if drawn is Layout.VIEWS else _images(tile, gallery, urls)
    share = max(tile.size) / max(max(other.size) for other in row.tiles) if tile.pictures else 1.0
    size = f' style="--share: {share:.4f}; --ratio: {tile.size[1] / max(tile.size):.4f}"' if drawn is Layout.SIZES else ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in wording.facts(tile, gallery.clean))
    notes = "".join(f"<li class=note>{escape(note)}</li>" for note in tile.notes)
    caption = f"<b>{_breakable(tile.setting)}</b><ul>{lines}{notes}</ul>"
    return f"<figure{size}>{pictures}<figcaption>{caption}</figcaption></figure>\n"


def _breakable(setting: str) -> str:
    """Returns a setting that may be broken before its level and after an underscore, where the screen is narrow."""
    return escape(setting).replace(":", "<wbr>:").replace("_", "_<wbr>").replace("+", "+<wbr>")


def _images(tile: Tile, gallery: Gallery, urls: Encoded) -> str:
    alt = escape(f"{printable(gallery.source.name)} under {tile.setting}")
    switched = ' class="whole"' if tile.detail is not None else ""
    whole = [f'<img{switched} src="{urls[id(picture)]}" alt="{alt}">' for picture in tile.pictures]
    detail = [] if tile.detail is None else [f'<img class="detail" src="{urls[id(tile.detail)]}" alt="{alt}, detail">']
    return "".join((*whole, *detail)) or "<div class=none>no picture</div>"


def _views(tile: Tile, urls: Encoded) -> str:
    views = "".join(
        f'<li><img src="{urls[id(view)]}" alt="view {number} of {escape(tile.setting)}"></li>'
        for number, view in enumerate(tile.pictures, 1)
    )
    return (
        f'<ol class=grid style="--columns: {columns(len(tile.pictures))}">{views}</ol>'
        if views
        else "<div class=none>no picture</div>"
    )


def _encoded(gallery: Gallery) -> Encoded:
    tiles = [gallery.clean, *(tile for section in gallery.sections for row in section.rows for tile in row.tiles)]
    details = [tile.detail for tile in tiles if tile.detail is not None]
    jobs = [(picture, QUALITY) for tile in tiles for picture in tile.pictures]
    jobs += [(detail, LOSSLESS if _faint(detail, gallery.clean.detail) else QUALITY) for detail in details]
    with ThreadPoolExecutor() as pool:
        urls = pool.map(_url, *zip(*jobs, strict=True))
        return {id(picture): url for (picture, _), url in zip(jobs, urls, strict=True)}


def _faint(detail: Image, clean: Image | None) -> bool:
    """Returns whether what compression changes could be taken for the effect."""
    return clean is not None and clean.shape == detail.shape and FAINT < psnr(detail, clean) < math.inf


def _url(picture: Image, quality: int) -> str:
    cv2 = opencv()
    _, data = cv2.imencode(".webp", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), (cv2.IMWRITE_WEBP_QUALITY, quality))
    return f"data:image/webp;base64,{base64.b64encode(data).decode('ascii')}"
