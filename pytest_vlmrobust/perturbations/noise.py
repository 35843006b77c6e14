"""Noise: random errors in all pixels or in some of them."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from .pixels import Image, opencv
from .registry import corruption

_SHOT_BITS = 14
"""Probabilities are exact to two to the minus this many bits; with two more, the table of shot noise outgrows the caches."""


@corruption(
    family="noise",
    low={"std": 0.02},
    mid={"std": 0.06},
    high={"std": 0.10},
    stochastic=True,
    source="VLM-RobustBench Table 29",
    version=3,
)
def gaussian_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Adds normal noise of standard deviation ``std`` (of a range of 1) to each channel of each pixel.

    Draws one of 65536 quantiles, already rounded to levels: five times as fast as drawing normal numbers, and the same noise
    up to 4.3 standard deviations.
    """
    cv2 = opencv()
    steps = np.rint(255.0 * std * _normal_quantiles()).astype(np.int16)
    noisy: Image = cv2.add(image, steps.take(_uniform(rng, image.shape)), dtype=cv2.CV_8U)
    return noisy


@corruption(
    family="noise",
    low={"scale": 25},
    mid={"scale": 10},
    high={"scale": 5},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def shot_noise(image: Image, rng: np.random.Generator, *, scale: float) -> Image:
    """Counts photons: ``poisson(x * scale) / scale`` for values ``x`` in [0, 1]; a smaller ``scale`` is a shorter exposure.

    Draws by inverting the distribution function at one of 16384 quantiles: twenty times as fast as drawing each count.
    """
    where = image.astype(np.intp)
    where <<= _SHOT_BITS
    where |= _uniform(rng, image.shape) >> (16 - _SHOT_BITS)
    return _shot_table(scale).take(where)


@corruption(
    family="noise",
    low={"std": 0.05},
    mid={"std": 0.15},
    high={"std": 0.25},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
    version=3,
)
def speckle_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Multiplies each channel of each pixel by ``1 + n`` with ``n`` normal of standard deviation ``std``, drawn by quantiles."""
    cv2 = opencv()
    gains = np.float32(1.0) + np.float32(std) * _normal_quantiles()
    noisy: Image = cv2.multiply(image, gains.take(_uniform(rng, image.shape)), dtype=cv2.CV_8U)
    return noisy


@corruption(
    family="noise",
    low={"amount": 0.01},
    mid={"amount": 0.04},
    high={"amount": 0.08},
    stochastic=True,
    source="VLM-RobustBench Table 29",
    version=3,
)
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


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.uint16]:
    """Returns numbers from 0 to 65535, evenly; four at a time take half as long as one at a time."""
    size = int(np.prod(shape))
    words = rng.integers(0, 1 << 64, -(-size // 4), dtype=np.uint64)
    return words.view(np.uint16)[:size].reshape(shape)


@functools.cache
def _normal_quantiles() -> NDArray[np.float32]:
    """Returns the normal distribution as 65536 equally likely numbers, ascending, shape (65536,); read-only."""
    from scipy import special

    numbers: NDArray[np.float32] = special.ndtri((np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.float32)
    numbers.flags.writeable = False
    return numbers


def _shot_table(scale: float) -> NDArray[np.uint8]:
    """Returns the noisy level for each (level, quantile), flat, length 256 * 16384."""
    quantiles = 1 << _SHOT_BITS
    means = np.arange(256) / 255.0 * scale
    counts = np.arange(round(scale + 12 * np.sqrt(scale) + 12))
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    logs = counts * np.log(np.maximum(means, 1e-300))[:, None] - means[:, None] - log_factorials  # black stays black
    chances = np.exp(np.maximum(logs, -700.0))  # less would underflow, an error where the caller asked for that
    ends = np.rint(np.cumsum(chances, axis=1) * quantiles).astype(np.int64)
    ends[:, -1] = quantiles
    levels = np.clip(np.rint(counts * 255.0 / scale), 0, 255).astype(np.uint8)
    return np.repeat(np.tile(levels, 256), np.diff(ends, axis=1, prepend=0).ravel())
