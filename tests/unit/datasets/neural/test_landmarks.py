"""Boxes from landmarks, with a stand-in for MediaPipe; tests/extras asks the real package what it can say without a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError, MissingExtra, ModelError
from pytest_vlmrobust.datasets.faces_folder import FaceFolder, write_table
from pytest_vlmrobust.datasets.neural import EYES, LIPS, NOSE, boxes_of

People = Callable[..., Path]
Points = NDArray[np.float64]
# outer and inner corner, upper and lower lid; bridge, wings, base; corners and edges of the lips
RIGHT_EYE = {33: (0.25, 0.40), 133: (0.42, 0.41), 159: (0.33, 0.36), 145: (0.33, 0.45)}
LEFT_EYE = {263: (0.75, 0.40), 362: (0.58, 0.41), 386: (0.67, 0.36), 374: (0.67, 0.45)}
OF_NOSE = {168: (0.50, 0.40), 48: (0.42, 0.60), 278: (0.58, 0.61), 2: (0.50, 0.64)}
OF_MOUTH = {61: (0.35, 0.78), 291: (0.66, 0.78), 0: (0.50, 0.72), 17: (0.50, 0.86)}
EXPECTED = {
    "left_eye": (50, 36, 84, 45),
    "right_eye": (116, 36, 150, 45),
    "nose": (84, 40, 116, 64),
    "mouth": (70, 72, 132, 86),
}
"""In 200 x 100 pixels."""


def mesh(count: int = 478) -> Points:
    """Returns a face whose known points stand at the ends of each attribute, all other points of it in its middle."""
    points = np.tile([0.02, 0.99], (count, 1))  # what belongs to no attribute must not matter
    for numbers, ends in zip((*EYES, NOSE, LIPS), (RIGHT_EYE, LEFT_EYE, OF_NOSE, OF_MOUTH), strict=True):
        points[list(numbers)] = np.mean(list(ends.values()), axis=0)
        for number, place in ends.items():
            points[number] = place
    return points


def moved(down: float) -> Points:
    """Returns a face that stands lower by a part of the picture's height."""
    points: Points = mesh() + np.array([0, down])
    return points


