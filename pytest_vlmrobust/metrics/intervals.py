"""Intervals of the registered metrics: ``(table, setting, confidence) -> (low, high)``, the level being two-sided.

Each bound of a 0.90 interval is a one-sided 95 % bound, which is what a gate compares with its threshold. Scores have no missing
values and N > 0 when these are called. Samples of one group are taken as one observation in every interval. Student's t is
"guarded" where each bound is taken as though one more sample argued against it: see ``statistics.guarded``.
"""

from __future__ import annotations

import itertools

import numpy as np

from pytest_vlmrobust.core.cell import CLEAN_NAME
from pytest_vlmrobust.core.errors import UsageError

from .completeness import BENIGN, CATASTROPHIC, SEVERE, low_settings, types, worst_tenth
from .scores import Scores, is_binary, per_sample, stacked
from .statistics.clusters import Clusters, one_sided
from .statistics.means import BoundedMeanTest, expected_gain, guarded_ratio_interval
from .statistics.multiple import count_interval, largest_few_lower, largest_few_upper
from .statistics.paired import BoundTest, drop_test, largest_bounds
from .statistics.proportions import judged_proportion_interval
from .statistics.ratios import score_ratio_interval
from .table import ScoreTable

# Intervals of what pictures are worth, and of shares of it, where answers without the pictures are right, wrong or guesses.
#
# A refusal to answer without the picture counts what a guess does: 1/4, 1/2. Student's t is no help there when nearly all answers
# with pictures are right: with 100 samples the upper bound of a share then lies below the truth in up to 17 % of runs instead of
# 5 %, which passes what should not. So guesses join 0 and 1 among the values that one score can have, and the score test stays.


_MOST = 16
"""Values of a blind score up to which they are guesses among a few options; graded scores have more."""


