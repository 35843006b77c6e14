"""A report directory is a run for every command, also where nothing else of the run was kept, as in CI."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.commands.viewing import _found

from .conftest import Project

COMMANDS: Sequence[Sequence[str]] = (
    ("bundle", "rep", "--out", "evidence.zip"),
    ("verify", "evidence.zip"),
    ("comment", "rep", "--against", "rep", "--out", "comment.md"),
    ("export", "sarif", "rep", "--out", "gate.sarif"),
    ("export", "nel", "rep", "--out", "nel", "--model", "model"),
    ("junit", "rep", "--out", "again.xml"),
    ("report", "rep", "--out", "again"),
    ("check", "policy.yaml", "--noise", "rep"),
    ("compare", "rep", "rep"),
    ("rank", "rep"),
    ("power", "policy.yaml", "--profile", "rep", "--runs", "20", "--no-search"),
)


def test_each_command_takes_what_a_report_left(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    models = ("model", "other")
    for name in models:
        project.script(name=name)
    assert project.run("--vlm-report=rep", "--vlm-aa", models=models).ret == 0
    shutil.rmtree(project.path / ".vlmrobust")
    monkeypatch.chdir(project.path)
    for command in COMMANDS:
        assert main(list(command)) == 0, command
    find, together = _found([Path("rep")])
    assert (find(), together) == ([Path("rep")], True)


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
    (run,) = (project.path / ".vlmrobust" / "runs").iterdir()
    result = project.run(f"--vlm-report={run}")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*an earlier run keeps its evidence there*"])
