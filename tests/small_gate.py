"""What the small gates of these tests have in common: a suite, a policy, and a few questions about pictures of noise."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import pytest_vlmrobust


def suite(*settings: str) -> str:
    """Returns a file of tests: cells under these settings, clean and without pictures, and two summaries over the settings."""
    names = ", ".join(f'"{name}"' for name in settings)
    return f"""
import pytest


@pytest.mark.vlm_settings("clean", "no_image", {names})
def test_cell(vlm_cell):
    vlm_cell.check()


@pytest.mark.vlm_settings({names})
@pytest.mark.vlm_metrics("worst_case_drop", "visual_gain")
def test_sweep(vlm_sweep):
    vlm_sweep.check()
"""


def policy(most: int) -> str:
    """Returns a policy that judges values: drops of at most so many percentage points, and four in five clean answers right."""
    return f"""
version: 1
defaults: {{judge: point}}
rules:
  - {{id: drop, metric: accuracy_drop, max: {most}pp}}
  - {{id: clean, metric: accuracy, where: {{setting: clean}}, min: 80%}}
  - {{id: worst, metric: worst_case_drop, max: {most}pp}}
"""


def picture(number: int) -> npt.NDArray[np.uint8]:
    """Returns the picture of a question: noise."""
    return np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)


def write_questions(directory: Path, answers: Sequence[str]) -> None:
    """Writes ``data.jsonl`` with a question for each of these letters, ``q0`` and on, about a picture of its own."""
    pictures = directory / "pictures"
    pictures.mkdir(exist_ok=True)
    rows = []
    for number, answer in enumerate(answers):
        Image.fromarray(picture(number)).save(pictures / f"{number}.png")
        row = {"id": f"q{number}", "image": f"pictures/{number}.png", "question": f"Number {number}?", "options": ["cat", "dog"]}
        rows.append({**row, "answer": answer, "category": "odd" if number % 2 else "even"})
    (directory / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def import_package(*left_out: str) -> None:
    """Imports all modules of the package, but for those whose names hold one of these parts, so that no gate has to."""
    for module in pkgutil.walk_packages(pytest_vlmrobust.__path__, "pytest_vlmrobust."):
        if not any(part in module.name for part in left_out):
            importlib.import_module(module.name)
