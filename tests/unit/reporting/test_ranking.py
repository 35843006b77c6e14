from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.evaluation.after.standings import ModelAnalysis
from pytest_vlmrobust.reporting import RunFacts, RunView, write_report
from pytest_vlmrobust.reporting.ranking import headline, ranking_markdown, render_models, render_ranking, write_ranking
from tests.unit.reporting.browsing import FAINT, browser, quiet_page
from tests.unit.reporting.pages import page_text
from tests.unit.reporting.test_html import HOSTILE, Outline

from .pages import cell
from .rankings import about, board, ranking, unranked


def test_the_table_has_ranks_with_their_intervals_best_first(stored: Callable[..., None]) -> None:
    stored(*(render_ranking(shown, width=160, color=False) for shown in (ranking(), ranking(unranked()))))


@pytest.mark.parametrize(("by", "words"), [("mean_drop", "mean drop"), ("clean_accuracy", "clean accuracy")])
def test_what_ranks_stands_first(by: str, words: str) -> None:
    header = render_ranking(ranking(by=by), width=160, color=False).splitlines()[1]
    assert header.partition("may be")[2].strip().startswith(words)


def test_mce_has_a_column_where_it_has_a_unit() -> None:
    assert "mCE" in render_ranking(ranking(reference="cy"), width=160, color=False).splitlines()[1]


def test_markdown_has_boards_families_and_what_was_left_out(stored: Callable[..., None]) -> None:
    stored(ranking_markdown(ranking(board(""), board("d|x"))))


def test_three_files_are_written(tmp_path: Path) -> None:
    write_ranking(tmp_path / "out", ranking())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["models.html", "models.json", "models.md"]
    data = json.loads((tmp_path / "out" / "models.json").read_text())
    assert [standing["rank"] for standing in data["boards"][0]["standings"]] == [1, 2, 3]
    assert data["boards"][0]["differences"][0]["apart"] is False
    assert data["boards"][0]["families"][0]["mean_drop"]["cy"]["value"] == 0.55


def test_a_report_of_several_models_links_their_page(tmp_path: Path) -> None:
    write_report(tmp_path / "one", RunView([cell("clean")], RunFacts()), None)
    assert not (tmp_path / "one" / "models.html").exists()
    assert "models.html" not in (tmp_path / "one" / "report.html").read_text()
    write_report(tmp_path / "two", RunView([cell("clean")], RunFacts(ranking=ranking())), None)
    assert (tmp_path / "two" / "models.html").is_file()
    assert '<a href="models.html">Models</a>' in (tmp_path / "two" / "report.html").read_text()


def test_small_tables_say_in_what_their_numbers_are() -> None:
    trend = ModelAnalysis("size_trend", "fam", {"slope": about(-0.01)})
    text = render_ranking(ranking(dataclasses.replace(board(), analyses=(trend,))), width=160, color=False)
    assert "Mean drop and size\nPercentage points of mean drop per tenfold size of these models, " in text


def test_what_names_hold_is_never_obeyed() -> None:
    hostile = "\x1b[2J\n\u202ename \ud800"
    hostile_ranking = ranking(board(hostile, ("ann", hostile, "cy")), runs=(hostile,), left_out=(hostile,))
    for text in (render_ranking(hostile_ranking, width=160, color=False), ranking_markdown(hostile_ranking)):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert r"[2J \u202ename \ud800" in text.replace("&#91;", "[")


# The page.


@pytest.fixture(scope="module")
def page() -> str:
    return render_models(ranking(board(""), board("shapes"), board("words"), reference="cy"))


def test_the_parts_stand_in_the_order_of_looking(page: str) -> None:
    outline = Outline(page)
    parts = ["board-1", "board-1-families", "datasets", "board-2", "board-3", "limits", "reading"]
    assert [name for name in outline.ids if name in parts] == parts


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)


def test_what_the_page_says(page: str, stored: Callable[..., None]) -> None:
    stored(page_text(page))


def test_what_is_missing_is_said_and_no_number(stored: Callable[..., None]) -> None:
    """Without a reference there is no mCE; of nothing known there is no rank."""
    stored(*(page_text(render_models(ranking(*boards))) for boards in ((), (unranked(),))))


