"""Answers of the grid pointing game: a model that always points to the same cell, and how far wrong answers are off.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import NamedTuple

Cell = tuple[int, int]
"""Row and column, from the top left."""


def fixation_rate(answers: Sequence[Sequence[Hashable | None]]) -> float:
    """Share of the items for which the answer is the same wherever the target stands: pointing without looking.

    Args:
        answers: for each of N items, the answers to its placements (one for each cell of the grid, at least two); None for one
            that could not be read.

    Returns:
        A fraction in [0, 1]; an item with an unreadable answer is not fixated. NaN without items. Guessing anew each time gives
        1/64 on a grid of four cells.

    Raises:
        ValueError: an item with fewer than two placements.

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
    """Measures by how many cells wrong answers miss their targets, rows and columns added up.

    Args:
        answers: N cells ``(row, column)``, None for an answer that could not be read.
        targets: the N right cells.

    Returns:
        The mean distance over the wrong readable answers, and how many answers it leaves out.

    Raises:
        ValueError: unequal lengths.

    Source: The Perceptual Observatory, published evaluation code (Manhattan error).

    >>> grid_error([(0, 0), (1, 1), None], [(0, 0), (0, 0), (0, 1)])
    GridError(distance=2.0, wrong=1, unread=1)
    """
    if len(answers) != len(targets):
        raise ValueError(f"{len(answers)} answers and {len(targets)} targets: expected one answer, or None, for each target")
    read = [(answer, target) for answer, target in zip(answers, targets, strict=True) if answer is not None]
    distances = [abs(answer[0] - target[0]) + abs(answer[1] - target[1]) for answer, target in read if answer != target]
    distance = sum(distances) / len(distances) if distances else math.nan
    return GridError(distance, len(distances), len(answers) - len(read))
