"""PCRI and RCI compare the whole image with its best patch; read as properties of a model and of a dataset.

Every index is a ratio of means over the same samples, so its bounds come from linear contrasts. Few samples are right only on the
whole image, or only on a patch, so each bound is guarded by one more sample of that kind.

Sources: PCRI (arXiv 2509.23879) and RCI (arXiv 2509.23673), which read the same quantity as a property of the model and of the
dataset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import percent

from .accuracy import SMALLEST_MARGIN, Bounds, smallest_difference
from .record import Circumstances, metric
from .severity import spearman
from .statistics.means import guarded_ratio_interval
from .table import Needs, Scores, ScoreTable, as_scores, pair_scores, require_equal_lengths

Item = TypeVar("Item")

# The scores that the metrics read from each sample


def whole_and_patches(whole: ArrayLike, **patches: ArrayLike) -> tuple[Scores, ...]:
    """Returns the scores of the whole image, shape (N,), and those of each named array of patches, shape (N, n*n)."""
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
    """Returns the best score of each sample, shape (N,), from ``attempts`` (N, m); NaN if there are none or one is missing."""
    # numpy's max keeps NaN: a missing attempt might have been the best one
    return attempts.max(axis=1, initial=0.0) if attempts.shape[1] else np.full(len(attempts), math.nan)


def index_of(attempted: Scores, whole: Scores) -> float:
    """Returns 1 - mean(attempted) / mean(whole), each of shape (N,); NaN if no answer to a whole image is right."""
    total = float(whole.sum())
    return 1.0 - float(attempted.sum()) / total if total > ROUNDING else math.nan


def interval_of_index(table: ScoreTable, attempted: Scores, whole: Scores, confidence: float) -> Bounds:
    """Bounds 1 - attempted / whole; the guards are a sample right only on a patch and a sample right only on the whole image."""
    parts = np.stack([whole - attempted, whole], axis=1)
    return guarded_ratio_interval(parts, table.clusters, confidence, against_low=(-1.0, 0.0), against_high=(1.0, 1.0))


# The raw index


def index_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds 1 - best patch / whole, as the ratio (whole - best patch) / whole."""
    return interval_of_index(table, best(table.required(Needs.PATCHES, setting)), table.clean, confidence)


def index_reach(circumstances: Circumstances) -> tuple[float, float]:
    """Returns the range of 1 - best patch / whole: from all best patches right to none.

    ``1 - 1/P`` to 1 for a full-image score P; with as many attempts at the whole image, P is at least that of the first one. If
    P is unknown, it is the smallest score for which the index is defined: chance plus one percentage point.

    >>> [round(end, 3) for end in index_reach(Circumstances(clean=0.8))]
    [-0.25, 1.0]
    """
    return 1.0 - 1.0 / lowest_whole(circumstances), 1.0


def lowest_whole(circumstances: Circumstances) -> float:
    """Returns the full-image score, or the smallest one for which indices of patches are defined."""
    chance = 1.0 / circumstances.options if circumstances.options else 0.0
    return circumstances.clean if circumstances.clean is not None else min(chance + SMALLEST_MARGIN, 1.0)


def whole_is_above_chance(table: ScoreTable, _setting: str | None) -> str:
    """Returns why the full-image score cannot be compared with patches, or an empty string.

    Chance is the score of guessing or, if larger and the targets are known, that of the same answer to every question.

    Source: PCRI section 3 and RCI section 3.2, "Validity domain and chance", with the analytic standard error.
    """
    chance = table.expected_chance_level()
    if chance is None:
        return "the chance level of the dataset is unknown, so the full-image score cannot be compared with it"
    needed = chance + smallest_difference(table, table.clean)
    whole = float(table.clean.mean())
    if whole >= needed - ROUNDING:
        return ""
    if math.isinf(needed):
        return "too few samples for a standard error of the full-image score"
    why = f", {table.chance_note}," if table.chance_note else ""
    return (
        f"the full-image score of {percent(whole)} is below {percent(needed)} "
        f"(chance {percent(chance)}{why} plus the larger of 1 pp and 2 standard errors)"
    )


