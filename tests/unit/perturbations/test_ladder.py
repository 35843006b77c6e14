from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import SettingError


def test_the_set_has_the_twelve_published_rungs() -> None:
    assert perturbations.names("resolution") == [f"resolution:{112 * rung}" for rung in range(1, 13)]


@pytest.mark.parametrize("name", ["resolution", "resolution_lanczos"])
@pytest.mark.parametrize(("height", "width", "expected"), [(300, 400, (84, 112)), (400, 300, (112, 84)), (1, 900, (1, 112))])
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


@pytest.mark.parametrize("level", ["0", "0112", "-5", "112.5", "32001", "x"])
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


@pytest.mark.parametrize("name", ["pad_white", "pad_zero", "upscale_lanczos", "upscale_bicubic"])
@pytest.mark.parametrize("width", [448, 500])
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
