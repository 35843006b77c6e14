"""Whatever a file holds, its reader returns or raises an error of the project, soon, and in little memory."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from .readers import READERS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = 500 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 12
OF_A_RUN = ("evidence", "journal", "bundle")
"""Readers whose valid input a gate writes first, in a process that is forked from one without threads."""
DEEP, DIGITS = b"[" * 5000, b"9" * 15_000
REGRESSIONS = [
    ("thresholds.yaml", b"version: 1\nrules: " + DEEP),  # took 3 s: PyYAML looks at each open bracket for each further one
    ("models.yaml", b"models: {m: " + DEEP),
    (
        "thresholds.yaml",
        b"version: 1\nrules: [{id: r, metric: pcri, max: " + DIGITS + b"x}]",
    ),  # many seconds: each part was tried
    ("TSV", b"index\timage\tquestion\tA\tB\tanswer\nq\tx\tWhat?\t" + DIGITS + b"x\tdog\tB\n"),
    ("answers.yaml", b"rules:\n- {text: " + DEEP.replace(b"[", b"{a: ")),
]
"""Inputs on which a reader once failed."""


@pytest.mark.parametrize("name", [name for name in READERS if name not in OF_A_RUN])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(rng=st.randoms(use_true_random=False))
@example(rng=random.Random(0))
def test_a_changed_input_is_read_or_refused(name: str, rng: random.Random) -> None:
    reader = READERS[name]
    assert reader.try_input(reader.change(reader.valid(), rng))[0] in {"read", "refused"}


@pytest.mark.parametrize(("name", "content"), REGRESSIONS)
def test_an_input_that_once_failed_is_refused(name: str, content: bytes) -> None:
    assert READERS[name].try_input(content)[0] == "refused"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked")
@pytest.mark.parametrize("name", READERS)
def test_many_inputs_fail_no_reader_and_fill_no_memory(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.readers", "--seconds=15", f"--only={name}", "--seed=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
