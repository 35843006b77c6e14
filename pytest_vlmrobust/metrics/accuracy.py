"""Metrics of one setting against the clean scores of the same samples, and the score without looking at the image.

Source of the formulas: VLM-RobustBench, section 3.1 and appendix A.12.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import points

from .record import loss_reach, mean_over_settings, metric, of_loss, of_mean, scores_of
from .statistics.clusters import Clusters
from .statistics.means import BoundedMeanTest, guarded_ratio_interval, is_binary
from .statistics.paired import drop_interval, interval_of
from .statistics.ratios import score_ratio_interval
from .table import (
    BySetting,
    Needs,
    Scores,
    ScoreTable,
    as_scores,
    mean,
    pair_scores,
    per_sample,
    require_equal_lengths,
    under_same_settings,
)

Bounds = tuple[float, float]

SMALLEST_MARGIN = 0.01
"""Smallest relevant difference: 1 percentage point (PCRI and RCI, section 3: delta)."""

_MOST_GUESSES = 16
"""Scores without image with at most this many values are guesses among a few options; graded scores have more."""

share_metric = partial(metric, bounds=(0.0, 1.0))
flip_metric = partial(share_metric, perfect=0.0, unchanged=0.0)
gain_metric = partial(metric, bounds=(-1.0, 1.0), perfect=1.0, suite="corruptions", reach=loss_reach)


@share_metric(
    needs=(Needs.PERTURBED,),
    better="higher",
    perfect=1.0,
    reference="VLM-RobustBench section 3.1",
    unsuited="Alone it cannot tell a hard dataset from a model that does not look. Use `accuracy_drop` for what a setting "
    "costs, and `visual_gain` for whether the model looks.",
    interval=of_mean(scores_of(Needs.PERTURBED)),
    monotone={Needs.PERTURBED: 1},
)
def accuracy(scores: ArrayLike) -> float:
    """Mean score.

    Formula: ``mean(perturbed)``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.

    >>> accuracy([1, 1, 0, 1])
    0.75
    """
    return mean(as_scores(scores, "scores"))


@share_metric(
    suite="corruptions",
    better="higher",
    perfect=1.0,
    reference="VLM-RobustBench section 3.1",
    unsuited="It says nothing about disturbed images, and a model that never looks is right on about half of all yes/no "
    "questions. Use `visual_gain` or `accuracy_above_chance` for what the images add.",
    interval=of_mean(scores_of(Needs.CLEAN)),
    monotone={Needs.CLEAN: 1},
)
def clean_accuracy(clean: ArrayLike) -> float:
    """Mean score without perturbation: :func:`accuracy` as a property of the whole sweep.

    Formula: ``mean(clean)``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.
    """
    return mean(as_scores(clean, "clean"))


@metric(
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 1; The Perceptual Observatory section 3.3 (identity robustness)",
    unsuited="Two ways to be fooled: a model that never looks has no drop, and gains hide losses. Bound "
    "`visual_gain` and `harmful_flip_rate` beside it; where a setting changes right answers, use "
    "`label_preserving_drop`.",
    interval=of_loss(scores_of(Needs.CLEAN), scores_of(Needs.PERTURBED)),
    reach=loss_reach,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
)
def accuracy_drop(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Loss of accuracy under a perturbation: accuracy(clean) - accuracy(perturbed).

    Formula: ``mean(clean - perturbed)``

    Returns: A fraction in [-1, 1] (0.263 = 26.3 percentage points); negative for a gain; NaN for no scores or a missing one.

    >>> accuracy_drop([1, 1, 1, 0], [1, 0, 0, 1])
    0.25
    """
    before, after = pair_scores(clean=clean, perturbed=perturbed)
    return mean(before - after)


class FlipRates(NamedTuple):
    """Shares of all samples whose answer changed sides; ``harmful - helpful`` is the accuracy drop."""

    harmful: float
    helpful: float


