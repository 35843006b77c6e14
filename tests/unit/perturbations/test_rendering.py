from __future__ import annotations

import pickle  # noqa: TID251  # worker processes receive renderers this way
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.perturbations.registry import REGISTRY

PICTURE: NDArray[np.uint8] = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


def test_composition_is_one_after_the_other() -> None:
    fogged = perturbations.get("fog:mid")(PICTURE, seed=5)
    expected = perturbations.get("jpeg_compression:high")(fogged, seed=5)
    np.testing.assert_array_equal(perturbations.get("fog:mid+jpeg_compression:high")(PICTURE, seed=5), expected)


def test_a_repeated_step_draws_anew() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    once = perturbations.get("gaussian_noise:low")(grey, seed=5).astype(int) - 128
    twice = perturbations.get("gaussian_noise:low+gaussian_noise:low")(grey, seed=5).astype(int) - 128
    # the same noise twice would have double the deviation, independent noise has the root of two
    assert twice.std() / once.std() == pytest.approx(np.sqrt(2), rel=0.05)


def test_levels_of_one_perturbation_share_their_draws() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    low, mid = (perturbations.get(f"gaussian_noise:{at}")(grey, seed=5).astype(float) - 128 for at in ("low", "mid"))
    np.testing.assert_allclose(mid / 3, low, atol=0.67)  # 0.06 is three times 0.02, and both are rounded to levels


@pytest.mark.cases(
    ("level", "numbers"),
    [
        (f"{record.name}:{level}", f"{record.name}:{numbers}")
        for record in dict.fromkeys(REGISTRY.get(name.partition(":")[0]) for name in perturbations.names("all"))
        if record.on == "image"
        for level, numbers in zip(record.levels, record.numbers, strict=False)
    ],
)
def test_the_numbers_of_a_level_give_its_bytes(level: str, numbers: str) -> None:
    as_numbers, as_level = (perturbations.get(name)(PICTURE, seed=5) for name in (numbers, level))
    np.testing.assert_array_equal(as_numbers, as_level)
    assert str(Setting.parse(numbers)) == numbers
    assert perturbations.info(numbers).label_changing >= perturbations.info(level).label_changing


def test_numbers_lie_between_levels() -> None:
    low, between, mid = (
        np.abs(perturbations.get(f"gaussian_blur:{level}")(PICTURE, seed=5).astype(int) - PICTURE).mean()
        for level in ("low", "radius=1", "mid")
    )
    assert low < between < mid
    assert perturbations.fingerprint("gaussian_blur:radius=1.7")[0]["params"] == {"radius": 1.7}


def test_a_perturbation_repeated_at_another_level_draws_anew() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    low, both = (
        perturbations.get(at)(grey, seed=5).astype(float).ravel() - 128
        for at in ("gaussian_noise:low", "gaussian_noise:low+gaussian_noise:mid")
    )
    assert abs(np.corrcoef(low, both - low)[0, 1]) < 0.05


def test_two_perturbations_draw_independently() -> None:
    grey = np.full((64, 64, 3), 128, np.uint8)
    normal, speckle = (
        perturbations.get(at)(grey, seed=5).astype(float).ravel() for at in ("gaussian_noise:high", "speckle_noise:high")
    )
    assert abs(np.corrcoef(normal, speckle)[0, 1]) < 0.05


def test_clean_is_an_equal_copy() -> None:
    copy = perturbations.get("clean")(PICTURE, seed=1)
    np.testing.assert_array_equal(copy, PICTURE)
    assert not np.shares_memory(copy, PICTURE)
    np.testing.assert_array_equal(perturbations.get("clean+flip_h")(PICTURE, seed=1), PICTURE[:, ::-1])


def test_a_renderer_survives_the_way_to_another_process() -> None:
    render = perturbations.get("rain:mid")
    again = pickle.loads(pickle.dumps(render))  # noqa: S301  # bytes of our own
    np.testing.assert_array_equal(again(PICTURE, seed=2), render(PICTURE, seed=2))
    assert repr(again) == "perturbations.get('rain:mid')"


def test_a_parsed_setting_serves_as_well_as_its_text() -> None:
    render = perturbations.get(Setting.parse("rain:mid"))
    np.testing.assert_array_equal(render(PICTURE, seed=2), perturbations.get("rain:mid")(PICTURE, seed=2))


def test_integers_of_numpy_are_the_same_seed_and_floats_are_refused() -> None:
    render = perturbations.get("gaussian_noise:low")
    np.testing.assert_array_equal(render(PICTURE, seed=np.int64(7)), render(PICTURE, seed=7))
    with pytest.raises(TypeError, match=r"seed is 7\.0: expected a whole number"):
        render(PICTURE, seed=7.0)  # type: ignore[arg-type]  # the mistake under test


def test_what_is_no_array_is_refused_with_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"fog:low: got builtins.list. Expected a uint8 array .* perturbations.as_rgb"):
        perturbations.get("fog:low")([[1]], seed=1)  # type: ignore[arg-type]  # the mistake under test


def test_a_side_too_long_for_opencv_is_refused() -> None:
    with pytest.raises(ImageError, match=r"rotate:low: got an image of 32001 x 1 pixels. Expected sides from 1 to 32000"):
        perturbations.get("rotate:low")(np.zeros((1, 32_001, 3), np.uint8), seed=1)


@pytest.mark.cases(
    "setting", ["zoom_blur:high", "glass_blur:low", "elastic_transform:high", "upsample:low", "jpeg_compression:low"]
)
def test_the_longest_side_works(setting: str) -> None:
    picture = np.full((2, 32_000, 3), 90, np.uint8)
    assert perturbations.get(setting)(picture, seed=1)[:, 16_000].tolist() == [[90] * 3] * 2


RGB = np.array([[[10, 20, 30], [250, 0, 5]]], np.uint8)


@pytest.mark.cases(
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
