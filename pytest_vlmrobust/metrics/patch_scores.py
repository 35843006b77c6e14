"""What patch metrics and their intervals read from each sample: the best patch, the luck of many attempts, the split score."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from .record import Circumstances
from .scores import Scores, as_scores, require_equal_lengths
from .validity import SMALLEST_MARGIN


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


def split_scores(first: Scores, second: Scores) -> Scores:
    """Returns each sample's score on the patch chosen by the other pass, averaged over both directions, shape (N,)."""
    scores: Scores = (_chosen_by(first, second) + _chosen_by(second, first)) / 2.0
    return scores


def _chosen_by(chooser: Scores, judged: Scores) -> Scores:
    """Returns the mean of ``judged`` over the patches that ``chooser`` finds best: all of them where none is right."""
    if not chooser.shape[1]:
        return np.full(len(chooser), math.nan)
    top = (chooser == chooser.max(axis=1, keepdims=True)).astype(np.float64)
    # without a highest patch a score is missing: 0/0 would say so too, but with a warning
    counts = np.where(top.any(axis=1), top.sum(axis=1), math.nan)
    known: Scores = (top * judged).sum(axis=1) / counts
    return known


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
