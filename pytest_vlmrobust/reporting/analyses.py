"""Analyses: what the papers compute from all cells of a run together, from its records, and as tables for every report.

A cell counts if it was asked in full and no inference of it failed. Any other is named as missing, with the reason: it is never
taken for a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.words import first_few, quantity

TIERS, CATEGORY_DROPS = "tiers", "category_drops"
ALL, BINARY = "all", "binary"
_EARLY = "stopped early"
_EXPERIMENTS = {"ladder", "patches", "attempts", "preprocessing"}
"""Families whose settings do not measure the cost of a perturbation."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """One row of an analysis: what a paper computes from many cells of a model on a dataset."""

    name: str
    """The analysis: ``tiers`` (shares of settings by tier of severity) or ``category_drops`` (mean drop by category of
    questions, the largest first)."""
    model: str
    """The model by its short name."""
    dataset: str
    """The dataset by its short name."""
    part: str
    """What the row is about: of ``tiers`` a level, ``binary`` or ``all``; of ``category_drops`` the category."""
    values: dict[str, float] = field(default_factory=dict)
    """Name to number; ``null`` where it is undefined, as without any complete cell."""
    cells: int = 0
    """Complete cells that the numbers rest on, baselines not counted."""
    missing: dict[str, str] = field(default_factory=dict)
    """Setting of each cell that it lacks, with the reason: the test stopped early, inferences failed, nothing was asked."""


class _Cells(NamedTuple):
    """The records of cells of one model on one dataset: those that count, and why the others do not."""

    complete: dict[str, Record]
    missing: dict[str, str]

    def only(self, settings: Iterable[str]) -> _Cells:
        chosen = set(settings)
        complete = {name: record for name, record in self.complete.items() if name in chosen}
        return _Cells(complete, {name: reason for name, reason in self.missing.items() if name in chosen})


def analyses(records: Iterable[Record]) -> tuple[Analysis, ...]:
    """Returns the analyses of a run, by model and dataset in the order in which their first test ended."""
    by_sweep: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.test == "cell" and not record.task:
            by_sweep.setdefault((record.model, record.dataset), []).append(record)
    rows: list[Analysis] = []
    for compute in (_tiers, _category_drops):
        for (model, dataset), cells in by_sweep.items():
            rows += compute(model, dataset, cells)
    return tuple(rows)


def _split(records: Iterable[Record], metric: str) -> _Cells:
    """Returns which cells are complete and have a metric, and what the others lack."""
    cells = _Cells({}, {})
    for record in records:
        if reason := _gap(record, metric):
            cells.missing[record.setting] = reason
        else:
            cells.complete[record.setting] = record
    return cells


def _gap(record: Record, metric: str) -> str:
    """Returns why a cell does not count, or an empty string."""
    if record.not_asked:
        return f"not asked: {record.not_asked}"
    if record.n_samples:
        return f"{_EARLY}: {record.n_requested} of {record.n_samples} answers"
    if record.n_errors:
        return f"{record.n_errors} of {quantity(record.n_requested, 'inference')} failed"
    measure = _measure(record, metric)
    if measure is None or math.isnan(measure.value):
        return (measure.reason if measure else record.reason) or f"{metric} is unknown"
    return ""


def _measure(record: Record, metric: str) -> Measure | None:
    return next((one for one in record.measures if one.metric == metric and not one.category), None)


def _value(record: Record, metric: str) -> float:
    measure = _measure(record, metric)
    return math.nan if measure is None else measure.value


def _perturbed(records: Iterable[Record]) -> list[Record]:
    """Returns the cells of settings that perturb a picture for its own sake."""
    return [
        record
        for record in records
        if record.setting not in (CLEAN_NAME, NO_IMAGE_NAME) and not _EXPERIMENTS.intersection(record.family.split("+"))
    ]


def _tiers(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the shares of settings by tier, for each level and for all (VLM-RobustBench tables 18 and 19)."""
    perturbed = _perturbed(records)
    by_level = {record.setting: record.level or BINARY for record in perturbed}
    cells = _split(perturbed, "accuracy_drop")
    for level in (*levels(by_level.values()), ALL):
        part = cells.only(setting for setting, own in by_level.items() if level in (own, ALL))
        shares = metrics.tier_shares([_value(record, "accuracy_drop") for record in part.complete.values()])
        if part.complete or part.missing:
            yield Analysis(TIERS, model, dataset, level, shares._asdict(), len(part.complete), part.missing)