def flip_rates(clean: ArrayLike, perturbed: ArrayLike) -> FlipRates:
    """Splits the drop into right-to-wrong and wrong-to-right answers, each as a share of all samples.

    For graded scores these are the mean loss and the mean gain.

    Returns ``.harmful`` and ``.helpful``, fractions in [0, 1]; NaN for no scores or a missing one.

    Source: VLM-RobustBench appendix A.12 (Flip+ and Flip-; the denominator is all samples, as in its tables 22 to 25).

    >>> flip_rates([1, 1, 1, 0], [1, 0, 0, 1])
    FlipRates(harmful=0.5, helpful=0.25)
    """
    before, after = pair_scores(clean=clean, perturbed=perturbed)
    loss = before - after
    return FlipRates(mean(loss.clip(min=0.0)), mean((-loss).clip(min=0.0)))


@flip_metric(
    better="lower",
    reference="VLM-RobustBench appendix A.12 (Flip+)",
    unsuited="It is at most the clean accuracy, so that a model that is seldom right has few answers to lose. Sampled "
    "answers flip both ways without any perturbation: compare it with `helpful_flip_rate`, or bound "
    "`accuracy_drop`.",
    interval=of_mean(lambda table, setting: (table.clean - table.required(Needs.PERTURBED, setting)).clip(min=0.0)),
    monotone={Needs.CLEAN: 1, Needs.PERTURBED: -1},
)
def harmful_flip_rate(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Share of all samples that are right when clean and wrong when perturbed: see :func:`flip_rates`.

    Formula: ``mean(max(clean - perturbed, 0))``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.
    """
    return flip_rates(clean, perturbed).harmful


@flip_metric(
    better="none",
    reference="VLM-RobustBench appendix A.12 (Flip-)",
    unsuited="A high value is no merit: guesses turn right, too, and a model that is often wrong has more answers to turn. "
    "Read it beside `harmful_flip_rate`: their difference is `accuracy_drop`.",
    interval=of_mean(lambda table, setting: (table.required(Needs.PERTURBED, setting) - table.clean).clip(min=0.0)),
    monotone={Needs.CLEAN: -1, Needs.PERTURBED: 1},
)
def helpful_flip_rate(clean: ArrayLike, perturbed: ArrayLike) -> float:
    """Share of all samples that are wrong when clean and right when perturbed: see :func:`flip_rates`.

    Formula: ``mean(max(perturbed - clean, 0))``

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.
    """
    return flip_rates(clean, perturbed).helpful


# The visual gain and shares of it, if answers without the images are right, wrong or guesses
# A refusal to answer without the image counts as a guess: 1/4, 1/2. Student's t fails there when nearly all answers with
# images are right: with 100 samples the upper bound of a share is then below the truth in up to 17 % of runs instead of 5 %,
# so a gate passes too often. The score test therefore takes guesses, besides 0 and 1, as possible values of a score.


def interval_of_gain(clean: Scores, blind: Scores, clusters: Clusters, confidence: float) -> tuple[float, float]:
    """Bounds mean(clean - blind): tails of flips for 0/1 scores, the score test for guesses among them, guarded t otherwise."""
    values = _values(blind)
    if not is_binary(clean) or is_binary(blind) or len(values) > _MOST_GUESSES:
        low, high = drop_interval(blind, clean, clusters, confidence)  # a gain is the loss of the other
        return -high, -low
    support = np.array([(seen - guess, 1.0) for seen in (0.0, 1.0) for guess in values])
    low, high = score_ratio_interval(clean - blind, np.ones(len(clean)), clusters, confidence, np.unique(support, axis=0))
    return max(low, -1.0), min(high, 1.0)


def accuracy_above_chance_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the gain over not looking like the visual gain; the score without looking counts as known."""
    return interval_of_gain(table.clean, table.required(Needs.CHANCE_LEVELS), table.clusters, confidence)


@gain_metric(
    better="higher",
    reference='PCRI and RCI, "Validity domain and chance": max(0.5, majority) on yes/no, the majority answer on open questions',
    unsuited="Its chance level is computed, not measured: whatever the wording of a question gives away counts as looking. "
    "Use `visual_gain` where the model can be asked without the images.",
    interval=accuracy_above_chance_interval,
    monotone={Needs.CLEAN: 1, Needs.CHANCE_LEVELS: -1},
)
def accuracy_above_chance(clean: ArrayLike, chance_levels: ArrayLike) -> float:
    """Accuracy gained over not looking at the image: over guessing, or over the same answer to every question.

    For each kind of question the better of the two counts: 1/k or the most common letter among k options, 1/2 or the majority on
    yes/no, the score of the most common answer to open questions.

    Formula: ``mean(clean - chance_levels)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.

    >>> accuracy_above_chance([1, 1, 1, 0], [1, 0, 0, 0])
    0.5
    """
    seen, blind = pair_scores(clean=clean, chance_levels=chance_levels)
    return mean(seen - blind)


def visual_gain_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the visual gain: tails of flips for 0/1 scores, the score test for guesses among them, guarded t otherwise."""
    return interval_of_gain(table.clean, table.required(Needs.NO_IMAGE), table.clusters, confidence)


@gain_metric(
    better="none",
    reference="VLM-RobustBench section 3.1, equation 2",
    unsuited="A small value need not mean that the model does not look: it may know the answers without the images. Where "
    "it refuses to answer without them a guess is counted instead; `accuracy_above_chance` needs no such answers.",
    interval=visual_gain_interval,
    blind=0.0,
    monotone={Needs.CLEAN: 1, Needs.NO_IMAGE: -1},
)
def visual_gain(clean: ArrayLike, no_image: ArrayLike) -> float:
    """Accuracy that the images add: accuracy(clean) - accuracy(no image).

    In a gate, an unparsable answer without the image counts as a guess: 1 / number of options, or the score of the most frequent
    right answer if that is higher.

    Formula: ``mean(clean - no_image)``

    Returns: A fraction in [-1, 1]; NaN for no scores or a missing one.

    >>> visual_gain([1, 1, 1, 0], [1, 0, 0, 0])
    0.5
    """
    before, blind = pair_scores(clean=clean, no_image=no_image)
    return mean(before - blind)


def visual_gain_is_real(table: ScoreTable, _setting: str | None) -> str:
    """Returns why a share of the visual gain is meaningless, or an empty string."""
    if table.no_image is None:
        return "there are no scores without images: the visual gain is unknown"
    gain = table.clean - table.no_image
    needed = smallest_difference(table, gain)
    if float(gain.mean()) > needed + ROUNDING:
        return ""
    if math.isinf(needed):
        return "too few samples for a standard error of the visual gain: a share of it is undefined"
    return (
        f"the visual gain of {points(float(gain.mean()))} is not above {points(needed)} "
        f"(the larger of 1 pp and 2 standard errors): a share of it is undefined"
    )


def smallest_difference(table: ScoreTable, values: Scores) -> float:
    """Returns the smallest relevant mean of ``values``, (N,): the larger of 1 percentage point and 2 standard errors."""
    return max(SMALLEST_MARGIN, 2.0 * math.sqrt(float(table.clusters.variances(values[:, None])[0])))


def interval_of_gain_share(
    clean: Scores, perturbed: Scores, blind: Scores, clusters: Clusters, confidence: float
) -> tuple[float, float]:
    """Bounds mean(clean - perturbed) / mean(clean - blind), known to have a positive denominator.

    Uses the score test of the linear contrast for 0/1 scores, including blind guesses. For graded scores, and means over several
    settings, guarded Student's t: the guard of the upper end is one more sample that loses everything and needs no image,
    and the lower end holds for any gains of a few samples. Without a guard, if 3 % of samples are lost
    under nine tenths of the settings, the upper end errs two to three times as often as declared.

    Returns ``(low, high)``; a side is infinite if the gain may be 0.
    """
    values = _values(blind)
    if not is_binary(clean, perturbed) or len(values) > _MOST_GUESSES:
        parts, lost = np.stack([clean - perturbed, clean - blind], axis=1), (1.0, 0.0)
        return guarded_ratio_interval(parts, clusters, confidence, against_low=(-1.0, 0.0), against_high=lost, gains="low")
    cases = itertools.product((0.0, 1.0), (0.0, 1.0), values)
    support = np.unique(np.array([(seen - then, seen - guess) for seen, then, guess in cases]), axis=0)
    return score_ratio_interval(clean - perturbed, clean - blind, clusters, confidence, support)


def _values(blind: Scores) -> list[float]:
    """Returns the values that a score without image can have: 0, 1 and the values that occur."""
    return sorted({0.0, 1.0, *blind.tolist()})


def relative_corruption_error_interval(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds a drop relative to the visual gain; a side is infinite if the gain may be 0.

    Uses the score test of the linear contrast for 0/1 scores, including blind guesses, and guarded Student's t for graded ones.
    """
    blind = table.required(Needs.NO_IMAGE)
    return interval_of_gain_share(table.clean, table.required(Needs.PERTURBED, setting), blind, table.clusters, confidence)


GAIN_MOVES = {
    Needs.CLEAN: "it changes the drop and the visual gain alike, and their ratio either way",
    Needs.NO_IMAGE: "it lowers the visual gain, so that the same loss or gain is a larger share of it",
}
"""Why shares of the visual gain are not monotone in the scores that make up the gain."""


@metric(
    unit="ratio",
    better="lower",
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 3",
    validity="the visual gain is above 1 pp and above 2 standard errors",
    unsuited="Where `visual_gain` is small, a few answers more or less without the image multiply it. Use `accuracy_drop` "
    "there, and to compare models that know different shares without the images.",
    suite="corruptions",
    interval=relative_corruption_error_interval,
    gate=visual_gain_is_real,
    unchanged=0.0,
    blind=math.nan,
    monotone={Needs.PERTURBED: -1},
    not_monotone=GAIN_MOVES,
)
def relative_corruption_error(clean: ArrayLike, perturbed: ArrayLike, no_image: ArrayLike) -> float:
    """Share of the visual gain that a perturbation destroys: accuracy drop / visual gain.

    The smaller the visual gain, the noisier are shares of it. In a gate, an unparsable answer without the image counts
    as a guess. Not to be confused with Res-Bench's :func:`relative_continuous_error`.

    Formula: ``mean(clean - perturbed) / mean(clean - no_image)``

    Returns: A ratio: 0 for no loss, 1.0 when all visual benefit is gone, above 1 when worse than blind, below 0 for a gain. NaN
    without a positive visual gain (undefined), for no scores or a missing one.

    >>> relative_corruption_error([1, 1, 1, 0], [1, 1, 0, 0], [1, 0, 0, 0])
    0.5
    """
    before, after, blind = pair_scores(clean=clean, perturbed=perturbed, no_image=no_image)
    gain = float((before - blind).sum())
    return float((before - after).sum()) / gain if gain > ROUNDING else math.nan


# Chance: the score of never looking at the image, by guessing or by the same answer to every question


class BlindAnswer(NamedTuple):
    """The best score without looking: by guessing, or by one answer to every question."""

    scores: Scores
    """Score of each sample, shape (N,)."""
    answer: str
    """The answer to every question; empty for a guess."""


def best_blind_answer(guesses: ArrayLike, answers: Mapping[str, ArrayLike]) -> BlindAnswer:
    """Chooses the better of guessing and of always giving one of several answers; guessing if no answer is better.

    Returns the scores of the best one; those of ``guesses`` for no samples.

    Source: RCI appendix A.2 and PCRI appendix A.2 for the majority; the caller chooses the answers to try.

    >>> best_blind_answer([0.5, 0.5, 0.5], {"no": [1, 1, 0], "yes": [0, 0, 1]}).answer
    'no'
    """
    best = BlindAnswer(pair_scores(guesses=guesses)[0], "")
    for answer, scores in answers.items():
        values = pair_scores(guesses=best.scores, scores=scores)[1]
        if mean(values) > mean(best.scores) + ROUNDING:
            best = BlindAnswer(values, answer)
    return best


# Regression against an earlier run on the same samples; paired samples give much narrower intervals.


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

    Returns: A fraction in [-1, 1]; negative for an improvement; NaN for no scores or a missing one.

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

    Returns: A fraction in [0, 1]; NaN for no scores or a missing one.

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

    Returns: (clean - perturbed) - (baseline_clean - baseline), a fraction in [-2, 2]; NaN for no scores or a missing one.

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

    Returns: A fraction in [-1, 1]; negative for an improvement; NaN for no settings, no samples or a missing score.

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
