"""Whatever became of the directory of a run, whoever reads it does what it is for or says in a sentence why it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
@pytest.mark.parametrize(
    "options",
    [("--most=4", "--gates=5", "--seconds=1000"), pytest.param(("--seed=1", "--seconds=60"), marks=pytest.mark.slow)],
)
def test_damaged_runs_are_read_or_refused(options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "tests.fuzz.damaged_runs", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
