"""The steps of `vlmrobust submit`, run here with the variables that schedulers set, and ended as schedulers end them."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import pytest_vlmrobust
from pytest_vlmrobust.cli import main

from .conftest import UNUSED, Project

SLOW_BACKEND = """
import time
from pathlib import Path

from pytest_vlmrobust.backends import backends
from pytest_vlmrobust.backends.scripted import ScriptedBackend


def slow(ref, options):
    def script(request):
        time.sleep(float(Path("delay").read_text()))
        with Path("inferred").open("a") as stream:
            stream.write("x")
        return "B" if request.images else "A"

    return ScriptedBackend(script, version="slow", name=ref.name)


backends.add("slow", slow, replace=True)
"""
BATCH = 2
OPTIONS = (
    *("--vlm=slow-model", "--vlm-models=models.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml"),
    *(f"--vlm-batch-size={BATCH}", "-p", "no:cacheprovider", *UNUSED, "suite"),
)
FIRST_PART = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1", "SLURM_ARRAY_TASK_MIN": "0"}
MIDDLE = 12
"""Inferences after which a part is in the middle: there are more than four times as many."""


class Part:
    """The first part of a gate whose model takes its time, and says how often it was called."""

    def __init__(self, project: Project, scheduler: str = "slurm", *arguments: str, parts: int = 1) -> None:
        self.path = project.path
        project.write("conftest.py", SLOW_BACKEND)
        project.write("models.yaml", "models:\n  slow-model: {backend: slow, path: models.yaml}\n")
        for name in ("nothing", "tmp"):
            (project.path / name).mkdir()
        self.shared = project.path / "shared"
        self.copy = self.shared / "parts/0/predictions.sqlite"
        self.take(0.2)
        given = (f"--parts={parts}", f"--shared={self.shared}", "--out=jobs", *arguments)
        assert main(["submit", scheduler, *given, "--", *OPTIONS]) == 0

    def take(self, seconds: float) -> None:
        """Sets how long an answer takes from now on."""
        (self.path / "delay").write_text(str(seconds))

    @property
    def inferred(self) -> int:
        """How often the model answered, in all starts."""
        try:
            return (self.path / "inferred").stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def copied(self) -> int:
        """How many answers the shared directory has; fails where they cannot be read."""
        if not self.copy.exists():
            return 0
        with contextlib.closing(sqlite3.connect(f"{self.copy.as_uri()}?mode=ro", uri=True)) as copy:
            assert copy.execute("pragma integrity_check").fetchone() == ("ok",)
            return int(copy.execute("select count(*) from predictions").fetchone()[0])

    def start(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Starts the script of a part, or another command, in a process group of its own."""
        bash = shutil.which("bash")
        assert bash
        return subprocess.Popen(
            [bash, *(command or ("jobs/fill.sbatch",))],
            cwd=self.path,
            env=environment(self.path, **(variables or FIRST_PART)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def finish(self, output: str, kept: int, before: int) -> None:
        """Checks that a next start, which said this, went on from so many answers and so many inferences."""
        match = re.search(r"(\d+) answers, (\d+) of them inferred, 0 are missing", output)
        assert match, output
        assert f"goes on from {kept} answers" in output
        assert int(match[2]) == int(match[1]) - kept == self.inferred - before, output
        assert self.copied == int(match[1])


def wait_until(condition: Callable[[], object], what: str, seconds: float = 180) -> None:
    """Waits for a condition, with a limit that only a machine in trouble reaches."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.05)


def environment(path: Path, **variables: str) -> dict[str, str]:
    """Returns the variables under which a job finds this package and this interpreter."""
    root = str(Path(pytest_vlmrobust.__file__).parents[1])
    return {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": root, "TMPDIR": str(path / "tmp"), **variables}


def run(project: Project, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash
    return subprocess.run(
        [bash, f"jobs/{script}"],
        cwd=project.path,
        env=environment(project.path, **variables),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_parts_of_an_array_are_merged_and_judged(project: Project) -> None:
    (project.path / "tmp").mkdir()
    options = ("--vlm=scripted:model.yaml", "--vlm-dataset=data.jsonl", "--vlm-thresholds=policy.yaml", *UNUSED, "suite")
    shared = project.path / "shared"
    assert main(["submit", "slurm", "--parts=2", f"--shared={shared}", "--out=jobs", "--", *options]) == 0
    first = run(project, "fill.sbatch", SLURM_ARRAY_TASK_ID="0", SLURM_ARRAY_TASK_COUNT="2", SLURM_ARRAY_TASK_MIN="0")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "part 1/2, as SLURM_ARRAY_TASK_ID says" in first.stdout
    lost = run(project, "judge.sbatch")
    assert lost.returncode == 11, lost.stdout + lost.stderr
    second = run(project, "fill.sbatch", SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_TASK_COUNT="2", SLURM_ARRAY_TASK_MIN="0")
    assert second.returncode == 0
    again = run(project, "fill.sbatch", SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_TASK_COUNT="2", SLURM_ARRAY_TASK_MIN="0")
    assert " 0 of them inferred, 0 are missing" in again.stdout, "a part that is started again asks nothing twice"
    judged = run(project, "judge.sbatch")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "0 inferences; " in judged.stdout
    assert (shared / "report/results.json").is_file()
    assert (shared / "store/predictions.sqlite").is_file()
    assert sorted(path.name for path in (shared / "parts").iterdir()) == ["0", "1"]
    assert not list((project.path / "tmp").iterdir()), "nothing is left on the local disk"


@pytest.mark.slow
@pytest.mark.parametrize("signals", [1, 3])
@pytest.mark.parametrize("reach", ["all processes, as SLURM", "the first process, as Kubernetes"])
def test_a_part_that_is_ended_leaves_its_answers_and_the_next_start_goes_on(project: Project, reach: str, signals: int) -> None:
    if "SLURM" in reach:
        part = Part(project)
        command: tuple[str, ...] = ("jobs/fill.sbatch",)
        variables = FIRST_PART
    else:
        part = Part(project, "kubernetes", "--image=registry/gate:1", "--claim=disk", f"--shared={project.path / 'shared'}")
        job = yaml.safe_load((project.path / "jobs/fill.yaml").read_text())
        bash, *command_ = job["spec"]["template"]["spec"]["containers"][0]["command"]
        assert bash == "bash"
        command, variables = tuple(command_), {"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "1"}
    process = part.start(*command, **variables)
    wait_until(lambda: part.inferred >= MIDDLE, "the part was in the middle")
    for _ in range(signals):
        (os.killpg if "SLURM" in reach else os.kill)(process.pid, signal.SIGTERM)
        time.sleep(0.02)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0, output
    kept, before = part.copied, part.inferred
    assert MIDDLE - BATCH <= kept <= before, output
    assert f"parts/0: has {kept} answers" in output
    assert "nothing was measured" not in output
    if signals == 1:
        assert process.returncode == 2, output
        assert before - kept <= BATCH
        assert f"pytest was interrupted (by SIGTERM): the store has {kept} answers. The next start" in output
    assert not list((project.path / "tmp").iterdir()), "nothing is left on the local disk"
    part.take(0)
    process = part.start(*command, **variables)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    part.finish(output, kept, before)


@pytest.mark.slow
def test_a_node_that_dies_costs_what_was_answered_since_the_last_copy(project: Project) -> None:
    part = Part(project)
    script = project.path / "jobs/fill.sbatch"
    script.write_text(script.read_text().replace("cli fill", "cli fill --every 1"))
    for least in (MIDDLE, 2 * MIDDLE):
        process = part.start()
        wait_until(lambda least=least: part.copied >= least, "there was another copy")  # type: ignore[misc]  # mypy issue 12557
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
        assert part.copied >= least
    kept, before = part.copied, part.inferred
    part.take(0)
    process = part.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    part.finish(output, kept, before)
