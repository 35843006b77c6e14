from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust.perturbations import digital


def gradient() -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    y, x = np.mgrid[0:64, 0:96]
    return np.stack([2 * x, 3 * y, x + y], axis=-1).astype(np.uint8)


def test_jpeg_of_a_smooth_picture_is_close_and_worse_at_lower_quality() -> None:
    errors = [
        np.abs(digital.jpeg_compression(gradient(), quality=quality).astype(int) - gradient()).mean() for quality in (80, 50, 20)
    ]
    assert 0 < errors[0] < errors[1] < errors[2] < 10


@pytest.mark.parametrize(("scale", "block"), [(0.5, 2), (0.25, 4), (0.125, 8)])
def test_pixelate_makes_constant_blocks_of_the_mean(scale: float, block: int) -> None:
    image = gradient()
    blocks = digital.pixelate(image, scale=scale).reshape(64 // block, block, 96 // block, block, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()
    means = image.reshape(64 // block, block, 96 // block, block, 3).mean(axis=(1, 3))
    assert np.abs(blocks[:, 0, :, 0] - means).max() <= 0.5


@pytest.mark.parametrize(
    ("height", "width", "scale", "expected"), [(10, 20, 0.2, (4, 2)), (1, 3, 0.1, (1, 1)), (5, 5, 6.0, (30, 30))]
)
def test_scaled_size_is_at_least_a_pixel(height: int, width: int, scale: float, expected: tuple[int, int]) -> None:
    assert digital.scaled_size(height, width, scale) == expected
