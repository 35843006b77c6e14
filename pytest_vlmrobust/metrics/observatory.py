"""Metrics of identity matching, grid pointing, attribute localisation and group comparison, with their intervals.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import quantity

from .accuracy import Bounds, interval_of_gain
from .corruption import mean_drop, mean_drop_interval
from .record import Interval, mean_over_settings, metric, of_gain, of_mean
from .statistics.clusters import one_sided
from .statistics.means import guarded_ratio_interval
from .statistics.paired import GroupMeans, drop_interval, largest_gap_interval
from .table import (
    BySetting,
    Needs,
    Scores,
    ScoreTable,
    against_clean,
    as_scores,
    by_setting,
    clusters_of,
    mean,
    pair_scores,
    per_sample,
    under_same_settings,
)

PROMPT_MARGIN = 0.05
"""Margin over the overlap predicted from the prompt, 5 percentage points. A model above it must have looked at the image: the
best rule found for predicting boxes from the prompt, of any form and fitted to any number of other images, overlaps by
3 points more than a linear rule fitted to the samples."""
_TAIL = 0.05
"""Error probability of the claim that a model does a task."""
UNKNOWN = ""
"""Label of an unknown position or group of people; gaps leave out samples with it."""

# Whether a model does the task at all. If it does not, its losses and gaps mean nothing


def does_the_task(table: ScoreTable, _setting: str | None = None) -> str:
    """Returns why a model is not shown to do a task at all, or an empty string. Without that, losses and gaps mean nothing.

    The one-sided 95 % bound of its gain over asking without the images must be above 0. This is a real hurdle for boxes:
    without the image, a model can still copy the boxes of the context. A missing score counts against the model; if all scores
    are missing, the result is unknown.
    """
    if table.no_image is None or not table.samples or np.isnan(table.no_image).all():
        return "there are no scores without the images, so it is unknown whether the model does the task"
    return _not_above(table, table.no_image, 0.0, "without")


def exceeds_the_prompt(table: ScoreTable, overlaps: Scores) -> str:
    """Returns why a model is not shown to look at the image when boxes are requested, or an empty string.

    The one-sided 95 % bound of its gain over predictions from the prompt must be above ``PROMPT_MARGIN``: a model that refuses
    to answer without the images may, with them, still answer from the prompt. A missing score counts against the model.

    Args:
        table: scores of N samples with the images, N > 0.
        overlaps: shape (N,), the overlap of predictions from the prompt alone, see :func:`prompt_leakage_iou`.
    """
    return _not_above(table, overlaps, PROMPT_MARGIN, "from what the prompt tells alone")


def _not_above(table: ScoreTable, other: Scores, margin: float, whence: str) -> str:
    """Returns that the gain over other scores is not shown to exceed a margin, or an empty string."""
    if np.isnan(table.clean).all():
        return "there are no scores with the images, so it is unknown whether the model does the task"
    seen, guessed = np.nan_to_num(table.clean, nan=0.0), np.nan_to_num(other, nan=1.0)
    if interval_of_gain(seen, guessed, table.clusters, 1.0 - 2.0 * _TAIL)[0] > margin:
        return ""
    lost = int(np.isnan(table.clean).sum() + np.isnan(other).sum())
    against = f", {quantity(lost, 'missing score counts', 'missing scores count')} against the model" if lost else ""
    scores = f"{seen.mean():.2f} with the images, {guessed.mean():.2f} {whence}, n={table.samples}"
    return f"cannot do the task: {scores}{against}"


# Robustness of matching and pointing


@metric(
    suite="observatory",
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (identity matching robustness)",
    validity="at least one perturbation; the model is shown to do better with the images than without",
    unsuited="A model that hardly does the task has little to lose. Bound `identity_accuracy` beside it, and use "
    "`split_transfer_retention` for boxes.",
    interval=mean_drop_interval,
    gate=does_the_task,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def identity_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean loss of accuracy in matching or pointing when the image is perturbed, over all perturbations of the sweep.

    The paper reports it by split (15 augmentations, 15 illusions): sweep one of them at a time, or see
    :func:`identity_drop_by_split`.

    Formula: ``mean over perturbations s of mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    >>> identity_drop([1, 1, 1, 0], {"fog:low": [1, 1, 1, 0], "dunes": [0, 0, 1, 0]})
    0.25
    """
    return mean_drop(clean, perturbed_by_setting)


