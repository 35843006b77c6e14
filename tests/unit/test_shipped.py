from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust import shipped as module
from pytest_vlmrobust.shipped import shipped


@pytest.mark.parametrize(
    ("folder", "pattern"),
    [
        ("suites", "test_*.py"),
        ("thresholds", "*.yaml"),
        ("vars", "*.groovy"),
        ("recipes", "submit/slurm/*.sbatch"),
        ("recipes", "submit/kubernetes/*.yaml"),
    ],
)
def test_a_checkout_has_the_files_at_its_top(folder: str, pattern: str) -> None:
    assert shipped(folder) == Path(module.__file__).parents[1] / folder
    assert list(shipped(folder).glob(pattern))


def test_a_wheel_has_them_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pytest_vlmrobust" / "shipped_files" / "suites").mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", tmp_path / "pytest_vlmrobust")
    assert shipped("suites") == tmp_path / "pytest_vlmrobust" / "shipped_files" / "suites"
    assert shipped("thresholds") == tmp_path / "thresholds"
