"""Intervals of the metrics of grid pointing, attribute localisation and comparison of groups."""

from __future__ import annotations

from pytest_vlmrobust.core.errors import UsageError

from .statistics.groups import GroupMeans, largest_gap_interval
from .statistics.ratios import ratio_interval
from .table import ScoreTable

Bounds = tuple[float, float]


def gap(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest minus the smallest mean over the labels of the table."""
    if table.labels is None:
        raise UsageError("the table has no labels: say by what its samples are compared")
    return largest_gap_interval(GroupMeans.of(table.scores(_one(setting)), table.labels, table.clusters), confidence)


def retention(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of the mean overlap that is kept; a side is infinite where the original one cannot be told from 0."""
    return ratio_interval(table.scores(_one(setting)), table.clean, table.clusters, confidence)


def _one(setting: str | None) -> str:
    if setting is None:
        raise UsageError("this interval belongs to one setting: say which, for example 'fog:low'")
    return setting