def identity_drop_by_split(clean: ArrayLike, perturbed_by_setting: BySetting, splits: Mapping[str, str]) -> dict[str, float]:
    """Averages the accuracy drop over the perturbations of each split: augmentations and illusions, say.

    Returns for each split the mean drop, a fraction in [-1, 1]; NaN for no samples or a missing score.

    Source: The Perceptual Observatory section 3.3 (identity matching robustness).

    >>> identity_drop_by_split([1, 1], {"fog:low": [1, 1], "dunes": [0, 1]}, {"fog:low": "id", "dunes": "ood"})
    {'id': 0.0, 'ood': 0.5}
    """
    before, after = against_clean(clean, perturbed_by_setting)
    if lost := [setting for setting in after if setting not in splits]:
        raise ValueError(f"splits does not say to which split {lost[0]!r} belongs: name one for each setting")
    members: dict[str, dict[str, Scores]] = {}
    for setting, scores in after.items():
        members.setdefault(splits[setting], {})[setting] = scores
    return {split: identity_drop(before, scores) for split, scores in members.items()}


# Gaps between positions and between groups of people


GAP_MOVES = "it narrows the gap in the weakest group and widens it in the strongest"
"""Why gaps are not monotone in the scores that they compare."""


def _interval_of_gap(need: Needs) -> Interval:
    def interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
        """Bounds the largest minus the smallest mean over known labels: above without correction, below by Bonferroni's."""
        labels: Sequence[str] = table.required(need)
        known = np.flatnonzero([bool(label) for label in labels])
        scores = table.required(Needs.PERTURBED, setting)[known]
        groups = GroupMeans.of(scores, [label for label in labels if label], table.clusters.within(known))
        return largest_gap_interval(groups, confidence)

    return interval


position_gap_interval, group_gap_interval = _interval_of_gap(Needs.POSITIONS), _interval_of_gap(Needs.PEOPLE)


gap_metric = partial(metric, suite="observatory", better="lower", bounds=(0.0, 1.0), perfect=0.0, gate=does_the_task)
position_metric = partial(
    gap_metric,
    validity="at least two positions; the model is shown to do better with the images than without",
    note=lambda table: _left_out_note(table.positions, "position"),
)


@position_metric(
    needs=(Needs.PERTURBED, Needs.POSITIONS),
    reference="The Perceptual Observatory section 3.3 (invariance to spatial arrangements)",
    unsuited="It does not compare grids of different size: noise widens it with every further position. Use "
    "`split_position_gap`, a mean over several settings, where there are few samples at each.",
    interval=position_gap_interval,
    not_monotone={Needs.PERTURBED: GAP_MOVES},
)
def position_gap(scores: ArrayLike, positions: Sequence[Hashable]) -> float:
    """Largest minus smallest accuracy over the positions at which the target was shown.

    Unreadable answers count as wrong, as everywhere; the published code leaves them out of this gap, which flatters a model
    that seldom answers. Noise widens the gap between equal positions, more so with more positions.

    A sample without a known position (empty text) is left out.

    Formula: ``max over positions p of mean(scores at p) - min over positions p of mean(scores at p)``

    Returns: A fraction in [0, 1]; NaN for fewer than two positions, no samples or a missing score.

    >>> position_gap([1, 1, 0, 1], ["[0,0]", "[0,0]", "[0,1]", "[0,1]"])
    0.5
    """
    return _gap(as_scores(scores, "scores"), positions, "positions")


people_metric = partial(
    gap_metric,
    validity="at least two groups; the model is shown to do better with the images than without",
    note=lambda table: _left_out_note(table.people, "group of people"),
)


