from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.html import drawing, render_html
from pytest_vlmrobust.reporting.html.drawing import Bar, Flip, Point
from tests.unit.reporting.browsing import browser
from tests.unit.reporting.pages import run

__all__ = ["browser"]

STYLE = (Path(drawing.__file__).parent / "style.css").read_text()
BARS = (Bar("fog:high", 0.4, 0.3, 0.5, (0.2,), "fail", "✕"), Bar("$x^2$ <b>", 0.1, 0.1, 0.1, reference=0.9))
POINTS = (Point(20, "20", 0.5, 0.4, 0.6), Point(40, "40", 0.7, 0.6, 0.8, hollow=True, change="another processor"))
DRAWN = {
    "ranking": drawing.ranking(BARS, axis="drop", label='Settings "that" cost <most>'),
    "points": drawing.ranking(BARS, axis="score", label="Tasks", zero=False),
    "dots": drawing.dots(BARS, axis="accuracy", label="Models"),
    "ranks": drawing.dots([Bar("a", 1, 1, 2), Bar("b", 2, 1, 2)], axis="rank", label="Ranks", whole=True),
    "boxes": drawing.boxes([("patch 1", (0.1, 0.2, 0.3, 0.4, 0.5))], axis="share", label="Patches"),
    "a tick at the end": drawing.boxes([(f"patch {at}", (0.25,) * 5) for at in range(4)], axis="share", label="Patches"),
    "flips": drawing.flips([Flip("fog:high", 0.3, 0.1, "3 of 10")], label="Flips"),
    "line": drawing.line(POINTS, across="size", up="accuracy", label="Curve", levels=[("as they are", 0.9)], ends=(0, 1)),
}


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("text")]


def nodes(svg: str, tag: str, name: str) -> list[dict[str, Any]]:
    """Returns the attributes of elements of a class, with numbers as numbers."""
    attrs = [node.attrib for node in ET.fromstring(svg).iter(tag) if name in node.get("class", "").split()]
    return [{key: float(value) if re.fullmatch(r"-?[\d.]+", value) else value for key, value in each.items()} for each in attrs]


def test_text_is_text_and_escaped() -> None:
    assert "fog:high ✕" in texts(DRAWN["ranking"])
    assert "$x^2$ <b>" in texts(DRAWN["ranking"])
    assert ET.fromstring(DRAWN["ranking"]).attrib["aria-label"] == 'Settings "that" cost <most>'
    assert r"設定 \x00" in texts(drawing.ranking([Bar("設定 \x00", 0.1, 0.1, 0.1)], axis="drop", label="x"))


@pytest.mark.cases("name", DRAWN)
def test_a_drawing_is_an_image_with_a_name_that_needs_nothing_but_the_style_sheet(name: str) -> None:
    svg = ET.fromstring(DRAWN[name])
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"]
    assert not [key for node in svg.iter() for key in node.attrib if key in {"style", "id", "href"} or key.startswith("on")]
    classes = {name for node in svg.iter() for name in node.get("class", "").split()}
    assert not [name for name in classes if f".{name} " not in STYLE and f".{name}:" not in STYLE]
    assert {node.get("fill") for node in svg.iter() if node.get("fill")} <= {"none"}


@pytest.mark.cases("name", DRAWN)
def test_nothing_is_drawn_beside_the_canvas(name: str) -> None:
    svg = ET.fromstring(DRAWN[name])
    _, _, wide, tall = map(float, svg.attrib["viewBox"].split())
    for node in svg.iter():
        for key in ("x", "x1", "x2", "cx"):
            assert 0 <= float(node.get(key, 0)) <= wide
        for key in ("y", "y1", "y2", "cy"):
            assert 0 <= float(node.get(key, 0)) <= tall
        assert float(node.get("x", 0)) + float(node.get("width", 0)) <= wide
    for node in svg.iter("text"):
        half = drawing._text_width(node.text or "") / 2 if "middle" in node.get("class", "").split() else 0.0
        assert half <= float(node.get("x", 0)) + 0.1
        assert float(node.get("x", 0)) + half <= wide + 0.1


def test_lengths_are_proportional_to_values() -> None:
    shorter, longer = (Bar(name, value, value, value) for name, value in (("a", 0.2), ("b", 0.4)))
    svg = drawing.ranking([shorter, longer], axis="drop", label="x")
    first, second = nodes(svg, "rect", "f-measured")
    assert second["width"] == pytest.approx(2 * first["width"], abs=0.2)
    assert first["x"] == second["x"]
    zero = next(tick["x1"] for tick in nodes(svg, "line", "s-muted") if tick["x1"] == tick["x2"])
    assert first["x"] == zero


def test_a_gain_is_drawn_to_the_left_of_zero() -> None:
    svg = drawing.ranking([Bar("a", -0.2, -0.3, -0.1, role="pass"), Bar("b", 0.2, 0.1, 0.3)], axis="drop", label="x")
    (gain,), (loss,) = nodes(svg, "rect", "f-pass"), nodes(svg, "rect", "f-measured")
    assert gain["x"] + gain["width"] == pytest.approx(loss["x"], abs=0.11)


