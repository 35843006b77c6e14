"""Several models side by side: as a table for the terminal, in Markdown, as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import all_of, interval, number, on_one_line, percent, quantity
from pytest_vlmrobust.evaluation.after.standings import (
    MEAN_DROP,
    PATCH_BOXES,
    Board,
    FamilyDrops,
    ModelAnalysis,
    Ranking,
    Standing,
)

from .analyses import board_tables
from .html import drawing
from .html.charts import Chart
from .html.drawing import Bar
from .html.page import render_page
from .html.words import interval as page_interval
from .html.words import number as page_number
from .markdown import render
from .sweeps import Line
from .writing import json_text, render_table, write_text

JSON_FILE = "models.json"
MARKDOWN_FILE = "models.md"
PAGE = "models.html"
FILES = (JSON_FILE, MARKDOWN_FILE, PAGE)
VERSION = 1
"""The version of the layout of models.json. Keys may be added under a version."""
OVER_ALL = "all datasets"
_OPEN = 4
"""The most datasets unfolded at first on the page; with more, none is."""


def write_ranking(directory: Path, ranking: Ranking) -> None:
    """Writes models.html, models.md and models.json into ``directory``, which is created."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in ranking_files(ranking).items():
        write_text(directory / name, text)


def ranking_files(ranking: Ranking) -> dict[str, str]:
    """Returns models.json, models.md and models.html by name."""
    content = {"ranking_version": VERSION, "better": ranking.quantity.better, **to_plain(ranking)}
    return {JSON_FILE: json_text(content), MARKDOWN_FILE: ranking_markdown(ranking), PAGE: render_models(ranking)}


def render_ranking(ranking: Ranking, *, width: int, color: bool) -> str:
    """Returns the tables as text, best models first, followed by their limits."""
    parts, wide = [], max(80, width)
    for board in ranking.boards:
        rows = [_row(standing, ranking) for standing in board.standings]
        table = render_table(_header(ranking), rows, names=1, width=wide, color=color)
        extras = [
            f"{part.title}\n{part.caption}\n{render_table(part.header, part.rows, names=part.names, width=wide, color=color)}"
            for part in board_tables(board, small=True)
        ]
        parts.append("\n".join([on_one_line(_title(board)), table, *map(on_one_line, _notes(board)), *extras, ""]))
    return "\n".join([*parts, *map(on_one_line, _below(ranking))]) + "\n"


def ranking_markdown(ranking: Ranking) -> str:
    """Returns the ranking in Markdown: for each board its models, best first, indistinguishable models, and drops by family."""
    boards = [
        {
            "title": _title(board),
            "rows": [_row(standing, ranking) for standing in board.standings],
            "notes": _notes(board),
            "models": [standing.model for standing in board.standings],
            "families": [_family(drops, board) for drops in board.families],
            "tables": board_tables(board),
        }
        for board in ranking.boards
    ]
    return render("ranking.md", ranking=ranking, below=list(_below(ranking)), header=_header(ranking), boards=boards)


def _header(ranking: Ranking) -> tuple[str, ...]:
    return ("model", "rank", "may be", *(quantity.words for quantity in ranking.quantities))


def _row(standing: Standing, ranking: Ranking) -> tuple[str, ...]:
    ranked = standing.rank is not None
    ranks = (str(standing.rank), f"{standing.rank_best} to {standing.rank_worst}") if ranked else ("not ranked", "")
    return (standing.model, *ranks, *(_value(standing.values[quantity.name], quantity.unit) for quantity in ranking.quantities))


def _family(drops: FamilyDrops, board: Board) -> tuple[str, ...]:
    return (
        drops.family,
        str(drops.settings),
        *(_value(drops.mean_drop[standing.model], MEAN_DROP.unit) for standing in board.standings),
    )


def _value(estimate: Estimate, unit: str) -> str:
    if math.isnan(estimate.value):
        return "undefined"
    return f"{number(estimate.value, unit)} {interval(estimate.low, estimate.high, unit)}".rstrip()


def _title(board: Board) -> str:
    return f"{board.dataset or OVER_ALL}: {quantity(board.samples, 'sample')}, {quantity(board.settings, 'perturbed setting')}"


def _notes(board: Board) -> list[str]:
    alike = [standing for standing in board.standings if standing.not_apart]
    return [*(f"{standing.model} cannot be told apart from {', '.join(standing.not_apart)}" for standing in alike), *board.notes]


def _below(ranking: Ranking) -> Iterable[str]:
    level = percent(ranking.confidence, 0)
    by = f"{ranking.quantity.words} ({ranking.by}), {ranking.quantity.better} is better"
    yield f"ranked by {by}; runs: {', '.join(ranking.runs)}"
    yield (
        f"intervals: {level} each; questions about the same image count as one; all statements about ranks and pairs of a table "
        f"hold together at {level}"
    )
    yield from (f"left out: {line}" for line in ranking.left_out)


