"""The documentation site: every page of the repository, at its own path, so that one relative link serves both.

    sphinx-build -W --keep-going -q -c docs . site

builds it into ``site`` and ends with an error at the first thing that is not right. It needs the extra ``docs``.
"""  # noqa: INP001 - read by Sphinx, which names these settings

from __future__ import annotations

import re
from collections.abc import MutableSequence
from pathlib import PurePosixPath
from typing import Any

from pytest_vlmrobust import __version__

project = "pytest-vlmrobust"
release = __version__
root_doc = "docs/index"
extensions = ["myst_parser"]
include_patterns = ["*.md", "docs/**.md", "pytest_vlmrobust/demo/tiny/README.md"]
include_patterns += ["examples/README.md", "studies/*/README.md"]
myst_heading_anchors = 4
nitpicky = True
smartquotes = False  # `--vlm` is to stay as it is
html_theme = "furo"
html_title = "pytest-vlmrobust"
html_show_copyright = False
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]

_ITEM = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)", re.MULTILINE)


def navigation(page: str) -> str:
    """Returns the site's navigation: what the lists of the contents page link to, a part for each heading."""
    parts = []
    for section in page.split("\n## ")[1:]:
        entries = [f"{title} <{PurePosixPath(target).with_suffix('')}>" for title, target in _ITEM.findall(section)]
        parts += ["```{toctree}", ":hidden:", f":caption: {section.partition(chr(10))[0]}", "", *entries, "```", ""]
    return "\n".join(parts)


def _add_navigation(_: Any, name: str, source: MutableSequence[str]) -> None:
    if name == root_doc:
        source[0] += "\n" + navigation(source[0])


def setup(app: Any) -> None:
    """Connects what Sphinx does not do by itself."""
    app.connect("source-read", _add_navigation)
