"""Noise: random errors in all pixels or in some of them."""

from __future__ import annotations

import functools
import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .pixels import Image, as_table, opencv, strips, translate
from .registry import corruption, graded

_SHOT_BITS = 14
"""Probabilities are exact to two to the minus this many bits; with two more, the table of shot noise outgrows the caches."""


_noise = partial(corruption, family="noise", source="VLM-RobustBench Table 29", stochastic=True)


@_noise(levels=graded(std=(0.02, 0.06, 0.10)), version=3)
def gaussian_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Adds normal noise of standard deviation ``std`` (of a range of 1) to each channel of each pixel.

    The noise is in whole levels, at most four standard deviations and 127 levels.
    """
    cv2 = opencv()
    noise = _normal_bytes(rng, image.shape, centre=128, std=255.0 * std)
    brighter = cv2.add(image, cv2.subtract(noise, (128, 128, 128, 0)))
    noisy: Image = cv2.subtract(brighter, cv2.subtract((128, 128, 128, 0), noise, dst=noise), dst=brighter)
    return noisy


@_noise(levels=graded(scale=(25, 10, 5)), source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019", version=3)
def shot_noise(image: Image, rng: np.random.Generator, *, scale: float) -> Image:
    """Counts photons: ``poisson(x * scale) / scale`` for values ``x`` in [0, 1]; a smaller ``scale`` is a shorter exposure.

    Draws by inverting the distribution function at one of 16384 quantiles: twenty times as fast as drawing each count.
    """
    draw, table = _uniform(rng, image.shape), _shot_table(scale)
    result = np.empty_like(image)
    for rows in strips(*image.shape[:2]):
        where = image[rows].astype(np.intp)
        where <<= _SHOT_BITS
        where |= draw[rows] >> (16 - _SHOT_BITS)
        result[rows] = table.take(where)
    return result


@_noise(levels=graded(std=(0.05, 0.15, 0.25)), source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019", version=3)
def speckle_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Multiplies each channel of each pixel by ``1 + n`` with ``n`` normal of standard deviation ``std``.

    Gains are stored as bytes, in steps of at most a hundredth: at most a fifteenth of ``std``.
    """
    cv2 = opencv()
    unit_gain = int(255 / (1.0 + 4.1 * std))
    gains = _normal_bytes(rng, image.shape, centre=unit_gain, std=unit_gain * std)
    noisy: Image = cv2.multiply(image, gains, scale=1.0 / unit_gain, dst=gains)
    return noisy


@_noise(levels=graded(amount=(0.01, 0.04, 0.08)), version=3)
def salt_pepper(image: Image, rng: np.random.Generator, *, amount: float) -> Image:
    """Makes a share ``amount`` of the pixels black or white, half of them each.

    Whole pixels, not single channels: the paper calls the parameter a pixel fraction.
    """
    draw, half = _uniform(rng, image.shape[:2]), round(amount / 2 * (1 << 16))
    result = image.copy()
    pixels = result.reshape(-1, 3)
    pixels[np.flatnonzero(draw < half)] = 0
    pixels[np.flatnonzero(draw >= (1 << 16) - half)] = 255
    return result


def _normal_bytes(rng: np.random.Generator, shape: tuple[int, ...], *, centre: int, std: float) -> NDArray[np.uint8]:
    """Returns whole numbers that are normally distributed about ``centre``, cut off at 0 and 255, and at four ``std``.

    Each is the sum of two of 256 quantiles of a narrower normal distribution, found by two random bytes: a tenth of the time of
    drawing normal numbers. The sum has the variance of a normal number after rounding.
    """
    size = math.prod(shape)
    words = rng.integers(0, 1 << 64, -(-2 * size // 8), dtype=np.uint64).view(np.uint8)
    first, second = _normal_tables(centre, std)
    summed: NDArray[np.uint8] = opencv().add(
        translate(words[:size].reshape(shape), first), translate(words[size : 2 * size].reshape(shape), second)
    )
    return summed


@functools.lru_cache(maxsize=64)
def _normal_tables(centre: int, std: float) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    quantiles = _normal_quantiles(256).astype(np.float64)
    narrower = math.sqrt(max((std**2 + 1 / 12) / 2 - 1 / 12, 0.0)) / quantiles.std()
    return as_table(centre // 2 + narrower * quantiles), as_table(centre - centre // 2 + narrower * quantiles)


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Returns uniform numbers from 0 to 65535; drawing four at a time takes half the time."""
    size = int(np.prod(shape))
    words = rng.integers(0, 1 << 64, -(-size // 4), dtype=np.uint64)
    return words.view(np.uint16)[:size].reshape(shape)


@functools.cache
def _normal_quantiles(count: int) -> NDArray[np.float32]:
    """Returns the normal distribution as ``count`` equally likely numbers, ascending; read-only."""
    from scipy import special

    numbers: NDArray[np.float32] = special.ndtri((np.arange(count) + 0.5) / count).astype(np.float32)
    numbers.flags.writeable = False
    return numbers


@functools.lru_cache(maxsize=1)
def _shot_table(scale: float) -> NDArray[np.uint8]:
    """Returns the noisy level for each (level, quantile), flat, length 256 * 16384; read-only.

    It takes 4 MB and 2 to 3 ms, and images come scale by scale, so only the last is cached.
    """
    quantiles = 1 << _SHOT_BITS
    means = np.arange(256) / 255.0 * scale
    counts = np.arange(round(scale + 12 * np.sqrt(scale) + 12))
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    logs = counts * np.log(np.maximum(means, 1e-300))[:, None] - means[:, None] - log_factorials  # black stays black
    chances = np.exp(np.maximum(logs, -700.0))  # less would underflow, which may be set to raise
    ends = np.rint(np.cumsum(chances, axis=1) * quantiles).astype(np.int64)
    ends[:, -1] = quantiles
    levels = np.clip(np.rint(counts * 255.0 / scale), 0, 255).astype(np.uint8)
    table = np.repeat(np.tile(levels, 256), np.diff(ends, axis=1, prepend=0).ravel())
    table.flags.writeable = False
    return table
