"""A headless Chromium for the tests of pages, and what is too faint to read on one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FAINT = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const over = (colors) => {
    canvas.globalCompositeOperation = "source-over";
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.checkVisibility() || node.closest("svg, .hidden")) continue;
    const grounds = [];
    for (let at = node; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const ground = light(over(grounds)), ink = light(over([...grounds, getComputedStyle(node).color]));
    const contrast = (Math.max(ground, ink) + 0.05) / (Math.min(ground, ink) + 0.05);
    if (contrast < 4.5) found.push(`${node.className || node.tagName} ${contrast.toFixed(2)} ${node.textContent.slice(0, 30)}`);
  }
  return [...new Set(found)];
}"""
"""JavaScript that returns the texts of a page whose contrast is below 4.5."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: pip install playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")
    if not chromium:
        pytest.skip("the browser test needs Chromium on the path")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def quiet_page(browser: Any, *allowed: str, but: str = "\0") -> Iterator[Any]:
    """Opens a page that says nothing, but for lines with this in them, and asks only for what begins with one of these."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    yield page
    assert [line for line in said if but not in line] == []  # a refusal by the page's own policy would stand here
    assert [url for url in urls if not url.startswith(allowed)] == []
    page.close()
