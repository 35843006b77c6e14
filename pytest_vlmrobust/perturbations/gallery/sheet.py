"""The content of a gallery: settings by category, each as a small image with facts, and its distance from the clean one."""

from __future__ import annotations

import functools
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import CLEAN_NAME, Setting
from pytest_vlmrobust.core.errors import ImageError, VlmRobustError, did_you_mean, files_beside
from pytest_vlmrobust.core.words import printable, quantity
from pytest_vlmrobust.files.pictures import FORMATS, open_picture
from pytest_vlmrobust.perturbations.catalog import fingerprint, info, records
from pytest_vlmrobust.perturbations.pixels import Image, Plane, luma, opencv
from pytest_vlmrobust.perturbations.registry import aspects
from pytest_vlmrobust.perturbations.rendering import Renderer, as_rgb, get

if TYPE_CHECKING:
    import PIL.Image


PEAK = 255.0
SIGMA = 1.5
WINDOW = 11
SHORTER_SIDE = 256
"""Pixels of the shorter side, about, of the reduced images that SSIM compares."""
C1 = (0.01 * PEAK) ** 2
C2 = (0.03 * PEAK) ** 2


def psnr(image: Image, clean: Image) -> float:
    """Returns the peak signal-to-noise ratio in dB: ``10 log10(255**2 / mse)``, the mean taken over pixels and channels.

    Both are uint8 of shape (H, W, 3). Identical images give infinity.
    """
    _same_shape(image.shape, clean.shape)
    total = float(opencv().norm(image, clean, opencv().NORM_L2SQR))
    return 10.0 * math.log10(PEAK**2 * image.size / total) if total else math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The inputs of SSIM: the reduced luma of an image, with mean and variance of the window around each pixel."""

    size: tuple[int, int]
    """Height and width of the image before it was reduced."""
    luma: Plane
    mean: Plane
    variance: Plane


def structure(image: Image) -> Structure:
    """Returns the structure of an image, uint8, shape (H, W, 3), reduced to about :data:`SHORTER_SIDE` pixels.

    Reduced like in the program of Wang et al.: by averaging squares of ``f`` x ``f`` pixels, with ``f`` the shorter side over
    256, rounded, and at least 1. The index is meant for viewing an image as a whole.
    """
    grey = luma(image)
    height, width = grey.shape
    factor = max(1, round(min(height, width) / SHORTER_SIDE))
    if factor > 1:
        rows, columns = height // factor, width // factor  # whole squares only: OpenCV averages these seven times as fast
        grey = opencv().resize(grey[: rows * factor, : columns * factor], (columns, rows), interpolation=opencv().INTER_AREA)
    plane = grey.astype(np.float32)
    mean = _window_mean(plane)
    return Structure((height, width), plane, mean, _window_mean(plane * plane) - mean * mean)


def ssim(first: Structure, second: Structure) -> float:
    """Returns the mean structural similarity of the luma of two images, in [-1, 1]; 1 if identical.

    Wang, Bovik, Sheikh & Simoncelli 2004, equation 13, with their constants: a Gaussian window of 11 x 11 pixels with a standard
    deviation of 1.5, K1 = 0.01, K2 = 0.03. As in their program, the mean is over windows that lie inside the image; an image
    smaller than the window is mirrored at its borders. Luma is BT.601, so a pure change of colour does not show.
    """
    _same_shape(first.size, second.size)
    covariance = _window_mean(first.luma * second.luma) - first.mean * second.mean
    likeness = (2.0 * first.mean * second.mean + C1) * (2.0 * covariance + C2)
    likeness /= (first.mean * first.mean + second.mean * second.mean + C1) * (first.variance + second.variance + C2)
    return float(_inside(likeness).mean())


def resize_image(image: Image, height: int, width: int) -> Image:
    """Returns ``image`` at another size: shrunk by averaging areas, or enlarged bicubically."""
    if image.shape[:2] == (height, width):
        return image
    cv2 = opencv()
    shrinks = height <= image.shape[0] and width <= image.shape[1]
    other: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_CUBIC)
    return other


def _window_mean(field: Plane) -> Plane:
    """Returns the Gaussian-weighted mean around each pixel."""
    cv2 = opencv()
    mean: Plane = cv2.GaussianBlur(field, (WINDOW, WINDOW), SIGMA, borderType=cv2.BORDER_REFLECT)
    return mean


def _inside(field: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    edge = WINDOW // 2
    return field[edge:-edge, edge:-edge] if min(field.shape) >= WINDOW else field


def _same_shape(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    if first != second:
        raise ValueError(f"got images of shapes {first} and {second}. Expected the same shape: resize one of them")


# The image of a gallery, from a file.


EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True, eq=False)
class CleanImage:
    """A clean image, its name, and remarks on how the file was read."""

    name: str
    image: Image
    """uint8 RGB, shape (H, W, 3)."""
    remarks: tuple[str, ...] = ()


def read_image(path: Path) -> CleanImage:
    """Returns the image in a file of a format that is opened here: turned as its EXIF data says, the first frame of several."""
    import PIL.Image

    if not path.is_file():
        problem = "a directory" if path.is_dir() else "no such file"
        hint = did_you_mean(str(path), files_beside(path))
        raise ImageError(f"{path}: {problem}.{hint} Expected an image: {', '.join(FORMATS)}")
    try:
        with warnings.catch_warnings():
            # Pillow only warns about a suspiciously large image, and would fill the memory
            warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
            with open_picture(path) as opened:
                return _source(path.name, opened)
    except Exception as error:  # decoders may raise any error for damaged files
        raise ImageError(
            f"{path}: cannot be read as an image ({type(error).__name__}: {error}). "
            f"Expected a complete file: {', '.join(FORMATS)}"
        ) from error


def _source(name: str, opened: PIL.Image.Image) -> CleanImage:
    import PIL.ImageOps

    remarks = []
    frames = getattr(opened, "n_frames", 1)
    if frames > 1:
        remarks.append(f"the first of {frames} frames")
    if opened.getexif().get(EXIF_ORIENTATION, 1) != 1:
        remarks.append("turned as its EXIF data says")
    return CleanImage(name, as_rgb(PIL.ImageOps.exif_transpose(opened)), tuple(remarks))


COMPOSED = "Compositions"
PIXELS_AT_ONCE = 24_000_000
"""Most pixels that all threads work on together; each needs about fifty bytes."""


class TileLayout(Enum):
    """The layout of a section's tiles; sections are ordered by layout."""

    TILES = "tiles"
    """Images of equal width."""
    VIEWS = "views"
    """The views of an image in a grid, in reading order."""
    SIZES = "sizes"
    """Images at their true relative sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A setting: its reduced images, and the facts about them at full size."""

    setting: str
    parameters: str
    version: str
    size: tuple[int, int] = (0, 0)
    """Height and width in pixels of the result, or of each of its views; (0, 0) without a result."""
    images: tuple[Image, ...] = ()
    """The result, or its views; empty if it was refused."""
    detail: Image | None = None
    """The centre of the result at full resolution; ``None`` if the image shows it already."""
    psnr: float = math.nan
    """In dB, against the clean image; a result of another size is resized first; NaN for views."""
    ssim: float = math.nan
    flags: tuple[str, ...] = ()
    """Declared facts about the setting: "random", "changes the answer about colour"."""
    notes: tuple[str, ...] = ()
    """Limits of the setting on this image, or why there is no result."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A perturbation at its levels."""

    name: str
    about: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """The perturbations of a category."""

    heading: str
    layout: TileLayout
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Gallery:
    """Everything a contact sheet shows."""

    source: CleanImage
    clean: Tile
    sections: tuple[Section, ...]
    seed: int
    tile: int
    """Width of a tile in pixels."""

    @property
    def count(self) -> int:
        """The number of settings."""
        return sum(len(row.tiles) for section in self.sections for row in section.rows)