def chance_of_no_luck(chances: Scores, attempts: int) -> Scores:
    """Returns the probability that all of ``attempts`` - 1 further guesses fail, too: (1 - 1/k)^(m - 1)."""
    missed: Scores = (1.0 - chances) ** (attempts - 1)
    return missed


def neutral_index(whole: Scores, chances: Scores, attempts: int) -> float:
    """Returns the index of a model to which the rest of the image is indifferent, see :func:`pcri_neutral`."""
    return index_of(1.0 - (1.0 - whole) * chance_of_no_luck(chances, attempts), whole)


def luck_envelope(table: ScoreTable) -> str:
    """Returns the raw indices that luck alone explains, for each grid of patches; an empty string if they are unknown."""
    chances = table.chance_of_each()
    if chances is None:
        return ""
    sizes = {setting: patches.shape[1] for setting, patches in (table.patches_by_setting or {}).items() if patches.shape[1]}
    ends = {setting: neutral_index(table.clean, chances, attempts) for setting, attempts in sizes.items()}
    envelopes = [f"{end:.3f} to 0 ({setting})" for setting, end in ends.items() if not math.isnan(end)]
    return f"luck alone gives {', '.join(envelopes)}" if envelopes else ""


patch_metric = partial(
    metric,
    unit="ratio",
    better="none",
    bounds=(-math.inf, 1.0),
    perfect=0.0,
    validity="the full-image score is at least chance + max(1 pp, 2 standard errors)",
    suite="patches",
    gate=whole_is_above_chance,
    best_patch_is_enough=True,
)
raw_metric = partial(
    patch_metric,
    needs=(Needs.CLEAN, Needs.PATCHES),
    interval=index_interval,
    note=luck_envelope,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PATCHES: -1},
    reach=index_reach,
)


@raw_metric(
    reference="PCRI section 3, equation 1",
    unsuited="It cannot show distraction: guesses on n * n patches pull it below 0, to -1.7 at 2 x 2 for a model that "
    "guesses among four options. Bound `pcri_matched`, or read `pcri_excess` where nothing but luck is to be removed.",
)
def pcri(whole: ArrayLike, patches: ArrayLike) -> float:
    """Patch Context Robustness Index: 1 - (score of the best patch of each sample) / (score of the whole image).

    Below 0 the best patch beats the whole image, which the paper reads as distraction. A value below 0 is not enough
    to show distraction: n*n attempts beat one even for a model that guesses, and a model that needs the whole image can have a
    raw index below 0. See :func:`pcri_neutral` for the part due to luck and :func:`pcri_excess` for the rest.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(whole_i)``

    Returns: At most 1; NaN if the full-image score is 0 (undefined), for no samples, no patches or a missing score.

    >>> pcri([1, 1, 0, 0], [[0, 1], [0, 0], [0, 1], [1, 1]])
    -0.5
    """
    full, views = whole_and_patches(whole, patches=patches)
    return index_of(best(views), full)


def relative_index_change(coarse: float, fine: float) -> float:
    """Relative fall of an index from a coarse grid to a fine one: above 0 if finer patches help more.

    Formula: ``(coarse - fine) / |coarse|``

    Returns a ratio; NaN if the index of the coarse grid is 0 (undefined) or one is NaN. It says little if that index is
    small.

    Source: PCRI appendix A.4.6 and figure 7, from 2 x 2 to 3 x 3.

    >>> round(relative_index_change(-0.036, -0.079), 3)
    1.194
    """
    return (coarse - fine) / abs(coarse) if abs(coarse) > ROUNDING else math.nan


@raw_metric(
    reference="RCI section 3.2, equation 1",
    unsuited="It does not compare datasets with different numbers of options: at 3 x 3 luck makes a choice among four "
    '"strong local" for a model that is right on 75 % or less. Use `pcri_matched` unless the questions are open.',
)
def rci(whole: ArrayLike, patches: ArrayLike) -> float:
    """Region Comprehension Index: :func:`pcri` of a reference model, read as a property of the dataset.

    Formula: ``1 - mean_i(max_j patches_ij) / mean_i(whole_i)``

    Returns: At most 1: above 0 the dataset needs the whole image; below 0 a region is enough, or luck explains it (see
    :func:`pcri`). NaN if the full-image score is 0 (undefined), for no samples, no patches or a missing score.
    """
    full, views = whole_and_patches(whole, patches=patches)
    if math.isqrt(views.shape[1]) ** 2 != views.shape[1]:
        raise ValueError(f"patches has {views.shape[1]} columns: expected those of a grid of n x n, such as 4 or 9")
    return index_of(best(views), full)


