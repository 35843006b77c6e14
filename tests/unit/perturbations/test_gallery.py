from __future__ import annotations

import base64
import itertools
import math
import re
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.errors import ImageError, SettingError, UnknownName, UsageError
from pytest_vlmrobust.core.words import printable
from pytest_vlmrobust.perturbations import gallery as html
from pytest_vlmrobust.perturbations.gallery import sheet, show
from pytest_vlmrobust.perturbations.gallery.sheet import (
    C1,
    C2,
    CleanImage,
    Gallery,
    Tile,
    TileLayout,
    columns,
    fit_image,
    gallery,
    layout,
    psnr,
    read_image,
    resize_image,
    ssim,
    structure,
)
from pytest_vlmrobust.perturbations.pixels import luma
from pytest_vlmrobust.perturbations.registry import corruption

Image = NDArray[np.uint8]

CHOSEN = [
    *("fog:low", "fog:mid", "fog:high", "flip_h", "jpeg_compression:low", "add_border:mid", "patches:3"),
    *("resolution:112", "resolution:224", "resolution:448", "fog:mid+jpeg_compression:high", "flip_h+patches:2"),
]


def photo(height: int = 240, width: int = 320, seed: int = 0) -> Image:
    """Returns something with edges and textures."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (8, 10, 3), dtype=np.uint8)
    return np.asarray(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    PIL.Image.fromarray(photo()).save(path)
    return path


def made(settings: list[str], image: Image | None = None, *, tile: int = 100, name: str = "photo.png") -> Gallery:
    return gallery(CleanImage(name, photo() if image is None else image), settings, seed=1234, tile=tile)


def tiles(shown: Gallery) -> dict[str, Tile]:
    return {tile.setting: tile for section in shown.sections for row in section.rows for tile in row.tiles}


def facts(tile: Tile, shown: Gallery) -> list[str]:
    return list(sheet.facts(tile, shown.clean))


class TestPsnr:
    def test_of_identical_pictures_is_infinite(self) -> None:
        assert psnr(photo(), photo()) == math.inf

    def test_of_black_against_white_is_0(self) -> None:
        assert psnr(np.zeros((4, 5, 3), np.uint8), np.full((4, 5, 3), 255, np.uint8)) == 0.0

    def test_is_the_formula(self) -> None:
        first, second = photo(), photo(seed=1)
        error = ((first.astype(float) - second) ** 2).mean()
        assert psnr(first, second) == pytest.approx(10 * math.log10(255**2 / error), rel=1e-12)

    def test_of_other_shapes_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"shapes \(240, 320, 3\) and \(2, 2, 3\)"):
            psnr(photo(), photo(2, 2))
        with pytest.raises(ValueError, match=r"shapes \(480, 640\) and \(240, 320\)"):
            ssim(structure(photo(480, 640)), structure(photo()))


class TestSsim:
    @pytest.mark.cases("size", [(240, 320), (11, 11), (10, 50), (1, 9), (1, 1)])
    def test_of_identical_pictures_is_1(self, size: tuple[int, int]) -> None:
        assert ssim(structure(photo(*size)), structure(photo(*size))) == 1.0

    def test_is_symmetric(self) -> None:
        first, second = structure(photo()), structure(photo(seed=1))
        assert ssim(first, second) == ssim(second, first)

    def test_of_flat_pictures_compares_their_levels(self) -> None:
        first, second = 60.0, 100.0
        expected = (2 * first * second + C1) / (first**2 + second**2 + C1)
        darker, lighter = (structure(np.full((40, 40, 3), level, np.uint8)) for level in (60, 100))
        assert ssim(darker, lighter) == pytest.approx(expected, abs=1e-4)

    def test_is_the_formula_at_a_single_window(self) -> None:
        first, second = photo(11, 11), photo(11, 11, seed=1)
        x, y = luma(first).astype(float), luma(second).astype(float)
        bell = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
        weight = np.outer(bell, bell) / bell.sum() ** 2
        mx, my = (weight * x).sum(), (weight * y).sum()
        vx, vy = (weight * (x - mx) ** 2).sum(), (weight * (y - my) ** 2).sum()
        both = (weight * (x - mx) * (y - my)).sum()
        expected = (2 * mx * my + C1) * (2 * both + C2) / ((mx**2 + my**2 + C1) * (vx + vy + C2))
        assert ssim(structure(first), structure(second)) == pytest.approx(expected, abs=1e-4)

    def test_does_not_see_a_change_of_colour_alone(self) -> None:
        grey = perturbations.get("grayscale")(photo(), seed=1)
        assert ssim(structure(grey), structure(photo())) > 0.999
        assert psnr(grey, photo()) < 20

    @pytest.mark.parametrize(
        ("size", "reduced"), [((240, 320), (240, 320)), ((480, 640), (240, 320)), ((1008, 1344), (252, 336))]
    )
    def test_is_taken_on_pictures_reduced_to_a_shorter_side_of_about_256(
        self, size: tuple[int, int], reduced: tuple[int, int]
    ) -> None:
        assert structure(photo(*size)).luma.shape == reduced

    def test_averages_squares_where_it_reduces(self) -> None:
        checks = np.indices((512, 512)).sum(axis=0) % 2 * np.uint8(200)
        board = np.repeat(checks.astype(np.uint8)[..., None], 3, axis=2)
        assert ssim(structure(board), structure(np.full((512, 512, 3), 100, np.uint8))) == 1.0


class TestReading:
    def test_turns_a_picture_as_its_exif_data_says_and_says_so(self, tmp_path: Path) -> None:
        path = tmp_path / "turned.jpg"
        exif = PIL.Image.Exif()
        exif[0x0112] = 6
        PIL.Image.fromarray(photo(20, 40)).save(path, exif=exif)
        source = read_image(path)
        assert source.image.shape == (40, 20, 3)
        assert source.remarks == ("turned as its EXIF data says",)

    def test_takes_the_first_frame(self, tmp_path: Path) -> None:
        path = tmp_path / "moving.gif"
        first, second = (PIL.Image.new("RGB", (5, 4), colour) for colour in ("red", "blue"))
        first.save(path, save_all=True, append_images=[second])
        source = read_image(path)
        assert source.image[0, 0].tolist() == [255, 0, 0]
        assert source.remarks == ("the first of 2 frames",)

    @pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
    def test_takes_any_kind_of_picture(self, mode: str, tmp_path: Path) -> None:
        PIL.Image.new(mode, (7, 5)).save(tmp_path / "x.tiff")
        assert read_image(tmp_path / "x.tiff").image.shape == (5, 7, 3)

    def test_refuses_what_is_no_picture(self, tmp_path: Path, file: Path) -> None:
        (tmp_path / "text.png").write_text("no image")
        (tmp_path / "empty.png").write_bytes(b"")
        (tmp_path / "short.png").write_bytes(file.read_bytes()[:-300])
        for name, words in {
            "absent.png": "no such file",
            "emtpy.png": "no such file. Did you mean '.*empty.png'",
            ".": "a directory",
            "text.png": "it begins like no image",
            "empty.png": "it begins like no image",
            "short.png": "truncated",
        }.items():
            with pytest.raises(ImageError, match=words) as caught:
                read_image(tmp_path / name)
            assert str(caught.value).startswith(f"{tmp_path / name}: ")

    def test_refuses_more_pixels_than_are_safe(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 1000)
        with pytest.raises(ImageError, match=r"photo\.png: cannot be read as an image \(Decompression"):
            read_image(file)


class TestSheet:
    def test_holds_every_setting_once_by_category_and_perturbation(self) -> None:
        shown = made([*CHOSEN, "fog:mid"])
        assert list(tiles(shown)) != CHOSEN  # grouped
        assert sorted(tiles(shown)) == sorted(CHOSEN)
        assert shown.count == len(CHOSEN)
        assert [(section.heading, section.layout, [row.name for row in section.rows]) for section in shown.sections] == [
            ("Weather", TileLayout.TILES, ["fog"]),
            ("Binary", TileLayout.TILES, ["flip_h"]),
            ("Digital", TileLayout.TILES, ["jpeg_compression"]),
            ("VLM-specific", TileLayout.TILES, ["add_border"]),
            ("Compositions", TileLayout.TILES, ["fog+jpeg_compression"]),
            ("Patches", TileLayout.VIEWS, ["patches"]),
            ("Compositions", TileLayout.VIEWS, ["flip_h+patches"]),
            ("Resolution ladder", TileLayout.SIZES, ["resolution"]),
        ]

    def test_numbers_are_those_of_the_full_size(self) -> None:
        shown = made(CHOSEN)
        for setting in ("fog:high", "jpeg_compression:low", "fog:mid+jpeg_compression:high"):
            changed = perturbations.get(setting)(photo(), seed=1234)
            tile = tiles(shown)[setting]
            assert (tile.psnr, tile.ssim) == (psnr(changed, photo()), ssim(structure(changed), structure(photo())))
            assert f"PSNR {tile.psnr:.1f} dB, SSIM {tile.ssim:.3f}" in facts(tile, shown)

    def test_results_of_another_size_are_compared_after_resizing_and_said_to_be(self) -> None:
        shown = made(CHOSEN)
        changed = perturbations.get("resolution:112")(photo(), seed=1234)
        same = resize_image(changed, 240, 320)
        tile = tiles(shown)["resolution:112"]
        assert (tile.psnr, tile.ssim) == (psnr(same, photo()), ssim(structure(same), structure(photo())))
        assert facts(tile, shown)[-2:] == ["112 x 84 pixels", f"PSNR {tile.psnr:.1f} dB, SSIM {tile.ssim:.3f}, resized"]

    def test_identical_pictures_are_called_so_and_the_reason_is_given(self) -> None:
        shown = made(CHOSEN)
        tile = tiles(shown)["resolution:448"]
        assert tile.psnr == math.inf
        assert facts(tile, shown)[-2:] == ["320 x 240 pixels", "identical (SSIM 1)"]
        assert tile.notes == ("the long edge has 320 pixels, fewer than 448: left as it is",)

    def test_facts_are_those_of_the_registry(self) -> None:
        shown = made(CHOSEN)
        fog = perturbations.fingerprint("fog:mid")[0]
        jpeg = perturbations.fingerprint("jpeg_compression:high")[0]
        assert facts(tiles(shown)["fog:mid"], shown)[:2] == [
            "intensity=0.6",
            f"v{fog['version']}, random, changes the answer about colour",
        ]
        both = facts(tiles(shown)["fog:mid+jpeg_compression:high"], shown)
        versions = f"v{fog['version']}+{jpeg['version']}"
        assert both[:2] == ["intensity=0.6; quality=20", f"{versions}, random, changes the answer about colour"]
        assert facts(tiles(shown)["flip_h"], shown)[0] == "v1, changes the answer about left_right, position"

    def test_views_are_all_there_and_small(self) -> None:
        shown = made(CHOSEN)
        tile = tiles(shown)["patches:3"]
        assert len(tile.images) == 9
        assert tile.size == (80, 106)
        assert facts(tile, shown)[-1] == "9 views of 106 x 80 pixels"
        assert math.isnan(tile.psnr)
        assert {view.shape for view in tile.images} == {(50, 67, 3)}

    def test_pictures_are_reduced_and_hold_no_large_ones(self) -> None:
        shown = made(perturbations.names("robustbench"), photo(180, 240))
        for tile in (shown.clean, *tiles(shown).values()):
            (small,) = tile.images
            assert small.shape[1] == 100
            assert small.base is None or small.base.size <= small.size
            assert tile.detail is not None
            assert tile.detail.base is None
            assert max(tile.detail.shape[:2]) == 50

    def test_a_setting_that_refuses_the_picture_is_shown_with_the_reason(self) -> None:
        shown = made(["flip_h", "patches:3"], photo(2, 2))
        tile = tiles(shown)["patches:3"]
        assert not tile.images
        assert tile.notes[0].startswith("not shown: patches:3: got an image of 2 x 2 pixels")
        assert b"not shown: patches:3" in html.page(shown)

    @pytest.mark.parametrize("size", [(1, 1), (1, 700), (700, 1), (3, 5)])
    def test_pictures_of_any_size_are_shown(self, size: tuple[int, int]) -> None:
        shown = made(["fog:mid", "flip_v", "resolution:112", "add_border:low", "patches:2"], photo(*size))
        assert b"flip_v" in html.page(shown)

    def test_too_long_pictures_are_refused_as_a_whole(self) -> None:
        with pytest.raises(ImageError, match="clean: got an image of 32001 x 1 pixels"):
            made(["flip_h"], np.zeros((1, 32_001, 3), np.uint8))

    def test_own_perturbations_find_their_place(self) -> None:
        @corruption(family="grain", levels={"a": {"n": 3}}, views=lambda n: n, name="gallery_own")
        def repeated(image: Image, *, n: int) -> Image:
            """Repeats the picture."""
            return np.stack([image] * n)

        shown = made(["gallery_own:a"])
        assert [(section.heading, section.layout) for section in shown.sections] == [("Grain", TileLayout.VIEWS)]
        assert shown.sections[0].rows[0].about == "Repeats the picture."

    def test_layouts(self) -> None:
        assert {layout(setting) for setting in perturbations.names("robustbench")} == {TileLayout.TILES}
        assert {layout(setting) for setting in perturbations.names("resolution")} == {TileLayout.SIZES}
        assert {layout(setting) for setting in perturbations.names("patches")} == {TileLayout.VIEWS}
        assert layout("resolution:224+pad_white:448") == TileLayout.TILES

    @pytest.mark.cases(("views", "across"), [(1, 1), (4, 2), (5, 3), (9, 3), (25, 5)])
    def test_columns(self, views: int, across: int) -> None:
        assert columns(views) == across

    def test_small_pictures_are_enlarged_by_whole_pixels(self) -> None:
        assert fit_image(photo(3, 4), 10, 20).shape == (6, 8, 3)
        assert np.array_equal(fit_image(photo(3, 4), 10, 20)[::2, ::2], photo(3, 4))
        assert fit_image(photo(1000, 10), 100, 200).shape == (200, 2, 3)


class Page(HTMLParser):
    """What stands in a page."""

    def __init__(self, source: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(source.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str, key: str) -> list[str]:
        return [attributes[key] or "" for name, attributes in self.tags if name == tag and key in attributes]


class TestHtml:
    def test_holds_every_setting_with_its_facts(self) -> None:
        shown = made(CHOSEN)
        page = Page(html.page(shown))
        for setting, tile in tiles(shown).items():
            assert setting in page.text
            assert all(fact in page.text for fact in (*sheet.facts(tile, shown.clean), *tile.notes))
        for section in shown.sections:
            assert section.heading in page.text

    def test_loads_nothing_and_runs_nothing(self) -> None:
        page = html.page(made(CHOSEN))
        without_pictures = re.sub(rb"data:image/(?:jpeg|png);base64,[\w+/=]+", b"", page)
        assert not re.search(rb"""https?:|["'(=]//|@import|url\(|<script|<link|<iframe|javascript:| on\w+=""", without_pictures)
        assert all(
            address.startswith(("data:image/jpeg;base64,", "data:image/png;base64,")) for address in Page(page).all("img", "src")
        )

    def test_pictures_are_those_of_the_tiles_and_have_texts(self) -> None:
        shown = made(CHOSEN)
        page = Page(html.page(shown))
        sources, texts = page.all("img", "src"), page.all("img", "alt")
        expected = [shown.clean, *tiles(shown).values()]
        assert len(sources) == len(texts) == sum(len(tile.images) + (tile.detail is not None) for tile in expected)
        assert all(texts)
        decoded = cv2.imdecode(np.frombuffer(base64.b64decode(sources[0].partition(",")[2]), np.uint8), cv2.IMREAD_COLOR)
        assert psnr(np.asarray(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)), shown.clean.images[0]) > 30

    def test_faint_details_are_lossless(self) -> None:
        shown = made(["jpeg_compression:low"])
        detail = tiles(shown)["jpeg_compression:low"].detail
        assert detail is not None
        address = Page(html.page(shown)).all("img", "src")[-1]
        decoded = cv2.imdecode(np.frombuffer(base64.b64decode(address.partition(",")[2]), np.uint8), cv2.IMREAD_COLOR)
        assert np.array_equal(cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB), detail)

    def test_headings_are_linked_and_in_order(self) -> None:
        page = Page(html.page(made(CHOSEN)))
        targets = {address.removeprefix("#") for address in page.all("a", "href")}
        assert targets == set(page.all("section", "id"))
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))

    @pytest.mark.parametrize(
        "name", ['<script>alert("1")</script>.png', "a&amp;b'\".png", "two\nlines\u202e.png", "undecodable\udcff.png"]
    )
    def test_hostile_file_names_are_text(self, name: str) -> None:
        page = html.page(made(["flip_h"], name=name))
        parsed = Page(page)
        assert "script" not in {tag for tag, _ in parsed.tags}
        assert b"<title>" in page
        title = re.search(r"<title>(.*?)</title>", page.decode(), re.DOTALL)
        assert title is not None
        assert unescape(title[1]) == f"{printable(name)} under 1 setting"
        assert printable(name).isprintable()
        assert all(printable(name) in alt for alt in parsed.all("img", "alt"))

    def test_is_the_same_again(self) -> None:
        assert html.page(made(CHOSEN)) == html.page(made(CHOSEN))

    def test_all_sets_stay_small(self) -> None:
        natural = np.asarray(PIL.Image.open(Path(__file__).parents[2] / "golden" / "coffee.png").convert("RGB"))
        image = np.asarray(cv2.resize(natural, (480, 320), interpolation=cv2.INTER_CUBIC))
        assert (
            len(
                html.page(
                    made([name for name in perturbations.names("all") if perturbations.info(name).on == "image"], image, tile=200)
                )
            )
            < 6_000_000
        )


