"""Boxes of eyes, nose and mouth by MediaPipe's face landmarker; the model file is the user's.

The landmarker puts 468 or 478 numbered points on a face. A box is the smallest that holds the points of an attribute, by
MediaPipe's own lists (``FaceLandmarksConnections``): an eye is the outline of its lids, the mouth that of the lips, the nose
its bridge, tip and wings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.errors import MissingExtra, ModelError

from .encoder import reason

EYES = (
    (7, 33, 133, 144, 145, 153, 154, 155, 157, 158, 159, 160, 161, 163, 173, 246),
    (249, 263, 362, 373, 374, 380, 381, 382, 384, 385, 386, 387, 388, 390, 398, 466),
)
"""The person's right eye, then the left."""
NOSE = (1, 2, 4, 5, 6, 19, 45, 48, 64, 94, 97, 98, 115, 168, 195, 197, 220, 275, 278, 294, 326, 327, 344, 440)
LIPS = (
    0, 13, 14, 17, 37, 39, 40, 61, 78, 80, 81, 82, 84, 87, 88, 91, 95, 146, 178, 181,
    185, 191, 267, 269, 270, 291, 308, 310, 311, 312, 314, 317, 318, 321, 324, 375, 402, 405, 409, 415,
)  # fmt: skip
LEAST_POINTS = 468
MOST_FACES = 2
"""How many faces are looked for: a second one is enough to refuse an image."""


@contextmanager
def face_finder(model: Path) -> Iterator[Callable[[NDArray[np.uint8]], list[dict[str, Box]]]]:
    """Gives a function from an image, RGB, uint8, shape (H, W, 3), to the boxes of each face in it, as ``boxes_of``.

    ``model`` is MediaPipe's face landmarker, a ``.task`` file.
    """
    if find_spec("mediapipe") is None:
        raise MissingExtra("finding the boxes of faces", "mediapipe", extra="faces")
    with _refusals(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it and its dependencies say when they are imported
        import mediapipe
        from mediapipe.tasks.python import BaseOptions, vision

        options = vision.FaceLandmarkerOptions(
            base_options=BaseOptions(model_asset_buffer=model.read_bytes()), num_faces=MOST_FACES
        )
        landmarker = vision.FaceLandmarker.create_from_options(options)

    def find(picture: NDArray[np.uint8]) -> list[dict[str, Box]]:
        height, width = picture.shape[:2]
        with _refusals(model):
            image = mediapipe.Image(image_format=mediapipe.ImageFormat.SRGB, data=np.ascontiguousarray(picture))
            faces = landmarker.detect(image).face_landmarks
        return [boxes_of(_points(face, model), (width, height)) for face in faces]

    try:
        yield find
    finally:
        landmarker.close()


def boxes_of(points: NDArray[np.float64], size: tuple[int, int]) -> dict[str, Box]:
    """Returns the boxes of ``left_eye``, ``right_eye``, ``nose`` and ``mouth``, cut off at the edges of the image.

    Left and right are the viewer's, whether or not the image is mirrored. What is outside of the image has no box. ``points`` are
    the landmarks of one face as fractions of width and height, shape (468 or more, 2); ``size`` is width and height in pixels.
    """
    pixels = np.clip(points, 0.0, 1.0) * size
    left, right = sorted(EYES, key=lambda eye: float(pixels[list(eye), 0].mean()))
    boxes = {}
    for attribute, numbers in {"left_eye": left, "right_eye": right, "nose": NOSE, "mouth": LIPS}.items():
        (x1, y1), (x2, y2) = pixels[list(numbers)].min(axis=0), pixels[list(numbers)].max(axis=0)
        if x1 < x2 and y1 < y2:
            boxes[attribute] = (float(x1), float(y1), float(x2), float(y2))
    return boxes


def _points(face: Any, model: Path) -> NDArray[np.float64]:
    points = np.array([(point.x, point.y) for point in face], np.float64).reshape(-1, 2)
    if len(points) < LEAST_POINTS:
        raise ModelError(
            f"{model} puts {len(points)} landmarks on a face. Expected {LEAST_POINTS} or more, as MediaPipe's face mesh has"
        )
    return points


@contextmanager
def _refusals(model: Path) -> Iterator[None]:
    """Turns the errors of MediaPipe, which are those of its C library, into a ModelError that names the file."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            f"MediaPipe cannot find faces with {model} ({reason(error)}). Expected its face landmarker (.task), "
            "and an installation of mediapipe that can be imported"
        ) from error
