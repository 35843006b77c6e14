"""Analyses as tables: for a run, and for models side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.evaluation.after import standings
from pytest_vlmrobust.evaluation.after.run_analyses import (
    ATTRIBUTES,
    EARLY,
    GROUP_GAPS,
    LINEAR_TREND,
    PATCH_CHANGE,
    POSITION_GAPS,
    Analysis,
)
from pytest_vlmrobust.evaluation.after.standings import (
    CATEGORY_DROPS,
    CHAIN_LENGTHS,
    EFFECTS,
    MOST_HARMFUL,
    TIERS,
    Board,
    ModelAnalysis,
)


class Table(NamedTuple):
    """A table of text whose first columns are names."""

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
_EFFECT_CAPTION = (
    "Mean drop in percentage points, share of the visual gain that is lost (RCE) in percent, answers that turn wrong and right "
    "in percent of all, those that turn wrong in percent of the right ones, and how many turn wrong for each that turns right "
    "(VLM-RobustBench, {})."
)
_CATEGORY_CAPTION = (
    "Mean drop over all complete settings in percentage points by category of questions, the largest first (VLM-RobustBench, "
    "appendix A.2). These numbers have no interval; those of vlmrobust rank do."
)
_TREND_CAPTION = (
    "Accuracy in percentage points against the long edge: least squares per 100 pixels, with the value at 0 pixels, as in "
    "Res-Bench (figure 3), beside the slope per doubling. Points of all models together where no model is named."
)
_PATCH_CAPTION = (
    "PCRI times 100 on the coarsest and the finest grid, and its fall relative to the coarse one in percent (PCRI, figure 7): it "
    "says little where the index is near 0."
)
_GAP_CAPTION = (
    "Largest minus smallest mean score of groups of people in percentage points; of two groups also the signed gap, that which "
    "comes last in the alphabet minus the other: male minus female, as in The Perceptual Observatory (section 3.3). The "
    "intervals hold together for all groupings of a task and split at 90 %: each of k is at 1 - 0.1 / k."
)
_ATTRIBUTE_CAPTION = (
    "Overlap with the true box in percent, over all answers about the images: mean and quartiles; and its signed gap between "
    "two groups of people in percentage points (The Perceptual Observatory, figure 5). These numbers have no interval."
)
_POSITION_CAPTION = (
    "Accuracy in percent and the best minus the worst position of the target in percentage points, of each group of people (The "
    "Perceptual Observatory, figure 6). Smaller groups have larger gaps by chance. These numbers have no interval."
)
_CHAIN_CAPTION = (
    "How many answers have a chain of thought of so many words, by outcome: right, wrong or unread; and beside the same "
    "model without thinking, what the chain fixes, does not fix, breaks or keeps (The Perceptual Observatory, figure 7)."
)
_TITLES = {
    TIERS: ("Settings by tier of severity", _TIER_CAPTION, "level"),
    EFFECTS: ("Cost of each level", _EFFECT_CAPTION.format("tables 20 to 23"), "level"),
    MOST_HARMFUL: ("Most harmful settings", _EFFECT_CAPTION.format("figure 2, tables 5, 13 and 21"), "setting"),
    CATEGORY_DROPS: ("Questions by how much they suffer", _CATEGORY_CAPTION, "category"),
    LINEAR_TREND: ("Trend over resolutions", _TREND_CAPTION, "category"),
    PATCH_CHANGE: ("Change of PCRI with the grid", _PATCH_CAPTION, "grids"),
    GROUP_GAPS: ("Gaps between groups of people", _GAP_CAPTION, "grouping, images"),
    ATTRIBUTES: ("Attributes that are to be found", _ATTRIBUTE_CAPTION, "attribute, images"),
    POSITION_GAPS: ("Gaps between positions, by group of people", _POSITION_CAPTION, "group, images"),
    CHAIN_LENGTHS: ("Length of chains of thought and outcome", _CHAIN_CAPTION, "outcome, images"),
}
"""The title, caption and row subject of each analysis."""


_OF_SAMPLES = (GROUP_GAPS, ATTRIBUTES, POSITION_GAPS)
"""Analyses that count samples, and not cells."""
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


def _is_shown(settings: Sequence[tuple[str, ...]]) -> list[bool]:
    """Returns which rows of settings are among the first of their level; a row is its names, and last a setting."""
    counts: Counter[tuple[str, ...]] = Counter()
    shown = []
    for *names, setting in settings:
        level = (*names, setting.partition(":")[2])
        counts[level] += 1
        shown.append(counts[level] <= _FIRST)
    return shown


def _hidden_note(shown: Sequence[bool], file: str) -> list[str]:
    hidden = len(shown) - sum(shown)
    return [f"{quantity(hidden, 'further setting')}: {file}"] if hidden else []


def analysis_tables(rows: Sequence[Analysis]) -> list[Table]:
    """Returns a table for each analysis of a run."""
    by_name: dict[str, list[Analysis]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    return [_table(name, own) for name, own in by_name.items()]


def _table(name: str, rows: Sequence[Analysis]) -> Table:
    title, caption, part = _TITLES[name]
    counted = "samples" if name in _OF_SAMPLES else "cells"
    columns = list(dict.fromkeys(value for row in rows for value in row.values))
    header = ("model", "dataset", part, *(_NAMES.get(column, column).replace("_", " ") for column in columns), counted)
    several = name == MOST_HARMFUL
    shown = _is_shown([(row.model, row.dataset, row.part) for row in rows]) if several else [True] * len(rows)
    lines = [
        (row.model or "all models", row.dataset, row.part, *(_cell(row, column) for column in columns), _counted(row))
        for row, kept in zip(rows, shown, strict=True)
        if kept
    ]
    return Table(title, caption, header, lines, [*_missing_notes(rows), *_hidden_note(shown, "results.json has all")], names=3)


def _cell(row: Analysis, column: str) -> str:
    value = row.values.get(column, math.nan)
    scale, digits = (1, 0) if row.name == CHAIN_LENGTHS else _UNITS.get(column, (100, 1))
    return "undefined" if math.isnan(value) else f"{scale * value:.{digits}f}"


def _counted(row: Analysis) -> str:
    return f"{row.cells} of {row.cells + len(row.missing)}" if row.missing and row.name not in _OF_SAMPLES else str(row.cells)


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


_SMALL = (standings.SIZE_TREND, standings.PROMPT_MODES, standings.PATCH_TASKS, standings.RCI_CORRELATIONS)
"""Analyses of few rows, which a terminal has room for."""
_OF_MODELS = {
    standings.CORRUPTION_ERRORS: (
        "Corruption error by family of perturbations",
        "Errors in units of the reference model's; 1 equals it (VLM-RobustBench, table 28).",
        ("family",),
    ),
    TIERS: ("Settings by tier of severity", _TIER_CAPTION, ("model", "level")),
    EFFECTS: (
        "Cost of each level",
        f"{_EFFECT_CAPTION.format('tables 20 to 23')} Drops have intervals; all else is the plain mean over the models.",
        ("model", "level"),
    ),
    MOST_HARMFUL: (
        "Most harmful settings",
        "Mean drop in percentage points, the largest over all models first (VLM-RobustBench, figure 2, tables 12 and 15 to 17).",
        ("setting", "level"),
    ),
    standings.TOP_RCE: (
        "Settings that destroy most of the visual gain",
        "Plain mean of the models' own RCE in percent, the largest over all models first (VLM-RobustBench, table 5).",
        ("setting", "level"),
    ),
    CATEGORY_DROPS: (
        "Questions by how much they suffer",
        "Mean drop in percentage points by category of questions, the largest on average first (VLM-RobustBench, A.2).",
        ("category",),
    ),
    standings.SIZE_TREND: (
        "Mean drop and size",
        "Percentage points of mean drop per tenfold size of these models, and R squared of the line (VLM-RobustBench, A.3).",
        ("family",),
    ),
    standings.PROMPT_MODES: (
        "Ways of asking",
        "Accuracy and shares of tiers in percent; drops and paired differences in percentage points (VLM-RobustBench, A.4, A.5).",
        ("models",),
    ),
    CHAIN_LENGTHS: (
        "Length of chains of thought and outcome",
        "Words of thinking, by whether a wrong answer is fixed and a right one kept (The Perceptual Observatory, figure 7).",
        ("models", "outcome"),
    ),
    standings.PATCH_BOXES: (
        "Contribution of each patch",
        "Share in the right answers in percent, over models and datasets; patches row by row (RCI, figures 4 and 6).",
        ("grid", "patch"),
    ),
    standings.PATCH_TASKS: (
        "PCRI by task",
        "Plain mean over datasets, without an interval, and its fall from the coarsest grid (PCRI, figures 2 to 7).",
        ("model", "task"),
    ),
    standings.RCI_BANDS: (
        "RCI of each dataset",
        "The band is that of the mean over models (RCI, section 3.2); by percentile, that of its fifth of all datasets.",
        ("dataset", "grid"),
    ),
    standings.RCI_CORRELATIONS: (
        "Agreement of models about RCI",
        "Correlation over the datasets that both have an index of (RCI, section 4.2.1 and figure 2).",
        ("models", "grid"),
    ),
}
_PLAIN = {standings.CORRUPTION_ERRORS, standings.PATCH_TASKS, standings.RCI_BANDS, standings.RCI_CORRELATIONS}
"""Analyses whose numbers are ratios; all others are fractions, shown in percent or percentage points."""


def board_tables(board: Board, *, small: bool = False) -> list[Table]:
    """Returns a table for each analysis of a board, or only for small ones."""
    by_name: dict[str, list[ModelAnalysis]] = {}
    for row in board.analyses:
        if not small or row.name in _SMALL:
            by_name.setdefault(row.name, []).append(row)
    return [_board_table(name, by_name[name]) for name in _OF_MODELS if name in by_name]


def _board_table(name: str, rows: Sequence[ModelAnalysis]) -> Table:
    title, caption, names = _OF_MODELS[name]
    columns = list(dict.fromkeys(value for row in rows for value in row.values))
    shown = _is_shown([(row.part,) for row in rows]) if name == MOST_HARMFUL else [True] * len(rows)
    lines = [
        (*((row.part, row.of) if row.of else (row.part,)), *(_estimate(row, column) for column in columns), row.note)
        for row, kept in zip(rows, shown, strict=True)
        if kept
    ]
    noted = any(row.note for row in rows)
    header = (*names, *(_NAMES.get(column, column).replace("_", " ") for column in columns), *(["note"] if noted else []))
    reasons = dict.fromkeys(
        f"{row.part} is undefined: {value.reason}"
        for row in rows
        for value in row.values.values()
        if math.isnan(value.value) and value.reason
    )
    return Table(
        title,
        caption,
        header,
        lines if noted else [line[:-1] for line in lines],
        [*reasons, *_hidden_note(shown, "models.json has all")],
        len(names),
    )


def _estimate(row: ModelAnalysis, column: str) -> str:
    known = row.values.get(column)
    if known is None:
        return ""
    if math.isnan(known.value):
        return "undefined"
    plain = row.name in _PLAIN or column in ("r_squared", "flip_ratio")
    counted = row.name == CHAIN_LENGTHS
    value, low, high = (end if plain or counted else 100 * end for end in (known.value, known.low, known.high))
    digits = 3 if plain else 0 if counted else 1
    ends = "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{ends}"
