from __future__ import annotations

import base64
import dataclasses
import hashlib
import re

import pytest

from pytest_vlmrobust.reporting.html import drawing
from pytest_vlmrobust.reporting.html.models import headline, render_models

from .rankings import board, ranking, unranked
from .test_html import HOSTILE, Outline


@pytest.fixture(scope="module")
def page() -> str:
    return render_models(ranking(board(""), board("shapes"), board("words"), reference="cy"))


def test_the_parts_stand_in_the_order_of_looking(page: str) -> None:
    outline = Outline(page)
    parts = ["board-1", "board-1-families", "datasets", "board-2", "board-3", "limits", "reading"]
    assert [name for name in outline.ids if name in parts] == parts
    assert "ann is first by accuracy under settings, and cannot be told apart from bob." in outline.text
    assert "Over all 2 datasets" in outline.text


def test_ids_are_unique_and_links_lead_somewhere(page: str) -> None:
    outline = Outline(page)
    assert len(set(outline.ids)) == len(outline.ids)
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)


def test_the_table_has_ranks_numbers_and_who_cannot_be_told_apart(page: str) -> None:
    (row,) = re.findall(r'<tr><th scope="row">ann</th>.*?</tr>', page.partition('id="datasets"')[0], re.DOTALL)
    said = Outline(f"<table>{row}</table>").text
    assert said.startswith("ann 1 1 to 2 0.820 [0.770, 0.870] 0.820")
    assert said.endswith("0.400 [0.350, 0.450] at fog:high undefined bob")


def test_the_matrix_has_drops_with_intervals_and_shades(page: str) -> None:
    spots = re.findall(r'<td class="(g|h\d)">([^<]*)<span class="range">([^<]*)</span></td>', page)[:3]
    assert [(shade, value.strip(), ends) for shade, value, ends in spots] == [
        ("h3", "12.0", "[7.0, 17.0]"),
        ("g", "\N{MINUS SIGN}2.0", "[\N{MINUS SIGN}7.0, 3.0]"),
        ("h6", "55.0", "[50.0, 60.0]"),
    ]


def test_pairs_say_what_follows(page: str) -> None:
    text = Outline(page).text
    assert "ann bob 0.020 [\N{MINUS SIGN}0.030, 0.070] they cannot be told apart" in text
    assert "ann cy 0.420 [0.300, 0.540] the first is better" in text


def test_without_a_reference_there_is_no_mce_and_the_page_says_why() -> None:
    text = Outline(render_models(ranking())).text
    assert "mCE is not given: no reference model was named" in text
    assert "reference of mCE none" in text
    assert "mCE \N{DOWNWARDS ARROW}" not in text


def test_undefined_is_no_number() -> None:
    text = Outline(render_models(ranking(unranked()))).text
    assert "Nothing is ranked." in text
    assert "ann not ranked undefined" in text
    assert not re.search(r"\bnan\b", text, re.IGNORECASE)


def test_the_headline_says_who_leads() -> None:
    alone = ranking(board())
    assert headline(alone.boards[0], alone).endswith("cannot be told apart from bob")
    first, second, third = alone.boards[0].standings
    tied = dataclasses.replace(alone.boards[0], standings=(first, dataclasses.replace(second, rank=1), third))
    assert headline(tied, alone) == "ann and bob share the first rank by accuracy under settings"
    clear = dataclasses.replace(alone.boards[0], standings=(dataclasses.replace(first, not_apart=()), second, third))
    assert headline(clear, alone).endswith("and shown to be better than every other model")


@pytest.mark.parametrize("text", HOSTILE)
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


def test_without_the_extra_the_numbers_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "problem", lambda: "matplotlib is not installed")
    page = render_models(ranking())
    assert "<svg" not in page
    assert "pip install 'pytest-vlmrobust[report]'" in page
    assert "0.820 [0.770, 0.870]" in Outline(page).text
