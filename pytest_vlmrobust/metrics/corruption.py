"""Summary metrics of a sweep over many settings.

Source of the formulas: VLM-RobustBench, sections 3.1 and 4.3; what the text leaves open was recovered from its tables.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from . import intervals, validity
from .accuracy import GAIN_MOVES
from .completeness import ALL_SETTINGS, BENIGN, CATASTROPHIC, LOW_SETTINGS, SEVERE, low_settings, types, worst_tenth
from .record import Needs, loss_reach
from .registry import metric
from .scores import (
    ROUNDING,
    BySetting,
    Scores,
    against_clean,
    as_scores,
    drops,
    require_equal_lengths,
    stacked,
    under_same_settings,
)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 4.3",
    suite="corruptions",
    interval=intervals.mean_drop,
    reach=loss_reach,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def mean_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean accuracy drop over all settings.

    Formula: ``mean over settings s of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    return _mean(_losses(clean, perturbed_by_setting))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="after VLM-RobustBench section 4.3 (iii) and (iv): Worst@Low and Benign@Low, averaged (our companion)",
    validity="at least one setting at level low",
    suite="corruptions",
    interval=intervals.mean_drop_at_low,
    coverage=LOW_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def mean_drop_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean accuracy drop over the settings at level low: what small disturbances cost.

    A share of settings below a line, as `benign_at_low`, jumps with every setting that crosses it; a mean has no line to cross,
    and its interval decides with a few hundred samples.

    Formula: ``mean over settings s at level low of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,); only settings ``name:low`` are used.

    Returns:
        A fraction in [-1, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: no setting at level low, unequal lengths, a score outside [0, 1], or another shape.

    >>> mean_drop_at_low([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "rain:low": [1, 1, 1, 0], "fog:high": [0, 0, 0, 0]})
    0.125
    """
    return _mean(_low_losses(clean, perturbed_by_setting))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="after VLM-RobustBench section 4.3 (i) and (ii): between its worst case and its severe failures (our companion)",
    suite="corruptions",
    interval=intervals.worst_tenth_drop,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def worst_tenth_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean of the largest tenth of the drops: how bad it gets, without a line that a setting may or may not cross.

    Of m settings those are the m/10 worst ones, rounded up: 14 of 133. Chosen by the samples that also measure them, they come
    out too large on average, as `worst_case_drop` does, though less so; the interval is not.

    Formula: ``mean of the ceil(m / 10) largest drop(s) over m settings s, with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> worst_tenth_drop([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "fog:high": [0, 0, 1, 0]})
    0.5
    """
    losses = _losses(clean, perturbed_by_setting)
    # numpy's sort puts NaN last, where it counts
    return _mean(np.sort(losses)[losses.size - worst_tenth(losses.size) :])


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 4.3 (i)",
    suite="corruptions",
    interval=intervals.worst_case_drop,
    reach=loss_reach,
    coverage=ALL_SETTINGS,
    note=validity.worst_setting,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def worst_case_drop(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Largest accuracy drop over all settings.

    The largest of many noisy drops is too large on average (the winner's curse), the more so the fewer samples there are. Its
    interval is not, and its note gives a cross-validated value.

    Formula: ``max over settings s of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [-1, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.

    >>> worst_case_drop([1, 1, 1, 0], {"fog:low": [1, 1, 0, 0], "fog:high": [0, 0, 1, 0]})
    0.5
    """
    return _largest(_losses(clean, perturbed_by_setting))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(-1.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 4.3 (iii): Worst@Low",
    validity="at least one setting at level low",
    suite="corruptions",
    interval=intervals.worst_at_low,
    reach=loss_reach,
    coverage=LOW_SETTINGS,
    note=validity.worst_low_setting,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def worst_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Largest accuracy drop over the settings at level low.

    Formula: ``max over settings s at level low of drop(s), with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,); only settings ``name:low`` are used.

    Returns:
        A fraction in [-1, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: no setting at level low, unequal lengths, a score outside [0, 1], or another shape.
    """
    return _largest(_low_losses(clean, perturbed_by_setting))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="higher",
    bounds=(0.0, 1.0),
    perfect=1.0,
    reference="VLM-RobustBench section 4.3 (iv): Benign@Low; the bound of 1 pp is absolute (its tables fit no other)",
    validity="at least one setting at level low",
    suite="corruptions",
    interval=intervals.benign_at_low,
    counts_settings=True,
    coverage=LOW_SETTINGS,
    unchanged=1.0,
    monotone={Needs.CLEAN: -1, Needs.PERTURBED_BY_SETTING: 1},
)
def benign_at_low(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the settings at level low that cost less than 1 percentage point, gains included.

    Of a few hundred samples 1 percentage point is a handful of answers: noise alone carries settings across the line, either way.

    Formula: ``share of the settings s at level low with drop(s) < 0.01, with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,); only settings ``name:low`` are used.

    Returns:
        A fraction in [0, 1]; NaN for no samples or a missing score.

    Raises:
        ValueError: no setting at level low, unequal lengths, a score outside [0, 1], or another shape.
    """
    losses = _low_losses(clean, perturbed_by_setting)
    return _share(losses < BENIGN - ROUNDING, losses)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench section 4.3 (ii); the threshold is 10 % of the clean accuracy (its tables fit no other round one)",
    suite="corruptions",
    interval=intervals.severe_failure_rate,
    counts_settings=True,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def severe_failure_rate(clean: ArrayLike, perturbed_by_setting: BySetting, relative: float = SEVERE) -> float:
    """Share of the settings that cost more than a tenth of the clean accuracy.

    The comparison is strict, and made on sums of scores so that no rounding decides.

    Formula: ``share of the settings s with drop(s) > 0.10 mean(clean), with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).
        relative: the share of the clean accuracy that a setting may cost.

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    losses = drops(before, stacked(after, len(before)))
    return _share(losses * len(before) > relative * before.sum() + ROUNDING, losses)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench appendix A.10 (tables 18 and 19)",
    suite="corruptions",
    interval=intervals.catastrophic_rate,
    counts_settings=True,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def catastrophic_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the settings that cost more than 10 percentage points.

    Formula: ``share of the settings s with drop(s) > 0.10, with drop(s) = mean(clean - perturbed_s)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    losses = _losses(clean, perturbed_by_setting)
    return _share(losses > CATASTROPHIC + ROUNDING, losses)


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="lower",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench appendix A.12 (Flip+, macro average)",
    suite="corruptions",
    interval=intervals.mean_harmful_flip_rate,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: 1, Needs.PERTURBED_BY_SETTING: -1},
)
def mean_harmful_flip_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Harmful flip rate, averaged over all settings.

    Formula: ``mean over settings s of mean(max(clean - perturbed_s, 0))``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return _mean((before[:, None] - stacked(after, len(before))).clip(min=0.0))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING),
    better="none",
    bounds=(0.0, 1.0),
    perfect=0.0,
    reference="VLM-RobustBench appendix A.12 (Flip-, macro average)",
    suite="corruptions",
    interval=intervals.mean_helpful_flip_rate,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    monotone={Needs.CLEAN: -1, Needs.PERTURBED_BY_SETTING: 1},
)
def mean_helpful_flip_rate(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Helpful flip rate, averaged over all settings.

    Formula: ``mean over settings s of mean(max(perturbed_s - clean, 0))``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).

    Returns:
        A fraction in [0, 1]; NaN for no settings, no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    return _mean((stacked(after, len(before)) - before[:, None]).clip(min=0.0))


@metric(
    needs=(Needs.CLEAN, Needs.PERTURBED_BY_SETTING, Needs.NO_IMAGE),
    unit="ratio",
    better="lower",
    perfect=0.0,
    reference="VLM-RobustBench section 3.1, equation 3, averaged over the settings (table 3)",
    validity="the visual gain is above 1 pp and above 2 standard errors",
    suite="corruptions",
    interval=intervals.mean_relative_corruption_error,
    gate=validity.visual_gain_is_real,
    coverage=ALL_SETTINGS,
    unchanged=0.0,
    blind=math.nan,
    monotone={Needs.PERTURBED_BY_SETTING: -1},
    not_monotone=GAIN_MOVES,
)
def mean_relative_corruption_error(clean: ArrayLike, perturbed_by_setting: BySetting, no_image: ArrayLike) -> float:
    """Mean over all settings of the share of the visual gain that they destroy.

    The smaller the visual gain, the more noise there is in shares of it. In a gate, an answer without the image that cannot be
    read counts as a guess.

    Formula: ``mean over settings s of mean(clean - perturbed_s) / mean(clean - no_image)``

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed_by_setting: setting to scores, shape (N,).
        no_image: shape (N,), the same samples asked without their images.

    Returns:
        A ratio, see :func:`relative_corruption_error`; NaN without a positive visual gain (undefined), for no settings, no
        samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], or another shape.
    """
    before, after = against_clean(clean, perturbed_by_setting)
    blind = as_scores(no_image, "no_image")
    require_equal_lengths({"clean": len(before), "no_image": len(blind)})
    gain = float((before - blind).sum())
    if not gain > ROUNDING:
        return math.nan
    return _mean(drops(before, stacked(after, len(before))) * len(before) / gain)


@metric(
    needs=(Needs.PERTURBED_BY_SETTING, Needs.REFERENCE_BY_SETTING),
    unit="ratio",
    better="lower",
    bounds=(0.0, math.inf),
    perfect=0.0,
    reference="VLM-RobustBench section 5.7 and appendix B.3, after ImageNet-C (Hendrycks and Dietterich 2019)",
    validity="the reference model makes errors under every perturbation",
    suite="corruptions",
    interval=intervals.mean_corruption_error,
    gate=validity.reference_makes_errors,
    coverage=ALL_SETTINGS,
    unchanged=1.0,
    monotone={Needs.PERTURBED_BY_SETTING: -1, Needs.REFERENCE_BY_SETTING: 1},
)
def mean_corruption_error(perturbed_by_setting: BySetting, reference_by_setting: BySetting) -> float:
    """Errors relative to a reference model: per perturbation summed over its levels, then the plain mean over perturbations.

    Two values can be compared only if reference model, samples and settings are the same. Where the reference is the model
    without the image, an answer of it that cannot be read counts as a guess.

    Formula: ``mean over perturbations f of [sum_l mean(1 - perturbed_fl)] / [sum_l mean(1 - reference_fl)], over levels l``

    Args:
        perturbed_by_setting: setting to scores, shape (N,).
        reference_by_setting: the reference model's scores under at least these settings, shape (N,), the same samples.

    Returns:
        A ratio of at least 0: 1.0 equals the reference, below 1 is more robust. NaN where the reference makes no errors under
        a perturbation (undefined), for no settings, no samples or a missing score.

    Raises:
        ValueError: the reference lacks a setting, unequal lengths, a score outside [0, 1], or another shape.

    >>> mean_corruption_error({"fog:low": [1, 1, 0, 1]}, {"fog:low": [1, 0, 0, 1]})
    0.5
    """
    return _mean(np.array(list(corruption_errors(perturbed_by_setting, reference_by_setting).values())))


def corruption_errors(perturbed_by_setting: BySetting, reference_by_setting: BySetting) -> dict[str, float]:
    """Errors under each perturbation relative to a reference model's, both summed over its levels: CE.

    Args:
        perturbed_by_setting: setting to scores, shape (N,).
        reference_by_setting: the reference model's scores under at least these settings, shape (N,), the same samples.

    Returns:
        Perturbation to a ratio of at least 0; NaN where the reference makes no errors (undefined) or a score is missing.

    Raises:
        ValueError: the reference lacks a setting, unequal lengths, a score outside [0, 1], or another shape.

    Source: VLM-RobustBench section 5.7 and appendix B.3.

    >>> corruption_errors({"fog:low": [1, 1], "fog:high": [1, 0]}, {"fog:low": [1, 1], "fog:high": [0, 0]})
    {'fog': 0.5}
    """
    own, reference = under_same_settings(
        perturbed_by_setting, reference_by_setting, "reference_by_setting", "the reference model"
    )
    ratios = {}
    for name, settings in types(own).items():
        ours = sum(float((1.0 - own[setting]).sum()) for setting in settings)
        theirs = sum(float((1.0 - reference[setting]).sum()) for setting in settings)
        ratios[name] = ours / theirs if theirs > ROUNDING else math.nan
    return ratios


def _losses(clean: ArrayLike, perturbed_by_setting: BySetting) -> Scores:
    before, after = against_clean(clean, perturbed_by_setting)
    return drops(before, stacked(after, len(before)))


def _low_losses(clean: ArrayLike, perturbed_by_setting: BySetting) -> Scores:
    before, after = against_clean(clean, perturbed_by_setting)
    low = low_settings(after)
    if not low:
        raise ValueError(
            f"none of the {len(after)} settings is at level low: this metric is about settings such as 'glass_blur:low' only"
        )
    return drops(before, stacked({setting: after[setting] for setting in low}, len(before)))


def _mean(values: Scores) -> float:
    return float(values.mean()) if values.size else math.nan


def _largest(values: Scores) -> float:
    # numpy's max keeps NaN, Python's may not
    return float(values.max()) if values.size else math.nan


def _share(condition: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], losses: Scores) -> float:
    if not losses.size or np.isnan(losses).any():
        return math.nan
    return float(condition.mean())
