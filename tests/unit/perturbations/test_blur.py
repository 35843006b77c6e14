from __future__ import annotations

import itertools

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from pytest_vlmrobust.perturbations import blur

Image = NDArray[np.uint8]


def textured(height: int = 60, width: int = 80) -> Image:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("radius", [0.5, 1.5, 2.5])
def test_gaussian_blur_agrees_with_scipy(radius: float) -> None:
    image = textured()
    expected = ndimage.gaussian_filter(image.astype(float), (radius, radius, 0), mode="mirror", truncate=3)
    assert np.abs(blur.gaussian_blur(image, radius=radius) - expected).max() < 2


def pixels_of(length: int, angle: float) -> list[tuple[int, int]]:
    sets = blur.line_points(length, angle)
    return sorted(tuple(np.sum(taps, axis=0).tolist()) for taps in itertools.product(*sets))


@pytest.mark.parametrize("length", [5, 9, 15])
def test_line_points_are_a_row_or_a_column_by_their_angle_without_gaps(length: int) -> None:
    reach = length // 2
    assert pixels_of(length, 0.0) == [(0, across) for across in range(-reach, reach + 1)]
    assert pixels_of(length, np.pi / 2) == [(down, 0) for down in range(-reach, reach + 1)]
    assert all(down == across for down, across in pixels_of(length, np.pi / 4))


@pytest.mark.parametrize("length", [5, 9, 15])
def test_line_points_are_near_the_line_and_as_long_as_it(length: int) -> None:
    for angle in np.linspace(0, np.pi, 37).tolist():
        points = np.array(pixels_of(length, angle))
        assert np.abs(points @ [np.cos(angle), -np.sin(angle)]).max() <= 1.2
        assert (points @ [np.sin(angle), np.cos(angle)]).std() == pytest.approx(np.sqrt((length**2 - 1) / 12), rel=0.12)


@pytest.mark.cases("shape", [(60, 80), (130, 5), (1, 1), (1, 40), (40, 1)])
@pytest.mark.cases("length", [5, 9, 15])
def test_motion_blur_is_the_mean_of_the_pixels_of_its_line(shape: tuple[int, int], length: int) -> None:
    image = textured(*shape)
    for seed in range(5):
        kernel = np.zeros((length + 2, length + 2), np.float32)
        for down, across in pixels_of(length, np.radians(np.random.default_rng(seed).integers(180))):
            kernel[length // 2 + 1 + down, length // 2 + 1 + across] += 1 / length
        expected = cv2.filter2D(image.astype(np.float32), -1, kernel, borderType=cv2.BORDER_REFLECT_101)
        changed = blur.motion_blur(image, np.random.default_rng(seed), ksize=length)
        np.testing.assert_array_equal(changed, np.rint(expected))


@pytest.mark.parametrize("radius", [1.0, 3.0, 5.0])
def test_disk_kernel_is_flat_round_and_as_large_as_its_radius(radius: float) -> None:
    kernel = blur.disk_kernel(radius)
    assert kernel.sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(kernel, kernel[::-1])
    assert 1 / kernel.max() == pytest.approx(np.pi * (radius + 0.0) ** 2, rel=0.3)


def test_zoom_blur_keeps_the_centre_and_smears_the_rim() -> None:
    image = np.zeros((101, 101, 3), np.uint8)
    image[50, 50] = image[50, 10] = 255
    smeared = blur.zoom_blur(image, factor=0.10)
    assert smeared[50, 50, 0] > 240
    trail = np.flatnonzero(smeared[50, :40, 0])
    assert trail.min() == 5  # 40 pixels from the centre, times 1.1, and one more where the dot grew
    assert trail.max() == 10


def test_zoom_blur_is_the_mean_of_zooms_in_steps_of_a_hundredth() -> None:
    image = textured(300, 400)
    pushed_out = [(0, 0), (2, 2), (3, 4)]  # whole pixels at the top and at the left, nearest to 0, 0.5 and 1 percent
    zooms = [
        np.stack([_zoomed(image[..., channel].astype(float), top, left) for channel in range(3)], axis=-1)
        for top, left in pushed_out
    ]
    difference = np.abs(blur.zoom_blur(image, factor=0.02) - np.mean(zooms, axis=0))[1:-1, 1:-1]
    assert difference.mean() < 0.5
    assert difference.max() < 2


def _zoomed(channel: NDArray[np.float64], top: int, left: int) -> NDArray[np.float64]:
    shape = np.array(channel.shape)
    zoom = 1 + 2 * np.array([top, left]) / shape
    zoomed: NDArray[np.float64] = ndimage.affine_transform(channel, 1 / zoom, (shape - 1) / 2 * (1 - 1 / zoom), order=1)
    return zoomed


def test_shuffled_moves_pixels_as_far_as_sequential_swaps_do() -> None:
    height, width, delta = 200, 220, 4
    y, x = np.mgrid[0:height, 0:width].astype(np.uint8)
    moved = blur.shuffle_pixels(np.stack([y, x, y], axis=-1), np.random.default_rng(0), delta=delta).astype(int)
    inner = np.s_[8:-8, 8:-8]
    for channel, positions in ((0, y), (1, x)):
        shift = (moved[..., channel] - positions)[inner]
        assert np.abs(shift).max() == 2 * delta - 1
        assert shift.mean() == pytest.approx(0, abs=0.06)
        assert shift.var() == pytest.approx((4 * delta**2 - 1) / 6, rel=0.03)


def test_shuffled_takes_only_colours_that_are_there() -> None:
    image = textured(5, 7)
    moved = blur.shuffle_pixels(image, np.random.default_rng(0), delta=4)
    assert {tuple(pixel) for pixel in moved.reshape(-1, 3)} <= {tuple(pixel) for pixel in image.reshape(-1, 3)}


def test_glass_blur_without_iterations_is_two_gaussian_blurs() -> None:
    image = textured()
    expected = blur.gaussian_blur(blur.gaussian_blur(image, radius=0.9), radius=0.9)
    np.testing.assert_array_equal(blur.glass_blur(image, np.random.default_rng(0), sigma=0.9, iterations=0), expected)
