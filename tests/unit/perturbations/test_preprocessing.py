from __future__ import annotations

import numpy as np
import pytest

from pytest_vlmrobust import perturbations


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
