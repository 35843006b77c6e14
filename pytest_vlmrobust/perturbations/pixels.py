"""Arithmetic on pixels that several families share: rounding, tables, blending, smooth noise."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import MissingExtra, VlmRobustError
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import ImageSource

# Imports OpenCV, or raises an error that says how to install it.


WITHOUT_DESKTOP = "pip install --force-reinstall --no-deps opencv-python-headless"
"""Replaces any build of OpenCV by the one that needs no desktop. All builds share the folder ``cv2``: removing one removes
files of the other."""


class BrokenOpenCV(MissingExtra):
    """OpenCV is installed and cannot be loaded, mostly because a shared library of the desktop is absent."""

    __module__ = "pytest_vlmrobust"

    def __init__(self, reason: ImportError) -> None:
        VlmRobustError.__init__(
            self,
            f"perturbations need OpenCV, and its import failed: {reason}. On a machine without a desktop either install the "
            f"missing libraries (apt-get install libgl1 libglib2.0-0) or the build that does not need them ({WITHOUT_DESKTOP})",
        )


@functools.cache
def opencv() -> Any:
    """Returns the module ``cv2``."""
    try:
        return importlib.import_module("cv2")
    except ModuleNotFoundError as error:
        if error.name != "cv2":
            raise BrokenOpenCV(error) from error
        raise MissingExtra("perturbing an image", "cv2", install="opencv-python") from error
    except ImportError as error:
        raise BrokenOpenCV(error) from error


Image = NDArray[np.uint8]
"""RGB pixels, shape (H, W, 3)."""
Plane = NDArray[np.float32]
"""A number per pixel, shape (H, W)."""
Levels = NDArray[np.uint8]
"""A level per pixel, shape (H, W)."""
Color = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Painted:
    """An image that is painted on when loaded, used by perturbations of questions."""

    image: ImageSource
    paint: Callable[..., Image]
    """``(image, **facts) -> image``, a function of a module: the same bytes from the same pixels and facts."""
    facts: Mapping[str, int | float | str]
    version: int = 1
    """Increased whenever ``paint`` gives other pixels for the same facts."""

    def load(self) -> Image:
        """Returns RGB pixels, uint8, shape (H, W, 3)."""
        return self.painted(self.image.load())

    def painted(self, image: Image) -> Image:
        """Returns a painted copy of the pixels."""
        return np.ascontiguousarray(self.paint(image, **self.facts))

    def identity(self) -> str:
        """Returns the identity of all inputs of the pixels."""
        name = f"{self.paint.__module__}.{self.paint.__qualname__}"
        return fingerprint(["painted", name, self.version, dict(self.facts), self.image.identity()])


BLACK: Color = (0, 0, 0)

ALL_LEVELS = np.arange(256, dtype=np.uint8)
ALL_LEVELS.flags.writeable = False

STRIP_PIXELS = 1 << 15
_EXACT = 1 << 24
"""Histograms of OpenCV are 32-bit floats, which are exact up to this number."""


def to_uint8(values: NDArray[np.float32]) -> Image:
    """Returns ``values`` rounded to the nearest level and clipped to 0..255; truncation would darken by half a level."""
    rounded: Image = opencv().addWeighted(values, 1.0, values, 0.0, 0.0, dtype=opencv().CV_8U)
    return rounded


def extrapolate(image: Image, towards: Image, factor: float) -> Image:
    """Returns ``towards + factor * (image - towards)``, rounded and clipped: 1 keeps ``image``, 0 gives ``towards``."""
    mixed: Image = opencv().addWeighted(image, factor, towards, 1.0 - factor, 0.0)
    return mixed


def look_up(image: Image, curve: NDArray[Any]) -> Image:
    """Returns ``image`` through a curve of 256 output levels, in 0..255 after rounding and clipping.

    ``curve`` has shape (256,), or (256, 3) for one curve per channel.
    """
    table = as_table(curve)
    if table.ndim == 1:
        return translate(image.copy(), table)
    return look_up_channels(opencv().split(image), [*np.ascontiguousarray(table.T)])


def as_table(curve: NDArray[Any]) -> NDArray[np.uint8]:
    """Returns ``curve`` rounded and clipped to 0..255."""
    table: NDArray[np.uint8] = np.clip(np.rint(curve), 0, 255).astype(np.uint8)
    return table


@functools.lru_cache(maxsize=256)
def ramp(slope: float, top: float = 255.0) -> NDArray[np.uint8]:
    """Returns the table ``slope * level``, rounded and at most ``top``; read-only."""
    table = as_table(np.minimum(slope * ALL_LEVELS, top))
    table.flags.writeable = False
    return table


def look_up_channels(channels: Sequence[Levels], tables: Sequence[Levels]) -> Image:
    """Returns an image of three channels, each through its table of 256 levels; the channels are overwritten."""
    # faster than a table of three columns
    mapped: Image = opencv().merge([translate(*pair) for pair in zip(channels, tables, strict=True)])
    return mapped


def pointwise(image: Image, change: Callable[[Image], Image]) -> Image:
    """Returns ``change(image)`` for a change that maps each value independently.

    With stringzilla the change is applied to the 256 levels and the image looked up: the same bytes, faster.
    """
    if fast_translate() is None:
        return change(image)
    return translate(image.copy(), change(ALL_LEVELS[None, :, None]).ravel())


def translate(values: NDArray[np.uint8], table: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns ``values``, contiguous, through a table of 256 levels; they may be overwritten."""
    fast = fast_translate()
    if fast is None:
        mapped: NDArray[np.uint8] = opencv().LUT(values, table)
        return mapped
    fast(memoryview(values), memoryview(table), inplace=True)  # type: ignore[arg-type]  # an array is a buffer
    return values


