"""Gaps: the Observatory's tasks by split, gaps between positions and between groups of people, and what people reached."""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.metrics import human_reference

from . import drawing
from .charts import Chart
from .drawing import Bar
from .sweeps import Sweep
from .words import MARKS, bound, ends, interval, number

_SPLITS = {"clean": "as they are", "observatory_id": "augmented", "observatory_ood": "illusions"}
_SCORE = "identity_accuracy"
_GAPS = {"split_group_gap": "groups of people", "split_position_gap": "positions"}
_MARKS = {"clean": "", "observatory_id": ", augmented", "observatory_ood": ", illusions"}
PEOPLE = "The ticks of people are the paper's, reached on the paper's own pictures, and judge nothing here."


def scores(sweeps: Sequence[Sweep]) -> Chart | None:
    """Returns how well each task was done on each split, beside what people reached in the paper's study."""
    found = _known(sweeps, (_SCORE,))
    if not _all(sweeps, (_SCORE,)):
        return None
    references = {sweep.task: human_reference(sweep.task) for sweep, _, _ in found}
    texts = dict.fromkeys(one.text for one in references.values() if one is not None)
    tasks = {text: ", ".join(t for t, one in references.items() if one is not None and one.text == text) for text in texts}
    said = [f"{PEOPLE} {'; '.join(f'{names}: {text}' for text, names in tasks.items())}"] if tasks else []
    values = {task: None if one is None else one.value for task, one in references.items()}
    return Chart(
        "Tasks",
        "Accuracy, and of boxes mean overlap, with its 90 % interval.",
        _draw([(*one, values[one[0].task]) for one in found], "score", "observatory-scores", "Scores of the Observatory's tasks"),
        ("task", "pictures", "score", "90 % interval", "bound", "verdict", "people, in the paper"),
        [(record, (*_row(sweep, record, measure), _published(values[sweep.task]))) for sweep, record, measure in found],
        (*_rest(sweeps, (_SCORE,)), *said),
    )


def gaps(sweeps: Sequence[Sweep]) -> Chart | None:
    """Returns how far positions in the grid, and groups of people, are apart."""
    found = _known(sweeps, tuple(_GAPS))
    if not _all(sweeps, tuple(_GAPS)):
        return None
    return Chart(
        "Gaps between positions and between groups of people",
        "The best minus the worst one, with its 90 % interval.",
        _draw([(*one, None) for one in found], "gap", "observatory-gaps", "Gaps between positions and groups"),
        ("task", "pictures", "gap", "90 % interval", "bound", "verdict", "between"),
        [(record, (*_row(sweep, record, measure), _GAPS[measure.metric])) for sweep, record, measure in found],
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


def _known(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> list[tuple[Sweep, Record, Measure]]:
    return [one for one in _all(sweeps, metrics) if math.isfinite(one[2].value)]


def _rest(sweeps: Sequence[Sweep], metrics: Sequence[str]) -> list[str]:
    every = _all(sweeps, metrics)
    unasked = sum(bool(record.not_asked) for _, record, _ in every)
    undefined = len(every) - len(_known(sweeps, metrics)) - unasked
    counts = {f"{unasked} were not asked": unasked, f"{undefined} are undefined": undefined}
    said = [words for words, count in counts.items() if count > 0]
    return [f"Of {len(every)} numbers, {' and '.join(said)}: their tests say why."] if said else []


def _row(sweep: Sweep, record: Record, measure: Measure) -> tuple[str, ...]:
    pictures = _SPLITS.get(record.split, record.split)
    return sweep.name, pictures, number(measure.value), interval(measure), bound(measure), str(record.outcome)


def _published(value: float | None) -> str:
    return "not published" if value is None else f"{number(value, 2)}"


def _draw(found: Sequence[tuple[Sweep, Record, Measure, float | None]], axis: str, prefix: str, label: str) -> Markup:
    several = len({sweep.model for sweep, *_ in found}) > 1
    bars = [
        Bar(
            f"{sweep.model + ' ' if several else ''}{sweep.dataset}{_MARKS.get(record.split, record.split)}",
            measure.value,
            measure.low if math.isfinite(measure.low) else measure.value,
            measure.high if math.isfinite(measure.high) else measure.value,
            tuple(ends(measure.threshold)),
            MARKS[measure.outcome].css,
            MARKS[measure.outcome].sign,
            reference,
        )
        for sweep, record, measure, reference in found
    ]
    if not bars or not drawing.available():
        return Markup()
    return drawing.ranking(bars, axis=axis, prefix=prefix, label=label, zero=False)
