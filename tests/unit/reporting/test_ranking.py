from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_vlmrobust.evaluation.after.standings import ModelAnalysis
from pytest_vlmrobust.reporting import RunFacts, RunView, write_report
from pytest_vlmrobust.reporting.ranking import ranking_markdown, render_ranking, write_ranking

from .pages import cell
from .rankings import about, board, ranking, unranked


def test_the_table_has_ranks_with_their_intervals_best_first(stored: Callable[..., None]) -> None:
    stored(*(render_ranking(found, width=160, color=False) for found in (ranking(), ranking(unranked()))))


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
    assert [one["rank"] for one in data["boards"][0]["standings"]] == [1, 2, 3]
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
    found = ranking(board(hostile, ("ann", hostile, "cy")), runs=(hostile,), left_out=(hostile,))
    for text in (render_ranking(found, width=160, color=False), ranking_markdown(found)):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert r"[2J \u202ename \ud800" in text.replace("&#91;", "[")
