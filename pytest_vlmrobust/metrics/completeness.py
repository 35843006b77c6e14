"""The arrays that a metric reads from a table of scores, and which of them are missing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.words import first_few

from .record import Metric
from .registry import REGISTRY, names
from .scores import Scores, SettingLike, parse_setting
from .table import BY_LETTER, LABELS, Needs, ScoreTable

_NAMES = {
    Needs.CLEAN: "clean",
    Needs.NO_IMAGE: "no_image",
    Needs.CLEAN_CONFIDENCES: "clean confidence",
    Needs.REFERENCE_CLEAN: "reference clean",
    Needs.BASELINE_CLEAN: "baseline clean",
    Needs.CHANCES: "chances",
    Needs.FLOORS: "floors",
}
"""Names in messages for needs that are one array of a table."""
_UNMEASURED = [need for need in Needs if need.unmeasured]


def applicable(table: ScoreTable, setting: SettingLike | None = None, suite: str | None = None) -> list[str]:
    """Returns the metrics of one setting, or of the whole sweep, for which a table meets the optional needs.

    Needs are optional if not all datasets or runs have them: see :attr:`Needs.optional`. A gap between positions or groups of
    people is left out unless at least two of them are known. :func:`estimate` reports anything else that is missing.

    Returns names of metrics, in the order of :func:`names`.

    >>> table = ScoreTable([1, 1], {"fog:low": [1, 0]}, positions=["[0,0]", "[0,1]"])
    >>> [name for name in applicable(table, "fog:low", "observatory") if name.endswith("gap")]
    ['position_gap']
    """
    key = None if setting is None else str(parse_setting(setting))
    named = names("sweep" if key is None else "cell", suite)
    return [name for name in named if all(_offers(table, need, key) for need in REGISTRY.get(name).needs if need.optional)]


def labelled_samples(record: Metric, table: ScoreTable) -> int:
    """Returns how many samples have all labels (position, group of people) that a metric compares."""
    labels = [table.argument(need, None) for need in record.needs if need in LABELS]
    return sum(all(row) for row in zip(*labels, strict=True)) if labels else table.samples


def arrays_read(record: Metric, table: ScoreTable, setting: str | None) -> dict[str, Scores]:
    """Returns the arrays that a metric reads, by their names in messages; absent ones are left out."""
    chosen = record.coverage.select(table.by_setting) if record.coverage else tuple(table.by_setting)
    read: dict[str, Scores] = {}
    for need in record.needs:
        read |= _arrays(need, table, setting, chosen)
    return read


def complete_samples(read: dict[str, Scores], samples: int) -> int:
    """Returns how many of ``samples`` have all scores that are read."""
    complete = np.ones(samples, dtype=np.bool_)
    for array in read.values():
        complete &= ~_missing(array)
    return int(complete.sum())


def what_is_missing(record: Metric, table: ScoreTable, setting: str | None, read: dict[str, Scores]) -> str:
    """Returns why the value cannot be computed, or an empty string if nothing is missing."""
    if not table.samples:
        return "no samples"
    absent = next((need.absent for need in record.needs if need.absent and not _has(table, need, setting)), None)
    if absent:
        return f"there are no {absent}"
    for need in (need for need in _UNMEASURED if need in record.needs):
        if lacking := [name for name in table.by_setting if name not in table.argument(need, None)]:
            return f"{need.unmeasured} {first_few(lacking)}"
    gaps = {name: int(_missing(array).sum()) for name, array in read.items()}
    if not any(gaps.values()):
        return ""
    count = table.samples - complete_samples(read, table.samples)
    where = first_few([f"{missing} in {name}" for name, missing in gaps.items() if missing])
    return f"scores of {count} of {table.samples} samples are missing: {where}"


def _arrays(need: Needs, table: ScoreTable, setting: str | None, chosen: tuple[str, ...]) -> dict[str, Scores]:
    if need.of_one_setting:
        values = table.argument(need, setting)
        return {} if values is None else {_name_of(need, str(setting)): values}
    if need.unmeasured:
        others = table.argument(need, setting) or {}
        return {f"{need.prefix} {name}": others[name] for name in chosen if name in others}
    if need in BY_LETTER:
        return {f"{need.value} {letter}": values for letter, values in (table.argument(need, setting) or {}).items()}
    if need in _NAMES:
        single = getattr(table, need.value)
        return {} if single is None else {_NAMES[need]: single}
    rungs = [name for _, name in table.resolutions()] if need in {Needs.ACCURACIES, Needs.RUNGS} else ()
    return {name: table.by_setting[name] for name in (chosen if need is Needs.PERTURBED_BY_SETTING else rungs)}


def _name_of(need: Needs, setting: str) -> str:
    """Returns the name in messages for the scores of a need under one setting."""
    return f"{need.prefix or f'{need.absent} of'} {setting}" if need.absent else setting


def _has(table: ScoreTable, need: Needs, setting: str | None) -> bool:
    argument = table.argument(need, setting)
    return argument is not None and len(argument) > 0


def _offers(table: ScoreTable, need: Needs, setting: str | None) -> bool:
    """Whether a table meets an optional need; labels need at least two different names."""
    argument = table.argument(need, setting)
    return argument is not None and (need not in LABELS or len(set(argument) - {""}) > 1)


def _missing(array: Scores) -> NDArray[np.bool_]:
    """Returns which samples lack a score, shape (N,), for scores of shape (N,) or (N, k)."""
    missing: NDArray[np.bool_] = np.logical_or.reduce(np.isnan(array), axis=tuple(range(1, array.ndim)))
    return missing
