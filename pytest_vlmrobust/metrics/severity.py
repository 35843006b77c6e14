"""Severity: tiers of drops, which questions suffer most, and whether drops grow with the level of the perturbation.

Source: VLM-RobustBench, section 5.4 and appendices A.2 and A.10.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.words import first_few

from .corruption import ALL_SETTINGS, BENIGN, CATASTROPHIC, MILD, low_settings
from .record import Coverage, metric
from .table import BySetting, Needs, ScoreTable, against_clean, drops, parse_setting, stack_settings

_DECIMALS = 12
"""Values that agree to this many decimals differ by float rounding only: they are ties."""

# Spearman's rank correlation of few numbers: scipy.stats has it too, but is slow to import


def average_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns ranks from 1, shape (k,); ties share the mean of their ranks."""
    _, inverse, counts = np.unique(np.round(values, _DECIMALS), return_inverse=True, return_counts=True)
    last = counts.cumsum()
    shared: NDArray[np.float64] = ((last - counts + 1) + last) / 2.0
    return shared[inverse.reshape(-1)]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns the correlation of the average ranks, in [-1, 1]; NaN for fewer than two pairs, a constant side or a NaN."""
    pairs = np.array([first, second], dtype=np.float64)
    if pairs.shape[1] < 2 or np.isnan(pairs).any():
        return math.nan
    deviations = np.stack([average_ranks(row) for row in pairs]) - (pairs.shape[1] + 1) / 2.0
    spread = math.sqrt(float((deviations[0] ** 2).sum() * (deviations[1] ** 2).sum()))
    if spread == 0.0:
        return math.nan
    return min(max(float(deviations[0] @ deviations[1]) / spread, -1.0), 1.0)


# Tiers of damage


TIERS = ("positive", "benign", "mild", "moderate", "catastrophic")


def robustness_tier(drop: float) -> str:
    """Names the tier of an accuracy drop.

    ``positive`` below 0, ``benign`` in [0, 1), ``mild`` in [1, 3), ``moderate`` in [3, 10] and ``catastrophic`` above 10
    percentage points. The paper's tables do not show which ends are closed; these are our choice.

    Returns one of ``positive``, ``benign``, ``mild``, ``moderate``, ``catastrophic``.

    Source: VLM-RobustBench appendix A.10 (tables 18 and 19).

    >>> robustness_tier(0.263)
    'catastrophic'
    """
    if math.isnan(drop):
        raise ValueError("the drop is NaN: a drop that is unknown has no tier. Check for NaN first")
    if not -1.0 <= drop <= 1.0:
        raise ValueError(f"the drop is {drop!r}: expected a fraction in [-1, 1], so 26.3 percentage points are 0.263")
    if drop < -ROUNDING:
        return "positive"
    if drop < BENIGN - ROUNDING:
        return "benign"
    if drop < MILD - ROUNDING:
        return "mild"
    return "moderate" if drop <= CATASTROPHIC + ROUNDING else "catastrophic"


class TierShares(NamedTuple):
    """Shares of settings by tier; they add up to 1."""

    positive: float
    benign: float
    mild: float
    moderate: float
    catastrophic: float


def tier_shares(drops: Sequence[float]) -> TierShares:
    """Counts the settings of a sweep by tier, see :func:`robustness_tier`.

    Returns five fractions in [0, 1]; all NaN for no settings or a missing drop.

    Source: VLM-RobustBench table 19 (table 18 counts positive as benign).

    >>> tier_shares([-0.01, 0.0, 0.02, 0.2])
    TierShares(positive=0.25, benign=0.25, mild=0.25, moderate=0.0, catastrophic=0.25)
    """
    if not drops or any(map(math.isnan, drops)):
        return TierShares(*[math.nan] * len(TIERS))
    tiers = [robustness_tier(drop) for drop in drops]
    return TierShares(*[tiers.count(tier) / len(tiers) for tier in TIERS])


BINARY, ALL = "binary", "all"
"""Parts of a sweep besides its levels: the settings without a level, and all settings."""


def by_level(level_of: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Returns the settings of each level (low, mid, high, binary, then any others), and last all of them.

    >>> by_level({"flip_v": "", "fog:low": "low"})
    {'low': ('fog:low',), 'binary': ('flip_v',), 'all': ('flip_v', 'fog:low')}
    """
    every = tuple(level_of)
    names = {setting: level or BINARY for setting, level in level_of.items()}
    order = (*LEVELS, BINARY, *sorted({*names.values()}.difference((*LEVELS, BINARY))))
    parts = {level: tuple(setting for setting in every if names[setting] == level) for level in order}
    return {**{level: part for level, part in parts.items() if part}, **({ALL: every} if every else {})}


EFFECTS = ("accuracy_drop", "relative_corruption_error", "harmful_flip_rate", "helpful_flip_rate")
"""Metrics of the cost of a setting for a model, by name."""


