"""Decoding: which pixels come out of which file."""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import pytest_vlmrobust
from pytest_vlmrobust.core.errors import DatasetError, ImageError
from pytest_vlmrobust.datasets import images, resolve
from pytest_vlmrobust.datasets.images import FileImage, Span, decode, file_stamp, from_base64


def encoded(image: Image.Image, kind: str = "PNG", **save: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **save)
    return stream.getvalue()


def test_rgb_comes_back_byte_for_byte_and_writable() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    back = decode(encoded(Image.fromarray(pixels)), "here")
    assert np.array_equal(back, pixels)
    assert back.flags.writeable


@pytest.mark.cases(("mode", "colour", "expected"), [
    ("L", 77, (77, 77, 77)),
    ("1", 1, (255, 255, 255)),
    ("RGBA", (10, 20, 30, 255), (10, 20, 30)),
    ("RGBA", (10, 20, 30, 0), (255, 255, 255)),
    ("RGBA", (0, 0, 0, 51), (204, 204, 204)),
    ("LA", (0, 0), (255, 255, 255)),
    ("I;16", 65535, (255, 255, 255)),
    ("I;16", 128, (0, 0, 0)),
    ("I;16", 129, (1, 1, 1)),
])  # fmt: skip
def test_modes(mode: str, colour: int | tuple[int, ...], expected: tuple[int, int, int]) -> None:
    pixels = decode(encoded(Image.new(mode, (3, 2), colour)), "here")
    assert pixels.shape == (2, 3, 3)
    assert tuple(pixels[1, 2]) == expected


def test_a_palette_with_a_transparent_entry() -> None:
    image = Image.new("P", (2, 1), 0)
    image.putpalette([200, 0, 0, 0, 100, 0])
    image.putpixel((1, 0), 1)
    pixels = decode(encoded(image, transparency=0), "here")
    assert [tuple(pixel) for pixel in pixels[0]] == [(255, 255, 255), (0, 100, 0)]


def test_cmyk_jpeg() -> None:
    pixels = decode(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), "here")
    assert pixels[0, 0, 0] > 200
    assert pixels[0, 0, 1:].max() < 60


def test_exif_orientation_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert decode(encoded(Image.new("RGB", (9, 4)), "JPEG", exif=exif), "here").shape == (4, 9, 3)


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (4, 4), (250, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 250))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode(data, "here")[0, 0, 0] > 200


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_fixed_range_are_refused(mode: str) -> None:
    with pytest.raises(ImageError, match="32-bit pixels have no fixed range: save the image with 8 or 16 bits"):
        decode(encoded(Image.new(mode, (2, 2)), "TIFF"), "row 3")


def test_billion_pixels_in_a_small_file_are_refused() -> None:
    bomb = bytearray(encoded(Image.new("L", (1, 1))))
    header = b"IHDR" + (40_000).to_bytes(4) + (25_000).to_bytes(4) + bytes(bomb[24:29])
    bomb[12:33] = header + zlib.crc32(header).to_bytes(4)
    with pytest.raises(ImageError, match=r"cannot be decoded \(DecompressionBombError: Image size \(1000000000 pixels\)"):
        decode(bytes(bomb), "here")


def test_what_is_no_picture_is_named() -> None:
    said = r"^row 3: 5 bytes starting 68656c6c6f cannot be decoded \(UnidentifiedImageError"
    with pytest.raises(ImageError, match=said) as caught:
        decode(b"hello", "row 3")
    assert "0x" not in str(caught.value)  # nothing of this process, so that every run says the same


def test_base64_ignores_white_space_and_a_url_head() -> None:
    assert from_base64("aGVs\n bG8=", "here") == b"hello"
    assert from_base64("data:text/plain;base64,aGVsbG8=", "here") == b"hello"
    with pytest.raises(ImageError, match=r"^row 3: 4 characters starting 'ab!c' are not base64"):
        from_base64("ab!c", "row 3")
    with pytest.raises(ImageError, match="not base64"):
        from_base64("é" * 80, "row 3")


