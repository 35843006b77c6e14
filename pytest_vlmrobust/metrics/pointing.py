"""Grid pointing and localisation: pointing without looking, the distance of misses, and the overlap of boxes.

Source: The Perceptual Observatory (arXiv 2512.15949), sections 3.2 and 3.3 and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core import boxes
from pytest_vlmrobust.core.boxes import LEFT_EYE, RIGHT_EYE
from pytest_vlmrobust.core.estimate import ROUNDING, Estimate

from .accuracy import Bounds
from .statistics.clusters import Clusters, one_sided
from .statistics.means import proportion_interval
from .statistics.paired import mean_interval
from .statistics.ratios import ratio_interval
from .table import Scores, ScoreTable, as_scores, clusters_of, mean, require_equal_lengths

Cell = tuple[int, int]
"""Row and column, from the top left."""


def fixation_rate(answers: Sequence[Sequence[Hashable | None]]) -> float:
    """Share of the items with the same answer for every position of the target: pointing without looking.

    Args:
        answers: for each of N items, the answers to its placements (one for each cell of the grid, at least two); None for an
            unreadable answer.

    Returns a fraction in [0, 1]; an item with an unreadable answer is not fixated. NaN without items. A new guess each time
    gives 1/64 on a grid of four cells.

    Source: The Perceptual Observatory, published evaluation code (fixation rate).

    >>> fixation_rate([["[0,0]"] * 4, ["[0,0]", "[0,1]", "[1,0]", "[1,1]"]])
    0.5
    """
    if short := [item for item, given in enumerate(answers) if len(given) < 2]:
        raise ValueError(f"answers[{short[0]}] has {len(answers[short[0]])} placements: expected one for each cell, at least two")
    fixed = [None not in given and len(set(given)) == 1 for given in answers]
    return sum(fixed) / len(fixed) if fixed else math.nan


class GridError(NamedTuple):
    """How far wrong answers are off."""

    distance: float
    """Mean Manhattan distance of the wrong answers from their targets, in cells; NaN without wrong answers."""
    wrong: int
    """How many readable answers were wrong."""
    unread: int
    """How many answers could not be read, which have no distance."""


def grid_error(answers: Sequence[Cell | None], targets: Sequence[Cell]) -> GridError:
    """Measures the distance of wrong answers from their targets in cells, rows plus columns.

    Returns the mean distance over the wrong readable answers, and the numbers of wrong and of unreadable answers.

    Source: The Perceptual Observatory, published evaluation code (Manhattan error).

    >>> grid_error([(0, 0), (1, 1), None], [(0, 0), (0, 0), (0, 1)])
    GridError(distance=2.0, wrong=1, unread=1)
    """
    if len(answers) != len(targets):
        raise ValueError(f"{len(answers)} answers and {len(targets)} targets: expected one answer, or None, for each target")
    wrong = [distance for distance in map(_off, answers, targets) if distance]
    return GridError(sum(wrong) / len(wrong) if wrong else math.nan, len(wrong), answers.count(None))


# The same with intervals, and the share of requested boxes in the answers


def fixation(answers: Sequence[Sequence[Hashable | None]], confidence: float = 0.90) -> Estimate:
    """Estimates :func:`fixation_rate` with Wilson's interval over items.

    Items with fewer placements than others (a sample of the questions) are left out and counted in ``reason``: the fewer
    placements, the easier it is to give the same answer to all.

    Returns an :class:`Estimate` over the other items; NaN with a reason without items or with one placement each.

    >>> round(fixation([["[0,0]"] * 4, ["[0,0]", "[0,1]", "[1,0]", "[1,1]"]]).high, 3)
    0.879
    """
    one_sided(confidence)
    placements = max(map(len, answers), default=0)
    whole = [given for given in answers if len(given) == placements]
    if placements < 2:
        return Estimate(math.nan, 0, reason="no item is asked about with its target in two cells or more")
    left_out = len(answers) - len(whole)
    reason = f"left out {left_out} of {len(answers)} items with fewer than {placements} placements" if left_out else ""
    fixed = np.array([fixation_rate([given]) for given in whole])

    def at(level: float) -> Bounds:
        return proportion_interval(fixed, Clusters.of(None, len(fixed)), level)

    return _estimate(fixation_rate(whole), len(whole), at, confidence, reason)


def grid_distance(
    answers: Sequence[Cell | None],
    targets: Sequence[Cell],
    confidence: float = 0.90,
    source_images: Sequence[str] | None = None,
) -> Estimate:
    """Estimates the distance of :func:`grid_error` with Fieller's interval, since the number of wrong answers is uncertain too.

    Returns an :class:`Estimate` in cells, at least 1, over the ``n`` wrong readable answers; NaN with a reason if
    there are none.

    >>> grid_distance([(0, 0), (1, 1), (0, 1)], [(0, 0), (0, 0), (0, 0)]).value
    1.5
    """
    one_sided(confidence)
    error, clusters = grid_error(answers, targets), clusters_of(source_images, len(answers))
    reason = f"{error.unread} of {len(answers)} answers could not be read" if error.unread else ""
    if not error.wrong:
        return Estimate(math.nan, 0, reason="; ".join(part for part in ("no readable answer is wrong", reason) if part))
    off = np.array([_off(answer, target) for answer, target in zip(answers, targets, strict=True)])

    def at(level: float) -> Bounds:
        low, high = ratio_interval(off, (off > 0.0).astype(np.float64), clusters, level)
        return max(low, 1.0), high

    return _estimate(error.distance, error.wrong, at, confidence, reason)


def coverage(given: ArrayLike, confidence: float = 0.90, source_images: Sequence[str] | None = None) -> Estimate:
    """Estimates the share of the requested boxes that were given, right or wrong.

    Returns an :class:`Estimate` in [0, 1]: Wilson's or the exact interval if each sample gives all or none, otherwise guarded
    Student's t. NaN with a reason without samples, or if a share is missing.

    >>> coverage([1.0, 0.5, 1.0, 0.5]).value
    0.75
    """
    one_sided(confidence)
    table = ScoreTable(as_scores(given, "given"), groups=source_images)
    missing = int(np.isnan(table.clean).sum())
    if missing or not table.samples:
        why = f"shares of {missing} of {table.samples} samples are missing" if missing else "no samples"
        return Estimate(math.nan, table.samples - missing, reason=why)

    def at(level: float) -> Bounds:
        low, high = mean_interval(table.clean, table.clusters, level)
        return max(low, 0.0), min(high, 1.0)

    return _estimate(float(table.clean.mean()), table.samples, at, confidence)


def _off(answer: Cell | None, target: Cell) -> float:
    """Returns by how many cells an answer misses its target, 0 for an unreadable answer."""
    return 0.0 if answer is None else float(abs(answer[0] - target[0]) + abs(answer[1] - target[1]))


def _estimate(value: float, n: int, at: Callable[[float], Bounds], confidence: float, reason: str = "") -> Estimate:
    return Estimate(value, n, *at(confidence), confidence, reason=reason, at=at)


# Overlap of predicted and true boxes, and missing boxes


Box = Sequence[float]
"""``(x1, y1, x2, y2)``."""


def intersection_over_union(box: Box, other: Box) -> float:
    """Overlap of two boxes: the area they share, as a share of the area they cover together.

    Args:
        box: ``(x1, y1, x2, y2)`` with x1 <= x2 and y1 <= y2, in continuous coordinates (no "+1" for pixels).
        other: the same, in the same coordinate system.

    Returns a fraction in [0, 1]; NaN if both boxes are empty (undefined) or a coordinate is NaN.

    >>> intersection_over_union((0, 0, 2, 2), (1, 0, 3, 2))
    0.3333333333333333
    """
    return boxes.overlap(_box(box, "box"), _box(other, "other"))


class Overlap(NamedTuple):
    """How well the boxes of N attributes were found."""

    mean_iou: float
    """Mean intersection over union with 0 for each attribute without a box: the value for gates."""
    coverage: float
    """Share of the attributes for which a box was given."""
    mean_iou_of_found: float
    """The mean over attributes with a box, as the published code has it for faces: it rewards giving no box."""


def mean_overlap(predicted: Sequence[Box | None], truth: Sequence[Box]) -> Overlap:
    """Averages the overlap of predicted with true boxes; an attribute without a box counts 0.

    Args:
        predicted: a box for each of N attributes, None if the model gave none. A box with corners in the wrong order has no
            area: it counts as given, with an overlap of 0.
        truth: the N true boxes, in the same coordinate system.

    Returns three fractions in [0, 1]; NaN without attributes, and ``mean_iou_of_found`` without any box.

    Source: The Perceptual Observatory section 3.3 (mIoU); the zeros are ours.

    >>> mean_overlap([(0, 0, 2, 2), None], [(0, 0, 2, 2), (4, 4, 6, 6)])
    Overlap(mean_iou=0.5, coverage=0.5, mean_iou_of_found=1.0)
    """
    if len(predicted) != len(truth):
        raise ValueError(f"{len(predicted)} predicted and {len(truth)} true boxes: expected one, or None, for each true box")
    pairs = [(box, true) for box, true in zip(predicted, truth, strict=True) if box is not None]
    overlaps = np.array([boxes.overlap(_predicted_box(box), _box(true, "other")) for box, true in pairs])
    padded = np.concatenate([overlaps, np.zeros(len(truth) - len(pairs))])
    return Overlap(mean(padded), len(pairs) / len(truth) if truth else math.nan, mean(overlaps))


def _predicted_box(predicted: Box) -> boxes.Box:
    """Returns a predicted box. Its corners may be in the wrong order: it then has no area."""
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


# Prompt leakage: how well the boxes in the prompt predict the requested boxes
# The position of the nose roughly predicts the position and size of the mouth. A fixed rule can use this without looking at the
# image. Least squares on the other samples, each left out in turn, measure how good such a rule can be.


_RIDGE = 1.0
"""Penalty on slopes of standardised coordinates: it hardly matters for fifty samples, and for five leaves little but a mean."""

_Array = NDArray[np.float64]


def prompt_leakage_iou(
    hints: Mapping[str, ArrayLike], requested: Mapping[str, ArrayLike], groups: Sequence[str] | None = None
) -> Scores:
    """Mean overlap of the requested boxes with the best linear prediction from the boxes in the prompt.

    Each coordinate of a requested box is a constant plus a linear function of all given ones, by ridge regression on samples of
    all other groups. With few samples it shrinks to the mean box, either at a fixed position or moving with the top left of
    the given boxes: the rule with the larger mean overlap counts. Predictions are clipped to the image; two
    eyes are swapped if that overlaps more.

    Args:
        hints: name to boxes, shape (N, 4), ``(x1, y1, x2, y2)`` as fractions of the image; NaN if a sample's prompt lacks it.
            A point is a box without extent.
        requested: name to the true boxes of these attributes, shape (N, 4), in the same coordinates; NaN if not requested.
        groups: source image of each of N samples: predictions for a sample use other groups only. None when all are independent.

    Returns an array of shape (N,), fractions in [0, 1]; 0 if no other group has the same request, NaN without a request.

    >>> shifts = [[0.0], [0.1], [0.2], [0.3]]
    >>> corners, boxes = np.tile([0.1, 0.2, 0.1, 0.2], (4, 1)), np.tile([0.1, 0.2, 0.4, 0.6], (4, 1))
    >>> prompt_leakage_iou({"corner": corners + shifts}, {"word": boxes + shifts}).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    given, truth = _box_arrays(hints, "hinted"), _box_arrays(requested, "requested")
    require_equal_lengths({name: len(boxes) for name, boxes in {**given, **truth}.items()})
    samples = len(next(iter(truth.values()), ()))
    clusters = clusters_of(groups, samples)
    coordinates, corner = _coordinates(list(given.values()), samples)
    still, moving = (
        _overlaps({name: _predict_boxes(coordinates, true, start, clusters) for name, true in truth.items()}, truth)
        for start in (np.zeros_like(corner), corner)
    )
    return still if float(np.nansum(still)) >= float(np.nansum(moving)) else moving


