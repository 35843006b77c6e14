"""The page as a reader uses it, in a headless Chromium that has no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Reply
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.html import render_html
from tests.unit.reporting.browsing import FAINT, browser, quiet_page
from tests.unit.reporting.pages import COMMAND, asked_twice, cell, example, run, store

__all__ = ["browser"]
sync_api = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright: pip install playwright")
EVIL = '</script><img src=x onerror="document.title=1"><script>document.title=2</script>'


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    facts = RunFacts(pictures=store(folder / "pictures"), command=COMMAND, repeatability=asked_twice(9))
    replies = (Reply("clean", "A", "A", "letter", 1.0), Reply("snow:high", EVIL, "", "", 0.0, "unparsed"))
    evil = cell(
        "snow:high", "weather", "high", 0.5, Outcome.FAIL, examples=(example(sample="s-2", question=EVIL, replies=replies),)
    )
    (folder / "report.html").write_text(render_html(RunView([*run(), evil], facts)), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture
def page(browser: Any, report: Path) -> Iterator[Any]:
    with quiet_page(browser, "data:", report.as_uri()) as page:
        page.goto(report.as_uri())
        yield page


def test_a_click_on_the_map_opens_the_test(page: Any) -> None:
    page.get_by_role("button", name="fog:high: drop 40.0 points, FAIL").click()
    dialog = page.get_by_role("dialog")
    sync_api.expect(page).to_have_url(re.compile("#cell=m-d-fog%3Ahigh$"))
    text = dialog.inner_text()
    for said in (
        "FAIL m-d-fog:high",
        "accuracy_drop",
        "0.400",
        "[0.350, 0.450]",
        "<= 0.2",
        "What is it?",
        "a dog",
        "I say B",
        "final_letter",
    ):
        assert said in text
    assert dialog.locator("img").count() == 2
    assert dialog.locator("img").first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8


def test_the_keyboard_is_enough(page: Any) -> None:
    spot = page.get_by_role("button", name="fog:high: drop 40.0 points, FAIL")
    spot.focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    sync_api.expect(page).to_have_url(re.compile("^[^#]*$"))
    sync_api.expect(spot).to_be_focused()


def test_arrows_step_through_the_tests(page: Any, report: Path) -> None:
    page.goto(report.as_uri() + "#cell=m-d-fog%3Ahigh")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("ArrowRight")
    sync_api.expect(page).not_to_have_url(re.compile("m-d-fog%3Ahigh"))
    page.keyboard.press("ArrowLeft")
    sync_api.expect(page).to_have_url(re.compile("#cell=m-d-fog%3Ahigh$"))


def test_an_address_opens_a_test_and_an_unknown_one_opens_nothing(page: Any, report: Path) -> None:
    page.goto(report.as_uri() + "#cell=m-d-patches%3A2")
    page.reload()
    assert "m-d-patches:2" in page.locator("#drill-title").inner_text()
    page.goto(report.as_uri() + "#cell=%E0%A4%A")
    assert page.get_by_role("dialog").count() == 0


def test_hostile_answers_are_shown_and_do_nothing(page: Any, report: Path) -> None:
    title = page.title()
    page.goto(report.as_uri() + "#cell=m-d-snow%3Ahigh")
    assert EVIL in page.get_by_role("dialog").inner_text()
    assert "unparsed, counts as wrong" in page.get_by_role("dialog").inner_text()
    assert page.title() == title


def test_the_filter_narrows_the_table(page: Any) -> None:
    page.get_by_label("Show tests whose line contains").fill("fog fail")
    assert page.locator("#all tbody tr:visible").count() == 1
    assert page.locator("#filtered").inner_text() == "1 of 16"


def test_the_first_screen_shows_the_worst_questions_with_both_images_and_answers(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(report.as_uri())
    evil, fog = page.locator(".worst article").all()
    box = page.locator(".worst").bounding_box()
    assert box["y"] + box["height"] <= 800
    assert EVIL in evil.inner_text()
    assert f"{EVIL} (not readable as an answer)" in evil.inner_text()
    for words in ("What is it?", "right answer: A a cat", "clean", "✓ A a cat", "fog:high", "✕ B a dog"):
        assert words in fog.inner_text()
    sync_api.expect(fog.locator("img")).to_have_count(2)
    fog.get_by_role("link", name="all samples of m-d-fog:high").click()
    assert "final_letter" in page.get_by_role("dialog").inner_text()
    page.close()


def test_more_than_twelve_tests_fit_on_a_screen(browser: Any, tmp_path: Path) -> None:
    reason = "accuracy_drop 0.008 [-0.057, 0.075], too few questions to tell if <= 0.020 (rule drop, p.yaml:3)"
    tests = [cell(f"fog:{number}", "weather", "high", 0.2, Outcome.INCONCLUSIVE, reason=reason) for number in range(30)]
    (tmp_path / "report.html").write_text(render_html(RunView(tests, RunFacts())), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((tmp_path / "report.html").as_uri())
    page.locator("#tests").evaluate("section => section.scrollIntoView()")
    table = page.locator(".tall")
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    bottom = min(800, table.evaluate("one => one.getBoundingClientRect().bottom"))
    ends = page.locator("#all tbody tr").evaluate_all("rows => rows.map((row) => row.getBoundingClientRect().bottom)")
    assert sum(end <= bottom for end in ends) > 12
    page.close()


def test_the_theme_can_be_switched(page: Any) -> None:
    colors = set()
    for name in ("auto", "light", "dark"):
        assert page.locator("#theme").inner_text() == f"Theme: {name}"
        colors.add((name == "dark", page.evaluate("getComputedStyle(document.body).backgroundColor")))
        page.locator("#theme").click()
    assert len(colors) == 2


@pytest.mark.parametrize("width", [360, 390, 768])
def test_a_narrow_page_does_not_scroll_sideways(page: Any, report: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.goto(report.as_uri() + "#cell=m-d-fog%3Ahigh")
    assert page.locator("#drill .body").evaluate("body => body.scrollWidth <= body.clientWidth")


def test_a_narrow_card_cuts_nothing_off(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 800})
    cut = page.evaluate(
        "[...document.querySelectorAll('.card .scroll')].filter((one) => one.scrollWidth > one.clientWidth).length"
    )
    assert page.locator(".card .scroll").count() > 0
    assert cut == 0


def test_what_goes_on_beyond_the_edge_has_a_shadow_there(page: Any, report: Path) -> None:
    """Columns of the last 14 pixels: darker than the ground while there is more, and as the ground is at the end."""
    page.set_viewport_size({"width": 660, "height": 800})
    page.goto(report.as_uri() + "#cell=m-d-fog%3Ahigh")
    table = page.get_by_role("region", name="measures")
    assert table.evaluate("one => one.scrollWidth > one.clientWidth")
    more = shades(table.screenshot())
    table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    end = shades(table.screenshot())
    assert more < end - 20


def shades(screenshot: bytes) -> float:
    """Returns how light the last column of pixels is, from 0 to 255."""
    import io

    import numpy as np
    from PIL import Image

    return float(np.median(np.asarray(Image.open(io.BytesIO(screenshot)).convert("L"))[:, -2]))


@pytest.mark.parametrize("width", [1440, 1280])
def test_a_map_of_three_levels_fits_its_column(browser: Any, tmp_path: Path, width: int) -> None:
    settings = [(name, level) for name in ("perspective_transform", "rotate") for level in ("low", "mid", "high")]
    cells = [cell(f"{name}:{level}", "geometric", level, -0.123, Outcome.FAIL) for name, level in settings]
    (tmp_path / "report.html").write_text(render_html(RunView(cells, RunFacts())), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((tmp_path / "report.html").as_uri())
    clipped = "[...document.querySelectorAll('.maps .scroll')].map((one) => one.scrollWidth - one.clientWidth)"
    assert page.evaluate(clipped) == [0]
    page.close()


def test_what_is_folded_is_printed_and_folded_again(page: Any) -> None:
    folded = "document.querySelectorAll('details:not([open])').length"
    before = page.evaluate(folded)
    assert before > 0
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(folded) == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == before


def test_paper_has_contents_and_samples(page: Any, report: Path) -> None:
    contents, samples = page.get_by_role("navigation", name="Contents"), page.locator("#samples")
    assert not contents.is_visible()
    assert not samples.is_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert contents.is_visible()
    for link in contents.get_by_role("link").all():
        assert page.locator(link.get_attribute("href")).locator("h2, h3").first.inner_text() == link.inner_text()
    names = ["m-d-snow:high", "m-d-fog:high", "m-d-patches:2"]
    assert [heading.rpartition(" ")[2] for heading in samples.locator("h3").all_inner_texts()] == names
    assert samples.locator(".example").count() == 3
    assert samples.locator("img").evaluate_all("all => all.length > 2 && all.every((one) => one.naturalWidth > 0)")
    assert EVIL in samples.inner_text()
    assert page.title() != "1"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert samples.locator(".example, h3").count() == 0
    page.pdf(path=report.with_suffix(".pdf"))  # prints for real, and must not break the page
    assert report.with_suffix(".pdf").stat().st_size > 50_000


def test_nothing_is_wider_than_a_printed_sheet(page: Any) -> None:
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 703, "height": 1000})  # A4 within the margins
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    wider = (
        "all => all.filter((one) => one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"
    )
    assert page.locator("main :is(table, td, th, pre, svg, p, dl)").evaluate_all(wider) == []
    assert page.locator("#all .why").first.is_visible()


def test_a_phone_shows_interval_and_bound_of_every_test(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    row = page.locator("#all tbody tr", has_text="m-d-fog:high")
    assert "[0.350, 0.450]" in row.inner_text()
    for cell_ in row.locator("td:not(:empty)").all():
        box = cell_.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    bound = row.locator("[data-name=bound]")
    assert bound.evaluate("one => getComputedStyle(one, '::before').content") == '"bound "'


def test_text_stands_out_from_its_ground_in_both_themes(browser: Any, report: Path) -> None:
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(report.as_uri())
        faint = page.evaluate(FAINT)
        page.close()
        assert faint == [], scheme


def test_without_javascript_the_tables_are_there(browser: Any, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("#all tbody tr").count() == 16
    page.locator(".spot").first.click()
    sync_api.expect(page.locator("tr:target")).to_have_count(1)
    context.close()
