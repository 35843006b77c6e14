"""Results by position and by people: positions of patches and targets, gaps between groups of people."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pytest_vlmrobust.core.record import Example, Measure, Picture, Record, Reply
from pytest_vlmrobust.metrics import human_reference

from . import drawing
from .charts import PATCHES, Chart, bar, by_value_note
from .sweeps import Sweep
from .words import bound_text, interval, number, share

# Tasks of the Observatory: gaps between positions and groups of people, and human performance.


_SPLITS = {"clean": "as they are", "observatory_id": "augmented", "observatory_ood": "illusions"}
_SCORE = "identity_accuracy"
_GAPS = {"split_group_gap": "groups of people", "split_position_gap": "positions"}
_MARKS = {"clean": "", "observatory_id": ", augmented", "observatory_ood": ", illusions"}
PEOPLE = "The ticks of people are the paper's results on its own images, and nothing is judged by them."


def scores(sweeps: Sequence[Sweep]) -> Chart | None:
    """Returns the score of each task on each split, next to human performance in the paper's study."""
    measures = _finite_measures(sweeps, (_SCORE,))
    if not _all(sweeps, (_SCORE,)):
        return None
    references = {sweep.task: human_reference(sweep.task) for sweep, _, _ in measures}
    texts = dict.fromkeys(reference.text for reference in references.values() if reference is not None)
    tasks = {
        text: ", ".join(t for t, reference in references.items() if reference is not None and reference.text == text)
        for text in texts
    }
    people = [f"{PEOPLE} {'; '.join(f'{names}: {text}' for text, names in tasks.items())}"] if tasks else []
    values = {task: None if reference is None else reference.value for task, reference in references.items()}
    published = {task: "not published" if value is None else share(value) for task, value in values.items()}
    return Chart(
        "Tasks",
        f"Accuracy (mean overlap for boxes) with its interval.{by_value_note(row[2] for row in measures)}",
        _draw([(*row, values[row[0].task]) for row in measures], "score, %", "Scores of the Observatory's tasks"),
        ("task", "pictures", "score", "interval", "bound", "verdict", "people, in the paper"),
        [(record, (*_row(sweep, record, measure), published[sweep.task])) for sweep, record, measure in measures],
        (*_rest(sweeps, (_SCORE,)), *people),
    )


def gaps(sweeps: Sequence[Sweep]) -> Chart | None:
    """Returns how far positions in the grid, and groups of people, are apart."""
    measures = _finite_measures(sweeps, tuple(_GAPS))
    if not _all(sweeps, tuple(_GAPS)):
        return None
    return Chart(
        "Gaps between positions and between groups of people",
        f"The best minus the worst one, with its interval.{by_value_note(row[2] for row in measures)}",
        _draw([(*row, None) for row in measures], "gap, pp", "Gaps between positions and groups"),
        ("task", "pictures", "gap", "interval", "bound", "verdict", "between"),
        [(record, (*_row(sweep, record, measure), _GAPS[measure.metric])) for sweep, record, measure in measures],
        tuple(_rest(sweeps, tuple(_GAPS))),
    )


