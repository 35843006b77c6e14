"""How often questions decided gates: counted once by store, said wherever the decision is, and the same for verify."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_vlmrobust.cli import main
from pytest_vlmrobust.store import Store

from .conftest import Project, make_project, slow_but_for

INTERVALS = """
version: 1
defaults: {alpha_pass: 0.05}
rules:
  - {id: clean, metric: accuracy, where: {setting: clean}, min: 10%}
  - {id: worst, metric: worst_case_drop, max: 95pp}
"""


def gates_in(project: Project, out: str = "out") -> list[dict[str, Any]]:
    return list(json.loads((project.path / out / "manifest.json").read_text())["gates"])


@pytest.mark.parametrize("workers", slow_but_for([()], [(), ("-n0",), ("-n2",)]), ids=["alone", "n0", "n2"])
def test_models_and_policies_are_counted_and_reruns_are_not(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    project = make_project(pytester, workers)
    project.write("policy.yaml", INTERVALS)
    first = project.run("--vlm-report=out")
    assert "the first gate" not in first.stdout.str(), "the report says it"
    (count,) = gates_in(project)
    assert (count["number"], count["bound"], count["n"], count["repeats"]) == (1, 0.05, 8, "")
    run = json.loads((project.path / "out" / "manifest.json").read_text())["run"]

    project.run("--vlm-report=out", "--vlm-offline")
    assert gates_in(project)[0]["repeats"] == run

    project.write("policy.yaml", INTERVALS.replace("95pp", "94pp"))
    project.run("--vlm-report=out", "--vlm-offline")
    (count,) = gates_in(project)
    assert (count["number"], count["whole"], count["bound"]) == (2, 1, pytest.approx(0.10))


def test_every_report_and_verify_say_the_number_and_verify_recomputes_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.write("policy.yaml", INTERVALS)
    project.run()
    project.write("policy.yaml", INTERVALS.replace("95pp", "94pp"))
    project.run("--vlm-report=out", "--junitxml=junit.xml")
    said = "gate 2 on these 8 questions"
    for name in ("out/report.html", "out/summary.md", "out/model_card.md", "out/junit.xml", "junit.xml"):
        assert said in (project.path / name).read_text(), name
    capsys.readouterr()
    assert main(["history", "--metric", "worst_case_drop"]) == 0
    text = capsys.readouterr().out
    assert ", gate 1 " in text
    assert ", gate 2 " in text
    assert main(["bundle", "out", "--out", "out.zip"]) == 0
    assert main(["verify", "out.zip"]) == 0
    assert said in capsys.readouterr().out
    manifest = json.loads((project.path / "out" / "manifest.json").read_text())
    manifest["gates"][0] |= {"number": 1, "n": 80}
    (project.path / "out" / "manifest.json").write_text(json.dumps(manifest))
    assert main(["bundle", "out", "--out", "other.zip"]) == 0
    assert main(["verify", "other.zip"]) == 1
    output = capsys.readouterr().out
    assert "gates of model-data.number is not what predictions.sqlite gives" in output
    assert "gates of model-data.n is not what predictions.sqlite gives" in output


def test_a_run_that_decided_nothing_is_no_gate(project: Project) -> None:
    project.write("policy.yaml", INTERVALS)
    project.script({"setting": "invert", "error": "out of memory"})
    project.run("--vlm-report=out")
    assert gates_in(project) == []
    with Store.open(project.path / ".vlmrobust", read_only=True) as store:
        assert store._connection.execute("select count(*) from gates").fetchone() == (0,)
