"""What luck does to PCRI and RCI, and companions of the raw index that it does less to.

The best of n*n patches is the best of n*n attempts: a model that guesses, or that sees no more in a patch than in the whole
image, has a raw index below 0. These functions say how far below, and take it out. The formulas are ours; the papers (PCRI,
arXiv 2509.23879; RCI, arXiv 2509.23673) report the raw index alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from . import patch_intervals, validity
from .patch_intervals import best, excess_contrast, excess_reach, index_reach, unlucky, whole_and_patches
from .record import Needs
from .registry import metric
from .scores import ROUNDING, Scores, paired, require_equal_lengths
from .table import ScoreTable

_ABOVE_CHANCE = "the full-image score is at least chance + max(1 pp, 2 standard errors)"


def pcri_chance(options: ArrayLike, attempts: int) -> float:
    """PCRI of a model that guesses: 1 - k (1 - (1 - 1/k)^m) for k options and m patches.

    Args:
        options: number of options, of all questions or of each one, shape (N,); infinite for an open question.
        attempts: number of patches m, at least 1.

    Returns:
        At most 0; NaN without questions, or when all are open (a guess is never right: undefined).

    Raises:
        ValueError: fewer than one option or attempt.

    Source: PCRI equation 1 for a model whose answers are independent of the image.

    >>> round(pcri_chance(4, 4), 3), round(pcri_chance(4, 9), 3)
    (-1.734, -2.7)
    """
    chances = _chances(options, attempts)
    return _index(1.0 - (1.0 - chances) ** attempts, chances)


def pcri_neutral(whole_score: ArrayLike, options: ArrayLike, attempts: int) -> float:
    """PCRI of a model to which the rest of the image is indifferent: 1 - [1 - (1 - P) (1 - 1/k)^(m-1)] / P.

    Such a model knows from the best patch exactly what it knows from the whole image, and guesses the rest anew for each patch.
    ``[pcri_neutral, 0]`` is the luck envelope: a raw index inside it is no evidence of distraction. It is 0 when the same
    question gets the same guess in every view.

    Args:
        whole_score: score of the whole image P, in [0, 1]: of all samples or of each one, shape (N,).
        options: number of options, of all questions or of each one, shape (N,); infinite for an open question.
        attempts: number of patches m, at least 1.

    Returns:
        At most 0; NaN if the full-image score is 0 (undefined), without questions or for a missing score.

    Raises:
        ValueError: fewer than one option or attempt, a score outside [0, 1], or unequal lengths.

    Source: PCRI equation 1 for the model described.

    >>> round(pcri_neutral(0.8, 4, 4), 3), round(pcri_neutral(0.8, 4, 9), 3)
    (-0.145, -0.225)
    """
    chances = _chances(options, attempts)
    whole = paired(whole_score=np.atleast_1d(np.asarray(whole_score)))[0]
    if len(whole) > 1 and len(chances) > 1:
        require_equal_lengths({"whole_score": len(whole), "options": len(chances)})
    full, guesses = np.broadcast_arrays(whole, chances)
    return _neutral(full, guesses, attempts)


def luck_envelope(table: ScoreTable) -> str:
    """Returns which raw indices luck alone explains, for each grid of patches; an empty string when that is unknown."""
    chances = table.chance_of_each()
    if chances is None:
        return ""
    sizes = {setting: patches.shape[1] for setting, patches in (table.patches_by_setting or {}).items() if patches.shape[1]}
    ends = {setting: _neutral(table.clean, chances, attempts) for setting, attempts in sizes.items()}
    said = [f"{end:.3f} to 0 ({setting})" for setting, end in ends.items() if not math.isnan(end)]
    return f"luck alone gives {', '.join(said)}" if said else ""


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES, Needs.CHANCES),
    unit="ratio",
    better="none",
    perfect=0.0,
    reference="PCRI equation 1, less the value that luck alone gives (our companion)",
    validity=_ABOVE_CHANCE,
    suite="patches",
    interval=patch_intervals.excess,
    gate=validity.whole_is_above_chance,
    monotone={Needs.PATCHES: -1, Needs.CHANCES: 1},
    not_monotone={Needs.CLEAN: "it raises the score and the luck that is taken out"},
    best_patch_is_enough=True,
    reach=excess_reach,
)
def pcri_excess(whole: ArrayLike, patches: ArrayLike, chances: ArrayLike) -> float:
    """PCRI less what luck alone gives: below 0 the rest of the image distracts, above 0 it is needed.

    Raw PCRI minus :func:`pcri_neutral`, that is ``mean(z) / mean(whole)`` with ``z_i = (1 - max_j A_ij) - (1 - 1/k_i)^(m-1)
    (1 - whole_i)``. It takes out the luck of guesses among options, and errs both ways: where a model gives the same guess in
    every view the correction is too large, and the value errs towards "needed"; where its answers vary from view to view for
    another reason than guessing it is too small, and a model to which the rest of the image is indifferent has a value below 0.
    Gate :func:`pcri_matched`.

    Formula: ``[sum_i (1 - max_j patches_ij) - (1 - chance_i)^(m-1) (1 - whole_i)] / sum_i whole_i, for m patches``

    Args:
        whole: shape (N,), each in [0, 1].
        patches: shape (N, n*n), the same samples, each patch alone.
        chances: shape (N,), expected score of guessing of each sample: 1/k, 0 for open questions.

    Returns:
        About 0 for a model to which the rest of the image is indifferent; NaN if the full-image score is 0 (undefined), for no
        samples, no patches or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> round(pcri_excess([1, 1, 1, 0], [[1, 0], [1, 1], [0, 0], [1, 0]], [0.5, 0.5, 0.5, 0.5]), 3)
    0.167
    """
    full, views = whole_and_patches(whole, patches=patches)
    guesses = paired(whole=full, chances=chances)[1]
    total = float(full.sum())
    if total <= ROUNDING or not views.shape[1]:
        return math.nan
    return float(excess_contrast(full, views, guesses).sum()) / total


@metric(
    needs=(Needs.CLEAN, Needs.PATCHES, Needs.WHOLE_ATTEMPTS),
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    reference="PCRI equation 1, with as many attempts at the whole image as there are patches (our companion)",
    validity=_ABOVE_CHANCE,
    suite="patches",
    interval=patch_intervals.matched,
    gate=validity.whole_is_above_chance,
    unchanged=0.0,
    monotone={Needs.CLEAN: 0, Needs.PATCHES: -1, Needs.WHOLE_ATTEMPTS: 1},
    best_patch_is_enough=True,
    reach=index_reach,
)
def pcri_matched(whole: ArrayLike, patches: ArrayLike, whole_attempts: ArrayLike) -> float:
    """PCRI with equal luck on both sides: the best of n*n patches against the best of n*n attempts at the whole image.

    Exactly 0 in expectation for a model that guesses and for one to which the rest of the image is indifferent, of the right sign
    otherwise, and nearer to 0 than the truth. It takes out as much luck as the attempts have: they are the image shifted a little
    (``attempts:n``), with the question and the order of its options as they are. A model that sticks to its answer when the image
    is shifted, and not when it sees another patch, has the luck of patches left in the value, which then errs towards
    "distracted". As far as that luck is one of guesses the interval allows for it, so that such a model is undecided; a note says
    how many samples differ between attempts. Where most samples are right in some attempt little can be lost: the value is at
    least ``1 - 1 / P`` for a share P of samples with a right attempt.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(max_j attempts_ij)``

    Args:
        whole: shape (N,), each in [0, 1], the first attempt; only its length and gaps matter here.
        patches: shape (N, n*n), each patch alone.
        whole_attempts: shape (N, n*n), attempts at the whole image.

    Returns:
        At most 1; NaN if no attempt at a whole image is right (undefined), for no samples, no patches or a missing score.

    Raises:
        ValueError: unequal lengths or numbers of attempts, a score outside [0, 1], or another shape.

    >>> pcri_matched([1, 0], [[1, 0], [0, 1]], [[1, 1], [0, 1]])
    0.0
    """
    full, views, attempts = whole_and_patches(whole, patches=patches, whole_attempts=whole_attempts)
    return math.nan if np.isnan(full).any() else _index(best(views), best(attempts))


def _neutral(whole: Scores, chances: Scores, attempts: int) -> float:
    return _index(1.0 - (1.0 - whole) * unlucky(chances, attempts), whole)


def _index(attempted: Scores, whole: Scores) -> float:
    total = float(whole.sum())
    return 1.0 - float(attempted.sum()) / total if total > ROUNDING else math.nan


def _chances(options: ArrayLike, attempts: int) -> Scores:
    counts = np.atleast_1d(np.asarray(options, dtype=np.float64))
    if attempts < 1:
        raise ValueError(f"attempts is {attempts!r}: expected the number of patches, at least 1")
    if (wrong := counts[~(counts >= 1.0)]).size:
        raise ValueError(f"options has {float(wrong[0])!r}: expected at least 1, and infinity for an open question")
    chances: Scores = 1.0 / counts
    return chances