def test_the_headline_says_who_leads() -> None:
    alone = ranking(board())
    assert headline(alone.boards[0], alone).endswith("cannot be told apart from bob")
    first, second, third = alone.boards[0].standings
    tied = dataclasses.replace(alone.boards[0], standings=(first, dataclasses.replace(second, rank=1), third))
    assert headline(tied, alone) == "ann and bob share the first rank by accuracy under settings"
    clear = dataclasses.replace(alone.boards[0], standings=(dataclasses.replace(first, not_apart=()), second, third))
    assert headline(clear, alone).endswith("and shown to be better than every other model")


@pytest.mark.cases("text", HOSTILE)
def test_hostile_names_are_only_ever_text(text: str) -> None:
    names = (text, f"{text}2", "plain")
    page = render_models(
        ranking(board(text, names), board("x", names), models=names, runs=(text,), left_out=(text,), reference=text)
    )
    outline = Outline(page)
    assert outline.tags.count("script") == 1
    assert outline.tags.count("img") == 0
    assert not [name for _, name, _ in outline.attributes if name.startswith("on") or name == "style"]
    assert not [link for link in outline.links if not link.startswith("#")]
    assert not set(page) & set("\0\x1b\u202e\u2066\ud800")
    page.encode("utf-8")


def test_the_page_forbids_everything_but_its_own_and_loads_nothing(page: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    for name, (content,) in (
        ("style-src", re.findall(r"<style>(.*?)</style>", page, re.DOTALL)),
        ("script-src", re.findall(r"<script>(.*?)</script>", page, re.DOTALL)),
    ):
        assert f"{name} &#39;sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}&#39;" in policy
    assert policy.startswith("default-src &#39;none&#39;; img-src data:;")
    assert not [value for _, name, value in Outline(page).attributes if name in {"src", "srcset", "action", "data", "poster"}]
    assert re.findall(r"https?://(?!www\.w3\.org)", page) == []


def test_the_same_ranking_gives_the_same_bytes(page: str) -> None:
    assert render_models(ranking(board(""), board("shapes"), board("words"), reference="cy")) == page


__all__ = ["browser"]
LONG = "a-model-with-a-very-long-name/that-nobody-would-choose-and-somebody-has-chosen-nevertheless"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "models.html"
    boards = [board(name, (LONG, "bob", "<b>cy")) for name in ("", "a", "b", "c", "d", "e")]
    path.write_text(render_models(ranking(*boards, models=(LONG, "bob", "<b>cy"))), encoding="utf-8")
    return path


@pytest.fixture
def tab(browser: Any, file: Path) -> Iterator[Any]:
    with quiet_page(browser, "data:", file.as_uri()) as tab:
        tab.goto(file.as_uri())
        yield tab


@pytest.mark.parametrize("width", [360, 390, 768])
def test_a_narrow_page_does_not_scroll_sideways(tab: Any, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") == width


def test_the_names_stay_in_sight_where_the_table_scrolls(tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    scrolled = tab.locator(".scroll").first
    scrolled.evaluate("node => { node.scrollLeft = 200; }")
    name = scrolled.locator("tbody th").nth(1)
    assert name.bounding_box()["x"] == scrolled.bounding_box()["x"]


def test_text_stands_out_from_its_ground_in_both_themes(browser: Any, file: Path) -> None:
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto(file.as_uri())
        faint = tab.evaluate(FAINT)
        tab.close()
        assert faint == [], scheme


def test_the_theme_can_be_switched(tab: Any) -> None:
    assert tab.locator("#theme").inner_text() == "Theme: auto"
    tab.locator("#theme").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_reaches_tables_and_folds(tab: Any) -> None:
    tab.locator("#board-3 summary").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("#board-3").evaluate("node => node.open")
    tab.locator(".scroll").first.focus()
    assert tab.evaluate("document.activeElement.getAttribute('role')") == "region"


def test_an_address_unfolds_its_data_set(browser: Any, file: Path) -> None:
    tab = browser.new_page()
    tab.goto(f"{file.as_uri()}#board-4")
    assert tab.locator("#board-4").evaluate("node => node.open")
    assert not tab.locator("#board-3").evaluate("node => node.open")
    tab.close()
