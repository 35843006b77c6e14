"""PCRI and RCI: what a model answers from one patch of the image, against what it answers from all of it.

Grids are those of ``--vlm-patches``, 2 x 2 and 3 x 3 by default. The score of a sample under ``patches:n`` is that of its best
patch. PCRI reads the comparison as a property of the model, RCI as one of the dataset. Part of a negative value is luck, as
n * n attempts beat one: ``pcri_excess`` takes out that of guesses, and ``pcri_matched`` compares with as many attempts at the
whole image, which are made where a rule is about it, or with ``--vlm-patch-attempts``. ``--vlm-patch-stop`` gives the same
numbers from fewer inferences, but for the map of positions. `test_sweep` gates whether the model looks and is better than chance,
without which no index means anything. `test_since_baseline` gates what all grids together lost since the run named by
`--vlm-baseline`, of each sample from its best patch, and is there only with it.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest


@pytest.mark.vlm_settings("patches")
def test_cell(vlm_cell: GatedTest) -> None:
    """One grid keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("patches")
@pytest.mark.vlm_metrics("clean_accuracy", "accuracy_above_chance", "visual_gain")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """What the comparison rests on keeps its bounds."""
    vlm_sweep.check()


@pytest.mark.vlm_splits("patches")
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep: GatedTest) -> None:
    """The mean loss since an earlier run keeps its bounds."""
    vlm_sweep.check()
