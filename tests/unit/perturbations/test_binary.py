from __future__ import annotations

import numpy as np
import PIL.Image
import PIL.ImageOps
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations import binary

Image = NDArray[np.uint8]
IMAGE: Image = (np.random.default_rng(0).normal(110, 30, (41, 52, 3)).clip(20, 230)).astype(np.uint8)


@pytest.mark.parametrize("function", [binary.flip_h, binary.flip_v, binary.invert, binary.channel_swap])
def test_involutions(function: type) -> None:
    once = np.asarray(function(IMAGE))
    assert (once != IMAGE).any()
    np.testing.assert_array_equal(np.asarray(function(once)), IMAGE)


def test_flips_and_swaps_are_the_reversals_of_their_axes() -> None:
    np.testing.assert_array_equal(binary.flip_h(IMAGE), IMAGE[:, ::-1])
    np.testing.assert_array_equal(binary.flip_v(IMAGE), IMAGE[::-1])
    np.testing.assert_array_equal(binary.channel_swap(IMAGE), IMAGE[..., ::-1])


def test_invert_is_pillows() -> None:
    np.testing.assert_array_equal(binary.invert(IMAGE), PIL.ImageOps.invert(PIL.Image.fromarray(IMAGE)))


def test_grayscale_has_three_equal_channels_within_a_level_of_pillows() -> None:
    grey = binary.grayscale(IMAGE)
    assert (grey == grey[..., :1]).all()
    assert np.abs(grey[..., 0].astype(int) - np.asarray(PIL.ImageOps.grayscale(PIL.Image.fromarray(IMAGE)))).max() <= 1


FLAT = np.repeat(np.array([[[10, 200, 30]] * 20 + [[240, 240, 240]] * 30], np.uint8), 20, axis=0)
TINY = IMAGE[:5, :7].copy()


@pytest.mark.parametrize("image", [IMAGE, FLAT, TINY, np.full((30, 30, 3), 77, np.uint8)])
def test_equalize_is_pillows(image: Image) -> None:
    np.testing.assert_array_equal(binary.equalize(image), PIL.ImageOps.equalize(PIL.Image.fromarray(image)))


@pytest.mark.parametrize("image", [IMAGE, FLAT, TINY, np.full((30, 30, 3), 77, np.uint8)])
def test_autocontrast_is_pillows_rounded(image: Image) -> None:
    expected = np.asarray(PIL.ImageOps.autocontrast(PIL.Image.fromarray(image))).astype(int)
    assert np.abs(binary.autocontrast(image) - expected).max() <= 1


def test_autocontrast_reaches_both_ends_in_every_channel() -> None:
    changed = binary.autocontrast(IMAGE)
    assert changed.min(axis=(0, 1)).tolist() == [0, 0, 0]
    assert changed.max(axis=(0, 1)).tolist() == [255, 255, 255]
