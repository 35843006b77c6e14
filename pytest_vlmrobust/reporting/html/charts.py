"""Charts: which numbers of a sweep are drawn, and what they say in words; each can be read as a table as well."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.setting import CLEAN_NAME, NO_IMAGE_NAME

from . import drawing
from .drawing import Bar, Flip, Rung
from .heatmap import DROP, LADDER, mapped
from .sweeps import Sweep
from .words import MARKS, bound, ends, interval, measure_of, number, share

_MOST = 20
_HARMFUL, _HELPFUL = "harmful_flip_rate", "helpful_flip_rate"


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with the numbers that it shows; ``svg`` is empty where the library that draws is not installed."""

    title: str
    caption: str
    svg: Markup
    header: tuple[str, ...]
    rows: list[tuple[Record | None, tuple[str, ...]]]
    notes: tuple[str, ...] = ()


def worst_settings(sweep: Sweep) -> Chart | None:
    """Returns the settings of a sweep that cost most, with intervals and bounds."""
    drops = [(record, measure_of(record, DROP)) for record in sweep.cells if _ranked(record)]
    known = [(record, drop) for record, drop in drops if drop is not None and math.isfinite(drop.value)]
    if not known:
        return None
    ranked = sorted(known, key=lambda pair: (-pair[1].value, pair[0].id))[:_MOST]
    bars = [_bar(record.setting, drop) for record, drop in ranked]
    title = "Settings that cost most" if len(known) > 1 else "What the setting costs"
    rest = f" The {len(ranked)} worst of {len(known)} settings." if len(known) > len(ranked) else ""
    return Chart(
        title,
        f"Drop of accuracy, its 90 % interval, and the bound (vertical tick) of the rule that decided.{rest}",
        _draw_bars(bars, "drop of accuracy", f"{sweep.anchor}-worst", f"Settings that cost {sweep.name} most"),
        ("setting", "drop", "90 % interval", "bound", "verdict"),
        [(one, (one.setting, number(drop.value), interval(drop), bound(drop), str(drop.outcome))) for one, drop in ranked],
    )


def _ranked(record: Record) -> bool:
    """Whether a setting may be ranked with others: those that shrink pictures first are an experiment of their own."""
    return mapped(record) and LADDER not in record.family.split("+")


def _bar(label: str, measure: Measure) -> Bar:
    mark = MARKS[measure.outcome]
    ends_ = tuple(ends(measure.threshold))
    return Bar(
        label, measure.value, _or(measure.low, measure.value), _or(measure.high, measure.value), ends_, mark.css, mark.sign
    )


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other


def _draw_bars(bars: Sequence[Bar], axis: str, prefix: str, label: str) -> Markup:
    return drawing.ranking(bars, axis=axis, prefix=prefix, label=label) if drawing.available() else Markup()


def resolution_curve(sweep: Sweep) -> Chart | None:
    """Returns accuracy against the size of the pictures, with the rungs that reached the model as one marked."""
    cells = [record for record in sweep.cells if record.family == LADDER and record.level.isdecimal()]
    found = [(record, accuracy) for record in cells if (accuracy := measure_of(record, "accuracy")) is not None]
    known = sorted((pair for pair in found if math.isfinite(pair[1].value)), key=lambda pair: int(pair[0].level))
    if len(known) < 2:
        return None
    merged = collapsed(record for record, _ in known)
    rungs = [Rung(int(one.level), m.value, _or(m.low, m.value), _or(m.high, m.value), one.received in merged) for one, m in known]
    marked = sum(rung.collapsed for rung in rungs)
    said = f" {marked} hollow points reached the model at the same size as another one." if marked else ""
    return Chart(
        "Accuracy by resolution",
        f"Accuracy at each rung of the ladder with its 90 % interval at each point.{said}",
        _draw_curve(rungs, _levels(sweep), sweep) if drawing.available() else Markup(),
        ("long edge", "accuracy", "90 % interval", "reached the model as", ""),
        [
            (
                one,
                (
                    one.level,
                    number(m.value),
                    interval(m),
                    one.received or "not said",
                    "same as another" if one.received in merged else "",
                ),
            )
            for one, m in known
        ],
        tuple(dict.fromkeys(note for record in sweep.summaries for note in record.notes)),
    )


def collapsed(rungs: Iterable[Record]) -> set[str]:
    """Returns what several rungs reached the model as: one size for all their pictures, and the same one."""
    counts = Counter(record.received for record in rungs if record.received and " more" not in record.received)
    return {received for received, count in counts.items() if count > 1}


def _levels(sweep: Sweep) -> list[tuple[str, float]]:
    """Returns the accuracy on the pictures as they are and without any, where known."""
    names = {CLEAN_NAME: "as they are", NO_IMAGE_NAME: "without pictures"}
    cells = {setting: sweep.cell(setting) for setting in names}
    measures = {setting: measure_of(record, "accuracy") for setting, record in cells.items() if record is not None}
    return [(names[key], one.value) for key, one in measures.items() if one is not None and math.isfinite(one.value)]


def _draw_curve(rungs: Sequence[Rung], lines: Sequence[tuple[str, float]], sweep: Sweep) -> Markup:
    return drawing.curve(rungs, lines, prefix=f"{sweep.anchor}-curve", label=f"Accuracy of {sweep.name} by resolution")


def flips(sweep: Sweep) -> Chart | None:
    """Returns how many answers settings turned wrong and right, those that turned most wrong first."""
    found = []
    for record in sweep.cells:
        harmful, helpful = measure_of(record, _HARMFUL), measure_of(record, _HELPFUL)
        if _ranked(record) and harmful is not None and helpful is not None and math.isfinite(harmful.value + helpful.value):
            found.append((record, harmful, helpful))
    if not found:
        return None
    found.sort(key=lambda three: (-three[1].value, three[0].id))
    top = found[:_MOST]
    drawn = [Flip(record.setting, harmful.value, helpful.value) for record, harmful, helpful in top]
    both = sum(harmful.value + helpful.value for _, harmful, helpful in found) / len(found)
    return Chart(
        "Answers that flipped",
        f"A drop is the difference of the two. Over {len(found)} settings, {share(both)} of the answers flipped.",
        drawing.flips(drawn, prefix=f"{sweep.anchor}-flips", label=f"Answers of {sweep.name} that flipped")
        if drawing.available()
        else Markup(),
        ("setting", "turned wrong", "turned right"),
        [(record, (record.setting, share(harmful.value), share(helpful.value))) for record, harmful, helpful in top],
    )
