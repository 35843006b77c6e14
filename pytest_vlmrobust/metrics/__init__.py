"""Robustness metrics: functions from scores to a number.

The registry holds one record for each metric that a gate can use; :func:`estimate` applies one to a :class:`ScoreTable` and
adds interval, sample size, validity and reason. Each module defines first the interval of a metric, then its gate or note, then
the formula with the decorator that names them.

These rules hold for every metric:

- A formula is a pure function that returns a built-in float. Its docstring gives the unit and the range of the value.
- Its arguments are scores of the same N samples in the same order, numbers in [0, 1]; NaN marks a missing score. Each member of
  :class:`Needs` gives the scores and their shape: most are arrays of shape (N,), or a mapping from setting to such arrays.
- It raises ``ValueError`` for unequal lengths, a score outside [0, 1] or an array of another shape. "What every metric refuses"
  refers to these errors.
- It is NaN, and never 0, without samples, if a score is missing, and if it is undefined.
- Its interval has a two-sided level: each bound of a 0.90 interval is a one-sided 95 % bound, which a gate compares with its
  threshold. It is computed only when N > 0 and no score is missing. Samples of one group count as one observation. "Guarded"
  Student's t adds one more sample against each bound: see :mod:`.statistics.means`.
"""

from __future__ import annotations

from .accuracy import (
    FlipRates,
    accuracy,
    accuracy_above_chance,
    accuracy_drop,
    clean_accuracy,
    flip_rates,
    harmful_flip_rate,
    helpful_flip_rate,
    relative_corruption_error,
    visual_gain,
)
from .baseline import ChangedSamples, baseline_drop, baseline_flip_rate, changed_samples, drop_increase, mean_baseline_drop
from .completeness import applicable
from .confidence import (
    area_under_risk_coverage,
    brier_score,
    brier_score_increase,
    calibration_error_increase,
    coverage_at_90_precision,
    coverage_at_90_precision_drop,
    expected_calibration_error,
    risk_coverage_increase,
)
from .corruption import (
    benign_at_low,
    catastrophic_rate,
    corruption_errors,
    effective_robustness,
    mean_corruption_error,
    mean_drop,
    mean_drop_at_low,
    mean_harmful_flip_rate,
    mean_helpful_flip_rate,
    mean_relative_corruption_error,
    relative_mean_corruption_error,
    severe_failure_rate,
    worst_at_low,
    worst_case_drop,
    worst_tenth_drop,
)
from .estimation import estimate
from .families import (
    FAMILY_METRICS,
    FamilyProperty,
    SizeTrend,
    scale_consistency,
    scale_consistency_interval,
    scale_gain,
    scale_gain_interval,
    size_trend,
    size_weights,
)
from .hidden import always_lost_rate, circular_accuracy, worst_category_accuracy, worst_category_drop, worst_group_drop
from .luck import pcri_excess, pcri_matched, pcri_neutral
from .observatory import (
    GroupMean,
    HumanReference,
    does_the_task,
    exceeds_the_prompt,
    group_gap,
    group_means,
    human_reference,
    identity_drop,
    identity_drop_by_split,
    position_gap,
    signed_group_gap,
    transfer_retention,
)
from .options import answer_agreement, letter_pull, wording_range
from .patches import (
    RCI_BANDS,
    Correlation,
    best_patches,
    corpus_pcri,
    patch_contribution,
    pcri,
    percentile_bands,
    rci,
    rci_band,
    rci_correlation,
    relative_index_change,
)
from .pointing import (
    GridError,
    Overlap,
    coverage,
    fixation,
    fixation_rate,
    grid_distance,
    grid_error,
    intersection_over_union,
    mean_overlap,
    prompt_leakage_iou,
)
from .record import Circumstances, Coverage, Metric
from .registry import AMBIGUOUS, REGISTRY, ambiguous_message, get, metric, names
from .resolution import (
    LinearTrend,
    absolute_continuous_error,
    largest_downward_step,
    linear_trend,
    macro_accuracies,
    relative_continuous_error,
    resolution_accuracy,
    resolution_correlation,
    resolution_net,
    resolution_noise_floor,
    resolution_slope,
    resolution_wobble,
    wobble_p_value,
)
from .severity import (
    EFFECTS,
    TIERS,
    TierShares,
    by_level,
    category_sensitivity,
    mean_effects,
    mean_severity_correlation,
    mean_severity_violation,
    robustness_tier,
    severity_correlation,
    severity_violation,
    tail_share,
    tier_shares,
)
from .splits import (
    gain_interval,
    hint_gain,
    identity_accuracy,
    split_group_gap,
    split_position_gap,
    split_transfer_retention,
    thinking_gain,
)
from .statistics.paired import paired_drop_interval
from .statistics.proportions import exact_interval
from .table import Needs, ScoreTable

