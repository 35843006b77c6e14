"""History: a metric of several runs, each as a point in its interval, and where its value is shown to have changed.

A change is shown between two runs whose intervals, made wide enough for all of them to hold together, have nothing in common.
Without a change all of them hold the one true value but for the declared risk, whether or not the runs asked the same samples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from pytest_vlmrobust.core.record import PARTIAL, PARTIAL_MARK, Measure, Record
from pytest_vlmrobust.core.words import interval, number, on_one_line, quantity

_NARROWEST = 20
"""Columns of the drawing at least."""


RISK = 0.05
"""How probable it is at most that a change is shown in a history without one."""
_LEVEL = 0.90
"""The two-sided level of the intervals of a record."""


@dataclass(frozen=True, slots=True)
class Point:
    """What one run measured."""

    run: str
    decision: str
    measure: Measure
    data: str = ""
    """The digest of the dataset; empty if unknown."""
    n_samples: int = 0
    """Of a test that stopped early, the answers that it could have asked for; 0 of any other."""
    gate: int = 0
    """How many gates its questions had decided by then, this one included; 0 if unknown."""

    @property
    def verdict(self) -> str:
        """The decision, and how many gates its questions had decided by then."""
        return f"{self.decision}, gate {self.gate}" if self.gate else self.decision

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ones of its value and the ends of its interval."""
        return tuple(filter(math.isfinite, (self.measure.value, self.measure.low, self.measure.high)))

    @property
    def has_interval(self) -> bool:
        """Whether its value has an interval: not where its test stopped early."""
        return len(self.ends) == 3

    @property
    def told(self) -> str:
        """Its value with its interval, and a mark where its test stopped early."""
        part = PARTIAL_MARK if self.n_samples else ""
        return f"{part}{self.measure.shown} {interval(self.measure.low, self.measure.high, self.measure.unit)}".rstrip()


class Change(NamedTuple):
    """Two runs between which the value changed."""

    before: Point
    after: Point

    def __str__(self) -> str:
        data = "; they asked other data" if self.before.data and self.after.data and self.before.data != self.after.data else ""
        return f"changed between {self.before.run} and {self.after.run}: {self.before.told}, then {self.after.told}{data}"


def points_of(
    records: Iterable[Record],
    metric: str,
    setting: str,
    *,
    run: str,
    decision: str,
    digests: Mapping[str, str],
    gates: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Point]:
    """Returns what a run measured by a metric, by the id of the model, the dataset and what it was taken over.

    ``setting`` is that of the cell, of metrics of cells; ``gates`` has the number of the gate by model and dataset.
    """
    found: dict[str, Point] = {}
    for record in records:
        if record.metric == metric or (not record.metric and record.setting == setting):
            name = "-".join(filter(None, (record.model, record.dataset, record.split or record.setting)))
            for measure in record.measures:
                if measure.metric == metric and not measure.category:
                    gate = gates.get(f"{record.model}-{record.dataset}", 0)
                    found[name] = Point(run, decision, measure, digests.get(record.dataset, ""), record.n_samples, gate)
    return found


def stretch(runs: int) -> float:
    """Returns how many times as far the ends of 90 % intervals have to stand from their values for all runs to hold together.

    Each end may then miss with a probability of ``RISK / (2 runs)``. Where the probability of a result as extreme, as a function
    of the true value, is log-concave and at least one half at the value that was seen, as for a share of right answers (Clopper
    and Pearson), ``log(RISK / runs) / log(0.10)`` is enough; ends by a normal distribution would need less.

    >>> round(stretch(2), 3), round(stretch(20), 3)
    (1.602, 2.602)
    """
    return math.log(RISK / runs) / math.log(1 - _LEVEL)


def changes(points: Sequence[Point]) -> list[Change]:
    """Returns the changes that the intervals show, the earliest first: as few as can explain them.

    The points are of one series, the oldest first; those without an interval show nothing.
    """
    known = [point for point in points if point.has_interval]
    found: list[Change] = []
    lowest: Point | None = None  # of the runs since the last change, the one whose upper end is the lowest
    highest: Point | None = None  # and the one whose lower end is the highest; of equal ones the latest
    for point in known:
        low, high = _ends(point, len(known))
        if lowest is not None and low > _ends(lowest, len(known))[1]:
            found.append(Change(lowest, point))
            lowest = highest = None
        elif highest is not None and high < _ends(highest, len(known))[0]:
            found.append(Change(highest, point))
            lowest = highest = None
        if lowest is None or high <= _ends(lowest, len(known))[1]:
            lowest = point
        if highest is None or low >= _ends(highest, len(known))[0]:
            highest = point
    return found


def _ends(point: Point, runs: int) -> tuple[float, float]:
    """Returns the ends of an interval that holds together with those of all runs."""
    value, factor = point.measure.value, max(1.0, stretch(runs))
    return value - factor * (value - point.measure.low), value + factor * (point.measure.high - value)


def change_lines(points: Sequence[Point]) -> list[str]:
    """Returns what a series says about changes, a sentence for each: which are shown, at which risk, and what none shows.

    The points are of one series, the oldest first.
    """
    known = [point for point in points if point.has_interval]
    alone = quantity(len(points) - len(known), "run has no interval and shows", "runs have no interval and show")
    without = [f"{alone} no change"] if len(known) < len(points) else []
    without += [f"{PARTIAL_MARK} {PARTIAL}"] if any(point.n_samples for point in points) else []
    if len(known) < 2:
        return [f"not enough runs for changes: 2 with an interval are needed, and there are {len(known)}", *without]
    found = changes(points)
    risk = f"risk of one too many: at most {RISK:.0%} for this series"
    told = f"{quantity(len(found), 'change is', 'changes are') if found else 'no change is'} shown in {len(known)} runs"
    smaller = "smaller ones may be there: vlmrobust compare pairs the samples of two runs"
    return [*map(str, found), f"{told} ({risk}); {smaller}", *without]


def render_history(title: str, points: Sequence[Point], width: int) -> str:
    """Returns a series: what it is about, a line for each run with its value drawn in its interval, the scale, and what changed.

    The points are one of each run, the newest first.
    """
    names = [on_one_line(f"{point.run}  {point.verdict}") for point in points]
    numbers = [point.told for point in points]
    left, right = max(map(len, names)), max(map(len, numbers))
    room = max(_NARROWEST, width - left - right - 4)
    ends = [end for point in points for end in point.ends]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    lines = [
        f"{name:<{left}}  {told:<{right}}  {_drawing(point.measure, low, high, room)}".rstrip()
        for name, told, point in zip(names, numbers, points, strict=True)
    ]
    first, last = (number(end, points[0].measure.unit) for end in (low, high))
    scale = f"{first}{last:>{room - len(first)}}"
    told = [on_one_line(line) for line in change_lines(points[::-1])]
    return "\n".join([on_one_line(title), *lines, f"{'':<{left + right + 4}}{scale}", *told]) + "\n"


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
