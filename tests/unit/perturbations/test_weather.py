from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations import weather

Image = NDArray[np.uint8]


def flat(level: int = 60, height: int = 200, width: int = 260) -> Image:
    return np.full((height, width, 3), level, np.uint8)


def opacity(changed: Image, level: int, colour: int) -> NDArray[np.float64]:
    """Returns how much of ``colour`` covers the first channel of a picture that was ``level`` everywhere."""
    return (changed[..., 0].astype(float) - level) / (colour - level)


@pytest.mark.parametrize("intensity", [0.2, 0.6, 1.0])
def test_fog_is_nowhere_absent_and_nowhere_opaque(intensity: float) -> None:
    covered = opacity(weather.fog(flat(), np.random.default_rng(0), intensity=intensity), 60, weather.HAZE[0]) / intensity
    assert covered.min() == pytest.approx(0.4, abs=0.03)
    assert covered.max() == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("intensity", [0.2, 0.6, 1.0])
def test_frost_leaves_gaps_and_never_exceeds_its_intensity(intensity: float) -> None:
    covered = opacity(weather.frost(flat(), np.random.default_rng(0), intensity=intensity), 60, weather.ICE[0])
    assert covered.max() <= intensity + 0.01
    assert covered.min() < 0.1
    assert 0.1 * intensity < covered.mean() < 0.6 * intensity


@pytest.mark.parametrize("intensity", [0.1, 0.3, 0.5])
def test_spatter_covers_its_intensity(intensity: float) -> None:
    changed = weather.spatter(flat(220), np.random.default_rng(0), intensity=intensity)
    covered = opacity(changed, 220, weather.MUD[0])
    assert (covered > 0.2).mean() == pytest.approx(intensity, abs=0.01)
    assert 0.6 < covered.max() <= 0.71
    assert 0.4 < np.median(covered[covered > 0.2]) < 0.65


def test_snow_brightens_and_rain_dims_what_they_do_not_cover() -> None:
    rng = np.random.default_rng(0)
    assert np.median(weather.snow(flat(), rng, intensity=0.3)) == pytest.approx(60 + 0.3 * (60 // 2 + 112 - 60), abs=1)
    assert np.median(weather.rain(flat(), rng, intensity=0.3)) == pytest.approx(60 * (1 - 0.09), abs=1)


@pytest.mark.cases("name", ["fog", "frost", "snow", "rain", "spatter"])
def test_weather_shows_on_a_white_page_at_every_level(name: str) -> None:
    page = flat(255)
    low = perturbations.get(f"{name}:low")(page, seed=1)
    assert (page - low).max() >= 6


@pytest.mark.parametrize("function", [weather.snow, weather.rain])
def test_density_is_proportional_to_intensity(function: type) -> None:
    black = flat(0, 400, 400)
    shares = []
    for intensity in (0.1, 0.3):
        changed = np.asarray(function(black, np.random.default_rng(0), intensity=intensity))[..., 0]
        shares.append(float((changed > np.median(changed)).mean()))
    assert 2.2 < shares[1] / shares[0] < 3.2  # streaks overlap a little


@pytest.mark.parametrize("function", [weather.snow, weather.rain, weather.frost, weather.spatter])
def test_textures_scale_with_the_picture(function: type) -> None:
    """The share covered is about the same in a picture of three times the sides."""
    small, large = (
        np.mean(
            [
                np.abs(np.asarray(function(flat(0, side, side), np.random.default_rng(seed), intensity=0.3)).astype(float)).mean()
                for seed in range(3)
            ]
        )
        for side in (400, 1200)
    )
    assert large == pytest.approx(small, rel=0.25)


def test_rain_falls_within_20_degrees_of_the_vertical() -> None:
    for seed in range(4):
        changed = weather.rain(flat(0, 400, 400), np.random.default_rng(seed), intensity=0.3)[..., 0].astype(float)
        spectrum = np.abs(np.fft.fftshift(np.fft.fft2(changed - changed.mean()))) ** 2
        y, x = np.mgrid[-200:200, -200:200]
        ring = (np.hypot(x, y) > 10) & (np.hypot(x, y) < 80)
        # the energy of streaks lies across them
        moments = np.cov(np.stack([x[ring], y[ring]]), aweights=spectrum[ring])
        across = np.linalg.eigh(moments)[1][:, 1]
        assert np.degrees(np.arctan2(abs(across[1]), abs(across[0]))) < 22


def test_rain_fades_towards_the_ends_of_its_streaks() -> None:
    drawn = weather._streaks(np.random.default_rng(1), 2_000, 40, 0.1, length=70, slope=0.0, bright=200)
    along = drawn[:, drawn.any(axis=0)].T
    assert len(along) == 1
    lit = np.flatnonzero(along[0])
    assert len(lit) == 70
    middle = len(lit) // 2
    assert along[0, lit[middle]] == 200
    assert along[0, lit].tolist() == along[0, lit[::-1]].tolist()
    assert (np.diff(along[0, lit[: middle + 1]].astype(int)) >= 0).all()
    assert along[0, lit[0]] == 50


def test_trails_leave_at_one_side_and_do_not_return_at_the_other() -> None:
    for seed in range(50):
        drawn = weather._trails(np.random.default_rng(seed), 6, 6, [(1, 1, np.maximum), (2, 2, np.maximum)], count=0.1, bright=9)
        lit = np.argwhere(drawn)
        assert len({down - across for down, across in lit.tolist()}) <= 1


def test_small_drops_are_drawn_as_large_ones_are() -> None:
    rng = np.random.default_rng(0)
    centres, radii = rng.uniform(0, 100, (60, 2)), rng.uniform(0.6, 1.9, 60)
    together = weather._first_drops(centres, radii, 100, 100)
    apart = weather._first_drops(centres, radii, 100, 100, small=0)
    assert (together != apart).mean() < 0.02  # pixels at the rim
    assert {*np.unique(apart).tolist()} - {*np.unique(together).tolist()} == set()


def test_fibres_of_frost_lean_away_from_their_stem_on_both_sides() -> None:
    stem = np.array([[[5.0, 20.0], [95.0, 20.0]]])
    distance, nearest = weather._nearest(stem, 40, 100)
    assert distance[20, 50] == 0
    assert distance[30, 50] == pytest.approx(10, abs=0.5)
    assert (nearest == 0).all()
    x, y = weather._leaning_direction(stem, nearest)
    assert x[10, 50] == pytest.approx(x[30, 50]) == pytest.approx(np.cos(0.8))
    assert y[30, 50] == pytest.approx(np.sin(0.8)) == pytest.approx(-y[10, 50])
