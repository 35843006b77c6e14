"""Which images are easily confused: cosine similarity of their pixel statistics or embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

PIXEL_STATISTICS = "pixel statistics 1"
"""The name of ``pixel_features``; the number changes whenever they do."""
CIRCLES = "circles 1"
"""The method of choosing near rows; the number changes whenever the method does."""
_EDGE = 64
_THUMBNAIL = 16
_BINS = 8
_DIGITS = 5
"""Similarities are compared to this many digits, so that rounding on other processors does not change the order."""


def pixel_features(picture: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Returns the features for comparing images without an encoder, float64, shape (1280,).

    The image is shrunk to 64 x 64 pixels and converted to CIELAB. Features are the layout, 16 x 16 means of the three channels
    as distances from mid grey, and the colours, the square roots of an 8 x 8 x 8 histogram. Both have length 1, so that the
    cosine of two images is the mean of the cosines of their layouts and of their colours. The image is RGB, uint8, shape (H, W,
    3).
    """
    import cv2

    small = cv2.resize(picture, (_EDGE, _EDGE), interpolation=cv2.INTER_AREA)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    layout = cv2.resize(lab, (_THUMBNAIL, _THUMBNAIL), interpolation=cv2.INTER_AREA) - np.array([50, 0, 0], np.float32)
    histogram = cv2.calcHist([lab], [0, 1, 2], None, [_BINS] * 3, [0, 100.01, -128, 128, -128, 128])
    return np.concatenate([_unit(layout.ravel()), _unit(np.sqrt(histogram).ravel())])


def unit_rows(features: NDArray[np.floating]) -> NDArray[np.float64]:
    """Returns rows of length 1, float64, of the same shape; a row of zeros is unchanged."""
    rows = features.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float64)


def nearest(rows: NDArray[np.float64], groups: Sequence[str], index: int) -> list[int]:
    """Returns all other rows, nearest first; rows of the same group come first, and equally near ones keep their order.

    Rows have length 1, shape (n, d).
    """
    similarity = np.round(rows @ rows[index], _DIGITS)
    foreign = np.asarray(groups) != groups[index]
    order = np.lexsort((-similarity, foreign))
    return [int(other) for other in order if other != index]


def circles(rows: NDArray[np.float64], groups: Sequence[str], size: int) -> list[tuple[int, ...]]:
    """Returns disjoint sets of ``size`` rows of one group that are near each other; rows left over are in none.

    A row shown with the rest of its set is in the middle as often as any other. In a set of a row and those nearest to it,
    that row would be the most like all others, which can be seen without knowing the target. Rows have
    length 1, shape (n, d).
    """
    left = list(range(len(rows)))
    sets = []
    while left:
        first = left[0]
        others = [row for row in left[1:] if groups[row] == groups[first]]
        similarity = np.round(rows[others] @ rows[first], _DIGITS) if others else np.empty(0)
        chosen = [others[place] for place in np.argsort(-similarity, kind="stable")[: size - 1]]
        members = (first, *chosen)
        if len(members) == size:
            sets.append(members)
        left = [row for row in left if row not in members] if len(members) == size else left[1:]
    return sets


def _unit(values: NDArray[np.float32]) -> NDArray[np.float64]:
    unit: NDArray[np.float64] = unit_rows(values[None])[0]
    return unit
