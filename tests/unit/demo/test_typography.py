"""Printed words: boxes are exact, nothing is cut off, and every style looks as it is called."""

from __future__ import annotations

import hashlib
from itertools import product
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ImageFont

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.demo.typography import (
    BUILT_IN,
    CASINGS,
    MARGIN,
    POSITIONS,
    ROTATIONS,
    FontFace,
    Print,
    StrokeFace,
    Style,
    Typeface,
    _lacking,
    box_of,
    draw_print,
    print_of,
    styles,
    typefaces_in,
)

STYLES = tuple(Style(*choices) for choices in product(BUILT_IN, CASINGS, POSITIONS, ROTATIONS))
WORDS = ("ox", "jig", "gauge", "quilts", "waistcoat", "volleyball")


def ink_of(what: Print) -> NDArray[np.bool_]:
    red, green, blue = np.moveaxis(draw_print(what) != 255, 2, 0)
    return np.asarray(red | green | blue)


def extent_of(ink: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


@pytest.mark.parametrize("side", [96, 160, 337])
def test_boxes_are_the_extent_of_the_ink_in_every_style(side: int) -> None:
    for number, style in enumerate(STYLES):
        what = print_of(WORDS[number % len(WORDS)], style, side)
        assert box_of(what) == extent_of(ink_of(what)), what


def test_boxes_are_the_extent_of_the_ink_at_full_size() -> None:
    for number, style in enumerate(STYLES[::7]):
        what = print_of(WORDS[number % len(WORDS)], style, 1024)
        assert box_of(what) == extent_of(ink_of(what)), what


def test_ink_at_the_edge_of_a_box_can_be_seen() -> None:
    for style in STYLES[::5]:
        picture = draw_print(print_of("quilts", style, 160))
        assert picture.shape == (160, 160, 3)
        assert picture.dtype == np.uint8
        assert picture[picture < 255].max() <= 255 - 24
        assert (picture[:, :, :1] == picture).all()


@pytest.mark.parametrize("word", ["mwmwmwmwm", "illness"])
def test_nothing_is_cut_off_even_of_the_widest_neighbours(word: str) -> None:
    for number, style in enumerate(STYLES[::2]):
        side = 1024 if number % 27 == 0 else 96
        for wide in ("w" + word, word + "m", word[:3] + "w" + word[3:]):
            x1, y1, x2, y2 = box_of(print_of(word, style, side).with_word(wide))
            edge = int(MARGIN * side)
            assert min(x1, y1) >= edge - 1, (wide, style)
            assert max(x2, y2) <= side - edge + 1, (wide, style)


def test_what_does_not_fit_is_an_error_and_never_cut_off() -> None:
    with pytest.raises(DatasetError, match=r"a line of \d+ pixels does not fit a picture of 640 in Style\(.*Print it smaller"):
        draw_print(print_of("cat", STYLES[0], 160).with_word("wwwwwwwwww"))


def test_short_words_have_the_paper_s_size_and_size_tells_neither_position_nor_rotation() -> None:
    assert print_of("cat", STYLES[0], 1024).size == 250
    for face, casing in product(BUILT_IN, CASINGS):
        sizes = {print_of("volleyball", Style(face, casing, *rest), 160).size for rest in product(POSITIONS, ROTATIONS)}
        assert len(sizes) == 1
        assert sizes.pop() >= 16


def test_words_stand_where_their_position_says() -> None:
    for face in BUILT_IN:
        tops = [box_of(print_of("noon", Style(face, "lower", position, 0), 200)) for position in POSITIONS]
        middles = [(y1 + y2) / 2 for _, y1, _, y2 in tops]
        assert middles[0] < 50
        assert 80 < middles[1] < 120
        assert middles[2] > 150
        assert all(abs((x1 + x2) / 2 - 100) <= 6 for x1, _, x2, _ in tops)


@pytest.mark.parametrize(("rotation", "sign"), [(-45, 1), (0, 0), (45, -1)])
def test_words_turn_as_their_rotation_says(rotation: int, sign: int) -> None:
    for face in BUILT_IN:
        rows, columns = np.nonzero(ink_of(print_of("minimum", Style(face, "lower", "centre", rotation), 160)))
        slope = np.corrcoef(rows, columns)[0, 1]
        assert abs(slope) < 0.3 if sign == 0 else sign * slope > 0.8


def test_casings_are_those_of_the_text() -> None:
    face = BUILT_IN[0]
    assert [Style(face, casing, "top", 0).in_casing("cat") for casing in CASINGS] == ["CAT", "cat", "Cat"]


def test_typefaces_differ() -> None:
    drawn = {face.name: draw_print(print_of("gauge", Style(face, "lower", "centre", 0), 160)).tobytes() for face in BUILT_IN}
    assert len(set(drawn.values())) == len(BUILT_IN) == len({face.name for face in BUILT_IN})


@pytest.mark.parametrize("face", BUILT_IN, ids=lambda face: face.name)
def test_every_letter_differs_from_every_other(face: Typeface) -> None:
    small = {letter: face.line(letter, 60).tobytes() for letter in "abcdefghijklmnopqrstuvwxyz"}
    large = {letter: face.line(letter, 60).tobytes() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    assert len(set(small.values())) == len(set(large.values())) == 26
    assert len({face.line(letter, 60).shape[0] for letter in "agilTW"}) == 1


@pytest.mark.parametrize("count", [24, 100])
def test_styles_are_balanced(count: int) -> None:
    drawn = styles(np.random.default_rng(5), BUILT_IN, count)
    kinds: dict[str, tuple[Any, ...]] = {
        "typeface": BUILT_IN,
        "casing": CASINGS,
        "position": tuple(POSITIONS),
        "rotation": ROTATIONS,
    }
    for kind, levels in kinds.items():
        counts = [sum(getattr(style, kind) == level for style in drawn) for level in levels]
        assert sum(counts) == count
        assert max(counts) - min(counts) <= 1


def test_fonts_of_a_folder_are_used_and_say_their_digest_and_not_their_path(tmp_path: Path) -> None:
    embedded: Any = ImageFont.load_default(20)
    (tmp_path / "Mine.ttf").write_bytes(embedded.path.getvalue())
    (tmp_path / "readme.txt").write_text("no font")
    (face,) = typefaces_in(tmp_path)
    assert face.name == "Mine.ttf"
    assert str(tmp_path) not in repr(face)
    assert len(face.digest) == 64
    assert (face.line("gauge", 80) == FontFace("sans").line("gauge", 80)).all()


def test_folders_without_usable_fonts_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"fonts: .*absent is not a folder\. Expected: a folder of TrueType"):
        typefaces_in(tmp_path / "absent")
    with pytest.raises(DatasetError, match=r"holds no file that ends with \.ttf or \.otf"):
        typefaces_in(tmp_path)
    (tmp_path / "broken.otf").write_bytes(b"not a font")
    with pytest.raises(DatasetError, match=r"broken\.otf cannot be read as a font \(.+\)\. Repair or remove it"):
        typefaces_in(tmp_path)


def test_letters_that_a_font_lacks_are_found() -> None:
    font: Any = ImageFont.load_default(20)
    assert _lacking(font, "abc\u0431\u0432\u0433") == ["\u0431", "\u0432", "\u0433"]


def test_no_letter_of_the_pen_changes() -> None:
    """Lines in thousandths of a unit; they do not depend on the version of OpenCV."""
    drawn = hashlib.sha256()
    for face in BUILT_IN:
        if isinstance(face, StrokeFace):
            for letter in ascii_letters:
                lines, advance = face._strokes(letter)
                drawn.update(repr((face.name, letter, round(advance, 3))).encode())
                drawn.update(repr(sorted((np.round(line, 3) + 0.0).tolist() for line in lines)).encode())
    assert drawn.hexdigest() == "f76fba3d97f3fdaeb300d7220ae49c4175d109380b8f041ddea0cabc98300131"
