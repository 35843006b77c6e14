"""Grid pointing game: models that always point to the same cell, and the distance of wrong answers.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import Estimate

from .accuracy import Bounds
from .scores import as_scores, clusters_of
from .statistics.clusters import Clusters, one_sided
from .statistics.paired import mean_interval
from .statistics.proportions import proportion_interval
from .statistics.ratios import ratio_interval
from .table import ScoreTable

Cell = tuple[int, int]
"""Row and column, from the top left."""


def fixation_rate(answers: Sequence[Sequence[Hashable | None]]) -> float:
    """Share of the items whose answer is the same for every position of the target: pointing without looking.

    Args:
        answers: for each of N items, the answers to its placements (one for each cell of the grid, at least two); None for an
            unreadable answer.

    Returns a fraction in [0, 1]; an item with an unreadable answer is not fixated. NaN without items. Guessing anew each time
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
    """Measures by how many cells wrong answers miss their targets, rows and columns added up.

    Returns the mean distance over the wrong readable answers, and how many answers it leaves out.

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


# The same with intervals, and the share of requested boxes that were given


def fixation(answers: Sequence[Sequence[Hashable | None]], confidence: float = 0.90) -> Estimate:
    """Estimates :func:`fixation_rate` with Wilson's interval over items.

    Items with fewer placements than others (a sample of the questions) are left out, and ``reason`` says how many: the fewer
    placements, the easier it is to answer them alike.

    Returns an :class:`Estimate` over the items that are left; NaN with a reason without items or with one placement each.

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
    """Estimates the distance of :func:`grid_error`, with Fieller's interval: the number of wrong answers is uncertain, too.

    Returns an :class:`Estimate` in cells, at least 1, over the wrong readable answers, ``n`` of them; NaN with a reason when
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

    Returns an :class:`Estimate` in [0, 1]: Wilson's or the exact interval when each sample gives all or none, otherwise guarded
    Student's t. NaN with a reason without samples, or when a share is missing.

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
