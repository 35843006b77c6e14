"""The Perceptual Observatory: faces and words matched, pointed to and localised, as they are, augmented, and as illusions.

The images are those of collections of identities (`faces`, `words`, or a folder of your own given with `--vlm-dataset`). A task
makes a dataset of a collection, called `faces.matching`. What a model does no better with the images than without is not
applicable: its settings are then not asked.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest

SPLITS = ("observatory_id", "observatory_ood")
"""Augmentations, in distribution, and illusions, out of it."""


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_settings("clean", "no_image", *SPLITS)
def test_cell(vlm_cell: GatedTest) -> None:
    """One task under one setting keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_splits("clean", *SPLITS)
@pytest.mark.vlm_metrics("identity_accuracy", "split_group_gap")
def test_identity(vlm_sweep: GatedTest) -> None:
    """Accuracy, or overlap of boxes, on originals, augmentations and illusions; and how far groups of people are apart."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_splits(*SPLITS)
@pytest.mark.vlm_metrics("identity_drop", "worst_group_drop")
def test_robustness(vlm_sweep: GatedTest) -> None:
    """What augmentations and illusions cost all people, and the group that loses most."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_splits(*SPLITS)
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep: GatedTest) -> None:
    """What augmentations, and illusions, lost since an earlier run; there only with ``--vlm-baseline``."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("pointing")
@pytest.mark.vlm_splits("clean", *SPLITS)
@pytest.mark.vlm_metrics("split_position_gap")
def test_position(vlm_sweep: GatedTest) -> None:
    """How much it matters where in the grid the target is."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("guided")
@pytest.mark.vlm_splits(*SPLITS)
@pytest.mark.vlm_metrics("split_transfer_retention")
def test_retention(vlm_sweep: GatedTest) -> None:
    """The share of the overlap of boxes that is kept."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("semi_guided")
@pytest.mark.vlm_splits("clean", *SPLITS)
@pytest.mark.vlm_metrics("hint_gain")
def test_hint(vlm_sweep: GatedTest) -> None:
    """What one box told gains for those that are not."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_splits("clean", *SPLITS)
@pytest.mark.vlm_metrics("thinking_gain")
def test_thinking(vlm_sweep: GatedTest) -> None:
    """What thinking gains; for thinking models whose twin without it is in the run."""
    vlm_sweep.check()


@pytest.mark.vlm_tasks("matching", "pointing", "guided", "semi_guided")
@pytest.mark.vlm_splits("clean", *SPLITS)
@pytest.mark.vlm_metrics("scale_gain", "scale_consistency")
def test_scale(vlm_family: GatedTest) -> None:
    """What size gains; for families of which the run has two sizes or more."""
    vlm_family.check()
