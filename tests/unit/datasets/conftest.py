"""Folders of drawn faces, as a user would have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

EDGE = 96
BOXES = {"left_eye": "26,34,42,46", "right_eye": "54,34,70,46", "nose": "42,44,54,60", "mouth": "34,66,62,78"}
HEADER = "file,identity,group,left_eye,right_eye,nose,mouth"


def _face(seed: int, tone: int, edge: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    canvas = np.full((edge, edge, 3), rng.integers(120, 256, 3), np.uint8)
    unit = edge / 96
    skin = (tone, tone - 20, tone - 40)
    cv2.ellipse(canvas, (round(48 * unit), round(50 * unit)), (round(34 * unit), round(42 * unit)), 0, 0, 360, skin, -1)
    for x in (34, 62):
        cv2.circle(
            canvas, (round(x * unit), round(40 * unit)), round(rng.integers(3, 7) * unit), rng.integers(0, 255, 3).tolist(), -1
        )
    cv2.ellipse(
        canvas,
        (round(48 * unit), round(72 * unit)),
        (round(13 * unit), round(rng.integers(2, 6) * unit)),
        0,
        0,
        360,
        (150, 20, 40),
        -1,
    )
    return canvas


@pytest.fixture
def face() -> Callable[..., NDArray[np.uint8]]:
    """Draws a face: another one for another seed, of a skin tone, in so many pixels."""

    def draw(seed: int, tone: int = 180, edge: int = EDGE) -> NDArray[np.uint8]:
        return _face(seed, tone, edge)

    return draw


@pytest.fixture
def people(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder with one drawn face for each of the groups given; people are ``p0``, ``p1`` …"""

    def make(groups: Sequence[str], name: str = "people", *, boxes: bool = True) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        lines = [HEADER if boxes else "file,identity,group"]
        for number, group in enumerate(groups):
            Image.fromarray(_face(number, 210 if group == "light" else 110, EDGE)).save(folder / f"{number}.png")
            drawn = "".join(f',"{box}"' for box in BOXES.values()) if boxes else ""
            lines.append(f"{number}.png,p{number},{group}{drawn}")
        (folder / "faces.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder

    return make
