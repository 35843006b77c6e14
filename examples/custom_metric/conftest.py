"""A metric of one's own: what flips cost where an answer that turns wrong costs three times what one that turns right saves."""

import math

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.metrics import Needs, ScoreTable, metric
from pytest_vlmrobust.metrics.statistics.paired import mean_interval

Scores = NDArray[np.float64]
SAVED = 1 / 3


def costs(clean: Scores, perturbed: Scores) -> Scores:
    """Returns the cost of each sample, from -SAVED to 1."""
    lost = clean - perturbed
    return np.where(lost > 0, lost, SAVED * lost)


def cost_interval(table: ScoreTable, setting: str | None, confidence: float) -> tuple[float, float]:
    """Bounds the mean cost: that of its place between -SAVED and 1, which is in [0, 1]."""
    places = (costs(table.clean, table.required(Needs.PERTURBED, setting)) + SAVED) / (1 + SAVED)
    low, high = mean_interval(places, table.clusters, confidence)
    return low * (1 + SAVED) - SAVED, high * (1 + SAVED) - SAVED


@metric(better="lower", bounds=(-SAVED, 1.0), perfect=0.0, unchanged=0.0, interval=cost_interval)
def flip_cost(clean: Scores, perturbed: Scores) -> float:
    """Mean cost of flips: 1 for an answer that turns wrong, -1/3 for one that turns right.

    Formula: mean(max(clean - perturbed, 0) - max(perturbed - clean, 0) / 3)
    """
    return float(costs(clean, perturbed).mean()) if clean.size else math.nan