@people_metric(
    needs=(Needs.PERTURBED, Needs.PEOPLE),
    reference="The Perceptual Observatory section 3.3 (gender bias); the absolute value of its GAP for two groups",
    unsuited="A gap near 0 is no fairness where the model fails everybody, and gaps of small groups are too large, because "
    "noise never makes one negative. Bound `accuracy` beside it, and judge by the interval.",
    interval=group_gap_interval,
    not_monotone={Needs.PERTURBED: GAP_MOVES},
)
def group_gap(scores: ArrayLike, groups: Sequence[Hashable]) -> float:
    """Largest minus smallest mean score over groups of people; :func:`signed_group_gap` shows which of two is ahead.

    A sample without a known group (empty text) is left out.

    Formula: ``max over groups g of mean(scores of g) - min over groups g of mean(scores of g)``

    Returns: A fraction in [0, 1], without sign; NaN for fewer than two groups, no samples or a missing score.

    >>> group_gap([1, 1, 0, 1], ["F", "F", "M", "M"])
    0.5
    """
    return _gap(as_scores(scores, "scores"), groups, "groups")


def signed_group_gap(scores: ArrayLike, groups: Sequence[Hashable], first: Hashable, second: Hashable) -> float:
    """GAP: mean score of the group ``first`` minus that of ``second``, with its sign.

    Args:
        scores: shape (N,), each in [0, 1]: right or wrong, or an overlap.
        groups: N groups; samples of other groups are left out.
        first: the group whose advantage is positive; the paper's is "male".
        second: the group compared with.

    Returns a fraction in [-1, 1]; NaN if a group has no sample, or a missing score.

    Source: The Perceptual Observatory section 3.3 (gender bias).

    >>> signed_group_gap([1, 1, 0, 1], ["F", "F", "M", "M"], "M", "F")
    -0.5
    """
    chosen, kept = _two_groups(scores, groups, first, second)
    means = [mean(chosen[[group == name for group in kept]]) for name in (first, second)]
    return means[0] - means[1]


class GroupMean(NamedTuple):
    """The mean score of one group with its interval."""

    value: float
    low: float
    high: float
    n: int


def group_means(
    scores: ArrayLike, labels: Sequence[Hashable], confidence: float = 0.90, source_images: Sequence[str] | None = None
) -> dict[Hashable, GroupMean]:
    """Returns the mean score at each position, or of each group, with its own interval: Wilson's for 0/1 scores.

    Returns for each label the mean, interval and number of samples, in order of appearance.

    Source: The Perceptual Observatory, published evaluation code (Wilson intervals of each cell).

    >>> group_means([1, 1, 0, 1], ["top", "top", "low", "low"])["low"].value
    0.5
    """
    values = as_scores(scores, "scores")
    require_one_label_each(values, labels, "labels")
    if np.isnan(values).any():
        raise ValueError(f"scores[{int(np.isnan(values).argmax())}] is missing (NaN): leave out samples without a score")
    one_sided(confidence)
    means = GroupMeans.of(values, labels, clusters_of(source_images, len(values)))
    parts = zip(means.names, means.members, means.limits(confidence).tolist() if len(values) else (), strict=True)
    return {name: GroupMean(mean(members), low, high, len(members)) for name, members, (low, high) in parts}


def _gap(scores: Scores, labels: Sequence[Hashable], name: str) -> float:
    require_one_label_each(scores, labels, name)
    if np.isnan(scores).any():
        return math.nan
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        if label != UNKNOWN and label == label:  # noqa: PLR0124 - NaN, the missing label of tables, is no group
            members.setdefault(label, []).append(index)
    if len(members) < 2:
        return math.nan
    means = [mean(scores[indices]) for indices in members.values()]
    return max(means) - min(means)


def _two_groups(
    scores: ArrayLike, groups: Sequence[Hashable], first: Hashable, second: Hashable
) -> tuple[Scores, list[Hashable]]:
    values = as_scores(scores, "scores")
    require_one_label_each(values, groups, "groups")
    if first == second:
        raise ValueError(f"both groups are {first!r}: expected two different ones")
    rows = [row for row, group in enumerate(groups) if group in {first, second}]
    return values[rows], [groups[row] for row in rows]


def require_one_label_each(scores: Scores, labels: Sequence[Hashable], name: str) -> None:
    """Raises ValueError unless there is one label for each score."""
    if len(labels) != len(scores):
        raise ValueError(f"scores has {len(scores)} values and {name} has {len(labels)}: expected one for each sample")


def _left_out_note(names: Sequence[str] | None, noun: str) -> str:
    unknown = sum(not name for name in names or ())
    return f"left out {unknown} of {len(names or ())} samples of unknown {noun}" if unknown else ""