def levels(names: Iterable[str]) -> list[str]:
    """Returns the levels among the names in the order of tables: low, mid, high, binary, then any others by name."""
    present, first = set(names), (*LEVELS, BINARY)
    return [*(level for level in first if level in present), *sorted(present.difference(first))]


def _category_drops(model: str, dataset: str, records: Sequence[Record]) -> Iterable[Analysis]:
    """Yields the mean drop of each category of questions, the largest first (VLM-RobustBench appendix A.2)."""
    clean = _split([record for record in records if record.setting == CLEAN_NAME], "accuracy")
    cells = _split(_perturbed(records), "accuracy")
    names = {name for record in (*clean.complete.values(), *cells.complete.values()) for name in record.categories}
    if len(names) < 2 or not cells.complete:
        return
    missing = {**clean.missing, **cells.missing}
    if not clean.complete:
        missing.setdefault(CLEAN_NAME, "no record")
    before = clean.complete[CLEAN_NAME].categories if clean.complete else dict.fromkeys(sorted(names), math.nan)
    drops = metrics.category_sensitivity(before, {name: record.categories for name, record in cells.complete.items()})
    for category, drop in drops.items():
        yield Analysis(CATEGORY_DROPS, model, dataset, category, {"mean_drop": drop}, len(cells.complete), missing)


# The same as tables: of the page of a run, and of models side by side.


class Table(NamedTuple):
    """A table of text, of which the first columns are names."""

    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    names: int = 1


_TIER_CAPTION = (
    "Share of the settings in percent: a gain is positive, a loss below 1 point benign, below 3 mild, to 10 moderate, above 10 "
    "catastrophic (VLM-RobustBench, tables 18 and 19; the first counts gains as benign)."
)
_CATEGORY_CAPTION = (
    "Mean drop over all complete settings in percentage points by category of questions, the largest first (VLM-RobustBench, "
    "appendix A.2). These numbers have no interval; those of vlmrobust rank do."
)
_TITLES = {
    TIERS: ("Settings by tier of severity", _TIER_CAPTION, "level"),
    CATEGORY_DROPS: ("Questions by how much they suffer", _CATEGORY_CAPTION, "category"),
}
"""Analysis to the title of its table, its caption, and what a row is about."""


def analysis_tables(rows: Sequence[Analysis]) -> list[Table]:
    """Returns a table for each analysis of a run."""
    by_name: dict[str, list[Analysis]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return [_table(name, own) for name, own in by_name.items()]


def _table(name: str, rows: Sequence[Analysis]) -> Table:
    title, caption, part = _TITLES[name]
    columns = list(dict.fromkeys(value for row in rows for value in row.values))
    header = ("model", "dataset", part, *(column.replace("_", " ") for column in columns), "cells")
    lines = [(row.model, row.dataset, row.part, *(_cell(row, column) for column in columns), _counted(row)) for row in rows]
    return Table(title, caption, header, lines, _missing_notes(rows), names=3)


def _cell(row: Analysis, column: str) -> str:
    value = row.values.get(column, math.nan)
    return "undefined" if math.isnan(value) else f"{100 * value:.1f}"


def _counted(row: Analysis) -> str:
    return f"{row.cells} of {row.cells + len(row.missing)}" if row.missing else str(row.cells)


def _missing_notes(rows: Sequence[Analysis]) -> list[str]:
    """Returns a sentence for each model and dataset with incomplete cells."""
    by_sweep: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        by_sweep.setdefault((row.model, row.dataset), {}).update(row.missing)
    return [_missing_note(f"{model} on {dataset}", missing) for (model, dataset), missing in by_sweep.items() if missing]


def _missing_note(sweep: str, missing: Mapping[str, str]) -> str:
    shown = first_few([f"{setting} ({reason})" for setting, reason in missing.items()])
    early = any(reason.startswith(_EARLY) for reason in missing.values())
    more = ". A run with --vlm-mode=full asks every cell in full" if early else ""
    return f"{sweep} lacks {quantity(len(missing), 'cell')}: {shown}{more}"
