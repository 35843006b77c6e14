from __future__ import annotations

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations import extras, resolution

Image = NDArray[np.uint8]
IMAGE: Image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)


def gradient(height: int = 120, width: int = 180) -> Image:
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x, y, (x + y) / 2], axis=-1).astype(np.uint8)


@pytest.mark.parametrize("scale", [0.75, 0.35, 0.15])
def test_downsample_keeps_smooth_things_and_loses_fine_ones(scale: float) -> None:
    assert np.abs(resolution.downsample(gradient(), scale=scale).astype(int) - gradient())[8:-8, 8:-8].max() <= 2
    y, x = np.mgrid[0:60, 0:60]
    board = np.repeat((255 * ((x + y) % 2)).astype(np.uint8)[..., None], 3, axis=2)
    assert resolution.downsample(board, scale=scale).std() < 0.75 * board.std()


@pytest.mark.parametrize(("scale", "kept"), [(1.5, 0.44), (3.0, 0.11), (6.0, 0.028)])
def test_upsample_keeps_the_central_part(scale: float, kept: float) -> None:
    zoomed = resolution.upsample(gradient(), scale=scale).astype(float)
    x, y = zoomed[..., 0], zoomed[..., 1]
    assert (x.min() + x.max()) / 2 == pytest.approx(179 / 2, abs=1.1)
    assert (y.min() + y.max()) / 2 == pytest.approx(119 / 2, abs=1.1)
    assert np.ptp(x) / 179 * np.ptp(y) / 119 == pytest.approx(kept, abs=0.02)


@pytest.mark.parametrize("scale", [1.5, 3.0, 6.0])
@pytest.mark.parametrize(("height", "width"), [(120, 180), (97, 101), (3, 40), (1, 1)])
def test_upsample_is_bicubic_about_the_centre(scale: float, height: int, width: int) -> None:
    zoomed = resolution.upsample(gradient(height, width), scale=scale).astype(float)
    for channel, side in ((0, width), (1, height)):
        expected = (side - 1) / 2 + (np.arange(side) - (side - 1) / 2) / scale
        found = zoomed.mean(axis=channel, keepdims=False)[..., channel] if side > 1 else np.zeros(1)
        np.testing.assert_allclose(found, expected, atol=1.0)  # levels are rounded, and places to half a pixel


@pytest.mark.parametrize("factor", [1.5, 3.0, 6.0])
def test_sharpen_agrees_with_pillow_inside(factor: float) -> None:
    expected = np.asarray(PIL.ImageEnhance.Sharpness(PIL.Image.fromarray(IMAGE)).enhance(factor)).astype(int)
    # Pillow truncates the smooth picture and the result; the factor multiplies the difference
    assert np.abs(resolution.sharpen(IMAGE, factor=factor) - expected)[1:-1, 1:-1].max() <= factor


@pytest.mark.parametrize("bits", [6, 4, 2])
def test_posterize_is_pillows(bits: int) -> None:
    np.testing.assert_array_equal(
        resolution.posterize(IMAGE, bits=bits), PIL.ImageOps.posterize(PIL.Image.fromarray(IMAGE), bits)
    )


@pytest.mark.parametrize("threshold", [200, 128, 64])
def test_solarize_is_pillows(threshold: int) -> None:
    expected = PIL.ImageOps.solarize(PIL.Image.fromarray(IMAGE), threshold)
    np.testing.assert_array_equal(resolution.solarize(IMAGE, threshold=threshold), expected)


@pytest.mark.parametrize("level", ["low", "mid", "high"])
def test_true_upsample_keeps_the_whole_picture_nearly_as_it_was(level: str) -> None:
    back = perturbations.get(f"true_upsample:{level}")(gradient(), seed=1).astype(int)
    assert np.abs(back - gradient()).max() <= 2
    assert 0 < np.abs(extras.true_upsample(IMAGE, scale=3.0).astype(int) - IMAGE).mean() < 25
