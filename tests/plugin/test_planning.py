"""``--vlm-plan``: what a run would do, said without doing it."""

from __future__ import annotations

import re

import pytest

from .conftest import SAMPLES, Project, ends

CELLS = 6
PASSES = CELLS * SAMPLES


def row(result: pytest.RunResult, name: str = "model") -> list[str]:
    return next(re.split(r" {2,}", line) for line in result.outlines if re.match(rf"{name} +data ", line))


def inferred(result: pytest.RunResult) -> int:
    return next(int(line.split()[0]) for line in result.outlines if " inferences; " in line)


def test_a_plan_says_what_the_run_then_does(any_project: Project) -> None:
    plan = ends(
        any_project.run("--vlm-plan"),
        5,
        "*plan of the vision-language model gate*",
        f"{PASSES - SAMPLES} images are new to this store*",
        "model-data: time not known: *; tokens not known: *",
        "disk: not known, *",
        "8 of 8 gated tests; no model was called, and a plan is never GO: exit code 5",
    )
    assert row(plan) == ["model", "data", str(CELLS), str(SAMPLES), str(PASSES), "0", str(PASSES)]
    assert plan.parseoutcomes().keys() <= {"warnings"}
    assert not list((any_project.path / ".vlmrobust").glob("runs/*"))
    assert inferred(any_project.run()) == PASSES
    again = any_project.run("--vlm-plan")
    assert row(again)[5:8] == [str(PASSES), "0", "0 s"]
    rate = "model-data: * s an answer in one process (median of * cells of run 2*"
    again.stdout.fnmatch_lines([rate, "disk: about * an answer*"])
    again.stdout.no_fnmatch_line("*are new to this store*")
    (journal,) = (any_project.path / ".vlmrobust").glob("runs/*/records.jsonl")
    journal.write_text("{}\n")  # of another release
    assert row(any_project.run("--vlm-plan"))[5:] == [str(PASSES), "0"]


def test_it_reads_no_pixels_and_asks_nothing(project: Project) -> None:
    for picture in (project.path / "pictures").iterdir():
        picture.write_bytes(b"no image")
    project.script({"setting": "*", "error": "asked"})
    plan = project.run("--vlm-plan")
    assert row(plan)[4] == str(PASSES)


def test_what_k_leaves_out_is_not_planned_and_what_a_test_needs_is(project: Project) -> None:
    plan = project.run("--vlm-plan", "-k", "invert")
    assert row(plan)[2:5] == ["3", str(SAMPLES), str(3 * SAMPLES)]
    plan.stdout.fnmatch_lines(["1 of 8 gated tests; no model was called*"])
    assert inferred(project.run("-k", "invert")) == 3 * SAMPLES


def test_a_summary_metric_needs_its_settings(project: Project) -> None:
    assert row(project.run("--vlm-plan", "-k", "worst_case_drop"))[2] == str(CELLS)
    assert row(project.run("--vlm-plan", "-k", "visual_gain"))[2] == "2"


def test_models_are_told_apart_and_a_reference_is_counted(project: Project) -> None:
    project.script(name="other")
    marks = '@pytest.mark.vlm_settings("invert", "fog:low")\n@pytest.mark.vlm_metrics("mean_drop", "mean_corruption_error")\n'
    project.write("suite/test_suite.py", f"import pytest\n\n\n{marks}def test_sweep(vlm_sweep):\n    vlm_sweep.check()\n")
    plan = project.run("--vlm-plan", "--vlm-reference=other", "-k", "model-data-mean_corruption", models=("model", "other"))
    assert row(plan)[2] == "4"
    assert row(plan, "other")[2] == "2"
    plan = project.run("--vlm-plan", "--vlm-reference=other", "-k", "model-data-mean_drop", models=("model", "other"))
    assert not any(line.startswith("other ") for line in plan.outlines)  # this metric has no use for the reference


def test_patches_count_as_often_as_they_are_asked_about(project: Project) -> None:
    project.write("suite/test_suite.py", PATCHES)
    plan = project.run("--vlm-plan")
    assert row(plan)[2:5] == ["4", str(SAMPLES), str(SAMPLES * (1 + 1 + 4 + 9))]
    assert inferred(project.run()) == SAMPLES * (1 + 1 + 4 + 9)


PATCHES = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "patches")
def test_cell(vlm_cell):
    vlm_cell.check()
"""


def test_tokens_are_means_of_stored_answers(project: Project) -> None:
    from pytest_vlmrobust.core.prediction import Prediction
    from pytest_vlmrobust.store import Store

    with Store.open(project.path / ".vlmrobust") as store:
        context = {"model": "model", "dataset": "data", "setting": "clean"}
        details = [{"prompt_tokens": n, "visual_tokens": 50} for n in (90, 110)]
        store.put_many(
            {f"k{n}": Prediction("A", "generate", details=tokens) for n, tokens in enumerate(details)}, context=context
        )
    plan = project.run("--vlm-plan")
    assert row(plan)[7] == f"{PASSES * 100:,}"
    plan.stdout.fnmatch_lines(["*; 100 prompt tokens an answer, 50 of them visual (mean of 2 stored answers)"])


def test_what_cannot_be_planned_is_said(project: Project) -> None:
    ends(project.run("--vlm-plan", "-k", "nothing_is_called_this"), 5, "0 inferences, *")
    (project.path / "data.jsonl").write_text("{}\n")
    ends(project.run("--vlm-plan"), 5, "cannot be planned: *data.jsonl*")
    project.write("suite/test_broken.py", "import nothing_of_that_name\n")
    assert project.run("--vlm-plan").ret == 2
