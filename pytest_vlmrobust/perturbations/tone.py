"""Tone: brightness, contrast and colour; and the binary transforms. Only the flips move pixels.

Factors work like in Pillow's ``ImageEnhance``: 0 gives black, flat grey or greyscale, 1 keeps the image, more exaggerates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .pixels import Image, as_grey, as_table, extrapolate, histogram, look_up_channels, luma, opencv, pointwise, translate
from .registry import corruption, graded

LEVELS = np.arange(256, dtype=np.float64)

STRIP = 64
"""Rows that are shifted in hue at a time."""

WIDEST_JITTER = 0.5
"""The range of ``color_jitter:high``, for which factors are drawn."""


_tone = partial(corruption, family="tone", source="VLM-RobustBench Table 29")


@_tone(levels=graded(factor=(0.7, 0.3, 0.1)), changes={"mid": ["colour"], "high": ["colour"]}, version=2)
@_tone(name="brightness_up", levels=graded(factor=(1.3, 1.7, 2.5)), changes={"mid": ["colour"], "high": ["colour"]}, version=2)
def brightness(image: Image, *, factor: float) -> Image:
    """Multiplies every value by ``factor``."""
    return pointwise(image, lambda values: opencv().convertScaleAbs(values, alpha=factor))


@_tone(levels=graded(factor=(0.7, 0.3, 0.1)), changes=["colour"], version=2)
@_tone(name="contrast_up", levels=graded(factor=(1.3, 1.8, 3.0)), changes={"mid": ["colour"], "high": ["colour"]}, version=2)
def contrast(image: Image, *, factor: float) -> Image:
    """Multiplies the distance of every value from the image's mean luma by ``factor``.

    One mean for all channels, like in Pillow: a mean per channel would also shift colours.
    """
    grey = luma(image)
    mean = opencv().sumElems(grey)[0] / grey.size
    return pointwise(image, lambda values: opencv().addWeighted(values, factor, values, 0.0, (1.0 - factor) * mean))


@_tone(levels=graded(factor=(0.5, 0.1, 0.0)), changes=["colour"])
@_tone(name="saturation_up", levels=graded(factor=(1.5, 2.5, 4.0)), changes={"high": ["colour"]})
def saturation(image: Image, *, factor: float) -> Image:
    """Multiplies the distance of every pixel from its own luma by ``factor``; 0 equals ``grayscale``, byte for byte.

    At half the saturation, half of the colours of a chart are nearer to another basic colour; see
    ``studies/declarations``.
    """
    return extrapolate(image, as_grey(image), factor)


@_tone(levels=graded(factor=(0.7, 0.4, 0.2)), changes=["colour"])
@_tone(name="gamma_up", levels=graded(factor=(1.3, 2.0, 3.0)), changes={"mid": ["colour"], "high": ["colour"]})
def gamma(image: Image, *, factor: float) -> Image:
    """Raises every value, in [0, 1], to the power ``factor``: below 1 brightens, above 1 darkens."""
    return translate(image.copy(), _gamma_table(factor))


@functools.lru_cache(maxsize=32)
def _gamma_table(factor: float) -> NDArray[np.uint8]:
    return as_table(255.0 * (LEVELS / 255.0) ** factor)


@_tone(levels=graded(degrees=(10, 40, 90)), changes={"mid": ["colour"], "high": ["colour"]}, version=2)
def hue_shift(image: Image, *, degrees: float) -> Image:
    """Adds ``degrees`` to the hue in HSV, from red towards yellow.

    The paper gives no sign; more hue is the positive direction of every library. 10 degrees leave colours their names.

    In floating point: 8-bit HSV keeps hue in steps of 2 degrees and loses levels on the way back.
    """
    cv2 = opencv()
    shifted = np.empty_like(image)
    turn = (degrees % 360.0, 0.0, 0.0, 0.0)
    for start in range(0, len(image), STRIP):  # floats of a few rows fit into the caches
        rows = slice(start, start + STRIP)
        hsv = cv2.cvtColor(image[rows].astype(np.float32), cv2.COLOR_RGB2HSV)
        hsv = cv2.cvtColor(cv2.add(hsv, turn, dst=hsv), cv2.COLOR_HSV2RGB, dst=hsv)  # which takes hues beyond 360 degrees
        cv2.convertScaleAbs(hsv, dst=shifted[rows])
    return shifted


@_tone(levels=graded(range=(0.1, 0.3, 0.5)), stochastic=True, version=4)
def color_jitter(image: Image, rng: np.random.Generator, *, range: float) -> Image:  # noqa: A002  # Table 29's name
    """Changes brightness, then contrast, then saturation, each by a factor drawn evenly from ``1 - range`` to ``1 + range``.

    The order is that of the paper's note "random B/C/S". The factors are drawn for the range 0.5, and a level of ``range`` goes
    ``range / 0.5`` of the way from the image to what they give: alone, each factor then is as far from 1 as its range says.
    Values are rounded and clipped once, at the end. So every value moves away from the clean one from level to level, on any
    image. If each level had factors of its own, contrast could whiten pages again that brightness had darkened.
    """
    bright, contrasty, colourful = rng.uniform(1.0 - WIDEST_JITTER, 1.0 + WIDEST_JITTER, 3)
    way, grey = range / WIDEST_JITTER, luma(image)
    gain, mean = bright * contrasty, opencv().sumElems(grey)[0] / grey.size
    kept, faded, added = 1.0 + way * (gain * colourful - 1.0), way * gain * (1.0 - colourful), way * bright * (1.0 - contrasty)
    jittered: Image = opencv().addWeighted(image, kept, opencv().cvtColor(grey, opencv().COLOR_GRAY2RGB), faded, added * mean)
    return jittered


# Binary: transforms without severity levels.


_binary = partial(corruption, family="binary", source="VLM-RobustBench C.5")


@_binary(changes=["left_right", "position"])
def flip_h(image: Image) -> Image:
    """Mirrors left and right. Writing is mirrored too: it is harder to read, but its words stay the same."""
    flipped: Image = opencv().flip(image, 1)
    return flipped


@_binary(changes=["up_down", "position"])
def flip_v(image: Image) -> Image:
    """Mirrors top and bottom."""
    flipped: Image = opencv().flip(image, 0)
    return flipped


@_binary(changes=["colour"])
def grayscale(image: Image) -> Image:
    """Replaces every pixel by its luma (ITU-R BT.601)."""
    return as_grey(image)


@_binary(changes=["colour"])
def invert(image: Image) -> Image:
    """Replaces every value ``x`` by ``255 - x``."""
    inverted: Image = np.bitwise_not(image)
    return inverted


@_binary(changes=["colour"])
def channel_swap(image: Image) -> Image:
    """Exchanges red and blue, the swap that happens by mistake (RGB read as BGR), for every sample."""
    swapped: Image = opencv().cvtColor(image, opencv().COLOR_RGB2BGR)
    return swapped


@_binary(changes=["colour"])
def equalize(image: Image) -> Image:
    """Equalises the histogram of each channel separately, exactly like Pillow's ``ImageOps.equalize``.

    The colours of an image with few colours change. Images of fewer than 256 pixels
    are unchanged.
    """
    return _by_channel(image, _equal)


@_binary()
def autocontrast(image: Image) -> Image:
    """Stretches each channel to the full range, without cutting off outliers; a constant channel stays.

    That is Pillow's default, and it fits a published drop of 0.0 points.
    """
    return _by_channel(image, _stretch)


def _by_channel(image: Image, curve: Callable[[NDArray[np.uint8]], NDArray[np.float64]]) -> Image:
    channels = opencv().split(image)
    return look_up_channels(channels, [as_table(curve(channel)) for channel in channels])


def _stretch(channel: NDArray[np.uint8]) -> NDArray[np.float64]:
    low, high = float(channel.min()), float(channel.max())
    return (LEVELS - low) * (255.0 / (high - low)) if high > low else LEVELS


def _equal(channel: NDArray[np.uint8]) -> NDArray[np.float64]:
    counts = histogram(channel)
    step = (channel.size - counts[channel.max()]) // 255
    if step == 0:
        return LEVELS
    below = np.cumsum(counts) - counts
    equal: NDArray[np.float64] = np.minimum((below + step // 2) // step, 255).astype(np.float64)
    return equal
