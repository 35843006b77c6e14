"""Baselines: whether the run that is named can be compared with this one, as far as it can be told before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.cell import Cell, FamilyMetric

if TYPE_CHECKING:
    from .gate import Gate


def refuse_other_seed(gate: Gate, items: Iterable[pytest.Item]) -> None:
    """Refuses a baseline whose pictures were drawn with another seed, where tests are about such pictures.

    Args:
        gate: of the run.
        items: its gated tests that were selected.

    Raises:
        DatasetError: the seeds differ, and both runs have a cell whose setting depends on them.
        StoreError: the manifest of the baseline cannot be read.
    """
    if gate.baseline is not None:
        cells = (cell for item in items for cell in _compared(gate, item))
        gate.baseline.refuse_seed(gate.settings.vlm_seed, cells)


def _compared(gate: Gate, item: pytest.Item) -> list[Cell]:
    """Returns the cells that a test compares with the baseline: its own, or those of a summary metric that is about both."""
    from pytest_vlmrobust import metrics

    from .collection import about, settings_of

    planned = about(item)
    if isinstance(planned, Cell):
        return [planned]
    if isinstance(planned, FamilyMetric) or metrics.Needs.BASELINE_BY_SETTING not in metrics.get(planned.metric).needs:
        return []
    settings = settings_of(gate, item, planned.dataset, planned.split)
    return [Cell(planned.model, planned.dataset, setting) for setting in settings]
