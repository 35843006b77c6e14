"""Analyses of the papers from records: complete cells count, all others are named."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.reporting import RunFacts
from pytest_vlmrobust.reporting.analyses import Analysis, analyses, analysis_tables
from pytest_vlmrobust.reporting.results import is_results, results_json

FULL = {"n": 100, "n_requested": 100}


def cell(setting: str, drop: float = 0.0, family: str = "weather", clean: float = 0.9, **changes: Any) -> Record:
    level = setting.partition(":")[2]
    measures = (Measure("accuracy", clean - drop, n=100), Measure("accuracy_drop", drop, n=100))
    facts = {"setting": setting, "family": family, "level": level, "measures": measures, **FULL, **changes}
    return Record("cell", f"m-d-{setting}", "m", "d", **facts)


def rows(name: str, *records: Record) -> dict[str, Analysis]:
    return {row.part: row for row in analyses(records) if row.name == name}


def test_tiers_are_shares_of_the_settings_of_each_level() -> None:
    found = rows(
        "tiers",
        cell("clean", family=""),
        cell("fog:low", 0.005),
        cell("rain:low", -0.01),
        cell("fog:high", 0.2),
        cell("flip_v", 0.05, "binary"),
        cell("resolution:20", 0.5, "ladder"),
        cell("patches:2", -0.5, "patches"),
    )
    assert list(found) == ["low", "high", "binary", "all"]
    assert found["low"].values == {"positive": 0.5, "benign": 0.5, "mild": 0.0, "moderate": 0.0, "catastrophic": 0.0}
    assert found["all"].values == {"positive": 0.25, "benign": 0.25, "mild": 0.0, "moderate": 0.25, "catastrophic": 0.25}
    assert (found["low"].cells, found["all"].cells, found["all"].missing) == (2, 4, {})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_requested": 12, "n_samples": 100}, "stopped early: 12 of 100 answers"),
        ({"n_errors": 3}, "3 of 100 inferences failed"),
        ({"not_asked": "not shown to match"}, "not asked: not shown to match"),
        ({"measures": (), "outcome": Outcome.ERROR, "reason": "the endpoint is down"}, "the endpoint is down"),
        ({"measures": (Measure("accuracy_drop", math.nan, reason="no clean score"),)}, "no clean score"),
        ({"measures": ()}, "accuracy_drop is unknown"),
    ],
)
def test_an_incomplete_cell_is_missing_with_the_reason_and_never_zero(changes: dict[str, Any], reason: str) -> None:
    found = rows("tiers", cell("fog:low", 0.2), cell("rain:low", 0.0, **changes))
    assert found["low"].values["catastrophic"] == 1.0
    assert (found["low"].cells, found["low"].missing) == (1, {"rain:low": reason})
    alone = rows("tiers", cell("rain:low", 0.0, **changes))["all"]
    assert alone.cells == 0
    assert all(math.isnan(value) for value in alone.values.values())


def test_questions_are_ranked_by_their_mean_drop() -> None:
    clean = cell("clean", family="", categories={"count": 1.0, "colour": 0.8})
    fog = cell("fog:low", categories={"count": 0.5, "colour": 0.8})
    rain = cell("rain:low", categories={"count": 0.7, "colour": 0.7})
    found = rows("category_drops", clean, fog, rain)
    assert list(found) == ["count", "colour"]
    assert [row.values["mean_drop"] for row in found.values()] == pytest.approx([0.4, 0.05])
    assert {row.cells for row in found.values()} == {2}
    without = rows("category_drops", fog, rain)
    assert {row.missing["clean"] for row in without.values()} == {"no record"}
    assert all(math.isnan(row.values["mean_drop"]) for row in without.values())
    partial = dataclasses.replace(clean, n_samples=200)
    assert rows("category_drops", partial, fog)["count"].missing == {"clean": "stopped early: 100 of 200 answers"}


def test_tasks_of_the_observatory_and_summaries_are_no_part_of_it() -> None:
    assert analyses([cell("fog:low", task="matching"), Record("sweep", "m-d-mean_drop", "m", "d", metric="mean_drop")]) == ()


def test_tables_say_what_is_missing_and_how_to_ask_for_it() -> None:
    (table,) = analysis_tables(analyses([cell("fog:low", 0.2), cell("rain:low", n_requested=12, n_samples=100)]))
    assert table.rows[0] == ("m", "d", "low", "0.0", "0.0", "0.0", "0.0", "100.0", "1 of 2")
    (note,) = table.notes
    assert note == (
        "m on d lacks 1 cell: rain:low (stopped early: 12 of 100 answers). A run with --vlm-mode=full asks every cell in full"
    )


def test_results_of_an_earlier_release_lack_analyses_and_still_agree() -> None:
    records, facts = [cell("fog:low", 1 / 3), cell("rain:low", 0.0)], RunFacts(planned=2, selected=2)
    content = json.loads(results_json(records, facts))
    written = content["analyses"]
    assert written[0]["values"]["catastrophic"] == 0.5
    rounded = json.loads(json.dumps(content))
    rounded["analyses"][0]["values"]["catastrophic"] += 1e-13
    assert is_results(json.dumps(rounded).encode(), records, facts)
    del content["analyses"]
    assert is_results(json.dumps(content).encode(), records, facts)
    for changed in ([], written[:1], [{**written[0], "cells": 99}, *written[1:]]):
        assert not is_results(json.dumps({**content, "analyses": changed}).encode(), records, facts)
    assert not is_results(json.dumps({**content, "more": 1}).encode(), records, facts)
