"""How well asked boxes are foretold by told ones: what reading the prompt is worth where boxes are asked for, without a look.

A nose tells about where the mouth is, and how large. Who answers by one fixed rule for all pictures has that overlap, whatever is
shown, and what is ours to know is how good such a rule can be: least squares from the other samples, each left out in turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.boxes import LEFT_EYE, RIGHT_EYE

from .scores import ROUNDING, Scores, require_equal_lengths
from .sources import clusters_of
from .statistics.clusters import Clusters

_RIDGE = 1.0
"""Penalty on slopes of standardised coordinates: it hardly matters for fifty samples, and for five leaves little but a mean."""

_Array = NDArray[np.float64]


def told_overlap(told: Mapping[str, ArrayLike], asked: Mapping[str, ArrayLike], groups: Sequence[str] | None = None) -> Scores:
    """Mean overlap of the asked boxes with what the told ones foretell, by the best linear rule that other samples give.

    Each coordinate of an asked box is a constant plus a linear function of all told ones, by ridge regression on the samples of
    all other groups. With few of them it shrinks to a box that stays where it is, the mean box, or to one that moves along with
    the top left corner of what is told: the rule with the larger mean overlap counts. Predictions are cut to the picture; two
    eyes are swapped where that overlaps more.

    Args:
        told: name to boxes, shape (N, 4), ``(x1, y1, x2, y2)`` as fractions of the picture; NaN where a sample is not told it.
            A point is a box without extent.
        asked: name to the true boxes of what is asked for, shape (N, 4), in the same coordinates; NaN where it is not asked for.
        groups: what N samples are of: a sample is foretold from other groups alone. None when all are independent.

    Returns:
        Shape (N,), fractions in [0, 1]; 0 where no other group is asked the same, NaN where nothing is asked for.

    Raises:
        ValueError: unequal numbers of samples, or boxes of another shape.

    >>> shifts = [[0.0], [0.1], [0.2], [0.3]]
    >>> corners, boxes = np.tile([0.1, 0.2, 0.1, 0.2], (4, 1)), np.tile([0.1, 0.2, 0.4, 0.6], (4, 1))
    >>> told_overlap({"corner": corners + shifts}, {"word": boxes + shifts}).round(6).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    given, truth = _checked(told, "told"), _checked(asked, "asked")
    require_equal_lengths({name: len(boxes) for name, boxes in {**given, **truth}.items()})
    samples = len(next(iter(truth.values()), ()))
    clusters = clusters_of(groups, samples)
    coordinates, corner = _coordinates(list(given.values()), samples)
    still, moving = (
        _overlaps({name: _foretold(coordinates, true, start, clusters) for name, true in truth.items()}, truth)
        for start in (np.zeros_like(corner), corner)
    )
    return still if float(np.nansum(still)) >= float(np.nansum(moving)) else moving


def _checked(boxes: Mapping[str, ArrayLike], noun: str) -> dict[str, _Array]:
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in sorted(boxes.items())}
    for name, array in arrays.items():
        if array.ndim != 2 or array.shape[1] != 4:
            raise ValueError(f"{noun} boxes of {name!r}: found shape {array.shape}, expected (N, 4): (x1, y1, x2, y2) of each")
    return arrays


def _coordinates(told: Sequence[_Array], samples: int) -> tuple[_Array, _Array]:
    """Returns standardised places and extents and a constant, shape (N, F), and the top left corner of all, twice, (N, 4)."""
    if not told or not samples:
        return np.ones((samples, 1)), np.zeros((samples, 4))
    boxes = np.stack([np.where(np.isnan(one), np.nanmean(one, axis=0), one) for one in told], axis=1)
    corner = np.tile(boxes[:, :, :2].min(axis=1), 2)
    boxes[:, :, 2:] -= boxes[:, :, :2]
    values = boxes.reshape(samples, -1)
    values = values[:, values.std(axis=0) > ROUNDING]
    return np.c_[(values - values.mean(axis=0)) / values.std(axis=0), np.ones(samples)], corner


def _foretold(coordinates: _Array, truth: _Array, start: _Array, clusters: Clusters) -> _Array:
    """Returns boxes, shape (N, 4), NaN where none is asked for: ``start`` plus what other clusters say, cut to the picture."""
    found = np.full(truth.shape, np.nan)
    rows = np.flatnonzero(~np.isnan(truth).any(axis=1))
    among = clusters.within(rows)
    if among.count < 2:
        found[rows] = 0.0
        return found
    inputs, wanted = coordinates[rows], (truth - start)[rows]
    squares, moments = among.sums(inputs[:, :, None] * inputs[:, None, :]), among.sums(inputs[:, :, None] * wanted[:, None, :])
    penalty = np.diag([*[_RIDGE] * (inputs.shape[1] - 1), 0.0])
    slopes = np.linalg.solve(squares.sum(axis=0) - squares + penalty, moments.sum(axis=0) - moments)
    own = slopes if among.independent else slopes[among.codes]  # sums over clusters of one are in the order of the samples
    found[rows] = np.clip(start[rows] + np.einsum("nf,nfk->nk", inputs, own), 0.0, 1.0)
    return found


def _overlaps(foretold: Mapping[str, _Array], truth: Mapping[str, _Array]) -> Scores:
    """Returns the mean overlap over what is asked of each sample, shape (N,)."""
    each = {name: _shared(foretold[name], true) for name, true in truth.items()}
    if {LEFT_EYE, RIGHT_EYE} <= set(each):
        turned = _shared(foretold[RIGHT_EYE], truth[LEFT_EYE]), _shared(foretold[LEFT_EYE], truth[RIGHT_EYE])
        better = turned[0] + turned[1] > each[LEFT_EYE] + each[RIGHT_EYE]
        each |= {name: np.where(better, other, each[name]) for name, other in zip((LEFT_EYE, RIGHT_EYE), turned, strict=True)}
    found = np.array(list(each.values()))
    count = (~np.isnan(found)).sum(axis=0)
    overlaps: Scores = np.divide(np.nansum(found, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
    return overlaps


def _shared(boxes: _Array, others: _Array) -> Scores:
    """Returns ``core.boxes.overlap`` of each pair of rows, shape (N,); ``others`` have an area, or are NaN."""
    sides = np.maximum(np.minimum(boxes[:, 2:], others[:, 2:]) - np.maximum(boxes[:, :2], others[:, :2]), 0.0)
    shared = sides.prod(axis=1)
    covered = sum((one[:, 2:] - one[:, :2]).prod(axis=1) for one in (boxes, others)) - shared
    inside_out = (boxes[:, :2] > boxes[:, 2:]).any(axis=1)
    overlap: Scores = np.where(inside_out, 0.0, np.minimum(shared / covered, 1.0))
    return overlap
