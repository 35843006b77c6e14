"""What is found among the answers of runs, and in which order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import StoreError, UsageError
from pytest_vlmrobust.store import Evidence
from pytest_vlmrobust.store.browsing import MOST_RUNS, Browser
from pytest_vlmrobust.store.searching import AnswerFilter
from tests.unit.store.browsed import answer, put, run


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    browser = Browser({"one": run(tmp_path / "one")})
    yield browser
    browser.close()


def matching(browser: Browser, criteria: AnswerFilter, sort: str = "worst", **options: object) -> list[str]:
    """Returns model, setting and sample of what is found, in short."""
    seen = [browser.read(key) for key in browser.answers(criteria, sort, **options)]  # type: ignore[arg-type]  # passed on
    return [f"{each.cell.model} {each.cell.setting} {each.sample.id}" for each in seen]


def test_without_a_wish_every_answer_is_found(browser: Browser) -> None:
    assert len(matching(browser, AnswerFilter())) == 2 * 5 * 6


@pytest.mark.parametrize(
    ("criteria", "expected"),
    [
        (AnswerFilter(model="m2", state="wrong", setting="fog"), ["m2 fog:high d0"]),
        (AnswerFilter(model="m2", state="error"), ["m2 fog:high d5"]),
        (AnswerFilter(state="unparsed"), ["m1 fog:high d4"]),
        (AnswerFilter(model="m1", setting="fog:low", flip="harmful"), ["m1 fog:low d4"]),
        (AnswerFilter(flip="helpful"), ["m1 fog:low d5", "m1 invert d5"]),
        (AnswerFilter(model="m1", setting="invert", category="odd"), ["m1 invert d1", "m1 invert d3", "m1 invert d5"]),
        (AnswerFilter(setting="clean", model="m1", text="D3"), ["m1 clean d3"]),
        (AnswerFilter(text="CANNOT say"), ["m1 fog:high d4"]),
        (AnswerFilter(setting="fo"), []),
        (AnswerFilter(dataset="other"), []),
        (AnswerFilter(text="generate"), []),
    ],
)
def test_what_is_wished_for_is_found(browser: Browser, criteria: AnswerFilter, expected: list[str]) -> None:
    assert sorted(matching(browser, criteria)) == sorted(expected)


def test_where_models_differ_is_found_whichever_is_looked_at(browser: Browser) -> None:
    differing = {"fog:high": {"d0", "d1", "d4"} - {"d0"}, "fog:low": {"d4"}, "clean": {"d5"}, "invert": {"d5"}}
    for model in ("m1", "m2"):
        names = [name.split()[1:] for name in matching(browser, AnswerFilter(differs=True, model=model))]
        assert {setting: {sample for other, sample in names if other == setting} for setting, _ in names} == differing


def test_the_worst_come_first_and_answers_without_pictures_last(browser: Browser) -> None:
    names = matching(browser, AnswerFilter(model="m1"))
    assert names[:4] == ["m1 fog:high d0", "m1 fog:high d1", "m1 fog:low d4", "m1 fog:high d4"]
    assert all("no_image" in name for name in names[-6:])
    assert [name for name in names if "no_image" not in name][-2:] == ["m1 fog:low d5", "m1 invert d5"]  # the helpful flips


def test_the_surest_wrong_answers_come_first(browser: Browser) -> None:
    assert matching(browser, AnswerFilter(model="m1", setting="fog"), "surest")[:3] == [
        "m1 fog:high d5",
        "m1 fog:low d4",
        "m1 fog:high d1",
    ]


def test_only_cells_with_a_verdict_are_looked_at(browser: Browser) -> None:
    cells = {(cell.run, cell.id) for cell in browser.cells() if cell.setting == "fog:low"}
    assert {name.split()[1] for name in matching(browser, AnswerFilter(), cells=cells)} == {"fog:low"}
    assert matching(browser, AnswerFilter(), cells=set()) == []


def test_samples_are_counted_over_settings(browser: Browser) -> None:
    samples = browser.samples(AnswerFilter(), "worst")
    assert [(sample.id, sample.answers, sample.wrong, sample.harmed) for sample in samples[:2]] == [
        ("d0", 10, 2, 2),
        ("d4", 10, 2, 2),
    ]
    assert [sample.id for sample in browser.samples(AnswerFilter(), "data")] == [f"d{number}" for number in range(6)]
    assert [sample.id for sample in browser.samples(AnswerFilter(category="odd", setting="fog:high", model="m1"), "worst")] == [
        "d1",
        "d5",
        "d3",
    ]


def test_two_runs_are_paired_by_sample(tmp_path: Path) -> None:
    first = run(tmp_path / "first", {"m": {"clean": "rrrrrr", "invert": "rrrrrr"}})
    second = run(tmp_path / "second", {"m": {"clean": "rrrrrr", "invert": "rrwrrr"}})
    browser = Browser({"first": first, "second": second})
    keys = browser.answers(AnswerFilter(differs=True), "worst")
    seen = [browser.read(key) for key in keys]
    assert [(each.cell.run, each.cell.setting, each.sample.id) for each in seen] == [
        ("second", "invert", "d2"),
        ("first", "invert", "d2"),
    ]
    worst = browser.samples(AnswerFilter(), "worst")[0]
    assert (worst.id, worst.answers) == ("d2", 4)
    assert [(mark.cell.run, mark.state) for mark in browser.marks("d", "d2") if mark.cell.setting == "invert"] == [
        ("first", "right"),
        ("second", "wrong"),
    ]


def test_a_setting_of_several_views_is_one_answer_that_counts_as_its_best_view(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with Evidence.open(directory) as evidence:
        put(evidence, "m", "d", "patches:2", [answer(kind) for kind in "wwrw" + "wwww" + "uuuu" + "werw" + "rrrr" * 2], views=4)
    browser = Browser({"one": directory})
    seen = [browser.read(key) for key in browser.answers(AnswerFilter(setting="patches"), "data")]
    assert [each.mark.state for each in seen] == ["right", "wrong", "unparsed", "error", "right", "right"]
    assert [len(each.answers) for each in seen] == [4] * 6
    harmful = [browser.read(key).sample.id for key in browser.answers(AnswerFilter(setting="patches", flip="harmful"), "data")]
    assert harmful == ["d1", "d2"]
    assert len(browser.answers(AnswerFilter(setting="patches", text="cannot"), "data")) == 1


def test_a_part_of_the_samples_is_enough(tmp_path: Path) -> None:
    from pytest_vlmrobust.core.cell import Cell, Setting
    from pytest_vlmrobust.store import StoredCell

    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with Evidence.open(directory) as evidence:
        part = (answer("w"), answer("r"))
        evidence.put_cells([StoredCell(Cell("m", "d", Setting.parse("invert")), 1, part, places=(3, 5))])
    browser = Browser({"one": directory})
    assert matching(browser, AnswerFilter(setting="invert")) == ["m invert d3", "m invert d5"]
    assert browser.find("one", "m", "d", "d0", "invert") is None
    assert [mark.cell.setting for mark in browser.marks("d", "d0")] == ["clean"]


def test_answers_that_come_in_are_found(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    browser = Browser({"one": directory})
    assert len(browser.answers(AnswerFilter(), "worst")) == 6
    with Evidence.open(directory) as evidence:
        put(evidence, "m", "d", "invert", [answer("w") for _ in range(6)])
        assert len(browser.answers(AnswerFilter(), "worst")) == 12
    assert matching(browser, AnswerFilter())[0] == "m invert d0"


def test_a_run_that_has_no_answers_yet_is_empty_and_then_is_not(tmp_path: Path) -> None:
    browser = Browser({"one": tmp_path / "one"})
    assert browser.cells() == []
    assert len(browser.answers(AnswerFilter(differs=True, text="x", category="y"), "worst")) == 0
    assert browser.samples(AnswerFilter(), "worst") == []
    run(tmp_path / "one")
    assert len(browser.answers(AnswerFilter(), "worst")) == 60


@pytest.mark.parametrize("text", ["ZÜRICH", "zürich", '"quoted" \\back', "100%_", "\N{PILE OF POO}", "<b>'--;"])
def test_any_text_is_found_as_it_is(tmp_path: Path, text: str) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with Evidence.open(directory) as evidence:
        said = 'In zürich they say "quoted" \\back 100%_ <b>\'--; \N{PILE OF POO}'
        put(evidence, "m", "d", "invert", [answer("u", text=said if number == 2 else "In Zurich 100 x") for number in range(6)])
    assert matching(Browser({"one": directory}), AnswerFilter(text=text)) == ["m invert d2"]


def test_text_of_a_question_is_found(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}}, changes={"question": "Où est le çat?"})
    assert len(matching(Browser({"one": directory}), AnswerFilter(text="OÙ EST"))) == 6


def test_ids_that_a_mistyped_one_may_have_meant_are_those_of_its_length(tmp_path: Path) -> None:
    browser = Browser({"one": run(tmp_path / "one"), "two": run(tmp_path / "two", dataset="long")})
    assert browser.names_like("d", "d9") == ["d0", "d1", "d2", "d3", "d4", "d5"]
    assert browser.names_like("d' or 1=1 --", "d9") == []
    browser.close()


def test_too_many_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"choose up to {MOST_RUNS}"):
        Browser({str(number): tmp_path for number in range(MOST_RUNS + 1)})


def test_most_runs_fit_into_one_connection(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    browser = Browser({str(number): directory for number in range(MOST_RUNS)})
    assert len(browser.answers(AnswerFilter(), "worst")) == 6 * MOST_RUNS


def test_nothing_is_written(tmp_path: Path) -> None:
    directory = run(tmp_path / "one")
    before = (directory / "predictions.sqlite").read_bytes()
    browser = Browser({"one": directory})
    browser.answers(AnswerFilter(differs=True, text="a"), "surest")
    connection = browser._connection
    assert connection is not None
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("delete from run0.answers")
    browser.close()
    assert (directory / "predictions.sqlite").read_bytes() == before


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "predictions.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="not a database"):
        Browser({"one": tmp_path}).cells()


def test_a_damaged_answer_is_said_and_the_others_are_shown(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "rrrrrr"}})
    with sqlite3.connect(directory / "predictions.sqlite") as connection:
        connection.execute("update answers set prediction = '{' where place = 0")
        connection.execute("update samples set content = '[' where place = 1")
        connection.execute("update cells set views = 'many'")
    browser = Browser({"one": directory})
    keys = browser.answers(AnswerFilter(), "surest")
    assert len(keys) == 6
    assert browser.categories() == ["even", "odd"]
    for place in (0, 1):
        with pytest.raises(StoreError):
            browser.read(next(key for key in keys if key.place == place))
    assert browser.read(next(key for key in keys if key.place == 2)).sample.id == "d2"


def test_finding_ends_when_it_takes_too_long(tmp_path: Path) -> None:
    directory = run(tmp_path / "one", {"m": {"clean": "r" * 6}})
    browser = Browser({"one": directory})
    browser.cells()
    browser._lock.seconds = -1.0
    with pytest.raises(StoreError, match="was given up"), browser._reading() as connection:
        connection.execute("with recursive n(x) as (select 1 union all select x + 1 from n) select max(x) from n").fetchone()
