from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.after.comparison import CellChange, Comparison, SweepChange
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.comparison import (
    LONGEST,
    Against,
    branch_of,
    comparison_markdown,
    job_link,
    marker,
    render_comment,
    render_comparison,
    write_comparison,
)
from pytest_vlmrobust.reporting.facts import noise_by_metric, noise_lines, noise_warnings, why_unmeasured
from pytest_vlmrobust.reporting.files import RunFiles
from pytest_vlmrobust.reporting.markdown import summary
from pytest_vlmrobust.store.repeatability import Repeatability

from .conftest import record
from .pages import asked_twice, example

LOSS = Estimate(0.25, 8, 0.1, 0.4, 0.9)
CELL = CellChange("m", "d", "fog:mid", 8, 1.0, 0.75, LOSS, LOSS, ("q1", "q2"), ("q3",))
FOUND = Comparison("a", "b", {"m": "n"}, (CELL,), (SweepChange("m", "d", 2, LOSS),), ("n-d-blur",), ("m-d-invert",))


def test_the_table_has_numbers_intervals_and_counts_and_markdown_names_the_samples(stored: Callable[..., None]) -> None:
    stored(render_comparison(FOUND, width=160, color=False), comparison_markdown(FOUND))


def test_what_is_undefined_says_why() -> None:
    gap = Estimate(math.nan, 7, reason="scores of 1 of 8 samples are missing")
    shown = dataclasses.replace(FOUND, cells=(dataclasses.replace(CELL, baseline_drop=gap, drop_increase=None, now=math.nan),))
    assert "m-d-fog:mid: scores of 1 of 8 samples are missing" in render_comparison(shown, width=160, color=False)
    assert to_plain(shown)["cells"][0]["baseline_drop"]["value"] is None


def test_equal_runs_are_said_to_be_equal_and_no_others() -> None:
    nothing = Estimate(0.0, 8, -0.1, 0.1, 0.9)
    same = dataclasses.replace(CELL, baseline_drop=nothing, drop_increase=None, now=1.0, broken=(), fixed=())
    equal = Comparison("a", "b", {"m": "m"}, (same, same))
    said = "nothing changed: every answer that both runs have scores the same in both"
    assert said in render_comparison(equal, width=160, color=False).splitlines()
    assert "**Nothing changed**" in comparison_markdown(equal)
    exchanged = dataclasses.replace(same, broken=("q1",), fixed=("q2",))
    gap = dataclasses.replace(same, baseline_drop=Estimate(math.nan, 8))
    for other in (
        FOUND,
        Comparison("a", "b", {}),
        dataclasses.replace(equal, cells=(same, exchanged)),
        dataclasses.replace(equal, cells=(same, gap)),
        dataclasses.replace(equal, only_after=("m-d-fog",)),
    ):
        assert not other.unchanged
        assert "othing changed" not in render_comparison(other, width=160, color=False) + comparison_markdown(other)


def test_long_comparisons_are_cut_and_say_so() -> None:
    comparison = dataclasses.replace(FOUND, cells=(CELL,) * 43)
    assert "3 more cells are in comparison.json" in comparison_markdown(comparison)


def test_both_files_are_written(tmp_path: Path) -> None:
    write_comparison(tmp_path / "out", FOUND)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["cells"][0]["broken"] == ["q1", "q2"]
    assert (tmp_path / "out" / "comparison.md").read_text() == comparison_markdown(FOUND)


def test_what_names_hold_is_never_obeyed() -> None:
    hostile = "\x1b[2J\n\u202ename \ud800"
    shown = r"\x1b[2J \u202ename \ud800"
    built = dataclasses.replace(
        FOUND,
        before=hostile,
        cells=(dataclasses.replace(CELL, broken=(hostile,), baseline_drop=Estimate(math.nan, 0, reason=hostile)),),
        notes=(hostile,),
    )
    table, page = render_comparison(built, width=160, color=False), comparison_markdown(built)
    for text in (table, page):
        assert all(char.isprintable() for char in text.replace("\n", ""))
        assert shown in text


# The noise in Markdown; what the terminal says of it is tested there.


def noted(*repeats: Repeatability) -> str:
    return summary(RunView([record("a")], RunFacts(repeatability=repeats)))


def test_the_summary_has_a_table_of_it(stored: Callable[..., None]) -> None:
    measured, failed = asked_twice()
    stored(*(noted(*repeats) for repeats in ((measured, failed), (dataclasses.replace(measured, tighter=()),))))


def test_the_smallest_noise_comes_first_however_it_was_stored() -> None:
    measured, _ = asked_twice()
    high = {"absolute_continuous_error": 0.8, "label_preserving_drop": 0.21, "accuracy_drop": 0.21}
    stored = dataclasses.replace(measured, noise=dict.fromkeys(high, 0.0), noise_high=high)
    assert [metric for metric, _, _ in noise_by_metric(stored)] == [
        "accuracy_drop",
        "label_preserving_drop",
        "absolute_continuous_error",
    ]


def test_a_run_that_asked_once_has_no_table() -> None:
    assert "| A/A" not in noted()


def test_names_and_problems_cannot_break_the_table() -> None:
    text = noted(Repeatability("a|b", "c", problem="no\nmodel"))
    assert "\n| `a\\|b-c` | not measured |  |  |\n\n- A/A a\\|b-c: not measured: no model\n" in text


