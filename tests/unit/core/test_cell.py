from __future__ import annotations

from pytest_vlmrobust.core.cell import Cell, SweepMetric
from pytest_vlmrobust.core.setting import Setting


def test_ids_are_those_of_the_contract() -> None:
    assert str(Cell("qwen2-vl-2b", "mmbench", Setting.parse("glass_blur:low"))) == "qwen2-vl-2b-mmbench-glass_blur:low"
    assert str(SweepMetric("qwen2-vl-2b", "mmbench", "worst_case_drop")) == "qwen2-vl-2b-mmbench-worst_case_drop"


def test_cells_are_values() -> None:
    fog = Setting.parse("fog:low")
    assert Cell("m", "d", fog) == Cell("m", "d", Setting.parse("fog:low"))
    assert len({Cell("m", "d", fog), Cell("m", "d", fog), Cell("n", "d", fog)}) == 2
