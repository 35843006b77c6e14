"""Charts: the numbers of a sweep that are drawn, with texts and a table for each chart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.record import BY_VALUE, BY_VALUE_MARK, PARTIAL, PARTIAL_MARK, Measure
from pytest_vlmrobust.metrics import human_reference
from pytest_vlmrobust.reporting.sweeps import Line, Sweep

from . import drawing
from .drawing import Bar, Flip, Point
from .words import MARKS, bound_text, interval, number, share

_STEPS = (0.01, 0.05, 0.10, 0.20, 0.30, 0.50)
"""Drops, as fractions, at which the colour changes."""
_MOST = 20
"""Settings that a chart shows."""


def share_shade(share: float, positions: int) -> str:
    """Returns the CSS class of a position's share: ``s0`` for none to ``s6`` for twice an even share or more."""
    return "nan" if math.isnan(share) else f"s{min(6, round(3 * share * positions))}"


def shade(drop: float) -> str:
    """Returns the CSS class of a drop: ``h0`` for none to ``h6``, ``g`` for a gain of a point or more, ``nan``."""
    if not math.isfinite(drop):
        return "nan"
    if drop <= -_STEPS[0]:
        return "g"
    return f"h{sum(drop >= step for step in _STEPS)}"


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its numbers; ``svg`` is empty if none is known."""

    title: str
    caption: str
    svg: Markup
    header: tuple[str, ...]
    rows: list[tuple[Line | None, tuple[str, ...]]]
    """The cells of each row, and the test that the first one leads to."""
    notes: tuple[str, ...] = ()


def charts(sweep: Sweep) -> list[Chart]:
    """Returns the charts of a sweep: of drops, of resolutions, and of answers that flipped."""
    return [chart for chart in (_worst_settings(sweep), resolution_curve(sweep), _flips(sweep)) if chart]


def _worst_settings(sweep: Sweep) -> Chart | None:
    drops = sweep.drops
    if not drops:
        return None
    ranked = drops[:_MOST]
    rest = f" The {len(ranked)} worst of {len(drops)} settings." if len(drops) > len(ranked) else ""
    part = f" {PARTIAL_MARK} {PARTIAL}." if any(line.part for line in ranked) else ""
    return Chart(
        "Settings that cost most" if len(drops) > 1 else "What the setting costs",
        f"Drop of accuracy, its interval, and the bound (vertical tick) of the rule that decided.{rest}"
        f"{_by_value_note(ranked)}{part}",
        drawing.ranking(
            [_bar(f"{line.part}{line.name}", line.measure) for line in ranked],
            axis="drop of accuracy, pp",
            label=f"Settings that cost {sweep.name} most",
        ),
        ("setting", "drop", "interval", "bound", "verdict"),
        [(line, _drop_row(line)) for line in ranked],
    )


def _drop_row(line: Line) -> tuple[str, ...]:
    value, ends = _numbers(line)
    return line.name, f"{line.part}{value}", ends, bound_text(line.measure.bound), str(line.measure.outcome)


def _numbers(line: Line) -> tuple[str, str]:
    return number(line.measure.value, line.measure.unit), interval(line.measure)


def _bar(label: str, measure: Measure, reference: float | None = None) -> Bar:
    """Returns the row of a share or a drop, drawn in percent; no interval is drawn where none is known."""
    mark = MARKS[measure.outcome]
    low, high = (100 * (end if math.isfinite(end) else measure.value) for end in measure.interval)
    ends = tuple(100 * end for end in measure.ends)
    reference = None if reference is None else 100 * reference
    held = f"bound {bound_text(measure.bound)}; " if measure.bound else ""
    tooltip = f"{number(measure.value, measure.unit)} {interval(measure)}; {held}{measure.outcome}"
    sign = f"{mark.sign}{BY_VALUE_MARK if measure.judge == 'value' else ''}"
    return Bar(label, 100 * measure.value, low, high, ends, mark.css, sign, reference, tooltip)


def _by_value_note(lines: Iterable[Line]) -> str:
    """Returns the legend of the mark for rows judged by value; empty without such rows."""
    return f" {BY_VALUE_MARK} {BY_VALUE}, not by the interval." if any(line.by_value for line in lines) else ""


def resolution_curve(sweep: Sweep) -> Chart | None:
    """Returns accuracy against image size, marking rungs that reached the model at the same size."""
    lines, merged = sweep.rungs, sweep.merged_sizes
    if len(lines) < 2:
        return None
    rungs = [
        Point(
            int(line.record.level),
            line.record.level,
            100 * line.measure.value,
            100 * line.measure.interval[0],
            100 * line.measure.interval[1],
            _rung_tooltip(line),
            hollow=line.record.received in merged,
        )
        for line in lines
    ]
    marked = sum(rung.hollow for rung in rungs)
    collapsed_note = f" Hollow ({marked}): the model's preprocessor resized it to the same size as a neighbour." if marked else ""
    names = {CLEAN_NAME: "as they are", NO_IMAGE_NAME: "without images"}
    return Chart(
        "Accuracy by resolution",
        f"Accuracy at each rung of the ladder with its interval at each point.{collapsed_note}",
        drawing.line(
            rungs,
            across="long edge of the images, pixels",
            up="accuracy, %",
            label=f"Accuracy of {sweep.name} by resolution",
            levels=[
                (names[line.record.setting], 100 * line.measure.value)
                for line in sweep.baselines
                if line.measure is not None and math.isfinite(line.measure.value)
            ],
            ends=(0.0, 102.0),
        ),
        ("long edge", "accuracy", "interval", "reached the model as", "other rungs"),
        [(line, _rung_row(line, same=line.record.received in merged)) for line in lines],
        tuple(dict.fromkeys(note for record in sweep.summaries for note in record.notes)),
    )


def _rung_tooltip(line: Line) -> str:
    received = f"; reached the model as {line.record.received}" if line.record.received else ""
    return f"{' '.join(_numbers(line))}{received}"


def _rung_row(line: Line, *, same: bool) -> tuple[str, ...]:
    return line.record.level, *_numbers(line), line.record.received or "not said", "same as another" if same else ""


def _flips(sweep: Sweep) -> Chart | None:
    pairs = sweep.flips
    if not pairs:
        return None
    top = pairs[:_MOST]
    rows = [(line.name, share(line.measure.value), share(right.value)) for line, right in top]
    drawn = [
        Flip(name, line.measure.value, right.value, f"{wrong} turned wrong, {righted} turned right")
        for (line, right), (name, wrong, righted) in zip(top, rows, strict=True)
    ]
    both = sum(line.measure.value + right.value for line, right in pairs) / len(pairs)
    return Chart(
        "Answers that flipped",
        f"A drop is the difference of the two. Over {len(pairs)} settings, {share(both)} of the answers flipped.",
        drawing.flips(drawn, label=f"Answers of {sweep.name} that flipped"),
        ("setting", "turned wrong", "turned right"),
        [(line, row) for (line, _), row in zip(top, rows, strict=True)],
    )


# Tasks of the Observatory: gaps between positions and groups of people, and human performance.


_SPLITS = {"clean": "as they are", "observatory_id": "augmented", "observatory_ood": "illusions"}
_SCORE = "identity_accuracy"
_GAPS = {"split_group_gap": "groups of people", "split_position_gap": "positions"}
PEOPLE = "The ticks of people are the paper's results on its own images, and nothing is judged by them."


def observatory(sweeps: Sequence[Sweep]) -> list[Chart]:
    """Returns the charts of the tasks: their scores, and the gaps between positions and groups of people."""
    return [chart for chart in (_scores(sweeps), _gaps(sweeps)) if chart]


def _scores(sweeps: Sequence[Sweep]) -> Chart | None:
    measured, rest = _of_tasks(sweeps, (_SCORE,))
    if not measured and not rest:
        return None
    references = {sweep.task: human_reference(sweep.task) for sweep, _ in measured}
    tasks: dict[str, list[str]] = {}
    for task, reference in references.items():
        if reference is not None:
            tasks.setdefault(reference.text, []).append(task)
    people = "; ".join(f"{', '.join(names)}: {text}" for text, names in tasks.items())
    values = {task: None if reference is None else reference.value for task, reference in references.items()}
    published = {task: "not published" if value is None else share(value) for task, value in values.items()}
    return Chart(
        "Tasks",
        f"Accuracy (mean overlap for boxes) with its interval.{_by_value_note(line for _, line in measured)}",
        _ranked(measured, values, axis="score, %", label="Scores of the Observatory's tasks"),
        ("task", "pictures", "score", "interval", "bound", "verdict", "people, in the paper"),
        [(line, (*_row(sweep, line), published[sweep.task])) for sweep, line in measured],
        (*rest, *([f"{PEOPLE} {people}"] if people else [])),
    )


def _gaps(sweeps: Sequence[Sweep]) -> Chart | None:
    measured, rest = _of_tasks(sweeps, tuple(_GAPS))
    if not measured and not rest:
        return None
    return Chart(
        "Gaps between positions and between groups of people",
        f"The best minus the worst one, with its interval.{_by_value_note(line for _, line in measured)}",
        _ranked(measured, {}, axis="gap, pp", label="Gaps between positions and groups"),
        ("task", "pictures", "gap", "interval", "bound", "verdict", "between"),
        [(line, (*_row(sweep, line), _GAPS[line.measure.metric])) for sweep, line in measured],
        tuple(rest),
    )


def _of_tasks(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> tuple[list[tuple[Sweep, Line]], list[str]]:
    """Returns the finite measures of tasks, and a sentence about the others."""
    every = [(sweep, line) for sweep in sweeps if sweep.task for line in sweep.measured(metrics)]
    finite = [pair for pair in every if math.isfinite(pair[1].measure.value)]
    unasked = sum(bool(line.record.not_asked) for _, line in every)
    undefined = len(every) - len(finite) - unasked
    counts = {f"{unasked} were not asked": unasked, f"{undefined} are undefined": undefined}
    reasons = [words for words, count in counts.items() if count > 0]
    return finite, [f"Of {len(every)} numbers, {' and '.join(reasons)}: their tests say why."] if reasons else []


def _row(sweep: Sweep, line: Line) -> tuple[str, ...]:
    bound, verdict = bound_text(line.measure.bound), str(line.record.outcome)
    return sweep.name, _SPLITS.get(line.name, line.name), *_numbers(line), bound, verdict


def _ranked(measured: Sequence[tuple[Sweep, Line]], people: Mapping[str, float | None], *, axis: str, label: str) -> Markup:
    several = len({sweep.model for sweep, _ in measured}) > 1
    bars = []
    for sweep, line in measured:
        split = "" if line.name == CLEAN_NAME else f", {_SPLITS[line.name]}" if line.name in _SPLITS else line.name
        model = f"{sweep.model} " if several else ""
        bars.append(_bar(f"{model}{sweep.dataset}{split}", line.measure, people.get(sweep.task)))
    return drawing.ranking(bars, axis=axis, label=label, zero=False) if bars else Markup()
