"""The comment below a pull request: what it says first, what it compares, and how long and how harmless it stays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.after.comparison import CellChange, Comparison, SweepChange
from pytest_vlmrobust.reporting.comment import LONGEST, Against, branch_of, job_link, marker, render_comment
from pytest_vlmrobust.reporting.facts import RunFacts
from pytest_vlmrobust.reporting.files import RunFiles

from .conftest import record
from .pages import example

HOSTILE = "<img src=x> [x](http://y) @all | \x1b[2J \u202e"


def run(*records: Record, name: str = "later", **manifest: Any) -> RunFiles:
    facts = RunFacts(planned=len(records), selected=len(records), models=("m",))
    about = {"run": name, "policies": {"m": {"sha256": "a" * 64}}, **manifest}
    return RunFiles(records, facts, directory=Path(name), manifest=about)


def told(now: RunFiles, against: Against | None = None, **links: str) -> str:
    return render_comment(now, against or Against("the last GO on main", problem="there is none"), name="gate", links=links)


def change(setting: str, drop: Estimate, **facts: Any) -> CellChange:
    return CellChange("m", "d", setting, 100, 0.9, 0.7, drop, **facts)


@pytest.mark.parametrize("name", ["a --> b", "<!--", "\n## GO"])
def test_no_name_ends_the_marker(name: str) -> None:
    assert re.fullmatch(r"<!-- vlmrobust comment: [\w.-]* -->", marker(name))
    assert "-->" not in marker(name)[:-3]


def test_a_verdict_that_changed_is_told_with_its_numbers_then_and_now(stored: Callable[..., None]) -> None:
    before = run(record("m-d-a", drop=0.1), record("m-d-b"), record("m-d-c"), name="earlier", commit="c0ffee")
    after = run(record("m-d-a", Outcome.FAIL, 0.4), record("m-d-b"), record("m-d-new"))
    stored(told(after, Against("the last GO on main", before)), told(run(record("m-d-a"))))


def test_a_change_is_shown_where_its_interval_leaves_zero_out(stored: Callable[..., None]) -> None:
    cells = (
        change("fog:low", Estimate(0.2, 100, 0.1, 0.3), broken=("a", "b")),
        change("fog:mid", Estimate(0.05, 100, -0.01, 0.11)),
        change("fog:high", Estimate(math.nan, 0)),
        change("flip_v", Estimate(-0.2, 100, -0.3, -0.1), fixed=("c",)),
    )
    sweeps = (SweepChange("m", "d", 4, Estimate(0.01, 100, -0.1, 0.1)),)
    compared = Comparison("a", "b", {"m": "m"}, cells, sweeps, only_after=("m-d-x",))
    stored(told(run(record("m-d-a")), Against("RUN", run(record("m-d-a")), compared)))


def test_equal_runs_and_runs_that_cannot_be_paired_are_told_apart() -> None:
    same = Comparison("a", "b", {"m": "m"}, (change("clean", Estimate(0.0, 100, 0.0, 0.0)),))
    now = run(record("m-d-a"))
    assert "**No answer changed**" in told(now, Against("RUN", now, same))
    assert "Answers were not compared: they stopped early." in told(now, Against("RUN", now, None, "they stopped early"))


def test_another_policy_is_said() -> None:
    before = run(record("m-d-a"), name="earlier", policies={"m": {"sha256": "b" * 64}})
    assert "**The policy is another one**" in told(run(record("m-d-a")), Against("RUN", before))
    assert "another one" not in told(run(record("m-d-a")), Against("RUN", run(record("m-d-a"))))


def test_however_much_there_is_to_say_it_is_short_enough() -> None:
    hostile = [record(f"{HOSTILE * 20}{number}", Outcome.FAIL, reason=HOSTILE * 40) for number in range(500)]
    before = run(*(record(one.id, reason="") for one in hostile), name="earlier")
    text = told(run(*hostile), Against("RUN", before))
    assert len(text) <= LONGEST
    assert text.startswith(marker("gate"))
    assert "more tests are in the report." in text


def test_nothing_of_others_is_interpreted() -> None:
    text = told(run(record(HOSTILE, Outcome.FAIL, reason=HOSTILE), commit=HOSTILE))
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert "<img" not in outside_code
    assert "](http" not in outside_code
    assert "@all" not in outside_code
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_worst_questions_are_named_in_words() -> None:
    bad = record("m-d-fog:high", Outcome.FAIL, examples=(example(), example(sample="s-2", question=HOSTILE, target=HOSTILE)))
    text = told(run(bad))
    assert "- What is it?<br>right **A a cat**; `clean` A a cat; `fog:high` B a dog\n" in text
    assert text.count("<br>right **") == 2
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert [part for part in ("<img", "](http", "@all") if part in outside_code] == []
    assert "Worst questions" not in told(run(record("m-d-fog:high", examples=(example(),))))


def test_links_are_those_that_are_known() -> None:
    assert told(run(record("m-d-a")), report="https://x.example/a(1).html", job="").splitlines()[-1] == (
        "[report](<https://x.example/a(1).html>)"
    )


@pytest.mark.parametrize(
    ("known", "branch"),
    [
        ({"GITHUB_REF": "refs/heads/main"}, "main"),
        ({"GITHUB_REF": "refs/pull/3/merge"}, ""),
        ({"GITHUB_REF": "refs/tags/main"}, ""),
        ({"CI_COMMIT_REF_NAME": "main"}, "main"),
        ({"BRANCH_NAME": "main"}, "main"),
        ({}, ""),
    ],
)
def test_the_branch_of_a_run_is_that_of_its_job(known: dict[str, str], branch: str) -> None:
    assert branch_of({"ci": known}) == branch


def test_the_job_is_linked() -> None:
    github = {"GITHUB_SERVER_URL": "https://h", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7"}
    assert job_link(github) == "https://h/o/r/actions/runs/7"
    assert job_link({"CI_JOB_URL": "https://g/-/jobs/1"}) == "https://g/-/jobs/1"
    assert job_link({}) == ""
