"""History: a metric over several runs, each with its interval, and the changes that are shown: for a terminal, and as a page.

A change is shown between two runs whose intervals, widened to hold simultaneously, are disjoint.
Without a change, all intervals contain the true value except with the declared risk, whether or not the runs share samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_vlmrobust.core.record import PARTIAL, PARTIAL_MARK, Measure
from pytest_vlmrobust.core.words import interval, number, on_one_line, percent, quantity

from .files import RunFiles
from .html import drawing
from .html.charts import Chart
from .html.page import render_page
from .html.words import number as page_number
from .html.words import usual_interval

_NARROWEST = 20
"""Columns of the drawing at least."""


RISK = 0.05
"""The largest probability of a false change in a history."""
_LEVEL = 0.90
"""The two-sided level of the intervals of a record."""


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement of a run."""

    run: str
    decision: str
    measure: Measure
    data: str = ""
    """The digest of the dataset; empty if unknown."""
    n_samples: int = 0
    """The samples that a test which stopped early could have used; 0 for other tests."""
    gate: int = 0
    """The number of gates on its questions so far, including this one; 0 if unknown."""

    @property
    def verdict(self) -> str:
        """The decision, and the number of gates on its questions so far."""
        return f"{self.decision}, gate {self.gate}" if self.gate else self.decision

    @property
    def ends(self) -> tuple[float, ...]:
        """Its value and the ends of its interval, if finite."""
        return tuple(filter(math.isfinite, (self.measure.value, self.measure.low, self.measure.high)))

    @property
    def has_interval(self) -> bool:
        """Whether its value has an interval: not if its test stopped early."""
        return len(self.ends) == 3

    @property
    def shown(self) -> str:
        """Its value with its interval, and a mark if its test stopped early."""
        part = PARTIAL_MARK if self.n_samples else ""
        return f"{part}{self.measure.shown} {interval(self.measure.low, self.measure.high, self.measure.unit)}".rstrip()


class Change(NamedTuple):
    """Two runs between which the value changed."""

    before: Point
    after: Point

    def __str__(self) -> str:
        data = "; they asked other data" if self.before.data and self.after.data and self.before.data != self.after.data else ""
        return f"changed between {self.before.run} and {self.after.run}: {self.before.shown}, then {self.after.shown}{data}"


def points_of(run: RunFiles, metric: str, setting: str) -> dict[str, Point]:
    """Returns a metric's measurements of a run, by model, dataset and split.

    ``setting`` is that of the cell, of metrics of cells.
    """
    digests, gates = run.manifest.get("datasets", {}), {gate.name: gate.number for gate in run.facts.gates}
    points: dict[str, Point] = {}
    for record in run.records:
        measure = record.measure_of(metric)
        if measure is not None and (record.metric == metric or (not record.metric and record.setting == setting)):
            name = "-".join(filter(None, (record.model, record.dataset, record.split or record.setting)))
            gate = gates.get(f"{record.model}-{record.dataset}", 0)
            data = digests.get(record.dataset, "")
            word = run.several.get(record.model, run).word
            points[name] = Point(run.directory.name, word, measure, data, record.n_samples, gate)
    return points


def stretch(runs: int) -> float:
    """Returns the factor that widens 90 % intervals so that those of all runs hold simultaneously (Bonferroni).

    Each end may then miss with a probability of ``RISK / (2 runs)``. If the probability of a result as extreme, as a function
    of the true value, is log-concave and at least one half at the observed value, as for a share of right answers (Clopper
    and Pearson), ``log(RISK / runs) / log(0.10)`` is enough; normal intervals would need less.

    >>> round(stretch(2), 3), round(stretch(20), 3)
    (1.602, 2.602)
    """
    return math.log(RISK / runs) / math.log(1 - _LEVEL)


def changes(points: Sequence[Point]) -> list[Change]:
    """Returns the fewest changes that explain the intervals, earliest first.

    The points are of one series, the oldest first; those without an interval show nothing.
    """
    measured = [point for point in points if point.has_interval]
    result: list[Change] = []
    lowest: Point | None = None  # the run since the last change with the lowest upper end
    highest: Point | None = None  # and the run with the highest lower end; the latest of ties
    for point in measured:
        low, high = _ends(point, len(measured))
        if lowest is not None and low > _ends(lowest, len(measured))[1]:
            result.append(Change(lowest, point))
            lowest = highest = None
        elif highest is not None and high < _ends(highest, len(measured))[0]:
            result.append(Change(highest, point))
            lowest = highest = None
        if lowest is None or high <= _ends(lowest, len(measured))[1]:
            lowest = point
        if highest is None or low >= _ends(highest, len(measured))[0]:
            highest = point
    return result


