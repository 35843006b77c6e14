"""A gallery as one HTML file: no script, no network, light and dark, for wide and narrow screens."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import escape

from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.perturbations.pixels import Image, opencv

from . import sheet
from .quality import psnr
from .sheet import Gallery, Row, Section, Tile, TileLayout, columns

# The style sheet of the HTML gallery.


STYLE = """
:root { color-scheme: light dark; --ink: #1d2024; --faint: #5b636d; --paper: #fff; --card: #f4f5f7; --line: #d6dade;
  --link: #0b57b7; --note: #8a4b00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --faint: #a3abb5; --paper: #14161a; --card: #1e2227;
  --line: #363c44; --link: #8ab8ff; --note: #f0b35e; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4rem; }
body { margin: 0 auto; padding: 0 1rem 3rem; max-width: 100rem; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 1.2rem 0 .8rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
h3 { font: 600 1rem/1.3 ui-monospace, monospace; margin: 0; overflow-wrap: anywhere; }
p { margin: .2rem 0 .6rem; max-width: 60rem; color: var(--faint); }
ul, ol { list-style: none; margin: 0; padding: 0; }
a { color: var(--link); }
a:focus-visible, input:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
nav h2 { font-size: .85rem; margin: .6rem 0 .2rem; border: 0; padding: 0; color: var(--faint); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
nav a { display: inline-block; padding: .2rem 0; }
fieldset { position: sticky; top: 0; z-index: 1; margin: 1rem -1rem 0; padding: .5rem 1rem; border: 0;
  border-bottom: 1px solid var(--line); background: var(--paper); }
legend { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
label { display: inline-block; margin-right: 1rem; padding: .2rem 0; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .8rem; line-height: 1.35; padding-top: .35rem; overflow-wrap: anywhere; color: var(--faint); }
figcaption b { color: var(--ink); font: 600 .8rem ui-monospace, monospace; }
img { display: block; width: 100%; height: auto; }
.detail { display: none; image-rendering: pixelated; }
body:has(#details:checked) .detail { display: block; }
body:has(#details:checked) .whole { display: none; }
.clean { max-width: var(--tile); margin-bottom: .8rem; }
.note { color: var(--note); }
.none { display: grid; place-items: center; min-height: 5rem; border: 1px dashed var(--line); color: var(--faint); }
.rows { display: flex; flex-wrap: wrap; gap: 1rem; align-items: stretch; }
.row { flex: 0 1 auto; min-width: 0; padding: .75rem; border-radius: .5rem; background: var(--card); }
.row > p { font-size: .85rem; max-width: none; }
.tiles .row { width: min(100%, var(--tiles) * (var(--tile) + .6rem) + .9rem); }
.tiles .single { width: min(50% - .5rem, var(--tile) + 1.5rem); }
.tiles .strip { display: flex; flex-wrap: wrap; gap: .6rem; }
.tiles figure { width: min(var(--tile), (100% - (var(--across) - 1) * .6rem) / var(--across)); }
.sizes .row, .views .row { width: 100%; }
.sizes .strip, .views .strip { display: flex; flex-wrap: wrap; gap: 1.2rem .8rem; align-items: flex-end; }
.sizes .strip { --longest: min(2 * var(--tile), 100vw - 4rem); }
.sizes figure { min-width: 6.5rem; max-width: 100%; width: calc(var(--longest) * var(--share) * var(--ratio)); }
.sizes img { width: calc(var(--longest) * var(--share) * var(--ratio)); }
.sizes figcaption { min-height: 7rem; }
.views figure { width: min(100%, 2 * var(--tile)); }
.grid { display: grid; gap: .4rem; grid-template-columns: repeat(var(--columns), 1fr); counter-reset: view; }
.grid li { position: relative; counter-increment: view; }
.grid li::after { content: counter(view); position: absolute; top: 0; left: 0; min-width: 1.5em; padding: 0 .3em;
  font-size: .75rem; text-align: center; background: #000; color: #fff; }
@media print { fieldset { display: none; } .row { break-inside: avoid; } }
"""


QUALITY = 82
ACROSS = 3
"""Tiles side by side on a narrow screen."""
FAINT = 30.0
"""A detail with a higher PSNR against the clean one is compressed without loss."""

Encoded = dict[int, str]
"""``id`` of an array of pixels to its ``data:`` URL."""


def page(gallery: Gallery) -> bytes:
    """Returns the gallery as a UTF-8 page."""
    urls = _encode_pictures(gallery)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        f"<title>{escape(sheet.title(gallery))}</title>\n<style>{STYLE}</style>\n</head>\n",
        f'<body style="--tile: {gallery.tile}px">\n',
        *_head(gallery, urls),
        *(part for section in _number_sections(gallery) for part in _section(*section, gallery, urls)),
        "</main>\n</body>\n</html>\n",
    ]
    return "".join(parts).encode()


def _head(gallery: Gallery, urls: Encoded) -> Iterator[str]:
    yield f"<header>\n<h1>{escape(sheet.title(gallery))}</h1>\n"
    yield f"<figure class=clean>{_images(gallery.clean, gallery, urls)}"
    yield f"<figcaption><b>clean</b> {escape(', '.join(sheet.header(gallery)))}</figcaption></figure>\n"
    yield f"<p>{escape(sheet.LEGEND)}</p>\n</header>\n<nav aria-label=Contents>\n"
    for drawn in TileLayout:
        links = [(name, section) for name, section in _number_sections(gallery) if section.layout is drawn]
        if links:
            items = "".join(f"<li><a href=#{name}>{escape(section.heading)}</a></li>" for name, section in links)
            yield f"<h2>{sheet.SHEETS[drawn]}</h2>\n<ul>{items}</ul>\n"
    yield "</nav>\n"
    yield _SWITCH
    yield "<main>\n"


_SWITCH = (
    "<fieldset><legend>Show</legend>"
    "<label><input type=radio name=shown checked> whole pictures</label> "
    "<label><input type=radio name=shown id=details> details: the centre, enlarged</label></fieldset>\n"
)


def _number_sections(gallery: Gallery) -> list[tuple[str, Section]]:
    return [(f"s{number}", section) for number, section in enumerate(gallery.sections, 1)]


def _section(name: str, section: Section, gallery: Gallery, urls: Encoded) -> Iterator[str]:
    yield f"<section id={name} class={section.layout.value}>\n<h2>{escape(section.heading)}</h2>\n"
    if sheet.ABOUT_SHEETS[section.layout]:
        yield f"<p>{sheet.ABOUT_SHEETS[section.layout]}</p>\n"
    yield "<div class=rows>\n"
    for row in section.rows:
        yield _row_start(row)
        yield f"<h3>{_breakable(row.name)}</h3>\n<p>{escape(row.about)}</p>\n"
        yield "<div class=strip>\n"
        yield from (_figure(tile, row, section.layout, gallery, urls) for tile in row.tiles)
        yield "</div>\n</div>\n"
    yield "</div>\n</section>\n"


def _row_start(row: Row) -> str:
    count = len(row.tiles)
    kind = "row single" if count == 1 else "row"
    return f'<div class="{kind}" style="--tiles: {count}; --across: {min(ACROSS, count)}">\n'


def _figure(tile: Tile, row: Row, drawn: TileLayout, gallery: Gallery, urls: Encoded) -> str:
    pictures = _views(tile, urls) if drawn is TileLayout.VIEWS else _images(tile, gallery, urls)
    share = max(tile.size) / max(max(other.size) for other in row.tiles) if tile.pictures else 1.0
    size = f' style="--share: {share:.4f}; --ratio: {tile.size[1] / max(tile.size):.4f}"' if drawn is TileLayout.SIZES else ""
    lines = "".join(f"<li>{escape(line)}</li>" for line in sheet.facts(tile, gallery.clean))
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


def _encode_pictures(gallery: Gallery) -> Encoded:
    tiles = [gallery.clean, *(tile for section in gallery.sections for row in section.rows for tile in row.tiles)]
    details = [tile.detail for tile in tiles if tile.detail is not None]
    jobs = [(picture, False) for tile in tiles for picture in tile.pictures]
    jobs += [(detail, _faint(detail, gallery.clean.detail)) for detail in details]
    with ThreadPoolExecutor() as pool:
        urls = pool.map(_url, *zip(*jobs, strict=True))
        return {id(picture): url for (picture, _), url in zip(jobs, urls, strict=True)}


def _faint(detail: Image, clean: Image | None) -> bool:
    """Returns whether changes by compression could be mistaken for the effect."""
    return clean is not None and clean.shape == detail.shape and FAINT < psnr(detail, clean) < math.inf


def _url(picture: Image, lossless: bool) -> str:
    """Returns a PNG or a JPEG of full chroma: WebP would be two thirds as large and take eight times as long to write."""
    cv2 = opencv()
    chroma = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)
    kind, options = (
        ("png", (cv2.IMWRITE_PNG_COMPRESSION, 1)) if lossless else ("jpeg", (cv2.IMWRITE_JPEG_QUALITY, QUALITY, *chroma))
    )
    _, data = cv2.imencode(f".{kind}", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), options)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
