"""Regression against an earlier run on the same samples; paired samples give much narrower intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .accuracy import Bounds
from .record import mean_over_settings, of_loss, of_mean, scores_of
from .registry import metric
from .scores import BySetting, mean, pair_scores, per_sample, require_equal_lengths, under_same_settings
from .statistics.means import BoundedMeanTest
from .statistics.paired import interval_of
from .table import Needs, ScoreTable

regression_metric = partial(metric, suite="baseline", better="lower", bounds=(-1.0, 1.0), perfect=0.0, unchanged=0.0)
_earlier, _now = scores_of(Needs.BASELINE), scores_of(Needs.PERTURBED)


@regression_metric(
    reference="VLM-RobustBench section 3.1, equation 1, with an earlier run in the place of the clean one",
    validity="the same samples under the same setting in an earlier run",
    unsuited="It only shows that nothing got worse: a series of releases may lose a little each time, and a weak baseline "
    "excuses a weak model. Bound `accuracy` beside it.",
    interval=of_loss(_earlier, _now),
    monotone={Needs.BASELINE: 1, Needs.PERTURBED: -1},
)
def baseline_drop(baseline: ArrayLike, perturbed: ArrayLike) -> float:
    """Loss of accuracy since an earlier run under the same setting: accuracy(then) - accuracy(now).

    Formula: ``mean(baseline - perturbed)``

    Returns:
        A fraction in [-1, 1]; negative for an improvement; NaN for no scores or a missing one.

    >>> baseline_drop([1, 1, 1, 0], [1, 0, 0, 1])
    0.25
    """
    then, now = pair_scores(baseline=baseline, perturbed=perturbed)
    return mean(then - now)


_EITHER_WAY = "a score that rises differs from the earlier run as much as one that falls"


@regression_metric(
    bounds=(0.0, 1.0),
    reference="VLM-RobustBench appendix A.12 (Flip+ and Flip- together), with an earlier run in the place of the clean one",
    validity="the same samples under the same setting in an earlier run",
    unsuited="Sampled answers, and engines whose sums depend on the batch, flip although the model is the same. Use "
    "`baseline_drop` for whether the score fell.",
    interval=of_mean(lambda *where: np.abs(_earlier(*where) - _now(*where))),
    not_monotone={Needs.BASELINE: _EITHER_WAY, Needs.PERTURBED: _EITHER_WAY},
)
def baseline_flip_rate(baseline: ArrayLike, perturbed: ArrayLike) -> float:
    """Share of samples with a score other than in an earlier run under the same setting, better or worse.

    Zero if an engine, a quantisation or a server answers like the earlier one; a wrong answer that replaces another wrong
    answer is no flip.

    Formula: ``mean(|baseline - perturbed|)``

    Returns:
        A fraction in [0, 1]; NaN for no scores or a missing one.

    >>> baseline_flip_rate([1, 1, 1, 0], [1, 0, 0, 1])
    0.75
    """
    then, now = pair_scores(baseline=baseline, perturbed=perturbed)
    return mean(np.abs(then - now))


def drop_increase_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the growth of a drop since an earlier run by the samples' differences of differences, as a mean loss.

    The guard of the upper end is a sample with a loss of 1: its answer flips in one of four measurements. A loss of 2 needs two
    opposite flips of one sample, which only happens if many samples flip once.
    """
    now = table.clean - table.required(Needs.PERTURBED, setting)
    then = table.required(Needs.BASELINE_CLEAN) - table.required(Needs.BASELINE, setting)
    return interval_of(BoundedMeanTest.of_increases((now - then)[:, None], table.clusters), confidence)


