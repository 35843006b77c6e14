"""Analyses as tables: for a run, and for models side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypeVar

import yaml

from pytest_vlmrobust.core.words import first_few, interval, number, quantity
from pytest_vlmrobust.evaluation.after.run_analyses import EARLY, Analysis
from pytest_vlmrobust.evaluation.after.standings import CHAIN_LENGTHS, MOST_HARMFUL, Board, ModelAnalysis


class Table(NamedTuple):
    """A table of text whose first columns are names."""

    title: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    names: int = 1


@dataclass(frozen=True, slots=True)
class _About:
    """What ``analyses.yaml`` says about an analysis."""

    title: str
    caption: str
    names: Sequence[str]
    """The subject of a row, after model and dataset in a run."""
    counts_samples: bool = False
    """Whether it counts samples, and not cells."""
    ratios: bool = False
    """Whether its numbers are ratios; all others are fractions, shown in percent or percentage points."""
    small: bool = False
    """Whether it has few rows, so that a terminal has room for it."""


@cache
def about(subject: str) -> Mapping[str, _About]:
    """Returns the analyses of a ``run``, or of ``models`` side by side, by name."""
    texts = yaml.safe_load(files(__package__).joinpath("analyses.yaml").read_text("utf-8"))
    shared = texts["shared"]
    return {name: _About(**{**entry, "caption": entry["caption"].format(**shared)}) for name, entry in texts[subject].items()}


_NAMES = {
    "slope_per_pixel": "slope_per_100_pixels",
    "accuracy_drop": "drop",
    "relative_corruption_error": "RCE",
    "harmful_flip_rate": "harmful_flips",
    "helpful_flip_rate": "helpful_flips",
    "conditional_flip_rate": "harmful_of_right",
    "lower_quartile": "25_%",
    "upper_quartile": "75_%",
}
"""Header names that differ from the name of the value."""
_UNITS = {"slope_per_pixel": (10_000, 2), "slope_per_doubling": (100, 2), "flip_ratio": (1, 2)}
"""Factor and decimals of values that are not percentages."""
_FIRST = 5
"""The most harmful settings per level in a table, as in the papers' tables 13 and 14."""


_Row = TypeVar("_Row", Analysis, ModelAnalysis)


def _first_of_levels(rows: Sequence[_Row], sweeps: Sequence[str], file: str) -> tuple[Sequence[_Row], list[str]]:
    """Returns the first of the most harmful settings of each level, and a note on the others; all rows of other analyses."""
    if rows[0].name != MOST_HARMFUL:
        return rows, []
    counts: Counter[tuple[str, str]] = Counter()
    shown = []
    for row, sweep in zip(rows, sweeps, strict=True):
        level = sweep, row.part.partition(":")[2]
        counts[level] += 1
        if counts[level] <= _FIRST:
            shown.append(row)
    hidden = len(rows) - len(shown)
    return shown, [f"{quantity(hidden, 'further setting')}: {file} has all"] if hidden else []


def _titles(columns: Iterable[str]) -> list[str]:
    return [_NAMES.get(column, column).replace("_", " ") for column in columns]


def analysis_tables(rows: Sequence[Analysis]) -> list[Table]:
    """Returns a table for each analysis of a run."""
    by_name: dict[str, list[Analysis]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return [_table(name, group) for name, group in by_name.items()]


def _table(name: str, rows: Sequence[Analysis]) -> Table:
    texts = about("run")[name]
    counted = "samples" if texts.counts_samples else "cells"
    columns = list(dict.fromkeys(value for row in rows for value in row.values))
    header = ("model", "dataset", *texts.names, *_titles(columns), counted)
    shown, hidden = _first_of_levels(rows, [f"{row.model} on {row.dataset}" for row in rows], "results.json")
    lines = [
        (row.model or "all models", row.dataset, row.part, *(_cell(row, column) for column in columns), _counted(row))
        for row in shown
    ]
    return Table(texts.title, texts.caption, header, lines, [*_missing_notes(rows), *hidden], names=3)


def _cell(row: Analysis, column: str) -> str:
    value = row.values.get(column, math.nan)
    scale, digits = (1, 0) if row.name == CHAIN_LENGTHS else _UNITS.get(column, (100, 1))
    return number(scale * value, digits=digits)


def _counted(row: Analysis) -> str:
    of_cells = row.missing and not about("run")[row.name].counts_samples
    return f"{row.cells} of {row.cells + len(row.missing)}" if of_cells else str(row.cells)


def _missing_notes(rows: Sequence[Analysis]) -> list[str]:
    """Returns a sentence for each model and dataset with incomplete cells."""
    by_sweep: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        by_sweep.setdefault((row.model or "all models", row.dataset), {}).update(row.missing)
    return [_missing_note(f"{model} on {dataset}", missing) for (model, dataset), missing in by_sweep.items() if missing]


def _missing_note(sweep: str, missing: Mapping[str, str]) -> str:
    shown = first_few([f"{setting} ({reason})" for setting, reason in missing.items()])
    early = any(reason.startswith(EARLY) for reason in missing.values())
    more = ". A run with --vlm-mode=full asks every cell in full" if early else ""
    return f"{sweep} lacks {quantity(len(missing), 'cell')}: {shown}{more}"


def board_tables(board: Board, *, small: bool = False) -> list[Table]:
    """Returns a table for each analysis of a board, or only for small ones."""
    by_name: dict[str, list[ModelAnalysis]] = {}
    for row in board.analyses:
        if not small or about("models")[row.name].small:
            by_name.setdefault(row.name, []).append(row)
    return [_board_table(name, by_name[name]) for name in about("models") if name in by_name]


def _board_table(name: str, rows: Sequence[ModelAnalysis]) -> Table:
    texts = about("models")[name]
    columns = list(dict.fromkeys(value for row in rows for value in row.values))
    shown, hidden = _first_of_levels(rows, [""] * len(rows), "models.json")
    noted = any(row.note for row in rows)
    header = (*texts.names, *_titles(columns), *(["note"] if noted else []))
    lines = [
        (
            *((row.part, row.of) if row.of else (row.part,)),
            *(_estimate(row, column) for column in columns),
            *([row.note] if noted else []),
        )
        for row in shown
    ]
    reasons = dict.fromkeys(
        f"{row.part} is undefined: {value.reason}"
        for row in rows
        for value in row.values.values()
        if math.isnan(value.value) and value.reason
    )
    return Table(texts.title, texts.caption, header, lines, [*reasons, *hidden], len(texts.names))


def _estimate(row: ModelAnalysis, column: str) -> str:
    estimate = row.values.get(column)
    if estimate is None:
        return ""
    plain = about("models")[row.name].ratios or column in ("r_squared", "flip_ratio")
    counted = row.name == CHAIN_LENGTHS
    value, low, high = (end if plain or counted else 100 * end for end in (estimate.value, estimate.low, estimate.high))
    digits = 3 if plain else 0 if counted else 1
    return f"{number(value, digits=digits)} {interval(low, high, digits=digits)}".rstrip()
