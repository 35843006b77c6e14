"""The suite of patches from the command line: its grids, stopping early, and what the run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from .conftest import Project

SUITE = """
import pytest


@pytest.mark.vlm_settings("patches")
def test_cell(vlm_cell):
    vlm_cell.check()
"""
POLICY = "version: 1\nrules:\n  - {id: pcri, metric: pcri, judge: point, within: [-1, 1]}\n"


@pytest.fixture
def patched(project: Project) -> Project:
    """A gate of patches, on a model that is right from the whole picture and from every patch."""
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", POLICY)
    return project


def records(project: Project) -> dict[str, dict[str, Any]]:
    text = (project.path / "report" / "results.json").read_text(encoding="utf-8")
    return {record["setting"]: record for record in json.loads(text)["records"]}


def test_grids_are_two_and_three_unless_said(patched: Project) -> None:
    patched.run("--vlm-report=report").assert_outcomes(passed=2)
    assert [*records(patched)] == ["patches:2", "patches:3"]
    patched.run("--vlm-report=report", "--vlm-patches=2,4").assert_outcomes(passed=2)
    found = records(patched)
    assert [*found] == ["patches:2", "patches:4"]
    assert (found["patches:2"]["n_inferred"], found["patches:4"]["n_requested"]) == (0, 8 * 16)
    assert len(found["patches:4"]["positions"]) == 16


def test_grids_may_stand_in_the_ini_file(patched: Project) -> None:
    patched.write("pytest.ini", "[pytest]\nvlm_patches = 5\nvlm_patch_stop = true\n")
    patched.run("--vlm-report=report").assert_outcomes(passed=1)
    assert records(patched)["patches:5"]["n_requested"] == 8


def test_a_grid_that_is_none_ends_the_run_before_any_test(patched: Project) -> None:
    result = patched.run("--vlm-patches=2,9")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --vlm-patches '2,9': '9' is no grid. Expected patches on a side, one or several of 2, 3*"]
    )


def test_stopping_changes_the_inferences_and_not_the_index(patched: Project) -> None:
    patched.run("--vlm-report=report", "--vlm-patch-stop").assert_outcomes(passed=2)
    stopped = records(patched)["patches:3"]
    assert (stopped["n_requested"], stopped["positions"]) == (8, [])
    assert (
        "patches:3: 8 of 72 patches were asked about, 64 after a right one were not (89% saved); the share of each position "
        "needs every patch: run without --vlm-patch-stop" in stopped["notes"]
    )
    patched.run("--vlm-report=report").assert_outcomes(passed=2)
    full = records(patched)["patches:3"]
    assert (full["n_requested"], full["n_recalled"], full["n_inferred"]) == (72, 8, 64)
    assert len(full["positions"]) == 9
    named = ("accuracy", "accuracy_drop", "pcri", "rci", "pcri_excess")
    one, other = ({each["metric"]: each for each in record["measures"] if each["metric"] in named} for record in (stopped, full))
    assert set(one) == set(named)
    assert one == other


def test_a_picture_smaller_than_the_grid_is_an_error_that_names_the_sample(patched: Project) -> None:
    Image.new("RGB", (3, 40)).save(patched.path / "pictures" / "5.png")
    result = patched.run("--vlm-patches=4")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*sample 'q5': patches:4: got an image of 3 x 40 pixels. Expected sides of at least 4*"])
    assert result.ret == 11


def test_pictures_of_examples_stand_in_the_store(patched: Project) -> None:
    patched.script({"setting": "patches:2", "answer": "A"})
    patched.run("--vlm-report=report", "--vlm-patches=2")
    examples = records(patched)["patches:2"]["examples"]
    assert [one["kind"] for one in examples] == ["whole_only"] * 4
    folder = Path(patched.path / ".vlmrobust" / "pictures")
    named = {picture["file"] for one in examples for picture in one["pictures"]}
    assert named == {path.name for path in folder.iterdir()}
    assert len(named) == 4 * 5
    assert [picture["frame"] for picture in examples[0]["pictures"]] == ["right", *["wrong"] * 4]
    patched.run("--vlm-report=again", "--vlm-patches=2", "--vlm-offline")
    again = json.loads((patched.path / "again" / "results.json").read_text(encoding="utf-8"))["records"][0]["examples"]
    assert again == examples
