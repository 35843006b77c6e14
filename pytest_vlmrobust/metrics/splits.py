"""Properties of a model over one split of the Observatory's settings: original images, augmentations, or illusions.

Each sample's scores are first averaged over the settings of the split, so each setting has the same weight and samples remain
the source of uncertainty. Original images are the split with ``clean`` as its only setting.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .accuracy import Bounds
from .observatory import (
    GAP_MOVES,
    group_gap,
    group_gap_interval,
    people_metric,
    position_gap,
    position_gap_interval,
    position_metric,
    retention_metric,
    transfer_retention,
    transfer_retention_interval,
)
from .record import Interval, mean_over_settings, metric, of_gain, of_mean
from .statistics.clusters import one_sided
from .statistics.paired import drop_interval
from .table import BySetting, Needs, ScoreTable, by_setting, clusters_of, mean, pair_scores, per_sample, under_same_settings

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
