from __future__ import annotations

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations import geometric

Image = NDArray[np.uint8]


def spot(x: int, y: int, side: int = 101) -> Image:
    """Draws a white disk of radius 3 on black."""
    rows, columns = np.mgrid[0:side, 0:side]
    disk = np.hypot(columns - x, rows - y) < 3
    return np.repeat(disk[..., None], 3, axis=2).astype(np.uint8) * np.uint8(255)


def centre(image: Image) -> tuple[float, float]:
    """Returns the centre of mass (x, y)."""
    weights = image[..., 0].astype(float)
    rows, columns = np.mgrid[0 : weights.shape[0], 0 : weights.shape[1]]
    return float((columns * weights).sum() / weights.sum()), float((rows * weights).sum() / weights.sum())


@pytest.mark.parametrize("degrees", [5, 15, 30])
def test_rotate_turns_counter_clockwise_about_the_centre(degrees: float) -> None:
    angle = np.radians(degrees)
    expected = (50 + 30 * np.cos(angle), 50 - 30 * np.sin(angle))
    assert centre(geometric.rotate(spot(80, 50), degrees=degrees)) == pytest.approx(expected, abs=0.1)


def test_rotate_agrees_with_pillow_inside() -> None:
    y, x = np.mgrid[0:80, 0:120]
    image = np.stack([2 * x, 3 * y, x + y], axis=-1).astype(np.uint8)
    expected = np.asarray(PIL.Image.fromarray(image).rotate(15, PIL.Image.Resampling.BILINEAR))
    assert np.abs(geometric.rotate(image, degrees=15).astype(int) - expected)[15:-15, 25:-25].max() <= 2


@pytest.mark.parametrize("degrees", [5, 15, 25])
def test_shear_moves_rows_by_the_tangent(degrees: float) -> None:
    sheared = geometric.shear(spot(50, 80), degrees=degrees)
    assert centre(sheared) == pytest.approx((50 + 30 * np.tan(np.radians(degrees)), 80), abs=0.1)


@pytest.mark.parametrize(("degrees", "scale"), [(5, 0.95), (15, 0.85), (30, 0.7)])
def test_affine_turns_and_shrinks(degrees: float, scale: float) -> None:
    angle = np.radians(degrees)
    expected = (50 + 30 * scale * np.cos(angle), 50 - 30 * scale * np.sin(angle))
    assert centre(geometric.affine(spot(80, 50), degrees=degrees)) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("magnitude", [0.05, 0.15, 0.25])
def test_perspective_moves_each_corner_inwards_by_up_to_half_of_the_magnitude(magnitude: float) -> None:
    white = np.full((200, 300, 3), 255, np.uint8)
    for seed in range(5):
        lit = geometric.perspective_transform(white, np.random.default_rng(seed), magnitude=magnitude)[..., 0] > 127
        y, x = np.nonzero(lit)
        for rise, run in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            corner = np.argmin(rise * y / 200 + run * x / 300)
            for moved in (
                y[corner] / 200 if rise > 0 else 1 - y[corner] / 200,
                x[corner] / 300 if run > 0 else 1 - x[corner] / 300,
            ):
                assert -0.01 <= moved <= magnitude / 2 + 0.01


@pytest.mark.parametrize(("magnitude", "visible"), [(0.05, 0.95), (0.15, 0.855), (0.25, 0.766)])
def test_perspective_keeps_the_area_of_its_docstring_on_average(magnitude: float, visible: float) -> None:
    white = np.full((100, 150, 3), 255, np.uint8)
    lit = [
        geometric.perspective_transform(white, np.random.default_rng(seed), magnitude=magnitude)[..., 0] > 127
        for seed in range(200)
    ]
    assert np.mean(lit) == pytest.approx(visible, abs=0.01)


@pytest.mark.parametrize(("alpha", "expected"), [(30, 0.98), (80, 2.6), (180, 5.9)])
def test_elastic_displacement_is_that_of_the_docstring(alpha: float, expected: float) -> None:
    """A horizontal ramp shows the sideways displacement; the deviation of filtered noise is known in closed form."""
    ramp = np.repeat(np.arange(20, 236, dtype=np.uint8)[None, :], 216, axis=0)
    image = np.repeat(ramp[..., None], 3, axis=2)
    shifts = [
        (geometric.elastic_transform(image, np.random.default_rng(seed), alpha=alpha)[..., 0].astype(float) - ramp)[:, 30:-30]
        for seed in range(6)
    ]
    theory = alpha / np.sqrt(3) / (2 * np.sqrt(np.pi) * geometric.ELASTIC_SIGMA)
    assert theory == pytest.approx(expected, rel=0.01)
    assert np.sqrt(np.mean(np.square(shifts))) == pytest.approx(theory, rel=0.12)


def test_elastic_with_a_wide_filter_hardly_moves_anything() -> None:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    bent = geometric.elastic_transform(image, np.random.default_rng(1), alpha=0.0)
    np.testing.assert_array_equal(bent, image)
