"""The effect of luck on PCRI and RCI, and companions of the raw index that remove part of it.

The best of n*n patches is the best of n*n attempts: a model that guesses, or that sees no more in a patch than in the whole
image, has a raw index below 0. These functions compute how far below, and remove it. The formulas are ours; the papers (PCRI,
arXiv 2509.23879; RCI, arXiv 2509.23673) report only the raw index.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import ROUNDING

from .accuracy import Bounds
from .patches import (
    best,
    chance_of_no_luck,
    index_of,
    index_reach,
    interval_of_index,
    lowest_whole,
    neutral_index,
    patch_metric,
    whole_and_patches,
)
from .record import Circumstances
from .scores import Scores, pair_scores, require_equal_lengths
from .statistics.means import guarded_ratio_interval
from .table import Needs, ScoreTable


def pcri_neutral(whole_score: ArrayLike, options: ArrayLike, attempts: int) -> float:
    """PCRI of a model unaffected by the rest of the image: 1 - [1 - (1 - P) (1 - 1/k)^(m-1)] / P.

    Such a model knows from the best patch exactly what it knows from the whole image, and guesses the rest anew for each patch.
    ``[pcri_neutral, 0]`` is the luck envelope: a raw index inside it is no evidence of distraction. It is 0 if the same
    question gets the same guess in every view.

    Args:
        whole_score: score of the whole image P, in [0, 1]: of all samples or of each one, shape (N,).
        options: number of options, of all questions or of each one, shape (N,); infinite for an open question.
        attempts: number of patches m, at least 1.

    Returns at most 0; NaN if the full-image score is 0 (undefined), without questions or for a missing score.

    Source: PCRI equation 1 for the model described.

    >>> round(pcri_neutral(0.8, 4, 4), 3), round(pcri_neutral(0.8, 4, 9), 3)
    (-0.145, -0.225)
    """
    chances = _chances(options, attempts)
    whole = pair_scores(whole_score=np.atleast_1d(np.asarray(whole_score)))[0]
    if len(whole) > 1 and len(chances) > 1:
        require_equal_lengths({"whole_score": len(whole), "options": len(chances)})
    full, guesses = np.broadcast_arrays(whole, chances)
    return neutral_index(full, guesses, attempts)


def _chances(options: ArrayLike, attempts: int) -> Scores:
    counts = np.atleast_1d(np.asarray(options, dtype=np.float64))
    if attempts < 1:
        raise ValueError(f"attempts is {attempts!r}: expected the number of patches, at least 1")
    if (wrong := counts[~(counts >= 1.0)]).size:
        raise ValueError(f"options has {float(wrong[0])!r}: expected at least 1, and infinity for an open question")
    chances: Scores = 1.0 / counts
    return chances


def excess_contrast(whole: Scores, patches: Scores, chances: Scores) -> Scores:
    """Returns, for each sample, the failures of its best patch in excess of those expected from luck, shape (N,).

    ``(1 - max_j A_ij) - (1 - 1/k_i)^(m-1) (1 - whole_i)``: the mean is 0 for a model that knows from the best patch what it knows
    from the whole image and guesses the rest, positive if the whole is needed, negative if it distracts.
    """
    luck: Scores = chance_of_no_luck(chances, patches.shape[1]) * (1.0 - whole)
    contrast: Scores = (1.0 - best(patches)) - luck
    return contrast


def excess_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the index less luck, as the ratio of its linear contrast to the full-image score."""
    chances = table.required(Needs.CHANCES, setting)
    patches = table.required(Needs.PATCHES, setting)
    parts = np.stack([excess_contrast(table.clean, patches, chances), table.clean], axis=1)
    luckiest = -float(chance_of_no_luck(chances, patches.shape[1]).max())
    return guarded_ratio_interval(parts, table.clusters, confidence, against_low=(luckiest, 0.0), against_high=(1.0, 1.0))


def excess_reach(circumstances: Circumstances) -> tuple[float, float]:
    """Returns the range of the index less luck: ``-u (1 - P) / P`` to ``(1 - u (1 - P)) / P``, u = (1 - 1/k)^(m - 1).

    At the ends all best patches are right, or none is, for a full-image score P, k options and m patches.
    If k or m is unknown, u is 1, as for
    open questions; if P is unknown, see :func:`index_reach`.

    >>> [round(end, 3) for end in excess_reach(Circumstances(attempts=9, options=2, clean=0.6))]
    [-0.003, 1.664]
    """
    whole = lowest_whole(circumstances)
    luck = (
        1.0
        if circumstances.options is None or circumstances.attempts is None
        else (1.0 - 1.0 / circumstances.options) ** (circumstances.attempts - 1)
    )
    return -luck * (1.0 - whole) / whole, (1.0 - luck * (1.0 - whole)) / whole


