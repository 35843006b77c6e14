"""Intervals, p-values and gates of the metrics that compare the whole image with its patches.

Every index is a ratio of means over the same samples, so its bounds and p-values come from linear contrasts. Samples that are
right on the whole image alone, or on a patch alone, are few: each bound is guarded by one more of the kind that argues against
it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.words import percent, points

from .record import Circumstances, Needs
from .scores import Scores, as_scores, clusters_of, require_equal_lengths
from .statistics.clusters import Clusters, one_sided
from .statistics.means import guarded_p_above_zero, guarded_ratio_interval
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


Bounds = tuple[float, float]

_RIGHT = itertools.product((0.0, 1.0), repeat=4)
_POSSIBLE = np.array([(patch - luck, 1.0 - luck, whole - blind, 1.0 - blind) for patch, luck, whole, blind in _RIGHT])
"""The parts of the index above placebo that one sample can have."""
SMALLEST_REST = 0.05
"""Patches of another image must leave at least this share of questions unanswered, or nothing is left to be seen."""


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


def split(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the index with patches chosen in one pass and judged in another."""
    again = _argument(table, Needs.PATCHES_AGAIN, setting)
    return _index_bounds(table, split_scores(table.patches(_one(setting)), again), table.clean, confidence)


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


def placebo(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds ``1 - (a/b) / (c/d)`` of means as the ratio of ``bc - ad`` to ``bc``, each by samples' influences (delta method).

    So nothing is divided by an uncertain number: a side is infinite where ``bc`` cannot be told from 0. One more sample argues
    against each bound: of those that there can be, the one that does so most.
    """
    parts = np.stack(_placebo_of(table, setting), axis=1)
    means = parts.mean(axis=0)
    linear, possible = _linear(parts, means), _linear(_POSSIBLE, means)
    contrasts = possible @ (float(linear[:, 1].mean()), -float(linear[:, 0].mean()))
    against_low, against_high = (possible[one].tolist() for one in (contrasts.argmin(), contrasts.argmax()))
    return guarded_ratio_interval(
        linear,
        table.clusters,
        confidence,
        against_low=tuple(against_low),
        against_high=tuple(against_high),
    )


def placebo_applies(table: ScoreTable, setting: str | None) -> str:
    """Returns why the index above placebo means nothing, or an empty string."""
    if setting is None or table.argument(Needs.PLACEBO_PATCHES, setting) is None or table.no_image is None:
        return "there are no scores without this image: what it adds is unknown"
    _, open_to_patches, seen, _ = _placebo_of(table, setting)
    error = 2.0 * math.sqrt(float(table.clusters.variances(seen[:, None])[0]))
    if not float(seen.mean()) > error:
        return f"the image adds {points(float(seen.mean()))}, not more than 2 standard errors of {points(error / 2.0)}"
    rest = float(open_to_patches.mean())
    if not rest > SMALLEST_REST:
        return f"patches of another image answer all but {percent(rest)} of the questions: nothing is left to be seen"
    return ""


def placebo_parts(whole: Scores, patches: Scores, blind: Scores, placebo_patches: Scores) -> tuple[Scores, ...]:
    """Returns the samples' parts of ``1 - (a/b) / (c/d)``: each of shape (N,), in the order a, b, c, d."""
    luck = best(placebo_patches)
    return best(patches) - luck, 1.0 - luck, whole - blind, 1.0 - blind


class RangeTest(NamedTuple):
    """p-values of "PCRI lies in [low, high]" and of its opposite."""

    inside: float
    """Small when the index is shown to lie in the range: the larger of two p-values, without correction (intersection-union)."""
    outside: float
    """Small when it is shown to lie outside: twice the smaller of two p-values (Bonferroni)."""


def pcri_range_test(
    whole: ArrayLike, patches: ArrayLike, low: float, high: float, groups: Sequence[str] | None = None
) -> RangeTest:
    """Tests whether PCRI or RCI lies between two bounds, by the linear contrasts of the two.

    ``PCRI >= low`` is ``mean((1 - low) whole_i - best_i) >= 0`` and ``PCRI <= high`` is ``mean(best_i - (1 - high) whole_i)
    >= 0``: no division by an uncertain score. Test the full-image score against chance as well.

    Args:
        whole: shape (N,), each in [0, 1].
        patches: shape (N, n*n), the same samples, each patch alone.
        low: lower end of the range.
        high: upper end of the range.
        groups: source image of each sample; None when all samples are independent.

    Returns:
        Two p-values in [0, 1]; NaN for no samples, no patches or a missing score.

    Raises:
        ValueError: ends that are not finite and ascending, unequal lengths, a score outside [0, 1], or another shape.

    Source: PCRI equation 1, rearranged (our test).
    """
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError(f"the range is {low!r} to {high!r}: expected finite ends, the lower one first")
    full, views = whole_and_patches(whole, patches=patches)
    top = best(views)
    if not full.size or np.isnan(full.sum() + top.sum()):
        return RangeTest(math.nan, math.nan)
    clusters = clusters_of(groups, full.size)
    ends = ((low, 1.0), (high, -1.0))  # above the lower end, below the upper one
    inside = [_p_beyond(full, top, end, side, clusters) for end, side in ends]
    outside = [_p_beyond(full, top, end, -side, clusters) for end, side in ends]
    return RangeTest(max(inside), min(1.0, 2.0 * min(outside)))


def patch_contribution_intervals(
    patches: ArrayLike, confidence: float = 0.90, groups: Sequence[str] | None = None
) -> tuple[Bounds, ...]:
    """Bounds the share of all correct answers that each patch position gives, see :func:`patch_contribution`.

    Args:
        patches: shape (N, n*n), each in [0, 1], positions row by row.
        confidence: two-sided level in (0, 1) of each interval on its own; ``1 - (1 - c) / m`` for a claim about all m positions.
        groups: source image of each sample; None when all samples are independent.

    Returns:
        n*n pairs ``(low, high)`` in [0, 1]; all NaN without any correct answer, for no samples or a missing score.

    Raises:
        ValueError: a level outside (0, 1), a score outside [0, 1], or another shape.

    Source: RCI section 3.3 for the shares; bounds by the linear contrasts ``A_ij - t sum_j A_ij``.
    """
    one_sided(confidence)
    views = as_scores(patches, "patches", axes=2)
    total: Scores = views.sum(axis=1)
    if not float(total.sum()) > 0.0:
        return tuple([(math.nan, math.nan)] * int(views.shape[1]))
    clusters = clusters_of(groups, len(views))
    found = [
        guarded_ratio_interval(
            np.stack([views[:, position], total], axis=1), clusters, confidence, against_low=(0.0, 1.0), against_high=(1.0, 1.0)
        )
        for position in range(views.shape[1])
    ]
    return tuple((max(low, 0.0), min(high, 1.0)) for low, high in found)


def _index_bounds(table: ScoreTable, attempted: Scores, whole: Scores, confidence: float) -> Bounds:
    """Bounds 1 - attempted / whole; a sample right on a patch alone argues for less, one right on the whole alone for more."""
    parts = np.stack([whole - attempted, whole], axis=1)
    return guarded_ratio_interval(parts, table.clusters, confidence, against_low=(-1.0, 0.0), against_high=(1.0, 1.0))


def _p_beyond(whole: Scores, top: Scores, end: float, side: float, clusters: Clusters) -> float:
    """Returns the p-value of "the index is not above ``end``" for ``side`` 1.0, "not below" for -1.0."""
    against = -1.0 if side > 0.0 else end - 1.0
    return guarded_p_above_zero(side * ((1.0 - end) * whole - top), clusters, min(against, 0.0))


def _linear(parts: Scores, means: Scores) -> Scores:
    """Returns ``bc - ad`` and ``bc`` as sums over samples with these parts, to first order, shape (N, 4) to (N, 2)."""
    a, b, c, d = means
    moves = parts - means
    below = b * c + moves @ np.array([0.0, c, b, 0.0])
    above = below - a * d - moves @ np.array([d, 0.0, 0.0, a])
    return np.stack([above, below], axis=1)


def _placebo_of(table: ScoreTable, setting: str | None) -> tuple[Scores, ...]:
    placebo_patches = _argument(table, Needs.PLACEBO_PATCHES, setting)
    return placebo_parts(table.clean, table.patches(_one(setting)), _argument(table, Needs.NO_IMAGE, setting), placebo_patches)


def _argument(table: ScoreTable, need: Needs, setting: str | None) -> Scores:
    values: Scores | None = table.argument(need, _one(setting))
    if values is None:
        raise UsageError(f"the table has no {need.value}: an interval of {setting!r} needs them")
    return values


def _one(setting: str | None) -> str:
    if setting is None:
        raise UsageError("this interval belongs to one setting: say which, for example 'patches:3'")
    return setting
