"""Two runs side by side: as a table for the terminal, in Markdown, and as JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few, interval, on_one_line, percent, points, quantity
from pytest_vlmrobust.evaluation.after.comparison import CellChange, Comparison, SweepChange

from .markdown import code, render
from .writing import plain_markup, print_sentence, text_console, write_json, write_text

if TYPE_CHECKING:
    from rich.console import Console


JSON_FILE = "comparison.json"
MARKDOWN_FILE = "comparison.md"
VERSION = 1
"""Of the layout of comparison.json. Keys may be added under a version."""
_HEADER = ("cell", "n", "then", "now", "drop since then", "interval", "growth of the drop", "interval", "broken", "fixed")
_SWEEP_HEADER = ("sweep", "settings", "n", "mean drop since then", "interval")
_DROP, _BREAK = "drop since then", "\n"
_GROWTH = slice(6, 8)
"""The columns that a narrow terminal leaves out."""
_WIDE = 110
"""The terminal width from which all columns are shown."""
_ROWS = 40
_IDS = 10
_LEFT_OUT = 5


def write_comparison(directory: Path, comparison: Comparison) -> None:
    """Writes comparison.json and comparison.md into ``directory``, which is created."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / JSON_FILE, {"comparison_version": VERSION, **to_plain(comparison)})
    write_text(directory / MARKDOWN_FILE, comparison_markdown(comparison))


def render_comparison(comparison: Comparison, *, width: int, color: bool) -> str:
    """Returns the tables as text, worst first, followed by what they leave out."""
    buffer = io.StringIO()
    console = text_console(buffer, width=max(80, width), color=color)
    _print_table(console, _SWEEP_HEADER, [(_sweep_row(change), change.mean_baseline_drop) for change in comparison.sweeps])
    shown = [(_fitting(_row(change), width), change.baseline_drop) for change in comparison.cells[:_ROWS]]
    header = _fitting(_HEADER, width)
    if width < _WIDE:
        header = tuple(name.replace(" ", _BREAK) if name == _DROP else name for name in header)
    if width < _WIDE and len(comparison.sweeps) == 1:  # which names the model and the dataset of every cell
        (sweep,) = comparison.sweeps
        header = (f"cell of {on_one_line(sweep.name)}", *header[1:])
        shown = [((name.removeprefix(f"{sweep.name}-"), *rest), drop) for (name, *rest), drop in shown]
    _print_table(console, header, shown)
    if shown and width < _WIDE:
        console.print(f"widen the terminal to {_WIDE} columns to see more", style="dim")
    if comparison.unchanged:
        console.print("nothing changed: every answer that both runs have scores the same in both", style="bold")
    for line in _below(comparison):
        print_sentence(console, plain_markup(line))
    return buffer.getvalue()


def comparison_markdown(comparison: Comparison) -> str:
    """Returns the comparison in Markdown: sweeps, cells worst first, changed samples, and what was left out."""
    shown = comparison.cells[:_ROWS]
    return render(
        MARKDOWN_FILE,
        comparison=comparison,
        pairs=[f"{now} with {then}" for now, then in comparison.models.items() if now != then],
        tables={
            _SWEEP_HEADER: [(code(name), *row) for name, *row in map(_sweep_row, comparison.sweeps)],
            _HEADER: [(code(name), *row) for name, *row in map(_row, shown)],
        },
        changes=[_changes_line(change) for change in shown if change.broken or change.fixed],
        below=_below(comparison),
    )


def _row(change: CellChange) -> tuple[str, ...]:
    drop, growth = change.baseline_drop, change.drop_increase
    numbers = (percent(change.then), percent(change.now), *estimate_cells(drop))
    grown = ("", "") if growth is None else estimate_cells(growth)
    return (change.name, str(change.n), *numbers, *grown, str(len(change.broken)), str(len(change.fixed)))


def _fitting(columns: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Returns the columns of a row that fit on the terminal."""
    return columns if width >= _WIDE else columns[: _GROWTH.start] + columns[_GROWTH.stop :]


def _sweep_row(change: SweepChange) -> tuple[str, ...]:
    drop = change.mean_baseline_drop
    return (change.name, str(change.settings), str(drop.n), *estimate_cells(drop))


def _below(comparison: Comparison) -> list[str]:
    """Returns what the tables do not show: more cells, cells in only one run, and undefined numbers."""
    hidden = len(comparison.cells) - _ROWS
    lines = [f"{quantity(hidden, 'more cell is', 'more cells are')} in {JSON_FILE}"] if hidden > 0 else []
    for cells, run in ((comparison.only_before, comparison.before), (comparison.only_after, comparison.after)):
        if cells:
            lines.append(f"only in {run}: {first_few(cells, _LEFT_OUT)}")
    early = comparison.stopped_early
    if early.cells:
        count = quantity(len(early.cells), "cell")
        changed = f"{early.changed} of {quantity(early.answers, 'answer')} that both runs have changed"
        alone = quantity(early.only_one, "more is in one run only", "more are in one run only")
        changed += f", {alone}" if early.only_one else ""
        lines.append(
            f"{count} stopped early (adaptive mode): {changed}; no interval, because early answers decide which questions follow"
        )
    lines += [f"{one.name}: {one.baseline_drop.reason}" for one in comparison.cells if math.isnan(one.baseline_drop.value)]
    lines += comparison.notes
    level = f"intervals: {comparison.confidence:.0%}, paired by question; questions about the same image count as one"
    return [*lines, f"{level}; positive = worse"]


def _changes_line(change: CellChange) -> str:
    parts = [(ids, what) for ids, what in ((change.broken, "got worse"), (change.fixed, "got better")) if ids]
    changes = [f"{len(ids)} {what} ({first_few(ids, _IDS)})" for ids, what in parts]
    return f"{change.name}: {'; '.join(changes)}"


def _print_table(console: Console, header: Sequence[str], rows: Sequence[tuple[tuple[str, ...], Estimate]]) -> None:
    from rich.table import Table

    if not rows:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(header[0], overflow="fold")
    for name in header[1:]:
        table.add_column(name, justify="right")
    for cells, drop in rows:
        table.add_row(*(plain_markup(cell) for cell in cells), style=_style(drop))
    console.print(table)
    console.print()


def _style(drop: Estimate) -> str:
    """Losses and gains shown by the interval are coloured, and so are unknown values."""
    if math.isnan(drop.value) or drop.low > 0.0:
        return "red"
    return "green" if drop.high < 0.0 else ""


def estimate_cells(drop: Estimate) -> tuple[str, str]:
    """Returns a drop and its interval, in percentage points."""
    return points(drop.value), interval(drop.low, drop.high, "pp")
