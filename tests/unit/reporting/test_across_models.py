from __future__ import annotations

import math

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting.wording import agreement, note_lines


def cell(model: str, dataset: str, value: float, setting: str = "patches:2") -> Record:
    return Record(
        "cell", f"{model}-{dataset}-{setting}", model, dataset, setting, measures=(Measure("pcri", 9.0), Measure("rci", value))
    )


ALIKE = [
    cell("a", "x", -0.2),
    cell("a", "y", 0.0),
    cell("a", "z", 0.3),
    cell("b", "x", -0.3),
    cell("b", "y", 0.1),
    cell("b", "z", 0.2),
]


def test_each_pair_of_models_is_compared_over_the_data_sets_that_both_have() -> None:
    assert agreement(ALIKE) == ["RCI of patches:2 over 3 datasets, a against b: correlation 0.90, of ranks 1.00"]
    assert agreement([*ALIKE, cell("c", "x", 0.0), cell("a", "w", 0.5)]) == agreement(ALIKE)
    grids = [*ALIKE, *(cell(record.model, record.dataset, 0.1, "patches:3") for record in ALIKE)]
    assert agreement(grids)[1].endswith(
        "RCI of patches:3 over 3 datasets, a against b: correlation undefined, one side is constant"
    )


def test_an_index_that_does_not_apply_is_left_out() -> None:
    assert agreement([*ALIKE[:4], cell("b", "y", math.nan)]) == []


def test_it_stands_after_the_notes() -> None:
    assert note_lines(ALIKE) == agreement(ALIKE)
    assert note_lines(ALIKE[:3]) == []
