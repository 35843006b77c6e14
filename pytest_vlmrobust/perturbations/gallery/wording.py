"""The words of a gallery: the same in every format."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.printing import printable

from ..opencv import opencv
from .sheet import Gallery, Layout, Tile, layout

LEGEND = (
    "PSNR is over all channels, in dB; SSIM is on luma (Wang et al. 2004), so a change of colour alone does not lower it. Both "
    "compare with the clean picture at full size; a result of another size is resized to it before. Random perturbations "
    "have another look with every seed; v is the version of the pixels."
)
SHEETS = {
    Layout.TILES: "Settings",
    Layout.VIEWS: "Patches",
    Layout.SIZES: "Sizes",
}
ABOUT_SHEETS = {
    Layout.TILES: "",
    Layout.VIEWS: "Each part is a picture of its own; the numbers give the order.",
    Layout.SIZES: "Within a row, pictures are drawn at their true relative size.",
}


def title(gallery: Gallery) -> str:
    """Returns what the page is called."""
    return f"{printable(gallery.source.name)} under {quantity(gallery.count, 'setting')}"


def header(gallery: Gallery) -> Iterator[str]:
    """Yields what is known about the clean picture, and what the pixels of all others depend on."""
    yield pixels(gallery.clean)
    yield from gallery.source.remarks
    yield f"seed {gallery.seed}"
    yield f"NumPy {np.__version__}"
    yield f"OpenCV {opencv().__version__}"


def facts(tile: Tile, clean: Tile) -> Iterator[str]:
    """Yields the lines below a tile's setting; its notes are not among them."""
    if tile.parameters:
        yield tile.parameters
    yield ", ".join((f"v{tile.version}", *tile.flags))
    if len(tile.pictures) > 1:
        yield f"{len(tile.pictures)} views of {pixels(tile)}"
    elif tile.pictures:
        if tile.size != clean.size or layout(tile.setting) is Layout.SIZES:
            yield pixels(tile)
        yield quality(tile.psnr, tile.ssim) + (", resized" if tile.size != clean.size else "")


def quality(psnr: float, ssim: float) -> str:
    """Returns both numbers as they are printed; identical pictures are called so."""
    return "identical (SSIM 1)" if math.isinf(psnr) else f"PSNR {psnr:.1f} dB, SSIM {ssim:z.3f}"


def pixels(tile: Tile) -> str:
    """Returns the size of a result."""
    height, width = tile.size
    return f"{width} x {height} pixels"
