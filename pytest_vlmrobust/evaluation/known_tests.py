"""Known tests: what the shipped suites measure, read from their marks without running them, and what each setting could be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.perturbations.catalog import OFFERED_GRIDS as GRIDS
from pytest_vlmrobust.policies import JudgedTest
from pytest_vlmrobust.shipped import shipped

from .judged import Asked, judged_tests
from .plan import expand_settings

ANY = "any"
"""Stands for every model, and for every data set."""


@cache
def known_tests() -> frozenset[JudgedTest]:
    """Returns what tests can be judged by: everything in the shipped suites, and questions under each registered setting."""
    registered = (Cell(ANY, ANY, Setting.parse(name)) for name in perturbations.names("all"))
    return shipped_tests().union(*(judged_tests(cell, baseline=True, attempts=True) for cell in registered))


@cache
def shipped_tests() -> frozenset[JudgedTest]:
    """Returns what the tests of the shipped suites are judged by, on questions called ``any`` and tasks called ``any.TASK``."""
    files = sorted(shipped("suites").glob("test_*.py"))
    return frozenset(test for file in files for test in _tests_of(file))


def suite_names() -> list[str]:
    """Returns the names of the shipped suites, such as ``corruptions``."""
    return sorted(file.stem.removeprefix("test_") for file in shipped("suites").glob("test_*.py"))


@cache
def suite_tests(name: str, task: str = "") -> frozenset[JudgedTest]:
    """Returns what the tests of one shipped suite, such as ``corruptions``, are judged by on questions called ``any``.

    With a ``task`` those on its data set, ``any.TASK``.
    """
    dataset = f"{ANY}.{task}" if task else ANY
    return frozenset(test for test in whole_suite(name) if test.dataset == dataset)


@cache
def whole_suite(name: str) -> frozenset[JudgedTest]:
    """Returns what the tests of one shipped suite are judged by, on questions and on tasks."""
    return frozenset(_tests_of(shipped("suites") / f"test_{name}.py"))


def _tests_of(file: Path) -> Iterator[JudgedTest]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _tests_of_function(node, constants)


def _tests_of_function(function: ast.FunctionDef, constants: dict[str, tuple[str, ...]]) -> Iterator[JudgedTest]:
    marks = {
        call.func.attr: tuple(_arguments(call.args, constants))
        for call in function.decorator_list
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    }
    fixtures = {argument.arg for argument in function.args.args}
    datasets = {f"{ANY}.{task}": task for task in marks.get("vlm_tasks", ())} or {ANY: ""}
    kind = FamilyMetric if "vlm_family" in fixtures else SweepMetric
    for dataset, task in datasets.items():
        for setting in expand_settings(marks["vlm_settings"], grids=GRIDS) if "vlm_cell" in fixtures else ():
            yield from judged_tests(Cell(ANY, dataset, setting), Asked(task), baseline=True, attempts=True)
        for metric, split in product(marks.get("vlm_metrics", ()), marks.get("vlm_splits", ("",))):
            yield from judged_tests(kind(ANY, dataset, metric, split), Asked(task))


def _arguments(nodes: Iterable[ast.expr], constants: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name):
            yield from constants[node.value.id]
        else:
            yield str(ast.literal_eval(node))
