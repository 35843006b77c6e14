"""What pictures are compared by, and in which order others come."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from pytest_vlmrobust.datasets.similarity import circles, nearest, pixel_features, unit_rows


def test_features_are_two_unit_vectors_and_do_not_depend_on_the_size() -> None:
    picture = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    features = pixel_features(picture)
    assert features.shape == (16 * 16 * 3 + 8**3,)
    assert features.dtype == np.float64
    assert np.linalg.norm(features[:768]) == pytest.approx(1)
    assert np.linalg.norm(features[768:]) == pytest.approx(1)
    larger = np.repeat(np.repeat(picture, 3, axis=0), 2, axis=1)
    np.testing.assert_allclose(pixel_features(larger), features, atol=1e-12)


def test_every_colour_has_its_place_in_the_histogram() -> None:
    """Also white and the most saturated ones, which lie at the ends of the ranges."""
    corners = np.array([[r, g, b] for r in (0, 255) for g in (0, 255) for b in (0, 255)], np.uint8)
    for colour in corners:
        histogram = pixel_features(np.full((70, 80, 3), colour, np.uint8))[768:]
        assert histogram.max() == pytest.approx(1)


def test_a_picture_of_mid_grey_has_no_layout() -> None:
    grey = np.full((64, 64, 3), 119, np.uint8)
    lightness = cv2.cvtColor((grey / 255).astype(np.float32), cv2.COLOR_RGB2LAB)[0, 0, 0]
    assert lightness == pytest.approx(50, abs=0.2)
    assert np.isfinite(pixel_features(grey)).all()


def test_a_change_of_the_layout_or_of_the_colours_makes_pictures_less_alike() -> None:
    base = np.zeros((64, 64, 3), np.uint8)
    base[:, :32] = (220, 180, 140)
    slightly, turned, other = base.copy(), base[:, ::-1].copy(), base.copy()
    slightly[:4] = 90
    other[:, :32] = (20, 90, 250)
    rows = unit_rows(np.stack([pixel_features(picture) for picture in (base, turned, slightly, other)]))
    assert nearest(rows, [""] * 4, 0)[0] == 2
    assert max((rows @ rows[0])[[1, 3]]) < 0.9 * (rows @ rows[0])[2]


def test_own_group_first_then_nearest_then_first() -> None:
    angles = np.radians([0, 40, 10, 5, 40, 3])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert nearest(rows, ["a", "a", "a", "b", "a", "b"], 0) == [2, 1, 4, 5, 3]
    assert nearest(rows, ["a"] * 6, 0) == [5, 3, 2, 1, 4]


def test_the_last_bits_of_a_processor_change_no_order() -> None:
    rows = np.array([[1.0, 0.0], [0.5, 0.5], [0.5 + 3e-7, 0.5]])
    assert nearest(rows, [""] * 3, 0) == [1, 2]


def test_rows_of_zeros_stay_as_they_are() -> None:
    rows = unit_rows(np.array([[0, 0], [3, 4]], np.float32))
    assert rows.tolist() == [[0, 0], [pytest.approx(0.6), pytest.approx(0.8)]]


def test_circles_are_disjoint_of_one_group_and_near() -> None:
    angles = np.array([0.0, 1.5, 0.1, 1.4, 0.2, 3.0, 1.6])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert circles(rows, ["a"] * 7, 3) == [(0, 2, 4), (1, 3, 6)]
    assert circles(rows, ["a", "a", "b", "b", "b", "a", "b"], 3) == [(0, 1, 5), (2, 4, 3)]
    assert circles(rows, list("abcdefg"), 2) == []


def test_within_circles_everybody_is_in_the_middle_as_often_as_meant() -> None:
    rng = np.random.default_rng(3)
    rows = unit_rows(rng.normal(size=(60, 8)))
    hits = tries = 0
    for members in circles(rows, ["x"] * 60, 3):
        inside = rows[list(members)] @ rows[list(members)].sum(axis=0)
        for place in range(3):  # each of them is the one that is meant once
            hits += int(np.argmax(inside)) == place
            tries += 1
    assert (hits, tries) == (20, 60)
