"""Drawing: charts as SVG elements for a page; equal numbers give equal bytes, and the style sheet sets the colours.

A chart is 340 units wide, about the width of a phone in pixels, so that its letters are never much smaller than
the text around it. Hovering shows the numbers; the page also has them in a table next to each chart.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from markupsafe import Markup

from .words import number, visible_text

_WIDTH = 340.0
_ROW = 18.0
_FONT = 11.0
"""The size of letters, as the style sheet has it."""
_RIGHT = 334.0
"""Where the drawing area ends."""
_MOST_LABEL = 150.0
"""Units that the names of rows have at most; longer ones are cut, and whole where a pointer rests on them."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a chart: a value with its interval, the bounds it was held against, and its verdict."""

    label: str
    value: float
    low: float
    high: float
    bounds: tuple[float, ...] = ()
    role: str = "measured"
    """The CSS class of its verdict, as the marks of verdicts have it."""
    sign: str = ""
    reference: float | None = None
    """A value for comparison that is not a bound."""
    tooltip: str = ""
    """The tooltip; empty for the value with its interval."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: its position, its value with its interval, and its texts.

    A value that is not finite leaves a gap in the line; ends that are not finite mean no interval.
    """

    at: float
    """Its position from left to right, in any unit."""
    name: str
    """Its label on the axis, if there is room, and in its tooltip."""
    value: float
    low: float = math.nan
    high: float = math.nan
    tooltip: str = ""
    """The tooltip; empty for the value with its interval."""
    hollow: bool = False
    change: str = ""
    """The change since the previous point, marked by a vertical line with this tooltip."""


@dataclass(frozen=True, slots=True)
class Flip:
    """Shares of the answers that a setting turned wrong, and right."""

    label: str
    harmful: float
    helpful: float
    tooltip: str = ""


# Charts of rows: names to the left, values to the right.


_Mark: TypeAlias = tuple[str, float, float, str, float]
"""What is drawn: ``rect``, ``line``, ``tick`` or ``dot``, where it begins and ends, its CSS classes and its thickness."""


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    tooltip: str
    marks: Sequence[_Mark]
    known: bool
    """Whether there is a number to draw."""


def ranking(bars: Sequence[Bar], *, axis: str, label: str, zero: bool = True) -> Markup:
    """Draws bars below each other with their intervals, and a tick at each bound; ``label`` is for those who do not see it.

    Bars begin at 0 if ``zero``; otherwise a point stands at each value.
    """
    rows = []
    for bar in bars:
        marks: list[_Mark] = [("line", bar.low, bar.high, "s-paper", 3.6), ("line", bar.low, bar.high, "s-ink", 1.4)]
        if zero:  # the interval must be visible on its bar
            marks.insert(0, ("rect", min(0.0, bar.value), max(0.0, bar.value), f"f-{bar.role}", 11.0))
        else:
            marks.append(("dot", bar.value, bar.value, f"f-{bar.role}", 0.0))
        marks += [("tick", end, end, "s-bound", 2.2) for end in bar.bounds]
        marks += [] if bar.reference is None else [("tick", bar.reference, bar.reference, "s-people", 2.2)]
        rows.append(_Row(f"{bar.label} {bar.sign}".strip(), _tooltip(bar), marks, math.isfinite(bar.value)))
    legend = "people, in the paper" if any(bar.reference is not None for bar in bars) else ""
    return _draw_rows(rows, axis=axis, label=label, legend=legend, also=(0.0,))


def dots(bars: Sequence[Bar], *, axis: str, label: str, whole: bool = False) -> Markup:
    """Draws values below each other with their intervals; ``whole`` ones are whole numbers between 1 and the count of bars."""
    rows = [
        _Row(
            bar.label,
            _tooltip(bar),
            [("line", bar.low, bar.high, "s-line", 2.4), ("dot", bar.value, bar.value, "f-ink", 0.0)],
            math.isfinite(bar.value),
        )
        for bar in bars
    ]
    return _draw_rows(rows, axis=axis, label=label, scale=_Scale(0.5, len(bars) + 0.5, whole=True) if whole else None)


def boxes(rows: Sequence[tuple[str, Sequence[float]]], *, axis: str, label: str) -> Markup:
    """Draws box plots: of each name the lowest value, lower quartile, median, upper quartile and highest value."""
    drawn = []
    for name, ends in rows:
        lowest, lower, median, upper, highest = ends
        tooltip = (
            f"median {number(median)}, middle half {number(lower)} to {number(upper)}, all {number(lowest)} to {number(highest)}"
        )
        box = [
            ("line", lowest, highest, "s-line", 1.2),
            ("rect", lower, upper, "f-line", 9.0),
            ("dot", median, median, "f-ink", 0.0),
        ]
        drawn.append(_Row(name, tooltip, box, all(map(math.isfinite, ends))))
    return _draw_rows(drawn, axis=axis, label=label)


