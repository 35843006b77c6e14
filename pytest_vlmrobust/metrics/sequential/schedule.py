"""Which cells to advance next: a function of the evidence alone, so that a resumed run goes on the same way."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CELLS = 4
"""Cells advanced at a time."""
SAMPLES = 8
"""Samples of each."""


def next_cells(log_fail: Array, weights: Array, open_cells: NDArray[np.bool_], most: int = CELLS) -> NDArray[np.intp]:
    """Returns the open cells closest to a breach: the largest log e-values for FAIL plus log weight, best first.

    Valid under independent orders only: the schedule looks at the evidence. Ties go to the lower index.

    Args:
        log_fail: natural logarithms of the e-values for FAIL, shape (m,).
        weights: prior weights, shape (m,), none negative.
        open_cells: which cells to choose from, shape (m,); for a worst-case gate ``Verdicts.unfinished``.
        most: how many cells at most.

    Returns:
        Cell indices, shape (at most ``most``,); empty when no cell is open.

    Raises:
        ValueError: ``most`` below 1, or unequal lengths.
    """
    if most < 1 or not log_fail.shape == weights.shape == open_cells.shape:
        raise ValueError(
            f"most={most} of {log_fail.shape} e-values, {weights.shape} weights and {open_cells.shape} flags: "
            "expected at least 1 cell and one of each for every cell"
        )
    logs = np.log(weights, out=np.full(weights.shape, -np.inf), where=weights > 0.0)
    ranked = np.argsort(-(log_fail + logs), kind="stable")
    return ranked[open_cells[ranked]][:most]
