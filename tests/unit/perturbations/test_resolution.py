from __future__ import annotations

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import SettingError
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


@pytest.mark.cases("scale", [1.5, 3.0, 6.0])
@pytest.mark.cases(("height", "width"), [(120, 180), (97, 101), (3, 40), (1, 1)])
def test_upsample_is_bicubic_about_the_centre(scale: float, height: int, width: int) -> None:
    zoomed = resolution.upsample(gradient(height, width), scale=scale).astype(float)
    for channel, side in ((0, width), (1, height)):
        expected = (side - 1) / 2 + (np.arange(side) - (side - 1) / 2) / scale
        positions = zoomed.mean(axis=channel, keepdims=False)[..., channel] if side > 1 else np.zeros(1)
        np.testing.assert_allclose(positions, expected, atol=1.0)  # levels are rounded, and places to half a pixel


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


def steep_gradient() -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    y, x = np.mgrid[0:64, 0:96]
    return np.stack([2 * x, 3 * y, x + y], axis=-1).astype(np.uint8)


def test_jpeg_of_a_smooth_picture_is_close_and_worse_at_lower_quality() -> None:
    errors = [
        np.abs(resolution.jpeg_compression(steep_gradient(), quality=quality).astype(int) - steep_gradient()).mean()
        for quality in (80, 50, 20)
    ]
    assert 0 < errors[0] < errors[1] < errors[2] < 10


@pytest.mark.parametrize(("scale", "block"), [(0.5, 2), (0.25, 4), (0.125, 8)])
def test_pixelate_makes_constant_blocks_of_the_mean(scale: float, block: int) -> None:
    image = steep_gradient()
    blocks = resolution.pixelate(image, scale=scale).reshape(64 // block, block, 96 // block, block, 3)
    assert (blocks == blocks[:, :1, :, :1]).all()
    means = image.reshape(64 // block, block, 96 // block, block, 3).mean(axis=(1, 3))
    assert np.abs(blocks[:, 0, :, 0] - means).max() <= 0.5


@pytest.mark.parametrize(
    ("height", "width", "scale", "expected"), [(10, 20, 0.2, (4, 2)), (1, 3, 0.1, (1, 1)), (5, 5, 6.0, (30, 30))]
)
def test_scaled_size_is_at_least_a_pixel(height: int, width: int, scale: float, expected: tuple[int, int]) -> None:
    assert resolution.scaled_size(height, width, scale) == expected


def test_the_set_has_the_twelve_published_rungs() -> None:
    assert perturbations.names("resolution") == [f"resolution:{112 * rung}" for rung in range(1, 13)]


@pytest.mark.cases("name", ["resolution", "resolution_lanczos"])
@pytest.mark.cases(("height", "width", "expected"), [(300, 400, (84, 112)), (400, 300, (112, 84)), (1, 900, (1, 112))])
def test_the_long_edge_is_aligned_and_the_shape_kept(name: str, height: int, width: int, expected: tuple[int, int]) -> None:
    rendering = perturbations.get(f"{name}:112").render(np.full((height, width, 3), 77, np.uint8), seed=1)
    assert rendering.image.shape[:2] == expected
    assert (rendering.image == 77).all()
    assert rendering.notes == ()


@pytest.mark.parametrize("name", ["resolution", "resolution_lanczos"])
def test_a_smaller_picture_is_left_as_it_is_and_reported(name: str) -> None:
    picture = np.arange(30 * 40 * 3, dtype=np.uint32).astype(np.uint8).reshape(30, 40, 3)
    rendering = perturbations.get(f"{name}:112").render(picture, seed=1)
    np.testing.assert_array_equal(rendering.image, picture)
    assert rendering.notes == (f"{name}:112: the long edge has 40 pixels, fewer than 112: left as it is",)


def test_a_picture_of_the_size_of_the_rung_is_left_alone_without_a_note() -> None:
    picture = np.arange(30 * 112 * 3, dtype=np.uint32).astype(np.uint8).reshape(30, 112, 3)
    rendering = perturbations.get("resolution:112").render(picture, seed=1)
    np.testing.assert_array_equal(rendering.image, picture)
    assert rendering.notes == ()


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 90))
def test_never_enlarges_at_any_rung(height: int, width: int, long_edge: int) -> None:
    changed = perturbations.get(f"resolution:{long_edge}")(np.zeros((height, width, 3), np.uint8), seed=1)
    assert max(changed.shape[:2]) == min(long_edge, max(height, width))
    assert changed.shape[0] <= height
    assert changed.shape[1] <= width


