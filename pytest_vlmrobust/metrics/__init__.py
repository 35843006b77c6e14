"""Robustness metrics: scores in, a number out.

Each formula is a pure function of paired score arrays and returns a built-in float. The registry holds one record for each metric
that a gate can judge; :func:`estimate` applies one to a :class:`ScoreTable` and adds interval, sample size, validity and reason.
"""

from __future__ import annotations

from .corruption import (
    benign_at_low,
    catastrophic_rate,
    mean_corruption_error,
    mean_drop,
    mean_harmful_flip_rate,
    mean_helpful_flip_rate,
    mean_relative_corruption_error,
    severe_failure_rate,
    worst_at_low,
    worst_case_drop,
)
from .estimation import estimate
from .observatory import group_gap, intersection_over_union, position_gap, transfer_retention
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
from .patches import patch_contribution, pcri, rci
from .record import Coverage, Metric, Needs
from .registry import AMBIGUOUS, REGISTRY, ambiguous_message, get, metric, names
from .resolution import absolute_continuous_error, relative_continuous_error, resolution_correlation
from .severity import (
    TIERS,
    TierShares,
    mean_severity_correlation,
    mean_severity_violation,
    robustness_tier,
    severity_correlation,
    severity_violation,
    tier_shares,
)
from .statistics.proportions import exact_interval
from .statistics.tango import paired_drop_interval
from .table import ScoreTable

__all__ = [
    "REGISTRY",
    "TIERS",
    "Coverage",
    "FlipRates",
    "Metric",
    "Needs",
    "ScoreTable",
    "TierShares",
    "absolute_continuous_error",
    "accuracy",
    "accuracy_drop",
    "benign_at_low",
    "catastrophic_rate",
    "clean_accuracy",
    "estimate",
    "exact_interval",
    "flip_rates",
    "get",
    "group_gap",
    "harmful_flip_rate",
    "helpful_flip_rate",
    "intersection_over_union",
    "mean_corruption_error",
    "mean_drop",
    "mean_harmful_flip_rate",
    "mean_helpful_flip_rate",
    "mean_relative_corruption_error",
    "mean_severity_correlation",
    "mean_severity_violation",
    "metric",
    "names",
    "paired_drop_interval",
    "patch_contribution",
    "pcri",
    "position_gap",
    "rci",
    "relative_continuous_error",
    "relative_corruption_error",
    "resolution_correlation",
    "robustness_tier",
    "severe_failure_rate",
    "severity_correlation",
    "severity_violation",
    "tier_shares",
    "transfer_retention",
    "visual_gain",
    "worst_at_low",
    "worst_case_drop",
]


def __getattr__(name: str) -> object:
    if name in AMBIGUOUS:
        raise AttributeError(ambiguous_message(name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