# The share of localisation that survives a perturbation


def transfer_retention_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of the mean overlap that is kept; a side is infinite if the original may be 0.

    Uses guarded Student's t: one more sample may lose all, or gain all.
    """
    parts, lost = np.stack([table.required(Needs.PERTURBED, setting), table.clean], axis=1), (0.0, 1.0)
    low, high = guarded_ratio_interval(parts, table.clusters, confidence, against_low=lost, against_high=(1.0, 0.0), gains="high")
    return max(low, 0.0), high


retention_metric = partial(
    metric,
    suite="observatory",
    unit="ratio",
    better="higher",
    bounds=(0.0, math.inf),
    perfect=1.0,
    validity="the model is shown to overlap more with the original images than without",
    gate=does_the_task,
    unchanged=1.0,
)


@retention_metric(
    needs=(Needs.PERTURBED, Needs.CLEAN),
    reference="The Perceptual Observatory section 3.3 (TR)",
    unsuited="Where the original overlap is small, a few boxes decide it and luck takes it above 1. Bound `accuracy`, the "
    "mean overlap under the setting, beside it.",
    interval=transfer_retention_interval,
    monotone={Needs.PERTURBED: 1, Needs.CLEAN: -1},
)
def transfer_retention(perturbed_iou: ArrayLike, original_iou: ArrayLike) -> float:
    """TR: the share of the mean overlap (guided localisation) that survives a perturbation.

    A model that copies the boxes of the context without looking keeps all of its overlap.

    Formula: ``mean(perturbed) / mean(clean)``

    Returns: At least 0, 1.0 when nothing is lost; NaN if the original mean is 0 (undefined), for no samples or a missing score.

    >>> transfer_retention([0.4, 0.2], [0.8, 0.4])
    0.5
    """
    after, before = pair_scores(perturbed_iou=perturbed_iou, original_iou=original_iou)
    total = float(before.sum())
    return float(after.sum()) / total if total > ROUNDING else math.nan


# Properties of a model over one split of the settings: original images, augmentations, or illusions.
#
# Each sample's scores are first averaged over the settings of the split, so each setting has the same weight and samples remain
# the source of uncertainty. Original images are the split with ``clean`` as its only setting.


_SPLIT = "split"


def over_split(of_one: Interval) -> Interval:
    """Turns the interval for one setting into that over a split, from each sample's mean over the settings."""

    def of_split(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
        return of_one(replace(table, by_setting={_SPLIT: per_sample(table.by_setting)}), _SPLIT, confidence)

    of_split.__doc__ = of_one.__doc__
    return of_split


def _of_split(of_one: Callable[..., float], scores: BySetting, *others: Any) -> float:
    by_name = by_setting(scores)
    return of_one(per_sample(by_name), *others) if by_name else math.nan


@metric(
    suite="observatory",
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="The Perceptual Observatory section 3.3 (identity matching robustness), table 1 (Org, ID, OOD)",
    unsuited="It does not say whether the perturbations or the task itself cost the score, and hides a single setting that "
    "fails. Use `identity_drop` for the loss and `accuracy` for each setting.",
    interval=of_mean(mean_over_settings()),
    monotone={Needs.PERTURBED_BY_SETTING: 1},
)
def identity_accuracy(perturbed_by_setting: BySetting) -> float:
    """Mean score over the settings of a split: accuracy in matching and pointing, overlap of boxes in localisation.

    An answer that could not be read is wrong and counts.

    Formula: ``mean over settings s of mean(perturbed_s)``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    >>> identity_accuracy({"fog:low": [1, 1], "dunes": [0, 1]})
    0.75
    """
    return _of_split(mean, perturbed_by_setting)


@position_metric(
    reference="The Perceptual Observatory section 3.3 (invariance to spatial arrangements), averaged by split as its code does",
    unsuited="A preference that moves from cell to cell between settings averages out: `position_gap` shows it. A model that "
    "is wrong everywhere has no gap; bound `identity_accuracy` beside it.",
    interval=over_split(position_gap_interval),
    not_monotone={Needs.PERTURBED_BY_SETTING: GAP_MOVES},
)
def split_position_gap(perturbed_by_setting: BySetting, positions: Sequence[Hashable]) -> float:
    """Largest minus smallest accuracy over the positions at which the target was shown, averaged over a split first.

    The mean of the gaps of each setting would be larger: noise widens each of them. See :func:`position_gap` for one setting.

    A sample without a known position (empty text) is left out.

    Formula: ``max over positions p of A_p - min over positions p of A_p, with A_p = mean over settings s of mean(perturbed_s at
    p)``

    Returns: A fraction in [0, 1]; NaN for fewer than two positions, no settings, no samples or a missing score.

    >>> split_position_gap({"fog:low": [1, 1], "dunes": [0, 1]}, ["[0,0]", "[0,1]"])
    0.5
    """
    return _of_split(position_gap, perturbed_by_setting, positions)


@people_metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.PEOPLE),
    reference="The Perceptual Observatory section 3.3 (gender bias), the absolute value of its GAP averaged by split",
    unsuited="It averages out a group that loses under one setting only, which `group_gap` shows. Groups whose images are "
    "harder have a gap as well, so that it is no proof of bias.",
    interval=over_split(group_gap_interval),
    not_monotone={Needs.PERTURBED_BY_SETTING: GAP_MOVES},
)
def split_group_gap(perturbed_by_setting: BySetting, groups: Sequence[Hashable]) -> float:
    """Largest minus smallest mean score over groups of people, averaged over a split first.

    See :func:`group_gap` for one setting; :func:`signed_group_gap` shows which of two groups is ahead.

    A sample without a known group (empty text) is left out.

    Formula: ``max over groups g of A_g - min over groups g of A_g, with A_g = mean over settings s of mean(perturbed_s of g)``

    Returns: A fraction in [0, 1], without sign; NaN for fewer than two groups, no settings, no samples or a missing score.

    >>> split_group_gap({"fog:low": [1, 1, 0], "dunes": [0, 1, 0]}, ["F", "M", ""])
    0.5
    """
    return _of_split(group_gap, perturbed_by_setting, groups)