def _box_arrays(boxes: Mapping[str, ArrayLike], noun: str) -> dict[str, _Array]:
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in sorted(boxes.items())}
    for name, array in arrays.items():
        if array.ndim != 2 or array.shape[1] != 4:
            raise ValueError(f"{noun} boxes of {name!r}: found shape {array.shape}, expected (N, 4): (x1, y1, x2, y2) of each")
    return arrays


def _coordinates(hints: Sequence[_Array], samples: int) -> tuple[_Array, _Array]:
    """Returns standardised positions, sizes and a constant, shape (N, F), and the top left corner of all boxes, twice, (N, 4)."""
    if not hints or not samples:
        return np.ones((samples, 1)), np.zeros((samples, 4))
    boxes = np.stack([np.where(np.isnan(box), np.nanmean(box, axis=0), box) for box in hints], axis=1)
    corner = np.tile(boxes[:, :, :2].min(axis=1), 2)
    boxes[:, :, 2:] -= boxes[:, :, :2]
    values = boxes.reshape(samples, -1)
    values = values[:, values.std(axis=0) > ROUNDING]
    return np.c_[(values - values.mean(axis=0)) / values.std(axis=0), np.ones(samples)], corner


def _predict_boxes(coordinates: _Array, truth: _Array, start: _Array, clusters: Clusters) -> _Array:
    """Returns boxes, shape (N, 4), NaN if not requested: ``start`` plus the prediction of other clusters, cut to the image."""
    predicted = np.full(truth.shape, np.nan)
    rows = np.flatnonzero(~np.isnan(truth).any(axis=1))
    among = clusters.within(rows)
    if among.count < 2:
        predicted[rows] = 0.0
        return predicted
    inputs, wanted = coordinates[rows], (truth - start)[rows]
    squares, moments = among.sums(inputs[:, :, None] * inputs[:, None, :]), among.sums(inputs[:, :, None] * wanted[:, None, :])
    penalty = np.diag([*[_RIDGE] * (inputs.shape[1] - 1), 0.0])
    slopes = np.linalg.solve(squares.sum(axis=0) - squares + penalty, moments.sum(axis=0) - moments)
    sample_slopes = (
        slopes if among.independent else slopes[among.codes]
    )  # sums over single-sample clusters keep the order of the samples
    predicted[rows] = np.clip(start[rows] + np.einsum("nf,nfk->nk", inputs, sample_slopes), 0.0, 1.0)
    return predicted


