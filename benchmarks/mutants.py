"""Mistakes made on purpose in the code that decides, and how many of them its tests find.

    python benchmarks/mutants.py                              # 25 mutants of each module
    python benchmarks/mutants.py --module core/decision.py --sample 0   # all of one

A mutant is a module with one change: a comparison, a connective, a sign, a constant, a condition turned round, or a result left
out. Each runs the unit tests of its module in a fork of a process that has the libraries imported, which takes a few seconds.
A mutant on which no test fails survives: either nothing depends on what was changed, or a test is missing. The same seed draws
the same mutants. Not for Windows, which cannot fork.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "pytest_vlmrobust"
TESTS: Mapping[str, Sequence[str]] = {
    "core/decision.py": ("core/test_decision.py", "evaluation/judge/test_requirements.py"),
    "policies/judge.py": ("policies/test_judge.py",),
    "policies/budgets.py": ("policies/test_budgets.py",),
    "policies/policy.py": ("policies/test_policy.py", "policies/test_load.py"),
    "policies/rules.py": ("policies/test_rules.py", "policies/test_judge.py", "policies/test_load.py"),
    "evaluation/judge/requirements.py": ("evaluation/judge/test_requirements.py",),
    "metrics/accuracy.py": ("metrics/test_accuracy.py",),
    "metrics/statistics/means.py": ("metrics/statistics/test_means.py",),
    "metrics/statistics/paired.py": ("metrics/statistics/test_paired.py",),
}
"""Modules, and those of ``tests/unit`` that are about them."""
CPU_SECONDS = 120
"""What a mutant may take before it counts as found: it does not come to an end."""
UNUSED = 90
"""Exit code of tests that passed and never imported the mutant."""
WARNED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Hypothesis is imported before pytest, which would like to look at it first."""

COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One change to a module."""

    module: str
    line: int
    before: str
    after: str
    source: str
    used: list[bool] = field(default_factory=list, compare=False)
    """Not empty once it was imported."""

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.before}  ->  {self.after}"


def mutants(module: str) -> list[Mutant]:
    """Returns every mutant of a module, in the order of its lines."""
    tree = ast.parse((ROOT / PACKAGE / module).read_text(encoding="utf-8"))
    count = sum(1 for _ in _places(tree))
    changes = []
    for place in range(count):
        changed = deepcopy(tree)
        node, change = list(_places(changed))[place]
        before = ast.unparse(node)
        line = node.lineno
        change()
        changes.append(Mutant(module, line, _short(before), _short(ast.unparse(node)), ast.unparse(changed)))
    return [mutant for mutant in changes if mutant.before != mutant.after]


def _places(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, Callable[[], None]]]:
    """Yields each node that can be changed with what changes it; annotations, decorators and texts are left as they are."""
    for node in _evaluated(tree):
        if isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                yield node, partial(node.ops.__setitem__, place, COMPARISONS[type(operator)]())
        elif isinstance(node, ast.BoolOp):
            yield node, partial(setattr, node, "op", ast.Or() if isinstance(node.op, ast.And) else ast.And())
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield node, partial(setattr, node, "op", OPERATORS[type(node.op)]())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            yield node, partial(setattr, node, "value", not node.value if isinstance(node.value, bool) else node.value + 1)
        elif isinstance(node, ast.If | ast.IfExp):
            yield node.test, partial(setattr, node, "test", ast.UnaryOp(ast.Not(), node.test))
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield node, partial(setattr, node, "value", ast.Constant(None))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "type_params", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _evaluated(child)


def _short(code: str) -> str:
    return " ".join(code.split())[:110]


class _Loader(importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant

    def exec_module(self, module: ModuleType) -> None:
        self.mutant.used.append(True)
        exec(compile(self.mutant.source, str(ROOT / PACKAGE / self.mutant.module), "exec"), module.__dict__)  # noqa: S102


class _Finder(importlib.abc.MetaPathFinder):
    """Gives the mutant in the place of its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.name = f"{PACKAGE}.{mutant.module.removesuffix('.py').replace('/', '.')}"

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        where = str(ROOT / PACKAGE / self.mutant.module)
        return importlib.util.spec_from_loader(name, _Loader(self.mutant), origin=where)


def is_found(module: str, mutant: Mutant | None) -> bool:
    """Returns whether a test of a module fails on a mutant; of ``None``, on the module as it is.

    Raises:
        RuntimeError: the tests passed without the mutant.
    """
    child = os.fork()
    if child == 0:
        _test(module, mutant)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == UNUSED:
        raise RuntimeError(f"the tests of {module} do not import it")
    return status != 0


def _test(module: str, mutant: Mutant | None) -> None:
    """Runs the tests of a module, and ends the process with whether they passed."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    if mutant is not None:
        sys.meta_path.insert(0, _Finder(mutant))
    for name in [name for name in sys.modules if name.partition(".")[0] in {PACKAGE, "tests"}]:
        del sys.modules[name]  # somebody else imported it, without the mutant
    code = 1
    try:
        files = [str(ROOT / "tests/unit" / name) for name in TESTS[module]]
        code = int(pytest.main([*files, "-x", "-q", "-p", "no:cacheprovider", *WARNED]))
        if code == 0 and mutant is not None and not mutant.used:
            code = UNUSED
    finally:
        os._exit(code)


def prepare() -> None:
    """Imports what tests use, so that no fork does."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # these tests use none of what else is installed
    for name in ("hypothesis", "numpy", "pytest", "scipy.stats", "yaml"):
        importlib.import_module(name)


def drawn(module: str, sample: int, seed: int) -> list[Mutant]:
    """Returns the mutants of a module that are to be tried: so many of them, or all where that is 0."""
    every = mutants(module)
    return every if not sample or sample >= len(every) else random.Random(f"{seed} {module}").sample(every, sample)


def survivors(module: str, tried: Sequence[Mutant]) -> list[Mutant]:
    """Returns the mutants that no test of a module finds.

    Raises:
        RuntimeError: tests fail without a mutant, so that they find anything.
    """
    if is_found(module, None):
        raise RuntimeError(f"the tests of {module} fail on the module as it is: mend them first")
    return [mutant for mutant in tried if not is_found(module, mutant)]


def main() -> None:
    """Tries mutants, and prints how many tests found and which survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--module", action="append", choices=[*TESTS], help="default: all of them")
    parser.add_argument("--sample", type=int, default=25, help="mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    print("| module | mutants | tried | found |\n|---|--:|--:|--:|")
    left: list[Mutant] = []
    prepare()
    for module in options.module or TESTS:
        tried = drawn(module, options.sample, options.seed)
        left += (missed := survivors(module, tried))
        print(f"| `{module}` | {len(mutants(module))} | {len(tried)} | {len(tried) - len(missed)} |", flush=True)
    print(*(f"survived: {mutant}" for mutant in sorted(left, key=str)), sep="\n")


if __name__ == "__main__":
    main()
