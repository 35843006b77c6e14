"""Plugins of other people beside the gate; each test is skipped where its plugin is not installed."""

from __future__ import annotations

import json
from collections import Counter
from xml.etree import ElementTree

import pytest

from .conftest import Project, decision_cases


@pytest.mark.parametrize(("module", "option"), [("pytest_rerunfailures", "--reruns=2"), ("pytest_retry", "--retries=2")])
def test_a_test_that_a_plugin_runs_again_has_each_property_once(project: Project, module: str, option: str) -> None:
    pytest.importorskip(module)
    project.script({"setting": "invert", "answer": "A"})
    assert project.run("--junitxml=junit.xml", option, subprocess=True).ret == 1
    for case in ElementTree.parse(project.path / "junit.xml").iter("testcase"):
        counts = Counter(one.get("name") for one in case.iter("property"))
        assert set(counts.values()) == {1}, case.get("name")
    assert decision_cases(project.path / "junit.xml") == {"model": "NO-GO"}


def test_allure_shows_what_a_test_is_about(project: Project) -> None:
    pytest.importorskip("allure_pytest")
    assert project.run("--alluredir=allure", subprocess=True).ret == 0
    found = [json.loads(path.read_text())["parameters"] for path in (project.path / "allure").glob("*-result.json")]
    assert {"name": "vlm_cell", "value": "model-data-invert"} in [parameter for parameters in found for parameter in parameters]
