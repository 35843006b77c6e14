"""Tables of analyses: what is missing is said, and models have intervals."""

from __future__ import annotations

import json
import math
from typing import Any

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.after import run_analyses, standings
from pytest_vlmrobust.evaluation.after.run_analyses import analyses
from pytest_vlmrobust.evaluation.after.standings import Board, ModelAnalysis
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.analyses import about, analysis_tables, board_tables
from pytest_vlmrobust.reporting.results import results_json, same_json

FULL = {"n": 100, "n_requested": 100}


def cell(setting: str, drop: float = 0.0, family: str = "weather", clean: float = 0.9, **changes: Any) -> Record:
    level = setting.partition(":")[2]
    measures = (Measure("accuracy", clean - drop, n=100), Measure("accuracy_drop", drop, n=100))
    facts = {"setting": setting, "family": family, "level": level, "measures": measures, **FULL, **changes}
    return Record("cell", f"m-d-{setting}", "m", "d", **facts)


def test_every_analysis_has_its_texts_and_no_other_has() -> None:
    of_runs = ("LINEAR_TREND", "PATCH_CHANGE", "GROUP_GAPS", "ATTRIBUTES", "POSITION_GAPS")
    of_models = ("CORRUPTION_ERRORS", "TOP_RCE", "SIZE_TREND", "PROMPT_MODES", "PATCH_BOXES", "PATCH_TASKS")
    of_both = {getattr(standings, name) for name in ("TIERS", "EFFECTS", "MOST_HARMFUL", "CATEGORY_DROPS", "CHAIN_LENGTHS")}
    assert {*about("run")} == of_both | {getattr(run_analyses, name) for name in of_runs}
    models = {getattr(standings, name) for name in (*of_models, "RCI_BANDS", "RCI_CORRELATIONS")}
    assert {*about("models")} == of_both | models


def test_tables_say_what_is_missing_and_how_to_ask_for_it() -> None:
    table, *_ = analysis_tables(analyses([cell("fog:low", 0.2), cell("rain:low", n_requested=12, n_samples=100)]))
    assert table.rows[0] == ("m", "d", "low", "0.0", "0.0", "0.0", "0.0", "100.0", "1 of 2")
    (note,) = table.notes
    assert note == (
        "m on d lacks 1 cell: rain:low (stopped early: 12 of 100 answers). A run with --vlm-mode=full asks every cell in full"
    )


def test_results_agree_but_for_the_last_digits_of_analyses() -> None:
    view = RunView([cell("fog:low", 1 / 3), cell("rain:low", 0.0)], RunFacts(planned=2, selected=2))
    content = json.loads(results_json(view))
    written = content["analyses"]
    assert written[0]["values"]["catastrophic"] == 0.5
    rounded = json.loads(json.dumps(content))
    rounded["analyses"][0]["values"]["catastrophic"] += 1e-13
    assert same_json(json.dumps(rounded).encode(), results_json(view))
    for changed in ([], written[:1], [{**written[0], "cells": 99}, *written[1:]]):
        assert not same_json(json.dumps({**content, "analyses": changed}).encode(), results_json(view))
    assert not same_json(json.dumps({**content, "more": 1}).encode(), results_json(view))


def test_tables_of_models_have_intervals_and_reasons() -> None:
    unknown = Estimate(math.nan, 9, reason="b makes no error under fog")
    errors = ModelAnalysis("corruption_errors", "weather", {"a": Estimate(0.8, 9, 0.7, 0.9), "b": unknown})
    trend = ModelAnalysis(
        "size_trend", "fam", {"slope": Estimate(-0.01, 9, -0.03, 0.01), "r_squared": Estimate(0.5, 2)}, note="s, l"
    )
    board = Board("d", 9, 1, (), analyses=(trend, errors))
    first, second = board_tables(board)
    assert first.rows == [("weather", "0.800 [0.700, 0.900]", "undefined")]
    assert first.notes == ["weather is undefined: b makes no error under fog"]
    assert second.header == ("family", "slope", "r squared", "note")
    assert second.rows == [("fam", "-1.0 [-3.0, 1.0]", "0.500", "s, l")]
    assert board_tables(board, small=True) == [second]
