from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_vlmrobust.perturbations import noise

GREY = np.full((300, 300, 3), 128, np.uint8)
RNG_SEED = 11


@pytest.mark.parametrize("std", [0.02, 0.06, 0.10])
def test_gaussian_noise_has_its_deviation_and_no_bias(std: float) -> None:
    values = noise.gaussian_noise(GREY, np.random.default_rng(RNG_SEED), std=std).astype(float)
    assert values.std() == pytest.approx(np.hypot(255 * std, 1 / np.sqrt(12)), rel=0.01)
    assert values.mean() == pytest.approx(128, abs=0.2)


@pytest.mark.parametrize("std", [0.05, 0.25])
def test_speckle_noise_grows_with_the_value(std: float) -> None:
    for level in (0, 40, 80):
        image = np.full((300, 300, 3), level, np.uint8)
        values = noise.speckle_noise(image, np.random.default_rng(RNG_SEED), std=std).astype(float)
        rounding = 1 / np.sqrt(12) if level else 0.0
        assert values.std() == pytest.approx(np.hypot(level * std, rounding), rel=0.02)


@pytest.mark.cases("scale", [25, 10, 5])
@pytest.mark.cases("level", [0, 1, 60, 128, 255])
def test_shot_noise_counts_follow_poissons_law(scale: int, level: int) -> None:
    image = np.full((300, 300, 3), level, np.uint8)
    values = noise.shot_noise(image, np.random.default_rng(RNG_SEED), scale=scale)
    law = stats.poisson(level / 255 * scale)
    shown = np.rint(np.arange(scale) * 255 / scale)  # counts of scale and more are all white
    for count, value in enumerate(shown):
        expected = law.pmf(count)
        assert (values == value).mean() == pytest.approx(expected, abs=4 * np.sqrt(expected / values.size) + 2e-5)
    assert (values == 255).mean() == pytest.approx(law.sf(scale - 1), abs=4e-3)


@pytest.mark.parametrize("amount", [0.01, 0.04, 0.08])
def test_salt_pepper_replaces_whole_pixels_half_black_half_white(amount: float) -> None:
    values = noise.salt_pepper(GREY, np.random.default_rng(RNG_SEED), amount=amount)
    assert (values == values[..., :1]).all()
    for extreme in (0, 255):
        assert (values[..., 0] == extreme).mean() == pytest.approx(amount / 2, abs=4 * np.sqrt(amount / 2 / values[..., 0].size))
    assert ((values == 128) | (values == 0) | (values == 255)).all()