def flips(rows: Sequence[Flip], *, label: str) -> Markup:
    """Draws answers that turned wrong to the left, and answers that turned right to the right."""
    drawn = []
    for row in rows:
        halves = [("rect", -100 * row.harmful, 0.0, "f-harm", 11.0), ("rect", 0.0, 100 * row.helpful, "f-help", 11.0)]
        drawn.append(_Row(row.label, row.tooltip, halves, math.isfinite(row.harmful + row.helpful)))
    return _draw_rows(drawn, axis="% turned wrong | % turned right", label=label, signed=False, also=(-1.0, 1.0))


def _draw_rows(
    rows: Sequence[_Row],
    *,
    axis: str,
    label: str,
    legend: str = "",
    signed: bool = True,
    also: Sequence[float] = (),
    scale: _Scale | None = None,
) -> Markup:
    """Draws rows on an axis that holds all their marks and ``also`` these values, or on this scale."""
    scale = scale or _Scale.over([*also, *(end for row in rows for _, start, stop, *_ in row.marks for end in (start, stop))])
    left = min(_MOST_LABEL, max((_text_width(_readable(row.label)) for row in rows), default=0.0)) + 8
    at = scale.between(left + 2, _RIGHT)
    top = 18.0 if legend else 4.0
    bottom = top + _ROW * len(rows)
    chart = _canvas(bottom + 36, label)
    if legend:
        _line(chart, (_RIGHT - 2, 2), (_RIGHT - 2, 14), "s-people", 2.2)
        _text(chart, (_RIGHT - 8, 12), legend, "f-people end")
    for tick in at.ticks(max(2, int((_RIGHT - left) / 42))):
        _line(chart, (at(tick), top), (at(tick), bottom), "s-muted" if tick == 0 else "s-grid", 0.8)
        words = _tick_words(tick if signed else abs(tick))
        _text(chart, (min(at(tick), _WIDTH - _text_width(words) / 2), bottom + 14), words, "f-ink middle")
    _line(chart, (left + 2, bottom), (_RIGHT, bottom), "s-muted", 0.8)
    _text(chart, (_RIGHT, bottom + 29), axis, "f-muted end")
    for place, row in enumerate(rows):
        y = top + _ROW * (place + 0.5)
        _text(chart, (left - 4, y + 4), _cut(row.label, left - 8), "f-ink end")
        for kind, start, stop, classes, thick in row.marks if row.known else ():
            if kind == "rect":
                _rect(chart, (at(start), y - thick / 2, at(stop) - at(start), thick), classes)
            elif kind == "dot":
                _dot(chart, (at(start), y), classes)
            else:
                half = 7.5 if kind == "tick" else 0.0
                _line(chart, (at(start), y - half), (at(stop), y + half), classes, thick)
        if not row.known:
            _text(chart, (left + 8, y + 4), "undefined", "f-muted haloed")
    for place, row in enumerate(rows):
        y = top + _ROW * place
        _reveal(chart, (0, y, _WIDTH, _ROW), row.label, row.tooltip, place=(left, y + _ROW + 1, y - 1), height=bottom + 36)
    return _element(chart)


# Lines.


def line(
    points: Sequence[Point],
    *,
    across: str,
    up: str,
    label: str,
    levels: Sequence[tuple[str, float]] = (),
    ends: tuple[float, float] | None = None,
) -> Markup:
    """Draws values from left to right with their intervals.

    ``levels`` are values to compare with, dashed lines; without ``ends`` points and levels decide how far the axis goes.
    """
    numbers = [end for point in points for end in (point.value, point.low, point.high)]
    scale = _Scale(*ends) if ends else _Scale.over([*numbers, *(level for _, level in levels)])
    top, bottom = 22.0, 196.0
    ticks = scale.ticks(6)
    left = 8 + max((_text_width(_tick_words(tick)) for tick in ticks), default=0.0)
    up_at, at = scale.between(bottom, top), _places(points, left)
    chart = _canvas(bottom + 36, label)
    _text(chart, (0, 11), up, "f-muted")
    _text(chart, (_RIGHT, bottom + 29), across, "f-muted end")
    for tick in ticks:
        _line(chart, (left, up_at(tick)), (_RIGHT, up_at(tick)), "s-grid", 0.8)
        _text(chart, (left - 4, up_at(tick) + 4), _tick_words(tick), "f-ink end")
    _line(chart, (left, bottom), (_RIGHT, bottom), "s-muted", 0.8)
    _draw_names(chart, points, at, bottom + 14)
    _draw_changes(chart, points, at, top, bottom)
    _draw_values(chart, points, at, up_at)
    drawn = [(at(point.at), up_at(end)) for point in points for end in (point.low, point.value, point.high) if math.isfinite(end)]
    _draw_levels(chart, levels, up_at, left, drawn)
    for point, (start, stop) in zip(points, _strips([at(point.at) for point in points], left), strict=True):
        tooltip = "; ".join(filter(None, (_tooltip(point), point.change)))
        _reveal(
            chart,
            (start, top, stop - start, bottom - top),
            point.name,
            tooltip,
            place=(start, top + 4, top + 44),
            height=bottom + 36,
        )
    return _element(chart)


