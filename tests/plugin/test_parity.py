"""The shipped policy ``parity``: a served model against the run of the evaluated one, through the real gate."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from .conftest import Project

SETTINGS = ("flip_v", "invert")
SUITE = f"""
import pytest


@pytest.mark.vlm_settings("clean", "no_image", *{SETTINGS})
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings(*{SETTINGS})
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep):
    vlm_sweep.check()
"""


@pytest.fixture
def gate(pytester: pytest.Pytester) -> Project:
    pytester.makeini("[pytest]\n")
    project = Project(pytester, ())
    project.write("suite/test_corruptions.py", SUITE)
    return project


def ask_about(gate: Project, count: int) -> None:
    """Writes questions, an evaluated model that is right in 60 %, and others that answer as it does but for a few."""
    rng = np.random.default_rng(5)
    (gate.path / "pictures").mkdir()
    rows = []
    for n in range(count):
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(gate.path / f"pictures/{n}.png", compress_level=0)
        kind = {0: "lost", 4: "found"}.get(n % 25, "right" if n % 5 < 3 else "wrong")
        question = {"question": f"{n}?", "options": ["cat", "dog"], "answer": "B"}
        rows.append({"id": f"{kind}-{n}", "image": f"pictures/{n}.png", **question})
    gate.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    models = {"evaluated": ("right", "lost"), "same": ("right", "lost"), "noisy": ("right", "found"), "worse": ("right",)}
    for name, kinds in models.items():
        rules = [{"sample": f"{kind}-*", "answer": "B"} for kind in kinds]
        gate.write(f"{name}.yaml", json.dumps({"default": "A", "rules": rules}))


def compared(gate: Project, model: str) -> pytest.RunResult:
    policy = ("--vlm-thresholds=parity", "--vlm-baseline=first", f"--vlm-report={model}")
    return gate.pytester.runpytest(
        f"--vlm=scripted:{model}.yaml", "--vlm-dataset=data.jsonl", "-p", "no:randomly", *policy, "suite"
    )


def evaluate(gate: Project) -> None:
    gate.pytester.runpytest(
        "--vlm=scripted:evaluated.yaml", "--vlm-dataset=data.jsonl", "--vlm-report=first", "-p", "no:randomly", "suite"
    )


def test_a_model_that_answers_alike_is_on_a_par_and_one_with_flips_is_not(gate: Project) -> None:
    ask_about(gate, 300)
    evaluate(gate)
    same = compared(gate, "same")
    assert same.ret == 0, same.stdout.str()
    same.stdout.fnmatch_lines(["GO *"])
    noisy = compared(gate, "noisy")
    assert noisy.ret == 1
    noisy.stdout.fnmatch_lines(["FAIL noisy-data-clean: baseline_flip_rate 0.080 * > 0.040, *(rule same-answers, *parity.yaml:*"])
    records = json.loads((gate.path / "noisy/results.json").read_text())["records"]
    flips = {
        record["setting"]: measure
        for record in records
        for measure in record["measures"]
        if measure["metric"] == "baseline_flip_rate"
    }
    assert set(flips) == {"clean", "no_image", *SETTINGS}
    for measure in flips.values():
        assert measure["value"] == pytest.approx(0.08)
        assert 0.04 < measure["low"] < 0.08 < measure["high"]
    assert compared(gate, "worse").ret == 1, "4 % that are all lost"


def test_few_samples_do_not_show_parity(gate: Project) -> None:
    ask_about(gate, 40)
    evaluate(gate)
    few = compared(gate, "same")
    assert few.ret == 10
    few.stdout.fnmatch_lines(["INCONCLUSIVE  nothing was broken, but * tests are undecided"])


def test_without_an_earlier_run_nothing_is_on_a_par(gate: Project) -> None:
    ask_about(gate, 40)
    alone = gate.pytester.runpytest(
        "--vlm=scripted:same.yaml", "--vlm-dataset=data.jsonl", "-p", "no:randomly", "--vlm-thresholds=parity", "suite"
    )
    assert alone.ret == 10
    alone.stdout.fnmatch_lines(["*rule same-answers * is not applicable: baseline_flip_rate compares with an earlier run*"])
