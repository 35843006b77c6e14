"""What README promises in numbers, and the remedy that it gives for OpenCV."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from safetensors import safe_open

import pytest_vlmrobust
from pytest_vlmrobust.perturbations.pixels import WITHOUT_DESKTOP

from .conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def stated(pattern: str) -> float:
    """Returns the only number that README states in these words."""
    (number,) = re.findall(pattern, " ".join(README.split()))
    return float(number.replace(",", ""))


def test_the_demo_model_is_as_large_as_readme_says() -> None:
    weights = Path(pytest_vlmrobust.__file__).parent / "demo" / "tiny" / "model.safetensors"
    with safe_open(weights, "np") as file:
        sizes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 - it is no mapping
    total = sum(math.prod(size) for size in sizes)
    assert total / 1e6 == pytest.approx(stated(r"`tiny`, a ([\d.]+)-million-parameter"), abs=0.05)


@pytest.mark.slow
def test_the_first_run_asks_about_as_often_as_readme_says(tmp_path: Path) -> None:
    """About: a borderline answer may turn with the rounding of another processor, and then a test stops earlier or later."""
    (command,) = re.findall(r"^\$ pip install .* && (pytest --vlm=tiny suites/\S+)$", README, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), f"--vlm-store={tmp_path}", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (inferences,) = re.findall(r"^([\d,]+) inferences; ", done.stdout, re.MULTILINE)
    assert float(inferences) == pytest.approx(stated(r"about ([\d,]+) inferences"), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("others", [["opencv-python"], ["opencv-python", "opencv-python-headless"]], ids=["desktop", "both"])
def test_the_remedy_leaves_an_opencv_that_needs_no_desktop(others: list[str], tmp_path: Path) -> None:
    assert f"`{WITHOUT_DESKTOP}`" in README
    subprocess.run([sys.executable, "-m", "venv", tmp_path], check=True)
    python = str(tmp_path / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", f"numpy=={metadata.version('numpy')}", *others], check=True)
    _, *remedy = WITHOUT_DESKTOP.split()
    subprocess.run([python, "-m", "pip", *remedy, "--quiet"], check=True)
    seen = "import cv2; print(cv2.version.headless, cv2.GaussianBlur(cv2.UMat(9, 9, 0).get(), (3, 3), 1).shape)"
    done = subprocess.run([python, "-c", seen], capture_output=True, text=True, check=False)
    assert done.stdout == "True (9, 9)\n", done.stderr