@regression_metric(
    bounds=(-2.0, 2.0),
    reference="VLM-RobustBench section 3.1, equation 1: the difference of two runs' drops",
    validity="the same samples under the same setting, and clean, in an earlier run",
    unsuited="It is 0 for a release that lost as much on clean as on disturbed images, however much that is. Bound "
    "`baseline_drop` beside it.",
    interval=drop_increase_interval,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1, Needs.BASELINE_CLEAN: -1, Needs.BASELINE: 1},
)
def drop_increase(clean: ArrayLike, perturbed: ArrayLike, baseline_clean: ArrayLike, baseline: ArrayLike) -> float:
    """Growth of the drop since an earlier run: whether robustness regressed more than clean accuracy.

    Formula: ``mean((clean - perturbed) - (baseline_clean - baseline))``

    Returns:
        (clean - perturbed) - (baseline_clean - baseline), a fraction in [-2, 2]; NaN for no scores or a missing one.

    >>> drop_increase(clean=[1, 1], perturbed=[0, 0], baseline_clean=[1, 1], baseline=[1, 0])
    0.5
    """
    arrays = pair_scores(clean=clean, perturbed=perturbed, baseline_clean=baseline_clean, baseline=baseline)
    now, then = arrays[0] - arrays[1], arrays[2] - arrays[3]
    return mean(now - then)


@regression_metric(
    reference="VLM-RobustBench section 4.3, with an earlier run in the place of the clean one",
    validity="the same samples under the same settings in an earlier run",
    unsuited="A loss under one setting is divided by their number: 20 points under one of 133 are 0.15 points here. Bound "
    "`baseline_drop` beside it, which is judged under each setting.",
    interval=of_loss(mean_over_settings(Needs.BASELINE_BY_SETTING), mean_over_settings()),
    monotone={Needs.PERTURBED_BY_SETTING: -1, Needs.BASELINE_BY_SETTING: 1},
)
def mean_baseline_drop(perturbed_by_setting: BySetting, baseline_by_setting: BySetting) -> float:
    """Mean loss of accuracy since an earlier run over all settings.

    A mean over many settings varies less between samples than the score under one of them, so it shows a small loss spread
    evenly: for 853 samples that lose 1.2 pp on average, with a standard deviation of 2.4 pp, more than 1 pp is shown in two
    of three runs. Many settings are no better than one at showing that nothing was lost: samples that are lost under all of them
    may be rare, and n samples without a loss leave an upper bound of 2.6 / n. To pass ``<= 1 pp`` takes 265 samples that lose
    nothing.

    Formula: ``mean over settings s of mean(baseline_s - perturbed_s)``

    Returns:
        A fraction in [-1, 1]; negative for an improvement; NaN for no settings, no samples or a missing score.

    >>> mean_baseline_drop({"fog:low": [1, 0], "fog:mid": [0, 0]}, {"fog:low": [1, 1], "fog:mid": [1, 0]})
    0.5
    """
    now, then = under_same_settings(perturbed_by_setting, baseline_by_setting, "baseline_by_setting", "the earlier run")
    return mean(per_sample(then) - per_sample(now)) if now else math.nan


class ChangedSamples(NamedTuple):
    """Samples that changed since an earlier run; those in ``unknown`` lack a score in one of the two runs."""

    broken: tuple[str, ...]
    fixed: tuple[str, ...]
    unknown: tuple[str, ...]


def changed_samples(ids: Sequence[str], baseline: ArrayLike, current: ArrayLike) -> ChangedSamples:
    """Lists the samples with a lower score than in an earlier run, and those with a higher one, in order.

    >>> changed_samples(["a", "b", "c"], [1, 0, 1], [0, 1, 1])
    ChangedSamples(broken=('a',), fixed=('b',), unknown=())
    """
    then, now = pair_scores(baseline=baseline, current=current)
    require_equal_lengths({"baseline": len(then), "ids": len(ids)})
    lost = then - now
    chosen = [np.flatnonzero(kind).tolist() for kind in (lost > 0, lost < 0, np.isnan(lost))]
    return ChangedSamples(*(tuple(ids[index] for index in indices) for indices in chosen))