def visual_gain_interval(clean: Scores, blind: Scores, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds mean(clean - blind): tails of flips for 0/1 scores, the score test for guesses among them, guarded t otherwise.

    Args:
        clean: shape (N,) with N > 0, each in [0, 1].
        blind: shape (N,), the same samples without their pictures.
        clusters: which of the N samples move together.
        confidence: two-sided level in (0, 1).

    Returns:
        ``(low, high)``.
    """
    values = _values(blind)
    if not is_binary(clean) or is_binary(blind) or len(values) > _MOST:
        test, tail = drop_test(blind, clean[:, None], clusters), one_sided(confidence)  # a gain is the loss of the other
        return -float(test.upper(tail)[0]), -float(test.lower(tail)[0])
    support = np.array([(seen - one, 1.0) for seen in (0.0, 1.0) for one in values])
    low, high = score_ratio_interval(clean - blind, np.ones(len(clean)), clusters, confidence, np.unique(support, axis=0))
    return max(low, -1.0), min(high, 1.0)


def share_of_gain_interval(
    clean: Scores, perturbed: Scores, blind: Scores, clusters: Clusters, confidence: float
) -> tuple[float, float]:
    """Bounds mean(clean - perturbed) / mean(clean - blind), known to have a positive denominator.

    By the score test of the linear contrast for 0/1 scores, blind guesses among them. For graded scores, and means over several
    settings, by guarded Student's t: one more sample that loses all and needs no picture argues against the upper end, one that
    gains as much as :func:`expected_gain` says against the lower one. Without it, and 3 % of samples lost under nine tenths of
    the settings, the upper end errs two to three times as often as it says.

    Args:
        clean: shape (N,) with N > 0, each in [0, 1].
        perturbed: shape (N,), the same samples.
        blind: shape (N,), the same samples without their pictures.
        clusters: which of the N samples move together.
        confidence: two-sided level in (0, 1).

    Returns:
        ``(low, high)``; a side is infinite where the gain cannot be told from 0.
    """
    values = _values(blind)
    if not is_binary(clean, perturbed) or len(values) > _MOST:
        losses = clean - perturbed
        gained = (-expected_gain(losses, confidence), 0.0)
        parts = np.stack([losses, clean - blind], axis=1)
        return guarded_ratio_interval(parts, clusters, confidence, against_low=gained, against_high=(1.0, 0.0))
    cases = itertools.product((0.0, 1.0), (0.0, 1.0), values)
    support = np.unique(np.array([(seen - then, seen - one) for seen, then, one in cases]), axis=0)
    return score_ratio_interval(clean - perturbed, clean - blind, clusters, confidence, support)


def _values(blind: Scores) -> list[float]:
    """Returns the values that a blind score can have: those that are there, wrong and right."""
    return sorted({0.0, 1.0, *blind.tolist()})


Bounds = tuple[float, float]

_SEED = 0
"""A verdict must not depend on when it is asked for."""


def accuracy(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds an accuracy: Clopper-Pearson for 0/1 scores, guarded Student's t for graded ones."""
    return mean_bounds(table, table.scores(_one(setting)), confidence)


def clean_accuracy(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001  the signature of an interval
    """Bounds the clean accuracy: Clopper-Pearson for 0/1 scores, guarded Student's t for graded ones."""
    return mean_bounds(table, table.clean, confidence)


def accuracy_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds a drop: by tails of flips for 0/1 scores, by guarded Student's t for graded ones."""
    return drop_bounds(table.clean, table.scores(_one(setting)), table.clusters, confidence)


def baseline_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the loss since an earlier run: by tails of flips for 0/1 scores, by guarded Student's t for graded ones."""
    then, now = _baseline(table, _one(setting)), table.scores(_one(setting))
    return drop_bounds(then, now, table.clusters, confidence)


def drop_increase(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the growth of a drop since an earlier run by guarded Student's t over the samples' own differences of differences.

    The guard is a sample that lost 1, as one does whose answer flips in a single one of the four measurements. Twice that is
    possible and takes two opposite flips of one sample, which does not happen without many samples that flip once.
    """
    now = table.clean - table.scores(_one(setting))
    then = _baseline(table, CLEAN_NAME) - _baseline(table, _one(setting))
    return _loss_bounds(table, now - then, confidence)


def mean_baseline_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean loss since an earlier run: tails of flips for 0/1 scores of one setting, otherwise guarded Student's t."""
    then = per_sample({name: _baseline(table, name) for name in table.by_setting})
    return drop_bounds(then, per_sample(table.by_setting), table.clusters, confidence)


def visual_gain(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the visual gain: tails of flips for 0/1 scores, the score test for guesses among them, guarded t otherwise."""
    return visual_gain_interval(table.clean, _blind(table), table.clusters, confidence)


def accuracy_above_chance(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the gain over not looking, as the visual gain: what would be said blindly counts as known."""
    if table.floors is None:
        raise UsageError("the table has no scores without looking: an interval of the gain over chance needs them")
    return visual_gain_interval(table.clean, table.floors, table.clusters, confidence)


def harmful_flip_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of harmful flips: Clopper-Pearson for 0/1 scores, guarded Student's t for graded ones."""
    return mean_bounds(table, (table.clean - table.scores(_one(setting))).clip(min=0.0), confidence)


def helpful_flip_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of helpful flips: Clopper-Pearson for 0/1 scores, guarded Student's t for graded ones."""
    return mean_bounds(table, (table.scores(_one(setting)) - table.clean).clip(min=0.0), confidence)


def relative_corruption_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds a drop relative to the visual gain; a side is infinite where the gain cannot be told from 0.

    By the score test of the linear contrast for 0/1 scores, blind guesses among them, by guarded Student's t for graded ones.
    """
    return _share_of_gain(table, table.scores(_one(setting)), confidence)


def mean_relative_corruption_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean drop relative to the visual gain by guarded Student's t; a side is infinite where it is not shown to be."""
    return _share_of_gain(table, table.matrix().mean(axis=1), confidence)


def mean_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean drop by guarded Student's t over the samples' own mean drops.

    The upper end allows for one more sample that loses everything, the lower one for one that gains as much as others did.
    """
    return _mean_drop_bounds(table, tuple(table.by_setting), confidence)


def mean_drop_at_low(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean drop over the settings at level low, as :func:`mean_drop` does."""
    return _mean_drop_bounds(table, low_settings(table.by_setting), confidence)


def mean_harmful_flip_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean share of harmful flips by guarded Student's t over the samples' own shares."""
    return _t_bounds(table, (table.clean[:, None] - table.matrix()).clip(min=0.0).mean(axis=1), confidence)


def mean_helpful_flip_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean share of helpful flips by guarded Student's t over the samples' own shares."""
    return _t_bounds(table, (table.matrix() - table.clean[:, None]).clip(min=0.0).mean(axis=1), confidence)


def worst_tenth_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean of the largest tenth of the drops, by guarded Student's t, whichever settings they belong to.

    Above by the largest of the upper bounds of the means over any tenth of the settings, without correction
    (intersection-union). Below by samples that did not choose the settings: each fold judges those that the others choose.
    """
    drops, tail = table.clean[:, None] - table.matrix(), one_sided(confidence)
    few = worst_tenth(drops.shape[1])
    value = float(np.sort(drops.mean(axis=0))[-few:].mean())
    low = largest_few_lower(drops, table.clusters, few, tail, np.random.default_rng(_SEED))
    return min(low, value), max(largest_few_upper(drops, table.clusters, few, tail), value)


def worst_case_drop(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest drop over all settings: above without correction (intersection-union), below by Bonferroni's."""
    return _largest_bounds(table, tuple(table.by_setting), confidence)


def worst_at_low(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest drop over the settings at level low, as :func:`worst_case_drop` does."""
    return _largest_bounds(table, low_settings(table.by_setting), confidence)


def severe_failure_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the share of settings that cost more than a tenth of the clean accuracy, by partial conjunction of their tests.

    For 0/1 scores the clean accuracy is taken as measured: samples that were right when clean are the ones that can flip, so that
    its own error would narrow the interval, not widen it.
    """
    tail, matrix = one_sided(confidence), table.matrix()
    if is_binary(table.clean, matrix):
        return _share_above(drop_test(table.clean, matrix, table.clusters), SEVERE * float(table.clean.mean()), tail)
    losses = (1.0 - SEVERE) * table.clean[:, None] - matrix
    return _share_above(BoundedMeanTest.of_losses(losses, table.clusters, largest=1.0 - SEVERE), 0.0, tail)


def catastrophic_rate(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the share of settings that cost more than 10 pp, by partial conjunction of their tests."""
    return _share_above(drop_test(table.clean, table.matrix(), table.clusters), CATASTROPHIC, one_sided(confidence))


def benign_at_low(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the share of low settings that cost less than 1 pp, by partial conjunction of their tests."""
    matrix = table.matrix(low_settings(table.by_setting))
    low, high = _share_above(drop_test(table.clean, matrix, table.clusters), BENIGN, one_sided(confidence))
    return 1.0 - high, 1.0 - low


def mean_corruption_error(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the mean corruption error; the reference model's errors on the same samples are uncertain as well.

    Each sample's influence on a ratio of sums E/R is (e - (E/R) r) / mean(r); influences add up over perturbations. By guarded
    Student's t: a further sample may be wrong under all settings where the reference model is right; or the other way round, as
    far as such samples were seen, and at least a quarter of the way.
    """
    reference, influence, value = table.reference_by_setting or {}, np.zeros(table.samples), 0.0
    worst, best = 0.0, 0.0
    kinds = types(table.by_setting)
    for settings in kinds.values():
        ours = (1.0 - table.matrix(settings)).sum(axis=1)
        theirs = (1.0 - stacked({name: reference[name] for name in settings}, table.samples)).sum(axis=1)
        ratio = float(ours.sum() / theirs.sum())
        influence += (ours - ratio * theirs) / float(theirs.mean()) / len(kinds)
        value += ratio / len(kinds)
        weight = len(settings) / float(theirs.mean()) / len(kinds)  # of a sample under all settings of a perturbation
        worst, best = worst + weight, best + ratio * weight
    low, high = _bounds_of(BoundedMeanTest.of_losses(influence[:, None], table.clusters, best, worst), confidence)
    return max(value + low, 0.0), value + high


def drop_bounds(before: Scores, after: Scores, clusters: Clusters, confidence: float) -> Bounds:
    """Bounds the mean of ``before - after``, paired by sample: by tails of flips for 0/1 scores, by guarded t for graded ones."""
    return _bounds_of(drop_test(before, after[:, None], clusters), confidence)


def mean_bounds(table: ScoreTable, values: Scores, confidence: float) -> Bounds:
    """Bounds the mean of values in [0, 1], one per sample of a table: Clopper-Pearson for 0 and 1, otherwise guarded t."""
    if is_binary(values):
        return judged_proportion_interval(values, table.clusters, confidence)
    return _t_bounds(table, values, confidence)


def _t_bounds(table: ScoreTable, values: Scores, confidence: float) -> Bounds:
    """Bounds the mean of values in [0, 1]."""
    return _bounds_of(BoundedMeanTest.of(values[:, None], table.clusters, 0.0, 1.0), confidence)


def _mean_drop_bounds(table: ScoreTable, settings: tuple[str, ...], confidence: float) -> Bounds:
    return _loss_bounds(table, table.clean - table.matrix(settings).mean(axis=1), confidence)


def _loss_bounds(table: ScoreTable, losses: Scores, confidence: float) -> Bounds:
    """Bounds the mean of losses in [-1, 1]."""
    return _bounds_of(BoundedMeanTest.of_losses(losses[:, None], table.clusters), confidence)


def _bounds_of(test: BoundTest, confidence: float) -> Bounds:
    tail = one_sided(confidence)
    return float(test.lower(tail)[0]), float(test.upper(tail)[0])


def _largest_bounds(table: ScoreTable, settings: tuple[str, ...], confidence: float) -> Bounds:
    test = drop_test(table.clean, table.matrix(settings), table.clusters)
    return largest_bounds([test], len(settings), one_sided(confidence))


def _share_above(test: BoundTest, bound: float, tail: float) -> Bounds:
    """Bounds the share of m drops that lie above ``bound``, by partial conjunction."""
    above, below = test.p_above(bound), test.p_below(bound)
    low, high = count_interval(above, below, tail)
    return low / above.size, high / above.size


def _blind(table: ScoreTable) -> Scores:
    if table.no_image is None:
        raise UsageError("the table has no scores without images: measure the setting 'no_image'")
    return table.no_image


def _share_of_gain(table: ScoreTable, perturbed: Scores, confidence: float) -> Bounds:
    return share_of_gain_interval(table.clean, perturbed, _blind(table), table.clusters, confidence)


def _baseline(table: ScoreTable, setting: str) -> Scores:
    scores = (table.baseline_by_setting or {}).get(setting)
    if scores is None:
        raise UsageError(f"the table has no scores of an earlier run under {setting!r}: pass baseline_by_setting")
    return scores


def _one(setting: str | None) -> str:
    if setting is None:
        raise UsageError("this interval belongs to one setting: say which, for example 'glass_blur:low'")
    return setting
