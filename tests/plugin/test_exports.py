"""What a run exports is what it measured: another program that pairs it finds what we find."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.cli import main

from .conftest import SAMPLES, Project, execute

Captured = pytest.CaptureFixture[str]


def two_runs(project: Project) -> tuple[Path, Path]:
    """An earlier model, and a later one that answers worse and once not at all."""
    project.script({"setting": "invert", "sample": "q0", "answer": "A"}, name="old")
    project.script(
        {"setting": "invert", "sample": "q[1-3]", "answer": "A"},
        {"setting": "grayscale", "sample": "q1", "answer": "\x1b[31m I could not\u2028<say> & will not."},
        {"setting": "solarize:low", "sample": "q2", "error": "the endpoint is down"},
        name="new",
    )
    for name in ("old", "new"):
        project.run(f"--vlm-report={name}", models=(name,))
    return project.path / "old", project.path / "new"


def compared(project: Project, old: Path, new: Path) -> dict[str, dict[str, Any]]:
    """Returns what `vlmrobust compare` says of each cell, from a process of its own: later runs import the same again."""
    command = (sys.executable, "-m", "pytest_vlmrobust.cli", "compare", old, new, "--out", project.path / "compared")
    assert project.pytester.run(*command).ret == 0
    cells = json.loads((project.path / "compared" / "comparison.json").read_text(encoding="utf-8"))["cells"]
    return {f"{cell['dataset']}-{cell['setting']}": cell for cell in cells}


def exported(out: Path) -> dict[str, dict[int, float]]:
    """Returns problem to reward of each benchmark, read as nel reads them."""
    rewards = {}
    for path in out.glob("*/eval-*.json"):
        lines = map(json.loads, (path.parent / "results.jsonl").read_text(encoding="utf-8").splitlines())
        rewards[json.loads(path.read_text())["benchmark"]["name"]] = {line["problem_idx"]: line["reward"] for line in lines}
    return rewards


def test_pairs_by_number_give_the_differences_that_we_find(project: Project, capsys: Captured) -> None:
    old, new = two_runs(project)
    capsys.readouterr()
    for run in (old, new):
        assert main(["export", "nel", str(run), "--out", f"{run}-nel"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{old}-nel: 6 benchmarks, 48 results",
        f"{new}-nel: 6 benchmarks, 47 results",
        "note: data-solarize:low: 1 of 8 samples left out: inferences failed, which nel cannot express",
    ]
    then, now = exported(Path(f"{old}-nel")), exported(Path(f"{new}-nel"))
    ours = compared(project, old, new)
    assert ours.keys() == then.keys() == now.keys()
    for name, cell in ours.items():
        paired = then[name].keys() & now[name].keys()
        losses = [then[name][number] - now[name][number] for number in paired]
        assert len(paired) == cell["n"]
        assert (sum(loss > 0 for loss in losses), sum(loss < 0 for loss in losses)) == (len(cell["broken"]), len(cell["fixed"]))
        if cell["n"] == SAMPLES:
            assert sum(losses) / SAMPLES == pytest.approx(cell["baseline_drop"]["value"])
    assert [name for name, cell in ours.items() if cell["broken"]] == ["data-invert", "data-grayscale"]


def test_the_reader_of_nemo_finds_the_flips_that_we_find(project: Project) -> None:
    nel = shutil.which("nel") or pytest.skip("needs nel: pip install nemo-evaluator==0.3.0, with Python 3.12")
    old, new = two_runs(project)
    for run in (old, new):
        assert main(["export", "nel", str(run), "--out", f"{run}-nel"]) == 0
    out = project.path / "nel.json"
    command = [nel, "compare", f"{old}-nel", f"{new}-nel", "--no-report", "--no-strict", "-o", str(out)]
    without_us = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it has another Python
    subprocess.run(command, check=True, capture_output=True, env=without_us)
    theirs, ours = json.loads(out.read_text()), compared(project, old, new)
    assert theirs.keys() == ours.keys()
    for name, cell in ours.items():
        flips = theirs[name]["flip_report"]
        assert (len(flips["regressions"]), len(flips["improvements"])) == (len(cell["broken"]), len(cell["fixed"])), name


def test_a_run_of_two_models_is_exported_one_by_one(project: Project, capsys: Captured) -> None:
    project.script(name="other")
    project.run("--vlm-report=both", models=("model", "other"))
    capsys.readouterr()
    both, out = str(project.path / "both"), str(project.path / "nel")
    assert main(["export", "nel", both, "--out", out]) == 4
    assert "has 2 models, model, other, and nel compares one with one. Name one of them with --model" in capsys.readouterr().err
    assert main(["export", "nel", both, "--out", out, "--model", "other"]) == 0
    assert set(exported(Path(out))) == {
        *("data-clean", "data-no_image", "data-grayscale", "data-flip_v", "data-invert", "data-solarize:low"),
    }


def test_the_metric_of_the_data_set_is_said_where_it_is_no_mean(project: Project, capsys: Captured) -> None:
    project.run("--vlm-report=r")
    execute(project.path / "r", "update datasets set metric = 'pope_f1'")
    capsys.readouterr()
    assert main(["export", "nel", str(project.path / "r"), "--out", str(project.path / "nel")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["note: data: nel compares the mean of the samples' scores, which is not pope_f1"]


def test_a_comment_compares_with_the_last_go_on_main(project: Project, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/r")
    for name, ref, wrong in (
        ("good", "refs/heads/main", []),
        ("bad", "refs/heads/main", [{"setting": "invert", "answer": "A"}]),
        ("ours", "refs/pull/3/merge", [{"setting": "flip_v", "answer": "A"}]),
    ):
        monkeypatch.setenv("GITHUB_REF", ref)
        project.script(*wrong)
        project.run(f"--vlm-report={name}")
    good, bad, ours = sorted((project.path / ".vlmrobust" / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)
    monkeypatch.chdir(project.path)
    capsys.readouterr()

    def comment(*arguments: str) -> str:
        assert main(["comment", str(ours), *arguments]) == 0
        return capsys.readouterr().out

    said = comment()
    assert f"That is run `{good.name}`, GO." in said
    assert "`model-data-flip_v` | PASS" in said
    assert f"That is run `{bad.name}`, NO-GO." in comment("--against", str(bad))
    assert "holds no run of CI on dev that ended GO" in comment("--branch", "dev")
    monkeypatch.setenv("GITHUB_REPOSITORY", "o/fork")
    monkeypatch.setenv("GITHUB_REF", "refs/heads/main")
    project.script()
    project.run()
    assert f"That is run `{good.name}`, GO." in comment(), "main of another repository is not ours"
    assert main(["comment", str(ours), "--out", "deep/comment.md"]) == 0
    assert (project.path / "deep" / "comment.md").read_text(encoding="utf-8").startswith("<!-- vlmrobust comment: gate -->")
    assert main(["comment", str(ours), "--out", "deep/comment.md", "--images", "https://h/{}?raw=true"]) == 0
    text = (project.path / "deep/comment.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[(clean|flip_v)\]\(<https://h/([0-9a-f]+\.webp)\?raw=true>\)", text)
    assert [about for about, _ in shown] == ["clean", "flip_v"] * 2, "of the two worst questions"
    assert {file for _, file in shown} == {path.name for path in (project.path / "deep").glob("*.webp")}
    assert main(["comment", str(ours), "--report", "javascript:alert(1)"]) == 2
    assert main(["comment", str(ours), "--out", "deep/comment.md", "--images", "https://h/"]) == 4
    assert "{} where the name of an image belongs" in capsys.readouterr().err
