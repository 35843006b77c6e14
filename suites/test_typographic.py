"""Typographic attack: an option of the question written on the image, or in a note beside it.

`test_cell` gates each kind and size: a wrong option on a white rectangle of 2, 6 or 15 % of the image, a word without meaning
in its place, and the right option. Gate `attack_rate`, and `typographic_word_drop` for what the meaning of the word costs alone.
`test_note` gates a note before the question that names a wrong option. Both need choices with words as options.
"""

from __future__ import annotations

import pytest

from pytest_vlmrobust.plugin import GatedTest


@pytest.mark.vlm_settings("clean", "no_image", "typographic")
def test_cell(vlm_cell: GatedTest) -> None:
    """One kind and size of the written word keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("note_wrong")
def test_note(vlm_cell: GatedTest) -> None:
    """A misleading note beside the image keeps its bounds."""
    vlm_cell.check()


@pytest.mark.vlm_settings("typographic")
@pytest.mark.vlm_metrics("clean_accuracy", "accuracy_above_chance", "visual_gain")
def test_sweep(vlm_sweep: GatedTest) -> None:
    """What the comparison rests on keeps its bounds."""
    vlm_sweep.check()
