"""Unreadable: how many more answers cannot be read under a setting than on clean pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import LETTER_LOGITS
from pytest_vlmrobust.metrics.table import ScoreTable

from .cell_result import CellResult
from .judged import UNPARSED_INCREASE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def unreadable_estimates(clean: CellResult, result: CellResult, confidence: float) -> list[tuple[str, Estimate]]:
    """Returns the share of unreadable answers minus that on clean pictures, paired by sample.

    Nothing for a cell of several views, for clean pictures and none, and where no text was read: letters scored by their
    probability can always be read.
    """
    if result.views > 1 or result.cell.setting in (CLEAN, NO_IMAGE):
        return []
    written = any(prediction.method != LETTER_LOGITS for prediction in (*clean.predictions, *result.predictions))
    if not written:
        return []
    setting = str(result.cell.setting)
    table = ScoreTable(
        clean=_readable(clean), by_setting={setting: _readable(result)}, groups=[s.group or s.id for s in result.samples]
    )
    return [(UNPARSED_INCREASE, metrics.estimate("accuracy_drop", table, setting=setting, confidence=confidence))]


def _readable(result: CellResult) -> NDArray[np.float64]:
    """Returns 1 for each answer that could be read and 0 for one that could not, shape (N,); NaN where there is none."""
    import numpy as np

    values = {"unparsed": 0.0, "error": np.nan}
    return np.array([values.get(score.state, 1.0) for score in result.scores], float)
