"""A gate in a temporary directory: one small suite, one JSONL file, one scripted model, run with and without xdist."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cattrs  # noqa: F401 - likewise
import cv2  # noqa: F401 - what a run in this process imports would be dropped after it, and compiled modules load only once
import jinja2  # noqa: F401 - likewise
import numpy as np
import pytest
import rich.console
import rich.table  # noqa: F401 - likewise: a part of rich that stays would find the other parts twice
import scipy.special  # noqa: F401 - likewise
import yaml  # noqa: F401 - likewise
from PIL import Image

import pytest_vlmrobust

for found in pkgutil.walk_packages(pytest_vlmrobust.__path__, "pytest_vlmrobust."):
    if ".neural" not in found.name:  # likewise: registries would be made anew, and their members not
        importlib.import_module(found.name)

SUITE = """
import pytest


@pytest.mark.vlm_settings("clean", "no_image", "grayscale", "flip_v", "invert", "solarize:low")
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings("grayscale", "flip_v", "invert", "solarize:low")
@pytest.mark.vlm_metrics("worst_case_drop", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""
POLICY = """
version: 1
defaults: {judge: point}
rules:
  - {id: drop, metric: accuracy_drop, max: 20pp}
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 80%}
  - {id: worst, metric: worst_case_drop, max: 20pp}
"""
SAMPLES = 8


UNUSED = ("-p", "no:hypothesispytest", "-p", "no:anyio")
"""Plugins that no gate here uses, and whose imports are a third of what a worker takes to start."""


class Project:
    """Runs the gate of one temporary directory."""

    def __init__(self, pytester: pytest.Pytester, arguments: Sequence[str]) -> None:
        self.pytester = pytester
        self.arguments = arguments
        self.path = pytester.path

    def write(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def script(self, *rules: Mapping[str, Any], name: str = "model") -> None:
        """Writes a model that answers B (right) with a picture and A (wrong) without, but for ``rules``."""
        blind = {"setting": "no_image", "answer": "A"}
        self.write(f"{name}.yaml", json.dumps({"default": "B", "rules": [*rules, blind]}))

    def run(self, *arguments: str, models: Sequence[str] = ("model",), subprocess: bool = False) -> pytest.RunResult:
        given = [f"--vlm=scripted:{name}.yaml" for name in models]
        full = [
            *given,
            "--vlm-dataset=data.jsonl",
            "--vlm-thresholds=policy.yaml",
            "-p",
            "no:randomly",
            *UNUSED,
            "suite",
            *self.arguments,
            *arguments,
        ]
        run = self.pytester.runpytest_subprocess if subprocess else self.pytester.runpytest
        return run(*full)


@pytest.fixture(autouse=True)
def no_step_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates in tests belong on no page of the job that runs these tests."""
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)


WORKERS_IF_SLOW = pytest.param(("-n2",), marks=pytest.mark.slow, id="n2")
"""Two workers, which take seconds to start, for a test beside which a quick one goes the same way with them."""


@pytest.fixture(params=[(), ("-n2",)], ids=["no xdist options", "n2"])
def xdist_arguments(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """How pytest is called: without xdist's options, and with two workers; ``-n 0`` is the first, as ``test_gate`` shows."""
    return tuple(request.param)


def make_project(pytester: pytest.Pytester, arguments: Sequence[str]) -> Project:
    project = Project(pytester, arguments)
    project.write("suite/test_suite.py", SUITE)
    project.write("policy.yaml", POLICY)
    rows = []
    for i in range(SAMPLES):
        rng = np.random.default_rng(i)
        (project.path / "pictures").mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).save(project.path / "pictures" / f"{i}.png")
        row = {"id": f"q{i}", "image": f"pictures/{i}.png", "question": f"Number {i}?", "options": ["cat", "dog"], "answer": "B"}
        rows.append({**row, "category": "even" if i % 2 == 0 else "odd"})
    project.write("data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    project.script()
    return project


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A gate without xdist."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    return make_project(pytester, ())


@pytest.fixture
def any_project(pytester: pytest.Pytester, xdist_arguments: tuple[str, ...]) -> Project:
    """The same gate in each way of calling pytest."""
    return make_project(pytester, xdist_arguments)


@pytest.fixture(params=[pytest.param((), id="no xdist options"), WORKERS_IF_SLOW])
def any_project_but_slowly(request: pytest.FixtureRequest, pytester: pytest.Pytester) -> Project:
    """The same, and with workers only where slow tests are asked for."""
    return make_project(pytester, request.param)