@retention_metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.CLEAN),
    reference="The Perceptual Observatory section 3.3 (TR), averaged by split",
    unsuited="A perturbation that keeps nothing is hidden among others: see `transfer_retention` of each. A poor overlap may "
    "be kept as well as a good one, so bound `identity_accuracy` beside it.",
    interval=over_split(transfer_retention_interval),
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.CLEAN: -1},
)
def split_transfer_retention(perturbed_by_setting: BySetting, original_iou: ArrayLike) -> float:
    """TR over a split: the share of the mean overlap (guided localisation) that survives its perturbations on average.

    A model that copies the boxes of the context without looking keeps all of its overlap. See :func:`transfer_retention` for
    one setting.

    Formula: ``mean over settings s of mean(perturbed_s) / mean(clean)``

    Returns: At least 0, 1.0 when nothing is lost; NaN if the original mean is 0 (undefined), for no settings, no samples or a
    missing score.

    >>> split_transfer_retention({"fog:low": [0.4, 0.2], "dunes": [0.8, 0.4]}, [0.8, 0.4])
    0.75
    """
    return _of_split(transfer_retention, perturbed_by_setting, original_iou)


# Gains from another way of asking on the same samples: thinking first, a hint


asking_metric = partial(metric, suite="observatory", better="higher", bounds=(-1.0, 1.0), perfect=0.0, unchanged=0.0)


@asking_metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.BASE_BY_SETTING),
    reference="The Perceptual Observatory section 3.3 (thinking superiority)",
    validity="the same model answered the same samples without thinking",
    unsuited="Where the limit of tokens cuts off the thinking, answers cannot be read and count as wrong: it then measures "
    "the limit. Use `identity_accuracy` for how good the answers are.",
    interval=of_gain(mean_over_settings(Needs.BASE_BY_SETTING), mean_over_settings()),
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.BASE_BY_SETTING: -1},
)
def thinking_gain(thinking_by_setting: BySetting, base_by_setting: BySetting) -> float:
    """Mean score with thinking minus that without, on the same samples under the settings of a split.

    A model that answers everything right without thinking has nothing to gain.

    Formula: ``mean over settings s of mean(perturbed_s - base_s)``

    Returns: A fraction in [-1, 1], above 0 when thinking helps; NaN for no settings, no samples or a missing score.

    >>> thinking_gain({"clean": [1, 1, 0, 1]}, {"clean": [1, 0, 0, 1]})
    0.25
    """
    return _gain(thinking_by_setting, base_by_setting, "base_by_setting", "the model without thinking")


