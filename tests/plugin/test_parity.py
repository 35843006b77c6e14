"""The shipped policy ``parity``: a served model against the run of the evaluated one, through the real gate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pytest_vlmrobust.backends import resolve
from pytest_vlmrobust.demo.shapes import REFERENCE_KINDS, Shapes
from tests.forked import run_forked

from .conftest import UNUSED, Project, ends

SETTINGS = ("flip_v", "invert")


def suite(cells: tuple[str, ...], settings: tuple[str, ...]) -> str:
    return f"""
import pytest


@pytest.mark.vlm_settings(*{cells})
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings(*{settings})
@pytest.mark.vlm_metrics("mean_baseline_drop")
def test_since_baseline(vlm_sweep):
    vlm_sweep.check()
"""


@pytest.fixture
def gate(pytester: pytest.Pytester) -> Project:
    pytester.makeini("[pytest]\n")
    project = Project(pytester, ())
    project.write("suite/test_corruptions.py", suite(("clean", "no_image", *SETTINGS), SETTINGS))
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
    ends(compared(gate, "same"), 0, "GO *")
    ends(
        compared(gate, "noisy"), 1, "FAIL noisy-data-clean: baseline_flip_rate 8.0 % * > 4 %, *(rule same-answers, *parity.yaml:*"
    )
    records = gate.results("noisy")["records"]
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


def test_few_samples_do_not_show_parity_and_without_an_earlier_run_nothing_is_on_a_par(gate: Project) -> None:
    ask_about(gate, 40)
    evaluate(gate)
    ends(compared(gate, "same"), 10, "INCONCLUSIVE  no failures, but * tests are undecided")
    given = ("--vlm=scripted:same.yaml", "--vlm-dataset=data.jsonl", "-p", "no:randomly", "--vlm-thresholds=parity", "suite")
    said = "*rule same-answers * is not applicable: baseline_flip_rate compares with an earlier run*"
    ends(gate.pytester.runpytest(*given), 10, said)


# Checkpoints: the embedded model, and copies of it with fewer bits.

TINY = Path(resolve("tiny").location)
PER_KIND = 48


def quantised(folder: Path, bits: int) -> Path:
    """Copies the embedded model with each row of each matrix rounded to so many bits, with a scale of its own."""
    import torch
    from safetensors.torch import load_file, save_file

    def rounded(weight: torch.Tensor) -> torch.Tensor:
        if weight.dim() < 2:
            return weight
        rows = weight.float().flatten(1)
        step = rows.abs().amax(1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
        nearest: torch.Tensor = (rows / step).round() * step
        return nearest.reshape(weight.shape).to(weight.dtype).contiguous()

    shutil.copytree(TINY, folder)
    weights = load_file(TINY / "model.safetensors")
    save_file({name: rounded(weight) for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def write_shapes(gate: Project) -> None:
    """Writes more questions about the embedded shapes than the embedded set has: a few hundred are needed to show parity."""
    rows = []
    (gate.path / "pictures").mkdir()
    for sample in Shapes("more", PER_KIND, tuple(kind for kind in REFERENCE_KINDS if kind != "existence")).samples():
        Image.fromarray(sample.images[0].load()).save(gate.path / f"pictures/{sample.id}.png", compress_level=1)
        question = {"question": sample.question, "options": list(sample.options.values()), "answer": sample.target}
        rows.append({"id": sample.id, "image": f"pictures/{sample.id}.png", **question})
    gate.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.slow
def test_a_checkpoint_of_12_bits_is_on_a_par_with_the_evaluated_one_and_one_of_3_bits_is_not(gate: Project) -> None:
    # blind answers are left out: the embedded model finds some letters equally probable then, and any rounding decides
    settings = ("jpeg_compression:mid",)
    gate.write("suite/test_corruptions.py", suite(("clean", *settings), settings))
    write_shapes(gate)
    shutil.copytree(TINY, gate.path / "evaluated")

    def run(model: str, *options: str) -> pytest.RunResult:
        given = ("--vlm-dataset=data.jsonl", "--vlm-dtype=float32", "--vlm-device=cpu", f"--vlm-report=of-{model}")
        return run_forked(gate.pytester, f"--vlm=./{model}", *given, "-p", "no:randomly", *UNUSED, *options, "suite")

    def fingerprint(model: str) -> object:
        return json.loads((gate.path / f"of-{model}/manifest.json").read_text())["models"][model]["fingerprint"]

    run("evaluated")
    compare = ("--vlm-thresholds=parity", "--vlm-baseline=of-evaluated")
    quantised(gate.path / "fine", 12)
    ends(run("fine", *compare), 0, "GO *")
    measures = [
        measure
        for record in gate.results("of-fine")["records"]
        for measure in record["measures"]
        if measure["metric"] == "baseline_flip_rate"
    ]
    assert len(measures) == 2
    assert max(measure["value"] for measure in measures) < 0.02
    assert fingerprint("fine") != fingerprint("evaluated")
    quantised(gate.path / "coarse", 3)
    ends(run("coarse", *compare), 1, "    baseline_flip_rate * n=336  FAIL 0.04", "NO-GO *")
