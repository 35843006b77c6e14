"""Whatever a user can meet by name stands somewhere in the documentation."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from dataclasses import fields
from typing import Any

import pytest

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends import models_file
from pytest_vlmrobust.backends.generation import Generation
from pytest_vlmrobust.core import decision, errors
from pytest_vlmrobust.core.decision import Allowance, Decision, Outcome
from pytest_vlmrobust.core.record import Measure, Record
from pytest_vlmrobust.datasets import faces_folder_table, own_rows
from pytest_vlmrobust.evaluation.judge.judge import run_test
from pytest_vlmrobust.metrics import Needs
from pytest_vlmrobust.policies import budgets, load
from pytest_vlmrobust.reporting import RunFacts, RunView
from pytest_vlmrobust.reporting.junit import properties, suite_properties
from pytest_vlmrobust.store.gates import GateCount
from pytest_vlmrobust.store.repeatability import Repeatability
from pytest_vlmrobust.store.spending import BUDGET_SPENT, Spending
from pytest_vlmrobust.testing.properties import PROFILES, VARIABLE

from .conftest import ROOT, everything

TEXT = everything()
OPEN_RULE = decision.NotShown("r", Outcome.INCONCLUSIVE, "<= 0.05", "x")
FOLDER_COLUMNS = (
    *faces_folder_table.REQUIRED,
    *faces_folder_table.OPTIONAL,
    *faces_folder_table.DOMAINS["face"].attributes,
    *faces_folder_table.DOMAINS["word"].attributes,
)


def classes(module: Any, kind: type) -> list[str]:
    return [name for name, thing in inspect.getmembers(module, inspect.isclass) if issubclass(thing, kind)]


def page(name: str) -> str:
    return (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")


@pytest.mark.cases("name", [*classes(errors, Exception), *classes(decision, Exception)])
def test_errors(name: str) -> None:
    assert f"`{name}`" in TEXT


@pytest.mark.cases("name", [*PROFILES, VARIABLE, *map(str, Outcome), *map(str, Decision)])
def test_profiles_of_property_checks_outcomes_and_decisions(name: str) -> None:
    assert re.search(rf"\b{name}\b", TEXT)


def test_properties_of_a_test_in_junit_are_those_on_its_page() -> None:
    measure = Measure(
        "accuracy_drop",
        0.1,
        0.0,
        0.2,
        10,
        "0.05",
        Outcome.WAIVED,
        "warning: x",
        waiver="W1",
        not_shown=(OPEN_RULE,),
        ends=(0.05,),
    )
    record = Record(
        "cell",
        "i",
        "m",
        "d",
        "s",
        "f",
        "l",
        n=9,
        n_requested=10,
        n_samples=20,
        measures=(measure,),
        broken=("q",),
        notes=("n",),
        policy_sha256="0",
    )
    written = {name.replace("accuracy_drop", "NAME") for name, _ in properties(record)}
    assert written == set(re.findall(r"`(vlm\.[\w.]+)`", page("junit.md").partition("## Of the test suite")[0]))


def test_properties_of_the_suite_in_junit_are_those_on_its_page() -> None:
    policies = {"m": {"sha256": "a", "replaced": ["x"]}}
    origins = {
        "run": "r",
        "version": "1",
        "commit": "c",
        "ci": {"JOB_NAME": "j"},
        "models": {"m": {}},
        "settings": {"vlm_seed": 1},
        "policies": policies,
    }
    measure = Measure("accuracy_drop", 0.1, not_shown=(OPEN_RULE,))
    record = Record("cell", "i", "MODEL", "d", reason=f"{BUDGET_SPENT}9 of 8 tokens", measures=(measure,))
    of_the_suite = page("junit.md").partition("## Of the test suite")[2]
    twice = [Repeatability("MODEL", "DATASET", 1, rate=0.0, low=0.0, high=0.9), Repeatability("MODEL", "DATASET", problem="x")]
    facts = RunFacts(
        shortfalls=["x"],
        allowances=[Allowance("x", "p.yaml:2")],
        repeatability=twice,
        stopped="x",
        models=("MODEL", "OTHER"),
        spending=[Spending("MODEL", cost=1.0)],
        gates=[GateCount("MODEL", "DATASET", "p", "q", 1, number=1, whole=0, part=0, share=0.0)],
    )
    written = {
        name.replace("OTHER", "MODEL")
        .replace(".replaces.1", ".replaces.N")
        .replace("_shown.1", "_shown.N")
        .replace("allowance.1", "allowance.N")
        for name in suite_properties(RunView([record], dataclasses.replace(facts, origins=origins)))
    }
    assert written == set(re.findall(r"`(vlm\.[\w.-]+)`", of_the_suite))


@pytest.mark.cases("name", [*FOLDER_COLUMNS, *faces_folder_table.KEYS, faces_folder_table.TABLE, "word", "corner"])
def test_folders_of_identities(name: str) -> None:
    assert f"`{name}`" in page("data.md").partition("### Your own faces")[2].partition("\n## ")[0]


KEYS = {
    "data.md": [*own_rows.KEYS, *perturbations.CHANGES],
    "models.md": [*models_file.FIELDS, *(field.name for field in fields(Generation))],
    "thresholds.md": [*load.SCOPE],
    "metrics.md": [need.value for need in (Needs.CLEAN, Needs.PERTURBED, Needs.NO_IMAGE, Needs.PERTURBED_BY_SETTING)],
}


@pytest.mark.cases(("name", "key"), [(name, key) for name, keys in KEYS.items() for key in keys])
def test_keys_of_files_and_what_a_metric_may_need(name: str, key: str) -> None:
    assert f"`{key}`" in page(name)


@pytest.mark.cases("key", [*load.TOP_KEYS, *budgets.BUDGET_KEYS, *load.RULE_KEYS, *load.WAIVER_KEYS])
def test_keys_of_a_thresholds_file(key: str) -> None:
    assert re.search(rf"`{key}`|\b{key}:", page("thresholds.md"))


def test_the_tour_of_the_architecture_leads_to_functions_that_exist() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tour = page.split("## Follow one cell")[1].split("\n## ")[0]
    assert re.findall(r"^(\d+)\.", tour, re.MULTILINE) == [str(number) for number in range(1, 11)]
    places = re.findall(r"\]\((pytest_vlmrobust/[\w/]+\.py)\)\s+`(\w+)`", tour)
    assert len(places) >= 10
    for file, name in places:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}, f"{file}: {name}"


def test_the_architecture_shows_the_flow_of_a_test_as_it_is() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    head, _, body = inspect.getsource(run_test).split('"""')
    shown = page.split("```python\n")[1].split("\n```")[0]
    assert shown == head.rstrip() + body.rstrip()
    assert len(shown.splitlines()) <= 16


def test_each_unit_test_stands_where_its_module_or_package_does() -> None:
    """CONTRIBUTING.md promises it; tests across modules stand in ``tests/contract`` and ``tests/plugin``."""
    units = ROOT / "tests" / "unit"
    tests = [path.relative_to(units) for path in units.rglob("test_*.py")]
    assert len(tests) > 150
    subjects = {test: ROOT / "pytest_vlmrobust" / test.parent / test.stem.removeprefix("test_") for test in tests}
    strays = [str(test) for test, subject in subjects.items() if not (subject.with_suffix(".py").is_file() or subject.is_dir())]
    assert not strays, "in pytest_vlmrobust/ there is no module or package of the same folder and name"