__all__ = [
    "EFFECTS",
    "FAMILY_METRICS",
    "RCI_BANDS",
    "REGISTRY",
    "TIERS",
    "ChangedSamples",
    "Circumstances",
    "Correlation",
    "Coverage",
    "FamilyProperty",
    "FlipRates",
    "GridError",
    "GroupMean",
    "HumanReference",
    "LinearTrend",
    "Metric",
    "Needs",
    "Overlap",
    "ScoreTable",
    "SizeTrend",
    "TierShares",
    "UndecidedZone",
    "absolute_continuous_error",
    "accuracy",
    "accuracy_above_chance",
    "accuracy_drop",
    "always_lost_rate",
    "answer_agreement",
    "applicable",
    "area_under_risk_coverage",
    "baseline_drop",
    "baseline_flip_rate",
    "benign_at_low",
    "best_patches",
    "brier_score",
    "brier_score_increase",
    "by_level",
    "calibration_error_increase",
    "catastrophic_rate",
    "category_sensitivity",
    "changed_samples",
    "circular_accuracy",
    "clean_accuracy",
    "corpus_pcri",
    "corruption_errors",
    "coverage",
    "coverage_at_90_precision",
    "coverage_at_90_precision_drop",
    "does_the_task",
    "drop_increase",
    "effective_robustness",
    "estimate",
    "exact_interval",
    "exceeds_the_prompt",
    "expected_calibration_error",
    "fixation",
    "fixation_rate",
    "flip_rates",
    "gain_interval",
    "get",
    "grid_distance",
    "grid_error",
    "group_gap",
    "group_means",
    "harmful_flip_rate",
    "helpful_flip_rate",
    "hint_gain",
    "human_reference",
    "identity_accuracy",
    "identity_drop",
    "identity_drop_by_split",
    "intersection_over_union",
    "largest_downward_step",
    "letter_pull",
    "linear_trend",
    "macro_accuracies",
    "mean_baseline_drop",
    "mean_corruption_error",
    "mean_drop",
    "mean_drop_at_low",
    "mean_effects",
    "mean_harmful_flip_rate",
    "mean_helpful_flip_rate",
    "mean_overlap",
    "mean_relative_corruption_error",
    "mean_severity_correlation",
    "mean_severity_violation",
    "metric",
    "names",
    "paired_drop_interval",
    "patch_contribution",
    "pcri",
    "pcri_excess",
    "pcri_matched",
    "pcri_neutral",
    "percentile_bands",
    "position_gap",
    "prompt_leakage_iou",
    "rci",
    "rci_band",
    "rci_correlation",
    "relative_continuous_error",
    "relative_corruption_error",
    "relative_index_change",
    "relative_mean_corruption_error",
    "resolution_accuracy",
    "resolution_correlation",
    "resolution_net",
    "resolution_noise_floor",
    "resolution_slope",
    "resolution_wobble",
    "risk_coverage_increase",
    "robustness_tier",
    "scale_consistency",
    "scale_consistency_interval",
    "scale_gain",
    "scale_gain_interval",
    "severe_failure_rate",
    "severity_correlation",
    "severity_violation",
    "signed_group_gap",
    "size_trend",
    "size_weights",
    "split_group_gap",
    "split_position_gap",
    "split_transfer_retention",
    "tail_share",
    "thinking_gain",
    "tier_shares",
    "transfer_retention",
    "visual_gain",
    "wobble_p_value",
    "wording_range",
    "worst_at_low",
    "worst_case_drop",
    "worst_category_accuracy",
    "worst_category_drop",
    "worst_group_drop",
    "worst_tenth_drop",
]

SHIPPED = REGISTRY.loaded_things()
"""The metrics of this package by name, as it registers them; a replacement is a user's own metric."""


def __getattr__(name: str) -> object:
    if name in AMBIGUOUS:
        raise AttributeError(ambiguous_message(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
