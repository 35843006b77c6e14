"""Res-Bench: the same questions at twelve sizes of their images.

`test_cell` gates one rung at a time; `test_sweep` gates what the curve over all rungs says, also by category and sub-task. Rungs
are twelfths of the size of an embedded dataset's images, and 112 to 1344 pixels for data from files. `test_preprocessing`
pads and enlarges two low rungs before the model sees them (Table 3): more tokens, and nothing more to see. Super-resolution joins
where a `conftest.py` registered a network for it. `test_since_baseline` gates what all rungs together lost since the run named by
`--vlm-baseline`, and is there only with it.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest

SUMMARY_METRICS = (
    "clean_accuracy",
    "accuracy_above_chance",
    "visual_gain",
    "resolution_accuracy",
    "resolution_correlation",
    "resolution_slope",
    "absolute_continuous_error",
    "relative_continuous_error",
    "resolution_net",
    "resolution_wobble",
    "resolution_noise_floor",
    "largest_downward_step",
)


@pytest.mark.vlm_settings("ladder")
def test_cell(vlm_cell: GatedTest) -> None:
    """One rung keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("ladder")
@pytest.mark.vlm_metrics(*SUMMARY_METRICS)
def test_sweep(vlm_sweep: GatedTest) -> None:
    """One property of the curve keeps its bounds."""
    vlm_sweep.check()


@pytest.mark.vlm_splits("ladder")
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep: GatedTest) -> None:
    """The mean loss since an earlier run keeps its bounds."""
    vlm_sweep.check()


@pytest.mark.vlm_settings("preprocessing")
def test_preprocessing(vlm_cell: GatedTest) -> None:
    """A padded or enlarged rung keeps its bounds."""
    vlm_cell.check()