def test_intervals_and_bounds_stand_where_their_values_are() -> None:
    (interval, _) = nodes(DRAWN["ranking"], "line", "s-ink")
    (bound,) = nodes(DRAWN["ranking"], "line", "s-bound")
    (bar,) = nodes(DRAWN["ranking"], "rect", "f-fail")
    unit = bar["width"] / 0.4
    assert interval["x1"] == pytest.approx(bar["x"] + 0.3 * unit, abs=0.2)
    assert interval["x2"] == pytest.approx(bar["x"] + 0.5 * unit, abs=0.2)
    assert bound["x1"] == pytest.approx(bar["x"] + 0.2 * unit, abs=0.2)
    assert "people, in the paper" in texts(DRAWN["points"])
    assert nodes(DRAWN["points"], "line", "s-people")


def test_pointing_at_a_row_tells_its_numbers() -> None:
    assert {"fog:high ✕", "0.400 [0.300, 0.500]", "0.100"} <= set(texts(DRAWN["ranking"]))
    assert {"fog:high", "3 of 10"} <= set(texts(DRAWN["flips"]))
    assert {"40", "0.700 [0.600, 0.800]; another processor"} <= set(texts(DRAWN["line"]))


def test_what_is_unknown_is_no_zero() -> None:
    svg = drawing.ranking([Bar("a", math.nan, math.nan, math.nan), Bar("b", 0.2, 0.1, 0.3)], axis="drop", label="x")
    assert texts(svg).count("undefined") == 2  # in its row, and where a pointer rests on it
    assert len(nodes(svg, "rect", "f-measured")) == 1
    gap = [Point(at, str(at), value) for at, value in enumerate((0.1, math.nan, 0.3))]
    svg = drawing.line(gap, across="run", up="drop", label="x")
    assert [path["d"].count("L") for path in nodes(svg, "path", "s-line")] == [0, 0]
    assert len(nodes(svg, "circle", "f-line")) == 2
    assert "?" in texts(svg)
    assert not re.search("nan|inf", svg)


@pytest.mark.parametrize("value", [0.0, 1.0, -0.5])
def test_equal_values_have_a_scale_of_their_own(value: float) -> None:
    bars = [Bar(name, value, value, value) for name in "ab"]
    (first, second) = ET.fromstring(drawing.dots(bars, axis="drop", label="d")).iter("circle")
    assert first.get("cx") == second.get("cx")


def test_a_run_in_which_nothing_changed_is_drawn() -> None:
    nothing = [Bar("a", 0.0, 0.0, 0.0), Bar("b", 0.0, 0.0, 0.0)]
    for svg in (
        drawing.ranking(nothing, axis="drop", label="x"),
        drawing.ranking(nothing, axis="drop", label="x", zero=False),
        drawing.dots(nothing, axis="drop", label="x"),
        drawing.boxes([("a", (0.0,) * 5)], axis="share", label="x"),
        drawing.flips([Flip("a", 0.0, 0.0)], label="x"),
        drawing.line([Point(0, "a", 0.0), Point(1, "b", 0.0)], across="run", up="drop", label="x"),
        drawing.line([Point(0, "a", math.nan)], across="run", up="drop", label="x"),
    ):
        assert "0" in texts(svg)
        assert not re.search("nan|inf", svg)


def test_a_change_is_marked_between_two_points() -> None:
    before, after = (nodes(DRAWN["line"], "circle", "s-line" if hollow else "f-line")[0]["cx"] for hollow in (False, True))
    (change,) = nodes(DRAWN["line"], "line", "s-open")
    assert change["x1"] == pytest.approx((before + after) / 2, abs=0.11)
    assert len(nodes(DRAWN["line"], "circle", "f-paper")) == 1


@pytest.mark.cases(("low", "high"), [(0.3, 0.31), (-5e-7, 2e-6), (-70.0, 12.0), (0.0, 4000.0), (0.5, 0.5)])
def test_axes_have_a_few_round_numbers(low: float, high: float) -> None:
    svg = drawing.ranking([Bar("a", low, low, low), Bar("b", high, high, high)], axis="drop", label="x", zero=False)
    ticks = [
        text for text in texts(svg) if re.fullmatch(r"-?[\d.]+(e[-+]\d+)?", text.replace("\N{MINUS SIGN}", "-")) and len(text) < 8
    ]
    assert 2 <= len(ticks) <= 12


def test_of_many_names_those_that_fit_are_written_and_the_last_one_always() -> None:
    points = [Point(at, f"2026-11-{at:02d}", 0.5) for at in range(1, 31)]
    svg = drawing.line(points, across="run", up="drop", label="x")
    below = [node for node in nodes(svg, "text", "f-ink") if node["y"] == 210]
    assert 3 <= len(below) <= 5
    assert all(second - first > 60 for first, second in zip(*(sorted(n["x"] for n in below)[at:] for at in (0, 1)), strict=False))
    assert "2026-11-30" in texts(svg)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pointing_shows_the_numbers_without_any_script(browser: Any, tmp_path: Path, scheme: str) -> None:
    (tmp_path / "page.html").write_text(render_html(RunView(run(), RunFacts())), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, color_scheme=scheme, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    row, tip = page.locator(".chart .hit").first, page.locator(".chart .tip").first
    assert not tip.is_visible()
    row.hover()
    assert tip.is_visible()
    assert "0.400 [0.350, 0.450]; bound <= 0.2; FAIL" in tip.text_content()
    for chart in page.locator(".chart").all():
        letters = chart.locator("text").first.bounding_box()
        assert letters["height"] >= 11
        assert chart.bounding_box()["width"] <= 390
    context.close()
