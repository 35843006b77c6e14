"""Charts: the numbers of a sweep that are drawn, with texts and a table for each chart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME
from pytest_vlmrobust.core.record import BY_VALUE, BY_VALUE_MARK, PARTIAL, PARTIAL_MARK, Measure, Record
from pytest_vlmrobust.reporting.view import outcome_counts

from . import drawing
from .drawing import Bar, Flip, Point
from .sweeps import Sweep
from .words import MARKS, bound_text, interval, number, share

# Heatmap of accuracy drops by family and level.


DROP = "accuracy_drop"
OTHER = "no level"
"""The column of settings without one of the three levels."""
LADDER = "ladder"
PATCHES = "patches"
_STEPS = (0.01, 0.05, 0.10, 0.20, 0.30, 0.50)
"""Drops, as fractions, at which the colour changes."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A setting in the map."""

    record: Record
    drop: float

    @property
    def shade(self) -> str:
        """The CSS class of its colour."""
        return shade(self.drop)

    @property
    def by_value(self) -> bool:
        """Whether the verdict is by value."""
        measure = self.record.measure_of(DROP)
        return measure is not None and measure.judge == "value"


@dataclass(frozen=True, slots=True)
class Row:
    """A perturbation at its levels; ``None`` for a level that did not run."""

    name: str
    spots: list[Spot | None]


@dataclass(frozen=True, slots=True)
class FamilyMap:
    """The perturbations of a family against levels, with the mean drop of each level."""

    name: str
    columns: list[str]
    rows: list[Row]

    def spots(self, column: str) -> list[Spot]:
        """Returns the settings in a level's column, or those without such a level for :data:`OTHER`."""
        chosen = [at for at, name in enumerate(self.columns) if (name if name in LEVELS else OTHER) == column]
        return [spot for row in self.rows for at in chosen if (spot := row.spots[at]) is not None]

    def mean(self, column: str) -> float:
        """Returns the mean drop of a column; NaN if unknown."""
        drops = [spot.drop for spot in self.spots(column) if math.isfinite(spot.drop)]
        return sum(drops) / len(drops) if drops else math.nan

    def worst(self, column: str) -> Spot | None:
        """Returns the setting of a column that loses most."""
        return max(self.spots(column), key=lambda spot: -math.inf if math.isnan(spot.drop) else spot.drop, default=None)


@dataclass(frozen=True, slots=True)
class Overview:
    """Families against levels, a line per family."""

    columns: list[str]
    families: list[FamilyMap]

    @property
    def has_partial(self) -> bool:
        """Whether a test of it stopped early."""
        return any(spot.record.n_samples for spot in self._spots())

    @property
    def has_by_value(self) -> bool:
        """Whether any of its verdicts is by value."""
        return any(spot.by_value for spot in self._spots())

    def _spots(self) -> Iterator[Spot]:
        return (spot for family in self.families for row in family.rows for spot in row.spots if spot is not None)

    def outcomes(self, family: FamilyMap, column: str) -> list[tuple[object, int]]:
        """Returns how many settings of a family and level have each verdict, worst first."""
        return list(outcome_counts(spot.record for spot in family.spots(column)))


def overview(sweep: Sweep) -> Overview | None:
    """Returns the drops of a sweep by family and level; ``None`` without perturbed cells other than rungs and patches."""
    by_family: dict[str, list[Record]] = {}
    for record in sweep.cells:
        if is_mapped(record):
            by_family.setdefault(record.family, []).append(record)
    families = [_family(name, cells) for name, cells in by_family.items()]
    columns = [column for column in (*LEVELS, OTHER) if any(family.spots(column) for family in families)]
    return Overview(columns, families) if families else None


def is_mapped(record: Record) -> bool:
    """Whether a cell belongs in the map: a measured perturbation that is neither a rung nor a grid of patches."""
    asked = bool(record.family) and not record.not_asked
    return asked and record.family not in (LADDER, PATCHES) and record.measure_of(DROP) is not None


def shade(drop: float) -> str:
    """Returns the CSS class of a drop: ``h0`` for none to ``h6``, ``g`` for a gain of a point or more, ``nan``."""
    if not math.isfinite(drop):
        return "nan"
    if drop <= -_STEPS[0]:
        return "g"
    return f"h{sum(drop >= step for step in _STEPS)}"


