"""The campaign of faults: a trial of each quick fault in every run, and all faults where slow tests are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .campaign import DAMAGES, ELSEWHERE, FAULTS, FOLDERS

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("killed", "disk full", "store damaged")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked, and looked up in /proc")


def campaign(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.campaign", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_trial_of_each_quick_fault_is_survived() -> None:
    campaign("--seed=5", *(f"--only={fault}" for fault in QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_survived_at_any_moment(fault: str) -> None:
    trials = len({**DAMAGES, **ELSEWHERE, **FOLDERS}) if "damaged" in fault else 8
    if f"| {fault} |" not in campaign("--seed=6", f"--only={fault}", f"--trials={trials}"):
        pytest.skip("this machine cannot do that")
