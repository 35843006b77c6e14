"""The failure message of a test: the breach first, then every number, and how to run it again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_vlmrobust.core.counting import quantity
from pytest_vlmrobust.core.printing import on_one_line, printable
from pytest_vlmrobust.core.record import BY_VALUE, Measure, Record

_WIDTH = 28
_MOST = 5


def explain(record: Record, again: str = "") -> str:
    """Returns the failure message of a test, or what it says where nothing failed.

    Args:
        record: of the test.
        again: the command line that runs the test alone; left out where nobody knows it.
    """
    lines = [on_one_line(record.reason), *(_measured(measure) for measure in record.measures)]
    counts = f"{record.n} of {record.n_requested} scored, {record.n_unparsed} unparsed, {quantity(record.n_errors, 'error')}"
    counts += f", {quantity(record.n_guessed, 'guess', 'guesses')}" if record.n_guessed else ""
    lines.append(_line("answers", counts))
    changes = {"newly wrong": record.worst, "broken since the baseline": record.broken, "fixed since the baseline": record.fixed}
    lines += [_line(title, _listed(ids)) for title, ids in changes.items() if ids]
    lines += [_line("again", again)] if again else []
    return "\n".join(lines)


def _listed(ids: Sequence[str]) -> str:
    """Returns the first names, and how many there are where not all of them are shown."""
    return f"{', '.join(ids[:_MOST])}, … {len(ids)} in all" if len(ids) > _MOST else ", ".join(ids)


def _measured(measure: Measure) -> str:
    value = "undefined" if math.isnan(measure.value) else f"{measure.value:.3f}"
    interval = "" if math.isnan(measure.low) else f" [{measure.low:.3f}, {measure.high:.3f}]"
    bound = f"  {measure.outcome} {measure.threshold}" if measure.threshold else ""
    judged = f" {BY_VALUE}" if measure.judge == "value" else interval
    return _line(measure.called, f"{value}{judged}  n={measure.n}{bound}")


def _line(title: str, text: str) -> str:
    return f"    {printable(title):<{_WIDTH}} {printable(text)}"