def test_a_file_that_vanishes(tmp_path: Path) -> None:
    image = FileImage(tmp_path / "gone.png", "data.tsv:2")
    for ask in (image.load, image.identity):
        with pytest.raises(ImageError, match=r"^data\.tsv:2: .*gone\.png cannot be read: No such file"):
            ask()


def test_identity_follows_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encoded(Image.new("RGB", (3, 3), (1, 2, 3))))
    image = FileImage(path, "here")
    before = image.identity()
    assert image.identity() == before
    path.write_bytes(encoded(Image.new("RGB", (31, 3), (1, 2, 3))))
    assert image.identity() != before


def test_a_span_of_a_file_that_vanishes(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"0123456789")
    span = Span(path, 2, 3, file_stamp(path))
    assert span.read("here") == b"234"
    path.unlink()
    with pytest.raises(ImageError, match=r"^row 3: .*a\.bin cannot be read any more: No such file"):
        span.read("row 3")


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_PIXELS", 9 * 7 - 1)
    stream = io.BytesIO()
    Image.new("RGB", (9, 7)).save(stream, "PNG")
    with pytest.raises(ImageError, match=r"row index '1': .*9 x 7 pixels are more than 62: make the image smaller"):
        decode(stream.getvalue(), "row index '1'")


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def test_eps_does_not_reach_ghostscript(monkeypatch: pytest.MonkeyPatch) -> None:
    import PIL.EpsImagePlugin

    monkeypatch.setattr(PIL.EpsImagePlugin, "Ghostscript", lambda *_args, **_more: pytest.fail("Ghostscript was called"))
    with pytest.raises(ImageError, match="Expected a complete image file: PNG, JPEG"):
        decode(EPS, "row 1")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000", "AVIF"])
def test_each_format_of_the_list_is_opened(kind: str) -> None:
    import PIL.features

    if kind == "AVIF" and not PIL.features.check("avif"):
        pytest.skip("this Pillow does not know AVIF")
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (200, 30, 30)).save(stream, kind)
    assert decode(stream.getvalue(), "row 1").shape == (6, 8, 3)


def test_every_picture_is_opened_in_one_place() -> None:
    package = Path(pytest_vlmrobust.__file__).parent
    opens = {path.name for path in package.rglob("*.py") if "Image.open(" in path.read_text(encoding="utf-8")}
    assert opens == {"pictures.py", "measured.py"}, "measured.py reads back what it has just written"


@pytest.mark.parametrize("format_", ["jsonl", "tsv"])
@pytest.mark.parametrize("way", ["absolute", "parent", "link", "link to a folder"])
def test_pictures_outside_of_the_folder_are_refused_unless_allowed(
    tmp_path: Path, format_: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "data"
    outside.mkdir()
    folder.mkdir()
    Image.new("RGB", (8, 6)).save(outside / "x.png")
    (folder / "link.png").symlink_to(outside / "x.png")
    (folder / "linked").symlink_to(outside)
    written = {
        "absolute": str(outside / "x.png"),
        "parent": "../outside/x.png",
        "link": "link.png",
        "link to a folder": "linked/x.png",
    }[way]
    file = folder / f"toy.{format_}"
    row = {"id": "q1", "image": written, "question": "What?", "answer": "yes"}
    text = f"index\tquestion\tanswer\timage_path\n1\tWhat?\tYes\t{written}\n" if format_ == "tsv" else json.dumps(row)
    file.write_text(text, encoding="utf-8")
    with pytest.raises(DatasetError, match=f"an image file below {folder}, links followed: {outside}/x.png is not. Name its"):
        list(resolve(file).samples())
    monkeypatch.setenv("VLMROBUST_IMAGES", f"/nowhere:{outside}")
    (sample,) = resolve(file).samples()
    assert sample.images[0].load().shape == (6, 8, 3)