# The index of a dataset: its band, the patches that give right answers, corpus metrics, agreement between models


RCI_BANDS = ("strong local", "moderate local", "balanced", "moderate global", "strong global")


def rci_band(value: float) -> str:
    """Names the band of a Region Comprehension Index.

    ``strong local`` up to -0.30, ``moderate local`` up to -0.10, ``balanced`` up to 0.10, ``moderate global`` below 0.30 and
    ``strong global`` from 0.30. The paper puts 0.30 into two bands; here it is strong, like -0.30. Bands of raw indices inherit
    their luck: with four options, guessing alone is "strong local".

    Returns one of :data:`RCI_BANDS`.

    Source: RCI section 3.2, "Guidance for RCI".

    >>> rci_band(-0.30), rci_band(0.30)
    ('strong local', 'strong global')
    """
    if math.isnan(value):
        raise ValueError("the index is NaN: an index that is unknown has no band. Check for NaN first")
    if value > 1.0 + ROUNDING:
        raise ValueError(f"the index is {value!r}: expected at most 1, the value of patches that never help")
    if value >= 0.30 - ROUNDING:
        return RCI_BANDS[-1]
    return next(
        (band for band, end in zip(RCI_BANDS, (-0.30, -0.10, 0.10), strict=False) if value <= end + ROUNDING), RCI_BANDS[3]
    )


def percentile_bands(values: Mapping[str, float]) -> dict[str, str]:
    """Names the band of each dataset by the fifth of all datasets that its index falls into: percentile-based calibration.

    Returns for each dataset one of :data:`RCI_BANDS`: up to the 20th percentile of the indices ``strong local``, and so on. Empty
    for fewer datasets: they make no scale.

    Source: RCI section 3.2, which recommends percentiles without naming any. Fifths, one for each band, are ours.

    >>> percentile_bands({"a": -0.5, "b": -0.2, "c": 0.0, "d": 0.1, "e": 0.2})["b"]
    'moderate local'
    """
    if any(map(math.isnan, values.values())):
        raise ValueError("an index is NaN: an index that is unknown has no band. Leave it out")
    if len(values) < len(RCI_BANDS):
        return {}
    ends = np.quantile(list(values.values()), np.arange(1, len(RCI_BANDS)) / len(RCI_BANDS))
    return {name: RCI_BANDS[int((ends < value - ROUNDING).sum())] for name, value in values.items()}


def patch_contribution(patches: ArrayLike) -> tuple[float, ...]:
    """Share of all correct answers given from each patch position alone: the map of spatial bias.

    Returns n*n fractions that add up to 1; all NaN without any correct answer, for no samples or a missing score.

    Source: RCI section 3.3.

    >>> patch_contribution([[1, 0], [1, 1], [1, 0]])
    (0.75, 0.25)
    """
    by_position: list[float] = as_scores(patches, "patches", axes=2).sum(axis=0).tolist()
    total = sum(by_position)
    return tuple(right / total if total > 0.0 else math.nan for right in by_position)


def best_patches(scores: ArrayLike) -> tuple[int, ...]:
    """Chooses the best patch of each sample, the first of several equally good ones.

    Ties do not matter for averaged scores, but they do for corpus metrics, so the rule is fixed.

    Returns N positions, counted row by row from 0.

    Source: RCI appendix A.1; the tie rule is ours.

    >>> best_patches([[0, 1, 1], [0, 0, 0]])
    (1, 0)
    """
    views = as_scores(scores, "scores", axes=2)
    if not views.shape[1]:
        raise ValueError(f"scores has shape {views.shape}: expected at least one patch for each sample")
    if (holes := np.isnan(views).any(axis=1)).any():
        sample = int(holes.argmax())
        raise ValueError(f"scores[{sample}] has a missing score (NaN): which patch is best is unknown. Leave out such samples")
    return tuple(views.argmax(axis=1).tolist())


