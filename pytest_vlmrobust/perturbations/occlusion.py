"""Occlusion: paints part of the image black, the default of common libraries; the paper names no colour.

Hidden things cannot be seen or counted, so the answers to questions about presence change where things of a twentieth of the
image's shorter side disappear (``studies/declarations``).
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from .pixels import Image
from .registry import corruption, graded

GRID_CELLS = 8


_occlusion = partial(corruption, family="occlusion")


@_occlusion(
    levels=graded(ratio=(0.05, 0.15, 0.25)),
    stochastic=True,
    changes={"low": ["presence", "count"], "mid": ["presence", "count", "text"], "high": ["presence", "count", "text"]},
    source="VLM-RobustBench Table 29; after Zhong et al. 2020",
    version=2,
)
def random_occlusion(image: Image, rng: np.random.Generator, *, ratio: float) -> Image:
    """Hides a rectangle with a share ``ratio`` of the area ("area blocked"), at a random position.

    Number and shape are not published. One rectangle, because the paper speaks of an area blocked; its shape relative to the
    image's is drawn log-evenly between 1:2 and 2:1, so that it is not a strip.
    """
    height, width = image.shape[:2]
    stretch = math.sqrt(2.0 ** rng.uniform(-1.0, 1.0))
    tall, wide = round(math.sqrt(ratio) * height * stretch), round(math.sqrt(ratio) * width / stretch)
    down, across = rng.random(), rng.random()
    top, left = int(down * (height - tall + 1)), int(across * (width - wide + 1))  # a larger rectangle contains a smaller one
    result = image.copy()
    result[top : top + tall, left : left + wide] = 0
    return result


@_occlusion(
    levels=graded(ratio=(0.1, 0.2, 0.3)),
    stochastic=True,
    changes=["text"],
    source="VLM-RobustBench Table 29; after Chen et al. 2020",
    version=2,
)
def grid_mask(image: Image, rng: np.random.Generator, *, ratio: float) -> Image:
    """Hides a share ``ratio`` of the area by a grid of squares, eight to the shorter side, at a random offset.

    The paper says "grid density"; the number of squares is ours. Only things smaller than a square disappear completely.
    """
    height, width = image.shape[:2]
    period = min(height, width) / GRID_CELLS
    down, across = rng.uniform(0.0, period, 2)
    rows = _stripes(height, period, down, math.sqrt(ratio))
    columns = _stripes(width, period, across, math.sqrt(ratio))
    kept = np.where(np.repeat(columns, 3), np.uint8(0), np.uint8(255))
    result = image.copy()
    for start, end in np.flatnonzero(np.diff(rows, prepend=False, append=False)).reshape(-1, 2).tolist():
        result[start:end].reshape(end - start, -1)[:] &= kept
    return result


@_occlusion(
    levels=graded(ratio=(0.1, 0.3, 0.5)),
    changes={"mid": ["presence", "count", "text"], "high": ["presence", "count", "text"]},
    source="VLM-RobustBench Table 29",
)
def center_occlusion(image: Image, *, ratio: float) -> Image:
    """Hides the central rectangle whose sides are ``ratio`` of the image's.

    Of the sides, not of the area: half of the area, around the centre, would cost far more than the 6 to 9 points published.
    """
    height, width = image.shape[:2]
    tall, wide = round(ratio * height), round(ratio * width)
    top, left = (height - tall) // 2, (width - wide) // 2
    result = image.copy()
    result[top : top + tall, left : left + wide] = 0
    return result


def _stripes(length: int, period: float, offset: float, share: float) -> NDArray[np.bool_]:
    """Returns which positions are within ``share`` of each period; periods need not be whole pixels."""
    return (np.arange(length) + offset) % period < share * period
