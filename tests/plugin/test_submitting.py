"""The steps of `vlmrobust submit slurm`, run here with the variables that SLURM sets: two parts, a merge, and a judgement."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_vlmrobust
from pytest_vlmrobust.cli import main

from .conftest import UNUSED, Project


def run(project: Project, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(pytest_vlmrobust.__file__).parents[1])
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": root, "TMPDIR": str(project.path / "tmp"), **variables}
    bash = shutil.which("bash")
    assert bash
    return subprocess.run(
        [bash, f"jobs/{script}"], cwd=project.path, env=environment, capture_output=True, text=True, check=False
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
