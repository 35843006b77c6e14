"""VLM-RobustBench: 49 augmentations in 133 settings, and what their drops add up to.

`test_cell` gates one setting at a time; `test_sweep` gates the summary metrics, each over all settings. `test_since_baseline`
gates what all settings together lost since the run named by `--vlm-baseline`, and is there only with it.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest

SUMMARY_METRICS = (
    "clean_accuracy",
    "accuracy_above_chance",
    "visual_gain",
    "mean_drop",
    "mean_drop_at_low",
    "mean_relative_corruption_error",
    "worst_case_drop",
    "worst_tenth_drop",
    "severe_failure_rate",
    "catastrophic_rate",
    "worst_category_drop",
    "worst_category_accuracy",
    "always_lost_rate",
    "worst_at_low",
    "benign_at_low",
    "tail_share",
    "mean_corruption_error",
    "mean_harmful_flip_rate",
    "mean_helpful_flip_rate",
    "mean_severity_violation",
    "mean_severity_correlation",
)


@pytest.mark.vlm_settings("clean", "no_image", "robustbench")
def test_cell(vlm_cell: GatedTest) -> None:
    """One setting keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("robustbench")
@pytest.mark.vlm_metrics(*SUMMARY_METRICS)
def test_sweep(vlm_sweep: GatedTest) -> None:
    """One summary metric keeps its bounds."""
    vlm_sweep.check()


@pytest.mark.vlm_splits("robustbench")
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep: GatedTest) -> None:
    """The mean loss since an earlier run keeps its bounds."""
    vlm_sweep.check()
