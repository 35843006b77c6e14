"""Drawing: charts as SVG by matplotlib, which an extra installs; the same numbers give the same bytes."""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from markupsafe import Markup

from .words import visible_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Colours: drawings use one for each role, and the style sheet gives roles their colours.


ROLE_COLORS = {
    "ink": "#010101",
    "muted": "#020202",
    "grid": "#030303",
    "line": "#040404",
    "band": "#050505",
    "paper": "#060606",
    "bound": "#070707",
    "people": "#080808",
    "harm": "#090909",
    "help": "#0a0a0a",
    "fail": "#0b0b0b",
    "error": "#0c0c0c",
    "open": "#0d0d0d",
    "na": "#0e0e0e",
    "waived": "#0f0f0f",
    "pass": "#101010",
    "measured": "#111111",
}
"""Role to a colour that no drawing uses for anything else; the roles of verdicts are the CSS classes of their marks."""
ROLES = {color: role for role, color in ROLE_COLORS.items()}


# Matplotlib's SVG made fit for a page: CSS classes instead of colours, unique ids, no inline style, which the page forbids.


_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_LOST = ("metadata", "style", "title")
_KEPT_STYLE = (
    "stroke-width",
    "stroke-dasharray",
    "stroke-dashoffset",
    "stroke-linecap",
    "text-anchor",
    "opacity",
    "fill-opacity",
)
_PAINTS = ("fill", "stroke")
_REFERENCE = re.compile(r"url\(#(?P<id>[^)]+)\)")
_FONT_SIZE = re.compile(r"(?:^|\s)(?P<size>[\d.]+)px\b")


def inline_svg(drawn: str, prefix: str, label: str) -> Markup:
    """Returns an SVG document as an element for a page.

    Args:
        drawn: What matplotlib wrote.
        prefix: What ids begin with, so that those of two drawings differ.
        label: What the drawing shows, for those who do not see it.
    """
    root = ET.fromstring(drawn)  # noqa: S314 - what matplotlib wrote in this process
    for parent in list(root.iter()):
        for child in [child for child in parent if _local(child) in _LOST]:
            parent.remove(child)
    for element in root.iter():
        _rename(element, prefix)
        _restyle(element)
        element.tag = _local(element)
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": label, "class": "chart"}
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - a serializer has escaped it


def _local(element: ET.Element) -> str:
    return element.tag.removeprefix(f"{{{_SVG}}}")


def _rename(element: ET.Element, prefix: str) -> None:
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.attrib['id']}")
    target = element.attrib.pop(_XLINK, "")
    if target:
        element.set("href", f"#{prefix}-{target.removeprefix('#')}")
    for name, value in element.attrib.items():
        element.set(name, _REFERENCE.sub(lambda match: f"url(#{prefix}-{match['id']})", value))


def _restyle(element: ET.Element) -> None:
    """Writes what a ``style`` says as attributes, and colours as classes, which the style sheet gives a value in each theme."""
    style = dict(_declarations(element.attrib.pop("style", "")))
    style |= {name: element.attrib.pop(name) for name in _PAINTS if name in element.attrib}
    classes = []
    for name in _PAINTS:
        value = style.get(name, "")
        if value in ROLES:
            classes.append(f"{name[0]}-{ROLES[value]}")
        elif value:
            element.set(name, value)
    if _local(element) == "text" and "fill" not in style:
        classes.append("f-ink")
    if match := _FONT_SIZE.search(style.get("font", "") or style.get("font-size", "")):
        element.set("font-size", match["size"])
    for name in _KEPT_STYLE:
        if name in style:
            element.set(name, style[name])
    if classes:
        element.set("class", " ".join(classes))


def _declarations(style: str) -> list[tuple[str, str]]:
    pairs = (part.partition(":") for part in style.split(";"))
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon]


EXTRA = "pytest-vlmrobust[report]"
_WIDTH = 380
"""Units of a drawing's width; the style sheet shows them as CSS pixels at most a little larger."""
_ROW = 18
_FONT = 10.5
_LONGEST_LABEL = 32
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "pytest-vlmrobust",
    "font.size": _FONT,
    "axes.linewidth": 0.8,
    "text.parse_math": False,
    "axes.unicode_minus": True,
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of a ranking: a value with its interval, the bounds it was held against, and its verdict."""

    label: str
    value: float
    low: float
    high: float
    bounds: tuple[float, ...] = ()
    role: str = "measured"
    sign: str = ""
    reference: float | None = None
    """What it may be compared with and is not judged by."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One size of the pictures: accuracy with its band, and whether it reached the model at the size of another one."""

    size: int
    value: float
    low: float
    high: float
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Flip:
    """Shares of the answers that a setting turned wrong, and right."""

    label: str
    harmful: float
    helpful: float


