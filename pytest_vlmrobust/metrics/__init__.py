"""Robustness metrics: scores in, a number out.

Each formula is a pure function of paired score arrays and returns a built-in float. The registry holds one record for each metric
that a gate can judge; :func:`estimate` applies one to a :class:`ScoreTable` and adds interval, sample size, validity and reason.
"""

from __future__ import annotations

from .baseline import (
    ChangedSamples,
    baseline_drop,
    changed_samples,
    drop_increase,
    mean_baseline_drop,
)
from .boxes import Overlap, intersection_over_union, match_eyes, mean_overlap
from .categories import (
    category_sensitivity,
    corruption_error_by_category,
    drop_by_category,
    estimates_by_category,
)
from .chance import chance_floor
from .completeness import applicable
from .corruption import (
    benign_at_low,
    catastrophic_rate,
    corruption_errors,
    mean_corruption_error,
    mean_drop,
    mean_drop_at_low,
    mean_harmful_flip_rate,
    mean_helpful_flip_rate,
    mean_relative_corruption_error,
    severe_failure_rate,
    worst_at_low,
    worst_case_drop,
    worst_tenth_drop,
)
from .curve_noise import debiased_continuous_error, split_continuous_error, wobble_p_value
from .diagnostics import coverage, fixation, grid_distance
from .estimation import estimate
from .evidence import (
    SettingEvidence,
    drops_above,
    p_value,
    worst_case_lower_bound,
)
from .families import FAMILY_METRICS, FamilyProperty
from .gains import gain_interval, hint_gain, thinking_gain
from .luck import pcri_chance, pcri_excess, pcri_matched, pcri_neutral, pcri_placebo, pcri_split
from .observatory import (
    GroupMean,
    group_gap,
    group_means,
    identity_drop,
    identity_drop_by_split,
    position_gap,
    signed_group_gap,
    signed_group_gap_interval,
    transfer_retention,
)
from .paired import (
    FlipRates,
    accuracy,
    accuracy_drop,
    clean_accuracy,
    flip_rates,
    harmful_flip_rate,
    helpful_flip_rate,
    relative_corruption_error,
    visual_gain,
)
from .patch_intervals import RangeTest, patch_contribution_intervals, pcri_range_test
from .patches import (
    RCI_BANDS,
    Correlation,
    best_patches,
    corpus_pcri,
    patch_contribution,
    pcri,
    rci,
    rci_band,
    rci_correlation,
)
from .people import HumanReference, human_reference
from .pointing import GridError, fixation_rate, grid_error
from .record import Coverage, Metric, Needs
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
)
from .scaling import scale_consistency, scale_consistency_interval, scale_gain, scale_gain_interval
from .severity import (
    TIERS,
    TierShares,
    mean_severity_correlation,
    mean_severity_violation,
    robustness_tier,
    severity_correlation,
    severity_violation,
    tail_share,
    tier_shares,
)
from .splits import identity_accuracy, split_group_gap, split_position_gap, split_transfer_retention
from .statistics.effective import (
    EffectiveSize,
    effective_size,
)
from .statistics.multiplicity import (
    benjamini_hochberg,
    holm,
)
from .statistics.power import (
    UndecidedZone,
    minimum_detectable_drop,
    samples_needed,
    undecided_zone,
)
from .statistics.proportions import exact_interval, finite_interval
from .statistics.tango import paired_drop_interval
from .stratified import stratified_drop
from .table import ScoreTable
from .told_boxes import told_overlap
from .validity import does_the_task, exceeds_the_prompt

__all__ = [
    "FAMILY_METRICS",
    "RCI_BANDS",
    "REGISTRY",
    "TIERS",
    "ChangedSamples",
    "Correlation",
    "Coverage",
    "EffectiveSize",
    "FamilyProperty",
    "FlipRates",
    "GridError",
    "GroupMean",
    "HumanReference",
    "LinearTrend",
    "Metric",
    "Needs",
    "Overlap",
    "RangeTest",
    "ScoreTable",
    "SettingEvidence",
    "TierShares",
    "UndecidedZone",
    "absolute_continuous_error",
    "accuracy",
    "accuracy_drop",
    "applicable",
    "baseline_drop",
    "benign_at_low",
    "benjamini_hochberg",
    "best_patches",
    "catastrophic_rate",
    "category_sensitivity",
    "chance_floor",
    "changed_samples",
    "clean_accuracy",
    "corpus_pcri",
    "corruption_error_by_category",
    "corruption_errors",
    "coverage",
    "debiased_continuous_error",
    "does_the_task",
    "drop_by_category",
    "drop_increase",
    "drops_above",
    "effective_size",
    "estimate",
    "estimates_by_category",
    "exact_interval",
    "exceeds_the_prompt",
    "finite_interval",
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
    "holm",
    "human_reference",
    "identity_accuracy",
    "identity_drop",
    "identity_drop_by_split",
    "intersection_over_union",
    "largest_downward_step",
    "linear_trend",
    "macro_accuracies",
    "match_eyes",
    "mean_baseline_drop",
    "mean_corruption_error",
    "mean_drop",
    "mean_drop_at_low",
    "mean_harmful_flip_rate",
    "mean_helpful_flip_rate",
    "mean_overlap",
    "mean_relative_corruption_error",
    "mean_severity_correlation",
    "mean_severity_violation",
    "metric",
    "minimum_detectable_drop",
    "names",
    "p_value",
    "paired_drop_interval",
    "patch_contribution",
    "patch_contribution_intervals",
    "pcri",
    "pcri_chance",
    "pcri_excess",
    "pcri_matched",
    "pcri_neutral",
    "pcri_placebo",
    "pcri_range_test",
    "pcri_split",
    "position_gap",
    "rci",
    "rci_band",
    "rci_correlation",
    "relative_continuous_error",
    "relative_corruption_error",
    "resolution_accuracy",
    "resolution_correlation",
    "resolution_net",
    "resolution_noise_floor",
    "resolution_slope",
    "resolution_wobble",
    "robustness_tier",
    "samples_needed",
    "scale_consistency",
    "scale_consistency_interval",
    "scale_gain",
    "scale_gain_interval",
    "severe_failure_rate",
    "severity_correlation",
    "severity_violation",
    "signed_group_gap",
    "signed_group_gap_interval",
    "split_continuous_error",
    "split_group_gap",
    "split_position_gap",
    "split_transfer_retention",
    "stratified_drop",
    "tail_share",
    "thinking_gain",
    "tier_shares",
    "told_overlap",
    "transfer_retention",
    "undecided_zone",
    "visual_gain",
    "wobble_p_value",
    "worst_at_low",
    "worst_case_drop",
    "worst_case_lower_bound",
    "worst_tenth_drop",
]


def __getattr__(name: str) -> object:
    if name in AMBIGUOUS:
        raise AttributeError(ambiguous_message(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
