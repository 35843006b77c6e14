"""What the real MediaPipe can tell without a model: its lists of landmarks are ours, and it refuses what is no model."""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.errors import ModelError
from pytest_vlmrobust.datasets.neural import EYES, LIPS, NOSE, face_finder

if find_spec("mediapipe") is None:
    pytest.skip("needs mediapipe: pip install -e '.[faces]'", allow_module_level=True)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what its own dependencies say when they are imported
    landmarker: Any = import_module("mediapipe.tasks.python.vision.face_landmarker")


@pytest.mark.parametrize(("name", "numbers"), [("RIGHT_EYE", EYES[0]), ("LEFT_EYE", EYES[1]), ("NOSE", NOSE), ("LIPS", LIPS)])
def test_landmarks_are_those_of_mediapipe(name: str, numbers: tuple[int, ...]) -> None:
    connections = getattr(landmarker.FaceLandmarksConnections, f"FACE_LANDMARKS_{name}")
    assert tuple(sorted({end for connection in connections for end in (connection.start, connection.end)})) == numbers


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "face.task").write_bytes(b"no model" * 100)
    with (
        pytest.raises(ModelError, match=r"cannot find faces with .*face\.task \(\w+: .*\)\. Expected"),
        face_finder(tmp_path / "face.task"),
    ):
        pass
