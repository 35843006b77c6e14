"""PCRI and RCI: what a model answers from one patch of the picture, against what it answers from all of it.

The score of a sample under ``patches:n`` is that of its best patch. PCRI reads the comparison as a property of the model, RCI as
one of the data set. Part of a negative value is luck, as n * n attempts beat one: ``pcri_excess`` takes it out.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest


@pytest.mark.vlm_settings("patches:2", "patches:3")
def test_cell(vlm_cell: GatedTest) -> None:
    """One grid keeps its bounds."""
    vlm_cell.check()
