"""Sweeps: the records of a run by model and dataset, and the content of their cards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import BUDGET_METRICS, FAMILY, Measure, Record

_BASELINES = {CLEAN_NAME: "accuracy on the images as they are", NO_IMAGE_NAME: "accuracy without images"}


class Line(NamedTuple):
    """A line of a card: a measure and its test."""

    name: str
    measure: Measure | None
    record: Record


@dataclass(frozen=True, slots=True)
class Sweep:
    """Everything about a model on a dataset."""

    number: int
    model: str
    dataset: str
    task: str = ""
    cells: list[Record] = field(default_factory=list)
    summaries: list[Record] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its heading."""
        return f"{self.model} on {self.dataset}"

    @property
    def anchor(self) -> str:
        """The id of its part of the page."""
        return f"sweep-{self.number}"

    @property
    def records(self) -> list[Record]:
        """Its cells and its summary metrics."""
        return [*self.cells, *self.summaries]

    def cell(self, setting: str) -> Record | None:
        """Returns the cell of a setting."""
        return next((record for record in self.cells if record.setting == setting), None)


def sweeps(records: Iterable[Record]) -> list[Sweep]:
    """Returns the sweeps of a run in the order in which their first test ended."""
    by_key: dict[tuple[str, str], Sweep] = {}
    for record in records:
        if not record.is_gated or record.test == FAMILY:
            continue
        key = record.model, record.dataset
        sweep = by_key.setdefault(key, Sweep(len(by_key) + 1, *key, record.task))
        (sweep.cells if record.test == "cell" else sweep.summaries).append(record)
    return list(by_key.values())


def baselines(sweep: Sweep) -> list[Line]:
    """Returns the accuracy with clean images and without images, if measured."""
    cells = [(words, sweep.cell(setting)) for setting, words in _BASELINES.items()]
    return [Line(words, record.measure_of("accuracy"), record) for words, record in cells if record is not None]


def card(sweep: Sweep) -> tuple[list[Line], list[Line]]:
    """Returns the lines of a sweep's card: baselines and judged metrics; and summary metrics without a rule.

    Metrics that were neither measured nor judged are left out.
    """
    asked = [record for record in sweep.summaries if record.deciding is not Outcome.MEASURED or not record.not_asked]
    lines = [line for record in asked for line in summary_lines(record)]
    judged = [line for line in lines if _outcome(line) is not Outcome.MEASURED]
    return [*baselines(sweep), *_budgets(sweep), *judged], [line for line in lines if line not in judged]


def _budgets(sweep: Sweep) -> list[Line]:
    """Returns, of each budget that was broken, the first test that says so: others count the same answers again."""
    broken = [(record, measure) for record in sweep.records for measure in record.measures if measure.metric in BUDGET_METRICS]
    first = {measure.metric: Line(measure.metric, measure, record) for record, measure in reversed(broken)}
    return list(first.values())


def _outcome(line: Line) -> Outcome:
    return line.measure.outcome if line.measure else line.record.outcome


def summary_lines(record: Record) -> Sequence[Line]:
    """Returns the lines of a summary metric about the whole dataset, at least one."""
    whole = [measure for measure in record.measures if not measure.category and measure.metric not in BUDGET_METRICS]
    where = f", {record.split}" if record.split else ""
    lines = [Line(f"{measure.metric}{where}", measure, record) for measure in whole]
    return lines or [Line(f"{record.metric}{where}", record.headline, record)]
