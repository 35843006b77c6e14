"""A model that stays sure on blurred pictures is no go by the policy of confidence; one that knows when it cannot see is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.small_gate import write_questions

from .conftest import Project, ends

POLICY = Path(__file__).parents[2] / "thresholds" / "confident.yaml"
SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "gaussian_blur:low", "gaussian_blur:high")
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("gaussian_blur:low", "gaussian_blur:high")
@pytest.mark.vlm_metrics("accuracy_above_chance", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
QUESTIONS = 240


def blurred(right: float, confidence: float) -> list[dict[str, object]]:
    return [
        {"setting": "no_image", "right": "chance", "confidence": 0.5},
        {"setting": "*blur*", "right": right, "confidence": confidence},
        {"right": 0.9, "confidence": 0.9},
    ]


@pytest.fixture
def gate(project: Project) -> Project:
    (project.path / "suite" / "test_suite.py").unlink()
    project.write("suite/test_corruptions.py", SUITE)
    project.write("policy.yaml", POLICY.read_text(encoding="utf-8"))
    write_questions(project.path, "AB" * (QUESTIONS // 2))
    return project


@pytest.mark.parametrize("mode", ["full", "adaptive"])
@pytest.mark.parametrize(
    ("right", "confidence", "expected"), [(0.7, 0.7, 0), (0.6, 0.99, 1)], ids=["calibrated", "overconfident"]
)
def test_it_is_confidence_that_decides(gate: Project, right: float, confidence: float, expected: int, mode: str) -> None:
    gate.write("model.yaml", json.dumps({"rules": blurred(right, confidence)}))
    assert gate.run("--vlm-report=out", f"--vlm-mode={mode}").ret == expected
    records = {each["id"]: each for each in gate.results("out")["records"]}
    (error,) = (
        each for each in records["model-data-gaussian_blur:high"]["measures"] if each["metric"] == "expected_calibration_error"
    )
    assert error["outcome"] == ("FAIL" if expected else "PASS")
    if expected:
        gate.verify(gate.the_run)


def test_a_model_without_probabilities_is_not_shown_to_be_confident(gate: Project) -> None:
    gate.write("model.yaml", json.dumps({"rules": [{"setting": "no_image", "right": "chance"}, {"right": 0.95}]}))
    ends(gate.run("--vlm-mode=full"), 10, f"*{QUESTIONS} answers came without probabilities of letters*")