Progress = Callable[[int, int], None]
"""Called with the number of finished tiles and the total."""


def gallery(
    source: CleanImage, settings: Iterable[str], *, seed: int, tile: int, progress: Progress = lambda _made, _of: None
) -> Gallery:
    """Returns the gallery of an image under some settings, applied at full size.

    A setting that refuses the image, or lacks a package, is shown with the reason instead of an image. ``tile`` is the width of
    an image in pixels, at least 2.
    """
    clean = get(CLEAN_NAME)
    clean(source.image, seed=seed)
    renderers = [get(setting) for setting in dict.fromkeys(settings)]
    shown = functools.partial(_tile, clean=_Clean(source.image, structure(source.image)), seed=seed, width=tile)
    tiles = []
    with ThreadPoolExecutor(_workers(source.image)) as pool:
        for made in pool.map(shown, [clean, *renderers]):
            tiles.append(made)
            progress(len(tiles), 1 + len(renderers))
    first, *tiles = tiles
    return Gallery(source, first, _sections(tiles), seed, tile)


def layout(setting: str) -> TileLayout:
    """Returns the layout of a setting from its record, which also works for a user's perturbation."""
    steps = records(Setting.parse(setting))
    if steps[-1][0].views:
        return TileLayout.VIEWS
    (record, _), *more = steps
    return TileLayout.SIZES if record.numbered and not record.keeps_size and not more else TileLayout.TILES


