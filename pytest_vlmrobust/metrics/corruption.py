"""Summary metrics of a sweep over many settings; each is defined after its interval.

Source of the formulas: VLM-RobustBench, sections 3.1 and 4.3; details missing from the text were recovered from its tables.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import first_few, points

from .accuracy import GAIN_MOVES, Bounds, interval_of_gain_share, visual_gain_is_real
from .record import Coverage, loss_reach, metric, of_mean
from .statistics.clusters import one_sided
from .statistics.means import BoundedMeanTest, is_binary
from .statistics.multiple import count_interval, cross_validated_maximum, largest_few_lower, largest_few_upper
from .statistics.paired import BoundTest, drop_test, interval_of, largest_bounds
from .table import (
    BySetting,
    Needs,
    Scores,
    ScoreTable,
    against_clean,
    as_scores,
    by_setting,
    drops,
    parse_setting,
    require_equal_lengths,
    stack_settings,
    under_same_settings,
)

# Thresholds of VLM-RobustBench on drops, as fractions; recovered from its tables, which fit no other round numbers.

BENIGN = 0.01
"""Below it a drop is benign: 1 percentage point, absolute."""
MILD = 0.03
"""Below it a drop is mild."""
CATASTROPHIC = 0.10
"""Above it a drop is catastrophic: 10 percentage points, absolute."""
SEVERE = 0.10
"""Above this share of the clean accuracy a drop is a severe failure."""

_SEED = 0
"""Fixed, so that a verdict does not change when it is computed again."""
_ENOUGH_FOR_FOLDS = 50
"""Smallest number of clusters for folds: a fifth of them is then enough to judge the setting chosen on the rest."""

Rest = ParamSpec("Rest")
Result = TypeVar("Result")

# Settings of a sweep


def low_settings(settings: Iterable[str]) -> tuple[str, ...]:
    """Returns the settings at level ``low``."""
    return tuple(setting for setting in settings if parse_setting(setting).level == LEVELS[0])


def types(settings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns the settings of each perturbation, at any level."""
    by_name: dict[str, tuple[str, ...]] = {}
    for setting in settings:
        name = parse_setting(setting).name
        by_name[name] = (*by_name.get(name, ()), setting)
    return by_name


def at_low(of_all: Callable[Concatenate[ScoreTable, Rest], Result]) -> Callable[Concatenate[ScoreTable, Rest], Result]:
    """Turns the interval, or the note, over all settings into that over the settings at level low."""

    def of_low(table: ScoreTable, /, *rest: Rest.args, **named: Rest.kwargs) -> Result:
        return of_all(dataclasses.replace(table, by_setting=_low(table.by_setting)), *rest, **named)

    of_low.__doc__ = f"{inspect.cleandoc(of_all.__doc__ or '')}\n\nOnly settings at level low count."
    return of_low


ALL_SETTINGS = Coverage("settings", 133)
LOW_SETTINGS = Coverage("low settings", 42, low_settings)

