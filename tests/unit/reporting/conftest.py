"""Records as a gate makes them, without a gate."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import NotShown, Outcome
from pytest_vlmrobust.core.record import Measure, Record

STORED = Path(__file__).parents[2] / "golden" / "reports"
REWRITE = "VLMROBUST_REWRITE_SNAPSHOTS"
MOST_LINES = 20
"""Lines of one text's difference that are shown."""


def compare(texts: Mapping[Path, str]) -> None:
    """Checks that texts are the stored ones, which are rewritten where the environment says so."""
    differing: list[str] = []
    for path, text in texts.items():
        if os.environ.get(REWRITE):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif (before := path.read_text(encoding="utf-8") if path.exists() else "") != text:
            changed = difflib.unified_diff(before.splitlines(), text.splitlines(), path.name, path.name, n=0, lineterm="")
            differing += islice(changed, MOST_LINES)
    differences = "\n".join(differing)
    assert not differing, f"reports differ: rewrite them with {REWRITE}=1, and review the difference\n{differences}"


@pytest.fixture
def stored(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compares texts with those that are stored under the name of the test."""

    def check(*texts: str) -> None:
        folder = STORED / "texts" / request.path.stem.removeprefix("test_")
        compare({folder / f"{request.function.__name__.removeprefix('test_')}.txt": "\n---\n".join(texts)})

    return check


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
