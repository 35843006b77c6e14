"""A worker of pytest-xdist that dies in the middle of an inference leaves a lease behind, and those who wait for it go on."""

from __future__ import annotations

import os
import sys

import pytest

from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from tests.forked import run_forked

from .conftest import Project, ends

SUITE = """
import pytest


@pytest.mark.vlm_settings("grayscale", "invert")
@pytest.mark.vlm_metrics("worst_case_drop", "severe_failure_rate")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
DEADLY_BACKEND = """
import os
import signal
import time
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend
from pytest_vlmrobust.evaluation.run import leases

leases.NOTICE_SECONDS = 0.0  # so that whoever waits says so at once
look = leases.Wait.lapsed


def lapsed(wait, holders, answers):
    found = look(wait, holders, answers)
    if Path("asked").exists():
        Path("waited").touch()
    return found


leases.Wait.lapsed = lapsed


def deadly(ref, options):
    def script(request):
        if request.setting == "invert" and not Path("asked").exists():
            Path("asked").write_text(str(os.getpid()))
            deadline = time.monotonic() + 60
            while not Path("waited").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return "B" if request.images else "A"

    return ScriptedBackend(script, version="deadly", name=ref.name)


backends.add("deadly", deadly, replace=True)
"""
MODELS = "models:\n  deadly-model: {backend: deadly, path: models.yaml}\n"
SECONDS = 300
"""Far more than the run takes on a busy machine, and far less than the hour for which leases once ran."""


def test_nobody_waits_for_a_worker_that_was_killed(project: Project) -> None:
    project.write("conftest.py", DEADLY_BACKEND)
    project.write("models.yaml", MODELS)
    project.write("suite/test_suite.py", SUITE)
    result = run_forked(
        project.pytester,
        "--vlm=deadly-model",
        "--vlm-models=models.yaml",
        "--vlm-dataset=data.jsonl",
        "--vlm-thresholds=policy.yaml",
        "-p",
        "no:randomly",
        "-n2",
        "suite",
        timeout=SECONDS,
    )
    killed = (project.path / "asked").read_text()
    assert result.ret == EXIT_CODES[Decision.INCOMPLETE]
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*the worker that ran it died: worker 'gw?' crashed while running*"])
    result.stderr.fnmatch_lines([f"vlm: gw?: waiting for * that process {killed} of * is working on; taken over *"])


DIES_AT_ONCE = """
import os
import sys

if "exec(eval(sys.stdin.readline()))" in " ".join(sys.orig_argv):  # how execnet starts a worker
    os._exit(1)
"""


def test_a_worker_that_dies_while_it_is_started_leaves_a_run_incomplete(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """xdist itself ends in an internal error then."""
    project.script()
    project.write("early/sitecustomize.py", DIES_AT_ONCE)
    monkeypatch.setenv("PYTHONPATH", str(project.path / "early"), prepend=os.pathsep)
    workers = ("--dist=load", f"--tx=2*popen//python={sys.executable}")
    result = ends(project.run(*workers, subprocess=True), EXIT_CODES[Decision.INCOMPLETE])
    result.stderr.fnmatch_lines(["*INCOMPLETE: a worker of pytest-xdist died while it was started (*). Run it again"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