def _ends(point: Point, runs: int) -> tuple[float, float]:
    value, factor = point.measure.value, max(1.0, stretch(runs))
    return value - factor * (value - point.measure.low), value + factor * (point.measure.high - value)


def change_lines(points: Sequence[Point]) -> list[str]:
    """Returns a sentence for each shown change with its risk, or that none is shown.

    The points are of one series, the oldest first.
    """
    measured = [point for point in points if point.has_interval]
    alone = quantity(len(points) - len(measured), "run has no interval and shows", "runs have no interval and show")
    without = [f"{alone} no change"] if len(measured) < len(points) else []
    without += [f"{PARTIAL_MARK} {PARTIAL}"] if any(point.n_samples for point in points) else []
    if len(measured) < 2:
        return [f"not enough runs for changes: 2 with an interval are needed, and there are {len(measured)}", *without]
    shown = changes(points)
    risk = f"risk of one too many: at most {percent(RISK, 0)} for this series"
    count = f"{quantity(len(shown), 'change is', 'changes are') if shown else 'no change is'} shown in {len(measured)} runs"
    smaller = "smaller ones may be there: vlmrobust compare pairs the samples of two runs"
    return [*map(str, shown), f"{count} ({risk}); {smaller}", *without]


def render_history(title: str, points: Sequence[Point], width: int) -> str:
    """Returns a series as text: its title, a line for each run with its value and interval, the scale, and changes.

    The points are one of each run, the newest first.
    """
    names = [on_one_line(f"{point.run}  {point.verdict}") for point in points]
    numbers = [point.shown for point in points]
    left, right = max(map(len, names)), max(map(len, numbers))
    room = max(_NARROWEST, width - left - right - 4)
    ends = [end for point in points for end in point.ends]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    lines = [
        f"{name:<{left}}  {text:<{right}}  {_drawing(point.measure, low, high, room)}".rstrip()
        for name, text, point in zip(names, numbers, points, strict=True)
    ]
    first, last = (number(end, points[0].measure.unit) for end in (low, high))
    scale = f"{first}{last:>{room - len(first)}}"
    below = [on_one_line(line) for line in change_lines(points[::-1])]
    return "\n".join([on_one_line(title), *lines, f"{'':<{left + right + 4}}{scale}", *below]) + "\n"


def _drawing(measure: Measure, low: float, high: float, room: int) -> str:
    """Returns ``|---*--|`` on a scale; empty for undefined values."""
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


# The page, a single file that opens anywhere.


def render_history_page(metric: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Returns the page: the same series give the same text."""
    return render_page(
        "history.html",
        metric=metric,
        sections=[_section(place, name, metric, points) for place, (name, points) in enumerate(series.items(), 1)],
        runs=len({point.run for points in series.values() for point in points}),
    )


def _section(place: int, name: str, metric: str, points: Sequence[Point]) -> dict[str, Any]:
    after = {change.after.run: str(change) for change in changes(points)}
    unit = points[-1].measure.unit
    factor, up = (100, f"{metric}, {unit}") if unit else (1, metric)
    drawn = [
        drawing.Point(
            at=at,
            name=_when(point.run),
            value=factor * point.measure.value,
            low=factor * point.measure.low,
            high=factor * point.measure.high,
            tooltip=f"{point.shown}; {point.verdict}; {point.run}",
            change=after.get(point.run, ""),
        )
        for at, point in enumerate(points)
    ]
    chart = Chart(
        f"{metric} of {name}",
        "Each value with its 90 % interval, the oldest on the left; a dashed line stands before a run that shows a change.",
        drawing.line(drawn, across="runs", up=up, label=f"{metric} of {name} over {len(points)} runs"),
        ("run", "decision", metric, "90 % interval", "n", "change"),
        [(None, _page_row(point, after.get(point.run, ""))) for point in reversed(points)],
    )
    return {"anchor": f"series-{place}", "title": name, "chart": chart, "changes": change_lines(points)}


def _page_row(point: Point, change: str) -> tuple[str, ...]:
    measure, part = point.measure, PARTIAL_MARK if point.n_samples else ""
    n = f"{measure.n} of {point.n_samples}" if point.n_samples else str(measure.n)
    value = f"{part}{page_number(measure.value, measure.unit)}"
    return point.run, point.verdict, value, usual_interval(measure), n, change


def _when(run: str) -> str:
    """Returns a short label for an axis: day and time from the name of a run, else its name.

    >>> _when("20261123-121206-b5b7c545")
    '11-23 12:12'
    """
    began = re.match(r"\d{4}(\d\d)(\d\d)-(\d\d)(\d\d)\d\d(?:-|$)", run)
    return "{}-{} {}:{}".format(*began.groups()) if began else run
