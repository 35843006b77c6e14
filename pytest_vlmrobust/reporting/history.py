"""History: a metric of several runs, drawn for a terminal as a point in its interval, a line for each run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.words import interval, number, on_one_line

_NARROWEST = 20
"""Columns of the drawing at least."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one run measured."""

    run: str
    decision: str
    measure: Measure

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ones of its value and the ends of its interval."""
        return tuple(filter(math.isfinite, (self.measure.value, self.measure.low, self.measure.high)))


def points_of(records: Iterable[Record], metric: str, setting: str) -> dict[str, Measure]:
    """Returns what a run measured by a metric, by the id of the model, the dataset and what it was taken over.

    Args:
        records: of the run.
        metric: its name.
        setting: of metrics of cells, whose cell is meant.
    """
    found: dict[str, Measure] = {}
    for record in records:
        if record.metric == metric or (not record.metric and record.setting == setting):
            over = record.split or record.setting
            for measure in record.measures:
                if measure.metric == metric and not measure.category:
                    found["-".join(filter(None, (record.model, record.dataset, over)))] = measure
    return found


def render_history(title: str, points: Sequence[Point], width: int) -> str:
    """Returns a series: what it is about, a line for each run with its value drawn in its interval, and the scale.

    Args:
        title: what it is about.
        points: one of each run, in the order of the lines.
        width: columns of the terminal.
    """
    names = [on_one_line(f"{point.run}  {point.decision}") for point in points]
    numbers = [f"{number(point.measure.value)} {interval(point.measure.low, point.measure.high)}".rstrip() for point in points]
    left, right = max(map(len, names)), max(map(len, numbers))
    room = max(_NARROWEST, width - left - right - 4)
    ends = [end for point in points for end in point.ends]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    lines = [
        f"{name:<{left}}  {told:<{right}}  {_drawing(point.measure, low, high, room)}".rstrip()
        for name, told, point in zip(names, numbers, points, strict=True)
    ]
    scale = f"{number(low)}{number(high):>{room - len(number(low))}}"
    return "\n".join([on_one_line(title), *lines, f"{'':<{left + right + 4}}{scale}"]) + "\n"


def _drawing(measure: Measure, low: float, high: float, room: int) -> str:
    """Returns ``|---*--|`` on a scale; nothing of what is undefined."""
    if not math.isfinite(measure.value):
        return ""

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (room - 1)) if high > low else 0

    cells = [" "] * room
    if math.isfinite(measure.low) and math.isfinite(measure.high):
        first, last = place(measure.low), place(measure.high)
        cells[first : last + 1] = "-" * (last + 1 - first)
        cells[first] = cells[last] = "|"
    cells[place(measure.value)] = "*"
    return "".join(cells).rstrip()