def _all(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> list[tuple[Sweep, Record, Measure]]:
    return [
        (sweep, record, measure)
        for sweep in sweeps
        for record in sweep.summaries
        for measure in record.measures
        if sweep.task and measure.metric in metrics and not measure.category
    ]


def _finite_measures(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> list[tuple[Sweep, Record, Measure]]:
    return [row for row in _all(sweeps, metrics) if math.isfinite(row[2].value)]


def _rest(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> list[str]:
    every = _all(sweeps, metrics)
    unasked = sum(bool(record.not_asked) for _, record, _ in every)
    undefined = len(every) - len(_finite_measures(sweeps, metrics)) - unasked
    counts = {f"{unasked} were not asked": unasked, f"{undefined} are undefined": undefined}
    reasons = [words for words, count in counts.items() if count > 0]
    return [f"Of {len(every)} numbers, {' and '.join(reasons)}: their tests say why."] if reasons else []


def _row(sweep: Sweep, record: Record, measure: Measure) -> tuple[str, ...]:
    pictures = _SPLITS.get(record.split, record.split)
    value = number(measure.value, measure.unit)
    return sweep.name, pictures, value, interval(measure), bound_text(measure.bound), str(record.outcome)


def _draw(measures: Sequence[tuple[Sweep, Record, Measure, float | None]], axis: str, label: str) -> Markup:
    several = len({sweep.model for sweep, *_ in measures}) > 1
    bars = [
        bar(f"{f'{sweep.model} ' if several else ''}{sweep.dataset}{_MARKS.get(record.split, record.split)}", measure, reference)
        for sweep, record, measure, reference in measures
    ]
    return drawing.ranking(bars, axis=axis, label=label, zero=False) if bars else Markup()


# Patches: the contribution of each grid position, and samples answered only from the whole image or only from a patch.


WHOLE_ONLY, PATCH_ONLY = "whole_only", "patch_only"
KINDS = {
    WHOLE_ONLY: "Answered from the whole image only",
    PATCH_ONLY: "Answered from a patch only",
}
_PATCH = re.compile(r"patch (\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class Spatial:
    """The share of right answers from each grid position, row by row."""

    record: Record
    rows: list[list[float]]

    @property
    def even(self) -> str:
        """The share of each position if all were equal."""
        return share(1 / len(self.rows) ** 2)

    def shade(self, value: float) -> str:
        """Returns the CSS class of a share: ``s0`` for none to ``s6`` for twice an even share or more."""
        return "nan" if math.isnan(value) else f"s{min(6, round(3 * value * len(self.rows) ** 2))}"


@dataclass(frozen=True, slots=True)
class View:
    """A view of a sample: its images and answer."""

    pictures: list[Picture]
    reply: Reply | None

    @property
    def frame(self) -> str:
        """``right``, ``wrong``, or empty."""
        return next((picture.frame for picture in self.pictures), "")


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample of the table: the whole image next to the grid of its patches; ``None`` for a skipped patch."""

    record: Record
    example: Example
    whole: View
    grid: list[list[View | None]]


def spatial(sweep: Sweep) -> list[Spatial]:
    """Returns the position maps of a sweep, for each complete grid."""
    maps = []
    for record in sweep.cells:
        side = math.isqrt(len(record.positions))
        if side and side * side == len(record.positions):
            values = record.positions
            maps.append(Spatial(record, [list(values[row * side : (row + 1) * side]) for row in range(side)]))
    return maps


def table(sweep: Sweep) -> dict[str, list[Shown]]:
    """Returns the samples that only the whole image or only a patch answers, by which of the two."""
    by_kind: dict[str, list[Shown]] = {kind: [] for kind in KINDS}
    for record in sweep.cells:
        for example in record.examples if record.family == PATCHES else ():
            if example.kind in by_kind:
                by_kind[example.kind].append(_laid_out(record, example))
    return {kind: examples for kind, examples in by_kind.items() if examples}


def _laid_out(record: Record, example: Example) -> Shown:
    side = int(record.level) if record.level.isdecimal() and 0 < int(record.level) < 20 else 0
    grid: list[list[View | None]] = [[None] * side for _ in range(side)]
    for reply in example.replies:
        place = _PATCH.match(reply.about)
        row, column = (int(place[1]) - 1, int(place[2]) - 1) if place else (-1, -1)
        if 0 <= row < side and 0 <= column < side:
            grid[row][column] = View(_pictures(example.pictures, reply.about), reply)
    whole = next((reply for reply in example.replies if not _PATCH.match(reply.about)), None)
    view_name = whole.about if whole else ""
    return Shown(record, example, View(_pictures(example.pictures, view_name), whole), grid)


def _pictures(pictures: Sequence[Picture], view_name: str) -> list[Picture]:
    return [picture for picture in pictures if picture.caption == view_name or picture.caption.startswith(f"{view_name}, ")]