def _places(points: Sequence[Point], left: float) -> _Scale:
    places = [point.at for point in points]
    low, high = min(places), max(places)
    return (_Scale(low, high) if high > low else _Scale(low - 1, low + 1)).between(left + 12, _RIGHT - 12)


def _draw_names(chart: ET.Element, points: Sequence[Point], at: _Scale, y: float) -> None:
    """Writes the names of points below the axis where there is room; always the last, which is the newest."""
    taken = math.inf
    for point in reversed(points):
        words = _cut(point.name, 72)
        half = _text_width(words) / 2
        x = max(min(at(point.at), _WIDTH - half), half)
        if x + half + 6 < taken:
            _text(chart, (x, y), words, "f-ink middle")
            taken = x - half


def _draw_changes(chart: ET.Element, points: Sequence[Point], at: _Scale, top: float, bottom: float) -> None:
    for before, point in pairwise(points):
        if point.change:
            x = (at(before.at) + at(point.at)) / 2
            _line(chart, (x, top), (x, bottom), "s-open dashed", 1.2)
            _add(chart, "path", "f-open", d=f"M{_units(x - 4)} {_units(top - 7)}h8l-4 7z")


def _draw_values(chart: ET.Element, points: Sequence[Point], at: _Scale, up_at: _Scale) -> None:
    run: list[Point] = []
    for point in (*points, None):
        if point is not None and math.isfinite(point.value):
            run.append(point)
        elif run:
            _draw_run(chart, run, at, up_at)
            run = []
    for point in points:
        x = at(point.at)
        if math.isfinite(point.low) and math.isfinite(point.high):
            _line(chart, (x, up_at(point.low)), (x, up_at(point.high)), "s-line", 1.2)
            for end in (point.low, point.high):
                _line(chart, (x - 3, up_at(end)), (x + 3, up_at(end)), "s-line", 1.2)
        if math.isfinite(point.value):
            _dot(chart, (x, up_at(point.value)), "f-paper s-line" if point.hollow else "f-line")
        else:
            _text(chart, (x, up_at.start - 6), "?", "f-open middle")


def _draw_run(chart: ET.Element, run: Sequence[Point], at: _Scale, up_at: _Scale) -> None:
    path = "L".join(f"{_units(at(point.at))} {_units(up_at(point.value))}" for point in run)
    _add(chart, "path", "s-line", d=f"M{path}", fill="none", stroke_width=1.8)


def _draw_levels(
    chart: ET.Element,
    levels: Iterable[tuple[str, float]],
    up_at: _Scale,
    left: float,
    drawn: Iterable[tuple[float, float]],
) -> None:
    """Draws each level, with its name above or below the line where it overlaps least."""
    taken = list(drawn)
    for name, level in levels:
        y, wide = up_at(level), _text_width(name)
        _line(chart, (left, y), (_RIGHT, y), "s-muted dashed", 1)
        spots = [(left + 4 + part * (_RIGHT - left - 8 - wide) / 4, y + by) for by in (-4, 12) for part in range(5)]
        x, up = min(spots, key=partial(_hidden, wide, tuple(taken)))
        _text(chart, (x, up), name, "f-muted haloed")
        taken += [(x + part * wide / 4, up - 4) for part in range(5)]


def _hidden(wide: float, taken: Iterable[tuple[float, float]], spot: tuple[float, float]) -> int:
    """Returns how many places letters would cover whose line begins at ``spot``."""
    left, line = spot
    return sum(left - 8 < x < left + wide + 8 and line - 14 < y < line + 6 for x, y in taken)


def _strips(places: Sequence[float], left: float) -> list[tuple[float, float]]:
    between = [left, *((first + second) / 2 for first, second in pairwise(places)), _WIDTH]
    return list(pairwise(between))


# Scales, and the elements of a drawing.


