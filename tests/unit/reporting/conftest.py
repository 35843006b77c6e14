"""Records as a gate makes them, without a gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pytest_vlmrobust.core.decision import NotShown, Outcome
from pytest_vlmrobust.core.record import Measure, Record


def record(name: str, outcome: Outcome = Outcome.PASS, drop: float = 0.1, **changes: Any) -> Record:
    """Returns the record of a cell with one judged measure, the drop."""
    about = "0.2", outcome, f"accuracy_drop {drop:.3f}", "drop", "p.yaml:4"
    measure = Measure("accuracy_drop", drop, drop - 0.05, drop + 0.05, 100, *about, ends=(0.2,))
    facts: dict[str, Any] = {
        "test": "cell",
        "id": name,
        "model": "m",
        "dataset": "d",
        "outcome": outcome,
        "reason": f"accuracy_drop {drop:.3f}",
        "n": 100,
        "n_requested": 100,
        "n_inferred": 60,
        "n_recalled": 40,
        "measures": (measure,),
    }
    return Record(**{**facts, **changes})


def open_record(name: str, rule: str, beyond: float, outcome: Outcome = Outcome.INCONCLUSIVE, **changes: Any) -> Record:
    """Returns the record of a cell that passed, with a rule that is not shown to hold beside the one that decided."""
    passed = record(name, **changes)
    about = NotShown(rule, outcome, "<= 0.15", f"why {rule}", "p.yaml:9", 0.05, 0.25, beyond, 400, 120)
    return replace(passed, measures=(replace(passed.measures[0], not_shown=(about,)),))
