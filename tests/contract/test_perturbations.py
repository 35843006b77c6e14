"""What every perturbation promises, held against everything that is registered.

The golden table is written anew by ``python tests/contract/test_perturbations.py``. Do so only after raising the ``version`` of
each perturbation whose pixels changed, and review the table like code.
"""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import PIL.ImageDraw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import LEVELS
from pytest_vlmrobust.core.errors import ImageError
from pytest_vlmrobust.perturbations.catalog import ROBUSTBENCH
from pytest_vlmrobust.perturbations.registry import CATEGORIES, REGISTRY

Image = NDArray[np.uint8]

SETTINGS = [name for name in perturbations.names("all") if perturbations.info(name).on == "image"]
NAMES = [name for name in REGISTRY.names() if REGISTRY.get(name).on == "image"]
"""Those that act on pixels; the others are held to their promises in tests/unit/perturbations/test_questions.py."""
GRADED = [name for name in NAMES if {*REGISTRY.get(name).levels} == {*LEVELS}]
STOCHASTIC = [name for name in GRADED if REGISTRY.get(name).stochastic]
GOLDEN = Path(__file__).parent.parent / "golden" / "perturbations.csv"
TABLE_29 = GOLDEN.with_name("perturbations_table29.csv")
SPARSE = "observatory_salt_pepper"
"""As published, it changes as few as one pixel in ten thousand."""
SHAPES = [(1, 1), (1, 37), (41, 1), (2, 3), (97, 101), (300, 20), (12, 1500)]
NOT_AN_AXIS_OF_SEVERITY = {
    "glass_blur": "more blur heals the shuffle: the squared error falls",
    "upsample": "a closer crop is not further in colour; the kept area is tested in tests/unit/perturbations",
    "true_upsample": "up and down again loses about the same at any scale",
}


