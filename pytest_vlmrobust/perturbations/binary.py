"""Binary: transforms without severity levels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .pixels import Image, as_grey, as_table, histogram, look_up_channels, opencv
from .registry import corruption

LEVELS = np.arange(256, dtype=np.float64)


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
    """Applies to each channel the curve of 256 levels computed from it."""
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
