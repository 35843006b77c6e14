from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from pytest_vlmrobust.reporting import RunFacts
from pytest_vlmrobust.reporting.html import drawing, render_html
from pytest_vlmrobust.reporting.html.drawing import ROLE_COLORS
from tests.unit.reporting.pages import cell

pytest.importorskip("matplotlib", reason="the extra that draws is not installed")

BARS = (drawing.Bar("fog:high", 0.4, 0.3, 0.5, (0.2,), "fail", "✕"), drawing.Bar("$x^2$ <b>", 0.1, 0.1, 0.1, reference=0.9))
RUNGS = (drawing.Rung(20, 0.5, 0.4, 0.6), drawing.Rung(40, 0.7, 0.6, 0.8, collapsed=True))


def drawn() -> list[str]:
    return [
        drawing.ranking(BARS, axis="drop", prefix="a", label='Settings "that" cost <most>'),
        drawing.ranking(BARS, axis="score", prefix="b", label="Tasks", zero=False),
        drawing.curve(RUNGS, [("as they are", 0.9)], prefix="c", label="Curve"),
        drawing.flips([drawing.Flip("fog:high", 0.3, 0.1)], prefix="d", label="Flips"),
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libfreetype.so.6: no such file')", r"ImportError: libfreetype\.so\.6: no such file"),
        ("import numpy_of_another_release", "ModuleNotFoundError: .*numpy_of_another_release"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_library_that_cannot_be_imported_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str
) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text(source)
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    drawing.problem.cache_clear()
    try:
        assert not drawing.available()
        assert re.fullmatch(rf"matplotlib is installed and cannot be imported \({said}.*\)", drawing.problem())
        page = render_html([cell("fog:low", "weather", "low")], RunFacts(), {})
        assert "Not drawn: matplotlib is installed and cannot be imported" in page
    finally:
        drawing.problem.cache_clear()


def test_text_is_text_and_escaped() -> None:
    ranking = drawn()[0]
    texts = ["".join(node.itertext()) for node in ET.fromstring(ranking).iter("text")]
    assert "fog:high ✕" in texts
    assert "$x^2$ <b>" in texts
    assert ET.fromstring(ranking).get("aria-label") == 'Settings "that" cost <most>'


@pytest.mark.parametrize("at", range(4))
def test_colours_are_classes_and_nothing_is_styled_inline(at: int) -> None:
    svg = drawn()[at]
    assert "style=" not in svg
    assert "<style" not in svg
    assert "metadata" not in svg
    assert not [color for color in ROLE_COLORS.values() if color in svg]
    assert set(re.findall(r'(?:fill|stroke)="([^"]+)"', svg)) <= {"none"}
    assert 'class="s-ink"' in svg or 'class="s-muted"' in svg


def test_a_breach_has_the_colour_of_a_breach() -> None:
    assert 'class="f-fail"' in drawn()[0]
    assert 'class="s-bound"' in drawn()[0]
    assert "s-people" in drawn()[1]
    assert "f-paper" in drawn()[2]


def test_ids_are_the_drawings_own_and_every_reference_is_met() -> None:
    for prefix, svg in zip("abcd", drawn(), strict=True):
        ids = re.findall(r' id="([^"]+)"', svg)
        assert all(name.startswith(f"{prefix}-") for name in ids)
        assert len(set(ids)) == len(ids)
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(ids)


def test_drawings_are_the_same_each_time() -> None:
    assert drawn() == drawn()


def test_letters_that_no_font_of_the_library_has_are_no_error() -> None:
    svg = drawing.ranking([drawing.Bar("設定 \x00", 0.1, 0.1, 0.1)], axis="drop", prefix="a", label="x")
    assert r"設定 \x00" in svg


def test_settings_of_the_library_are_left_as_they_were() -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    drawn()
    assert dict(mpl.rcParams) == before
