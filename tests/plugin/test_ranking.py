"""A report of several models has a page that puts them side by side."""

from __future__ import annotations

import json

from .conftest import Project


def test_the_report_of_two_models_ranks_them(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"}, {"setting": "flip_v", "answer": "A"}, name="other")
    project.run("--vlm-report=out", "--vlm-reference=other", models=("model", "other"))
    data = json.loads((project.path / "out" / "models.json").read_text())
    (board,) = data["boards"]
    assert [(one["model"], one["rank"]) for one in board["standings"]] == [("model", 1), ("other", 2)]
    assert (board["samples"], board["settings"], data["reference"]) == (8, 4, "other")
    assert '<a href="models.html">Models</a>' in (project.path / "out" / "report.html").read_text()
    assert "Models side by side" in (project.path / "out" / "models.html").read_text()
    assert str(project.path) not in (project.path / "out" / "models.html").read_text()


def test_the_report_of_one_model_has_no_such_page(project: Project) -> None:
    project.run("--vlm-report=out")
    assert (project.path / "out" / "report.html").is_file()
    assert not (project.path / "out" / "models.html").exists()


def test_models_that_were_asked_nothing_in_common_are_a_warning(project: Project) -> None:
    project.script(name="other")
    project.run("--vlm-report=out", "-k", "no_image", models=("model", "other"))
    assert not (project.path / "out" / "models.html").exists()
    assert (
        "the models of the run are not ranked: there is nothing that all of" in (project.path / "out" / "report.html").read_text()
    )
