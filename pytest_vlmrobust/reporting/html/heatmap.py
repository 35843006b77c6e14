"""Heatmap: the drop of accuracy of each setting of a sweep, by family and level."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.setting import LEVELS

from .sweeps import Sweep
from .words import by_outcome, measure_of

DROP = "accuracy_drop"
OTHER = "no level"
"""The column of settings that have none of the three levels."""
LADDER = "ladder"
PATCHES = "patches"
_STEPS = (0.01, 0.05, 0.10, 0.20, 0.30, 0.50)
"""Drops, as fractions, at which the colour changes."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One setting in the map."""

    record: Record
    drop: float

    @property
    def shade(self) -> str:
        """The CSS class of its colour."""
        return shade(self.drop)


@dataclass(frozen=True, slots=True)
class Row:
    """One perturbation at its levels; ``None`` where a level did not run."""

    name: str
    spots: list[Spot | None]


@dataclass(frozen=True, slots=True)
class FamilyMap:
    """The perturbations of a family against levels, with the mean drop of each level."""

    name: str
    columns: list[str]
    rows: list[Row]

    def spots(self, column: str) -> list[Spot]:
        """Returns the settings of one of the three levels that ran; for :data:`OTHER`, those that have none of them."""
        chosen = [at for at, own in enumerate(self.columns) if (own if own in LEVELS else OTHER) == column]
        return [spot for row in self.rows for at in chosen if (spot := row.spots[at]) is not None]

    def mean(self, column: str) -> float:
        """Returns the mean drop of a column; NaN where nothing of it is known."""
        drops = [spot.drop for spot in self.spots(column) if math.isfinite(spot.drop)]
        return sum(drops) / len(drops) if drops else math.nan

    def worst(self, column: str) -> Spot | None:
        """Returns the setting of a column that loses most."""
        return max(self.spots(column), key=lambda spot: -math.inf if math.isnan(spot.drop) else spot.drop, default=None)


@dataclass(frozen=True, slots=True)
class Overview:
    """Families against levels: one line a family."""

    columns: list[str]
    families: list[FamilyMap]

    def outcomes(self, family: FamilyMap, column: str) -> list[tuple[object, int]]:
        """Returns how many settings of a family and level have each verdict, worst first."""
        return list(by_outcome(spot.record for spot in family.spots(column)))


def overview(sweep: Sweep) -> Overview | None:
    """Returns the drops of a sweep by family and level; ``None`` when it has no perturbed cells but rungs and patches."""
    by_family: dict[str, list[Record]] = {}
    for record in sweep.cells:
        if mapped(record):
            by_family.setdefault(record.family, []).append(record)
    families = [_family(name, cells) for name, cells in by_family.items()]
    columns = [column for column in (*LEVELS, OTHER) if any(family.spots(column) for family in families)]
    return Overview(columns, families) if families else None


def mapped(record: Record) -> bool:
    """Whether a cell belongs into the map: a perturbation that was asked about, neither a rung nor a grid of patches."""
    asked = bool(record.family) and not record.not_asked
    return asked and record.family not in (LADDER, PATCHES) and measure_of(record, DROP) is not None


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
        by_name.setdefault(bare, {})[column] = Spot(record, _value(measure_of(record, DROP)))
    columns = _ordered({column for spots in by_name.values() for column in spots})
    rows = [Row(bare, [spots.get(column) for column in columns]) for bare, spots in by_name.items()]
    return FamilyMap(name, columns, rows)


def _place(record: Record) -> tuple[str, str]:
    """Returns row and column of a setting; of composed ones, the parameter of the last step is the column."""
    bare, colon, level = record.setting.rpartition(":")
    if colon and "+" not in level and record.level in ("", level):
        return bare, level
    return record.setting, OTHER


def _ordered(columns: Collection[str]) -> list[str]:
    order = {level: index for index, level in enumerate(LEVELS)}
    numeric = {column: int(column) for column in columns if column.isdecimal()}
    return sorted(columns, key=lambda column: (order.get(column, len(order)), column == OTHER, numeric.get(column, 0), column))


def _value(measure: Measure | None) -> float:
    return math.nan if measure is None else measure.value
