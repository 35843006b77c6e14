"""Running sums over the answers of a cell, which the evidence and the curtailment need."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Counts(NamedTuple):
    """Sums over the answers so far, arrays of one shape; for 0/1 scores they are counts.

    A missing answer is bounded from both sides: as wrong in the sums that PASS is judged by, as right in those of FAIL.
    """

    right: Array
    """Sum of the references."""
    wrong: Array
    """Sum of 1 - reference."""
    harmful_most: Array
    """Sum of the losses, missing answers counted as wrong."""
    helpful_least: Array
    """Sum of the gains, missing answers counted as wrong."""
    harmful_least: Array
    """Sum of the losses, missing answers counted as right."""
    helpful_most: Array
    """Sum of the gains, missing answers counted as right."""

    @property
    def sum_most(self) -> Array:
        """The sum of reference - outcome if every missing answer is wrong."""
        return self.harmful_most - self.helpful_least

    @property
    def sum_least(self) -> Array:
        """The sum of reference - outcome if every missing answer is right."""
        return self.harmful_least - self.helpful_most


class Draws(NamedTuple):
    """A batch of draws, one row for each cell in it; arrays have shape (rows, width) and are meaningful where ``filled``."""

    rows: NDArray[np.intp]
    """Which cells, shape (rows,)."""
    before: Counts
    """Counts before each draw."""
    offset: Array
    """Known part of each difference: the sample's reference, or its offset in a claim about a distribution."""
    outcomes: Array
    """Scores in [0, 1], NaN where missing."""
    filled: NDArray[np.bool_]
    left: Array
    """How many samples could be drawn, this one included."""
    right_left: Array
    """Sum of their references."""


def bound_missing(outcomes: Array) -> tuple[Array, Array]:
    """Returns the outcomes with missing ones (NaN) as wrong, and as right."""
    missing = np.isnan(outcomes)
    return np.where(missing, 0.0, outcomes), np.where(missing, 1.0, outcomes)


def running_sums(start: Array, reference: Array, outcomes: Array, filled: NDArray[np.bool_]) -> Array:
    """Returns the sums before each answer and, last, after all of them.

    Sums are accumulated one answer after the other, so that any split into batches gives the same bits.

    Args:
        start: fields of :class:`Counts`, shape (6, cells).
        reference: shape (cells, width).
        outcomes: shape (cells, width); NaN is a missing answer.
        filled: which places hold an answer, shape (cells, width); the others change nothing.

    Returns:
        Fields of :class:`Counts`, shape (6, cells, width + 1).
    """
    wrong, right = bound_missing(outcomes)
    loss, least_loss = reference - wrong, reference - right
    signed = (loss, -loss, least_loss, -least_loss)
    steps = np.stack([reference, 1.0 - reference, *(np.maximum(change, 0.0) for change in signed)])
    steps = np.where(filled, steps, 0.0)
    sums: Array = np.cumsum(np.concatenate([start[:, :, None], steps], axis=2), axis=2)
    return sums
