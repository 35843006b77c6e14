"""Cells: the picture divided into small pieces, each to be given one colour."""

from __future__ import annotations

import numpy as np

from ..opencv import opencv
from ..pixels import Plane
from .canvas import Labels, Table


def voronoi(rng: np.random.Generator, height: int, width: int, size: float) -> Labels:
    """Returns for each pixel the nearest of scattered points, one to a square of ``size`` pixels on average."""
    cv2 = opencv()
    rows, columns = max(1, round(height / size)), max(1, round(width / size))
    j, i = np.indices((rows, columns))
    y = ((j + rng.uniform(0.05, 0.95, j.shape)) * height / rows).astype(np.intp)
    x = ((i + rng.uniform(0.05, 0.95, i.shape)) * width / columns).astype(np.intp)
    empty = np.full((height, width), 255, np.uint8)
    empty[y, x] = 0
    _, labels = cv2.distanceTransformWithLabels(empty, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    numbered: Labels = labels - 1
    return numbered


def numbered(*indices: Labels) -> Labels:
    """Returns a number, from 0, for each combination of ``indices``.

    Where combinations are sparse, as in a slanted grid on a very long picture, distant cells may share a number: there are never
    more than some numbers to a pixel.
    """
    total, count = np.zeros_like(indices[0]), 1
    for index in indices:
        low = int(index.min())
        span = int(index.max()) - low + 1
        total, count = total * np.int32(span) + (index - low), count * span
    most = 8 * total.size + 4096
    return total if count <= most else total % np.int32(most)


def means(labels: Labels, plane: Plane) -> Table:
    """Returns the mean of ``plane`` over each cell, shape (cells,); 0 for a number that no pixel has."""
    flat = labels.ravel()
    counts = np.bincount(flat)
    average: Table = (np.bincount(flat, plane.ravel()) / np.maximum(counts, 1)).astype(np.float32)
    return average


def seams(labels: Labels, thickness: float) -> Plane:
    """Returns lines of about ``thickness`` pixels where one cell meets another, 1 on the line, soft at its edges."""
    cv2 = opencv()
    meets = np.zeros(labels.shape, np.uint8)
    meets[:, 1:] |= labels[:, 1:] != labels[:, :-1]
    meets[1:] |= labels[1:] != labels[:-1]
    reach = max(1, round(thickness))
    disk = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
    lines = cv2.dilate(meets, disk).astype(np.float32)
    soft: Plane = cv2.GaussianBlur(lines, (0, 0), 0.25 * thickness + 0.3)
    return soft
