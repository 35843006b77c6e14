"""Tiny checkpoints and requests for the tests of backends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust.core.prediction import Request
from tests.checkpoints import build_checkpoint

LETTERS = ("A", "B", "C", "D")


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The directory of a family's tiny checkpoint, built on first use and shared; not to be written to."""
    root = tmp_path_factory.getbasetemp() / "checkpoints"
    return lambda family: build_checkpoint(family, root / family)


@pytest.fixture
def copied(checkpoint: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a family's checkpoint that a test may damage."""

    def copy(family: str) -> Path:
        return Path(shutil.copytree(checkpoint(family), tmp_path / family))

    return copy


@pytest.fixture
def request_for() -> Callable[..., Request]:
    """Makes requests with noise images of the given sizes (height, width)."""

    def make(key: str = "k", *sizes: tuple[int, int], text: str = "What is shown?", **fields: Any) -> Request:
        rng = np.random.default_rng(sum(map(ord, key)))
        images = tuple(rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes)
        return Request(key=key, images=images, text=text, sample_id=key, **{"choices": LETTERS, **fields})

    return make
