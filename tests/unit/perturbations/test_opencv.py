from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import NoReturn

import pytest

from pytest_vlmrobust.core.errors import MissingExtra
from pytest_vlmrobust.perturbations.pixels import BrokenOpenCV, opencv


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    opencv.cache_clear()
    yield
    opencv.cache_clear()


def failing(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    def refuse(_name: str) -> NoReturn:
        raise error

    monkeypatch.setattr(importlib, "import_module", refuse)


def test_absent_opencv_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ModuleNotFoundError("No module named 'cv2'", name="cv2"))
    with pytest.raises(MissingExtra, match=r"needs the package 'cv2'.*pip install opencv-python"):
        opencv()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libGL.so.1: cannot open shared object file: No such file or directory"),
        ModuleNotFoundError("No module named 'numpy'", name="numpy"),
    ],
)
def test_opencv_that_does_not_load_has_the_reason_and_both_remedies(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    failing(monkeypatch, error)
    with pytest.raises(BrokenOpenCV) as caught:
        opencv()
    assert isinstance(caught.value, MissingExtra)
    for part in (str(error), "apt-get install libgl1", "pip install opencv-python-headless"):
        assert part in str(caught.value)


def test_the_module_is_cv2() -> None:
    assert opencv().__name__ == "cv2"
