from __future__ import annotations

import itertools
import tracemalloc
from functools import cache

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.perturbations.catalog import STANDINS
from pytest_vlmrobust.perturbations.pixels import as_grey
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.perturbations.standins import canvas, landscapes, prints

Image = NDArray[np.uint8]
Plane = NDArray[np.float32]

SEEDS = (1, 2, 3)
SIZES = [(96, 96), (300, 400), (600, 800)]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def face(height: int, width: int) -> Image:
    """Draws hair, a face, eyes, brows, a nose and a mouth."""
    picture = np.full((600, 600, 3), (120, 160, 200), np.uint8)
    cv2.ellipse(picture, (300, 260), (215, 250), 0, 0, 360, (60, 40, 30), -1, cv2.LINE_AA)
    cv2.ellipse(picture, (300, 300), (170, 215), 0, 0, 360, (230, 190, 160), -1, cv2.LINE_AA)
    for x in (232, 368):
        cv2.ellipse(picture, (x, 265), (36, 18), 0, 0, 360, (250, 250, 250), -1, cv2.LINE_AA)
        cv2.circle(picture, (x, 265), 15, (50, 40, 80), -1, cv2.LINE_AA)
        cv2.line(picture, (x - 36, 225), (x + 36, 220), (60, 40, 30), 10, cv2.LINE_AA)
    cv2.line(picture, (300, 280), (282, 362), (170, 120, 95), 8, cv2.LINE_AA)
    cv2.ellipse(picture, (300, 420), (62, 20), 0, 0, 360, (180, 60, 70), -1, cv2.LINE_AA)
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


@cache
def changed_face(name: str, height: int, width: int, seed: int) -> Image:
    """Returns a face after a stand-in, the same one for all tests; not to be written to."""
    changed = perturbations.get(name)(face(height, width), seed=seed)
    changed.flags.writeable = False
    return changed


def mask_of_word(height: int, width: int) -> Plane:
    """Draws a word whose letters are a sixth of the picture's height, in 0 and 1, shape (height, width)."""
    canvas_ = np.zeros((600, 800), np.uint8)
    cv2.putText(canvas_, "HARBOR", (110, 350), cv2.FONT_HERSHEY_SIMPLEX, 4.6, 255, 16, cv2.LINE_AA)
    shrunk = cv2.resize(canvas_, (width, height), interpolation=cv2.INTER_AREA)
    return np.asarray(shrunk > 127, np.float32)


def word(height: int, width: int, *, ink: tuple[int, ...], paper: tuple[int, ...]) -> Image:
    inked = mask_of_word(height, width)[..., None] > 0
    return np.where(inked, np.array(ink, np.uint8), np.array(paper, np.uint8))


WORDS = {
    "dark on light": {"ink": (40, 50, 120), "paper": (220, 215, 200)},
    "light on dark": {"ink": (240, 220, 120), "paper": (30, 70, 60)},
}


def luminance(picture: Image) -> Plane:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.float32)


def smooth(plane: Plane, sigma: float) -> Plane:
    return np.asarray(cv2.GaussianBlur(plane, (0, 0), sigma), np.float32)


