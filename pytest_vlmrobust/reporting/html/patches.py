"""Patches: what each position of a grid gives, and samples that only the whole picture or only a patch answers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_vlmrobust.core.record import Example, Picture, Record, Reply

from .heatmap import PATCHES
from .sweeps import Sweep
from .words import share

WHOLE_ONLY, PATCH_ONLY = "whole_only", "patch_only"
KINDS = {
    WHOLE_ONLY: "Answered from the whole picture only",
    PATCH_ONLY: "Answered from a patch only",
}
_PATCH = re.compile(r"patch (\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class Spatial:
    """The share of right answers that each position of a grid gives, row by row."""

    record: Record
    rows: list[list[float]]

    @property
    def even(self) -> str:
        """What each position would give if none were better than another."""
        return share(1 / len(self.rows) ** 2)

    def shade(self, value: float) -> str:
        """Returns the CSS class of a share: ``s0`` for none to ``s6`` for twice an even share or more."""
        return "nan" if math.isnan(value) else f"s{min(6, round(3 * value * len(self.rows) ** 2))}"


@dataclass(frozen=True, slots=True)
class View:
    """What came back from a view of a sample: its pictures, and the answer."""

    pictures: list[Picture]
    reply: Reply | None

    @property
    def frame(self) -> str:
        """``right``, ``wrong``, or empty."""
        return next((picture.frame for picture in self.pictures), "")


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample of the table: the whole picture beside the grid of its patches; ``None`` stands for a patch not asked about."""

    record: Record
    example: Example
    whole: View
    grid: list[list[View | None]]


def spatial(sweep: Sweep) -> list[Spatial]:
    """Returns the maps of positions of a sweep, of each grid that was asked in full."""
    found = []
    for record in sweep.cells:
        side = math.isqrt(len(record.positions))
        if side and side * side == len(record.positions):
            values = record.positions
            found.append(Spatial(record, [list(values[row * side : (row + 1) * side]) for row in range(side)]))
    return found


def table(sweep: Sweep) -> dict[str, list[Shown]]:
    """Returns the samples that only the whole picture or only a patch answers, by which of the two."""
    found: dict[str, list[Shown]] = {kind: [] for kind in KINDS}
    for record in sweep.cells:
        for example in record.examples if record.family == PATCHES else ():
            if example.kind in found:
                found[example.kind].append(_laid_out(record, example))
    return {kind: examples for kind, examples in found.items() if examples}


def _laid_out(record: Record, example: Example) -> Shown:
    side = int(record.level) if record.level.isdecimal() and 0 < int(record.level) < 20 else 0
    grid: list[list[View | None]] = [[None] * side for _ in range(side)]
    for reply in example.replies:
        place = _PATCH.match(reply.about)
        row, column = (int(place[1]) - 1, int(place[2]) - 1) if place else (-1, -1)
        if 0 <= row < side and 0 <= column < side:
            grid[row][column] = _view(example, reply)
    whole = next((reply for reply in example.replies if not _PATCH.match(reply.about)), None)
    about = whole.about if whole else ""
    return Shown(record, example, View(_pictures(example.pictures, about), whole), grid)


def _view(example: Example, reply: Reply) -> View:
    return View(_pictures(example.pictures, reply.about), reply)


def _pictures(pictures: Sequence[Picture], about: str) -> list[Picture]:
    return [one for one in pictures if one.caption == about or one.caption.startswith(f"{about}, ")]