@functools.cache
def fast_translate() -> Callable[..., None] | None:
    """Returns stringzilla's table look-up, five times as fast as OpenCV's, or ``None`` if it is not installed.

    Both give the same bytes.
    """
    try:
        module = importlib.import_module("stringzilla")
    except ImportError:
        return None
    look_up: Callable[..., None] = module.translate
    return look_up


def histogram(levels: Levels) -> NDArray[np.int64]:
    """Returns the number of pixels per level; OpenCV counts three times as fast as NumPy, and exactly up to 2^24."""
    values = levels.reshape(1, -1)
    counts = np.zeros(256, np.int64)
    for start in range(0, levels.size, _EXACT):
        part = values[:, start : start + _EXACT]
        counts += opencv().calcHist([part], [0], None, [256], [0, 256]).ravel().astype(np.int64)
    return counts


def luma(image: Image) -> NDArray[np.uint8]:
    """Returns the brightness of each pixel by ITU-R BT.601 (0.299 R + 0.587 G + 0.114 B), rounded, shape (H, W)."""
    grey: NDArray[np.uint8] = opencv().cvtColor(image, opencv().COLOR_RGB2GRAY)
    return grey


def as_grey(image: Image) -> Image:
    """Returns ``image`` with its luma in all three channels."""
    grey: Image = opencv().cvtColor(luma(image), opencv().COLOR_GRAY2RGB)
    return grey


def three(plane: Plane) -> NDArray[np.float32]:
    """Returns ``plane`` repeated in three channels, shape (H, W, 3): whole-array arithmetic is faster than broadcasting."""
    repeated: NDArray[np.float32] = opencv().cvtColor(plane, opencv().COLOR_GRAY2RGB)
    return repeated


def strips(height: int, width: int) -> Iterator[slice]:
    """Yields strips of rows whose floats fit into the caches, for pixelwise arithmetic."""
    step = max(1, STRIP_PIXELS // width)
    for start in range(0, height, step):
        yield slice(start, start + step)


def blend(image: Image, layer: NDArray[Any] | Color, opacity: Plane) -> Image:
    """Returns ``layer`` laid over ``image`` with an opacity in [0, 1] per pixel."""
    cv2 = opencv()
    result = np.empty_like(image)
    for rows in strips(*opacity.shape):
        mixed = _difference(image[rows], layer if isinstance(layer, tuple) else layer[rows])
        mixed *= three(opacity[rows])
        mixed = cv2.accumulate(image[rows], mixed)
        cv2.convertScaleAbs(mixed, dst=result[rows])  # nothing between two colours is negative
    return result


def overlay(image: Image, colour: Color, opacity: Levels) -> Image:
    """Returns ``colour`` laid over ``image`` with an opacity of 255ths per pixel: within 1.5 levels of :func:`blend`, sooner."""
    cv2 = opencv()
    kept = cv2.multiply(image, cv2.cvtColor(~opacity, cv2.COLOR_GRAY2RGB), scale=1 / 255)
    added = look_up_channels([opacity.copy() for _ in colour], [ramp(share / 255) for share in colour])
    mixed: Image = cv2.add(kept, added, dst=kept)
    return mixed


def _difference(image: Image, layer: NDArray[Any] | Color) -> NDArray[np.float32]:
    """Returns ``layer - image``; a colour is subtracted in whole rows, because arithmetic on three values at a time is slow."""
    difference = image.astype(np.float32, order="C")
    if isinstance(layer, tuple):
        rows = difference.reshape(len(image), -1)
        np.subtract(np.tile(np.array(layer, np.float32), image.shape[1]), rows, out=rows)
    else:
        np.subtract(np.asarray(layer, np.float32), difference, out=difference)
    return difference


def scene_unit(height: int, width: int) -> float:
    """Returns the length in pixels, at least 1, that is 1/400 of an image's size (the root of its area).

    Weather is as large as the scene it falls in, so its textures scale with the image.
    """
    return max(1.0, float(np.sqrt(height * width)) / 400.0)


def scene_share(height: int, width: int) -> float:
    """Returns how much of a scene of 400 x 400 units an image shows, in (0, 1]: all of it, unless a unit is a pixel already."""
    return min(1.0, height * width / 400.0**2)


def smooth_noise(
    rng: np.random.Generator, height: int, width: int, *, cell: float, octaves: int = 1, decay: float = 0.5
) -> Plane:
    """Returns a cloudy field with values in [0, 1], shape (height, width).

    It sums ``octaves`` layers of random values on square grids: the first with cells of ``cell`` pixels (of whatever fits the
    image nearest), each next with half the cell, down to a pixel, and ``decay`` times the weight. The sum so far is enlarged
    to each next grid, and in the end to the image, by cubic interpolation.
    """
    cv2 = opencv()
    total = np.zeros((1, 1), np.float32)
    for octave in range(octaves):
        size = max(cell / 2**octave, 1.0)
        grid = rng.random((max(1, round(height / size)), max(1, round(width / size))), dtype=np.float32)
        grid *= decay**octave
        total = cv2.add(grid, cv2.resize(total, grid.shape[::-1], interpolation=cv2.INTER_CUBIC))
    return stretch(cv2.resize(total, (width, height), interpolation=cv2.INTER_CUBIC))


def stretch(field: Plane) -> Plane:
    """Returns ``field`` moved and scaled to [0, 1]; 0.5 everywhere when it is constant."""
    low, high = float(field.min()), float(field.max())
    if high <= low:
        return np.full_like(field, 0.5)
    result: Plane = field - low
    result /= high - low
    return result
