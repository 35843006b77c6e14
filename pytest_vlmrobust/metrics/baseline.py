"""Regression against an earlier run on the same samples: paired sample by sample, far sharper than two accuracies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import intervals, observatory
from .record import Needs
from .registry import metric
from .scores import BySetting, clusters_of, mean, paired, per_sample, require_equal_lengths, under_same_settings
from .statistics.clusters import one_sided
from .statistics.paired import drop_test


@metric(
    needs=(Needs.BASELINE, Needs.PERTURBED),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 1, with an earlier run in the place of the clean one",
    validity="the same samples under the same setting in an earlier run",
    suite="baseline",
    interval=intervals.baseline_drop,
    unchanged=0.0,
    monotone={Needs.BASELINE: 1, Needs.PERTURBED: -1},
)
def baseline_drop(baseline: ArrayLike, perturbed: ArrayLike) -> float:
    """Loss of accuracy since an earlier run under the same setting: accuracy(then) - accuracy(now).

    Formula: ``mean(baseline - perturbed)``

    Args:
        baseline: shape (N,), each in [0, 1], the scores of the earlier run.
        perturbed: shape (N,), the scores of this run, the same samples in the same order.

    Returns:
        A fraction in [-1, 1]; negative for an improvement; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> baseline_drop([1, 1, 1, 0], [1, 0, 0, 1])
    0.25
    """
    then, now = paired(baseline=baseline, perturbed=perturbed)
    return mean(then - now)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED, Needs.BASELINE_CLEAN, Needs.BASELINE),
    better="lower",
    bounds=(-2.0, 2.0),
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 1: the difference of two runs' drops",
    validity="the same samples under the same setting, and clean, in an earlier run",
    suite="baseline",
    interval=intervals.drop_increase,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1, Needs.BASELINE_CLEAN: -1, Needs.BASELINE: 1},
)
def drop_increase(clean: ArrayLike, perturbed: ArrayLike, baseline_clean: ArrayLike, baseline: ArrayLike) -> float:
    """By how much the drop has grown since an earlier run: whether robustness regressed beyond what clean accuracy did.

    Formula: ``mean((clean - perturbed) - (baseline_clean - baseline))``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.
        baseline_clean: shape (N,), the clean scores of the earlier run.
        baseline: shape (N,), its scores under the same setting.

    Returns:
        (clean - perturbed) - (baseline_clean - baseline), a fraction in [-2, 2]; NaN for no scores or a missing one.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> drop_increase(clean=[1, 1], perturbed=[0, 0], baseline_clean=[1, 1], baseline=[1, 0])
    0.5
    """
    arrays = paired(clean=clean, perturbed=perturbed, baseline_clean=baseline_clean, baseline=baseline)
    now, then = arrays[0] - arrays[1], arrays[2] - arrays[3]
    return mean(now - then)


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.BASELINE_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 4.3, with an earlier run in the place of the clean one",
    validity="the same samples under the same settings in an earlier run",
    suite="baseline",
    interval=intervals.mean_baseline_drop,
    unchanged=0.0,
    monotone={Needs.PERTURBED_BY_SETTING: -1, Needs.BASELINE_BY_SETTING: 1},
)
def mean_baseline_drop(perturbed_by_setting: BySetting, baseline_by_setting: BySetting) -> float:
    """Mean loss of accuracy since an earlier run over all settings.

    A mean over many settings varies less between samples than the score under one of them, so that a small loss that is spread
    evenly shows: of 853 samples that lose 1.2 pp on average, with a standard deviation of 2.4 pp, more than 1 pp is shown in two
    of three runs. That nothing was lost is shown no better by many settings than by one: samples that are lost under all of them
    may be rare, and n samples without a loss leave 2.6 / n open. To pass ``<= 1 pp`` takes 265 samples that lose nothing.

    Formula: ``mean over settings s of mean(baseline_s - perturbed_s)``

    Args:
        perturbed_by_setting: setting to scores, shape (N,), each in [0, 1].
        baseline_by_setting: the scores of the same samples in the earlier run, under at least these settings, shape (N,).

    Returns:
        A fraction in [-1, 1]; negative for an improvement; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: a setting without scores of the earlier run, unequal lengths, a score outside [0, 1], or another shape.

    >>> mean_baseline_drop({"fog:low": [1, 0], "fog:mid": [0, 0]}, {"fog:low": [1, 1], "fog:mid": [1, 0]})
    0.5
    """
    now, then = under_same_settings(perturbed_by_setting, baseline_by_setting, "baseline_by_setting", "the earlier run")
    return mean(per_sample(then) - per_sample(now)) if now else math.nan


class ChangedSamples(NamedTuple):
    """Which samples changed since an earlier run; ``unknown`` are those without a score in one of the two."""

    broken: tuple[str, ...]
    fixed: tuple[str, ...]
    unknown: tuple[str, ...]


def changed_samples(ids: Sequence[str], baseline: ArrayLike, current: ArrayLike) -> ChangedSamples:
    """Lists the samples that score less than in an earlier run, and those that score more, in their order.

    Args:
        ids: the name of each sample, N names.
        baseline: shape (N,), each in [0, 1], the scores of the earlier run.
        current: shape (N,), the scores of this run under the same setting.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> changed_samples(["a", "b", "c"], [1, 0, 1], [0, 1, 1])
    ChangedSamples(broken=('a',), fixed=('b',), unknown=())
    """
    then, now = paired(baseline=baseline, current=current)
    require_equal_lengths({"baseline": len(then), "ids": len(ids)})
    lost = then - now
    chosen = [np.flatnonzero(kind).tolist() for kind in (lost > 0, lost < 0, np.isnan(lost))]
    return ChangedSamples(*(tuple(ids[index] for index in indices) for indices in chosen))


# What another way of asking gains on the same samples: thinking first, a hint.
#
# Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3.


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.BASE_BY_SETTING),
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="The Perceptual Observatory section 3.3 (thinking superiority)",
    validity="the same model answered the same samples without thinking",
    suite="observatory",
    interval=observatory.thinking_gain,
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
    interval=observatory.hint_gain,
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