def drawn(height: int = 96, width: int = 128) -> Image:
    """Draws a scene: sky, ground, a house, a sun, stripes and a little texture; the same on every machine."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    v, u = (y + 0.5) / height, (x + 0.5) / width
    scene = np.stack([90 + 80 * v, 150 + 60 * v, 250 - 30 * v], axis=-1)
    scene[v > 0.55] = (80, 130, 60)
    scene[(np.abs(u - 0.3) < 0.16) & (v > 0.35) & (v < 0.85)] = (175, 60, 45)
    scene[(np.abs(u - 0.3) < 0.5 * (v - 0.1)) & (v < 0.35)] = (70, 45, 35)
    scene[np.hypot((u - 0.8) * width, (v - 0.2) * height) < 0.1 * width] = (250, 220, 50)
    stripes = (u > 0.55) & (v > 0.65) & (v < 0.9)
    scene[stripes] = np.where((u[stripes] * 20 % 2 < 1)[:, None], 255.0, 0.0)
    scene += 12 * np.sin(x / 2.3 + y / 3.1)[..., None]
    levels: Image = np.clip(np.rint(scene), 0, 255).astype(np.uint8)
    return levels


def natural() -> Image:
    """Returns a photograph: a cup of coffee by Rachel Michetti (CC0), as scikit-image ships it, at 240 x 160 pixels."""
    return np.asarray(PIL.Image.open(GOLDEN.with_name("coffee.png")))


def page(ground: int, ink: int, height: int = 160, width: int = 240) -> Image:
    """Draws a flat page with a few lines of text, or with none where the ink is the ground; values are in 0..255."""
    canvas = PIL.Image.new("RGB", (width, height), (ground,) * 3)
    pen = PIL.ImageDraw.Draw(canvas)
    for number in range(height // 24 if ink != ground else 0):
        pen.text((8, 24 * number + 4), f"Line {number}: what is written here?", fill=(ink,) * 3)
    return np.asarray(canvas)


PAGES = {
    "white with text": (255, 0),
    "nearly white with text": (250, 30),
    "nearly white": (252, 252),
    "white": (255, 255),
    "black": (0, 0),
    "black with text": (0, 255),
    "nearly black": (4, 4),
}
"""Documents and drawings: ground and ink."""


def distance(clean: Image, changed: Image) -> float:
    """Returns the mean absolute difference, at the size of ``clean``; of several views, that of the first."""
    changed = changed[0] if changed.ndim == 4 else changed
    same = cv2.resize(changed, clean.shape[1::-1], interpolation=cv2.INTER_AREA) if changed.shape != clean.shape else changed
    return float(np.abs(same.astype(np.int16) - clean).mean())


@st.composite
def _parts_of_scenes(draw: st.DrawFn) -> Image:
    whole = draw(st.sampled_from([natural(), drawn(160, 240)]))
    height, width = draw(st.integers(64, 160)), draw(st.integers(64, 240))
    top, left = draw(st.integers(0, 160 - height)), draw(st.integers(0, 240 - width))
    return np.ascontiguousarray(whole[top : top + height, left : left + width])


parts_of_scenes = _parts_of_scenes()
"""Pictures of something: on noise, a stronger blur need not be further away. Pages stand in ``PAGES``."""
levels_of_grey = st.integers(0, 255)
seeds = st.integers(0, 2**32)
sides = st.integers(8, 300)


def digests(height: int, width: int, settings: list[str]) -> dict[str, str]:
    """Returns the SHA-256 of the bytes of each setting on the drawn picture."""
    picture = drawn(height, width)
    return {name: hashlib.sha256(perturbations.get(name)(picture, seed=7).tobytes()).hexdigest() for name in settings}


def rows_of(table: Path) -> list[dict[str, str]]:
    """Returns the rows of a CSV file."""
    return list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))


@pytest.mark.cases("setting", SETTINGS)
def test_gives_uint8_rgb_of_the_declared_size_for_any_size_and_no_number_overflows(setting: str) -> None:
    info = perturbations.info(setting)
    for height, width in SHAPES:
        if info.family == "patches" and min(height, width) ** 2 < info.views:  # fewer pixels than patches
            with pytest.raises(ImageError, match=f"{setting}: got an image of {width} x {height} pixels"):
                perturbations.get(setting)(drawn(height, width), seed=1)
            continue
        with np.errstate(all="raise"):
            changed = perturbations.get(setting)(drawn(height, width), seed=1)
        assert changed.dtype == np.uint8
        assert changed.shape[-1] == 3
        assert changed.shape[:-3] == ((info.views,) if info.views > 1 else ())
        if info.keeps_size:
            assert changed.shape[-3:] == (height, width, 3)


@pytest.mark.cases("setting", [name for name in SETTINGS if not perturbations.info(name).keeps_size])
def test_declares_to_change_the_size_only_if_it_does(setting: str) -> None:
    picture = drawn(9, 1400)
    changed, smaller = (perturbations.get(setting)(shape, seed=1) for shape in (picture, picture[:, :80]))
    assert changed.shape != picture.shape or smaller.shape != (9, 80, 3)


@pytest.mark.cases("kind", PAGES)
@pytest.mark.cases("setting", SETTINGS)
def test_no_number_overflows_or_underflows_on_a_page(setting: str, kind: str) -> None:
    picture = page(*PAGES[kind], 64, 96)
    with np.errstate(all="raise"):
        perturbations.get(setting)(picture, seed=1)


@pytest.mark.cases("setting", ["clean", *SETTINGS])
def test_leaves_the_input_alone_and_shares_no_memory_with_it(setting: str) -> None:
    picture = drawn()
    before = picture.copy()
    changed = perturbations.get(setting)(picture, seed=1)
    assert changed.flags.writeable
    assert changed.flags.c_contiguous
    changed ^= 0xFF
    np.testing.assert_array_equal(picture, before)
    assert picture.flags.writeable


@pytest.mark.cases("setting", SETTINGS)
def test_reads_strided_and_read_only_pictures(setting: str) -> None:
    picture = drawn(60, 80)
    strided = np.repeat(np.repeat(picture, 2, axis=0), 2, axis=1)[::2, ::2]
    strided.flags.writeable = False
    render = perturbations.get(setting)
    np.testing.assert_array_equal(render(strided, seed=3), render(picture, seed=3))


@pytest.mark.cases("setting", SETTINGS)
def test_the_seed_decides_if_and_only_if_declared_stochastic(setting: str) -> None:
    render, picture = perturbations.get(setting), drawn(96, 500)  # wide enough for the largest letters
    first = render(picture, seed=1)
    np.testing.assert_array_equal(first, render(picture, seed=1))
    others = (render(picture, seed=seed) for seed in (2, 3, 4))
    assert all((first == other).all() for other in others) is not perturbations.info(setting).stochastic


@pytest.mark.cases("setting", SETTINGS)
def test_changes_the_picture(setting: str) -> None:
    dull = (drawn() * 0.85 + 12).astype(np.uint8)  # autocontrast has nothing to do on the full range
    rendering = perturbations.get(setting).render(dull, seed=1)
    if rendering.notes:
        np.testing.assert_array_equal(rendering.image, dull)
    elif rendering.image.shape == dull.shape:
        assert distance(dull, rendering.image) > (0.05 if setting != SPARSE else 0.001)


@pytest.mark.cases("name", [name for name in GRADED if name not in NOT_AN_AXIS_OF_SEVERITY])
def test_distance_grows_from_low_to_high(name: str) -> None:
    levels = [f"{name}:{level}" for level in LEVELS]
    seeds = range(8) if REGISTRY.get(name).stochastic else range(1)
    for picture in (natural(), drawn(180, 240)):
        changed = [[perturbations.get(at)(picture, seed=seed) for seed in seeds] for at in levels]
        low, mid, high = (np.mean([distance(picture, each) for each in at_level]) for at_level in changed)
        assert low < mid < high


@pytest.mark.cases("name", [name for name in STOCHASTIC if name not in NOT_AN_AXIS_OF_SEVERITY])
@given(picture=parts_of_scenes, seed=seeds)
@settings(max_examples=8)
def test_distance_grows_from_low_to_high_within_every_draw(name: str, picture: Image, seed: int) -> None:
    low, mid, high = (distance(picture, perturbations.get(f"{name}:{level}")(picture, seed=seed)) for level in LEVELS)
    assert low <= mid <= high


@pytest.mark.parametrize("name", ["random_occlusion", "grid_mask", "salt_pepper", "spatter"])
@given(height=sides, width=sides, seed=seeds)
@settings(max_examples=12)
def test_what_a_level_hides_the_next_hides_too(name: str, height: int, width: int, seed: int) -> None:
    grey = np.full((height, width, 3), 140, np.uint8)
    low, mid, high = ((perturbations.get(f"{name}:{level}")(grey, seed=seed) != grey).any(axis=2) for level in LEVELS)
    assert not (low & ~mid).any()
    assert not (mid & ~high).any()


@pytest.mark.parametrize("name", ["fog", "frost", "snow", "rain"])
@given(height=sides, width=sides, seed=seeds)
@settings(max_examples=12)
def test_weather_grows_from_the_same_places(name: str, height: int, width: int, seed: int) -> None:
    black = np.zeros((height, width, 3), np.uint8)
    low, mid, high = (perturbations.get(f"{name}:{level}")(black, seed=seed).astype(int) for level in LEVELS)
    rounding = 3  # OpenCV draws streaks that cross in whole levels
    assert (low <= mid + rounding).all()
    assert (mid <= high + rounding).all()


@pytest.mark.cases(
    ("name", "kind"),
    [
        (name, kind)
        for name in STOCHASTIC
        for kind in PAGES
        if name not in NOT_AN_AXIS_OF_SEVERITY
        # letters beside their place are not further away where they move on; that the picture shrinks is tested below
        and (name, kind) != ("perspective_transform", "black with text")
    ],
)
def test_distance_grows_within_every_draw_on_a_page(name: str, kind: str) -> None:
    picture = page(*PAGES[kind])
    for seed in range(4):
        low, mid, high = (distance(picture, perturbations.get(f"{name}:{level}")(picture, seed=seed)) for level in LEVELS)
        assert low <= mid <= high, seed


@given(height=sides, width=sides, seed=seeds)
@settings(max_examples=25)
def test_perspective_keeps_less_of_the_canvas_from_level_to_level(height: int, width: int, seed: int) -> None:
    white = page(255, 255, height, width)
    low, mid, high = ((perturbations.get(f"perspective_transform:{level}")(white, seed=seed) > 127).mean() for level in LEVELS)
    assert 1.0 >= low >= mid >= high > 0.5


@pytest.mark.parametrize("level", LEVELS)
@given(picture=st.one_of(parts_of_scenes, st.builds(page, levels_of_grey, levels_of_grey)), seed=seeds)
@settings(max_examples=20)
def test_color_jitter_moves_no_value_back(level: str, picture: Image, seed: int) -> None:
    milder, stronger = {"low": ("low", "mid"), "mid": ("mid", "high"), "high": ("low", "high")}[level]
    first, second = (perturbations.get(f"color_jitter:{at}")(picture, seed=seed).astype(int) for at in (milder, stronger))
    assert ((first - picture) * (second - picture) >= 0).all()
    assert (np.abs(first - picture) <= np.abs(second - picture)).all()


def test_squared_error_of_glass_blur_falls_from_low_to_high_as_published() -> None:
    for picture in (natural(), drawn(180, 240)):
        changed = [perturbations.get(f"glass_blur:{at}")(picture, seed=1) for at in LEVELS]
        low, mid, high = (np.square(each.astype(np.float64) - picture).mean() for each in changed)
        assert low > mid > high


@pytest.mark.cases("name", NAMES)
def test_record_is_complete(name: str) -> None:
    record = REGISTRY.get(name)
    assert record.family in CATEGORIES
    assert record.category == CATEGORIES[record.family]
    assert record.source
    assert record.doc.splitlines()[0].endswith((".", ":"))
    assert record.version >= 1
    assert {*record.changes} == {*record.levels}
    assert frozenset().union(*record.changes.values()) <= {*perturbations.CHANGES}
    prints = json.loads(json.dumps([perturbations.fingerprint(at) for at in record.settings()]))
    assert all(prints), "transforms of other libraries list no settings"


@pytest.mark.cases("setting", SETTINGS)
def test_refuses_other_shapes_and_types_by_name(setting: str) -> None:
    render = perturbations.get(setting)
    for shape in [(8, 8), (8, 8, 1), (8, 8, 4), (3, 8, 8), (0, 8, 3)]:
        with pytest.raises(ImageError, match=rf"{setting}: got an image of .*Expected"):
            render(np.zeros(shape, np.uint8), seed=1)
    with pytest.raises(TypeError, match=rf"{setting}: got an array of float64.*as_rgb"):
        render(np.zeros((8, 8, 3)), seed=1)  # type: ignore[arg-type]  # the mistake under test


def test_same_bytes_in_another_process_order_and_number_of_threads() -> None:
    program = (
        "import cv2, importlib.util, json, sys\n"
        "cv2.setNumThreads(3)\n"
        "spec = importlib.util.spec_from_file_location('contract', sys.argv[1])\n"
        "contract = importlib.util.module_from_spec(spec); spec.loader.exec_module(contract)\n"
        "print(json.dumps(contract.digests(240, 320, contract.SETTINGS[::-1])))\n"
    )
    command = [sys.executable, "-c", program, __file__]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(out) == digests(240, 320, SETTINGS)


def test_same_bytes_on_many_threads_at_once() -> None:
    stochastic = [setting for setting in SETTINGS if perturbations.info(setting).stochastic]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda setting: digests(64, 64, [setting]), stochastic * 2))
    assert {name: digest for part in together for name, digest in part.items()} == digests(64, 64, stochastic)


def test_levels_are_those_of_table_29() -> None:
    published = rows_of(TABLE_29)
    assert [row["augmentation"] for row in published] == list(ROBUSTBENCH[:42])
    for row in published:
        record = REGISTRY.get(row["augmentation"])
        assert record.category == row["category"]
        for level in LEVELS:
            assert dict(record.parameters(level)) == {row["param"]: float(row[level])}


def golden_rows() -> list[dict[str, str]]:
    """Returns one row per setting: its version, and mean, standard deviation and distance from the drawn picture."""
    picture, rows = drawn(), []
    for setting in SETTINGS:
        changed = perturbations.get(setting)(picture, seed=1234)
        numbers = {"mean": changed.mean(), "std": changed.std(), "distance": distance(picture, changed)}
        version = perturbations.info(setting).version
        rows.append({"setting": setting, "version": str(version), **{key: f"{value:.3f}" for key, value in numbers.items()}})
    return rows


def test_golden_table() -> None:
    """Pixels stay what they were, within what other builds of OpenCV, libjpeg and FreeType change."""
    expected, actual = rows_of(GOLDEN), golden_rows()
    assert [row["setting"] for row in actual] == [row["setting"] for row in expected]
    assert [row["version"] for row in actual] == [row["version"] for row in expected]
    for new, old in zip(actual, expected, strict=True):
        for key in ("mean", "std", "distance"):
            assert float(new[key]) == pytest.approx(float(old[key]), rel=0.01, abs=0.15), f"{new['setting']} {key}"


if __name__ == "__main__":
    with GOLDEN.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ("setting", "version", "mean", "std", "distance"), lineterminator="\n")
        writer.writeheader()
        writer.writerows(golden_rows())
    print(f"wrote {GOLDEN}")  # noqa: T201  # a program's answer
