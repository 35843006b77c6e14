from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import ImageError, SettingError
from pytest_vlmrobust.perturbations.preprocessing import SHIFTS


def numbered(height: int, width: int) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    """Returns a picture whose pixels know their row and column."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([y % 256, x % 256, (y // 256) * 16 + x // 256], axis=-1).astype(np.uint8)


def test_the_set_has_the_published_grids_and_those_up_to_five() -> None:
    assert perturbations.names("patches") == ["patches:2", "patches:3", "patches:4", "patches:5"]
    assert [perturbations.info(setting).views for setting in perturbations.names("patches")] == [4, 9, 16, 25]


def test_patches_come_row_by_row() -> None:
    picture = numbered(6, 9)
    patches = perturbations.get("patches:3")(picture, seed=1)
    assert patches.shape == (9, 2, 3, 3)
    for index, patch in enumerate(patches):
        row, column = divmod(index, 3)
        np.testing.assert_array_equal(patch, picture[2 * row : 2 * row + 2, 3 * column : 3 * column + 3])


def test_what_is_left_over_is_cut_off_at_both_ends_the_odd_pixel_at_the_last() -> None:
    picture = numbered(8, 11)
    patches = perturbations.get("patches:3")(picture, seed=1)
    assert patches.shape == (9, 2, 3, 3)
    assert patches[0, 0, 0].tolist() == [1, 1, 0]
    assert patches[8, -1, -1].tolist() == [6, 9, 0]


@given(st.sampled_from([2, 3, 4, 5]), st.integers(5, 60), st.integers(5, 60))
def test_patches_are_equal_do_not_overlap_and_lose_less_than_n_lines(n: int, height: int, width: int) -> None:
    picture = numbered(height, width)
    patches = perturbations.get(f"patches:{n}")(picture, seed=1)
    pixels = patches.reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) == len(pixels)
    assert height - n * patches.shape[1] < n
    assert width - n * patches.shape[2] < n


def test_a_picture_with_fewer_pixels_than_patches_is_refused() -> None:
    with pytest.raises(ImageError, match=r"patches:3: got an image of 9 x 2 pixels\. Expected sides of at least 3"):
        perturbations.get("patches:3")(np.zeros((2, 9, 3), np.uint8), seed=1)


def test_grids_that_are_not_offered_are_refused_with_those_that_are() -> None:
    with pytest.raises(SettingError, match=r"no level '6'\. Expected one of 'patches:2', 'patches:3', 'patches:4', 'patches:5'"):
        perturbations.get("patches:6")


def test_a_perturbation_may_come_before_the_cut_and_not_after_it() -> None:
    picture = numbered(40, 60)
    fogged = perturbations.get("fog:mid")(picture, seed=7)
    np.testing.assert_array_equal(
        perturbations.get("fog:mid+patches:2")(picture, seed=7), perturbations.get("patches:2")(fogged, seed=1)
    )
    with pytest.raises(SettingError, match=r"'patches:2' makes several images of one\. Put it last"):
        perturbations.get("patches:2+fog:mid")


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_attempts_show_the_whole_picture_as_often_as_there_are_patches(n: int) -> None:
    picture = numbered(30, 40)
    attempts = perturbations.get(f"attempts:{n}")(picture, seed=1)
    assert attempts.shape == (n * n, 30, 40, 3)
    assert perturbations.info(f"attempts:{n}").views == perturbations.info(f"patches:{n}").views
    np.testing.assert_array_equal(attempts[0], picture)
    assert len({attempt.tobytes() for attempt in attempts}) == n * n
    np.testing.assert_array_equal(attempts, perturbations.get("attempts:5")(picture, seed=2)[: n * n])


def test_an_attempt_is_shifted_by_a_part_of_the_shorter_side_and_repeats_its_edge() -> None:
    picture = numbered(192, 300)  # a step of 3 pixels
    first, up_left, right = perturbations.get("attempts:2")(picture, seed=1)[:3]
    np.testing.assert_array_equal(up_left[:-3, :-3], first[3:, 3:])
    np.testing.assert_array_equal(up_left[-1], up_left[-4])
    np.testing.assert_array_equal(right[:, 3:], first[:, :-3])
    np.testing.assert_array_equal(right[:, :3], first[:, :1].repeat(3, axis=1))


def test_no_more_than_a_32nd_of_the_picture_leaves_at_a_side() -> None:
    assert max(abs(step) for shift in SHIFTS for step in shift) == 2
    assert len(set(SHIFTS)) == len(SHIFTS) == 25
    assert SHIFTS[0] == (0, 0)


def test_a_picture_of_one_pixel_has_attempts_that_are_all_the_same() -> None:
    picture = np.full((1, 1, 3), 9, np.uint8)
    assert (perturbations.get("attempts:3")(picture, seed=1) == 9).all()


def test_attempts_are_in_no_published_set() -> None:
    published = ("robustbench", "patches", "resolution", "observatory_id", "observatory_ood")
    assert not [name for which in published for name in perturbations.names(which) if "attempts" in name]
