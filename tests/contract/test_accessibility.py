"""What axe-core finds in the pages. It is a package of npm: ``npm install axe-core`` at the top of the repository brings it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.html import render_html
from pytest_vlmrobust.reporting.ranking import render_models
from tests.unit.reporting.browsing import browser
from tests.unit.reporting.pages import COMMAND, asked_twice, cell, run, store
from tests.unit.reporting.rankings import board, ranking

__all__ = ["browser"]
ROOT = Path(__file__).parents[2]
PLACES = [*map(Path, filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep))), ROOT / "node_modules"]
WIDTHS = {"wide": 1280, "phone": 390}


@pytest.fixture(scope="module")
def axe() -> str:
    file = next((path for place in PLACES if (path := place / "axe-core" / "axe.min.js").is_file()), None)
    if file is None:
        pytest.skip("axe-core is not installed: npm install --no-save axe-core, or name a folder of modules in NODE_PATH")
    return file.read_text(encoding="utf-8")


def two_sweeps() -> list[Any]:
    """Returns the records of a run in which every part of a sweep is there twice."""
    again = [
        cell("fog:low", "weather", "low", 0.01, dataset="e", id="m-e-fog:low", nodeid="s.py::t[e-fog]"),
        cell("rain:high", "weather", "high", 0.3, Outcome.FAIL, dataset="e", id="m-e-rain:high", nodeid="s.py::t[e-rain]"),
    ]
    return [*run(), *again]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    facts = RunFacts(pictures=store(folder), command=COMMAND, repeatability=asked_twice(8))
    texts = {
        "report": render_html(RunView(two_sweeps(), facts)),
        "empty": render_html(RunView([], RunFacts())),
        "models": render_models(ranking(board(""), board("shapes"), board("words"), reference="cy")),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def findings(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    result = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {rule['help']}: {[node['html'][:200] for node in rule['nodes'][:3]]}" for rule in result["violations"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("name", ["report", "empty", "models"])
def test_axe_finds_nothing(browser: Any, axe: str, pages: dict[str, Path], name: str, size: str, scheme: str) -> None:
    page = browser.new_page(viewport={"width": WIDTHS[size], "height": 900}, color_scheme=scheme)
    page.goto(pages[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert findings(page, axe) == []
    page.close()


@pytest.mark.parametrize("size", WIDTHS)
def test_axe_finds_nothing_in_a_drill_down(browser: Any, axe: str, pages: dict[str, Path], size: str) -> None:
    page = browser.new_page(viewport={"width": WIDTHS[size], "height": 900})
    page.goto(f"{pages['report'].as_uri()}#cell=m-d-fog%3Ahigh")
    assert page.locator("dialog .example").count() == 1
    assert findings(page, axe) == []
    page.close()


def test_axe_would_find_something(browser: Any, axe: str) -> None:
    page = browser.new_page()
    page.set_content("<html lang=en><title>t</title><main><h1>a</h1><h4>b</h4><img src='data:,'></main></html>")
    assert {finding.partition(":")[0] for finding in findings(page, axe)} == {"heading-order", "image-alt"}
    page.close()
