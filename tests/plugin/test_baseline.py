"""An earlier run as the bar: what broke since then fails, and only a person may move the bar."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.store import Evidence

from .conftest import SUITE, Project, make_project

RULES = """
version: 1
defaults: {judge: point}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 10%}
  - {id: loss, metric: baseline_drop, max: 10pp}
  - {id: mean, metric: mean_baseline_drop, max: 10pp}
"""
TESTS = 6 + 2


@pytest.fixture
def compared(pytester: pytest.Pytester) -> Project:
    project = make_project(pytester, ())
    project.write("policy.yaml", RULES)
    project.write("suite/test_suite.py", SUITE.replace('"visual_gain")', '"visual_gain", "mean_baseline_drop")'))
    return project


def records(project: Project, out: str = "out") -> dict[str, Record]:
    lines = json.loads((project.path / out / "results.json").read_text())["records"]
    return {line["id"]: Record.from_json(json.dumps(line)) for line in lines}


def test_the_same_model_loses_nothing(compared: Project) -> None:
    compared.run("--vlm-report=first").assert_outcomes(passed=TESTS)
    result = compared.run("--vlm-baseline=first", "--vlm-report=out")
    assert result.ret == 0
    result.assert_outcomes(passed=TESTS + 1)
    result.stdout.fnmatch_lines(["since the baseline: 0 answers newly broken in 0 cells, 0 newly fixed in 0, over 6 cells"])
    values = {
        m.value for r in records(compared).values() for m in r.measures if "baseline" in m.metric or m.metric == "drop_increase"
    }
    assert values == {0.0}


def test_a_worse_model_is_found_with_the_samples_that_broke(pytester: pytest.Pytester) -> None:
    for arguments in ((), ("-n2",)):
        project = make_project(pytester, arguments)
        project.write("policy.yaml", RULES)
        project.script({"setting": "flip_v", "sample": "q7", "answer": "A"})
        project.run("--vlm-report=first", f"--vlm-store=store{len(arguments)}")
        project.script({"setting": "invert", "sample": "q[25]", "answer": "A"}, name="newer")
        more = ("--vlm-baseline=first", "--vlm-report=out", f"--vlm-store=store{len(arguments)}")
        result = project.run(*more, models=("newer",))
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*baseline_drop 0.250 > 0.100 (rule loss, policy.yaml:6)*"])
        result.stdout.fnmatch_lines(["*broken since the baseline    q2, q5"])
        result.stdout.fnmatch_lines(["since the baseline: 2 answers newly broken in 1 cells, 1 newly fixed in 1, over 6 cells"])
        found = records(project)
        assert found["newer-data-invert"].broken == ("q2", "q5")
        assert found["newer-data-flip_v"].fixed == ("q7",)


def test_the_mean_over_settings_fails_too(compared: Project) -> None:
    compared.run("--vlm-report=first")
    compared.script({"setting": "invert", "answer": "A"}, name="newer")
    result = compared.run("--vlm-baseline=first", models=("newer",))
    result.stdout.fnmatch_lines(
        ["*FAIL newer-data-mean_baseline_drop: mean_baseline_drop 0.250 > 0.100 (rule mean, policy.yaml:7)*"]
    )


def test_other_samples_are_no_verdict(compared: Project) -> None:
    compared.run("--vlm-report=first", "--vlm-sample=4")
    result = compared.run("--vlm-baseline=first")
    assert result.ret == 11
    result.stdout.fnmatch_lines(["*the baseline cannot be compared on data: of 8 samples here, 4 are not in the baseline*"])


def test_a_baseline_that_is_none_ends_the_run_at_once(compared: Project) -> None:
    result = compared.run("--vlm-baseline=nowhere")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*nowhere' holds no predictions.sqlite: expected the directory of a run*"])


def test_a_passing_run_becomes_the_baseline_and_a_failing_one_does_not(
    compared: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    arguments = ("--vlm-baseline=bar", "--vlm-update-baseline")
    assert compared.run(*arguments).ret == 0  # the first one
    before = answers(compared.path / "bar", "invert")
    compared.script({"setting": "invert", "answer": "A"}, name="worse")
    assert compared.run(*arguments, models=("worse",)).ret == 1
    assert answers(compared.path / "bar", "invert") == before
    compared.script({"setting": "invert", "sample": "q1", "answer": "(B)"}, name="other")
    assert compared.run(*arguments, models=("other",)).ret == 0
    assert answers(compared.path / "bar", "invert") == ["B", "(B)", *["B"] * 6]


def answers(directory: Path, setting: str) -> list[str]:
    with Evidence.open(directory, read_only=True) as evidence:
        (cell,) = [one for one in evidence.cells() if str(one.setting) == setting]
        return [answer.prediction.text for answer in evidence.get_cell(cell).answers]


def test_the_bar_is_not_moved_in_continuous_integration(compared: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = compared.run("--vlm-baseline=bar", "--vlm-update-baseline")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*refused where the environment variable CI is set: a gate must not move its own bar*"])
    monkeypatch.delenv("CI")
    result = compared.run("--vlm-update-baseline")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*--vlm-update-baseline needs --vlm-baseline DIR*"])
