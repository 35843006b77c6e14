"""Order of options: the same choice with its options in every cyclic order, one inference each.

`test_cell` gates each order: what it costs, and how many answers it changes. `test_sweep` gates all orders together: the share of
questions that are right in all (`circular_accuracy`), that get the same option in all (`answer_agreement`), and by how much one
letter is preferred (`letter_pull`). The orders are those of the largest choice set of the data. A smaller set has fewer; nothing
is inferred for the rest.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest


@pytest.mark.vlm_settings("clean", "no_image", "options")
def test_cell(vlm_cell: GatedTest) -> None:
    """One order keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("options")
@pytest.mark.vlm_metrics(
    "clean_accuracy", "accuracy_above_chance", "visual_gain", "circular_accuracy", "answer_agreement", "letter_pull"
)
def test_sweep(vlm_sweep: GatedTest) -> None:
    """What all orders together show keeps its bounds."""
    vlm_sweep.check()
