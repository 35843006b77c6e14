from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust import perturbations

FLAT = np.full((100, 120, 3), 90, np.uint8)


def test_shrink_is_left_small() -> None:
    assert perturbations.get("shrink:high")(FLAT, seed=1).shape == (15, 18, 3)


def test_inner_border_keeps_the_size_and_leaves_something_in_view() -> None:
    changed = perturbations.get("inner_border:low")(FLAT, seed=1)
    assert (changed == 0).all(axis=-1).sum() == 100 * 120 - 80 * 100
    for height, width in [(1, 1), (2, 9), (40, 50)]:
        small = np.full((height, width, 3), 90, np.uint8)
        assert (perturbations.get("inner_border:high")(small, seed=1) == 90).any()


@pytest.mark.parametrize(("level", "share"), [("low", 0.1), ("mid", 0.3), ("high", 0.5)])
def test_area_occlusion_hides_that_share_of_the_area(level: str, share: float) -> None:
    hidden = (perturbations.get(f"area_occlusion:{level}")(FLAT, seed=1) == 0).all(axis=-1).mean()
    assert hidden == pytest.approx(share, abs=0.01)


def test_levels_of_glass_shuffle_order_the_squared_error_and_those_of_glass_blur_reverse_it() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    picture = perturbations.get("gaussian_blur:high")(picture, seed=1)

    def error(setting: str) -> float:
        return float(np.square(perturbations.get(setting)(picture, seed=1).astype(float) - picture).mean())

    assert error("glass_shuffle:low") < error("glass_shuffle:mid") < error("glass_shuffle:high")


def test_a_smoother_field_moves_less() -> None:
    picture = np.tile(np.arange(0, 240, 2).astype(np.uint8)[None, :, None], (100, 1, 3))

    def moved(setting: str) -> float:
        return float(
            np.abs(perturbations.get(setting)(picture, seed=1)[10:-10, 20:-20].astype(int) - picture[10:-10, 20:-20]).mean()
        )

    assert 0 < moved("elastic_transform_10:high") < 0.7 * moved("elastic_transform:high")