def corpus_pcri(
    corpus_metric: Callable[[Sequence[Item]], float], whole: Sequence[Item], patches: Sequence[Sequence[Item]], scores: ArrayLike
) -> float:
    """PCRI or RCI under a metric of the whole corpus: 1 - M(answers of the best patches) / M(answers of the whole images).

    For metrics that are not a mean over samples: CIDEr, F1, accuracy by group of questions. Each sample's patch is chosen by
    its own score; the metric then sees all chosen answers together.

    Args:
        corpus_metric: computes a score from N items, on any scale with 0 as the worst.
        whole: N items as the metric reads them (such as an answer with its references), from the whole images.
        patches: N lists of n*n items, from each patch alone.
        scores: shape (N, n*n), score of each of these in [0, 1], used to choose the patch.

    Returns the index; NaN if the metric of the whole images is not above 0 (undefined), or NaN.

    Source: RCI appendix A.1; PCRI section 3.

    >>> corpus_pcri(lambda answers: answers.count("cat"), ["cat", "dog"], [["dog", "cat"], ["cat", "dog"]], [[0, 1], [1, 0]])
    -1.0
    """
    chosen = best_patches(scores)
    require_equal_lengths({"whole": len(whole), "patches": len(patches), "scores": len(chosen)})
    if wrong := [sample for sample, views in enumerate(patches) if len(views) != np.shape(scores)[1]]:
        raise ValueError(
            f"patches[{wrong[0]}] has {len(patches[wrong[0]])} items and scores has {np.shape(scores)[1]} for each sample: "
            "expected one item for each score"
        )
    full = float(corpus_metric(whole))
    selected = float(corpus_metric([views[position] for views, position in zip(patches, chosen, strict=True)]))
    return 1.0 - selected / full if full > ROUNDING else math.nan


class Correlation(NamedTuple):
    """How the indices of two models agree over datasets."""

    pearson: float
    spearman: float
    datasets: int


def rci_correlation(first: Mapping[str, float], second: Mapping[str, float]) -> Correlation:
    """Correlates the indices of the same datasets by two reference models.

    A high value means that both models rank the datasets alike. Luck has the same effect: it depends on the number of
    options, which is the same for all models.

    Returns Pearson's and Spearman's correlation in [-1, 1] and the number of datasets; correlations are NaN for fewer than two
    datasets, if one side is constant, or if an index is NaN.

    Source: RCI section 4.2.1 and figure 2 (Pearson); ranks are ours.

    >>> rci_correlation({"a": -0.3, "b": 0.0, "c": 0.2}, {"a": -0.2, "b": 0.1, "c": 0.3}).spearman
    1.0
    """
    if alone := sorted(set(first) ^ set(second)):
        raise ValueError(f"only one of the two models was measured on {alone[0]!r}: leave it out of both, or measure it")
    pairs = np.array([[first[name], second[name]] for name in first], dtype=np.float64).reshape(-1, 2).T
    return Correlation(_pearson(pairs), spearman(*pairs.tolist()), pairs.shape[1])


def _pearson(pairs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    if pairs.shape[1] < 2 or np.isnan(pairs).any() or not np.ptp(pairs, axis=1).all():
        return math.nan
    deviations = pairs - pairs.mean(axis=1, keepdims=True)
    spread = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    return min(max(float(deviations[0] @ deviations[1]) / spread, -1.0), 1.0)


# The effect of luck on PCRI and RCI, and companions of the raw index that remove part of it.
#
# The best of n*n patches is the best of n*n attempts: a model that guesses, or that sees no more in a patch than in the whole
# image, has a raw index below 0. These functions compute how far below, and remove it. The formulas are ours; the papers (PCRI,
# arXiv 2509.23879; RCI, arXiv 2509.23673) report only the raw index.


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

    Returns: About 0 for a model unaffected by the rest of the image; NaN if the full-image score is 0 (undefined), for no
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

    Returns: At most 1; NaN if no attempt at a whole image is right (undefined), for no samples, no patches or a missing score.

    >>> pcri_matched([1, 0], [[1, 0], [0, 1]], [[1, 1], [0, 1]])
    0.0
    """
    full, views, attempts = whole_and_patches(whole, patches=patches, whole_attempts=whole_attempts)
    return math.nan if np.isnan(full).any() else index_of(best(views), best(attempts))
