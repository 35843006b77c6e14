"""Exact curtailment: the verdict of all N answers, as soon as those still to come cannot change it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Flags = NDArray[np.bool_]


def curtail(
    sum_most: ArrayLike, sum_least: ArrayLike, right_left: ArrayLike, wrong_left: ArrayLike, most: ArrayLike
) -> tuple[Flags, Flags]:
    """Returns where PASS is certain, and where FAIL is; elsewhere the samples to come can still decide.

    No statistics: a sample to come adds at most its reference (a wrong answer) and at least its reference - 1 (a right one). With
    complete answers nothing stays undecided; with missing ones a cell may, and then its verdict is unknown, not a pass.

    Args:
        sum_most: sums of reference - outcome so far with missing answers as wrong, any shape; all arguments broadcast.
        sum_least: the same with missing answers as right.
        right_left: sums of the references still to come.
        wrong_left: sums of 1 - reference still to come.
        most: largest sums that pass (K).

    Returns:
        ``(certain_pass, certain_fail)``, never both true.

    Source: curtailed sampling, applied to paired answers whose clean half is known.

    >>> curtail([2, 2, 6], [2, 2, 6], [3, 4, 1], [0, 0, 0], 5)
    (array([ True, False, False]), array([False, False,  True]))
    """
    passes = np.asarray(sum_most) + np.asarray(right_left) <= np.asarray(most)
    fails = np.asarray(sum_least) - np.asarray(wrong_left) > np.asarray(most)
    return np.asarray(passes), np.asarray(fails)
