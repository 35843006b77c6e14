"""Worst first."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.verdict import Outcome

SEVERITY = (
    Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE, Outcome.WAIVED, Outcome.PASS, Outcome.MEASURED,
)


def worst_first(records: Iterable[Record]) -> list[Record]:
    """Returns records by severity of their outcome, then by the size of the drop."""
    return sorted(records, key=lambda record: (SEVERITY.index(record.outcome), -_drop(record), record.id))


def headline(record: Record) -> Measure | None:
    """Returns the measure that a table row shows: the one that decided, else the drop, else the first."""
    deciding = [m for m in record.measures if m.outcome is record.outcome and m.rule]
    named = {m.metric: m for m in record.measures}
    return next(iter(deciding), None) or named.get("accuracy_drop") or next(iter(record.measures), None)


def _drop(record: Record) -> float:
    for measure in record.measures:
        if measure.metric == "accuracy_drop" and measure.value == measure.value:  # noqa: PLR0124 - not NaN
            return measure.value
    return float("-inf")
