"""A run as a gate keeps it, with a test of each verdict, texts that nobody should obey, and numbers that are not there."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.store import Answer, Evidence, Journal, StoredCell, write_manifest
from pytest_vlmrobust.store.run_directory import write_docket

HOSTILE = "\x1b[2J[x](http://y) {0} \u202eevil\u202c \ud83d <b>"
RULE = {"id": "drop", "metric": "accuracy_drop", "bound": "0.2", "source": "policies/p.yaml:4", "reason": "as agreed"}
WAIVER = {"id": "W1", "owner": "jo", "expires": "2030-01-01", "reason": "known"}
SETTINGS = ("clean", "fog:low", "fog:mid", "fog:high", "flip_v", "resolution:448")


def drop(outcome: Outcome, value: float = 0.3, **changes: Any) -> Measure:
    facts: dict[str, Any] = {
        "reason": f"accuracy_drop {value:.3f} is {outcome}",
        "rule": "drop",
        "source": "policies/p.yaml:4",
        "bound": "<= 0.2",
        "target": "population",
        **changes,
    }
    ends = (value - 0.1, value + 0.1) if math.isfinite(value) else (math.nan, math.nan)
    return Measure("accuracy_drop", value, *ends, n=3, outcome=outcome, **facts)


def cell(setting: str, outcome: Outcome, *measures: Measure, model: str = "m", **facts: Any) -> Record:
    name, _, level = setting.partition(":")
    return Record(
        "cell",
        f"{model}-d-{setting}",
        model,
        "d",
        setting,
        name,
        level,
        outcome=outcome,
        measures=measures,
        nodeid=f"suites/t.py::test_cell[{model}-d-{setting}]",
        n=3,
        n_requested=3,
        **facts,
    )


def records() -> list[Record]:
    """One of each verdict."""
    accuracy = Measure("accuracy", 2 / 3, 0.2, 0.95, 3)
    undefined = Measure("relative_corruption_error", math.nan, reason="no visual gain")
    return [
        cell("clean", Outcome.MEASURED, accuracy),
        cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0), accuracy),
        cell("fog:mid", Outcome.FAIL, drop(Outcome.FAIL, reason=f"accuracy_drop 0.300 > 0.2 {HOSTILE}"), undefined),
        cell("fog:high", Outcome.WAIVED, drop(Outcome.WAIVED, waiver="W1")),
        cell("flip_v", Outcome.INCONCLUSIVE, drop(Outcome.INCONCLUSIVE), undefined),
        cell("resolution:448", Outcome.ERROR, reason="the endpoint is down"),
        Record("sweep", "m-d-mean_drop", "m", "d", metric="mean_drop", measures=(Measure("mean_drop", 0.1, 0.0, 0.2, 3),)),
    ]


def keep(directory: Path, kept: list[Record], *, lost: tuple[str, ...] = (), **manifest: Any) -> Path:
    """Writes a run directory: journal, manifest, docket and evidence."""
    with Journal(directory) as journal:
        for record in kept:
            journal.append(record)
    tests = {record.nodeid: record.model for record in kept if record.nodeid}
    selected = {**tests, **dict.fromkeys(lost, "m")}
    facts = {
        "run": directory.name,
        "date": "2026-11-23",
        "version": "0.1.0",
        "commit": "abc",
        "models": {"m": {"backend": "scripted", "location": HOSTILE}},
        "datasets": {"d": "digest"},
        "settings": {"vlm_seed": 1234, "vlm_dataset": ["a", "b"], "vlm_reference": ""},
        "policies": {
            "m": {"sha256": "5ha", "files": [{"name": "policies/p.yaml", "sha256": "f11e"}], "rules": [RULE], "waivers": [WAIVER]}
        },
        "planned": len(selected),
        "selected": len([record for record in kept if record.is_gated]) + len(lost),
        "missing": len(lost),
    }
    write_manifest(directory, {**facts, **manifest})
    write_docket(directory, {"tests": [{"nodeid": name, "about": {"model": model}} for name, model in selected.items()]}, [])
    samples = [Sample(name, (), f"Which {HOSTILE}?", "B", "choice", {"A": "dog", "B": "cat"}, category="k") for name in "abc"]
    right, wrong, failed = Score(1.0, "letter", "B"), Score.unparsed("refusal"), Score.unscored("the endpoint is down")
    with Evidence.open(directory) as evidence:
        evidence.put_samples("d", "digest", samples)
        for setting in SETTINGS[:-1]:
            scores = (right, wrong, failed if setting == "flip_v" else right)
            answers = tuple(
                Answer(
                    "k",
                    Prediction("" if score is failed else HOSTILE, "generate", error="down" if score is failed else ""),
                    score,
                )
                for score in scores
            )
            evidence.put_cells([StoredCell(Cell("m", "d", Setting.parse(setting)), 1, answers)])
    return directory


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    """The run of :func:`records`, of which one test is lost."""
    return keep(tmp_path / "20261123-101112-abcd", records(), lost=("suites/t.py::test_cell[m-d-clean2]",))


RESERVED = "GO WITH WAIVERS (check)"


@pytest.fixture
def reserved(tmp_path: Path) -> Path:
    """A run that ended GO for a check, with a test that is waived."""
    kept = [cell("fog:low", Outcome.PASS, drop(Outcome.PASS, 0.0)), cell("fog:high", Outcome.WAIVED, drop(Outcome.WAIVED))]
    return keep(tmp_path / "20261123-101112-efab", kept, policies={"m": {"sha256": "5ha", "purpose": "check"}})
