"""Analyses of the papers from records: complete cells count, all others are named."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.evaluation.after.run_analyses import Analysis, analyses
from pytest_vlmrobust.reporting.analyses import analysis_tables

FULL = {"n": 100, "n_requested": 100}


def cell(setting: str, drop: float = 0.0, family: str = "weather", clean: float = 0.9, **changes: Any) -> Record:
    level = setting.partition(":")[2]
    measures = (Measure("accuracy", clean - drop, n=100), Measure("accuracy_drop", drop, n=100))
    facts = {"setting": setting, "family": family, "level": level, "measures": measures, **FULL, **changes}
    return Record("cell", f"m-d-{setting}", "m", "d", **facts)


def rows(name: str, *records: Record) -> dict[str, Analysis]:
    return {row.part: row for row in analyses(records) if row.name == name}


def test_tiers_are_shares_of_the_settings_of_each_level() -> None:
    by_part = rows(
        "tiers",
        cell("clean", family=""),
        cell("fog:low", 0.005),
        cell("rain:low", -0.01),
        cell("fog:high", 0.2),
        cell("flip_v", 0.05, "binary"),
        cell("resolution:20", 0.5, "ladder"),
        cell("patches:2", -0.5, "patches"),
    )
    assert list(by_part) == ["low", "high", "binary", "all"]
    assert by_part["low"].values == {"positive": 0.5, "benign": 0.5, "mild": 0.0, "moderate": 0.0, "catastrophic": 0.0}
    assert by_part["all"].values == {"positive": 0.25, "benign": 0.25, "mild": 0.0, "moderate": 0.25, "catastrophic": 0.25}
    assert (by_part["low"].cells, by_part["all"].cells, by_part["all"].missing) == (2, 4, {})


def costs(setting: str, harmful: float, helpful: float, rce: float = 0.5, **changes: Any) -> Record:
    drop = harmful - helpful
    measures = {"accuracy": 0.8 - drop, "accuracy_drop": drop, "relative_corruption_error": rce}
    measures |= {"harmful_flip_rate": harmful, "helpful_flip_rate": helpful}
    return cell(setting, measures=tuple(Measure(name, value, n=100) for name, value in measures.items()), **changes)


def test_levels_cost_drops_rce_and_flips() -> None:
    clean = cell("clean", family="", clean=0.8)
    settings = (costs("fog:low", 0.1, 0.02, rce=0.2), costs("rain:low", 0.3, 0.08, rce=0.6), costs("fog:high", 0.4, 0.0, rce=1.0))
    by_part = rows("effects", clean, *settings)
    assert list(by_part) == ["low", "high", "all"]
    assert by_part["low"].values == pytest.approx(
        {
            "accuracy_drop": (0.08 + 0.22) / 2,
            "relative_corruption_error": 0.4,
            "harmful_flip_rate": 0.2,
            "helpful_flip_rate": 0.05,
            "conditional_flip_rate": (0.1 / 0.8 + 0.3 / 0.8) / 2,
            "flip_ratio": 0.2 / 0.05,
        }
    )
    assert by_part["all"].values["relative_corruption_error"] == pytest.approx(0.6)
    assert math.isnan(by_part["high"].values["flip_ratio"])
    without = rows("effects", *settings)["low"].values
    assert math.isnan(without["conditional_flip_rate"])
    assert without["harmful_flip_rate"] == pytest.approx(0.2)
    blind = rows("effects", clean, costs("fog:low", 0.1, 0.0, rce=math.nan))["low"].values
    assert math.isnan(blind["relative_corruption_error"])
    assert blind["accuracy_drop"] == pytest.approx(0.1)


def test_the_most_harmful_settings_of_each_level_come_first() -> None:
    names = ("fog", "rain", "snow", "frost", "blur", "noise")
    low = [costs(f"{name}:low", 0.01 * place, 0.0) for place, name in enumerate(names)]
    failed, high = costs("spatter:low", 0.9, 0.0, n_errors=1), costs("fog:high", 0.5, 0.0)
    records = (cell("clean", family="", clean=0.8), *low, failed, high)
    by_part = rows("most_harmful", *records)
    assert list(by_part) == [f"{name}:low" for name in ("noise", "blur", "frost", "snow", "rain", "fog", "spatter")] + [
        "fog:high"
    ]
    assert by_part["noise:low"].values["conditional_flip_rate"] == pytest.approx(0.05 / 0.8)
    assert (by_part["spatter:low"].cells, by_part["spatter:low"].missing) == (0, {"spatter:low": "1 of 100 inferences failed"})
    assert math.isnan(by_part["spatter:low"].values["accuracy_drop"])
    (table,) = [shown for shown in analysis_tables(list(by_part.values())) if shown.title == "Most harmful settings"]
    assert [row[2] for row in table.rows] == ["noise:low", "blur:low", "frost:low", "snow:low", "rain:low", "fog:high"]
    assert table.notes[-1] == "2 further settings: results.json has all"


@pytest.mark.cases(
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
    by_part = rows("tiers", cell("fog:low", 0.2), cell("rain:low", 0.0, **changes))
    assert by_part["low"].values["catastrophic"] == 1.0
    assert (by_part["low"].cells, by_part["low"].missing) == (1, {"rain:low": reason})
    alone = rows("tiers", cell("rain:low", 0.0, **changes))["all"]
    assert alone.cells == 0
    assert all(math.isnan(value) for value in alone.values.values())


def test_questions_are_ranked_by_their_mean_drop() -> None:
    clean = cell("clean", family="", categories={"count": 1.0, "colour": 0.8})
    fog = cell("fog:low", categories={"count": 0.5, "colour": 0.8})
    rain = cell("rain:low", categories={"count": 0.7, "colour": 0.7})
    by_part = rows("category_drops", clean, fog, rain)
    assert list(by_part) == ["count", "colour"]
    assert [row.values["mean_drop"] for row in by_part.values()] == pytest.approx([0.4, 0.05])
    assert {row.cells for row in by_part.values()} == {2}
    without = rows("category_drops", fog, rain)
    assert {row.missing["clean"] for row in without.values()} == {"no record"}
    assert all(math.isnan(row.values["mean_drop"]) for row in without.values())
    partial = dataclasses.replace(clean, n_samples=200)
    assert rows("category_drops", partial, fog)["count"].missing == {"clean": "stopped early: 100 of 200 answers"}


def rung(pixels: int, accuracy: float, **changes: Any) -> Record:
    half = {"ocr": accuracy - 0.1, "chart": accuracy + 0.1}
    return cell(f"resolution:{pixels}", 0.0, "ladder", accuracy, **{"categories": half, **changes})


def test_the_trend_of_each_task_stands_beside_the_slope_per_doubling() -> None:
    curve = [rung(448, 0.6), rung(112, 0.4), rung(224, 0.5)]
    by_part = rows("linear_trend", *curve, cell("clean", family=""), cell("fog:low"))
    assert list(by_part) == ["ocr", "chart", "all"]
    slope = metrics.linear_trend([112, 224, 448], [0.4, 0.5, 0.6])
    assert by_part["all"].values == pytest.approx(
        {"slope_per_pixel": slope.slope, "intercept": slope.intercept, "slope_per_doubling": 0.1}
    )
    assert by_part["ocr"].values["intercept"] == pytest.approx(slope.intercept - 0.1)
    partial = rows("linear_trend", *curve, rung(56, 0.0, n_errors=1))["all"]
    assert (partial.cells, partial.values) == (3, by_part["all"].values)
    assert partial.missing == {"resolution:56": "1 of 100 inferences failed"}
    assert math.isnan(rows("linear_trend", curve[0])["all"].values["slope_per_pixel"])


def test_points_of_all_models_share_a_line_where_there_are_several() -> None:
    other = [dataclasses.replace(rung(pixels, accuracy), model="n") for pixels, accuracy in ((112, 0.2), (448, 0.8))]
    failed = dataclasses.replace(rung(224, 0.0, n_errors=1), model="n")
    lines = [row for row in analyses([rung(112, 0.4), rung(448, 0.6), *other, failed]) if row.name == "linear_trend"]
    (pooled,) = [row for row in lines if not row.model and row.part == "all"]
    line = metrics.linear_trend([112, 448, 112, 448], [0.4, 0.6, 0.2, 0.8])
    assert pooled.values["slope_per_pixel"] == pytest.approx(line.slope)
    assert pooled.cells == 4
    assert pooled.missing == {"resolution:224 of n": "1 of 100 inferences failed"}
    assert any(row[0] == "all models" for row in analysis_tables(lines)[0].rows)


def patches(grid: int, index: float, **changes: Any) -> Record:
    return cell(f"patches:{grid}", 0.0, "patches", measures=(Measure("pcri", index, n=100, reason="below chance"),), **changes)


def test_the_change_of_pcri_is_from_the_coarsest_to_the_finest_grid() -> None:
    by_part = rows("patch_change", patches(3, -0.755), patches(2, -0.492))
    assert by_part["2 to 3"].values == pytest.approx(
        {"pcri_coarse": -0.492, "pcri_fine": -0.755, "relative_change": 0.535}, abs=1e-3
    )
    unknown = rows("patch_change", patches(3, math.nan), patches(2, -0.492))["2 to 3"]
    assert unknown.missing == {"patches:3": "below chance"}
    assert (unknown.values["pcri_coarse"], unknown.cells) == (-0.492, 1)
    assert math.isnan(unknown.values["relative_change"])
    assert rows("patch_change", patches(2, -0.492)) == {}


def test_tasks_of_the_observatory_and_summaries_are_no_part_of_it() -> None:
    assert analyses([cell("fog:low", task="matching"), Record("sweep", "m-d-mean_drop", "m", "d", metric="mean_drop")]) == ()


def test_a_gap_in_a_grouping_that_is_not_known_says_why() -> None:
    measures = (
        Measure("split_group_gap", 0.1),
        Measure("split_group_gap", math.nan, category="sex", reason="not shown to match"),
    )
    facts: dict[str, Any] = {"metric": "split_group_gap", "split": "clean", "task": "matching"}
    unknown = Record("sweep", "m-d-gap", "m", "d", measures=measures, **facts)
    known = dataclasses.replace(measures[1], value=0.2, low=0.1, high=0.4, n=90)
    early = dataclasses.replace(unknown, measures=(measures[0], known), n_requested=12, n_samples=100)
    assert rows("group_gaps", unknown)["sex, clean"].missing == {"clean": "not shown to match"}
    assert rows("group_gaps", early)["sex, clean"].missing == {"clean": "stopped early: 12 of 100 answers"}
    (table,) = analysis_tables(analyses([dataclasses.replace(early, n_samples=0)]))
    assert table.header == ("model", "dataset", "grouping, images", "gap", "low", "high", "samples")
    assert table.rows == [("m", "d", "sex, clean", "20.0", "10.0", "40.0", "90")]


def test_the_signed_gap_and_the_mean_of_each_group_stand_beside_the_gap() -> None:
    facts: dict[str, Any] = {"metric": "split_group_gap", "split": "clean", "task": "matching"}
    means = {"samples": 40.0, "mean of male": 0.7, "signed_gap": -0.2, "mean of female": 0.9}
    gap = Record(
        "sweep", "m-d-gap", "m", "d", measures=(Measure("split_group_gap", 0.2, 0.1, 0.3, 40),), parts={"group": means}, **facts
    )
    row = rows("group_gaps", gap)["group, clean"]
    assert list(row.values.items()) == [
        ("gap", 0.2),
        ("low", 0.1),
        ("high", 0.3),
        ("signed_gap", -0.2),
        ("mean of female", 0.9),
        ("mean of male", 0.7),
    ]
    assert rows("group_gaps", Record.from_json(gap.to_json()))["group, clean"] == row


def test_parts_of_a_sweep_that_was_not_asked_in_full_are_named() -> None:
    facts: dict[str, Any] = {"metric": "split_position_gap", "split": "observatory_ood", "task": "pointing"}
    early = Record("sweep", "m-d-gap", "m", "d", n_requested=12, n_samples=100, **facts)
    assert rows("position_gaps", early)["observatory_ood"].missing == {"observatory_ood": "stopped early: 12 of 100 answers"}
    (table,) = analysis_tables(analyses([early]))
    assert table.rows == [("m", "d", "observatory_ood", "0")]
    assert table.notes[0].startswith("m on d lacks 1 cell: observatory_ood (stopped early")
    matching = dataclasses.replace(early, metric="identity_accuracy", task="matching")
    assert rows("attributes", matching) == {}
    assert rows("attributes", dataclasses.replace(matching, task="guided"))["observatory_ood"].cells == 0


def test_lengths_of_chains_are_added_up_over_perturbed_cells() -> None:
    records = (
        cell("clean", family="", chains={"right, to 31": 3.0, "wrong, 32 to 63": 1.0}),
        cell("fog:low", chains={"right, to 31": 2.0}, task="matching"),
        cell("fog:mid", chains={"right, 64 to 127": 5.0}),
        cell("fog:high", chains={"right, to 31": 9.0}, n_errors=3),
        cell("no_image", family="", chains={"right, to 31": 9.0}),
        Record("sweep", "m-d-thinking_gain", "m", "d", metric="thinking_gain", split="clean", chains={"fixes, to 31": 4.0}),
    )
    by_part = rows("chain_lengths", *records)
    assert set(by_part) == {"right, clean", "wrong, clean", "right, perturbed", "fixes, clean"}
    assert by_part["right, perturbed"].values["answers"] == 7.0
    assert (by_part["right, perturbed"].values["to 31"], by_part["right, perturbed"].values["64 to 127"]) == (2.0, 5.0)
    assert (by_part["right, perturbed"].cells, list(by_part["right, perturbed"].missing)) == (2, ["fog:high"])
    assert by_part["fixes, clean"].values["to 31"] == 4.0
    (table,) = [shown for shown in analysis_tables(list(by_part.values())) if "chains" in shown.title]
    assert tuple(table.rows[0][:6]) == ("m", "d", "right, clean", "3", "3", "0")


def test_a_model_that_answers_at_once_has_no_lengths_of_chains() -> None:
    assert rows("chain_lengths", cell("clean", family=""), cell("fog:low")) == {}
