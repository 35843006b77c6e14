"""Strata: the curves over resolutions of each category and sub-task, and of the mean over categories.

Res-Bench's overall curve is the mean of the curves of its capability dimensions (categories), each with the same weight, whatever
its number of questions: the macro mean.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.sample import Sample, strata_by_kind
from pytest_vlmrobust.metrics.record import Metric
from pytest_vlmrobust.metrics.table import ScoreTable

SUITE = "resolution"
"""The suite whose sweep metrics are also taken by stratum."""
SUB_TASK = "sub_task"
"""The key of samples that names the sub-task within the category."""
MACRO = ".macro"
"""Suffix of the name of a metric on the mean curve of the categories."""
_OF_THE_CURVE = {metrics.Needs.RESOLUTIONS, metrics.Needs.ACCURACIES}


def strata(samples: Sequence[Sample]) -> dict[str, NDArray[np.bool_]]:
    """Returns which samples belong to each category, each ``category/sub-task`` and each slice; shape (N,).

    Single categories, and single slices of a metadata column, are left out.
    """
    categories = [sample.category for sample in samples]
    subtasks = [*map(sub_task_of, samples)]
    members: dict[str, NDArray[np.bool_]] = {}
    for names in (categories, subtasks):
        known = sorted(set(names) - {""})
        if len(known) > 1:
            members |= {name: np.array([other == name for other in names]) for name in known}
    slices = {kind: names for kind, names in strata_by_kind(samples).items() if kind and len(names) > 1}
    members |= {name: np.array([name in sample.strata for sample in samples]) for names in slices.values() for name in names}
    return members


def sub_task_of(sample: Sample) -> str:
    """Returns the ``category/sub-task`` of a sample; empty without a sub-task."""
    return f"{sample.category}/{sample.keys[SUB_TASK]}" if sample.keys.get(SUB_TASK) else ""


def estimates_by_stratum(metric: str, table: ScoreTable, samples: Sequence[Sample]) -> dict[str, Estimate]:
    """Returns a sweep metric for each stratum of the samples; see :func:`strata`."""
    return {name: metrics.estimate(metric, rows_of(table, kept)) for name, kept in strata(samples).items()}


def rows_of(table: ScoreTable, kept: Sequence[bool] | NDArray[np.bool_]) -> ScoreTable:
    """Returns the table of the samples where ``kept`` is true, shape (N,)."""
    chosen = np.flatnonzero(kept).tolist()

    def part(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: part(scores) for name, scores in value.items()}
        if value is None or isinstance(value, float | str):
            return value
        return [value[index] for index in chosen] if isinstance(value, list | tuple) else value[chosen]

    return ScoreTable(**{field.name: part(getattr(table, field.name)) for field in dataclasses.fields(table) if field.init})


def has_macro(record: Metric) -> bool:
    """Whether a metric can be taken on a mean curve: it reads accuracies at resolutions and nothing else."""
    return metrics.Needs.ACCURACIES in record.needs and set(record.needs) <= _OF_THE_CURVE


def macro_estimate(metric: str, table: ScoreTable, samples: Sequence[Sample]) -> Estimate | None:
    """Returns a metric of the mean of the categories' curves, without an interval.

    ``None`` for a metric that needs more than a curve, for a single category, and if a sample has no category.
    """
    record = metrics.get(metric)
    categories = [sample.category for sample in samples]
    rungs = [setting for _, setting in table.resolutions()]
    if not has_macro(record) or len(set(categories)) < 2 or "" in categories or not rungs:
        return None
    curve = list(metrics.macro_accuracies(table.matrix(rungs), categories))
    arguments = [curve if need is metrics.Needs.ACCURACIES else table.argument(need, None) for need in record.needs]
    value = record.function(*arguments)
    undefined = "; undefined" if math.isnan(value) else ""
    return Estimate(value, table.samples, reason=f"on the mean curve of {len(set(categories))} categories{undefined}")
