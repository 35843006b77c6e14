from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.perturbations import occlusion

WHITE: NDArray[np.uint8] = np.full((240, 360, 3), 255, np.uint8)


@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.25])
def test_random_occlusion_hides_one_rectangle_of_its_area_anywhere(ratio: float) -> None:
    places = set()
    for seed in range(8):
        hidden = occlusion.random_occlusion(WHITE, np.random.default_rng(seed), ratio=ratio)[..., 0] == 0
        y, x = np.nonzero(hidden)
        assert hidden[y.min() : y.max() + 1, x.min() : x.max() + 1].all()
        assert hidden.mean() == pytest.approx(ratio, rel=0.03)
        assert 0.49 <= (np.ptp(y) / 240) / (np.ptp(x) / 360) <= 2.05
        places.add((y.min(), x.min()))
    assert len(places) == 8


@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.3])
def test_grid_mask_hides_its_share_in_squares_of_equal_period(ratio: float) -> None:
    hidden = occlusion.grid_mask(WHITE, np.random.default_rng(0), ratio=ratio)[..., 0] == 0
    assert hidden.mean() == pytest.approx(ratio, rel=0.12)
    rows = hidden.any(axis=1)
    assert (np.diff(rows.astype(int)) == 1).sum() in {7, 8}
    np.testing.assert_array_equal(rows[:-30], rows[30:])


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
def test_center_occlusion_hides_a_share_of_each_side(ratio: float) -> None:
    hidden = occlusion.center_occlusion(WHITE, ratio=ratio)[..., 0] == 0
    np.testing.assert_array_equal(hidden, hidden[::-1, ::-1])
    assert hidden.any(axis=1).mean() == pytest.approx(ratio)
    assert hidden.any(axis=0).mean() == pytest.approx(ratio)