def test_shrinking_by_a_whole_factor_averages_areas_and_rounds() -> None:
    picture = np.zeros((2, 4, 3), np.uint8)
    picture[0, 0] = 255
    picture[:, 2:] = [[[10], [20]], [[30], [41]]]
    shrunk = perturbations.get("resolution:2")(picture, seed=1)
    assert shrunk[0, :, 0].tolist() == [64, 25]  # 63.75 and 25.25: a truncating resizer would say 63


@pytest.mark.cases("level", ["0", "0112", "-5", "112.5", "32001", "x"])
def test_other_rungs_are_whole_numbers_in_range(level: str) -> None:
    with pytest.raises(SettingError, match=r"(Expected 'resolution:N' with a whole number N from 1 to 32000|cannot read)"):
        perturbations.get(f"resolution:{level}")


def test_a_rung_that_is_not_listed_is_described_like_one_that_is() -> None:
    assert perturbations.info("resolution:16").level == "16"
    assert perturbations.info("resolution:16").label_changing == frozenset()
    assert perturbations.fingerprint("resolution:16") == [
        {"name": "resolution", "level": "16", "params": {"long_edge": 16}, "version": 1}
    ]


@pytest.mark.parametrize(("name", "margin"), [("pad_white", 255), ("pad_zero", 0)])
def test_the_picture_stands_in_the_middle_of_a_canvas_of_its_own_shape(name: str, margin: int) -> None:
    picture = np.full((31, 60, 3), 90, np.uint8)
    padded = perturbations.get(f"{name}:121")(picture, seed=1)
    assert padded.shape == (63, 121, 3)
    top, left = 16, 30  # 32 and 61 pixels of margin: the odd one at the right
    np.testing.assert_array_equal(padded[top : top + 31, left : left + 60], picture)
    assert (padded == margin).all(axis=-1).sum() == 63 * 121 - 31 * 60


@pytest.mark.parametrize("name", ["upscale_lanczos", "upscale_bicubic"])
def test_enlarging_keeps_the_shape_and_flat_colours(name: str) -> None:
    changed = perturbations.get(f"{name}:448")(np.full((30, 40, 3), 200, np.uint8), seed=1)
    assert changed.shape == (336, 448, 3)
    assert (changed == 200).all()


@pytest.mark.cases("name", ["pad_white", "pad_zero", "upscale_lanczos", "upscale_bicubic"])
@pytest.mark.cases("width", [448, 500])
def test_what_is_large_already_is_left_as_it_is_and_reported(name: str, width: int) -> None:
    picture = np.full((300, width, 3), 9, np.uint8)
    rendering = perturbations.get(f"{name}:448").render(picture, seed=1)
    np.testing.assert_array_equal(rendering.image, picture)
    assert rendering.notes == (f"{name}:448: the long edge has {width} pixels, 448 or more: left as it is",)


def test_table_3_is_a_rung_and_then_a_preprocessing() -> None:
    picture = np.random.default_rng(3).integers(0, 256, (600, 900, 3), dtype=np.uint8)
    rung = perturbations.get("resolution:224")(picture, seed=1)
    rendering = perturbations.get("resolution:224+pad_white:448").render(picture, seed=1)
    assert rendering.image.shape == (298, 448, 3)
    assert rendering.notes == ()
    top, left = (298 - rung.shape[0]) // 2, (448 - 224) // 2
    np.testing.assert_array_equal(rendering.image[top : top + rung.shape[0], left : left + 224], rung)
