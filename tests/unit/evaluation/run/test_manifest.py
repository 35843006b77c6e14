from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_vlmrobust.backends.contract import Guard
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.run import manifest
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.manifest import job


@pytest.fixture(autouse=True)
def forget_commits() -> None:
    manifest._checked_out.cache_clear()


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        ({}, {}),
        (
            {"GITHUB_SHA": "ab", "GITHUB_RUN_ID": "7", "GITHUB_TOKEN": "secret", "CI": "true"},
            {"commit": "ab", "ci": {"GITHUB_RUN_ID": "7"}},
        ),
        (
            {"CI_COMMIT_SHA": "cd", "CI_PIPELINE_ID": "8", "CI_JOB_TOKEN": "secret"},
            {"commit": "cd", "ci": {"CI_PIPELINE_ID": "8"}},
        ),
        ({"GIT_COMMIT": "ef", "BUILD_NUMBER": "9", "JOB_NAME": ""}, {"commit": "ef", "ci": {"BUILD_NUMBER": "9"}}),
    ],
)
def test_a_job_is_known_by_named_variables_alone(environment: dict[str, str], facts: object, tmp_path: Path) -> None:
    assert job(tmp_path, environment) == facts


def test_elsewhere_the_commit_is_that_of_the_checkout(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", "-C", str(tmp_path), *author, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    commit = git("rev-parse", "HEAD")
    assert job(tmp_path, {}) == {"commit": commit}
    (tmp_path / "file").write_text("two")
    manifest._checked_out.cache_clear()
    assert job(tmp_path, {}) == {"commit": f"{commit}-dirty"}


def test_a_backend_that_raises_anything_is_named_in_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_backend: ScriptedBackend) -> dict[str, object]:
        raise ZeroDivisionError("no weights")

    monkeypatch.setattr(ScriptedBackend, "fingerprint", broken)
    refs = {"m": ModelRef("m", "scripted", "")}
    backend = ScriptedBackend(lambda _request: "A", version="1", name="m")
    facts = manifest.measured_facts([], refs, RunData([]), lambda ref: Guard(lambda: backend, ref.name), {}, fingerprints={})
    assert facts["models"]["m"]["fingerprint"] == {  # type: ignore[index]  # objects
        "error": "the backend of model 'm' raised ZeroDivisionError: no weights (test_manifest.py:59) in its fingerprint. "
        "Fix the backend"
    }
    stored = {"m": {"backend": "scripted"}}
    known = manifest.measured_facts([], refs, RunData([]), lambda ref: Guard(lambda: backend, ref.name), {}, fingerprints=stored)
    assert known["models"]["m"]["fingerprint"] == stored["m"]  # type: ignore[index]  # objects
