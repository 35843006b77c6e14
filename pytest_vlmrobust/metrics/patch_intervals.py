"""Intervals, p-values and gates of the metrics that compare the whole image with its patches.

Every index is a ratio of means over the same samples, so its bounds and p-values come from linear contrasts. Samples that are
right on the whole image alone, or on a patch alone, are few: each bound is guarded by one more of the kind that argues against
it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.errors import UsageError

from .record import Circumstances, Needs
from .scores import Scores, as_scores, require_equal_lengths
from .statistics.means import guarded_ratio_interval
from .table import ScoreTable
from .validity import SMALLEST_MARGIN

# What patch metrics and their intervals read from each sample: the best patch, the luck of many attempts, the split score.


def whole_and_patches(whole: ArrayLike, **patches: ArrayLike) -> tuple[Scores, ...]:
    """Returns the scores of the whole image, shape (N,), and those of each named array of patches, shape (N, n*n).

    Raises:
        ValueError: unequal lengths, unequal numbers of patches, a score outside [0, 1], or another shape.
    """
    full = as_scores(whole, "whole")
    views = {name: as_scores(values, name, axes=2) for name, values in patches.items()}
    require_equal_lengths({"whole": len(full)} | {name: len(values) for name, values in views.items()})
    first = next(iter(views))
    for name, values in views.items():
        if values.shape[1] != views[first].shape[1]:
            raise ValueError(
                f"{first} has {views[first].shape[1]} attempts for each sample and {name} has {values.shape[1]}: expected the "
                "same number, because every further attempt is a further chance of being right by luck"
            )
    return full, *views.values()


def best(attempts: Scores) -> Scores:
    """Returns the best score of each sample, shape (N,), from ``attempts`` (N, m); NaN without attempts or if one is missing."""
    # numpy's max keeps NaN: a missing attempt might have been the best one
    return attempts.max(axis=1, initial=0.0) if attempts.shape[1] else np.full(len(attempts), math.nan)


def unlucky(chances: Scores, attempts: int) -> Scores:
    """Returns the probability that all of ``attempts`` - 1 further guesses fail, too: (1 - 1/k)^(m - 1)."""
    missed: Scores = (1.0 - chances) ** (attempts - 1)
    return missed


def excess_contrast(whole: Scores, patches: Scores, chances: Scores) -> Scores:
    """Returns, for each sample, by how much its best patch fails more often than luck alone would let it, shape (N,).

    ``(1 - max_j A_ij) - (1 - 1/k_i)^(m-1) (1 - whole_i)``: its mean is 0 for a model that knows from the best patch what it knows
    from the whole image and guesses the rest, positive where the whole is needed, negative where it distracts.
    """
    luck: Scores = unlucky(chances, patches.shape[1]) * (1.0 - whole)
    contrast: Scores = (1.0 - best(patches)) - luck
    return contrast


def index_reach(about: Circumstances) -> tuple[float, float]:
    """Returns between what 1 - best patch / whole lies: all best patches right, and none.

    ``1 - 1/P`` to 1 for a full-image score P; with as many attempts at the whole image P is at least that of the first one. Where
    P is unknown, it is that of the smallest score for which the index is defined: chance and a percentage point.

    >>> [round(end, 3) for end in index_reach(Circumstances(clean=0.8))]
    [-0.25, 1.0]
    """
    return 1.0 - 1.0 / lowest_whole(about), 1.0


def excess_reach(about: Circumstances) -> tuple[float, float]:
    """Returns between what the index less luck lies: ``-u (1 - P) / P`` to ``(1 - u (1 - P)) / P``, u = (1 - 1/k)^(m - 1).

    All best patches right, and none, for a full-image score P, k options and m patches. Where k or m is unknown, u is 1, as for
    open questions; where P is unknown, see :func:`index_reach`.

    >>> [round(end, 3) for end in excess_reach(Circumstances(attempts=9, options=2, clean=0.6))]
    [-0.003, 1.664]
    """
    whole = lowest_whole(about)
    luck = 1.0 if about.options is None or about.attempts is None else (1.0 - 1.0 / about.options) ** (about.attempts - 1)
    return -luck * (1.0 - whole) / whole, (1.0 - luck * (1.0 - whole)) / whole


def lowest_whole(about: Circumstances) -> float:
    """Returns the full-image score, or the smallest one for which indices of patches are defined."""
    chance = 1.0 / about.options if about.options else 0.0
    return about.clean if about.clean is not None else min(chance + SMALLEST_MARGIN, 1.0)


Bounds = tuple[float, float]


def index(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds 1 - best patch / whole, as the ratio (whole - best patch) / whole."""
    return _index_bounds(table, best(table.patches(_one(setting))), table.clean, confidence)


def excess(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the index less luck, as the ratio of its linear contrast to the full-image score."""
    chances = _argument(table, Needs.CHANCES, setting)
    patches = table.patches(_one(setting))
    parts = np.stack([excess_contrast(table.clean, patches, chances), table.clean], axis=1)
    luckiest = -float(unlucky(chances, patches.shape[1]).max())
    return guarded_ratio_interval(parts, table.clusters, confidence, against_low=(luckiest, 0.0), against_high=(1.0, 1.0))


def matched(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the index against the best of as many attempts at the whole image, up to what guessing anew for each would leave.

    A model that sticks to its guess when the image is shifted shows less luck in its attempts than it has on patches. The upper
    bound allows for it: where guesses, made anew for each attempt, would have been right more often than the attempts were, it is
    that of the index against such guesses. So luck alone never shows distraction, and a low index that luck may explain is
    undecided.
    """
    attempts, patches = _argument(table, Needs.WHOLE_ATTEMPTS, setting), best(table.patches(_one(setting)))
    low, high = _index_bounds(table, patches, best(attempts), confidence)
    chances = table.chance_of_each()
    if chances is None:
        return low, high
    guessed = 1.0 - unlucky(chances, attempts.shape[1]) * (1.0 - table.clean)
    hidden = float(guessed.mean()) > float(best(attempts).mean())
    return low, max(high, _index_bounds(table, patches, guessed, confidence)[1]) if hidden else high


def _index_bounds(table: ScoreTable, attempted: Scores, whole: Scores, confidence: float) -> Bounds:
    """Bounds 1 - attempted / whole; a sample right on a patch alone argues for less, one right on the whole alone for more."""
    parts = np.stack([whole - attempted, whole], axis=1)
    return guarded_ratio_interval(parts, table.clusters, confidence, against_low=(-1.0, 0.0), against_high=(1.0, 1.0))


def _argument(table: ScoreTable, need: Needs, setting: str | None) -> Scores:
    values: Scores | None = table.argument(need, _one(setting))
    if values is None:
        raise UsageError(f"the table has no {need.value}: an interval of {setting!r} needs them")
    return values


def _one(setting: str | None) -> str:
    if setting is None:
        raise UsageError("this interval belongs to one setting: say which, for example 'patches:3'")
    return setting