@patch_metric(
    needs=(Needs.CLEAN, Needs.PATCHES, Needs.CHANCES),
    bounds=(-math.inf, math.inf),
    reference="PCRI equation 1, less the value that luck alone gives (our companion)",
    unsuited="Where a model gives the same guess in every view it takes out too much luck, and where answers vary for other "
    "reasons too little. Use `pcri_matched` in a rule that blocks.",
    interval=excess_interval,
    monotone={Needs.PATCHES: -1, Needs.CHANCES: 1},
    not_monotone={Needs.CLEAN: "it raises the score and the luck that is removed"},
    reach=excess_reach,
)
def pcri_excess(whole: ArrayLike, patches: ArrayLike, chances: ArrayLike) -> float:
    """PCRI less what luck alone gives: below 0 the rest of the image distracts, above 0 it is needed.

    Raw PCRI minus :func:`pcri_neutral`, that is ``mean(z) / mean(whole)`` with ``z_i = (1 - max_j A_ij) - (1 - 1/k_i)^(m-1)
    (1 - whole_i)``. It removes the luck of guesses among options, and errs both ways: if a model gives the same guess in
    every view the correction is too large, and the value errs towards "needed"; if its answers vary between views for
    other reasons than guessing it is too small, and a model unaffected by the rest of the image has a value below 0.
    Gate :func:`pcri_matched`.

    Formula: ``[sum_i (1 - max_j patches_ij) - (1 - chance_i)^(m-1) (1 - whole_i)] / sum_i whole_i, for m patches``

    Returns:
        About 0 for a model unaffected by the rest of the image; NaN if the full-image score is 0 (undefined), for no
        samples, no patches or a missing score.

    >>> round(pcri_excess([1, 1, 1, 0], [[1, 0], [1, 1], [0, 0], [1, 0]], [0.5, 0.5, 0.5, 0.5]), 3)
    0.167
    """
    full, views = whole_and_patches(whole, patches=patches)
    guesses = pair_scores(whole=full, chances=chances)[1]
    total = float(full.sum())
    if total <= ROUNDING or not views.shape[1]:
        return math.nan
    return float(excess_contrast(full, views, guesses).sum()) / total


def matched_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the index against the best of equally many attempts at the whole image, allowing for new guesses on each attempt.

    A model that keeps its guess when the image is shifted shows less luck in its attempts than it has on patches. The upper
    bound allows for this: if new guesses for each attempt would have been right more often than the attempts were, it is
    that of the index against such guesses. So luck alone never shows distraction, and a low index that luck can explain is
    undecided.
    """
    attempts, patches = table.required(Needs.WHOLE_ATTEMPTS, setting), best(table.required(Needs.PATCHES, setting))
    low, high = interval_of_index(table, patches, best(attempts), confidence)
    chances = table.chance_of_each()
    if chances is None:
        return low, high
    guessed = 1.0 - chance_of_no_luck(chances, attempts.shape[1]) * (1.0 - table.clean)
    hidden = float(guessed.mean()) > float(best(attempts).mean())
    return low, max(high, interval_of_index(table, patches, guessed, confidence)[1]) if hidden else high


@patch_metric(
    needs=(Needs.CLEAN, Needs.PATCHES, Needs.WHOLE_ATTEMPTS),
    reference="PCRI equation 1, with as many attempts at the whole image as there are patches (our companion)",
    unsuited="On yes/no questions luck may explain every patch, so that a rule passes or stays undecided, and never fails. "
    "It costs n * n - 1 further answers for each sample; use `pcri` to compare with published numbers.",
    interval=matched_interval,
    unchanged=0.0,
    monotone={Needs.CLEAN: 0, Needs.PATCHES: -1, Needs.WHOLE_ATTEMPTS: 1},
    reach=index_reach,
)
def pcri_matched(whole: ArrayLike, patches: ArrayLike, whole_attempts: ArrayLike) -> float:
    """PCRI with equal luck on both sides: the best of n*n patches against the best of n*n attempts at the whole image.

    Exactly 0 in expectation for a model that guesses and for one unaffected by the rest of the image, of the right sign
    otherwise, and closer to 0 than the truth. It removes as much luck as the attempts have: they show the image slightly shifted
    (``attempts:n``), with the same question and order of options. A model that keeps its answer when the image
    is shifted, but not when it sees another patch, has the luck of patches left in the value, which then errs towards
    "distracted". The interval allows for luck by guessing, so such a model is undecided; a note says how many samples differ
    between attempts. If most samples are right in some attempt the value cannot be far below 0: it is at least ``1 - 1 / P``
    for a share P of samples with a right attempt.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(max_j attempts_ij)``

    Returns:
        At most 1; NaN if no attempt at a whole image is right (undefined), for no samples, no patches or a missing score.

    >>> pcri_matched([1, 0], [[1, 0], [0, 1]], [[1, 1], [0, 1]])
    0.0
    """
    full, views, attempts = whole_and_patches(whole, patches=patches, whole_attempts=whole_attempts)
    return math.nan if np.isnan(full).any() else index_of(best(views), best(attempts))
