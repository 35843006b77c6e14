"""A gallery as one HTML file: no script, no network, light and dark, for wide and narrow screens and for print."""

from __future__ import annotations

import base64
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.perturbations.pixels import Image, opencv

from . import sheet
from .quality import psnr
from .sheet import Gallery, Row, Tile, TileLayout

QUALITY = 82
FAINT = 30.0
"""A detail with a higher PSNR against the clean one is compressed without loss."""


def page(gallery: Gallery) -> bytes:
    """Returns the gallery as a UTF-8 page."""
    environment = Environment(
        loader=PackageLoader(__package__, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["breakable"] = _breakable
    return (
        environment.get_template("page.html")
        .render(
            gallery=gallery,
            name=printable(gallery.source.name),
            sheet=sheet,
            layouts=TileLayout,
            sections=[(f"s{number}", section) for number, section in enumerate(gallery.sections, 1)],
            share=_share,
            urls=_encode_images(gallery),
            id=id,
        )
        .encode()
    )


def _share(tile: Tile, row: Row) -> float:
    """Returns the long side of a tile's result as a part of the longest in its row."""
    return max(tile.size) / max(max(other.size) for other in row.tiles) if tile.images else 1.0


def _breakable(setting: Any) -> Markup:
    """Returns a setting that may be broken before its level and after an underscore, where the screen is narrow."""
    text = str(escape(setting)).replace(":", "<wbr>:").replace("_", "_<wbr>").replace("+", "+<wbr>")
    return Markup(text)  # noqa: S704 - escaped above


def _encode_images(gallery: Gallery) -> dict[int, str]:
    """Returns for the ``id`` of each array of pixels its ``data:`` URL."""
    tiles = [gallery.clean, *(tile for section in gallery.sections for row in section.rows for tile in row.tiles)]
    details = [tile.detail for tile in tiles if tile.detail is not None]
    jobs = [(image, False) for tile in tiles for image in tile.images]
    jobs += [(detail, _faint(detail, gallery.clean.detail)) for detail in details]
    with ThreadPoolExecutor() as pool:
        urls = pool.map(_url, *zip(*jobs, strict=True))
        return {id(image): url for (image, _), url in zip(jobs, urls, strict=True)}


def _faint(detail: Image, clean: Image | None) -> bool:
    """Returns whether changes by compression could be mistaken for the effect."""
    return clean is not None and clean.shape == detail.shape and FAINT < psnr(detail, clean) < math.inf


def _url(image: Image, lossless: bool) -> str:
    """Returns a PNG or a JPEG of full chroma: WebP would be two thirds as large and take eight times as long to write."""
    cv2 = opencv()
    chroma = (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)
    kind, options = (
        ("png", (cv2.IMWRITE_PNG_COMPRESSION, 1)) if lossless else ("jpeg", (cv2.IMWRITE_JPEG_QUALITY, QUALITY, *chroma))
    )
    _, data = cv2.imencode(f".{kind}", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