sweep_metric = partial(
    metric,
    suite="corruptions",
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
drop_metric = partial(sweep_metric, bounds=(-1.0, 1.0))
low_metric = partial(drop_metric, coverage=LOW_SETTINGS, validity="at least one setting at level low")


def mean_drop_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the mean drop by guarded Student's t over the samples' own mean drops.

    The upper end allows for one more sample that loses everything; the lower end holds for any gains of a few samples.
    """
    losses = table.clean - table.matrix().mean(axis=1)
    return interval_of(BoundedMeanTest.of_losses(losses[:, None], table.clusters), confidence)


@drop_metric(
    reference="VLM-RobustBench section 4.3",
    unsuited="It hides a few settings that lose everything, and sweeps over other settings have other means. Bound "
    "`worst_tenth_drop` beside it.",
    interval=mean_drop_interval,
    reach=loss_reach,
)
def mean_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean accuracy drop over all settings.

    Formula: ``mean over settings s of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.
    """
    return _mean(_losses(clean, perturbed_by_setting))


@low_metric(
    reference="after VLM-RobustBench section 4.3 (iii) and (iv): Worst@Low and Benign@Low, averaged (our companion)",
    unsuited="It leaves out strong disturbances, and perturbations without levels. Use `mean_drop` for the whole sweep and "
    "`worst_tenth_drop` for its worst part.",
    interval=at_low(mean_drop_interval),
)
def mean_drop_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean accuracy drop over the settings at level low: the cost of small disturbances.

    A share of settings below a line, like `benign_at_low`, jumps with every setting that crosses it. A mean has no threshold,
    and its interval decides with a few hundred samples.

    Formula: ``mean over settings s at level low of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no samples or a missing score.

    >>> mean_drop_at_low([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "rain:low": [1, 1, 1, 0], "fog:high": [0, 0, 0, 0]})
    0.125
    """
    return mean_drop(clean, _low(by_setting(perturbed_by_setting)))


def worst_tenth(settings: int) -> int:
    """Returns a tenth of a number of settings, rounded up."""
    return -(-settings // 10)


def worst_tenth_drop_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the mean of the largest tenth of the drops by guarded Student's t, for any choice of settings.

    Upper end: the largest of the upper bounds of the means over any tenth of the settings, without correction
    (intersection-union). Lower end: each fold judges the settings chosen on the other folds.
    """
    drops, tail = table.clean[:, None] - table.matrix(), one_sided(confidence)
    few = worst_tenth(drops.shape[1])
    value = float(np.sort(drops.mean(axis=0))[-few:].mean())
    low = largest_few_lower(drops, table.clusters, few, tail, np.random.default_rng(_SEED))
    return min(low, value), max(largest_few_upper(drops, table.clusters, few, tail), value)


@drop_metric(
    reference="after VLM-RobustBench section 4.3 (i) and (ii): between its worst case and its severe failures (our companion)",
    unsuited="With ten settings or fewer it is the same as `worst_case_drop`. No paper has it: use "
    "`worst_case_drop` or `severe_failure_rate` to compare with published numbers.",
    interval=worst_tenth_drop_interval,
)
def worst_tenth_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean of the largest tenth of the drops: a worst case without a threshold that single settings may cross.

    Of m settings it takes the m/10 worst, rounded up: 14 of 133. The same samples choose and measure them, so the value is too
    large on average, like `worst_case_drop` but less so; the interval allows for this.

    Formula: ``mean of the ceil(m / 10) largest drop(s) over m settings s, with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    >>> worst_tenth_drop([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "fog:high": [0, 0, 1, 0]})
    0.5
    """
    losses = _losses(clean, perturbed_by_setting)
    # numpy's sort puts NaN last, among the largest drops
    return _mean(np.sort(losses)[losses.size - worst_tenth(losses.size) :])


def worst_case_drop_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest drop over all settings: above without correction (intersection-union), below by Bonferroni's."""
    test = drop_test(table.clean, table.matrix(), table.clusters)
    return largest_bounds([test], len(table.by_setting), one_sided(confidence))


def worst_setting(table: ScoreTable) -> str:
    """Returns which setting costs most."""
    settings, matrix = tuple(table.by_setting), table.matrix()
    worst = f"worst at {settings[int(drops(table.clean, matrix).argmax())]}"
    if len(settings) == 1 or table.clusters.count < _ENOUGH_FOR_FOLDS:
        return worst
    fair = cross_validated_maximum(table.clean[:, None] - matrix, table.clusters, np.random.default_rng(0))
    return f"{worst} ({points(fair)} when cross-validated)"


@drop_metric(
    reference="VLM-RobustBench section 4.3 (i)",
    unsuited="It does not compare sweeps of different size, or runs on different numbers of samples: the largest of more, or "
    "of noisier, drops is larger although nothing else changed. `worst_tenth_drop` suffers less from both.",
    interval=worst_case_drop_interval,
    reach=loss_reach,
    note=worst_setting,
)
def worst_case_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Largest accuracy drop over all settings.

    The largest of many noisy drops is too large on average (the winner's curse), especially with few samples. Its interval
    allows for this, and its note gives a cross-validated value.

    Formula: ``max over settings s of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    >>> worst_case_drop([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "fog:high": [0, 0, 1, 0]})
    0.5
    """
    losses = _losses(clean, perturbed_by_setting)
    return float(losses.max()) if losses.size else math.nan  # numpy's max keeps NaN, Python's may not


@low_metric(
    reference="VLM-RobustBench section 4.3 (iii): Worst@Low",
    unsuited="The setting that it names is as much the unluckiest as the worst one, and may be another in the next run. Use "
    "`mean_drop_at_low` for what small disturbances cost.",
    interval=at_low(worst_case_drop_interval),
    reach=loss_reach,
    note=at_low(worst_setting),
)
def worst_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Largest accuracy drop over the settings at level low.

    Formula: ``max over settings s at level low of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [-1, 1]; NaN for no samples or a missing score.
    """
    return worst_case_drop(clean, _low(by_setting(perturbed_by_setting)))


def benign_at_low_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of low settings that cost less than 1 pp, by partial conjunction of their tests."""
    matrix = table.matrix(low_settings(table.by_setting))
    low, high = _interval_of_share_above(drop_test(table.clean, matrix, table.clusters), BENIGN, one_sided(confidence))
    return 1.0 - high, 1.0 - low


@low_metric(
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="VLM-RobustBench section 4.3 (iv): Benign@Low; the bound of 1 pp is absolute (its tables fit no other)",
    unsuited="It does not suit a rule that blocks: noise moves settings across 1 percentage point, and the interval "
    "decides nothing on a few hundred samples. Use `mean_drop_at_low`.",
    interval=benign_at_low_interval,
    counts_settings=True,
    unchanged=1.0,
    monotone={Needs.CLEAN: -1, Needs.PERTURBED_BY_SETTING: 1},
)
def benign_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the settings at level low that cost less than 1 percentage point, gains included.

    With a few hundred samples, 1 percentage point is a handful of answers: noise alone moves settings across the threshold, in
    both directions.

    Formula: ``share of the settings s at level low with drop(s) < 0.01, with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [0, 1]; NaN for no samples or a missing score.
    """
    losses = _losses(clean, _low(by_setting(perturbed_by_setting)))
    return _share(losses < BENIGN - ROUNDING, losses)


def severe_failure_rate_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of settings that cost more than a tenth of the clean accuracy, by partial conjunction of their tests.

    For 0/1 scores the clean accuracy is treated as exact: only samples that were right when clean can flip, so its error would
    narrow the interval, not widen it.
    """
    tail, matrix = one_sided(confidence), table.matrix()
    if is_binary(table.clean, matrix):
        return _interval_of_share_above(drop_test(table.clean, matrix, table.clusters), SEVERE * float(table.clean.mean()), tail)
    losses = (1.0 - SEVERE) * table.clean[:, None] - matrix
    return _interval_of_share_above(BoundedMeanTest.of_losses(losses, table.clusters, largest=1.0 - SEVERE), 0.0, tail)


@sweep_metric(
    reference="VLM-RobustBench section 4.3 (ii); the threshold is 10 % of the clean accuracy (its tables fit no other round one)",
    unsuited="What counts as severe moves with the clean accuracy: 3 points at 30 %, 9 points at 90 %. Noise moves settings "
    "across that threshold, and the interval decides little; use `worst_tenth_drop` in a rule that blocks.",
    interval=severe_failure_rate_interval,
    counts_settings=True,
)
def severe_failure_rate(clean: ArrayLike, perturbed_by_setting: BySetting, relative: float = SEVERE) -> float:
    """Share of the settings that cost more than a tenth of the clean accuracy.

    The comparison is strict, and made on sums of scores to avoid rounding errors.

    Formula: ``share of the settings s with drop(s) > 0.10 mean(clean), with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples, a missing score, or if no clean answer is right.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    losses = drops(before, stack_settings(after, len(before)))
    if not before.sum() > 0.0:
        return math.nan
    return _share(losses * len(before) > relative * before.sum() + ROUNDING, losses)


def catastrophic_rate_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of settings that cost more than 10 pp, by partial conjunction of their tests."""
    return _interval_of_share_above(drop_test(table.clean, table.matrix(), table.clusters), CATASTROPHIC, one_sided(confidence))


@sweep_metric(
    reference="VLM-RobustBench appendix A.10 (tables 18 and 19)",
    unsuited="A model whose clean accuracy is at most 10 % cannot lose more than 10 points and has 0. Use "
    "`severe_failure_rate` to compare models of different accuracy, and `worst_tenth_drop` in a rule that blocks.",
    interval=catastrophic_rate_interval,
    counts_settings=True,
)
def catastrophic_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the settings that cost more than 10 percentage points.

    Formula: ``share of the settings s with drop(s) > 0.10, with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.
    """
    losses = _losses(clean, perturbed_by_setting)
    return _share(losses > CATASTROPHIC + ROUNDING, losses)


@sweep_metric(
    reference="VLM-RobustBench appendix A.12 (Flip+, macro average)",
    unsuited="Where answers are sampled, or nearly tied, it is above 0 although as many turn right as turn wrong. Use "
    "`mean_drop` for the net loss.",
    interval=of_mean(lambda table, _: (table.clean[:, None] - table.matrix()).clip(min=0.0).mean(axis=1)),
)
def mean_harmful_flip_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Harmful flip rate, averaged over all settings.

    Formula: ``mean over settings s of mean(max(clean - perturbed_s, 0))``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return _mean((before[:, None] - stack_settings(after, len(before))).clip(min=0.0))


@sweep_metric(
    better="none",
    reference="VLM-RobustBench appendix A.12 (Flip-, macro average)",
    unsuited="Instability, guesses and real gains raise it alike, so that no bound on it means anything alone. Read it "
    "beside `mean_harmful_flip_rate`, or bound their difference, `mean_drop`.",
    interval=of_mean(lambda table, _: (table.matrix() - table.clean[:, None]).clip(min=0.0).mean(axis=1)),
    monotone={Needs.CLEAN: -1, Needs.PERTURBED_BY_SETTING: 1},
)
def mean_helpful_flip_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Helpful flip rate, averaged over all settings.

    Formula: ``mean over settings s of mean(max(perturbed_s - clean, 0))``

    Returns: A fraction in [0, 1]; NaN for no settings, no samples or a missing score.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return _mean((stack_settings(after, len(before)) - before[:, None]).clip(min=0.0))


def mean_relative_corruption_error_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the mean drop relative to the visual gain by guarded Student's t; a side is infinite if the gain may be 0."""
    blind = table.required(Needs.NO_IMAGE)
    return interval_of_gain_share(table.clean, table.matrix().mean(axis=1), blind, table.clusters, confidence)


@sweep_metric(
    unit="ratio",
    bounds=(-math.inf, math.inf),
    reference="VLM-RobustBench section 3.1, equation 3, averaged over the settings (table 3)",
    validity="the visual gain is above 1 pp and above 2 standard errors",
    unsuited="Of two models with the same losses, the one that knows more without the images looks less robust, because "
    "its visual gain is smaller. Use `mean_drop` to compare them, with a bound on `visual_gain`.",
    interval=mean_relative_corruption_error_interval,
    gate=visual_gain_is_real,
    blind=math.nan,
    monotone={Needs.PERTURBED_BY_SETTING: -1},
    not_monotone=GAIN_MOVES,
)
def mean_relative_corruption_error(clean: ArrayLike, perturbed_by_setting: BySetting, no_image: ArrayLike) -> float:
    """Mean over all settings of the share of the visual gain that they destroy.

    The smaller the visual gain, the noisier are shares of it. In a gate, an unparsable answer without the image counts
    as a guess.

    Formula: ``mean over settings s of mean(clean - perturbed_s) / mean(clean - no_image)``

    Returns: A ratio, see :func:`relative_corruption_error`; NaN without a positive visual gain (undefined), for no settings, no
    samples or a missing score.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    blind = as_scores(no_image, "no_image")
    require_equal_lengths({"clean": len(before), "no_image": len(blind)})
    gain = float((before - blind).sum())
    if not gain > ROUNDING:
        return math.nan
    return _mean(drops(before, stack_settings(after, len(before))) * len(before) / gain)


def mean_corruption_error_interval(table: ScoreTable, _setting: str | None, confidence: float) -> Bounds:
    """Bounds the mean corruption error, including the uncertainty of the reference model's errors on the same samples.

    Each sample's influence on a ratio of sums E/R is (e - (E/R) r) / mean(r); influences add up over perturbations. By guarded
    Student's t: a further sample may be wrong under all settings where the reference model is right, or, for the lower end,
    the other way round.
    """
    reference, influence, value = table.reference_by_setting or {}, np.zeros(table.samples), 0.0
    worst, best = 0.0, 0.0
    kinds = types(table.by_setting)
    for settings in kinds.values():
        ours = (1.0 - table.matrix(settings)).sum(axis=1)
        theirs = (1.0 - stack_settings({name: reference[name] for name in settings}, table.samples)).sum(axis=1)
        ratio = float(ours.sum() / theirs.sum())
        influence += (ours - ratio * theirs) / float(theirs.mean()) / len(kinds)
        value += ratio / len(kinds)
        weight = len(settings) / float(theirs.mean()) / len(kinds)  # of a sample under all settings of a perturbation
        worst, best = worst + weight, best + ratio * weight
    low, high = interval_of(BoundedMeanTest.of_losses(influence[:, None], table.clusters, best, worst), confidence)
    return max(value + low, 0.0), value + high


def reference_makes_errors(table: ScoreTable, _setting: str | None) -> str:
    """Returns under which perturbations the reference model makes no error to be compared with, or an empty string."""
    reference = table.reference_by_setting or {}
    perfect = [
        name
        for name, settings in types(table.by_setting).items()
        if not sum(float((1.0 - reference[setting]).sum()) for setting in settings if setting in reference) > ROUNDING
    ]
    return f"the reference model makes no error under {first_few(perfect)}: the ratio is undefined" if perfect else ""


@sweep_metric(
    unit="ratio",
    bounds=(0.0, math.inf),
    reference="VLM-RobustBench section 5.7 and appendix B.3, after ImageNet-C (Hendrycks and Dietterich 2019)",
    validity="the reference model makes errors under every perturbation",
    unsuited="It is about two models: with another reference, or one measured on other samples or settings, the values "
    "cannot be compared. It counts errors on clean images, too; use `mean_drop` where no reference was measured, "
    "or for losses alone.",
    interval=mean_corruption_error_interval,
    gate=reference_makes_errors,
    unchanged=1.0,
    monotone={Needs.PERTURBED_BY_SETTING: -1, Needs.REFERENCE_BY_SETTING: 1},
)
def mean_corruption_error(perturbed_by_setting: BySetting, reference_by_setting: BySetting) -> float:
    """Errors relative to a reference model: per perturbation summed over its levels, then the plain mean over perturbations.

    Values are comparable only with the same reference model, samples and settings. If the reference is the model
    without the image, its unparsable answers count as guesses.

    Formula: ``mean over perturbations f of [sum_l mean(1 - perturbed_fl)] / [sum_l mean(1 - reference_fl)], over levels l``

    Returns: A ratio of at least 0: 1.0 equals the reference, below 1 is more robust. NaN if the reference makes no errors under a
    perturbation (undefined), for no settings, no samples or a missing score.

    >>> mean_corruption_error({"fog:low": [1, 1, 0, 1]}, {"fog:low": [1, 0, 0, 1]})
    0.5
    """
    return _mean(np.array(list(corruption_errors(perturbed_by_setting, reference_by_setting).values())))


def reference_loses(table: ScoreTable, _setting: str | None) -> str:
    """Returns under which perturbations the reference model loses nothing to be compared with, or an empty string."""
    reference, clean = table.reference_by_setting or {}, table.reference_clean
    if clean is None:
        return "the reference model was not asked about clean images"
    idle = [
        name
        for name, settings in types(table.by_setting).items()
        if sum(float((clean - reference[setting]).sum()) for setting in settings if setting in reference) <= ROUNDING
    ]
    return f"the reference model loses nothing under {first_few(idle)}: the ratio is undefined" if idle else ""


@sweep_metric(
    unit="ratio",
    bounds=(-math.inf, math.inf),
    reference="ImageNet-C (Hendrycks and Dietterich 2019), relative mCE, with the perturbations of VLM-RobustBench",
    validity="the reference model loses accuracy under every perturbation",
    unsuited="Where the reference loses little, a few answers multiply the ratio, and it has no interval. Use `mean_drop` for a "
    "bound, and `mean_corruption_error` to rank models by all their errors.",
    gate=reference_loses,
    unchanged=math.nan,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
    not_monotone=dict.fromkeys(
        (Needs.REFERENCE_CLEAN, Needs.REFERENCE_BY_SETTING), "the same loss or gain becomes another share"
    ),
)
def relative_mean_corruption_error(
    clean: ArrayLike, perturbed_by_setting: BySetting, reference_clean: ArrayLike, reference_by_setting: BySetting
) -> float:
    """Losses relative to a reference model's: per perturbation summed over its levels, then the plain mean over perturbations.

    Unlike :func:`mean_corruption_error` it ignores errors on clean images. The reference is the model of ``--vlm-reference``.

    Formula: ``mean over perturbations f of [sum_l mean(clean - perturbed_fl)] / [sum_l mean(reference_clean - reference_fl)]``

    Returns: A ratio: 1.0 loses as much as the reference, below 1 less, below 0 it gains. NaN if the reference loses nothing under
    a perturbation (undefined), for no settings, no samples or a missing score.

    >>> reference = {"fog:low": [0, 0, 1, 1]}
    >>> relative_mean_corruption_error([1, 1, 1, 1], {"fog:low": [0, 1, 1, 1]}, [1, 1, 1, 1], reference)
    0.5
    """
    scores, reference = (against_clean(clean, perturbed_by_setting), against_clean(reference_clean, reference_by_setting))
    under_same_settings(scores[1], reference[1], "reference_by_setting", "the reference model")
    ratios = []
    for settings in types(scores[1]).values():
        lost, theirs_lost = (
            sum(float((before - after[setting]).sum()) for setting in settings) for before, after in (scores, reference)
        )
        ratios.append(lost / theirs_lost if theirs_lost > ROUNDING else math.nan)
    return _mean(np.array(ratios))


def reference_is_known(table: ScoreTable, _setting: str | None) -> str:
    """Returns why the reference model predicts nothing, or an empty string."""
    reference = table.reference_clean
    if reference is None:
        return "the reference model was not asked about clean images"
    blind = table.no_image is not None and bool((reference == table.no_image).all())
    return "the reference answers without images, which predicts nothing: name a model with --vlm-reference" if blind else ""


@sweep_metric(
    better="higher",
    bounds=(-1.0, 1.0),
    perfect=math.nan,
    reference="Taori et al. 2020, effective robustness, with a line through one reference model (our companion); settings of "
    "VLM-RobustBench",
    validity="a reference model was measured, and no accuracy is 0 or 1",
    unsuited="It rests on one reference model, where the paper fits a line to many, and has no interval. Use "
    "`relative_mean_corruption_error` for losses against that model, and `mean_drop` for a bound.",
    gate=reference_is_known,
    monotone={
        Needs.CLEAN: -1,
        Needs.PERTURBED_BY_SETTING: 1,
        Needs.REFERENCE_CLEAN: 1,
        Needs.REFERENCE_BY_SETTING: -1,
    },
)
def effective_robustness(
    clean: ArrayLike, perturbed_by_setting: BySetting, reference_clean: ArrayLike, reference_by_setting: BySetting
) -> float:
    """Accuracy under perturbations beyond what the clean accuracy predicts.

    The paper predicts it by a line fitted to many models on logit axes. No such fit exists for these settings. Here the
    line has slope 1 and goes through the one reference model of the run.

    Formula: ``P - expit(logit(A) + logit(P_r) - logit(A_r)), A clean accuracy, P mean over settings, r: reference``

    Returns: A fraction in [-1, 1]: above 0 it is more robust than its clean accuracy predicts. NaN if one of A, A_r and P_r is 0
    or 1 (undefined), for no settings, no samples or a missing score.

    >>> effective_robustness([1, 1, 1, 0], {"fog:low": [1, 1, 1, 0]}, [1, 1, 1, 0], {"fog:low": [1, 0, 0, 0]})
    0.5
    """
    before, after = against_clean(clean, perturbed_by_setting)
    before_theirs, every = against_clean(reference_clean, reference_by_setting)
    _, theirs = under_same_settings(after, every, "reference_by_setting", "the reference model")
    accuracies = (_mean(before), _mean(stack_settings(theirs, len(before_theirs))), _mean(before_theirs))
    if not all(0.0 < accuracy < 1.0 for accuracy in accuracies):
        return math.nan
    first, second, third = (math.log(accuracy / (1.0 - accuracy)) for accuracy in accuracies)
    return _mean(stack_settings(after, len(before))) - 1.0 / (1.0 + math.exp(third - first - second))


def corruption_errors(perturbed_by_setting: BySetting, reference_by_setting: BySetting) -> dict[str, float]:
    """CE: errors under each perturbation relative to a reference model's, both summed over its levels.

    Returns for each perturbation a ratio of at least 0; NaN if the reference makes no errors (undefined) or a score is
    missing.

    Source: VLM-RobustBench section 5.7 and appendix B.3.

    >>> corruption_errors({"fog:low": [1, 1], "fog:high": [1, 0]}, {"fog:low": [1, 1], "fog:high": [0, 0]})
    {'fog': 0.5}
    """
    perturbed, reference = under_same_settings(
        perturbed_by_setting, reference_by_setting, "reference_by_setting", "the reference model"
    )
    ratios = {}
    for name, settings in types(perturbed).items():
        ours = sum(float((1.0 - perturbed[setting]).sum()) for setting in settings)
        theirs = sum(float((1.0 - reference[setting]).sum()) for setting in settings)
        ratios[name] = ours / theirs if theirs > ROUNDING else math.nan
    return ratios


def _losses(clean: ArrayLike, perturbed_by_setting: BySetting) -> Scores:
    before, after = against_clean(clean, perturbed_by_setting)
    return drops(before, stack_settings(after, len(before)))


def _low(scores: Mapping[str, Scores]) -> dict[str, Scores]:
    if not (low := low_settings(scores)):
        raise ValueError(
            f"none of the {len(scores)} settings is at level low: this metric is about settings such as 'glass_blur:low' only"
        )
    return {setting: scores[setting] for setting in low}


def _mean(values: Scores) -> float:
    return float(values.mean()) if values.size else math.nan


def _share(condition: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], losses: Scores) -> float:
    if not losses.size or np.isnan(losses).any():
        return math.nan
    return float(condition.mean())


def _interval_of_share_above(test: BoundTest, bound: float, tail: float) -> Bounds:
    """Bounds the share of m drops above ``bound``, by partial conjunction."""
    above, below = test.p_above(bound), test.p_below(bound)
    low, high = count_interval(above, below, tail)
    return low / above.size, high / above.size
