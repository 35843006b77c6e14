"""Models: the page of several models side by side, as a single file that opens anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_vlmrobust.core.words import all_of
from pytest_vlmrobust.evaluation.after.standings import PATCH_BOXES, Board, ModelAnalysis, Ranking, Standing
from pytest_vlmrobust.reporting.analyses import Table, board_tables
from pytest_vlmrobust.reporting.sweeps import Line

from . import drawing, page
from .charts import Chart
from .drawing import Bar
from .words import interval, number

_OPEN = 4
"""The most datasets unfolded at first; with more, none is."""


@dataclass(frozen=True, slots=True)
class Section:
    """The section of a board."""

    anchor: str
    title: str
    board: Board
    charts: list[Chart]
    analyses: list[Table]


def render_models(ranking: Ranking) -> str:
    """Returns the page: the same ranking gives the same text."""
    environment = page.templates()
    script = page.asset("common.js")
    sections = [_section(board, at, ranking) for at, board in enumerate(ranking.boards, 1)]
    return environment.get_template("models.html").render(
        ranking=ranking,
        headline=headline(ranking.boards[0], ranking),
        first=sections[0],
        others=sections[1:],
        unfolded=len(sections) - 1 <= _OPEN,
        security=page.security(page.asset("style.css"), script),
        script=script,
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


def _section(board: Board, at: int, ranking: Ranking) -> Section:
    anchor = f"board-{at}"
    title = board.dataset or f"Over all {len(ranking.boards) - 1} datasets"
    charts = [_values(board, ranking), _ranks(board, ranking)] if board.differences else []
    return Section(anchor, title, board, [*charts, *_patch_boxes(board)], board_tables(board))


def _values(board: Board, ranking: Ranking) -> Chart:
    """Returns the chart of the quantity that ranks."""
    words, unit = ranking.quantity.words, ranking.quantity.unit
    values = [(standing.model, standing.values[ranking.by]) for standing in board.standings]
    rows = [(name, number(value.value, unit), interval(value, unit)) for name, value in values]
    scale = 100.0 if unit else 1.0
    ends = [(value.value, _or(value.low, value.value), _or(value.high, value.value)) for _, value in values]
    bars = [
        Bar(name, scale * at, scale * low, scale * high, told=f"{shown} {beside}".rstrip())
        for (name, shown, beside), (at, low, high) in zip(rows, ends, strict=True)
    ]
    level = f"{ranking.confidence:.0%} interval"
    return Chart(
        f"{words[0].upper()}{words[1:]}",
        f"Each with its own {level}. These intervals do not show whether two models differ: their answers are compared in pairs.",
        drawing.dots(bars, axis=f"{words}, {unit}" if unit else words, label=f"{words} of each model"),
        ("model", words, level),
        [(None, row) for row in rows],
    )


def _ranks(board: Board, ranking: Ranking) -> Chart:
    """Returns the chart of ranks with their uncertainty."""
    bars = [Bar(standing.model, *_ends(standing)) for standing in board.standings]
    return Chart(
        "Ranks",
        f"The rank of each model, and the ranks that its samples do not rule out; all of them hold together at "
        f"{ranking.confidence:.0%}.",
        drawing.dots(bars, axis="rank", label="Ranks of the models", whole=True),
        ("model", "rank", "may be"),
        [(None, (one.model, str(one.rank), f"{one.rank_best} to {one.rank_worst}")) for one in board.standings],
    )


def _patch_boxes(board: Board) -> list[Chart]:
    """Returns a chart of box plots for each grid: how much each patch contributes, over models and datasets."""
    rows: dict[str, list[ModelAnalysis]] = {}
    for row in board.analyses:
        if row.name == PATCH_BOXES:
            rows.setdefault(row.part, []).append(row)
    charts = []
    for grid, own in rows.items():
        numbers = [(row.of, [value.value for value in row.values.values()]) for row in own]
        label = f"Contribution of each patch of {grid}"
        drawn = drawing.boxes(numbers, axis="share", label=label)
        counted = max(value.n for row in own for value in row.values.values())
        caption = (
            f"Share in the right answers, over {counted} pairs of model and dataset: all of them, the middle half, the median."
        )
        shown: list[tuple[Line | None, tuple[str, ...]]] = [
            (None, (row.of, *(number(value.value) for value in row.values.values()))) for row in own
        ]
        charts.append(Chart(label, caption, drawn, ("patch", *(name.replace("_", " ") for name in own[0].values)), shown))
    return charts


def _ends(standing: Standing) -> tuple[float, float, float]:
    return float(standing.rank or 0), float(standing.rank_best or 0), float(standing.rank_worst or 0)


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
