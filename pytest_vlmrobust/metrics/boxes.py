"""Boxes: overlap of predicted and true ones, what was not found, and which eye is which.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.2 (task 3) and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pytest_vlmrobust.core import boxes

from .scores import Scores, mean

Box = Sequence[float]
"""``(x1, y1, x2, y2)``."""


def intersection_over_union(box: Box, other: Box) -> float:
    """Overlap of two boxes: the area they share, as a share of the area they cover together.

    Args:
        box: ``(x1, y1, x2, y2)`` with x1 <= x2 and y1 <= y2, in continuous coordinates (no "+1" for pixels).
        other: the same, in the same coordinate system.

    Returns:
        A fraction in [0, 1]; NaN if both boxes are empty (undefined) or a coordinate is NaN.

    Raises:
        ValueError: not four numbers, a box turned inside out, or an infinite coordinate.

    >>> intersection_over_union((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    return boxes.overlap(_box(box, "box"), _box(other, "other"))


class Overlap(NamedTuple):
    """How well the boxes of N attributes were found."""

    mean_iou: float
    """Mean intersection over union with 0 for each attribute without a box: what to gate."""
    coverage: float
    """Share of the attributes for which a box was given."""
    mean_iou_of_found: float
    """The same mean over these alone, as the published code has it for faces: it rewards giving no box."""


def mean_overlap(predicted: Sequence[Box | None], truth: Sequence[Box]) -> Overlap:
    """Averages the overlap of predicted with true boxes; an attribute that was not found counts 0.

    Args:
        predicted: a box for each of N attributes, None where the model gave none. One turned inside out covers nothing: it counts
            as given, with an overlap of 0.
        truth: the N true boxes, in the same coordinate system.

    Returns:
        Three fractions in [0, 1]; NaN without attributes, and ``mean_iou_of_found`` without any box.

    Raises:
        ValueError: unequal lengths, a true box that is none, or a predicted one with another number of coordinates or an infinite
            one.

    Source: The Perceptual Observatory section 3.3 (mIoU); the zeros are ours.

    >>> mean_overlap([(0, 0, 2, 2), None], [(0, 0, 2, 2), (4, 4, 6, 6)])
    Overlap(mean_iou=0.5, coverage=0.5, mean_iou_of_found=1.0)
    """
    if len(predicted) != len(truth):
        raise ValueError(f"{len(predicted)} predicted and {len(truth)} true boxes: expected one, or None, for each true box")
    found = [(box, true) for box, true in zip(predicted, truth, strict=True) if box is not None]
    overlaps = np.array([_overlap(box, true) for box, true in found])
    padded = np.concatenate([overlaps, np.zeros(len(truth) - len(found))])
    return Overlap(mean(padded), len(found) / len(truth) if truth else math.nan, mean(overlaps))


def match_eyes(predicted: tuple[Box | None, Box | None], truth: tuple[Box, Box]) -> tuple[Box | None, Box | None]:
    """Puts the two predicted eyes into the order that overlaps most with the true ones: left and right may be swapped.

    "Left" is the viewer's or the person's; the published code forgives either reading, if both eyes are given.

    Args:
        predicted: the boxes that the model calls left and right, None where it gave none.
        truth: the true boxes (left, right).

    Returns:
        The predicted boxes, swapped if that overlaps more; as given when one is missing, and for equal overlap.

    Raises:
        ValueError: what :func:`intersection_over_union` refuses; boxes turned inside out overlap nothing.

    Source: The Perceptual Observatory, published evaluation code.

    >>> match_eyes(((6, 0, 8, 2), (0, 0, 2, 2)), ((0, 0, 2, 2), (6, 0, 8, 2)))
    ((0, 0, 2, 2), (6, 0, 8, 2))
    """
    first, second = predicted
    if first is None or second is None:
        return predicted
    given, true = (_given(first), _given(second)), (_box(truth[0], "other"), _box(truth[1], "other"))
    return (second, first) if boxes.swapped(given, true) else predicted


def _overlap(predicted: Box, true: Box) -> float:
    return boxes.overlap(_given(predicted), _box(true, "other"))


def _given(predicted: Box) -> boxes.Box:
    """Returns a predicted box, which may be turned inside out: it then covers nothing."""
    values = np.asarray(predicted, dtype=np.float64)
    inside_out = values.shape == (4,) and np.isfinite(values).all() and (values[:2] > values[2:]).any()
    return _four(values) if inside_out else _box(predicted, "box")


def _box(corners: Box, name: str) -> boxes.Box:
    values = np.asarray(corners, dtype=np.float64)
    if values.shape != (4,):
        raise ValueError(f"{name}: found shape {values.shape}, expected four numbers (x1, y1, x2, y2)")
    if np.isinf(values).any() or (values[:2] > values[2:]).any():
        raise ValueError(f"{name} is {values.tolist()}: expected finite (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2")
    return _four(values)


def _four(values: Scores) -> boxes.Box:
    x1, y1, x2, y2 = values.tolist()
    return x1, y1, x2, y2
