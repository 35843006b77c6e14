"""Measured: the parameters of perturbations, from the pixels of test images rather than from their declarations.

Each probe uses only a parameter's meaning in an image: the spread of noise on flat grey, the black share of a white page, the
slope of a ramp. Parameters without such a meaning, or hidden by several random steps, are not measured.
"""

from __future__ import annotations

import functools
import io
import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.estimate import Estimate

HEIGHT, WIDTH = 480, 640
LARGE = 1344
"""An image side beyond 640 x 480 pixels, where letters grow with the image."""
_SEED = 0
_MIDDLE = np.s_[HEIGHT // 3 : 2 * HEIGHT // 3, WIDTH // 3 : 2 * WIDTH // 3]

Array = NDArray[np.float64]
Image = NDArray[np.uint8]
Probe = Callable[[Callable[[Image], Image]], tuple[float, float]]
"""From a perturbation to the parameter and its tolerance: for rounding to levels and pixels, and for chance."""


def measured(perturbation: str, level: str) -> Estimate | None:
    """Returns a parameter measured in pixels, with the tolerance for rounding and chance; ``None`` if it cannot be measured."""
    if perturbation not in _PROBES:
        return None
    value, off = _PROBES[perturbation](functools.partial(perturbations.get(f"{perturbation}:{level}"), seed=_SEED))
    return Estimate(value, 0, value - off, value + off)


def font_sizes(perturbation: str, level: str) -> dict[str, int] | None:
    """Returns the font size by image size, from the extent of the letters in the image; ``None`` if it writes none."""
    if perturbation not in _LETTERS:
        return None
    text, degrees = _LETTERS[perturbation]
    change, sizes = perturbations.get(f"{perturbation}:{level}"), {}
    for height, width in ((HEIGHT, WIDTH), (LARGE, LARGE)):
        grey = _flat(96, height, width)
        seen = _extent(change(grey, seed=_SEED)[..., 0] > 150)
        sizes[f"{width} x {height}"] = min(range(8, 240), key=lambda size: abs(_letters(text, degrees, size) - seen))
    return sizes


def _extent(mask: NDArray[np.bool_]) -> int:
    """Returns the sum of height and width of the bounding box of the true pixels."""
    return sum(int(np.ptp(np.flatnonzero(mask.any(axis=axis)))) + 1 for axis in (0, 1))


@functools.cache
def _letters(text: str, degrees: float, size: int) -> int:
    """Returns the sum of height and width of letters in Pillow's typeface at a font size."""
    import PIL.Image
    import PIL.ImageDraw
    import PIL.ImageFont

    font = PIL.ImageFont.load_default(size)
    canvas = PIL.Image.new("L", (size * len(text), 2 * size))
    PIL.ImageDraw.Draw(canvas).text((0, 0), text, fill=255, font=font)
    turned = np.asarray(canvas.rotate(degrees, PIL.Image.Resampling.BILINEAR, expand=True))
    return _extent(turned > 255 * _SEEN)


_SEEN = (150 - 96) / (255 - 96)
"""The share of a pixel that white letters over 96 must cover to make it brighter than 150."""
_LETTERS: Mapping[str, tuple[str, float]] = {"text_overlay": ("SAMPLE TEXT", 0.0), "watermark": ("SAMPLE", 30.0)}


# The images.


def _flat(level: int, height: int = HEIGHT, width: int = WIDTH) -> Image:
    return np.full((height, width, 3), level, np.uint8)


def _ramp(low: int, high: int) -> Image:
    """Returns an image that brightens evenly from left to right."""
    row = np.rint(np.linspace(low, high, WIDTH)).astype(np.uint8)
    return np.repeat(np.tile(row, (HEIGHT, 1))[..., None], 3, axis=2)


def _grain(low: int, high: int) -> Image:
    """Returns an image of random colours."""
    return np.random.default_rng(0).integers(low, high + 1, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def _edge() -> Image:
    """Returns an image that is black to the left and white to the right."""
    picture = _flat(0)
    picture[:, WIDTH // 2 :] = 255
    return picture


def _slope(after: Array, before: Array) -> float:
    """Returns the slope of the line through the origin."""
    return float((after * before).sum() / (before * before).sum())


# The probes.


def _gaussian_noise(change: Callable[[Image], Image]) -> tuple[float, float]:
    variance = float(change(_flat(128)).astype(float).var()) - 1 / 12  # the variance of rounding to levels
    return math.sqrt(variance) / 255, 0.0005


def _shot_noise(change: Callable[[Image], Image]) -> tuple[float, float]:
    values = change(_flat(51)) / 255  # dark, so that no count exceeds white
    scale = float(values.mean() / values.var())
    return scale, 0.02 * scale


def _speckle_noise(change: Callable[[Image], Image]) -> tuple[float, float]:
    return float((change(_flat(100)) / 100).std()), 0.003


def _salt_pepper(change: Callable[[Image], Image]) -> tuple[float, float]:
    changed = (change(_flat(128)) != 128).all(axis=2)
    return float(changed.mean()), 4.0 * float(changed.std()) / math.sqrt(changed.size)


def _brightness(change: Callable[[Image], Image]) -> tuple[float, float]:
    before = _ramp(20, 100)
    return _slope(change(before).astype(float), before.astype(float)), 0.005


def _contrast(change: Callable[[Image], Image]) -> tuple[float, float]:
    before = _ramp(100, 156).astype(float)
    after = change(_ramp(100, 156)).astype(float)
    return _slope(after - after.mean(), before - before.mean()), 0.005


def _saturation(change: Callable[[Image], Image]) -> tuple[float, float]:
    before = _grain(110, 140)
    after, weights = change(before).astype(float), np.array([0.299, 0.587, 0.114])
    luma = (before @ weights)[..., None]
    return _slope(after - luma, before - luma), 0.01


def _gamma(change: Callable[[Image], Image]) -> tuple[float, float]:
    before = _ramp(80, 250)
    return _slope(np.log(np.maximum(change(before), 1) / 255), np.log(before / 255)), 0.01


def _hue(change: Callable[[Image], Image]) -> tuple[float, float]:
    import colorsys

    red, green, blue = change(np.full((HEIGHT, WIDTH, 3), (200, 40, 40), np.uint8))[0, 0].tolist()
    return 360 * colorsys.rgb_to_hsv(red / 255, green / 255, blue / 255)[0], 0.5


def _black_area(change: Callable[[Image], Image]) -> tuple[float, float]:
    return float((change(_flat(255)) == 0).mean()), 0.005


def _grid(change: Callable[[Image], Image]) -> tuple[float, float]:
    return _black_area(change)[0], 0.01  # the sides of its squares are whole pixels


def _black_sides(change: Callable[[Image], Image]) -> tuple[float, float]:
    return math.sqrt(_black_area(change)[0]), 0.005


def _border(change: Callable[[Image], Image]) -> tuple[float, float]:
    framed = change(_flat(255))
    black = (framed == 0).all(axis=2)
    width = int(np.argmin(black[:, framed.shape[1] // 2]))
    return float(width), 0.0


def _jpeg(change: Callable[[Image], Image]) -> tuple[float, float]:
    """The quality at which Pillow gives these pixels, or nearly so: builds of libjpeg differ by a level or two."""
    import PIL.Image

    before = np.ascontiguousarray(_grain(60, 200)[:64, :64])
    after = change(before).astype(float)

    def apart(quality: int) -> float:
        written = io.BytesIO()
        PIL.Image.fromarray(before).save(written, "JPEG", quality=quality, subsampling="4:2:0")
        return float(np.abs(np.asarray(PIL.Image.open(written)).astype(float) - after).mean())

    return float(min(range(1, 96), key=apart)), 0.0


def _pixelate(change: Callable[[Image], Image]) -> tuple[float, float]:
    after = change(_grain(0, 255))
    columns = 1 + int((after[:, 1:] != after[:, :-1]).any(axis=(0, 2)).sum())
    return columns / WIDTH, 0.5 / WIDTH


def _upsample(change: Callable[[Image], Image]) -> tuple[float, float]:
    before, places = _ramp(0, 255), np.arange(WIDTH, dtype=np.float64) - (WIDTH - 1) / 2
    scale = _slope(before.mean(axis=(0, 2)), places) / _slope(change(before).mean(axis=(0, 2)), places)
    return scale, 0.02 * scale  # whole pixels are cut off at the ends


def _sharpen(change: Callable[[Image], Image]) -> tuple[float, float]:
    """The factor applies to Pillow's smoothing kernel."""
    import PIL.Image
    import PIL.ImageFilter

    before = _grain(118, 138)
    smooth = np.asarray(PIL.Image.fromarray(before).filter(PIL.ImageFilter.SMOOTH)).astype(float)[_MIDDLE]
    return _slope(change(before)[_MIDDLE] - smooth, before[_MIDDLE] - smooth), 0.05


def _posterize(change: Callable[[Image], Image]) -> tuple[float, float]:
    return math.log2(len(np.unique(change(_ramp(0, 255))))), 0.0


def _solarize(change: Callable[[Image], Image]) -> tuple[float, float]:
    before = _ramp(0, 255)
    return float(before[change(before) != before].min()), 0.0


def _gaussian_blur(change: Callable[[Image], Image]) -> tuple[float, float]:
    """The weights of a Gaussian fall by exp(-k^2 / 2 sigma^2) within k pixels; an edge shows them as steps."""
    edges = _edge()
    edges[:, WIDTH // 2 :] = np.linspace(128, 255, HEIGHT).astype(np.uint8)[
        :, None, None
    ]  # over many levels rounding averages out
    steps = np.diff(change(edges)[..., 0].astype(float).mean(axis=0))[WIDTH // 2 - 1 :]
    distances = np.flatnonzero(steps > 0.1 * steps[0])
    return 1.0 / math.sqrt(
        _slope(2.0 * np.log(steps[0] / steps[distances]), distances.astype(float) ** 2)
    ), 0.05  # weights are 256ths


def _defocus(change: Callable[[Image], Image]) -> tuple[float, float]:
    row = change(_edge())[HEIGHT // 2, :, 0]
    return float(((row > 0) & (row < 255)).sum()) / 2, 0.0


def _motion(change: Callable[[Image], Image]) -> tuple[float, float]:
    point = _flat(0)
    point[HEIGHT // 2, WIDTH // 2] = 255
    return float((change(point)[..., 0] > 0).sum()), 0.0


def _angle(change: Callable[[Image], Image]) -> tuple[float, float]:
    """The direction in which the image of a left-to-right ramp brightens."""
    inside = change(_ramp(0, 255))[_MIDDLE][..., 0].astype(float)
    places = np.indices(inside.shape).reshape(2, -1).T
    (down, across), *_ = np.linalg.lstsq(places - places.mean(axis=0), (inside - inside.mean()).ravel(), rcond=None)
    return abs(math.degrees(math.atan2(down, across))), 0.2


_PROBES: Mapping[str, Probe] = {
    "gaussian_blur": _gaussian_blur,
    "motion_blur": _motion,
    "defocus_blur": _defocus,
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "speckle_noise": _speckle_noise,
    "salt_pepper": _salt_pepper,
    "jpeg_compression": _jpeg,
    "pixelate": _pixelate,
    "rotate": _angle,
    "shear": _angle,
    "affine": _angle,
    "brightness": _brightness,
    "brightness_up": _brightness,
    "contrast": _contrast,
    "contrast_up": _contrast,
    "saturation": _saturation,
    "saturation_up": _saturation,
    "gamma": _gamma,
    "gamma_up": _gamma,
    "hue_shift": _hue,
    "random_occlusion": _black_area,
    "grid_mask": _grid,
    "center_occlusion": _black_sides,
    "upsample": _upsample,
    "sharpen": _sharpen,
    "posterize": _posterize,
    "solarize": _solarize,
    "add_border": _border,
}
