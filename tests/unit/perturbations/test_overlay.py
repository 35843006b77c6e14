from __future__ import annotations

import numpy as np
import PIL.ImageFont
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import MissingExtra
from pytest_vlmrobust.perturbations import overlay

Image = NDArray[np.uint8]


def grey(level: int = 90, height: int = 200, width: int = 600) -> Image:
    return np.full((height, width, 3), level, np.uint8)


def box(changed: Image, level: int = 90) -> tuple[int, int, int, int]:
    """Returns top, left, height and width of what is not ``level``."""
    y, x = np.nonzero((changed != level).any(axis=2))
    return int(y.min()), int(x.min()), int(np.ptp(y)) + 1, int(np.ptp(x)) + 1


@pytest.mark.parametrize("fontsize", [24, 48, 72])
def test_text_overlay_is_white_with_a_black_outline_and_inside(fontsize: int) -> None:
    changed = overlay.text_overlay(grey(), np.random.default_rng(0), fontsize=fontsize)
    assert (changed == 255).all(axis=2).any()
    assert (changed == 0).all(axis=2).any()
    _, _, tall, wide = box(changed)
    assert 0.6 * fontsize < tall < 1.1 * fontsize
    assert 5 * fontsize < wide < 8 * fontsize


def test_text_overlay_is_anywhere_and_always_whole_where_there_is_room() -> None:
    boxes = [box(overlay.text_overlay(grey(), np.random.default_rng(seed), fontsize=48)) for seed in range(20)]
    assert len({place[:2] for place in boxes}) == 20
    assert len({place[2:] for place in boxes}) == 1
    assert np.ptp([place[0] for place in boxes]) > 60
    assert np.ptp([place[1] for place in boxes]) > 100


def test_text_wider_than_the_picture_is_centred_and_cut_off() -> None:
    narrow = overlay.text_overlay(grey(90, 200, 100), np.random.default_rng(0), fontsize=72)
    whole = overlay.text_overlay(grey(90, 200, 600), np.random.default_rng(0), fontsize=72)
    _, left, _, wide = box(whole)
    cuts = [left + (wide - 100) // 2 + shift for shift in range(-4, 5)]
    assert any((narrow == whole[:, cut : cut + 100]).all() for cut in cuts)


@pytest.mark.cases("level", [0, 60, 128, 200, 255])
def test_watermark_is_centred_half_transparent_and_shows_on_any_ground(level: int) -> None:
    changed = overlay.watermark(grey(level, 401, 601), fontsize=72)
    top, left, tall, wide = box(changed, level)
    assert top + tall / 2 == pytest.approx(200.5, abs=8)
    assert left + wide / 2 == pytest.approx(300.5, abs=8)
    strongest = int(np.abs(changed.astype(int) - level).max())
    assert strongest == pytest.approx(max(level, 255 - level) / 2, abs=1)


def test_watermark_rises_by_30_degrees() -> None:
    y, x = np.nonzero((overlay.watermark(grey(), fontsize=48) != 90).any(axis=2))
    assert np.degrees(np.arctan(-np.polyfit(x, y, 1)[0])) == pytest.approx(30, abs=4)


@pytest.mark.parametrize("width", [10, 30, 60])
def test_add_border_frames_the_whole_picture_in_black(width: int) -> None:
    framed = overlay.add_border(grey(), width=width)
    assert framed.shape == (200 + 2 * width, 600 + 2 * width, 3)
    assert (framed[width:-width, width:-width] == 90).all()
    assert framed.astype(int).sum() == 90 * grey().size


def test_pillow_without_freetype_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_size: float) -> None:
        raise ImportError("The _imagingft C module is not installed")

    monkeypatch.setattr(PIL.ImageFont, "load_default", refuse)
    overlay._letters.cache_clear()
    with pytest.raises(MissingExtra, match="drawing text needs the package 'Pillow with FreeType'"):
        overlay.watermark(grey(), fontsize=24)


@pytest.mark.parametrize("name", ["text_overlay", "watermark"])
def test_letters_are_as_large_a_part_of_large_pictures(name: str) -> None:
    shares = []
    for height, width in ((480, 640), (960, 1280), (1920, 2560)):
        y, x = np.nonzero((perturbations.get(f"{name}:mid")(grey(90, height, width), seed=1) != 90).any(axis=2))
        shares.append((np.ptp(y) / height, np.ptp(x) / width))
    np.testing.assert_allclose(shares[1:], [shares[0]] * 2, rtol=0.05)


WHITE: NDArray[np.uint8] = np.full((240, 360, 3), 255, np.uint8)


@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.25])
def test_random_occlusion_hides_one_rectangle_of_its_area_anywhere(ratio: float) -> None:
    places = set()
    for seed in range(8):
        hidden = overlay.random_occlusion(WHITE, np.random.default_rng(seed), ratio=ratio)[..., 0] == 0
        y, x = np.nonzero(hidden)
        assert hidden[y.min() : y.max() + 1, x.min() : x.max() + 1].all()
        assert hidden.mean() == pytest.approx(ratio, rel=0.03)
        assert 0.49 <= (np.ptp(y) / 240) / (np.ptp(x) / 360) <= 2.05
        places.add((y.min(), x.min()))
    assert len(places) == 8


@pytest.mark.parametrize("ratio", [0.1, 0.2, 0.3])
def test_grid_mask_hides_its_share_in_squares_of_equal_period(ratio: float) -> None:
    hidden = overlay.grid_mask(WHITE, np.random.default_rng(0), ratio=ratio)[..., 0] == 0
    assert hidden.mean() == pytest.approx(ratio, rel=0.12)
    rows = hidden.any(axis=1)
    assert (np.diff(rows.astype(int)) == 1).sum() in {7, 8}
    np.testing.assert_array_equal(rows[:-30], rows[30:])


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
def test_center_occlusion_hides_a_share_of_each_side(ratio: float) -> None:
    hidden = overlay.center_occlusion(WHITE, ratio=ratio)[..., 0] == 0
    np.testing.assert_array_equal(hidden, hidden[::-1, ::-1])
    assert hidden.any(axis=1).mean() == pytest.approx(ratio)
    assert hidden.any(axis=0).mean() == pytest.approx(ratio)