def fit_image(image: Image, width: int, height: int) -> Image:
    """Returns ``image`` reduced to fit ``width`` x ``height``; smaller images are enlarged by whole factors."""
    scale: float = min(width / image.shape[1], height / image.shape[0])
    if scale >= 1.0:
        return image.repeat(int(scale), axis=0).repeat(int(scale), axis=1)
    return shrink_image(image, scale)


def shrink_image(image: Image, scale: float) -> Image:
    """Returns ``image`` with sides ``scale`` times as long, at least a pixel, by averaging areas; ``scale`` is at most 1."""
    cv2 = opencv()
    height, width = (max(1, round(side * scale)) for side in image.shape[:2])
    small: Image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    return small


def _workers(image: Image) -> int:
    height, width = image.shape[:2]
    return max(1, min(os.cpu_count() or 1, 8, PIXELS_AT_ONCE // int(height * width)))


@dataclass(frozen=True, slots=True, eq=False)
class _Clean:
    """The clean image, with cached data for comparisons."""

    image: Image
    structure: Structure


def _tile(renderer: Renderer, *, clean: _Clean, seed: int, width: int) -> Tile:
    setting = str(renderer.setting)
    tile_of = functools.partial(Tile, setting, _parameters(setting), _version(setting), flags=_flags(setting))
    try:
        rendering = renderer.render(clean.image, seed=seed)
    except VlmRobustError as refusal:
        return tile_of(notes=(f"not shown: {refusal}",))
    notes = tuple(note.removeprefix(f"{setting}: ") for note in rendering.notes)
    tile_of = functools.partial(tile_of, notes=notes)
    if rendering.image.ndim == 4:
        return tile_of(size=rendering.image.shape[1:3], images=_views(rendering.image, width))
    return _compare_tile(tile_of, rendering.image, clean, layout(setting), width)


def _compare_tile(tile_of: functools.partial[Tile], image: Image, clean: _Clean, drawn: TileLayout, width: int) -> Tile:
    same = resize_image(image, *clean.image.shape[:2])
    psnr_of, ssim_of = psnr(same, clean.image), ssim(structure(same), clean.structure)
    if drawn is TileLayout.SIZES:
        small, detail = shrink_image(image, min(1.0, 2 * width / max(image.shape[:2]))), None
    else:
        small, detail = fit_image(image, width, 2 * width), _centre(image, width // 2)
    return tile_of(size=image.shape[:2], images=(small,), detail=detail, psnr=psnr_of, ssim=ssim_of)


def _views(views: Image, width: int) -> tuple[Image, ...]:
    """Returns the views, reduced so that a row of their grid is two tiles wide."""
    scale = min(1.0, 2 * width / (columns(len(views)) * max(views.shape[1:3])))
    return tuple(shrink_image(view, scale) for view in views)


def columns(views: int) -> int:
    """Returns how many columns the grid of some views has: n for n x n of them."""
    return math.isqrt(views - 1) + 1


def _centre(image: Image, side: int) -> Image | None:
    height, width = image.shape[:2]
    tall, wide = min(height, side), min(width, side)
    if (tall, wide) == (height, width):
        return None
    tall = min(tall, max(1, round(wide * height / width)))
    top, left = (height - tall) // 2, (width - wide) // 2
    return image[top : top + tall, left : left + wide].copy()  # a view would keep the whole result in memory


def _sections(tiles: Sequence[Tile]) -> tuple[Section, ...]:
    rows_by_section: dict[tuple[TileLayout, str], dict[str, list[Tile]]] = {}
    for tile in tiles:
        steps = Setting.parse(tile.setting).steps
        heading = info(tile.setting).category if len(steps) == 1 else COMPOSED
        rows = rows_by_section.setdefault((layout(tile.setting), heading), {})
        rows.setdefault(Setting(steps).name, []).append(tile)
    return tuple(
        Section(heading, drawn, tuple(Row(name, _about(tiles[0].setting), tuple(tiles)) for name, tiles in rows.items()))
        for drawn in TileLayout
        for (its, heading), rows in rows_by_section.items()
        if its is drawn
    )


def _about(setting: str) -> str:
    sentences = [record.doc.partition("\n")[0] for record, _ in records(Setting.parse(setting))]
    return " Then: ".join(sentences).replace("``", "")


def _parameters(setting: str) -> str:
    steps = [", ".join(f"{key}={value}" for key, value in step["params"].items()) for step in fingerprint(setting)]
    return "; ".join(step for step in steps if step)


def _version(setting: str) -> str:
    return "+".join(str(step["version"]) for step in fingerprint(setting))


def _flags(setting: str) -> tuple[str, ...]:
    setting_info = info(setting)
    changed = f"changes the answer about {', '.join(aspects(setting_info.label_changing))}" if setting_info.label_changing else ""
    return tuple(flag for flag in ("random" if setting_info.stochastic else "", changed) if flag)


# The text of a gallery.


LEGEND = (
    "PSNR is over all channels, in dB, at full size; SSIM (Wang et al. 2004) is on luma, so a change of colour alone does not "
    "lower it, and on images reduced to a shorter side of about 256 pixels. Both compare with the clean image; a result of "
    "another size is resized to it before. Random perturbations look different with every seed; v is the version of the pixels."
)
SHEETS = {
    TileLayout.TILES: "Settings",
    TileLayout.VIEWS: "Patches",
    TileLayout.SIZES: "Sizes",
}
ABOUT_SHEETS = {
    TileLayout.TILES: "",
    TileLayout.VIEWS: "Each part is an image of its own; the numbers give the order.",
    TileLayout.SIZES: "Within a row, images are drawn at their true relative size.",
}


def title(gallery: Gallery) -> str:
    """Returns the title of the page."""
    return f"{printable(gallery.source.name)} under {quantity(gallery.count, 'setting')}"


def header(gallery: Gallery) -> Iterator[str]:
    """Yields facts about the clean image, and the versions and the seed that decide all other pixels."""
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
    if len(tile.images) > 1:
        yield f"{len(tile.images)} views of {pixels(tile)}"
    elif tile.images:
        if tile.size != clean.size or layout(tile.setting) is TileLayout.SIZES:
            yield pixels(tile)
        yield quality(tile.psnr, tile.ssim) + (", resized" if tile.size != clean.size else "")


def quality(psnr: float, ssim: float) -> str:
    """Returns both numbers as text, or that images are identical."""
    return "identical (SSIM 1)" if math.isinf(psnr) else f"PSNR {psnr:.1f} dB, SSIM {ssim:z.3f}"


def pixels(tile: Tile) -> str:
    """Returns the size of a result."""
    height, width = tile.size
    return f"{width} x {height} pixels"