def available() -> bool:
    """Whether the library that draws can be used."""
    return not problem()


@cache
def problem() -> str:
    """Returns why nothing can be drawn, an empty string where everything can; the library is imported once to find out."""
    try:
        import matplotlib.figure  # noqa: F401 - to find out whether it can be
        from matplotlib.backends import backend_svg  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name == "matplotlib":
            return "matplotlib is not installed"
        return _unusable(error)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything, and the page says what
        return _unusable(error)
    return ""


def _unusable(error: Exception) -> str:
    return f"matplotlib is installed and cannot be imported ({type(error).__name__}: {error})"


def ranking(bars: Sequence[Bar], *, axis: str, prefix: str, label: str, zero: bool = True) -> Markup:
    """Draws bars below each other with their intervals, and a tick at each bound."""

    def draw(axes: Axes) -> None:
        places = range(len(bars))
        colors = [ROLE_COLORS[bar.role] for bar in bars]
        if zero:
            axes.barh(places, [bar.value for bar in bars], height=0.62, color=colors, linewidth=0)
        else:
            axes.scatter([bar.value for bar in bars], places, s=34, c=colors, zorder=4)
        axes.hlines(
            places, [bar.low for bar in bars], [bar.high for bar in bars], colors=ROLE_COLORS["ink"], linewidth=1.4, zorder=3
        )
        for place, bar in enumerate(bars):
            axes.vlines(bar.bounds, place - 0.42, place + 0.42, colors=ROLE_COLORS["bound"], linewidth=2.2, zorder=5)
            if bar.reference is not None:
                axes.vlines([bar.reference], place - 0.42, place + 0.42, colors=ROLE_COLORS["people"], linewidth=2.2, zorder=5)
        known = [bar.reference for bar in bars if bar.reference is not None]
        if known:
            axes.annotate(
                "people, in the paper",
                (max(known), -0.6),
                (0, 2),
                "data",
                "offset points",
                color=ROLE_COLORS["people"],
                ha="right",
            )
        axes.axvline(0, color=ROLE_COLORS["muted"], linewidth=0.8)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_yticks(list(places), [_label(f"{bar.label} {bar.sign}") for bar in bars])
        axes.set_xlabel(axis)
        axes.grid(axis="x", color=ROLE_COLORS["grid"], linewidth=0.8)

    return _draw_svg(draw, _ROW * len(bars) + 46, prefix, label)


def dots(bars: Sequence[Bar], *, axis: str, prefix: str, label: str, whole: bool = False) -> Markup:
    """Draws values below each other with their intervals, on an axis that holds these and no more.

    Args:
        bars: the values with their intervals.
        axis: what the axis is called.
        prefix: what ids begin with.
        label: what the drawing shows, for those who do not see it.
        whole: whether only whole numbers are values.
    """

    def draw(axes: Axes) -> None:
        places = range(len(bars))
        axes.hlines(
            places, [bar.low for bar in bars], [bar.high for bar in bars], colors=ROLE_COLORS["line"], linewidth=2.4, zorder=3
        )
        axes.scatter([bar.value for bar in bars], places, s=40, c=ROLE_COLORS["ink"], zorder=4)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_yticks(list(places), [_label(bar.label) for bar in bars])
        axes.set_xlabel(axis)
        axes.grid(axis="x", color=ROLE_COLORS["grid"], linewidth=0.8)
        if whole:
            axes.set_xticks(range(1, len(bars) + 1))
            axes.set_xlim(0.5, len(bars) + 0.5)

    return _draw_svg(draw, _ROW * len(bars) + 46, prefix, label)


