"""Wording: the same question in other words, marks and layouts, and questions that ask for the opposite.

`test_cell` gates each wording: what it costs, and how many answers it changes. `test_sweep` gates `wording_range`, the accuracy
in the best wording less that in the worst. `test_directional` gates questions whose right answer changes with them: a model that
does not notice answers as before.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest


@pytest.mark.vlm_settings("clean", "no_image", "wording")
def test_cell(vlm_cell: GatedTest) -> None:
    """One wording keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("directional")
def test_directional(vlm_cell: GatedTest) -> None:
    """Answers follow a question that asks for the opposite."""
    vlm_cell.check()


@pytest.mark.vlm_settings("wording")
@pytest.mark.vlm_metrics("clean_accuracy", "accuracy_above_chance", "visual_gain", "wording_range")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """What all wordings together show keeps its bounds."""
    vlm_sweep.check()