# The page, a single file that opens anywhere.


def render_models(ranking: Ranking) -> str:
    """Returns the page: the same ranking gives the same text."""
    sections = [_section(board, at, ranking) for at, board in enumerate(ranking.boards, 1)]
    return render_page(
        "models.html",
        ranking=ranking,
        headline=headline(ranking.boards[0], ranking),
        first=sections[0],
        others=sections[1:],
        unfolded=len(sections) - 1 <= _OPEN,
    )


def headline(board: Board, ranking: Ranking) -> str:
    """Returns which model is first, and whether another may be."""
    leading = [standing for standing in board.standings if standing.rank == 1]
    if not leading:
        return "Nothing is ranked"
    by = f"by {ranking.quantity.words}"
    if len(leading) > 1:
        return f"{all_of([standing.model for standing in leading])} share the first rank {by}"
    first = leading[0]
    if not first.not_apart:
        return f"{first.model} is first {by}, and shown to be better than every other model"
    return f"{first.model} is first {by}, and cannot be told apart from {all_of(first.not_apart)}"


def _section(board: Board, at: int, ranking: Ranking) -> dict[str, Any]:
    charts = [_values(board, ranking), _ranks(board, ranking)] if board.differences else []
    return {
        "anchor": f"board-{at}",
        "title": board.dataset or f"Over all {len(ranking.boards) - 1} datasets",
        "board": board,
        "charts": [*charts, *_patch_boxes(board)],
        "analyses": board_tables(board),
    }


def _values(board: Board, ranking: Ranking) -> Chart:
    words, unit = ranking.quantity.words, ranking.quantity.unit
    values = [(standing.model, standing.values[ranking.by]) for standing in board.standings]
    rows = [(name, page_number(value.value, unit), page_interval(value, unit)) for name, value in values]
    scale = 100.0 if unit else 1.0
    ends = [(value.value, _or(value.low, value.value), _or(value.high, value.value)) for _, value in values]
    bars = [
        Bar(name, scale * at, scale * low, scale * high, tooltip=f"{shown} {beside}".rstrip())
        for (name, shown, beside), (at, low, high) in zip(rows, ends, strict=True)
    ]
    level = f"{percent(ranking.confidence, 0)} interval"
    return Chart(
        f"{words[0].upper()}{words[1:]}",
        f"Each with its own {level}. These intervals do not show whether two models differ: their answers are compared in pairs.",
        drawing.dots(bars, axis=f"{words}, {unit}" if unit else words, label=f"{words} of each model"),
        ("model", words, level),
        [(None, row) for row in rows],
    )


def _ranks(board: Board, ranking: Ranking) -> Chart:
    bars = [Bar(standing.model, *_ends(standing)) for standing in board.standings]
    return Chart(
        "Ranks",
        f"The rank of each model, and the ranks that its samples do not rule out; all of them hold together at "
        f"{percent(ranking.confidence, 0)}.",
        drawing.dots(bars, axis="rank", label="Ranks of the models", whole=True),
        ("model", "rank", "may be"),
        [(None, (row.model, str(row.rank), f"{row.rank_best} to {row.rank_worst}")) for row in board.standings],
    )


def _patch_boxes(board: Board) -> list[Chart]:
    """Returns a chart of box plots for each grid: how much each patch contributes, over models and datasets."""
    rows: dict[str, list[ModelAnalysis]] = {}
    for row in board.analyses:
        if row.name == PATCH_BOXES:
            rows.setdefault(row.part, []).append(row)
    charts = []
    for grid, analyses in rows.items():
        numbers = [(row.of, [value.value for value in row.values.values()]) for row in analyses]
        label = f"Contribution of each patch of {grid}"
        drawn = drawing.boxes(numbers, axis="share", label=label)
        counted = max(value.n for row in analyses for value in row.values.values())
        caption = (
            f"Share in the right answers, over {counted} pairs of model and dataset: all of them, the middle half, the median."
        )
        shown: list[tuple[Line | None, tuple[str, ...]]] = [
            (None, (row.of, *(page_number(value.value) for value in row.values.values()))) for row in analyses
        ]
        charts.append(Chart(label, caption, drawn, ("patch", *(name.replace("_", " ") for name in analyses[0].values)), shown))
    return charts


def _ends(standing: Standing) -> tuple[float, float, float]:
    return float(standing.rank or 0), float(standing.rank_best or 0), float(standing.rank_worst or 0)


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