@pytest.fixture
def mediapipe(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stands in for the package: finds the ``faces`` that a test sets, and remembers what it was given."""
    seen = SimpleNamespace(faces=[mesh()], models=[], pictures=[], wanted=[], closed=0)

    class Landmarker:
        @staticmethod
        def create_from_options(options: SimpleNamespace) -> Landmarker:
            if options.base_options.model_asset_buffer == b"bad":
                raise RuntimeError("Unable to open zip archive.\nmore")
            seen.models.append(options.base_options.model_asset_buffer)
            seen.wanted.append(options.num_faces)
            return Landmarker()

        def detect(self, image: SimpleNamespace) -> SimpleNamespace:
            seen.pictures.append(image)
            return SimpleNamespace(face_landmarks=[[SimpleNamespace(x=x, y=y, z=0) for x, y in face] for face in seen.faces])

        def close(self) -> None:
            seen.closed += 1

    _install(monkeypatch, Landmarker)
    return seen


def _install(monkeypatch: pytest.MonkeyPatch, landmarker: type) -> None:
    parts: dict[str, dict[str, Any]] = {
        "mediapipe": {"Image": SimpleNamespace, "ImageFormat": SimpleNamespace(SRGB="srgb")},
        "mediapipe.tasks": {},
        "mediapipe.tasks.python.vision": {"FaceLandmarker": landmarker, "FaceLandmarkerOptions": SimpleNamespace},
        "mediapipe.tasks.python": {"BaseOptions": SimpleNamespace},
    }
    for name, contents in parts.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["mediapipe.tasks.python"].__dict__["vision"] = sys.modules["mediapipe.tasks.python.vision"]


def bare(people: People, groups: Sequence[str], model: str = "face.task") -> Path:
    folder = people(groups, boxes=False)
    (folder / "faces.yaml").write_text("landmarks: face.task\n")
    if model:
        (folder / model).write_bytes(b"a model")
    return folder


def approximately(boxes: Any) -> Any:
    return {name: pytest.approx(box) for name, box in boxes.items()}


def test_boxes_are_the_ends_of_the_attributes() -> None:
    assert boxes_of(mesh(), (200, 100)) == approximately(EXPECTED)
    assert boxes_of(mesh(468), (200, 100)) == approximately(EXPECTED)


def test_left_and_right_are_the_viewers_in_a_mirrored_picture_too() -> None:
    mirrored = mesh() * [-1, 1] + [1, 0]
    boxes = boxes_of(mirrored, (200, 100))
    assert {name: boxes[name] for name in ("left_eye", "right_eye")} == approximately(
        {"left_eye": EXPECTED["left_eye"], "right_eye": EXPECTED["right_eye"]}
    )
    assert boxes["mouth"] == pytest.approx((200 - 132, 72, 200 - 70, 86))


def test_boxes_end_with_the_picture_and_what_is_outside_has_none() -> None:
    low = moved(0.2)
    assert boxes_of(low, (200, 100))["mouth"] == pytest.approx((70, 92, 132, 100))
    assert {*boxes_of(moved(0.3), (200, 100))} == {"left_eye", "right_eye", "nose"}


def test_a_folder_without_boxes_asks_for_them_once(people: People, mediapipe: SimpleNamespace, tmp_path: Path) -> None:
    folder = bare(people, ["light", "dark"])
    collection = FaceFolder(folder, "crew")
    for entity in (*collection.entities(), *collection.entities()):
        assert entity.boxes == approximately(boxes_of(mesh(), (96, 96)))
    assert (mediapipe.models, mediapipe.wanted, mediapipe.closed, len(mediapipe.pictures)) == ([b"a model"], [2], 1, 2)
    assert mediapipe.pictures[1].image_format == "srgb"
    np.testing.assert_array_equal(mediapipe.pictures[1].data, collection.entities()[1].image.load())
    write_table(folder, tmp_path / "faces.csv")
    mediapipe.faces = []
    assert [entity.boxes for entity in FaceFolder(tmp_path, "x").entities()] == [entity.boxes for entity in collection.entities()]


def test_boxes_in_the_table_are_left_as_they_are(people: People, mediapipe: SimpleNamespace) -> None:
    folder = people(["light", "dark"])
    (folder / "faces.yaml").write_text("landmarks: face.task\n")
    assert FaceFolder(folder, "crew").entities()[0].boxes["nose"] == (42, 44, 54, 60)  # not even the model is asked for
    assert not mediapipe.pictures


@pytest.mark.parametrize(
    ("faces", "found"),
    [
        ([], "no face"),
        ([mesh(), mesh()], "several faces"),
        ([moved(0.3)], "a face that is partly outside of the image"),
    ],
)
def test_pictures_without_one_whole_face(people: People, mediapipe: SimpleNamespace, faces: list[Points], found: str) -> None:
    mediapipe.faces = faces
    folder = bare(people, ["light", "dark"])
    with pytest.raises(DatasetError) as caught:
        FaceFolder(folder, "crew").entities()
    first, *lines = str(caught.value).splitlines()
    assert "faces.csv has 2 problems" in first
    assert lines[1] == (
        f"  {folder / 'faces.csv'}:3, file '1.png': MediaPipe found {found} in {folder / '1.png'}, expected one face. Write its "
        "boxes into the table, crop the image, or remove the row"
    )
    assert mediapipe.closed == 1


def test_an_absent_model_file_is_named_with_where_it_was_looked_for(people: People) -> None:
    folder = bare(people, ["light", "dark"], model="")
    with pytest.raises(DatasetError) as caught:
        FaceFolder(folder, "crew").entities()
    assert str(caught.value) == (
        f"{folder / 'faces.yaml'}, landmarks: there is no file {folder / 'face.task'}. 2 rows of {folder / 'faces.csv'} have no "
        f"boxes (the first: {folder / 'faces.csv'}:2, file '0.png'). Expected a face landmarker of MediaPipe (.task) there, or "
        "boxes in the table"
    )


def test_without_the_package_there_is_the_pip_line(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mediapipe", None)
    with pytest.raises(MissingExtra) as caught:
        FaceFolder(bare(people, ["light"]), "crew").entities()
    assert str(caught.value).startswith(
        "finding the boxes of faces needs the package 'mediapipe', which is not installed. Install it: pip install 'mediapipe>="
    )


@pytest.mark.usefixtures("mediapipe")
def test_a_file_that_is_no_model(people: People) -> None:
    folder = bare(people, ["light"])
    (folder / "face.task").write_bytes(b"bad")
    with pytest.raises(
        ModelError, match=r"cannot find faces with .*face\.task \(RuntimeError: Unable to open zip archive\.\)\. Expected"
    ):
        FaceFolder(folder, "crew").entities()


def test_a_model_with_other_landmarks(people: People, mediapipe: SimpleNamespace) -> None:
    mediapipe.faces = [mesh()[:98]]
    with pytest.raises(ModelError, match=r"puts 98 landmarks on a face\. Expected 468 or more, as MediaPipe's face mesh has"):
        FaceFolder(bare(people, ["light"]), "crew").entities()
    assert mediapipe.closed == 1
