from __future__ import annotations

import colorsys

import numpy as np
import PIL.Image
import PIL.ImageEnhance
import PIL.ImageOps
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations import tone

IMAGE: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)


@pytest.mark.cases("factor", [0.0, 0.1, 0.7, 1.0, 1.3, 4.0])
@pytest.mark.cases(
    ("function", "enhancer"),
    [
        (tone.brightness, PIL.ImageEnhance.Brightness),
        (tone.contrast, PIL.ImageEnhance.Contrast),
        (tone.saturation, PIL.ImageEnhance.Color),
    ],
)
def test_factors_work_as_in_pillow(function: type, enhancer: type[PIL.ImageEnhance._Enhance], factor: float) -> None:
    expected = np.asarray(enhancer(PIL.Image.fromarray(IMAGE)).enhance(factor)).astype(int)  # type: ignore[call-arg]  # a base without __init__
    tolerance = 2 + abs(factor - 1)  # Pillow truncates, and rounds the mean or the luma before it is multiplied
    assert np.abs(np.asarray(function(IMAGE, factor=factor)) - expected).max() <= tolerance


@pytest.mark.parametrize("function", [tone.brightness, tone.contrast, tone.saturation, tone.gamma])
def test_factor_one_changes_nothing(function: type) -> None:
    np.testing.assert_array_equal(np.asarray(function(IMAGE, factor=1.0)), IMAGE)


def test_saturation_high_equals_grayscale() -> None:
    grey = perturbations.get("grayscale")(IMAGE, seed=1)
    np.testing.assert_array_equal(perturbations.get("saturation:high")(IMAGE, seed=1), grey)


@pytest.mark.parametrize("factor", [0.2, 0.7, 2.0])
def test_gamma_is_a_power(factor: float) -> None:
    expected = np.rint(255 * (IMAGE / 255) ** factor)
    np.testing.assert_array_equal(tone.gamma(IMAGE, factor=factor), expected)


@pytest.mark.cases("degrees", [0, 10, 40, 90, 270])
def test_hue_shift_turns_hue_and_keeps_saturation_and_value(degrees: float) -> None:
    shifted = tone.hue_shift(IMAGE, degrees=degrees)
    for before, after in zip(IMAGE.reshape(-1, 3)[:200], shifted.reshape(-1, 3), strict=False):
        hue, saturation, value = colorsys.rgb_to_hsv(*(before / 255))
        expected = 255 * np.array(colorsys.hsv_to_rgb((hue + degrees / 360) % 1, saturation, value))
        assert np.abs(after - expected).max() <= 0.51


def luma_of(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(picture @ (0.299, 0.587, 0.114))[..., None]


@pytest.mark.parametrize(("range_", "way"), [(0.1, 0.2), (0.3, 0.6), (0.5, 1.0)])
def test_color_jitter_goes_its_way_to_what_three_factors_give_in_order(range_: float, way: float) -> None:
    bright, contrasty, colourful = np.random.default_rng(3).uniform(0.5, 1.5, 3)
    widest = bright * IMAGE
    widest = luma_of(widest).mean() + contrasty * (widest - luma_of(widest).mean())
    widest = luma_of(widest) + colourful * (widest - luma_of(widest))
    expected = np.clip(IMAGE + way * (widest - IMAGE), 0, 255)
    jittered = tone.color_jitter(IMAGE, np.random.default_rng(3), range=range_)
    assert np.abs(jittered - expected).max() <= 1.1  # luma is rounded, then multiplied by less than two


@pytest.mark.parametrize("range_", [0.1, 0.3, 0.5])
def test_a_factor_alone_lies_in_its_range(range_: float) -> None:
    class Alone:
        def uniform(self, low: float, high: float, count: int) -> list[float]:
            assert (low, high, count) == (0.5, 1.5, 3)
            return [high, 1.0, 1.0]

    jittered = tone.color_jitter(IMAGE, Alone(), range=range_)  # type: ignore[arg-type]  # a draw that is known
    np.testing.assert_array_equal(jittered, tone.brightness(IMAGE, factor=1.0 + range_))


Image = NDArray[np.uint8]
PICTURE: Image = (np.random.default_rng(0).normal(110, 30, (41, 52, 3)).clip(20, 230)).astype(np.uint8)


def test_flips_and_swaps_are_the_reversals_of_their_axes() -> None:
    np.testing.assert_array_equal(tone.flip_h(PICTURE), PICTURE[:, ::-1])
    np.testing.assert_array_equal(tone.flip_v(PICTURE), PICTURE[::-1])
    np.testing.assert_array_equal(tone.channel_swap(PICTURE), PICTURE[..., ::-1])


def test_invert_is_pillows() -> None:
    np.testing.assert_array_equal(tone.invert(PICTURE), PIL.ImageOps.invert(PIL.Image.fromarray(PICTURE)))


def test_grayscale_has_three_equal_channels_within_a_level_of_pillows() -> None:
    grey = tone.grayscale(PICTURE)
    assert (grey == grey[..., :1]).all()
    assert np.abs(grey[..., 0].astype(int) - np.asarray(PIL.ImageOps.grayscale(PIL.Image.fromarray(PICTURE)))).max() <= 1


FLAT = np.repeat(np.array([[[10, 200, 30]] * 20 + [[240, 240, 240]] * 30], np.uint8), 20, axis=0)
TINY = PICTURE[:5, :7].copy()


@pytest.mark.parametrize("image", [PICTURE, FLAT, TINY, np.full((30, 30, 3), 77, np.uint8)])
def test_equalize_is_pillows(image: Image) -> None:
    np.testing.assert_array_equal(tone.equalize(image), PIL.ImageOps.equalize(PIL.Image.fromarray(image)))


@pytest.mark.parametrize("image", [PICTURE, FLAT, TINY, np.full((30, 30, 3), 77, np.uint8)])
def test_autocontrast_is_pillows_rounded(image: Image) -> None:
    expected = np.asarray(PIL.ImageOps.autocontrast(PIL.Image.fromarray(image))).astype(int)
    assert np.abs(tone.autocontrast(image) - expected).max() <= 1


def test_autocontrast_reaches_both_ends_in_every_channel() -> None:
    changed = tone.autocontrast(PICTURE)
    assert changed.min(axis=(0, 1)).tolist() == [0, 0, 0]
    assert changed.max(axis=(0, 1)).tolist() == [255, 255, 255]
