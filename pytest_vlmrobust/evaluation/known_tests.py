"""Known tests: what the shipped suites measure, read from their marks without running them, and what each setting could be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.cell import Cell, FamilyMetric, SweepMetric
from pytest_vlmrobust.core.setting import Setting
from pytest_vlmrobust.perturbations.patches import GRIDS
from pytest_vlmrobust.policies import JudgedTest
from pytest_vlmrobust.shipped import shipped

from .judged import judged_tests
from .plan import expand_settings

ANY = "any"
"""Stands for every model, and for every data set."""


@cache
def known_tests() -> frozenset[JudgedTest]:
    """Returns what tests can be judged by, for the model and the data set called ``any``.

    That is everything in the shipped suites, and plain questions under each setting that is registered.
    """
    found = {test for name in perturbations.names("all") for test in judged_tests(Cell(ANY, ANY, Setting.parse(name)))}
    for file in sorted(shipped("suites").glob("test_*.py")):
        found.update(_tests_of(file))
    return frozenset(found)


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
    tasks, splits = marks.get("vlm_tasks", ("",)), marks.get("vlm_splits", ("",))
    if "vlm_cell" in fixtures:
        for setting in expand_settings(marks["vlm_settings"], grids=GRIDS):
            for task in tasks:
                yield from judged_tests(Cell(ANY, ANY, setting), {ANY: task})
    kind = FamilyMetric if "vlm_family" in fixtures else SweepMetric
    for metric in marks.get("vlm_metrics", ()):
        for split in splits:
            yield from judged_tests(kind(ANY, ANY, metric, split))


def _arguments(nodes: Iterable[ast.expr], constants: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name):
            yield from constants[node.value.id]
        else:
            yield str(ast.literal_eval(node))
