"""Records as a gate makes them, without a gate."""

from __future__ import annotations

from typing import Any

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record


def record(name: str, outcome: Outcome = Outcome.PASS, drop: float = 0.1, **changes: Any) -> Record:
    """Returns the record of a cell with one judged measure, the drop."""
    measure = Measure(
        "accuracy_drop", drop, drop - 0.05, drop + 0.05, 100, "0.2", outcome, f"accuracy_drop {drop:.3f}", "drop", "p.yaml:4"
    )
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