def parts(picture: Image) -> Plane:
    """Returns what is between 1/60 and 1/10 of the picture's size: its parts, without its texture and its illumination."""
    scale = 120 / float(np.sqrt(picture.shape[0] * picture.shape[1]))
    small = cv2.resize(luminance(picture), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return smooth(small, 2) - smooth(small, 12)


def details(picture: Image) -> Plane:
    """Returns what is smaller than 1/130 of the picture's size: its texture."""
    size = float(np.sqrt(picture.shape[0] * picture.shape[1]))
    return luminance(picture) - smooth(luminance(picture), size / 130)


def correlation(first: Plane, second: Plane) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def colour_distance(first: Image, second: Image) -> float:
    """Returns the share of pixels, in [0, 1], that would have to change their colour (of 6 x 6 x 6) to match histograms."""
    counted = [cv2.calcHist([each], [0, 1, 2], None, [6] * 3, [0, 256] * 3) / each[..., 0].size for each in (first, second)]
    return float(np.abs(counted[0] - counted[1]).sum()) / 2


def test_there_are_fifteen_in_a_fixed_order_and_each_says_what_it_is() -> None:
    assert len({*STANDINS}) == 15
    assert perturbations.names("observatory_ood") == list(STANDINS)
    assert {*STANDINS} == {name for name in perturbations.names("all") if name.startswith("standin_")}
    for name in STANDINS:
        record = REGISTRY.get(name)
        assert record.settings() == [name]
        assert record.family == "standin"
        assert record.stochastic
        assert "colour" in record.changes[None]
        hides_large_text = name in ("standin_clouds", "standin_night_forest")
        assert ("text_36" in record.changes[None]) is hides_large_text
        assert "procedural stand-in for a diffusion illusion" in record.doc.splitlines()[0]
        assert "stands in for The Perceptual Observatory" in record.source


@pytest.mark.cases("size", SIZES)
@pytest.mark.cases("name", STANDINS)
def test_keeps_the_layout_of_a_face(name: str, size: tuple[int, int]) -> None:
    picture, render = face(*size), perturbations.get(name)
    grey = np.full_like(picture, 128)
    seeds = SEEDS if size != SIZES[-1] else SEEDS[:1]
    assert min(correlation(parts(changed_face(name, *size, seed)), parts(picture)) for seed in seeds) > 0.6
    assert max(abs(correlation(parts(render(grey, seed=seed)), parts(picture))) for seed in seeds) < 0.25


@pytest.mark.parametrize("name", STANDINS)
def test_replaces_the_colours_and_the_texture(name: str) -> None:
    picture = face(300, 400)
    picture = np.clip(picture + rng().normal(0, 12, picture.shape), 0, 255).astype(np.uint8)
    changed = [perturbations.get(name)(picture, seed=seed) for seed in SEEDS]
    assert np.mean([colour_distance(each, picture) for each in changed]) > 0.5
    assert max(correlation(details(each), details(picture)) for each in changed) < 0.75


@pytest.mark.cases("how", WORDS)
@pytest.mark.cases("name", STANDINS)
def test_letters_of_a_sixth_of_the_height_stand_out_from_their_surroundings(name: str, how: str) -> None:
    picture, mask = word(300, 400, **WORDS[how]), mask_of_word(300, 400)
    y, x = np.nonzero(mask)
    around = np.s_[y.min() - 5 : y.max() + 6, x.min() - 5 : x.max() + 6]
    sign = 1 if how == "light on dark" else -1
    for seed in SEEDS:
        seen = smooth(luminance(perturbations.get(name)(picture, seed=seed)), 3.0)
        assert sign * correlation(seen[around], mask[around]) > 0.5


@pytest.mark.cases("name", STANDINS)
def test_nothing_but_the_luma_of_the_picture_comes_through(name: str) -> None:
    picture, render = face(120, 160), perturbations.get(name)
    np.testing.assert_array_equal(render(picture, seed=1), render(as_grey(picture), seed=1))


@pytest.mark.cases("name", STANDINS)
def test_neither_reads_nor_writes_global_randomness(name: str) -> None:
    picture, render = face(60, 80), perturbations.get(name)
    made = []
    for seed in (1, 2):
        cv2.setRNGSeed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the global state is what is watched
        made.append(render(picture, seed=1))
        after = np.random.random()  # noqa: NPY002
        np.random.seed(seed)  # noqa: NPY002
        assert after == np.random.random()  # noqa: NPY002
    np.testing.assert_array_equal(made[0], made[1])


@pytest.mark.parametrize("name", STANDINS)
def test_texture_grows_with_the_picture(name: str) -> None:
    """A picture of twice the size, shrunk by half, looks as rough as the small one: strokes and tiles are as large in it."""
    rough = []
    for scale in (1, 2):
        changed = changed_face(name, 300 * scale, 400 * scale, 1)
        seen = smooth(luminance(changed), 0.01 * 350 * scale)
        rough.append(float(np.std(luminance(changed) - seen)))
    assert 0.7 < rough[1] / rough[0] < 1.4


def test_tone_stretches_contrast_without_inventing_it() -> None:
    levels = np.repeat(np.linspace(100, 180, 50).astype(np.uint8)[:, None, None], 3, axis=2).repeat(40, axis=1)
    shown = canvas.tone(levels, local=0.0)
    assert shown.min() == 0.0
    assert shown.max() == 1.0
    for level, expected in ((0, 0.0), (128, 0.5), (255, 1.0)):
        flat = canvas.tone(np.full((9, 9, 3), level, np.uint8))
        np.testing.assert_allclose(flat, expected, atol=0.01)
    dull = np.full((20, 20, 3), 100, np.uint8)
    dull[:10] = 108
    assert np.ptp(canvas.tone(dull, local=0.0)) == pytest.approx(8 / 64)


def test_wide_blur_on_a_smaller_copy_is_that_of_the_full_picture() -> None:
    plane = luminance(face(240, 301))
    exact = cv2.GaussianBlur(plane, (0, 0), 12.0, borderType=cv2.BORDER_REFLECT)
    assert np.abs(canvas.blur_plane(plane, 12.0) - exact).max() < 0.02 * np.ptp(exact)
    assert canvas.blur_plane(plane, 0.0) is plane


def test_drift_is_smooth_noise_over_the_whole_range() -> None:
    field = canvas.drift(rng(), 200, 300, cell=40, octaves=2)
    assert field.shape == (200, 300)
    assert field.min() < 0.05
    assert field.max() > 0.95
    assert np.abs(np.diff(field, axis=1)).max() < 0.1


@pytest.mark.parametrize("coverage", [0.1, 0.3, 0.5, 0.8])
def test_dots_cover_the_share_that_they_are_asked_for(coverage: float) -> None:
    ink = prints._dots(rng(), np.full((300, 300), coverage, np.float32), 9.0, 0.7)
    assert float(ink.mean()) == pytest.approx(coverage, abs=0.03)


def test_every_pixel_belongs_to_the_nearest_point() -> None:
    labels = canvas.voronoi(rng(3), 40, 50, 10.0)
    assert labels.min() == 0
    assert labels.max() == 19
    widest = max(np.ptp(np.argwhere(labels == label), axis=0).max() for label in range(20))
    assert widest < 30
    for label in range(20):  # one piece each
        pieces, _ = cv2.connectedComponents((labels == label).astype(np.uint8), connectivity=8)
        assert pieces == 2


def test_cells_are_numbered_apart_and_averaged() -> None:
    rows, columns = np.indices((6, 7), np.int32)
    numbers = canvas.number_cells(rows // 2 - 5, columns // 3)
    assert len(np.unique(numbers)) == 9
    assert numbers.min() == 0
    plane = rng().random((6, 7), dtype=np.float32)
    assert canvas.means(numbers, plane)[numbers[0, 0]] == pytest.approx(float(plane[:2, :3].mean()))


def test_numbers_of_cells_stay_few_where_most_are_not_in_the_picture() -> None:
    along = np.arange(20_000, dtype=np.int32)[None]
    assert canvas.number_cells(along, along).max() < 8 * 20_000 + 4096


def test_seams_run_where_cells_meet() -> None:
    labels = np.repeat(np.array([[0] * 20 + [1] * 20], np.int32), 10, axis=0)
    lines = canvas.seams(labels, 4.0)
    assert lines[:, 18:22].max() > 0.8
    assert lines[:, :12].max() < 0.01


@pytest.mark.parametrize(("hold", "rows"), [(0.0, (10, 15)), (0.5, (8, 13)), (1.0, (6, 11))])
def test_sprites_stand_on_their_points(hold: float, rows: tuple[int, int]) -> None:
    points = np.array([10]), np.array([7])
    drawn = canvas.stamp_sprites(points, np.array([0.5], np.float32), (20, 15), canvas.stick(5, 1), hold=hold)
    y, x = np.nonzero(drawn)
    assert (y.min(), y.max() + 1) == rows
    assert {*x} <= {6, 7, 8}
    assert drawn.max() == pytest.approx(0.5, abs=0.01)


def test_flames_point_upwards() -> None:
    broad = canvas.teardrop(20, 10).sum(axis=1)
    assert broad[0] < broad[12]
    assert broad.max() == broad[10:18].max()


def cheapest(cost: Plane) -> float:
    """Returns the least sum along a path from the first row to the last, by trying them all."""
    n, m = cost.shape
    paths = (path for path in itertools.product(range(m), repeat=n) if all(abs(a - b) <= 1 for a, b in itertools.pairwise(path)))
    return min(sum(float(cost[row, column]) for row, column in enumerate(path)) for path in paths)


def test_quilts_are_cut_along_the_path_of_least_difference() -> None:
    costs = rng().random((3, 5, 4), dtype=np.float32)
    before = prints._before_cut(costs)
    for cost, shown in zip(costs, before, strict=True):
        path = shown.sum(axis=1)  # the neighbour shows up to the path
        assert (np.abs(np.diff(path)) <= 1).all()
        assert cost[np.arange(5), path].sum() == pytest.approx(cheapest(cost))


def test_quilts_take_the_patch_that_is_most_nearly_as_light() -> None:
    beach = np.tile(np.linspace(0.0, 1.0, 200, dtype=np.float32), (200, 1))
    wanted = np.repeat(np.linspace(0.0, 1.0, 10, dtype=np.float32)[None], 20, axis=0).repeat(2, axis=1)
    patches = prints._choose_patches(rng(), beach, wanted, 10, 15)
    assert patches.shape == (10, 10, 15, 15)
    assert correlation(patches[..., :10, :10].mean(axis=(2, 3)), wanted[::2, ::2]) > 0.98


def test_columns_hide_what_is_behind_them() -> None:
    """Compares the column that each line of sight meets with marching along the line in small steps, from the top down."""
    i, j = np.indices((6, 6), np.int32)
    ids, columns, per_row = landscapes._number_squares(i, j)
    np.testing.assert_array_equal(columns[:, ids], [i, j])
    heights = rng(1).uniform(0.0, 0.9, (columns.shape[1],)).astype(np.float32)
    right, left = rng(2).random((2, 1, 400), dtype=np.float32)
    seen = landscapes._cast(np.full((1, 400), ids[2, 2]), per_row, right, left, heights)[0]
    above = np.linspace(0.999, 0.0, 4001)
    for u, v, column in zip(right[0], left[0], seen, strict=True):
        over = ids[2 + np.floor(u + above).astype(int), 2 + np.floor(v + above).astype(int)]
        assert column // 3 == over[np.flatnonzero(heights[over] >= above)[0]]


def test_a_lone_column_shows_a_top_and_two_sides() -> None:
    i, j = np.indices((6, 6), np.int32)
    ids, columns, per_row = landscapes._number_squares(i, j)
    heights = np.zeros(columns.shape[1], np.float32)
    heights[ids[2, 2]] = 0.6
    right, left = np.array([[0.1, 0.8, 0.5]], np.float32), np.array([[0.1, 0.5, 0.8]], np.float32)
    seen = landscapes._cast(np.full((1, 3), ids[2, 2]), per_row, right, left, heights)[0]
    assert seen.tolist() == [ids[2, 2] * 3 + face for face in (0, 2, 1)]


@pytest.mark.cases("name", STANDINS)
@pytest.mark.cases("size", [(1, 20_000), (20_000, 1)])
def test_very_long_pictures_need_no_more_than_their_share_of_memory(name: str, size: tuple[int, int]) -> None:
    picture = rng().integers(0, 256, (*size, 3), dtype=np.uint8)
    tracemalloc.start()
    perturbations.get(name)(picture, seed=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
