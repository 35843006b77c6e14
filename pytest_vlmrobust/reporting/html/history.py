"""History: the page of a metric over runs, as a single file that opens anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.record import PARTIAL_MARK
from pytest_vlmrobust.reporting.history import Point, change_lines, changes

from . import drawing, page
from .charts import Chart
from .words import number, usual_interval


@dataclass(frozen=True, slots=True)
class Section:
    """The section of a series."""

    anchor: str
    title: str
    chart: Chart
    told: list[str]


def render_history_page(metric: str, series: Mapping[str, Sequence[Point]]) -> str:
    """Returns the page: the same series give the same text."""
    environment = page.templates()
    script = page.asset("common.js")
    return environment.get_template("history.html").render(
        metric=metric,
        sections=[_section(place, name, metric, points) for place, (name, points) in enumerate(series.items(), 1)],
        runs=len({point.run for points in series.values() for point in points}),
        security=page.security(page.asset("style.css"), script),
        script=script,
    )


def _section(place: int, name: str, metric: str, points: Sequence[Point]) -> Section:
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
            told=f"{point.told}; {point.verdict}; {point.run}",
            change=after.get(point.run, ""),
        )
        for at, point in enumerate(points)
    ]
    chart = Chart(
        f"{metric} of {name}",
        "Each value with its 90 % interval, the oldest on the left; a dashed line stands before a run that shows a change.",
        drawing.line(drawn, across="runs", up=up, label=f"{metric} of {name} over {len(points)} runs"),
        ("run", "decision", metric, "90 % interval", "n", "change"),
        [
            (
                None,
                (
                    one.run,
                    one.verdict,
                    f"{PARTIAL_MARK if one.n_samples else ''}{number(one.measure.value, one.measure.unit)}",
                    usual_interval(one.measure),
                    f"{one.measure.n} of {one.n_samples}" if one.n_samples else str(one.measure.n),
                    after.get(one.run, ""),
                ),
            )
            for one in reversed(points)
        ],
    )
    return Section(f"series-{place}", name, chart, change_lines(points))


def _when(run: str) -> str:
    """Returns a short label for an axis: day and time from the name of a run, else its name.

    >>> _when("20261123-121206-b5b7c545")
    '11-23 12:12'
    """
    began = re.match(r"\d{4}(\d\d)(\d\d)-(\d\d)(\d\d)\d\d(?:-|$)", run)
    return "{}-{} {}:{}".format(*began.groups()) if began else run
