"""A report of several models has a page that puts them side by side."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Sequence

import pytest

from pytest_vlmrobust.cli import main

from .conftest import Project
from .test_tampering import load, save

PAGES = {"models.html", "models.md", "models.json"}


def test_the_report_of_two_models_ranks_them(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"}, {"setting": "flip_v", "answer": "A"}, name="other")
    project.run("--vlm-report=out", "--vlm-reference=other", models=("model", "other"))
    data = json.loads((project.path / "out" / "models.json").read_text())
    (board,) = data["boards"]
    assert [(standing["model"], standing["rank"]) for standing in board["standings"]] == [("model", 1), ("other", 2)]
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
        "the models of the run are not ranked: no cell was measured for all of"
        in (project.path / "out" / "report.html").read_text()
    )


def test_a_report_that_is_made_later_has_the_same_page(project: Project) -> None:
    project.script({"setting": "invert", "answer": "A"}, name="other")
    project.run("--vlm-report=out", "--vlm-reference=other", models=("model", "other"))
    main(["report", str(project.the_run), "--out", str(project.path / "later")])
    for name in PAGES:
        assert (project.path / "later" / name).read_bytes() == (project.path / "out" / name).read_bytes()
    assert '<a href="models.html">Models</a>' in (project.path / "later" / "report.html").read_text()


def test_a_report_directory_ranks_as_its_run_does(project: Project) -> None:
    """Family, size and prompt mode are in both manifests, so that a report that CI keeps has the slope and the prompt modes."""
    entries: dict[str, dict[str, object]] = {
        "small": {"parameters_billion": 1},
        "large": {"parameters_billion": 4},
        "thinks": {"parameters_billion": 4, "prompt_mode": "thinking"},
    }
    for name in entries:
        project.script({"setting": "invert", "answer": "A"}, name=name)
    models = {name: {"backend": "scripted", "path": f"{name}.yaml", "family": "fam", **entry} for name, entry in entries.items()}
    (project.path / "models.yaml").write_text(json.dumps({"models": models}))
    named = [f"--vlm={name}" for name in entries]
    project.run("--vlm-report=out", "--vlm-models=models.yaml", "--vlm-answer=text", *named, models=())
    tables = []
    for place, directory in enumerate((project.the_run, project.path / "out")):
        assert main(["rank", str(directory), "--out", str(project.path / f"r{place}")]) == 0
        tables.append(json.loads((project.path / f"r{place}" / "models.json").read_text()))
    assert tables[0]["boards"] == tables[1]["boards"]
    assert tables[0]["left_out"] == tables[1]["left_out"]
    assert {"size_trend", "prompt_modes", "chain_lengths", "effects"} <= {
        row["name"] for row in tables[1]["boards"][0]["analyses"]
    }


def test_pages_of_several_models_are_in_a_bundle_and_verified(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.script({"setting": "invert", "answer": "A"}, name="other")
    project.run("--vlm-report=out", "--vlm-reference=other", models=("model", "other"))
    bundle = project.path / "b.zip"
    main(["bundle", str(project.the_run), "--out", str(bundle)])
    assert {*zipfile.ZipFile(bundle).namelist()} >= PAGES
    assert main(["verify", str(bundle)]) == 0
    main(["bundle", str(project.path / "out"), "--out", str(bundle)])
    assert {*PAGES, "report.html"} <= {*zipfile.ZipFile(bundle).namelist()}
    assert main(["verify", str(bundle)]) == 0
    for name, before, after in [
        ("report.html", b'<a href="models.html">Models</a>', b""),
        ("models.html", b"Models side by side", b"Models one by one"),
        ("models.md", b"2 models", b"3 models"),
        ("models.json", b'"rank": 1', b'"rank": 2'),
    ]:
        files = load(bundle)
        assert before in files[name], name
        files[name] = files[name].replace(before, after, 1)
        capsys.readouterr()
        assert main(["verify", str(save(files, project.path / "t.zip"))]) == 1
        assert f"DIFFERS  {name} is not what the records give" in capsys.readouterr().out


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_report_of_workers_is_verified(project: Project, workers: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A process that asks knows the questions, and so another fingerprint of a scripted model than the one that reports."""
    project.script({"setting": "invert", "answer": "A"}, {"right": 0.9}, name="other")
    project.run("--vlm-report=out", "--vlm-aa", *workers, models=("other", "model"))
    project.verify(project.path / "out")
    assert "everything agrees" in capsys.readouterr().out


def test_a_report_without_answers_says_that_nothing_is_ranked(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.script(name="other")
    project.run(models=("model", "other"))
    run = project.the_run
    moved = shutil.copytree(run, project.path / "moved")
    (moved / "predictions.sqlite").unlink()
    assert main(["report", str(moved)]) == 0
    assert "predictions.sqlite" in capsys.readouterr().err
    assert "the models of the run are not ranked: its answers cannot be read" in (moved / "report.html").read_text()
