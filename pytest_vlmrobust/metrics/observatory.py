"""Metrics of grid pointing, attribute localisation and comparison of groups.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from .record import Needs
from .registry import metric
from .scores import ROUNDING, Scores, as_scores, mean, paired


@metric(
    needs=(Needs.PERTURBED, Needs.LABELS),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (invariance to spatial arrangements)",
    validity="at least two positions",
    suite="observatory",
)
def position_gap(scores: ArrayLike, positions: Sequence[object]) -> float:
    """Largest minus smallest accuracy over the positions at which the target was shown.

    Unreadable answers count as wrong here, as everywhere; leaving them out would flatter a model that seldom answers.

    Args:
        scores: shape (N,), each in [0, 1].
        positions: N positions, anything that can be compared for equality.

    Returns:
        A fraction in [0, 1]; NaN for fewer than two positions, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> position_gap([1, 1, 0, 1], ["[0,0]", "[0,0]", "[0,1]", "[0,1]"])
    0.5
    """
    return _gap(as_scores(scores, "scores"), positions, "positions")


@metric(
    needs=(Needs.PERTURBED, Needs.LABELS),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (gender bias); the absolute value of its GAP for two groups",
    validity="at least two groups",
    suite="observatory",
)
def group_gap(scores: ArrayLike, groups: Sequence[object]) -> float:
    """Largest minus smallest mean score over groups of people.

    Args:
        scores: shape (N,), each in [0, 1]: right or wrong, or an overlap.
        groups: N groups, anything that can be compared for equality.

    Returns:
        A fraction in [0, 1], without sign; NaN for fewer than two groups, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> group_gap([1, 1, 0, 1], ["F", "F", "M", "M"])
    0.5
    """
    return _gap(as_scores(scores, "scores"), groups, "groups")


@metric(
    needs=(Needs.PERTURBED, Needs.CLEAN),
    unit="ratio",
    better="higher",
    bounds=(0.0, math.inf),
    perfect=1.0,
    reference="The Perceptual Observatory section 3.3 (TR)",
    validity="the mean overlap on original images is above 0",
    suite="observatory",
)
def transfer_retention(perturbed_iou: ArrayLike, original_iou: ArrayLike) -> float:
    """TR: the share of the mean overlap (guided localisation) that survives a perturbation.

    Args:
        perturbed_iou: shape (N,), intersection over union of each sample, 0 where nothing was found.
        original_iou: shape (N,), the same samples unperturbed.

    Returns:
        At least 0, 1.0 when nothing is lost; NaN if the original mean is 0 (undefined), for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, an overlap outside [0, 1], or another shape.

    >>> transfer_retention([0.4, 0.2], [0.8, 0.4])
    0.5
    """
    after, before = paired(perturbed_iou=perturbed_iou, original_iou=original_iou)
    total = float(before.sum())
    return float(after.sum()) / total if total > ROUNDING else math.nan


def intersection_over_union(box: Sequence[float], other: Sequence[float]) -> float:
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
    first, second = _box(box, "box"), _box(other, "other")
    if np.isnan(first).any() or np.isnan(second).any():
        return math.nan
    sides = np.minimum(first[2:], second[2:]) - np.maximum(first[:2], second[:2])
    shared = float(sides.clip(min=0.0).prod())
    covered = float((first[2:] - first[:2]).prod() + (second[2:] - second[:2]).prod()) - shared
    return min(shared / covered, 1.0) if covered > 0.0 else math.nan


def _box(corners: Sequence[float], name: str) -> Scores:
    values = np.asarray(corners, dtype=np.float64)
    if values.shape != (4,):
        raise ValueError(f"{name}: found shape {values.shape}, expected four numbers (x1, y1, x2, y2)")
    if np.isinf(values).any() or (values[:2] > values[2:]).any():
        raise ValueError(f"{name} is {values.tolist()}: expected finite (x1, y1, x2, y2) with x1 <= x2 and y1 <= y2")
    return values


def _gap(scores: Scores, labels: Sequence[object], name: str) -> float:
    if len(labels) != len(scores):
        raise ValueError(f"scores has {len(scores)} values and {name} has {len(labels)}: expected one for each sample")
    if np.isnan(scores).any():
        return math.nan
    members: dict[object, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    if len(members) < 2:
        return math.nan
    means = [mean(scores[indices]) for indices in members.values()]
    return max(means) - min(means)
