from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.evaluation.after.comparison import CellChange, Comparison, SweepChange
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.comparison import comparison_markdown, render_comparison, write_comparison
from pytest_vlmrobust.reporting.facts import noise_by_metric, noise_lines, noise_warnings, why_unmeasured
from pytest_vlmrobust.reporting.markdown import summary
from pytest_vlmrobust.store.repeatability import Repeatability

from .conftest import record
from .pages import asked_twice

LOSS = Estimate(0.25, 8, 0.1, 0.4, 0.9)
CELL = CellChange("m", "d", "fog:mid", 8, 1.0, 0.75, LOSS, LOSS, ("q1", "q2"), ("q3",))
FOUND = Comparison("a", "b", {"m": "n"}, (CELL,), (SweepChange("m", "d", 2, LOSS),), ("n-d-blur",), ("m-d-invert",))


def test_the_table_has_numbers_intervals_and_counts_and_markdown_names_the_samples(stored: Callable[..., None]) -> None:
    stored(render_comparison(FOUND, width=160, color=False), comparison_markdown(FOUND))


def test_what_is_undefined_says_why() -> None:
    gap = Estimate(math.nan, 7, reason="scores of 1 of 8 samples are missing")
    found = dataclasses.replace(FOUND, cells=(dataclasses.replace(CELL, baseline_drop=gap, drop_increase=None, now=math.nan),))
    assert "m-d-fog:mid: scores of 1 of 8 samples are missing" in render_comparison(found, width=160, color=False)
    assert to_plain(found)["cells"][0]["baseline_drop"]["value"] is None


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
    found = dataclasses.replace(FOUND, cells=(CELL,) * 43)
    assert "3 more cells are in comparison.json" in comparison_markdown(found)


def test_both_files_are_written(tmp_path: Path) -> None:
    write_comparison(tmp_path / "out", FOUND)
    assert json.loads((tmp_path / "out" / "comparison.json").read_text())["cells"][0]["broken"] == ["q1", "q2"]
    assert (tmp_path / "out" / "comparison.md").read_text() == comparison_markdown(FOUND)


def test_what_names_hold_is_never_obeyed() -> None:
    hostile = "\x1b[2J\n\u202ename \ud800"
    shown = r"\x1b[2J \u202ename \ud800"
    found = dataclasses.replace(
        FOUND,
        before=hostile,
        cells=(dataclasses.replace(CELL, broken=(hostile,), baseline_drop=Estimate(math.nan, 0, reason=hostile)),),
        notes=(hostile,),
    )
    table, page = render_comparison(found, width=160, color=False), comparison_markdown(found)
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