def _family(name: str, cells: Sequence[Record]) -> FamilyMap:
    by_name: dict[str, dict[str, Spot]] = {}
    for record in cells:
        bare, column = _place(record)
        drop = record.measure_of(DROP)
        by_name.setdefault(bare, {})[column] = Spot(record, drop.value if drop else math.nan)
    columns = _sort_columns({column for spots in by_name.values() for column in spots})
    rows = [Row(bare, [spots.get(column) for column in columns]) for bare, spots in by_name.items()]
    return FamilyMap(name, columns, rows)


def _place(record: Record) -> tuple[str, str]:
    """Returns row and column of a setting; for a composed setting, the last step's parameter is the column."""
    bare, colon, level = record.setting.rpartition(":")
    if colon and "+" not in level and record.level in ("", level):
        return bare, level
    return record.setting, OTHER


def _sort_columns(columns: Collection[str]) -> list[str]:
    order = {level: index for index, level in enumerate(LEVELS)}
    numeric = {column: int(column) for column in columns if column.isdecimal()}
    return sorted(columns, key=lambda column: (order.get(column, len(order)), column == OTHER, numeric.get(column, 0), column))


_MOST = 20
_HARMFUL, _HELPFUL = "harmful_flip_rate", "helpful_flip_rate"


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing with its numbers; ``svg`` is empty if none is known."""

    title: str
    caption: str
    svg: Markup
    header: tuple[str, ...]
    rows: list[tuple[Record | None, tuple[str, ...]]]
    notes: tuple[str, ...] = ()


def worst_settings(sweep: Sweep) -> Chart | None:
    """Returns the settings of a sweep that cost most, with intervals and bounds."""
    drops = [(record, record.measure_of(DROP)) for record in sweep.cells if _is_ranked(record)]
    known = [(record, drop) for record, drop in drops if drop is not None and math.isfinite(drop.value)]
    if not known:
        return None
    ranked = sorted(known, key=lambda pair: (-pair[1].value, pair[0].id))[:_MOST]
    bars = [bar(f"{_part(record)}{record.setting}", drop) for record, drop in ranked]
    title = "Settings that cost most" if len(known) > 1 else "What the setting costs"
    rest = f" The {len(ranked)} worst of {len(known)} settings." if len(known) > len(ranked) else ""
    part = f" {PARTIAL_MARK} {PARTIAL}." if any(record.n_samples for record, _ in ranked) else ""
    return Chart(
        title,
        f"Drop of accuracy, its interval, and the bound (vertical tick) of the rule that decided.{rest}"
        f"{by_value_note(drop for _, drop in ranked)}{part}",
        drawing.ranking(bars, axis="drop of accuracy, pp", label=f"Settings that cost {sweep.name} most"),
        ("setting", "drop", "interval", "bound", "verdict"),
        [
            (
                record,
                (
                    record.setting,
                    f"{_part(record)}{number(drop.value, drop.unit)}",
                    interval(drop),
                    bound_text(drop.bound),
                    str(drop.outcome),
                ),
            )
            for record, drop in ranked
        ],
    )


def _part(record: Record) -> str:
    return PARTIAL_MARK if record.n_samples else ""


def _is_ranked(record: Record) -> bool:
    """Whether a setting may be ranked with others: those that first shrink images are a separate experiment."""
    return is_mapped(record) and LADDER not in record.family.split("+")


def bar(label: str, measure: Measure, reference: float | None = None) -> Bar:
    """Returns the row of a share or a drop, drawn in percent; no interval is drawn where none is known."""
    mark = MARKS[measure.outcome]
    low, high = (100 * (end if math.isfinite(end) else measure.value) for end in measure.interval)
    ends = tuple(100 * end for end in measure.ends)
    reference = None if reference is None else 100 * reference
    held = f"bound {bound_text(measure.bound)}; " if measure.bound else ""
    told = f"{number(measure.value, measure.unit)} {interval(measure)}; {held}{measure.outcome}"
    sign = f"{mark.sign}{BY_VALUE_MARK if measure.judge == 'value' else ''}"
    return Bar(label, 100 * measure.value, low, high, ends, mark.css, sign, reference, told)


def by_value_note(measures: Iterable[Measure]) -> str:
    """Returns the legend of the mark for rows judged by value; empty without such rows."""
    return f" {BY_VALUE_MARK} {BY_VALUE}, not by the interval." if any(one.judge == "value" for one in measures) else ""


def resolution_curve(sweep: Sweep) -> Chart | None:
    """Returns accuracy against image size, marking rungs that reached the model at the same size."""
    cells = [record for record in sweep.cells if record.family == LADDER and record.level.isdecimal()]
    accuracies = [(record, accuracy) for record in cells if (accuracy := record.measure_of("accuracy")) is not None]
    known = sorted((pair for pair in accuracies if math.isfinite(pair[1].value)), key=lambda pair: int(pair[0].level))
    if len(known) < 2:
        return None
    merged = collapsed_sizes(record for record, _ in known)
    rungs = [
        Point(
            int(record.level),
            record.level,
            100 * m.value,
            100 * m.interval[0],
            100 * m.interval[1],
            _rung_told(record, m),
            hollow=record.received in merged,
        )
        for record, m in known
    ]
    marked = sum(rung.hollow for rung in rungs)
    collapsed_note = f" Hollow ({marked}): the model's preprocessor resized it to the same size as a neighbour." if marked else ""
    return Chart(
        "Accuracy by resolution",
        f"Accuracy at each rung of the ladder with its interval at each point.{collapsed_note}",
        drawing.line(
            rungs,
            across="long edge of the images, pixels",
            up="accuracy, %",
            label=f"Accuracy of {sweep.name} by resolution",
            levels=_levels(sweep),
            ends=(0.0, 102.0),
        ),
        ("long edge", "accuracy", "interval", "reached the model as", "other rungs"),
        [
            (
                record,
                (
                    record.level,
                    number(m.value, m.unit),
                    interval(m),
                    record.received or "not said",
                    "same as another" if record.received in merged else "",
                ),
            )
            for record, m in known
        ],
        tuple(dict.fromkeys(note for record in sweep.summaries for note in record.notes)),
    )


def _rung_told(record: Record, accuracy: Measure) -> str:
    received = f"; reached the model as {record.received}" if record.received else ""
    return f"{number(accuracy.value, accuracy.unit)} {interval(accuracy)}{received}"


def collapsed_sizes(rungs: Iterable[Record]) -> set[str]:
    """Returns the sizes at which several rungs reached the model alike."""
    counts = Counter(record.received for record in rungs if record.received and " more" not in record.received)
    return {received for received, count in counts.items() if count > 1}


def _levels(sweep: Sweep) -> list[tuple[str, float]]:
    """Returns the accuracy with clean images and without images, if known."""
    names = {CLEAN_NAME: "as they are", NO_IMAGE_NAME: "without images"}
    cells = {setting: sweep.cell(setting) for setting in names}
    measures = {setting: record.measure_of("accuracy") for setting, record in cells.items() if record is not None}
    return [
        (names[key], 100 * measure.value)
        for key, measure in measures.items()
        if measure is not None and math.isfinite(measure.value)
    ]


def flips(sweep: Sweep) -> Chart | None:
    """Returns how many answers each setting turned wrong and right, most wrong first."""
    pairs = []
    for record in sweep.cells:
        harmful, helpful = record.measure_of(_HARMFUL), record.measure_of(_HELPFUL)
        if _is_ranked(record) and harmful is not None and helpful is not None and math.isfinite(harmful.value + helpful.value):
            pairs.append((record, harmful, helpful))
    if not pairs:
        return None
    pairs.sort(key=lambda three: (-three[1].value, three[0].id))
    top = pairs[:_MOST]
    drawn = [
        Flip(record.setting, wrong.value, right.value, f"{share(wrong.value)} turned wrong, {share(right.value)} turned right")
        for record, wrong, right in top
    ]
    both = sum(harmful.value + helpful.value for _, harmful, helpful in pairs) / len(pairs)
    return Chart(
        "Answers that flipped",
        f"A drop is the difference of the two. Over {len(pairs)} settings, {share(both)} of the answers flipped.",
        drawing.flips(drawn, label=f"Answers of {sweep.name} that flipped"),
        ("setting", "turned wrong", "turned right"),
        [(record, (record.setting, share(harmful.value), share(helpful.value))) for record, harmful, helpful in top],
    )
