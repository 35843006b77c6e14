"""Noise: every pixel, or some of them, off by chance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .pixels import Image, to_uint8
from .registry import corruption

_QUANTILES = 1 << 16


@corruption(
    family="noise",
    low={"std": 0.02},
    mid={"std": 0.06},
    high={"std": 0.10},
    stochastic=True,
    source="VLM-RobustBench Table 29",
)
def gaussian_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Adds normal noise of standard deviation ``std`` (of a range of 1) to each channel of each pixel."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= 255.0 * std
    noise += image
    return to_uint8(noise)


@corruption(
    family="noise",
    low={"scale": 25},
    mid={"scale": 10},
    high={"scale": 5},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def shot_noise(image: Image, rng: np.random.Generator, *, scale: float) -> Image:
    """Counts photons: ``poisson(x * scale) / scale`` for values ``x`` in [0, 1]; a smaller ``scale`` is a shorter exposure.

    Draws by inverting the distribution function at a 16-bit uniform number, so a probability is exact to 2^-16; three times
    as fast as drawing each count.
    """
    uniform = rng.integers(0, _QUANTILES, image.shape, dtype=np.uint16)
    where = image.astype(np.uint32)
    where <<= 16
    where |= uniform
    return _shot_table(scale).take(where)


@corruption(
    family="noise",
    low={"std": 0.05},
    mid={"std": 0.15},
    high={"std": 0.25},
    stochastic=True,
    source="VLM-RobustBench Table 29; after Hendrycks & Dietterich 2019",
)
def speckle_noise(image: Image, rng: np.random.Generator, *, std: float) -> Image:
    """Multiplies each channel of each pixel by ``1 + n`` with ``n`` normal of standard deviation ``std``."""
    noise = rng.standard_normal(image.shape, dtype=np.float32)
    noise *= std
    noise += 1.0
    noise *= image
    return to_uint8(noise)


@corruption(
    family="noise",
    low={"amount": 0.01},
    mid={"amount": 0.04},
    high={"amount": 0.08},
    stochastic=True,
    source="VLM-RobustBench Table 29",
)
def salt_pepper(image: Image, rng: np.random.Generator, *, amount: float) -> Image:
    """Makes a share ``amount`` of the pixels black or white, half of them each.

    Whole pixels, not single channels: the paper calls the parameter a pixel fraction.
    """
    draw = rng.random(image.shape[:2], dtype=np.float32)
    result = image.copy()
    result[draw < amount / 2] = 0
    result[draw > 1.0 - amount / 2] = 255
    return result


def _shot_table(scale: float) -> NDArray[np.uint8]:
    """Returns the noisy level for each (level, quantile), flat, length 256 * 65536."""
    means = np.arange(256) / 255.0 * scale
    counts = np.arange(round(scale + 12 * np.sqrt(scale) + 12))
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    logs = counts * np.log(np.maximum(means, 1e-300))[:, None] - means[:, None] - log_factorials  # black stays black
    ends = np.rint(np.cumsum(np.exp(logs), axis=1) * _QUANTILES).astype(np.int64)
    ends[:, -1] = _QUANTILES
    levels = np.clip(np.rint(counts * 255.0 / scale), 0, 255).astype(np.uint8)
    return np.repeat(np.tile(levels, 256), np.diff(ends, axis=1, prepend=0).ravel())
