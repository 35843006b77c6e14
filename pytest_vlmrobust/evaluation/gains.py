"""Gains: what a small picture gains when it is padded or enlarged before a model sees it (Res-Bench, Table 3)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.estimate import Estimate

from .cell_result import CellResult
from .judged import PREPROCESSING_GAIN
from .measured import Measured
from .preprocessed import is_preprocessed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def gain_estimates(measured: Measured, result: CellResult, confidence: float) -> list[tuple[str, Estimate]]:
    """Returns what a preprocessed rung gains over the same rung as it is, paired by sample; nothing for any other setting.

    Raises:
        InfrastructureError: the rung could not be measured.
    """
    cell = result.cell
    if not is_preprocessed(cell.setting):
        return []
    rung = Setting(cell.setting.steps[:1])
    before = measured.result(Cell(cell.model, cell.dataset, rung)).values
    return [
        (
            PREPROCESSING_GAIN,
            _gain(result.values, before, [sample.group or sample.id for sample in result.samples], str(rung), confidence),
        )
    ]


def _gain(after: NDArray[np.float64], before: NDArray[np.float64], groups: list[str], rung: str, confidence: float) -> Estimate:
    value = float((after - before).mean())
    missing = "" if math.isfinite(value) else "; scores are missing"

    def at(level: float) -> tuple[float, float]:
        return metrics.gain_interval(after, before, level, groups)

    return Estimate(value, len(after), *at(confidence), confidence, reason=f"against {rung} as it is{missing}", at=at)
