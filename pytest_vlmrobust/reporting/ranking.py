"""Several models side by side: as a table for the terminal, in Markdown, as JSON and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import interval, number, on_one_line, quantity
from pytest_vlmrobust.evaluation.after.standings import MEAN_DROP, Board, FamilyDrops, Ranking, Standing

from .analyses import board_tables
from .html.models import render_models
from .markdown import render
from .writing import render_table, write_json, write_text

JSON_FILE = "models.json"
MARKDOWN_FILE = "models.md"
PAGE = "models.html"
FILES = (JSON_FILE, MARKDOWN_FILE, PAGE)
VERSION = 1
"""Of the layout of models.json. Keys may be added under a version."""
OVER_ALL = "all datasets"


def write_ranking(directory: Path, ranking: Ranking) -> None:
    """Writes models.html, models.md and models.json into ``directory``, which is created.

    Raises:
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / JSON_FILE, {"ranking_version": VERSION, "better": ranking.quantity.better, **to_plain(ranking)})
    write_text(directory / MARKDOWN_FILE, ranking_markdown(ranking))
    write_text(directory / PAGE, render_models(ranking))


def render_ranking(ranking: Ranking, *, width: int, color: bool) -> str:
    """Returns the tables as text, best models first, followed by their limits."""
    parts, wide = [], max(80, width)
    for board in ranking.boards:
        rows = [_row(standing, ranking) for standing in board.standings]
        table = render_table(_header(ranking), rows, names=1, width=wide, color=color)
        own = [
            f"{one.title}\n{one.caption}\n{render_table(one.header, one.rows, names=one.names, width=wide, color=color)}"
            for one in board_tables(board, small=True)
        ]
        parts.append("\n".join([on_one_line(_title(board)), table, *map(on_one_line, _notes(board)), *own, ""]))
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
    known = standing.rank is not None
    ranks = (str(standing.rank), f"{standing.rank_best} to {standing.rank_worst}") if known else ("not ranked", "")
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
    return [*(f"{one.model} cannot be told apart from {', '.join(one.not_apart)}" for one in alike), *board.notes]


def _below(ranking: Ranking) -> Iterable[str]:
    level = f"{ranking.confidence:.0%}"
    by = f"{ranking.quantity.words} ({ranking.by}), {ranking.quantity.better} is better"
    yield f"ranked by {by}; runs: {', '.join(ranking.runs)}"
    yield (
        f"intervals: {level} each; questions about the same image count as one; all statements about ranks and pairs of a table "
        f"hold together at {level}"
    )
    yield from (f"left out: {line}" for line in ranking.left_out)
