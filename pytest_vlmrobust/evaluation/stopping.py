"""Stopping: a sample that one patch answers rightly needs no further patch where only its best one counts.

No score is above 1, so that the best patch of each sample, and whatever is a function of it, is what it is without stopping.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import Prediction, Score

if TYPE_CHECKING:
    from .cell_result import CellResult

OPTION = "--vlm-patch-stop"
NEEDS_ALL = f"needs every patch: run without {OPTION}"
HIGHEST = 1.0
"""The score that nothing exceeds."""
UNASKED_STATE = "unasked"
UNASKED = Score(math.nan, "not asked: an earlier patch was right", None, UNASKED_STATE)
"""The score of a patch that was not asked about: nothing is known of it."""
NOT_PREDICTED = Prediction("", UNASKED_STATE)


def turns(samples: int, views: int, *, stop: bool) -> Sequence[range]:
    """Returns which views to ask about together, as indices into those of all samples in a row: all at once, or by position.

    >>> turns(3, 2, stop=True)
    [range(0, 6, 2), range(1, 6, 2)]
    """
    return [range(view, samples * views, views) for view in range(views)] if stop else [range(samples * views)]


def best_is_enough(metric: str) -> bool:
    """Whether a metric is a function of each sample's best patch, or reads no patches."""
    record = metrics.get(metric)
    return record.best_patch_is_enough or metrics.Needs.PATCHES not in record.needs


def undefined(samples: int) -> Estimate:
    """Returns the estimate of what a part of the patches says nothing about."""
    return Estimate(math.nan, samples, valid=False, reason=NEEDS_ALL)


def positions(result: CellResult) -> tuple[float, ...]:
    """Returns the share of right answers that each patch gives alone; nothing for a single view, or where some were not asked."""
    return metrics.patch_contribution(result.by_view) if result.views > 1 and not result.n_unasked else ()


def savings(result: CellResult) -> tuple[str, ...]:
    """Returns how much stopping saved, where it did."""
    if not result.n_unasked:
        return ()
    total = result.n_requested + result.n_unasked
    counted = f"{result.n_requested} of {total} patches were asked about, {result.n_unasked} after a right one were not"
    share = f"{result.n_unasked / total:.0%}"
    return (f"{result.cell.setting}: {counted} ({share} saved); the share of each position {NEEDS_ALL}",)
