"""A report directory is a run for every command, also where nothing else of the run was kept, as in CI."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.commands.runs import _runs_at

from .conftest import Project, ends
from .test_submitting import wait_until

COMMANDS: Sequence[Sequence[str]] = (
    ("bundle", "rep", "--out", "evidence.zip"),
    ("verify", "evidence.zip"),
    ("comment", "rep", "--against", "rep", "--out", "comment.md"),
    ("export", "sarif", "rep", "--out", "gate.sarif"),
    ("export", "nel", "rep", "--out", "nel", "--model", "model"),
    ("junit", "rep", "--out", "again.xml"),
    ("report", "rep"),
    ("check", "policy.yaml", "--noise", "rep"),
    ("compare", "rep", "rep"),
    ("rank", "rep"),
    ("power", "policy.yaml", "--profile", "rep", "--runs", "20", "--no-search"),
)


@pytest.mark.parametrize("again", [False, True], ids=["report", "written again"])
def test_each_command_takes_what_a_report_left(project: Project, monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    models = ("other", "model")
    for name in models:
        project.script(name=name)
    assert project.run("--vlm-report=rep", "--vlm-aa", models=models).ret == 0
    monkeypatch.chdir(project.path)
    if again:
        names = {path.name for path in Path("rep").iterdir()}
        shutil.rmtree("rep")
        assert main(["report", str(project.the_run), "--out", "rep"]) == 0
        assert {path.name for path in Path("rep").iterdir()} == names
    shutil.rmtree(".vlmrobust")
    for command in COMMANDS:
        assert main(list(command)) == 0, command
    assert Path("again.xml").read_bytes() == Path("rep/junit.xml").read_bytes()
    find, together = _runs_at([Path("rep")])
    assert (find(), together) == ([Path("rep")], True)


@pytest.mark.parametrize(
    "command",
    [
        ("report", "rep"),
        ("junit", "rep"),
        ("comment", "rep"),
        ("export", "sarif", "rep"),
        ("export", "wandb", "rep"),
        ("runs", "--store", "store"),
    ],
    ids=" ".join,
)
def test_a_report_that_lost_its_answers_says_so(
    project: Project, command: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "wandb" in command:
        pytest.importorskip("wandb", reason="needs W&B: pip install wandb")
    assert project.run("--vlm-report=rep").ret == 0
    monkeypatch.chdir(project.path)
    Path("rep/predictions.sqlite").unlink()
    Path("store/runs").mkdir(parents=True)
    shutil.copytree("rep", "store/runs/lost")
    capsys.readouterr()
    assert main(list(command)) == 0
    out, error = capsys.readouterr()
    assert "/predictions.sqlite: is missing: nothing shows what the models answered. Copy it from the run's directory" in error
    written = {"report": "rep/report.html", "comment": None}.get(command[0], "")
    if written != "":
        assert "the answers of the run cannot be read" in (Path(written).read_text() if written else out)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_server_of_mlflow_takes_what_a_report_left(project: Project) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install mlflow")
    pytest.importorskip("flask", reason="needs the server of MLflow: pip install mlflow")
    assert project.run("--vlm-report=rep", subprocess=True).ret == 0
    shutil.rmtree(project.path / ".vlmrobust")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = ["--backend-store-uri=sqlite:///server.db", "--artifacts-destination=artifacts"]
    command = [sys.executable, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={port}", "--workers=1", *store]
    server = subprocess.Popen(command, cwd=project.path)

    def answers() -> bool:
        assert server.poll() is None, "the server of MLflow ended"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, "the server of MLflow answered")
        uri = f"http://127.0.0.1:{port}"
        assert main(["export", "mlflow", str(project.path / "rep"), "--uri", uri]) == 0
        client = mlflow.MlflowClient(uri)
        (kept,) = client.search_runs([client.get_experiment_by_name("vlmrobust").experiment_id])
        assert (kept.info.status, kept.data.tags["vlm.decision"]) == ("FINISHED", "GO")
        assert kept.data.metrics["data/accuracy_drop/invert"] == 0
        assert "report.html" in {each.path for each in client.list_artifacts(kept.info.run_id)}
    finally:
        server.terminate()
        server.wait(60)


def test_a_report_replaces_the_run_of_an_earlier_one(project: Project) -> None:
    project.script()
    project.run("--vlm-report=rep")
    first = (project.path / "rep" / "records.jsonl").read_bytes()
    (old,) = (project.path / "rep" / "policies").iterdir()
    project.write("policy.yaml", (project.path / "policy.yaml").read_text() + "# another file\n")
    project.run("--vlm-report=rep", "-k", "invert")
    (new,) = (project.path / "rep" / "policies").iterdir()
    assert new.name != old.name
    assert (project.path / "rep" / "records.jsonl").read_bytes() != first


def test_the_directory_of_a_run_is_no_place_for_a_report(project: Project) -> None:
    project.script()
    project.run()
    run = project.the_run
    ends(project.run(f"--vlm-report={run}"), 4, "*an earlier run keeps its evidence there*")


def test_a_report_written_again_replaces_none_of_another_run(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.script()
    project.run("--vlm-report=rep")
    monkeypatch.chdir(project.path)
    run = str(project.the_run)
    for _ in range(2):  # the second time it replaces itself
        assert main(["report", run, "--out", "again"]) == 0
    project.run("--vlm-report=other")
    other = Path("other/manifest.json").read_bytes()
    assert main(["report", run, "--out", "other"]) == 4
    assert "--out 'other': has the report of run " in capsys.readouterr().err
    assert Path("other/manifest.json").read_bytes() == other
    Path("mine").mkdir()
    Path("mine/report.html").write_text("mine")
    assert main(["report", run, "--out", "mine"]) == 4
    assert "report.html there would be replaced, and no manifest.json says that a report left it there" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == ["report.html"]
    assert main(["report", run, "--out", ".vlmrobust"]) == 4
    assert main(["report", "rep", "--out", run]) == 4
    assert "an earlier run keeps its evidence there" in capsys.readouterr().err