def mean_effects(cells: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Averages the costs of settings over the cells of a level, of a model or of several models.

    Each cell counts once, so with the same settings for all models this is the mean of the models' means.

    Args:
        cells: the four ``EFFECTS`` of each cell, and the accuracy on clean images as ``clean_accuracy``.

    Returns the means of the ``EFFECTS``; ``conditional_flip_rate``, the mean of harmful flips / clean accuracy (of the answers
    that were right, how many turn wrong); and ``flip_ratio``, mean harmful / mean helpful flips. NaN for no cells, a missing
    number, no right answer, or no helpful flip.

    Source: VLM-RobustBench figure 2 (drops), tables 5 and 20 (RCE), 21 (conditional flips), 22 to 24 (flips and their ratio).

    >>> cell = {"accuracy_drop": 0.1, "relative_corruption_error": 0.2, "harmful_flip_rate": 0.2, "helpful_flip_rate": 0.1}
    >>> effects = mean_effects([{**cell, "clean_accuracy": 0.8}])
    >>> effects["conditional_flip_rate"], effects["flip_ratio"]
    (0.25, 2.0)
    """

    def average(values: Iterable[float]) -> float:
        return math.fsum(values) / len(cells) if cells else math.nan

    def ratio(part: float, whole: float) -> float:
        return part / whole if whole > ROUNDING else math.nan

    means = {name: average(cell[name] for cell in cells) for name in EFFECTS}
    return {
        **means,
        "conditional_flip_rate": average(ratio(cell["harmful_flip_rate"], cell["clean_accuracy"]) for cell in cells),
        "flip_ratio": ratio(means["harmful_flip_rate"], means["helpful_flip_rate"]),
    }


SPATIAL_TYPES = (
    *("upsample", "downsample", "elastic_transform", "zoom_blur", "rotate"),
    *("shear", "affine", "perspective_transform", "pixelate"),
)
"""Perturbations that move or resample pixels (VLM-RobustBench appendix B.2)."""


def spatial_settings(settings: Iterable[str]) -> tuple[str, ...]:
    """Returns the settings of the nine spatial and resampling perturbations."""
    return tuple(setting for setting in settings if parse_setting(setting).name in SPATIAL_TYPES)


severity_metric = partial(metric, suite="corruptions", better="none", bounds=(0.0, 1.0))


@severity_metric(
    perfect=math.nan,
    reference="VLM-RobustBench appendix B.2 (table 27)",
    validity="at least one setting that costs more than 10 pp",
    unsuited="Of two catastrophic settings it can only be 0, a half or 1, and it falls when other perturbations do more "
    "harm. It says where the damage is; use `worst_tenth_drop` for how large it is.",
    coverage=ALL_SETTINGS,
    unchanged=math.nan,
    not_monotone=dict.fromkeys((Needs.CLEAN, Needs.PERTURBED_BY_SETTING), "it says where the damage is, not how large it is"),
)
def tail_share(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the catastrophic settings that move or resample pixels.

    These are upsample, downsample, elastic_transform, zoom_blur, rotate, shear, affine, perspective_transform and pixelate.

    Formula: ``|{s spatial: drop(s) > 0.10}| / |{s: drop(s) > 0.10}|, with drop(s) = mean(clean - perturbed_s)``

    Returns: A fraction in [0, 1]; NaN if no setting costs more than 10 percentage points (undefined), for no settings, no samples
    or a missing score.

    >>> tail_share([1, 1, 1, 1], {"rotate:high": [0, 0, 1, 1], "fog:high": [0, 1, 1, 1], "flip_v": [1, 1, 1, 1]})
    0.5
    """
    before, after = against_clean(clean, perturbed_by_setting)
    losses = drops(before, stack_settings(after, len(before)))
    if np.isnan(losses).any():
        return math.nan
    tail = [setting for setting, loss in zip(after, losses, strict=True) if loss > CATASTROPHIC + ROUNDING]
    return len(spatial_settings(tail)) / len(tail) if tail else math.nan


# Levels of one perturbation compared


def severity_violation(drops: Sequence[float]) -> float:
    """Whether a perturbation harms less at a higher level: 1.0 if drop(low) > drop(mid) or drop(mid) > drop(high), else 0.0.

    Returns 1.0 or 0.0; NaN if a drop is NaN.

    Source: VLM-RobustBench section 5.4 (i).

    >>> severity_violation((0.083, 0.021, 0.094))
    1.0
    """
    low, mid, high = _triple(drops)
    if math.isnan(low + mid + high):
        return math.nan
    return float(low > mid + ROUNDING or mid > high + ROUNDING)


def severity_correlation(drops: Sequence[float]) -> float:
    """Spearman's rank correlation of the level (1, 2, 3) with the drop; ties get average ranks.

    Returns a number in [-1, 1]; NaN if the three drops are equal (undefined) or one is NaN.

    Source: VLM-RobustBench section 5.4 (ii), which does not say how it treats ties.

    >>> severity_correlation((0.01, 0.03, 0.02))
    0.5
    """
    return spearman((1.0, 2.0, 3.0), _triple(drops))


def triples(settings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Returns, for each perturbation present at all three levels, its settings in the order low, mid, high."""
    present = set(settings)
    by_name = {}
    for low in low_settings(sorted(present)):
        name = parse_setting(low).name
        wanted = tuple(f"{name}:{level}" for level in LEVELS)
        if present.issuperset(wanted):
            by_name[name] = wanted
    return by_name


def _in_triples(settings: Iterable[str]) -> tuple[str, ...]:
    return tuple(setting for triple in triples(settings).values() for setting in triple)


GRADED_TYPES = Coverage("perturbations with three levels", 42, _in_triples, per=3)
_LEVELS_COMPARED = {
    Needs.PERTURBED_BY_SETTING: "it compares levels: what helps the lowest does not do what helps the highest does"
}
level_metric = partial(severity_metric, coverage=GRADED_TYPES, monotone={Needs.CLEAN: 0}, not_monotone=_LEVELS_COMPARED)


@level_metric(
    perfect=0.0,
    reference="VLM-RobustBench section 5.4 (i)",
    validity="at least one perturbation at all three levels",
    unsuited="Noise alone puts three levels that cost the same out of order five times in six, and there is no interval to "
    "tell this from a defect. Bound `mean_drop` and `worst_case_drop` instead.",
    unchanged=0.0,
)
def mean_severity_violation(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Share of the perturbations that harm less at a higher level, see :func:`severity_violation`.

    Formula: ``share of the perturbations f with drop(f:low) > drop(f:mid) or drop(f:mid) > drop(f:high)``

    Returns: A fraction in [0, 1]; NaN for no samples or a missing score.
    """
    violations = [severity_violation(triple) for triple in _triples_of_drops(clean, perturbed_by_setting)]
    return float(np.mean(violations))


def constant_types(table: ScoreTable) -> str:
    """Returns which perturbations cost the same at each level, so that no correlation is defined for them."""
    constant = [
        name
        for name, settings in triples(table.by_setting).items()
        if float(np.ptp(drops(table.clean, table.matrix(settings)))) < ROUNDING
    ]
    return f"left out {first_few(constant)}: the same drop at each level" if constant else ""


@level_metric(
    unit="correlation",
    bounds=(-1.0, 1.0),
    perfect=math.nan,
    reference="VLM-RobustBench section 5.4 (ii)",
    validity="at least one perturbation at all three levels whose drops differ",
    unsuited="Three levels without ties give each perturbation one of four values, and a flat one that noise has put in "
    "order counts as much as a steep one. Use `mean_drop_at_low` and `mean_drop` for what levels cost.",
    note=constant_types,
    unchanged=math.nan,
)
def mean_severity_correlation(clean: ArrayLike, perturbed_by_setting: BySetting) -> float:
    """Mean of :func:`severity_correlation` over the perturbations for which it is defined.

    Formula: ``mean over perturbations f of the rank correlation of (1, 2, 3) and (drop(f:low), drop(f:mid), drop(f:high))``

    Returns: In [-1, 1]; NaN if no perturbation changes with its level, for no samples or a missing score.
    """
    listed = _triples_of_drops(clean, perturbed_by_setting)
    if any(math.isnan(drop) for triple in listed for drop in triple):
        return math.nan
    defined = [value for value in map(severity_correlation, listed) if not math.isnan(value)]
    return float(np.mean(defined)) if defined else math.nan


def _triple(drops: Sequence[float]) -> tuple[float, float, float]:
    if len(drops) != 3:
        raise ValueError(f"found {len(drops)} drops: expected three, for the levels low, mid and high in this order")
    return float(drops[0]), float(drops[1]), float(drops[2])


def _triples_of_drops(clean: ArrayLike, perturbed_by_setting: BySetting) -> list[list[float]]:
    before, after = against_clean(clean, perturbed_by_setting)
    by_name = triples(after)
    if not by_name:
        raise ValueError(
            f"none of the perturbations behind the {len(after)} settings is there at all three levels low, mid and high: "
            "add the missing levels, for example 'fog:low', 'fog:mid' and 'fog:high'"
        )
    return [
        drops(before, stack_settings({name: after[name] for name in triple}, len(before))).tolist() for triple in by_name.values()
    ]


def category_sensitivity(clean: Mapping[str, float], by_setting: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean accuracy drop over all settings for each category of questions, to find the skill that suffers most.

    Returns for each category a fraction in [-1, 1], the largest drop first; NaN if an accuracy is missing, and for no
    settings.

    Source: VLM-RobustBench appendix A.2.

    >>> category_sensitivity({"colour": 1.0, "count": 1.0}, {"fog:low": {"colour": 1.0, "count": 0.5}})
    {'count': 0.5, 'colour': 0.0}
    """
    drops = {name: _mean([before - after.get(name, math.nan) for after in by_setting.values()]) for name, before in clean.items()}
    return dict(sorted(drops.items(), key=lambda item: math.inf if math.isnan(item[1]) else -item[1]))


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
