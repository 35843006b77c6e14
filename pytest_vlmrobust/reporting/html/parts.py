"""Parts: what pages have in common: one style, one script, what a browser may do with them, and how text gets into them."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pytest_vlmrobust.core.counting import quantity

from . import drawing, heatmap, words


@cache
def asset(name: str) -> Markup:
    """Returns a file of the package that is written into a page as it is."""
    return Markup(files(__package__).joinpath(name).read_text(encoding="utf-8"))  # noqa: S704 - the package's own


def security(style: str, script: str) -> str:
    """Returns what a page may do: show pictures that it holds, and use its own style and script."""
    return (
        "default-src 'none'; img-src data:; "
        f"style-src '{_hashed(style)}'; script-src '{_hashed(script)}'; base-uri 'none'; form-action 'none'"
    )


def environment() -> Environment:
    """Returns what renders templates: whatever comes from outside is made readable and escaped."""
    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    found.filters |= {"points": words.points, "share": words.share, "number": words.number, "interval": words.interval}
    found.globals |= {
        "marks": words.MARKS,
        "quantity": quantity,
        "shade": heatmap.shade,
        "extra": drawing.EXTRA,
        "undrawn": drawing.problem(),
        "style": asset("style.css"),
    }
    return found


def _hashed(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _readable(value: Any) -> Any:
    """Returns a value as it is printed: text from outside is made readable before it is escaped."""
    return words.shown(str(value)) if isinstance(value, str) and not isinstance(value, Markup) else value
