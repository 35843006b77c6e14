"""A gate of a scripted model whose table is known, beside the published one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vlmrobust.cli import main

from .conftest import Project

CALLED = ("--as=model=Qwen3-VL-4B", "--as=data=MMBench")


@pytest.fixture
def gate(project: Project) -> Project:
    """A run in which 8 answers are right on clean pictures, none without, 4 under invert and 6 under flip_v."""
    wrong = [("invert", number) for number in (0, 1, 2, 3)] + [("flip_v", number) for number in (0, 1)]
    project.script(*({"setting": setting, "sample": f"q{number}", "answer": "A"} for setting, number in wrong))
    project.run()
    return project


def reproduced(project: Project, number: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Returns the numbers of a table that have ours, by metric and setting."""
    run = project.the_run
    capsys.readouterr()
    assert main(["reproduce", "vlm-robustbench", number, f"--run={run}", *CALLED, "--json"]) == 0
    (table,) = json.loads(capsys.readouterr().out)["tables"]
    return {
        f"{value['metric']} {value['about'].get('setting', '')}".strip(): value
        for value in table["values"]
        if value["ours"] is not None and value["about"]["dataset"] == "MMBench"
    }


def test_a_scripted_gate_gives_its_table(gate: Project, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {name: value["ours"]["value"] for name, value in reproduced(gate, "3", capsys).items()}
    assert numbers == pytest.approx(
        {
            "clean_accuracy": 100.0,
            "worst_case_drop": 50.0,
            "severe_failure_rate": 50.0,
            "worst_at_low": 0.0,
            "benign_at_low": 100.0,
            "visual_gain": 100.0,
            "mean_relative_corruption_error": (50.0 + 25.0) / 4,
        }
    )


def test_words_and_drops_of_single_settings(gate: Project, capsys: pytest.CaptureFixture[str]) -> None:
    values = reproduced(gate, "4", capsys)
    assert values["robustness_tier invert"]["word"] == "catastrophic"
    assert values["robustness_tier invert"]["agreement"] == "compatible, not tested"
    assert values["robustness_tier invert"]["ours"]["n"] == 8
    drops = {name: values[f"accuracy_drop {name}"]["ours"]["value"] for name in ("grayscale", "flip_v", "invert")}
    assert drops == pytest.approx({"grayscale": 0.0, "flip_v": 25.0, "invert": 50.0})
    assert values["accuracy_drop flip_v"]["published"] == 10.3
    assert reproduced(gate, "7", capsys)["worst_case_setting"]["word"] == "invert"


def test_a_run_that_somebody_changed_is_refused(gate: Project, capsys: pytest.CaptureFixture[str]) -> None:
    import sqlite3

    run = gate.the_run
    with sqlite3.connect(run / "predictions.sqlite") as connection:
        connection.execute("update answers set value = 1.0 where value = 0.0")
    connection.close()
    assert main(["reproduce", "vlm-robustbench", "3", f"--run={run}", *CALLED]) == 4
    assert "scored again 0" in capsys.readouterr().err
