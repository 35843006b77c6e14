"""Drawn portraits stay the same, down to the coordinates that OpenCV is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest

from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.demo.portrait_drawing import draw_portrait, portrait_boxes
from pytest_vlmrobust.demo.portraits import CHOICES, GROUPS, TONES, Portrait, random_portrait

ORDERS = "76d84caa24587e22cea2a4db196e5ee50e2c6332e24d2d512f13a5328f3dfc6d"
PIXELS = "f7eeb6f411b01f39bca2c23f9e24536f2389c0d2ff23292239126d0838c42d6b"
OPENCV = "5.0.0"


def broad_sample() -> Iterator[tuple[str, Portrait]]:
    """Yields two people with every value of every feature, and 60 others."""
    people = [random_portrait(rng_for(number, "broad"), GROUPS[number % 2]) for number in range(62)]
    tones = [tone for tones in TONES.values() for tone in tones]
    for feature, values in {**CHOICES, "tone": tones}.items():
        for value in values:
            changes: dict[str, Any] = {feature: value}
            yield from ((f"{feature} {value} {number}", replace(person, **changes)) for number, person in enumerate(people[:2]))
    yield from ((f"person {number}", person) for number, person in enumerate(people[2:]))


@pytest.fixture(scope="module")
def digests() -> tuple[str, str]:
    """Returns the digests of what OpenCV is given, and of the pixels that it makes of that."""
    drawn, pixels, fill = hashlib.sha256(), hashlib.sha256(), cv2.fillPoly

    def recorded(picture: Any, outlines: Any, colour: Any, *rest: Any) -> None:
        drawn.update(repr([np.asarray(outline).tolist() for outline in outlines]).encode())
        drawn.update(repr(np.round(np.atleast_1d(colour), 3).tolist()).encode())
        fill(picture, outlines, colour, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cv2, "fillPoly", recorded)
        for name, portrait in broad_sample():
            drawn.update(name.encode())
            pixels.update(name.encode() + draw_portrait(portrait, 96).tobytes())
            drawn.update(repr(portrait_boxes(portrait, 333)).encode())
    pixels.update(draw_portrait(portrait, 512).tobytes())
    return drawn.hexdigest(), pixels.hexdigest()


def test_what_is_painted_does_not_change(digests: tuple[str, str]) -> None:
    """Outlines in sixteenths of a pixel, colours and boxes; they do not depend on the version of OpenCV."""
    assert digests[0] == ORDERS, "a portrait is drawn differently: raise VERSION of the faces, and train the model again"


@pytest.mark.skipif(cv2.__version__ != OPENCV, reason=f"recorded with OpenCV {OPENCV}; others may round edges")
def test_no_pixel_changes(digests: tuple[str, str]) -> None:
    assert digests[1] == PIXELS