def test_no_answer_the_second_time_is_not_no_noise() -> None:
    about = Repeatability("m", "d", failed=3)
    assert why_unmeasured(about) == "no answer could be asked for again (3 inferences failed)"
    assert noise_lines(about) == [f"A/A m-d: not measured: {why_unmeasured(about)}"]
    assert why_unmeasured(asked_twice()[0]) == ""


def test_what_is_tighter_names_model_and_data() -> None:
    assert noise_warnings(asked_twice()) == ["m-d: p.yaml:4: rule r0 (accuracy_drop 0.1) is tighter than the noise"]


def test_a_narrow_terminal_names_the_model_once_and_breaks_no_cell(stored: Callable[..., None]) -> None:
    cells = tuple(dataclasses.replace(CELL, setting=setting) for setting in ("defocus_blur:high", "no_image"))
    text = render_comparison(dataclasses.replace(FOUND, cells=cells), width=80, color=False)
    stored(text)
    assert max(map(len, text.splitlines()[:12])) <= 80


# The comment below a pull request: what it says first, what it compares, and how long and how harmless it stays.


HOSTILE = "<img src=x> [x](http://y) @all | \x1b[2J \u202e"


def run(*records: Record, name: str = "later", **manifest: Any) -> RunFiles:
    facts = RunFacts(planned=len(records), selected=len(records), models=("m",))
    about = {"run": name, "policies": {"m": {"sha256": "a" * 64}}, **manifest}
    return RunFiles(records, facts, directory=Path(name), manifest=about)


def comment(now: RunFiles, against: Against | None = None, **links: str) -> str:
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
    stored(comment(after, Against("the last GO on main", before)), comment(run(record("m-d-a"))))


def test_a_change_is_shown_where_its_interval_leaves_zero_out(stored: Callable[..., None]) -> None:
    cells = (
        change("fog:low", Estimate(0.2, 100, 0.1, 0.3), broken=("a", "b")),
        change("fog:mid", Estimate(0.05, 100, -0.01, 0.11)),
        change("fog:high", Estimate(math.nan, 0)),
        change("flip_v", Estimate(-0.2, 100, -0.3, -0.1), fixed=("c",)),
    )
    sweeps = (SweepChange("m", "d", 4, Estimate(0.01, 100, -0.1, 0.1)),)
    compared = Comparison("a", "b", {"m": "m"}, cells, sweeps, only_after=("m-d-x",))
    stored(comment(run(record("m-d-a")), Against("RUN", run(record("m-d-a")), compared)))


def test_equal_runs_and_runs_that_cannot_be_paired_are_told_apart() -> None:
    same = Comparison("a", "b", {"m": "m"}, (change("clean", Estimate(0.0, 100, 0.0, 0.0)),))
    now = run(record("m-d-a"))
    assert "**No answer changed**" in comment(now, Against("RUN", now, same))
    assert "Answers were not compared: they stopped early." in comment(now, Against("RUN", now, None, "they stopped early"))


def test_another_policy_is_said() -> None:
    before = run(record("m-d-a"), name="earlier", policies={"m": {"sha256": "b" * 64}})
    assert "**The policy is another one**" in comment(run(record("m-d-a")), Against("RUN", before))
    assert "another one" not in comment(run(record("m-d-a")), Against("RUN", run(record("m-d-a"))))
    renamed = {"other": {"sha256": "a" * 64}}
    for policies in (renamed, {**renamed, "m": {"sha256": "a" * 64}, "new": {"sha256": "b" * 64}}):
        assert "another one" not in comment(run(record("m-d-a")), Against("RUN", run(record("o-d-a"), policies=policies)))
    assert "another one" in comment(run(record("m-d-a")), Against("RUN", run(policies={"other": {"sha256": "b" * 64}})))


def test_however_much_there_is_to_say_it_is_short_enough() -> None:
    hostile = [record(f"{HOSTILE * 20}{number}", Outcome.FAIL, reason=HOSTILE * 40) for number in range(500)]
    before = run(*(record(broken.id, reason="") for broken in hostile), name="earlier")
    text = comment(run(*hostile), Against("RUN", before))
    assert len(text) <= LONGEST
    assert text.startswith(marker("gate"))
    assert "more tests are in the report." in text


def test_nothing_of_others_is_interpreted() -> None:
    text = comment(run(record(HOSTILE, Outcome.FAIL, reason=HOSTILE), commit=HOSTILE))
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert "<img" not in outside_code
    assert "](http" not in outside_code
    assert "@all" not in outside_code
    assert all(char.isprintable() or char == "\n" for char in text)


def test_the_worst_questions_are_named_in_words() -> None:
    bad = record("m-d-fog:high", Outcome.FAIL, examples=(example(), example(sample="s-2", question=HOSTILE, target=HOSTILE)))
    text = comment(run(bad))
    assert "- What is it?<br>right **A a cat**; `clean` A a cat; `fog:high` B a dog\n" in text
    assert text.count("<br>right **") == 2
    outside_code = re.sub(r"(`+).*?\1", "", text)
    assert [part for part in ("<img", "](http", "@all") if part in outside_code] == []
    assert "Worst questions" not in comment(run(record("m-d-fog:high", examples=(example(),))))


def test_links_are_those_that_are_known() -> None:
    assert comment(run(record("m-d-a")), report="https://x.example/a(1).html", job="").splitlines()[-1] == (
        "[report](<https://x.example/a(1).html>)"
    )


@pytest.mark.cases(
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