def boxes(rows: Sequence[tuple[str, Sequence[float]]], *, axis: str, prefix: str, label: str) -> Markup:
    """Draws box plots below each other.

    Args:
        rows: a name and five numbers: lowest, lower quartile, median, upper quartile, highest.
        axis: what the axis is called.
        prefix: what ids begin with.
        label: what the drawing shows, for those who do not see it.
    """

    def draw(axes: Axes) -> None:
        places = range(len(rows))
        lowest, lower, median, upper, highest = ([numbers[place] for _, numbers in rows] for place in range(5))
        axes.hlines(places, lowest, highest, colors=ROLE_COLORS["line"], linewidth=1.2, zorder=2)
        axes.hlines(places, lower, upper, colors=ROLE_COLORS["line"], linewidth=9, zorder=3)
        axes.scatter(median, places, s=40, c=ROLE_COLORS["ink"], zorder=4)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(list(places), [_label(name) for name, _ in rows])
        axes.set_xlabel(axis)
        axes.grid(axis="x", color=ROLE_COLORS["grid"], linewidth=0.8)

    return _draw_svg(draw, _ROW * len(rows) + 46, prefix, label)


def curve(rungs: Sequence[Rung], lines: Sequence[tuple[str, float]], *, prefix: str, label: str) -> Markup:
    """Draws accuracy against the size of the pictures with its band; ``lines`` are named levels to compare with."""

    def draw(axes: Axes) -> None:
        sizes = [rung.size for rung in rungs]
        axes.fill_between(sizes, [r.low for r in rungs], [r.high for r in rungs], color=ROLE_COLORS["band"], linewidth=0)
        axes.plot(sizes, [r.value for r in rungs], color=ROLE_COLORS["line"], linewidth=1.8, zorder=3)
        for collapsed, face in ((False, ROLE_COLORS["line"]), (True, ROLE_COLORS["paper"])):
            chosen = [rung for rung in rungs if rung.collapsed is collapsed]
            axes.scatter(
                [r.size for r in chosen],
                [r.value for r in chosen],
                s=32,
                facecolor=face,
                edgecolor=ROLE_COLORS["line"],
                linewidth=1.5,
                zorder=4,
            )
        for name, level in lines:
            axes.axhline(level, color=ROLE_COLORS["muted"], linewidth=1, linestyle=(0, (4, 3)))
            axes.annotate(name, (0.01, level), (0, 3), ("axes fraction", "data"), "offset points", color=ROLE_COLORS["muted"])
        axes.set_ylim(0, 1.02)
        axes.set_xlim(0, max(sizes) * 1.04)
        axes.set_xlabel("long edge of the pictures, pixels")
        axes.set_ylabel("accuracy")
        axes.grid(axis="y", color=ROLE_COLORS["grid"], linewidth=0.8)

    return _draw_svg(draw, 240, prefix, label)


def flips(rows: Sequence[Flip], *, prefix: str, label: str) -> Markup:
    """Draws to the left what turned wrong, and to the right what turned right."""

    def draw(axes: Axes) -> None:
        places = range(len(rows))
        axes.barh(places, [-100 * row.harmful for row in rows], height=0.62, color=ROLE_COLORS["harm"], linewidth=0)
        axes.barh(places, [100 * row.helpful for row in rows], height=0.62, color=ROLE_COLORS["help"], linewidth=0)
        axes.axvline(0, color=ROLE_COLORS["ink"], linewidth=0.8)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_yticks(list(places), [_label(row.label) for row in rows])
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
        axes.set_xlabel("% turned wrong      % turned right")
        axes.grid(axis="x", color=ROLE_COLORS["grid"], linewidth=0.8)

    return _draw_svg(draw, _ROW * len(rows) + 46, prefix, label)


def _draw_svg(draw: Callable[[Axes], None], height: int, prefix: str, label: str) -> Markup:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    stream = io.StringIO()
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the reader's fonts draw the text, not matplotlib's
        figure = Figure(figsize=(_WIDTH / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        _style(figure.add_subplot(), draw)
        _save(figure, stream)
    return inline_svg(stream.getvalue(), prefix, visible_text(label))


def _style(axes: Axes, draw: Callable[[Axes], None]) -> None:
    draw(axes)
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(ROLE_COLORS["muted"])
    axes.tick_params(colors=ROLE_COLORS["ink"], length=0, labelsize=_FONT)
    axes.xaxis.label.set_color(ROLE_COLORS["muted"])
    axes.yaxis.label.set_color(ROLE_COLORS["muted"])


def _save(figure: Figure, stream: io.StringIO) -> None:
    figure.patch.set_visible(False)
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(stream, format="svg", metadata=nothing)


def _label(text: str) -> str:
    readable = " ".join(visible_text(text).split())
    return readable if len(readable) <= _LONGEST_LABEL else f"{readable[: _LONGEST_LABEL - 1]}…"