@asking_metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.UNHINTED_BY_SETTING),
    reference="The Perceptual Observatory section 3.3 (salient perceptual understanding, semi-guided)",
    validity="the same attributes were asked for without the hint",
    unsuited="The box of the hint helps to guess the others without a look at the image, and a model that is right without "
    "it cannot gain. Read it beside `identity_accuracy`.",
    interval=of_gain(mean_over_settings(Needs.UNHINTED_BY_SETTING), mean_over_settings()),
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.UNHINTED_BY_SETTING: -1},
)
def hint_gain(hinted_by_setting: BySetting, unhinted_by_setting: BySetting) -> float:
    """Mean overlap with one box as a hint minus that without it, under the settings of a split: spatial common sense.

    A model that finds everything without the hint has nothing to gain.

    Formula: ``mean over settings s of mean(perturbed_s - unhinted_s)``

    Returns: A fraction in [-1, 1], above 0 if the hint helps; NaN for no settings, no samples or a missing score.

    >>> hint_gain({"clean": [0.75, 0.5]}, {"clean": [0.5, 0.25]})
    0.25
    """
    return _gain(hinted_by_setting, unhinted_by_setting, "unhinted_by_setting", "the task without the hint")


def gain_interval(
    after: ArrayLike, before: ArrayLike, confidence: float = 0.90, source_images: Sequence[str] | None = None
) -> tuple[float, float]:
    """Bounds a mean gain over the same samples: tails of flips for 0/1 scores, guarded Student's t otherwise.

    Returns ``(low, high)``, fractions in [-1, 1]; NaN for no samples or a missing score.

    Source: ours, see ``statistics.paired``; the share of helpful flips as in Tango 1998.

    >>> low, high = gain_interval([1] * 36 + [0] * 13 + [1] * 820, [0] * 36 + [1] * 833)
    >>> round(low, 4), round(high, 4)
    (0.013, 0.0409)
    """
    one_sided(confidence)
    new, old = pair_scores(after=after, before=before)
    if not new.size or np.isnan(new.sum() + old.sum()):
        return math.nan, math.nan
    low, high = drop_interval(old, new, clusters_of(source_images, new.size), confidence)  # of the loss
    return max(-high, -1.0), min(-low, 1.0)


def _gain(after_by_setting: BySetting, before_by_setting: BySetting, name: str, whom: str) -> float:
    after, before = under_same_settings(after_by_setting, before_by_setting, name, whom)
    return mean(per_sample(after) - per_sample(before)) if after else math.nan


# Human performance on the tasks, for reference lines in reports
#
# Source: The Perceptual Observatory (arXiv 2512.15949), section 5.8: 100 samples of each of its two datasets, two annotators. The
# numbers apply to its images (celebrities and rendered words), not to those of a run, and decide nothing.


_STUDY = "two people on the paper's own faces and words (The Perceptual Observatory, section 5.8)"


class HumanReference(NamedTuple):
    """Human performance in one task."""

    text: str
    """The number as published, who reached it, and its source."""
    value: float
    """A fraction in [0, 1]; the bound if the paper says "above"."""


_BY_TASK = {
    "matching": HumanReference(f"above 95 %, {_STUDY}", 0.95),
    "pointing": HumanReference(f"above 95 %, {_STUDY}", 0.95),
    "guided_published": HumanReference(f"81 % mIoU in the hardest perturbed setting, {_STUDY}", 0.81),
}


def human_reference(task: str) -> HumanReference | None:
    """Returns the human performance in a task; None if nothing is published.

    There is no separate number for localisation with one hint, and none for larger grids.

    Args:
        task: ``"matching"``, ``"pointing"``, ``"guided_published"`` or another: people were not tested on moved queries, for
        example.

    >>> human_reference("guided_published").value
    0.81
    """
    return _BY_TASK.get(task)
