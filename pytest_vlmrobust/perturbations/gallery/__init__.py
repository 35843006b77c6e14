"""A gallery: an image under many settings, on a single page for display and print.

    show(Path("photo.jpg"), Path("gallery.html"))   # the default sets
    show(Path("photo.jpg"), Path("fog.html"), settings=["fog:mid+jpeg_compression:high"])

``sheet`` reads the image, says what is shown, and measures. The page has no script and needs no network; it is light
and dark, for wide and narrow screens and for print.
"""

from __future__ import annotations

import base64
import math
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED
from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.perturbations.catalog import names
from pytest_vlmrobust.perturbations.pixels import Image, opencv
from pytest_vlmrobust.perturbations.rendering import get

from . import sheet
from .sheet import Gallery, Progress, Row, Tile, TileLayout, gallery, psnr, read_image

DEFAULT_SETS = ("robustbench", "patches", "resolution", "observatory_id", "observatory_ood")
TILE = 200
TILES = range(64, 401)
"""Allowed widths of a tile in pixels: captions limit the lower end, memory and file size the upper."""
QUALITY = 82
FAINT = 30.0
"""A detail with a higher PSNR against the clean one is stored losslessly."""


def show(
    image: Path,
    out: Path,
    *,
    sets: Sequence[str] = (),
    settings: Sequence[str] = (),
    seed: int = AUGMENTATION_SEED,
    tile: int = TILE,
    progress: Progress = lambda _made, _of: None,
) -> Gallery:
    """Writes a gallery of an image file as an HTML page, atomically, and returns it.

    Without ``sets`` and ``settings`` it shows :data:`DEFAULT_SETS`. ``tile`` is the width of an image in pixels, 64 to 400.
    """
    if out.suffix.lower() != ".html":
        raise UsageError(f"{out}: no format is called {out.suffix!r}. Expected a name that ends in .html (a browser prints it)")
    if out.is_dir():
        raise UsageError(f"{out}: is a directory. Expected the name of a file to write")
    if tile not in TILES:
        raise UsageError(f"tile: got {tile}. Expected a width of {TILES.start} to {TILES.stop - 1} pixels")
    chosen = _choose_settings(sets or (() if settings else DEFAULT_SETS), settings)
    source = read_image(image)
    try:
        # opened first, so that a path that cannot be written fails before the work is done
        with tempfile.TemporaryDirectory(prefix=".", dir=out.parent) as directory:
            temporary = Path(directory, out.name)
            result = gallery(source, chosen, seed=seed, tile=tile, progress=progress)
            temporary.write_bytes(page(result))
            temporary.replace(out)
    except OSError as error:
        raise UsageError(
            f"{out}: cannot be written: {error.strerror or error}. Expected a file in a directory that exists and is yours"
        ) from error
    return result


def _choose_settings(sets: Sequence[str], settings: Sequence[str]) -> list[str]:
    chosen = [setting for name in sets for setting in names(name)]
    for setting in settings:
        get(setting)  # refuses misspelt names first
        chosen.append(setting)
    if not chosen:
        raise UsageError(f"nothing to show: {', '.join(map(repr, sets))} has no settings yet")
    return chosen


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
