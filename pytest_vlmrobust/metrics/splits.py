"""Properties of a model over one split: original pictures, augmentations, or illusions.

Scores are averaged over the settings of the split for each sample first, so that each setting counts the same and samples stay
what is uncertain. Original pictures are the split whose only setting is ``clean``.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 and its published evaluation code.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from numpy.typing import ArrayLike

from . import observatory_intervals, validity
from .observatory import GAP_MOVES, group_gap, position_gap, transfer_retention
from .record import Needs
from .registry import metric
from .scores import BySetting, by_setting, mean, per_sample


@metric(
    needs=(Needs.PERTURBED_BY_SETTING,),
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="The Perceptual Observatory section 3.3 (identity matching robustness), table 1 (Org, ID, OOD)",
    suite="observatory",
    interval=observatory_intervals.identity_accuracy,
    monotone={Needs.PERTURBED_BY_SETTING: 1},
)
def identity_accuracy(perturbed_by_setting: BySetting) -> float:
    """Mean score over the settings of a split: accuracy in matching and pointing, overlap of boxes in localisation.

    An answer that could not be read is wrong and counts.

    Formula: ``mean over settings s of mean(perturbed_s)``

    Args:
        perturbed_by_setting: setting to scores, shape (N,); ``clean`` for original pictures.

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> identity_accuracy({"fog:low": [1, 1], "dunes": [0, 1]})
    0.75
    """
    scores = by_setting(perturbed_by_setting)
    return mean(per_sample(scores)) if scores else math.nan


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.POSITIONS),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (invariance to spatial arrangements), averaged by split as its code does",
    validity="at least two positions; the model is shown to do better with the pictures than without",
    suite="observatory",
    interval=observatory_intervals.split_position_gap,
    gate=validity.does_the_task,
    note=validity.unknown_positions,
    not_monotone={Needs.PERTURBED_BY_SETTING: GAP_MOVES},
)
def split_position_gap(perturbed_by_setting: BySetting, positions: Sequence[Hashable]) -> float:
    """Largest minus smallest accuracy over the positions at which the target was shown, averaged over a split first.

    The mean of the settings' own gaps would be larger: noise widens each of them. See :func:`position_gap` for one setting.

    Formula: ``max over positions p of A_p - min over positions p of A_p, with A_p = mean over settings s of mean(perturbed_s at
    p)``

    Args:
        perturbed_by_setting: setting to scores, shape (N,); ``clean`` for original pictures.
        positions: N positions, anything that can be compared for equality; a sample at an unknown one (empty text) is left out.

    Returns:
        A fraction in [0, 1]; NaN for fewer than two positions, no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> split_position_gap({"fog:low": [1, 1], "dunes": [0, 1]}, ["[0,0]", "[0,1]"])
    0.5
    """
    scores = by_setting(perturbed_by_setting)
    return position_gap(per_sample(scores), positions) if scores else math.nan


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.PEOPLE),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (gender bias), the absolute value of its GAP averaged by split",
    validity="at least two groups; the model is shown to do better with the pictures than without",
    suite="observatory",
    interval=observatory_intervals.split_group_gap,
    gate=validity.does_the_task,
    note=validity.unknown_people,
    not_monotone={Needs.PERTURBED_BY_SETTING: GAP_MOVES},
)
def split_group_gap(perturbed_by_setting: BySetting, groups: Sequence[Hashable]) -> float:
    """Largest minus smallest mean score over groups of people, averaged over a split first.

    See :func:`group_gap` for one setting, and :func:`signed_group_gap` for which of two groups is ahead.

    Formula: ``max over groups g of A_g - min over groups g of A_g, with A_g = mean over settings s of mean(perturbed_s of g)``

    Args:
        perturbed_by_setting: setting to scores, shape (N,); ``clean`` for original pictures.
        groups: N groups, anything that can be compared for equality; a sample of an unknown one (empty text) is left out.

    Returns:
        A fraction in [0, 1], without sign; NaN for fewer than two groups, no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> split_group_gap({"fog:low": [1, 1, 0], "dunes": [0, 1, 0]}, ["F", "M", ""])
    0.5
    """
    scores = by_setting(perturbed_by_setting)
    return group_gap(per_sample(scores), groups) if scores else math.nan


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.CLEAN),
    unit="ratio",
    better="higher",
    bounds=(0.0, math.inf),
    perfect=1.0,
    reference="The Perceptual Observatory section 3.3 (TR), averaged by split",
    validity="the model is shown to overlap more with the original pictures than without",
    suite="observatory",
    interval=observatory_intervals.split_retention,
    gate=validity.does_the_task,
    unchanged=1.0,
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.CLEAN: -1},
)
def split_transfer_retention(perturbed_by_setting: BySetting, original_iou: ArrayLike) -> float:
    """TR over a split: the share of the mean overlap (guided localisation) that survives its perturbations on average.

    A model that copies the boxes of the context, without looking, keeps all of its overlap. See :func:`transfer_retention` for
    one setting.

    Formula: ``mean over settings s of mean(perturbed_s) / mean(clean)``

    Args:
        perturbed_by_setting: setting to intersection over union of each sample, shape (N,), 0 where nothing was found.
        original_iou: shape (N,), the same samples unperturbed.

    Returns:
        At least 0, 1.0 when nothing is lost; NaN if the original mean is 0 (undefined), for no settings, no samples or a missing
        score.

    Raises:
        ValueError: unequal lengths, an overlap outside [0, 1], or another shape.

    >>> split_transfer_retention({"fog:low": [0.4, 0.2], "dunes": [0.8, 0.4]}, [0.8, 0.4])
    0.75
    """
    scores = by_setting(perturbed_by_setting)
    return transfer_retention(per_sample(scores), original_iou) if scores else math.nan
