"""Across models: whether two reference models say the same about data sets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import combinations

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.metrics import rci_correlation

INDEX = "rci"


def agreement(records: Iterable[Record]) -> list[str]:
    """Returns, for each grid and pair of models, how their indices of the data sets that both were asked about correlate.

    Nothing for fewer than two models or two data sets.
    """
    indices: dict[str, dict[str, dict[str, float]]] = {}
    for record in records:
        value = _index(record)
        if not math.isnan(value):
            indices.setdefault(record.setting, {}).setdefault(record.model, {})[record.dataset] = value
    return [
        line
        for setting, by_model in indices.items()
        for first, second in combinations(by_model, 2)
        if (line := _line(setting, first, second, by_model[first], by_model[second]))
    ]


def _index(record: Record) -> float:
    return next((one.value for one in record.measures if one.metric == INDEX and not one.category), math.nan)


def _line(setting: str, first: str, second: str, one: dict[str, float], other: dict[str, float]) -> str:
    shared = sorted({*one} & {*other})
    if len(shared) < 2:
        return ""
    found = rci_correlation({name: one[name] for name in shared}, {name: other[name] for name in shared})
    said = (
        "undefined, one side is constant" if math.isnan(found.pearson) else f"{found.pearson:.2f}, of ranks {found.spearman:.2f}"
    )
    return f"RCI of {setting} over {len(shared)} data sets, {first} against {second}: correlation {said}"
