"""SVG: a drawing of matplotlib made fit for the page: colours by CSS class, ids of its own, no style that the page forbids."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from markupsafe import Markup

from .palette import ROLES

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


def inlined(drawn: str, prefix: str, label: str) -> Markup:
    """Returns an SVG document as an element of a page.

    Args:
        drawn: What matplotlib wrote.
        prefix: What ids begin with, so that those of two drawings differ.
        label: What the drawing shows, for those who do not see it.
    """
    root = ET.fromstring(drawn)  # noqa: S314 - what matplotlib wrote in this process
    for parent in list(root.iter()):
        for child in [one for one in parent if _local(one) in _LOST]:
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
