"""What another way of asking gains on the same samples: thinking first, a hint.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from . import observatory_intervals
from .record import Needs
from .registry import metric
from .scores import BySetting, mean, paired, per_sample, under_same_settings
from .sources import clusters_of
from .statistics.differences import drop_test
from .statistics.quantiles import one_sided


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.BASE_BY_SETTING),
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (thinking superiority)",
    validity="the same model answered the same samples without thinking",
    suite="observatory",
    interval=observatory_intervals.thinking_gain,
    unchanged=0.0,
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.BASE_BY_SETTING: -1},
)
def thinking_gain(thinking_by_setting: BySetting, base_by_setting: BySetting) -> float:
    """Mean score with thinking minus that without, on the same samples under the settings of a split.

    A model that answers everything right without thinking has nothing to gain.

    Formula: ``mean over settings s of mean(perturbed_s - base_s)``

    Args:
        thinking_by_setting: setting to scores, shape (N,), of answers after thinking; ``clean`` for original pictures.
        base_by_setting: scores of the same samples answered directly, under at least these settings, shape (N,).

    Returns:
        A fraction in [-1, 1], above 0 when thinking helps; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: a setting without the other scores, unequal lengths, a score outside [0, 1], or another shape.

    >>> thinking_gain({"clean": [1, 1, 0, 1]}, {"clean": [1, 0, 0, 1]})
    0.25
    """
    return _gain(thinking_by_setting, base_by_setting, "base_by_setting", "the model without thinking")


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.UNHINTED_BY_SETTING),
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (salient perceptual understanding, semi-guided)",
    validity="the same attributes were asked for without the hint",
    suite="observatory",
    interval=observatory_intervals.hint_gain,
    unchanged=0.0,
    monotone={Needs.PERTURBED_BY_SETTING: 1, Needs.UNHINTED_BY_SETTING: -1},
)
def hint_gain(hinted_by_setting: BySetting, unhinted_by_setting: BySetting) -> float:
    """Mean overlap with one box given as a hint minus that without, under the settings of a split: spatial common sense.

    A model that finds everything without the hint has nothing to gain.

    Formula: ``mean over settings s of mean(perturbed_s - unhinted_s)``

    Args:
        hinted_by_setting: setting to intersection over union of the attributes not given away, shape (N,), 0 where nothing was
            found; ``clean`` for original pictures.
        unhinted_by_setting: the same attributes without the hint, under at least these settings, shape (N,).

    Returns:
        A fraction in [-1, 1], above 0 when the hint helps; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: a setting without the other scores, unequal lengths, an overlap outside [0, 1], or another shape.

    >>> hint_gain({"clean": [0.75, 0.5]}, {"clean": [0.5, 0.25]})
    0.25
    """
    return _gain(hinted_by_setting, unhinted_by_setting, "unhinted_by_setting", "the task without the hint")


def gain_interval(
    after: ArrayLike, before: ArrayLike, confidence: float = 0.90, source_images: Sequence[str] | None = None
) -> tuple[float, float]:
    """Bounds a mean gain over the same samples: tails of flips for 0/1 scores, guarded Student's t otherwise.

    Args:
        after: shape (N,), each in [0, 1].
        before: shape (N,), the same samples.
        confidence: two-sided level in (0, 1).
        source_images: source image of each sample; None when all samples are independent.

    Returns:
        ``(low, high)``, fractions in [-1, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a level outside (0, 1), a score outside [0, 1], or another shape.

    Source: ours, see ``statistics.tango``; the share of helpful flips as in Tango 1998.

    >>> low, high = gain_interval([1] * 36 + [0] * 13 + [1] * 820, [0] * 36 + [1] * 833)
    >>> round(low, 4), round(high, 4)
    (0.013, 0.0409)
    """
    tail = one_sided(confidence)
    new, old = paired(after=after, before=before)
    if not new.size or np.isnan(new.sum() + old.sum()):
        return math.nan, math.nan
    loss = drop_test(old, new[:, None], clusters_of(source_images, new.size))
    return max(-float(loss.upper(tail)[0]), -1.0), min(-float(loss.lower(tail)[0]), 1.0)


def _gain(after_by_setting: BySetting, before_by_setting: BySetting, name: str, whom: str) -> float:
    after, before = under_same_settings(after_by_setting, before_by_setting, name, whom)
    return mean(per_sample(after) - per_sample(before)) if after else math.nan
