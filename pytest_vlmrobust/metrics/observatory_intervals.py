"""Intervals of the metrics of identity matching, grid pointing, attribute localisation and comparison of groups.

Those over several settings average them for each sample first; of a single setting they are the intervals of that setting.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_vlmrobust.core.errors import UsageError

from .intervals import Bounds, drop_bounds, mean_bounds
from .record import Needs
from .scores import Scores, per_sample
from .statistics.groups import GroupMeans, largest_gap_interval
from .statistics.guarded import expected_gain, guarded_ratio_interval
from .table import ScoreTable


def position_gap(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest minus the smallest mean over positions: above without correction, below by Bonferroni's."""
    return _gap(table, table.scores(_one(setting)), table.positions, confidence)


def group_gap(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the largest minus the smallest mean over groups of people: above without correction, below by Bonferroni's."""
    return _gap(table, table.scores(_one(setting)), table.people, confidence)


def retention(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:
    """Bounds the share of the mean overlap that is kept; a side is infinite where the original one cannot be told from 0."""
    return _kept(table, table.scores(_one(setting)), confidence)


def identity_accuracy(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001  the signature of an interval
    """Bounds the mean over samples: Clopper-Pearson for 0/1 scores of one setting, otherwise guarded t."""
    return mean_bounds(table, per_sample(table.by_setting), confidence)


def split_position_gap(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest minus the smallest mean over positions: above without correction, below by Bonferroni's."""
    return _gap(table, per_sample(table.by_setting), table.positions, confidence)


def split_group_gap(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the largest minus the smallest mean over groups of people: above without correction, below by Bonferroni's."""
    return _gap(table, per_sample(table.by_setting), table.people, confidence)


def split_retention(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the share of the mean overlap that is kept; a side is infinite where the original one cannot be told from 0."""
    return _kept(table, per_sample(table.by_setting), confidence)


def hint_gain(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the gain: tails of flips for 0/1 scores of a single setting, otherwise guarded Student's t."""
    return _gain(table, Needs.UNHINTED_BY_SETTING, confidence)


def thinking_gain(table: ScoreTable, setting: str | None, confidence: float) -> Bounds:  # noqa: ARG001
    """Bounds the gain: tails of flips for 0/1 scores of a single setting, otherwise guarded Student's t."""
    return _gain(table, Needs.BASE_BY_SETTING, confidence)


def _gain(table: ScoreTable, other: Needs, confidence: float) -> Bounds:
    others = table.argument(other, None)
    if others is None:
        raise UsageError(f"the table has no scores to compare with: pass {other.value}")
    before = per_sample({setting: others[setting] for setting in table.by_setting})
    low, high = drop_bounds(before, per_sample(table.by_setting), table.clusters, confidence)  # of the loss
    return -high, -low


def _kept(table: ScoreTable, after: Scores, confidence: float) -> Bounds:
    """Bounds mean(after) / mean(clean) by guarded Student's t: a further sample may lose all, or gain as much as others did."""
    gained = expected_gain(table.clean - after, confidence)
    parts = np.stack([after, table.clean], axis=1)
    low, high = guarded_ratio_interval(parts, table.clusters, confidence, against_low=(0.0, 1.0), against_high=(gained, 0.0))
    return max(low, 0.0), high


def _gap(table: ScoreTable, scores: Scores, labels: Sequence[str] | None, confidence: float) -> Bounds:
    if labels is None:
        raise UsageError("the table does not say by what its samples are compared: pass positions or people")
    known = np.flatnonzero([bool(label) for label in labels])
    groups = GroupMeans.of(scores[known], [label for label in labels if label], table.clusters.within(known))
    return largest_gap_interval(groups, confidence)


def _one(setting: str | None) -> str:
    if setting is None:
        raise UsageError("this interval belongs to one setting: say which, for example 'fog:low'")
    return setting