@dataclass(frozen=True, slots=True)
class _Scale:
    """Values to units of the drawing."""

    low: float
    high: float
    start: float = 0.0
    stop: float = 1.0
    whole: bool = False
    """Whether only whole numbers are values."""

    @classmethod
    def over(cls, ends: Iterable[float]) -> _Scale:
        """Returns a scale that contains the finite values, with a margin except at 0."""
        finite = [end for end in ends if math.isfinite(end)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        margin = (high - low) * 0.05 or 0.05
        return cls(low if low == 0 < high else low - margin, high if high == 0 > low else high + margin)

    def between(self, start: float, stop: float) -> _Scale:
        """Returns the scale over these units."""
        return _Scale(self.low, self.high, start, stop, self.whole)

    def __call__(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)

    def ticks(self, most: int) -> list[float]:
        """Returns round values of the scale, about ``most`` of them."""
        raw = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
        step = max(1.0, round(step)) if self.whole else step
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(place * step, 10) for place in range(first, last + 1)]


def _canvas(height: float, label: str) -> ET.Element:
    box = f"0 0 {_units(_WIDTH)} {_units(height)}"
    return ET.Element("svg", {"viewBox": box, "role": "img", "aria-label": _readable(label), "class": "chart"})


def _element(chart: ET.Element) -> Markup:
    return Markup(ET.tostring(chart, encoding="unicode"))  # noqa: S704 - a serializer has escaped it


def _add(parent: ET.Element, tag: str, classes: str, **attributes: float | str) -> ET.Element:
    given = {name.replace("_", "-"): value if isinstance(value, str) else _units(value) for name, value in attributes.items()}
    return ET.SubElement(parent, tag, {**given, "class": classes})


def _line(parent: ET.Element, start: tuple[float, float], stop: tuple[float, float], classes: str, width: float) -> None:
    _add(parent, "line", classes, x1=start[0], y1=start[1], x2=stop[0], y2=stop[1], stroke_width=width)


def _rect(parent: ET.Element, area: tuple[float, float, float, float], classes: str) -> None:
    x, y, width, height = area
    _add(parent, "rect", classes, x=x, y=y, width=max(0.0, width), height=height)


def _dot(parent: ET.Element, place: tuple[float, float], classes: str) -> None:
    _add(parent, "circle", classes, cx=place[0], cy=place[1], r=3.4)


def _text(parent: ET.Element, place: tuple[float, float], words: str, classes: str) -> None:
    _add(parent, "text", classes, x=place[0], y=place[1]).text = words


def _reveal(
    chart: ET.Element,
    area: tuple[float, float, float, float],
    name: str,
    tooltip: str,
    *,
    place: tuple[float, float, float],
    height: float,
) -> None:
    """Adds an area with a tooltip to a drawing of this height that has all else, because tooltips must be on top.

    ``area`` is left, top, width and height; ``place`` the left edge and top of the tooltip, and its bottom if it does not fit.
    """
    names = textwrap.wrap(_readable(name), 48, max_lines=2, placeholder="…")
    lines = [*names, *textwrap.wrap(_readable(tooltip), 52)]
    wide = max(map(_text_width, lines), default=0.0) + 14
    tall = 15.0 * len(lines) + 7
    left, below, above = place
    x = max(2.0, min(left, _WIDTH - wide - 2))
    y = below if below + tall <= height else max(0.0, above - tall)
    mark = _add(chart, "g", "mark")
    _rect(mark, area, "hit")
    tip = _add(mark, "g", "tip")
    _add(tip, "rect", "f-raised s-muted", x=x, y=y, width=wide, height=tall, rx=4.0)
    for at, words in enumerate(lines):
        _text(tip, (x + 7, y + 15 * (at + 1)), words, "f-ink strong" if at < len(names) else "f-ink")


def _tooltip(mark: Bar | Point) -> str:
    if mark.tooltip or not math.isfinite(mark.value):
        return mark.tooltip or "undefined"
    has_interval = math.isfinite(mark.low) and math.isfinite(mark.high) and mark.low < mark.high
    return f"{number(mark.value)} [{number(mark.low)}, {number(mark.high)}]" if has_interval else number(mark.value)


def _units(value: float) -> str:
    return f"{round(value, 1) + 0.0:g}"


def _tick_words(value: float) -> str:
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def _text_width(words: str) -> float:
    """Returns about how many units letters take; the reader's fonts decide, and a little too much does no harm."""
    return _FONT * sum(1.0 if unicodedata.east_asian_width(letter) in "WF" else 0.56 for letter in words)


def _readable(text: str) -> str:
    return " ".join(visible_text(text).split())


def _cut(text: str, room: float) -> str:
    """Returns a name shortened to fit into ``room`` units."""
    readable = _readable(text)
    if _text_width(readable) <= room + 1e-6:
        return readable
    kept = readable
    while kept and _text_width(kept) + _FONT > room:
        kept = kept[:-1]
    return f"{kept}…"
