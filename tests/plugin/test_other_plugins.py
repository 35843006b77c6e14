"""Plugins of other people beside the gate; each test is skipped where its plugin is not installed."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from xml.etree import ElementTree

import pytest

from pytest_vlmrobust.plugin.selection import PLUGINS_REFUSED

from .conftest import Project, decision_cases, ends


@pytest.mark.parametrize(("module", "option"), [("pytest_rerunfailures", "--reruns=2"), ("pytest_retry", "--retries=2")])
def test_a_test_that_a_plugin_runs_again_has_each_property_once(project: Project, module: str, option: str) -> None:
    pytest.importorskip(module)
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("--junitxml=junit.xml", option, subprocess=True).ret == 1
    for case in ElementTree.parse(project.path / "junit.xml").iter("testcase"):
        counts = Counter(entry.get("name") for entry in case.iter("property"))
        assert set(counts.values()) == {1}, case.get("name")
    assert decision_cases(project.path / "junit.xml") == {"model": "NO-GO"}


def test_allure_shows_what_a_test_is_about(project: Project) -> None:
    pytest.importorskip("allure_pytest")
    assert project.run("--alluredir=allure", subprocess=True).ret == 0
    listed = [json.loads(path.read_text())["parameters"] for path in (project.path / "allure").glob("*-result.json")]
    assert {"name": "vlm_cell", "value": "model-data-invert"} in [parameter for parameters in listed for parameter in parameters]


HARMLESS = {
    "allure_pytest": "--alluredir=allure",
    "pytest_cov": "--cov=suite",
    "pytest_html": "--html=other.html",
    "pytest_randomly": "--randomly-seed=3",
    "pytest_repeat": "--count=2",
    "pytest_rerunfailures": "--reruns=1",
    "pytest_retry": "--retries=1",
    "pytest_sugar": "--force-sugar",
    "pytest_timeout": "--timeout=300",
}
"""Module of a plugin, and an option that makes it act."""


def ids_in(project: Project) -> list[str]:
    """Returns the tests that a report is about."""
    return [record["id"] for record in project.results("report")["records"]]


@pytest.mark.slow
@pytest.mark.parametrize("together", [*([name] for name in HARMLESS), list(HARMLESS)], ids=lambda names: "-".join(names)[:40])
def test_a_plugin_beside_the_gate_changes_neither_decision_nor_counts(project: Project, together: list[str]) -> None:
    if absent := [name for name in together if importlib.util.find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    options = [HARMLESS[name] for name in together]
    options += ["-p", "randomly"] if "pytest_randomly" in together else []
    options += ["-n", "2"] if together == list(HARMLESS) else []
    for rules, code, decision in (((), 0, "GO"), (({"setting": "invert", "answer": "A"},), 1, "NO-GO")):
        project.script(*rules)
        assert project.run("--junitxml=junit.xml", "--vlm-report=report", *options, subprocess=True).ret == code
        assert decision_cases(project.path / "junit.xml") == {"model": decision}
        assert len(set(ids_in(project))) == len(ids_in(project)) == 8


def test_one_repeated_test_counts_once(project: Project) -> None:
    pytest.importorskip("pytest_repeat")
    text = (project.path / "suite/test_suite.py").read_text()
    project.write("suite/test_suite.py", text.replace("def test_", "@pytest.mark.repeat(3)\ndef test_"))
    assert project.run("--vlm-report=report", subprocess=True).ret == 0
    assert len(set(ids_in(project))) == len(ids_in(project)) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "options", "key"),
    [("pytest_split", ["--splits=2", "--group=1"], "splits"), ("pytest_forked", ["--forked"], "forked")],
)
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_plugin_that_rules_out_a_go_is_refused(
    project: Project, module: str, options: list[str], key: str, workers: list[str]
) -> None:
    pytest.importorskip(module)
    project.script()
    run = ends(project.run(*options, *workers, subprocess=True), pytest.ExitCode.USAGE_ERROR)
    assert PLUGINS_REFUSED[key] in run.stdout.str() + run.stderr.str()
    assert not (project.path / ".vlmrobust/predictions.sqlite").exists()


def test_a_mark_that_rules_out_a_go_is_refused(project: Project) -> None:
    pytest.importorskip("pytest_forked")
    text = (project.path / "suite/test_suite.py").read_text()
    project.write("suite/test_suite.py", text.replace("def test_cell", "@pytest.mark.forked\ndef test_cell"))
    run = ends(project.run(subprocess=True), pytest.ExitCode.USAGE_ERROR)
    assert PLUGINS_REFUSED["forked"] in run.stdout.str() + run.stderr.str()
