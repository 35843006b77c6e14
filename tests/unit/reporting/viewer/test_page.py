"""The viewer as a reader uses it, in a headless Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust import reporting
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.store import Evidence, Journal, write_manifest
from tests.unit.reporting.browsing import FAINT, browser, quiet_page
from tests.unit.reporting.viewer.conftest import EVIL, Served
from tests.unit.store.browsed import answer, put, record, run

__all__ = ["browser"]
sync_api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: pip install playwright")
PATHS = ("/", "/answers?run=second", "/samples", "/sample?data=d&id=d1&under=fog:low")


@pytest.fixture
def page(browser: Any, viewer: Served) -> Iterator[Any]:
    with quiet_page(browser, viewer.address, but="404 (Not Found)") as page:  # the picture of d5 is lost
        yield page


@pytest.mark.parametrize("path", PATHS)
def test_hostile_answers_are_shown_and_do_nothing(page: Any, viewer: Served, path: str) -> None:
    page.goto(viewer.address + path)
    page.wait_for_load_state("networkidle")
    assert page.title().endswith("vlmrobust view")
    assert page.locator("img[src='x'], main script").count() == 0


def test_a_hostile_answer_can_be_read_whole(page: Any, viewer: Served) -> None:
    page.goto(f"{viewer.address}/sample?run=second&data=d&id=d2&under=fog:low")
    shown = EVIL.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    assert shown in page.locator(".board").inner_text()


def test_pictures_are_shown_at_full_size_beside_each_other(page: Any, viewer: Served) -> None:
    page.goto(f"{viewer.address}/sample?run=first&data=d&id=d0&under=fog:high")
    pictures = page.locator(".gallery img")
    assert pictures.count() == 2
    for number in range(2):
        assert pictures.nth(number).evaluate("image => image.decode().then(() => image.naturalWidth)") == 64
    boxes = [pictures.nth(number).bounding_box() for number in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]


def test_a_filter_is_applied_when_it_is_chosen_and_stands_in_the_address(page: Any, viewer: Served) -> None:
    page.goto(f"{viewer.address}/answers?run=first")
    page.get_by_label("Setting").select_option("fog:high")
    page.wait_for_url(re.compile("setting=fog%3Ahigh"))
    page.get_by_label("Flip").select_option("harmful")
    page.wait_for_url(re.compile("flip=harmful"))
    assert "verdict=" not in page.url  # what is not chosen makes no address longer
    assert "4 answers" in page.locator(".found").inner_text()
    page.get_by_label("Text").fill("d4")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=d4"))
    assert page.locator("article").count() == 1
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("article").count() == 1
    page.get_by_role("link", name="Clear all").click()
    assert "60 answers" in page.locator(".found").inner_text()


def test_the_keyboard_is_enough(page: Any, viewer: Served) -> None:
    page.goto(f"{viewer.address}/answers?run=first&model=m1&flip=harmful")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/sample.*at=1"))
    first = page.locator("h1").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_url(re.compile("at=2"))
    assert page.locator("h1").inner_text() != first
    page.keyboard.press("ArrowLeft")
    page.wait_for_url(re.compile("at=1"))
    assert page.locator("h1").inner_text() == first
    page.keyboard.press("u")
    page.wait_for_url(re.compile("/answers"))
    assert "flip=harmful" in page.url
    page.keyboard.press("/")
    page.keyboard.type("jj?")
    assert page.get_by_label("Text").input_value() == "jj?"
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 3, "y": 3})
    page.get_by_label("Text").evaluate("field => field.blur()")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_a_picture_that_is_lost_is_said(page: Any, viewer: Served) -> None:
    page.goto(f"{viewer.address}/answers?run=first&text=d5")
    sync_api.expect(page.locator("#unseen")).to_contain_text("the image of d5 is lost")


@pytest.mark.parametrize("width", [360, 390, 768])
@pytest.mark.parametrize("path", PATHS)
def test_a_narrow_page_does_not_scroll_sideways(page: Any, viewer: Served, path: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(viewer.address + path)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PATHS)
def test_every_text_can_be_read(page: Any, viewer: Served, path: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(viewer.address + path)
    assert page.evaluate(FAINT) == []


def test_verdicts_are_shown_as_they_fall(browser: Any, serve: Callable[..., Served], tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}}, decision="")
    served = serve(directory, together=False)
    page = browser.new_page()
    page.goto(served.address)
    assert page.locator("[data-part=newest] li").all_inner_texts() == ["✓ PASS m-d-clean"]
    samples = browser.new_page()
    samples.goto(f"{served.address}/samples")
    with Evidence.open(directory) as evidence, Journal(directory) as journal:
        put(evidence, "m", "d", "fog:low", [answer("w")] * 6)
        journal.append(record("m", "d", "fog:low", Outcome.FAIL))
    sync_api.expect(page.locator("[data-part=newest] li").first).to_have_text("✕ FAIL m-d-fog:low", timeout=20_000)
    assert page.locator("[data-part=done]").inner_text() == "2"
    assert page.locator("progress").get_attribute("max") == "10"
    news = samples.get_by_role("link", name="New answers have come in: show them")
    sync_api.expect(news).to_be_visible(timeout=20_000)
    assert samples.locator(".d-harmful").count() == 1  # the one of the legend: nothing moves under a reader's eyes
    news.click()
    sync_api.expect(samples.locator(".samples .d-harmful")).to_have_count(6)
    write_manifest(directory, {"decision": "NO-GO", "selected": 10, "models": {"m": {}}})
    sync_api.expect(page.locator("[data-part=decision]")).to_have_text("✕ NO-GO", timeout=20_000)
    page.close()
    samples.close()


def test_colours_of_drawings_are_in_its_styles() -> None:
    """It shares those of the report, which may lose one that the report needs no more."""
    pages = Path(reporting.__file__).parent
    styles = "".join((pages / name).read_text(encoding="utf-8") for name in ("html/style.css", "viewer/view.css"))
    templates = "".join(file.read_text(encoding="utf-8") for file in (pages / "viewer" / "templates").glob("*.html"))
    used = set(re.findall(r"\bf-[a-z]+", templates))
    assert used
    assert {name for name in used if f".{name} {{" not in styles} == set()
