from __future__ import annotations

from typing import Any

import numpy as np
import PIL.Image
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import ImageError

RGB = np.array([[[10, 20, 30], [250, 0, 5]]], np.uint8)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (RGB, RGB),
        (PIL.Image.fromarray(RGB), RGB),
        (np.array([[7, 9]], np.uint8), [[[7] * 3, [9] * 3]]),
        (np.array([[[7], [9]]], np.uint8), [[[7] * 3, [9] * 3]]),
        (np.array([[True, False]]), [[[255] * 3, [0] * 3]]),
        (np.array([[0, 65535, 257 * 9 + 128]], np.uint16), [[[0] * 3, [255] * 3, [9] * 3]]),
        (np.array([[[0, 0], [0, 255], [0, 128]]], np.uint8), [[[255] * 3, [0] * 3, [127] * 3]]),
        (np.array([[[10, 20, 30, 0], [10, 20, 30, 255]]], np.uint8), [[[255] * 3, [10, 20, 30]]]),
        (np.array([[[0, 65535, 0, 65535]]], np.uint16), [[[0, 255, 0]]]),
        (PIL.Image.new("L", (1, 1), 77), [[[77] * 3]]),
        (PIL.Image.new("1", (1, 1), 1), [[[255] * 3]]),
        (PIL.Image.new("LA", (1, 1), (0, 0)), [[[255] * 3]]),
        (PIL.Image.new("RGBA", (1, 1), (1, 2, 3, 255)), [[[1, 2, 3]]]),
        (PIL.Image.new("CMYK", (1, 1), (0, 0, 0, 0)), [[[255] * 3]]),
        (PIL.Image.new("I;16", (1, 1), 65535), [[[255] * 3]]),
        (PIL.Image.new("I", (1, 1), 257 * 40), [[[40] * 3]]),
    ],
)
def test_every_common_kind_becomes_rgb(image: Any, expected: Any) -> None:
    converted = perturbations.as_rgb(image)
    assert converted.dtype == np.uint8
    assert converted.flags.c_contiguous
    np.testing.assert_array_equal(converted, expected)


def test_a_transparent_palette_entry_becomes_white() -> None:
    image = PIL.Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 100, 0])
    image.putdata([0, 1])
    image.info["transparency"] = 0
    assert perturbations.as_rgb(image).tolist() == [[[255, 255, 255], [0, 100, 0]]]


def test_the_result_is_a_copy() -> None:
    assert not np.shares_memory(perturbations.as_rgb(RGB), RGB)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 3)), "as_rgb got an array of float64, whose range is not evident"),
        (PIL.Image.new("F", (1, 1)), r"mode F \(floats\), whose range is not evident"),
        ("picture.png", "as_rgb got builtins.str. Expected a Pillow image or a NumPy array"),
    ],
)
def test_what_has_no_evident_range_is_refused(image: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        perturbations.as_rgb(image)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((2, 2, 5), np.uint8), r"shape \(2, 2, 5\). Expected \(H, W\)"),
        (np.zeros((0, 2), np.uint8), r"shape \(0, 2\).*not empty"),
        (np.zeros(4, np.uint8), r"shape \(4,\)"),
        (PIL.Image.new("I", (1, 1), 70_000), "grey values from 70000 to 70000. Expected 16 bits"),
    ],
)
def test_what_is_no_picture_is_refused(image: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        perturbations.as_rgb(image)
