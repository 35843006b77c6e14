"""Headlines: the key numbers of each model and dataset of a run, for the end page and the list of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.record import (
    BY_VALUE_MARK,
    FAMILY,
    LARGEST_DROP,
    PARTIAL,
    PARTIAL_MARK,
    Record,
)
from pytest_vlmrobust.core.words import interval, number

_SPLITS = {CLEAN_NAME: "", "observatory_id": "augmented", "observatory_ood": "illusions"}
_OTHER_SUITES = ("patches", "ladder", "directional")
"""Families of settings whose drops are no loss under a corruption."""


@dataclass(frozen=True, slots=True)
class Number:
    """A key number: its name and text."""

    name: str
    text: str
    interval: str = ""
    """Its interval, in the unit of ``text``; empty if none."""
    aside: str = ""
    """Its addition in brackets: the setting of the worst drop."""
    by_value: bool = False
    """Whether its verdict is by value, shown by a mark."""

    @property
    def marked(self) -> str:
        """Its text, with a mark if its verdict is by value; :func:`legend` explains marks."""
        return f"{self.text}{BY_VALUE_MARK}" if self.by_value else self.text

    def shown(self, *, intervals: bool) -> str:
        """Returns it for display, with its interval if requested."""
        parts = [self.name, self.marked, self.interval if intervals else "", f"({self.aside})" if self.aside else ""]
        return " ".join(filter(None, parts))


@dataclass(slots=True)
class Headline:
    """The key measurements of a model on a dataset or a collection of identities."""

    model: str
    dataset: str
    records: list[Record] = field(default_factory=list)

    @property
    def numbers(self) -> list[Number]:
        """Its key numbers, in the order of the suites; unmeasured ones are left out."""
        return [*self._corruptions(), *self._patches(), *self._resolutions(), *self._tasks()]

    def _corruptions(self) -> Iterable[Number]:
        cells = {record.setting: record for record in self.records if record.test == "cell" and not record.task}
        for setting, name in ((CLEAN_NAME, "clean"), (NO_IMAGE_NAME, "blind")):
            if setting in cells:
                yield from _number(name, cells[setting], "accuracy", "%")
            elif setting == CLEAN_NAME:
                yield from self._summary(name, "clean_accuracy", "%")
        yield from self._summary("mean drop", "mean_drop", "pp")
        yield from self._worst(cells.values())
        yield from self._summary("mRCE", "mean_relative_corruption_error", "")
        severe = self._summary("severe", "severe_failure_rate", "%")
        # few samples overstate a share of cells
        yield from (one for one in severe if not one.text.startswith(PARTIAL_MARK))

    def _worst(self, cells: Iterable[Record]) -> Iterable[Number]:
        """Yields the worst drop if it has a verdict or uses all answers: the largest drop of 133 small samples is too high."""
        judged = [record for record in self.records if record.metric == "worst_case_drop" and not record.task]
        if not any(record.n_samples and record.outcome is Outcome.MEASURED for record in judged):
            yield from list(self._summary("worst", "worst_case_drop", "pp", cells)) or _worst_of(cells)

    def _patches(self) -> Iterable[Number]:
        grids = [record for record in self.records if record.family == "patches" and record.level]
        found = [(record.level, one) for record in grids for one in _number("", record, "pcri", "")]
        for place, (level, one) in enumerate(found):
            yield replace(one, name=f"{'' if place else 'PCRI '}{level}x{level}")

    def _resolutions(self) -> Iterable[Number]:
        yield from self._summary("ACE", "absolute_continuous_error", "")

    def _tasks(self) -> Iterable[Number]:
        """Yields the score of each task of the Observatory on originals, augmentations and illusions."""
        scores = [record for record in self.records if record.metric == "identity_accuracy"]
        unasked = list(dict.fromkeys(record.task for record in scores if record.not_asked))
        for task in dict.fromkeys(record.task for record in scores):
            own = {record.split: record for record in scores if record.task == task and task not in unasked}
            for place, split in enumerate(sorted(own, key=lambda split: [*_SPLITS, split].index(split))):
                name = _SPLITS.get(split, split)
                yield from _number(f"{'' if place else f'{task} '}{name}".strip(), own[split], "identity_accuracy", "%")
        if unasked:
            yield Number("cannot do:", f"{', '.join(unasked)} (skipped)")

    def _summary(self, name: str, metric: str, unit: str, cells: Iterable[Record] = ()) -> Iterable[Number]:
        """Yields a summary metric over all settings, with the setting of its value if in ``cells``."""
        for record in [record for record in self.records if record.metric == metric and not record.task][:1]:
            yield from _number(name, record, metric, unit, cells)


def headlines(records: Iterable[Record]) -> list[Headline]:
    """Returns the headlines of a run with numbers, in the order of their first results."""
    by_key: dict[tuple[str, str], Headline] = {}
    for record in records:
        if not record.is_gated or record.test == FAMILY or not record.model:
            continue
        key = record.model, record.dataset.removesuffix(f".{record.task}")
        by_key.setdefault(key, Headline(*key)).records.append(record)
    return [headline for headline in by_key.values() if headline.numbers]


def legend(numbers: Iterable[Number]) -> str:
    """Returns the legend of the marks of these numbers; empty without marks."""
    shown = list(numbers)
    told = {
        f"{PARTIAL_MARK} {PARTIAL}": any(one.text.startswith(PARTIAL_MARK) for one in shown),
        f"{BY_VALUE_MARK} no confidence interval used": any(one.by_value for one in shown),
    }
    return "  ".join(line for line, needed in told.items() if needed)


def _number(name: str, record: Record, metric: str, unit: str, cells: Iterable[Record] = ()) -> Iterable[Number]:
    measure = record.measure_of(metric)
    if measure is None:
        return
    part = PARTIAL_MARK if record.n_samples else ""
    if not math.isfinite(measure.value):
        yield Number(name, f"{part}undefined")
        return
    unit = measure.unit or unit
    digits = None if unit else 2
    ends = "" if measure.judge == "value" else interval(*measure.interval, unit, digits)
    noted = next((note.rpartition(" at ")[2] for note in record.notes if note.startswith(LARGEST_DROP)), "")
    aside = noted or _setting_of(measure.value, cells)
    yield Number(name, f"{part}{number(measure.value, unit, digits)}", ends, aside, measure.judge == "value")


def _worst_of(cells: Iterable[Record]) -> Iterable[Number]:
    """Yields the largest drop of several cells, if no test measured the summary metric."""
    drops = [
        (measure.value, cell)
        for cell in cells
        if cell.setting not in (CLEAN_NAME, NO_IMAGE_NAME) and cell.family not in _OTHER_SUITES
        if (measure := cell.measure_of("accuracy_drop")) is not None and math.isfinite(measure.value)
    ]
    if len(drops) > 1:
        _, cell = max(drops, key=lambda one: one[0])
        for one in _number("worst", cell, "accuracy_drop", "pp"):
            yield replace(one, aside=cell.setting)


def _setting_of(drop: float, cells: Iterable[Record]) -> str:
    """Returns the setting whose cell has this drop; empty if none, for example if a summary uses other answers."""
    drops = ((cell.setting, cell.measure_of("accuracy_drop")) for cell in cells)
    return next((setting for setting, one in drops if one is not None and abs(one.value - drop) < ROUNDING), "")
