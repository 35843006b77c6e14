"""The noise in Markdown; what the terminal says of it is tested there."""

from __future__ import annotations

import dataclasses

from pytest_vlmrobust.core.repeatability import Repeatability
from pytest_vlmrobust.reporting import RunFacts
from pytest_vlmrobust.reporting.files import summary
from pytest_vlmrobust.reporting.noise import moves, noise_lines, noise_table, noise_warnings, unmeasured

from .conftest import record
from .pages import asked_twice

TABLE = """\
| A/A | asked again | flipped | 90 % interval | noise of accuracy_drop |
|---|--:|--:|--:|--:|
| `m-d` | 200 | 13 (6.50%) | 3.88% to 10.13% | 0.120, at most 0.210 |
| `m-faces.matching` | not measured |  |  |  |

- A/A m-faces.matching: not measured: the model is lost
- warning: m-d: p.yaml:4: rule r0 (accuracy_drop 0.1) is tighter than the noise
"""


def test_the_summary_has_a_table_of_it() -> None:
    assert "\n".join(noise_table(asked_twice())) + "\n" == TABLE
    assert f"\n{TABLE}" in summary([record("a")], RunFacts(repeatability=asked_twice()))


def test_the_smallest_noise_comes_first_however_it_was_stored() -> None:
    measured, _ = asked_twice()
    high = {"absolute_continuous_error": 0.8, "label_preserving_drop": 0.21, "accuracy_drop": 0.21}
    stored = dataclasses.replace(measured, noise=dict.fromkeys(high, 0.0), noise_high=high)
    assert [metric for metric, _, _ in moves(stored)] == ["accuracy_drop", "label_preserving_drop", "absolute_continuous_error"]


def test_without_a_warning_the_table_is_all() -> None:
    measured, _ = asked_twice()
    assert len(noise_table([dataclasses.replace(measured, tighter=())])) == 3


def test_a_run_that_asked_once_has_no_table() -> None:
    assert noise_table([]) == []
    assert "A/A" not in summary([record("a")], RunFacts())


def test_names_and_problems_cannot_break_the_table() -> None:
    lines = noise_table([Repeatability("a|b", "c", problem="no\nmodel")])
    assert lines[2] == "| `a\\|b-c` | not measured |  |  |"
    assert lines[4] == "- A/A a\\|b-c: not measured: no model"


def test_no_answer_the_second_time_is_not_no_noise() -> None:
    about = Repeatability("m", "d", failed=3)
    assert unmeasured(about) == "no answer could be asked for again (3 inferences failed)"
    assert noise_lines(about) == [f"A/A m-d: not measured: {unmeasured(about)}"]
    assert unmeasured(asked_twice()[0]) == ""


def test_what_is_tighter_names_model_and_data() -> None:
    assert noise_warnings(asked_twice()) == ["m-d: p.yaml:4: rule r0 (accuracy_drop 0.1) is tighter than the noise"]
