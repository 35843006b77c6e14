from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import NoReturn

import cv2
import numpy as np
import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import MissingExtra
from pytest_vlmrobust.perturbations import pixels
from pytest_vlmrobust.perturbations.pixels import WITHOUT_DESKTOP, BrokenOpenCV, Image, opencv


def test_to_uint8_rounds_and_clips() -> None:
    values = np.array([[[-3.0, 0.4, 0.6], [1.5, 2.5, 300.0]]], np.float32)
    assert pixels.to_uint8(values).tolist() == [[[0, 0, 1], [2, 2, 255]]]


def test_extrapolate_keeps_at_one_and_reaches_the_target_at_zero() -> None:
    rng = np.random.default_rng(0)
    image, towards = rng.integers(0, 256, (2, 9, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(pixels.extrapolate(image, towards, 1.0), image)
    np.testing.assert_array_equal(pixels.extrapolate(image, towards, 0.0), towards)
    expected = np.clip(np.rint(towards + 2.5 * (image.astype(float) - towards)), 0, 255)
    assert np.abs(pixels.extrapolate(image, towards, 2.5) - expected).max() <= 1


def test_look_up_takes_one_curve_or_one_per_channel() -> None:
    image = np.array([[[0, 1, 2]]], np.uint8)
    assert pixels.look_up(image, np.arange(256) * 10.26).tolist() == [[[0, 10, 21]]]
    assert pixels.look_up(image, np.arange(256)[:, None] * [1, 2, -3]).tolist() == [[[0, 2, 0]]]


@pytest.fixture(params=["stringzilla", "without"])
def _either_translate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Looks levels up by a stand-in with the interface of stringzilla, and without it."""

    def translate(text: memoryview, table: memoryview, *, inplace: bool) -> None:
        assert inplace
        values = np.asarray(text)
        values[...] = np.asarray(table)[values]

    module = SimpleNamespace(translate=translate)
    monkeypatch.setitem(sys.modules, "stringzilla", module if request.param == "stringzilla" else None)
    pixels.fast_translate.cache_clear()
    yield
    pixels.fast_translate.cache_clear()


@pytest.mark.usefixtures("_either_translate")
def test_translate_gives_the_levels_of_the_table_with_and_without_stringzilla() -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(0, 256, 256, dtype=np.uint8)
    for shape in [(9, 7, 3), (1, 1, 3), (300, 1), (5, 8)]:
        values = rng.integers(0, 256, shape, dtype=np.uint8)
        np.testing.assert_array_equal(pixels.translate(values.copy(), table), table[values])


@pytest.mark.usefixtures("_either_translate")
@pytest.mark.parametrize("factor", [0.1, 0.7, 1.3, 3.0])
def test_pointwise_gives_the_same_bytes_with_and_without_stringzilla(factor: float) -> None:
    def scaled(values: Image) -> Image:
        brighter: Image = cv2.convertScaleAbs(values, alpha=factor)
        return brighter

    def stretched(values: Image) -> Image:
        further: Image = cv2.addWeighted(values, factor, values, 0.0, (1.0 - factor) * 87.3)
        return further

    rng = np.random.default_rng(0)
    for width in range(1, 80):  # the last values of a row are not computed by the same instructions as the others
        image = rng.integers(0, 256, (3, width, 3), dtype=np.uint8)
        before = image.copy()
        for change in (scaled, stretched):
            np.testing.assert_array_equal(pixels.pointwise(image, change), change(image))
        np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("setting", ["gamma:mid", "contrast:mid", "solarize:low", "equalize", "rain:mid", "gaussian_noise:mid"])
def test_settings_give_the_same_bytes_without_stringzilla(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("stringzilla")
    image = np.random.default_rng(0).integers(0, 256, (61, 83, 3), dtype=np.uint8)
    with_it = perturbations.get(setting)(image, seed=3)
    monkeypatch.setattr(pixels, "fast_translate", lambda: None)
    np.testing.assert_array_equal(perturbations.get(setting)(image, seed=3), with_it)


def test_overlay_is_blend_by_whole_levels() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    opacity = rng.integers(0, 256, (40, 50), dtype=np.uint8)
    exact = pixels.blend(image, (200, 100, 0), opacity.astype(np.float32) / np.float32(255)).astype(int)
    assert np.abs(pixels.overlay(image, (200, 100, 0), opacity) - exact).max() <= 1
    for level in (0, 255):
        flat = pixels.overlay(image, (200, 100, 0), np.full((40, 50), level, np.uint8))
        np.testing.assert_array_equal(flat, image if level == 0 else np.broadcast_to((200, 100, 0), image.shape))


def test_luma_has_the_weights_of_bt_601() -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    assert np.abs(pixels.luma(image) - image @ [0.299, 0.587, 0.114]).max() < 0.51


def test_blend_goes_from_the_image_to_the_layer() -> None:
    image = np.full((1, 3, 3), 100, np.uint8)
    opacity = np.array([[0.0, 0.5, 1.0]], np.float32)
    assert pixels.blend(image, (200, 100, 0), opacity).tolist() == [[[100, 100, 100], [150, 100, 50], [200, 100, 0]]]


def test_smooth_noise_spans_the_unit_interval_and_is_smooth() -> None:
    field = pixels.smooth_noise(np.random.default_rng(0), 120, 200, cell=40, octaves=1)
    assert (field.min(), field.max()) == (0.0, 1.0)
    assert np.abs(np.diff(field, axis=1)).max() < 3 / 40
    assert np.abs(np.diff(field, axis=0)).max() < 3 / 40


def test_smooth_noise_of_one_pixel_is_half() -> None:
    assert pixels.smooth_noise(np.random.default_rng(0), 1, 1, cell=40, octaves=3).tolist() == [[0.5]]


@pytest.mark.parametrize(("height", "width", "unit", "share"), [(1, 1, 1, 1 / 160_000), (400, 400, 1, 1), (800, 1800, 3, 1)])
def test_scene_of_400_units(height: int, width: int, unit: float, share: float) -> None:
    assert pixels.scene_unit(height, width) == pytest.approx(unit)
    assert pixels.scene_share(height, width) == pytest.approx(share)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    opencv.cache_clear()
    yield
    opencv.cache_clear()


def failing(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    def refuse(_name: str) -> NoReturn:
        raise error

    monkeypatch.setattr(importlib, "import_module", refuse)


def test_absent_opencv_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ModuleNotFoundError("No module named 'cv2'", name="cv2"))
    with pytest.raises(MissingExtra, match=r"needs the package 'cv2'.*pip install opencv-python"):
        opencv()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libGL.so.1: cannot open shared object file: No such file or directory"),
        ModuleNotFoundError("No module named 'numpy'", name="numpy"),
    ],
)
def test_opencv_that_does_not_load_has_the_reason_and_both_remedies(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    failing(monkeypatch, error)
    with pytest.raises(BrokenOpenCV) as caught:
        opencv()
    assert isinstance(caught.value, MissingExtra)
    for part in (str(error), "apt-get install libgl1", WITHOUT_DESKTOP):
        assert part in str(caught.value)


def test_the_module_is_cv2() -> None:
    assert opencv().__name__ == "cv2"
