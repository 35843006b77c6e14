"""The page of several models as a reader uses it, in a headless Chromium that has no network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.reporting.html.models import render_models

from .browsing import FAINT, browser
from .rankings import board, ranking

__all__ = ["browser"]
LONG = "a-model-with-a-very-long-name/that-nobody-would-choose-and-somebody-has-chosen-nevertheless"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "models.html"
    boards = [board(name, (LONG, "bob", "<b>cy")) for name in ("", "a", "b", "c", "d", "e")]
    path.write_text(render_models(ranking(*boards, models=(LONG, "bob", "<b>cy"))), encoding="utf-8")
    return path


@pytest.fixture
def page(browser: Any, file: Path) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(file.as_uri())
    yield page
    assert said == []  # a refusal by the page's own policy would stand here
    page.close()


@pytest.mark.parametrize("width", [360, 390, 768])
def test_a_narrow_page_does_not_scroll_sideways(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_names_stay_in_sight_where_the_table_scrolls(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    scrolled = page.locator(".scroll").first
    scrolled.evaluate("node => { node.scrollLeft = 200; }")
    name = scrolled.locator("tbody th").nth(1)
    assert name.bounding_box()["x"] == scrolled.bounding_box()["x"]


def test_text_stands_out_from_its_ground_in_both_themes(browser: Any, file: Path) -> None:
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(file.as_uri())
        faint = page.evaluate(FAINT)
        page.close()
        assert faint == [], scheme


def test_the_theme_can_be_switched(page: Any) -> None:
    assert page.locator("#theme").inner_text() == "Theme: auto"
    page.locator("#theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_reaches_tables_and_folds(page: Any) -> None:
    page.locator("#board-3 summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("#board-3").evaluate("node => node.open")
    page.locator(".scroll").first.focus()
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"


def test_an_address_unfolds_its_data_set(browser: Any, file: Path) -> None:
    page = browser.new_page()
    page.goto(f"{file.as_uri()}#board-4")
    assert page.locator("#board-4").evaluate("node => node.open")
    assert not page.locator("#board-3").evaluate("node => node.open")
    page.close()