class TestShow:
    @pytest.mark.parametrize("ending", [".html", ".HTML"])
    def test_writes_one_page(self, ending: str, file: Path) -> None:
        out = file.with_name(f"gallery{ending}")
        shown = show(file, out, settings=["fog:mid", "patches:2"], tile=64)
        assert shown.count == 2
        assert out.read_bytes()[:4] == b"<!do"
        assert {path.name for path in file.parent.iterdir()} == {file.name, out.name}  # nothing temporary stays

    def test_sets_and_settings_are_joined(self, file: Path) -> None:
        shown = show(file, file.with_name("x.html"), sets=["patches"], settings=["flip_h"], tile=64)
        assert list(tiles(shown)) == ["flip_h", *perturbations.names("patches")]

    def test_the_seed_decides(self, file: Path) -> None:
        pages = []
        for seed in (1, 1, 2):
            show(file, file.with_name("x.html"), settings=["gaussian_noise:high"], seed=seed, tile=64)
            pages.append(re.sub(r"seed \d+", "", file.with_name("x.html").read_text()))
        assert pages[0] == pages[1] != pages[2]

    def test_refusals_come_before_the_work(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pytest_vlmrobust.perturbations.gallery.gallery", pytest.fail)
        for error, words, options in refusals(file):
            with pytest.raises(error, match=words):
                show(file, **{"out": file.with_name("x.html"), **options})
        assert [path.name for path in file.parent.iterdir()] == [file.name]

    def test_what_was_there_stays_when_something_fails(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        out = file.with_name("x.html")
        out.write_text("old")
        monkeypatch.setattr("pytest_vlmrobust.perturbations.gallery.gallery", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            show(file, out, settings=["flip_h"])
        assert out.read_text() == "old"
        assert {path.name for path in file.parent.iterdir()} == {file.name, out.name}


def refusals(file: Path) -> Iterator[tuple[type[Exception], str, dict[str, Any]]]:
    yield UsageError, r"x\.pdf: no format is called '\.pdf'. Expected a name that ends in \.html", {"out": Path("x.pdf")}
    yield UsageError, "tile: got 20. Expected a width of 64 to 400 pixels", {"tile": 20}
    yield UnknownName, "Did you mean 'patches'?", {"sets": ["patchs"]}
    yield UnknownName, "Did you mean 'fog'?", {"settings": ["fogg:mid"]}
    yield SettingError, "no level 'middle'", {"settings": ["fog:middle"]}
    yield SettingError, "no_image", {"settings": ["no_image"]}
    yield UsageError, r"photo\.png: no format is called", {"out": file, "settings": ["flip_h"]}
    yield (
        UsageError,
        "cannot be written: No such file or directory",
        {"out": file.parent / "no" / "x.html", "settings": ["flip_h"]},
    )
    yield UsageError, "cannot be written: Not a directory", {"out": file / "x.html", "settings": ["flip_h"]}


def test_an_output_that_is_a_directory_is_refused(file: Path) -> None:
    (file.parent / "x.html").mkdir()
    with pytest.raises(UsageError, match=r"x\.html: is a directory"):
        show(file, file.parent / "x.html", settings=["flip_h"])


def test_progress_counts_every_tile(file: Path) -> None:
    steps: list[tuple[int, int]] = []
    show(file, file.with_name("x.html"), settings=["flip_h", "flip_v"], tile=64, progress=lambda *numbers: steps.append(numbers))
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_the_page_says_that_ssim_is_taken_on_reduced_pictures() -> None:
    assert b"reduced to a shorter side of about 256 pixels" in html.page(made(["flip_h"]))