def _overlaps(foretold: Mapping[str, _Array], truth: Mapping[str, _Array]) -> Scores:
    """Returns the mean overlap over the requested boxes of each sample, shape (N,)."""
    ious = {name: _pair_overlaps(foretold[name], true) for name, true in truth.items()}
    if {LEFT_EYE, RIGHT_EYE} <= set(ious):
        turned = _pair_overlaps(foretold[RIGHT_EYE], truth[LEFT_EYE]), _pair_overlaps(foretold[LEFT_EYE], truth[RIGHT_EYE])
        better = turned[0] + turned[1] > ious[LEFT_EYE] + ious[RIGHT_EYE]
        ious |= {name: np.where(better, other, ious[name]) for name, other in zip((LEFT_EYE, RIGHT_EYE), turned, strict=True)}
    by_attribute = np.array(list(ious.values()))
    count = (~np.isnan(by_attribute)).sum(axis=0)
    means: Scores = np.divide(np.nansum(by_attribute, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
    return means


def _pair_overlaps(boxes: _Array, others: _Array) -> Scores:
    """Returns ``core.boxes.overlap`` of each pair of rows, shape (N,); ``others`` have an area, or are NaN."""
    sides = np.maximum(np.minimum(boxes[:, 2:], others[:, 2:]) - np.maximum(boxes[:, :2], others[:, :2]), 0.0)
    shared = sides.prod(axis=1)
    covered = sum((corners[:, 2:] - corners[:, :2]).prod(axis=1) for corners in (boxes, others)) - shared
    inside_out = (boxes[:, :2] > boxes[:, 2:]).any(axis=1)
    overlap: Scores = np.where(inside_out, 0.0, np.minimum(shared / covered, 1.0))
    return overlap
