"""Scopes: which thresholds hold for which model, and which settings and tests their rules can be about."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.backends.resolve import names as shipped_models
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, FamilyMetric, Planned, Setting, SweepMetric
from pytest_vlmrobust.core.errors import (
    PolicyError,
    SettingError,
    UnknownName,
    UsageError,
    VlmRobustError,
    did_you_mean,
    files_beside,
)
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import kind_of_stratum
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.datasets import names as shipped_datasets
from pytest_vlmrobust.evaluation.run.data import RunData
from pytest_vlmrobust.evaluation.run.plan import LADDER, PATCHES, expand_settings
from pytest_vlmrobust.evaluation.run.resolutions import PREPROCESSING
from pytest_vlmrobust.perturbations.catalog import OFFERED_GRIDS as GRIDS
from pytest_vlmrobust.perturbations.catalog import SETS
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.policies import NO_LEVEL, MetricKey, Scope, Tier, misspellings
from pytest_vlmrobust.shipped import shipped

from .context import DatasetFacts
from .measurements import metric_keys, quantities

if TYPE_CHECKING:
    from pytest_vlmrobust.policies import MetricFacts, Policy, Rule, Waiver


# Which thresholds hold for which model.


DEFAULT = "default"


def policy_for(ref: ModelRef, given: Sequence[str], path: Callable[[str], Path], root: Path) -> Policy:
    """Returns the policy of a model: the given files, else the policy in its record, else the default."""
    from pytest_vlmrobust.metrics.record import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    return load_policy(policy_files(ref, given, path), known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=root)


def policy_files(ref: ModelRef, given: Sequence[str], path: Callable[[str], Path]) -> list[Path]:
    """Returns the policy files of a model: the given files, else the policy in its record, else the default."""
    return [thresholds_file(name, path) for name in given or (ref.policy or DEFAULT,)]


def thresholds_file(name: str, path: Callable[[str], Path], *, given_as: str = "--vlm-thresholds") -> Path:
    """Returns the file for ``name``: a path, or the name of a shipped policy; ``given_as`` is the option that gave it."""
    from pytest_vlmrobust.shipped import shipped

    file = path(name)
    copy = path(f"thresholds/{name}.yaml")  # a copy by `vlmrobust init`, which the user may have tightened
    for candidate in (file, copy):
        if candidate.is_file():
            return candidate
    offered = {entry.stem: entry for entry in sorted(shipped("thresholds").glob("*.yaml"))}
    if name in offered:
        return offered[name]
    raise PolicyError(
        f"{given_as} {name!r}: there is no file {str(file)!r}, and no shipped policy of that name."
        f"{did_you_mean(name, [*offered, *files_beside(Path(name))])} Shipped: {', '.join(offered)}"
    )


def is_relative(rule: Rule) -> bool:
    """Whether a rule compares with an earlier run."""
    quantity = quantities().get(rule.metric)
    return quantity is not None and quantity.compares_with_earlier_run


def is_summary(rule: Rule) -> bool:
    """Whether a rule bounds a property of a single model over many settings, without other runs or models."""
    quantity = quantities().get(rule.metric)
    return quantity is not None and quantity.scope == "sweep" and not quantity.compares_with_earlier_run


def shows_looking(rule: Rule) -> bool:
    """Whether a rule requires that a model answers better with the images than without."""
    return rule.metric == "visual_gain" and rule.bound.low > 0.0


def is_about_originals(rule: Rule) -> bool:
    """Whether a rule says nothing about changed images."""
    settings = {*rule.where.setting}
    originals = bool(settings) and settings <= {CLEAN_NAME, NO_IMAGE_NAME}
    return originals or rule.metric in {"visual_gain", "clean_accuracy", "accuracy_above_chance"}


def known_metrics() -> dict[str, MetricFacts]:
    """Returns the facts that rules are checked against, by metric."""
    return {name: quantity.policy_facts for name, quantity in quantities().items()}


# Known names: the settings, families and levels that a scope can match, and globs that match none of them.


_SETS = (*SETS, LADDER, PATCHES, PREPROCESSING)
"""Sets of settings that a summary metric may be taken over."""
_LARGEST = 4096
"""The largest numeric level that is tried."""
_FIELDS = ("setting", "family", "level")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The possible values of the setting fields of a scope; models, datasets and categories may have any name."""

    settings: frozenset[str]
    families: frozenset[str]
    levels: frozenset[str]

    @classmethod
    def of(cls, tests: Iterable[MetricKey] = ()) -> KnownNames:
        """Returns the names of everything that is registered, and of the tests of a run."""
        planned = list(tests)
        listed = [perturbations.info(name) for name in _registered_settings()]
        return cls(
            frozenset((*_SETS, CLEAN_NAME, NO_IMAGE_NAME, *_registered_settings(), *(test.setting for test in planned))),
            frozenset((*(about.family for about in listed), *(test.family for test in planned))) - {""},
            frozenset((*(about.level or NO_LEVEL for about in listed), *(test.level or NO_LEVEL for test in planned))),
        )

    def unknown_globs(self, scope: Scope) -> list[str]:
        """Returns a sentence for each glob that matches no known name, with the nearest match."""
        problems = []
        for field in _FIELDS:
            for glob in getattr(scope, field):
                if not self._is_known(field, glob):
                    near = did_you_mean(glob, self._spellings(field, glob))
                    problems.append(f"{field} {glob!r} matches no {field} that is known.{near}")
        return problems

    def _is_known(self, field: str, glob: str) -> bool:
        scope = replace(Scope(), **{field: (glob,)})
        known = {"setting": self.settings, "family": self.families, "level": self.levels}[field]
        tests = (_test(field, name) for name in known)
        if any(scope.matches(test) for test in tests) or (field != "family" and _is_number(field, glob)):
            return True
        parts = glob.split("+") if field != "level" else [glob]  # the name of composed settings contains all of them
        return len(parts) > 1 and all(self._is_known(field, part) for part in parts)

    def _spellings(self, field: str, glob: str) -> Iterable[str]:
        if field == "setting":
            return self.settings if ":" in glob else {name.partition(":")[0] for name in self.settings}
        return self.families if field == "family" else self.levels


def _test(field: str, name: str) -> MetricKey:
    about: dict[str, Any] = {field: name}
    return MetricKey("", "", "", **about)


def _registered_settings() -> list[str]:
    return [*perturbations.names("all"), *map(str, expand_settings([PREPROCESSING]))]


def _is_number(field: str, glob: str) -> bool:
    """Whether a glob admits a setting that is not listed: with a numeric level, or composed of several steps."""
    if field == "setting" and _is_setting(glob):
        return True
    scope = replace(Scope(), **{field: (glob,)})
    registered = [*map(REGISTRY.get, REGISTRY.names())]
    numbered = [record for record in registered if record.numbered]
    given = ((record, level) for record in registered for level in record.numbers)
    return any(
        scope.matches(MetricKey("", "", "", f"{record.name}:{level}", record.family, level)) for record, level in given
    ) or any(
        scope.matches(MetricKey("", "", "", f"{record.name}:{number}", record.family, str(number)))
        for record in numbered
        if record.numbered
        for number in range(record.numbered.lowest, min(record.numbered.highest, _LARGEST) + 1)
    )


def _is_setting(text: str) -> bool:
    try:
        perturbations.info(text)
    except (SettingError, UnknownName):
        return False
    return True


def refuse_unknown_scopes(
    policies: Iterable[Policy],
    plan: Sequence[Planned],
    tests: Iterable[MetricKey],
    *,
    models: Iterable[str],
    datasets: Iterable[str],
) -> None:
    """Looks whether each rule and waiver names things that exist, now that every file of the user's has been read."""
    known = KnownNames.of(tests)
    present = {"model": {*models, *(planned.model for planned in plan)}, "dataset": {planned.dataset for planned in plan}}
    elsewhere = {"model": {*shipped_models()}, "dataset": {*shipped_datasets(), *datasets}}
    for policy in policies:
        for scope, effect in _scopes(policy):
            if problems := known.unknown_globs(scope):
                register = "One of your own is known once a conftest.py that is collected registers it"
                raise PolicyError(f"{effect}: {problems[0]} {register}")
            for field, glob, name in misspellings(scope, present):
                if glob not in elsewhere[field]:
                    raise PolicyError(
                        f"{effect}: this run has no {field} {glob!r}. Did you mean {name!r}? "
                        "If it is another one, leave it out of the policy of this run"
                    )


def refuse_empty_slices(
    policies: Iterable[Policy], tests: Sequence[MetricKey], strata: Callable[[Sequence[str]], Iterable[str] | None]
) -> None:
    """Looks whether the data of a run have rows in each slice of metadata that a rule or a waiver is about.

    Data that cannot be read may have them: ``strata`` returns ``None``, and the tests report why.
    """
    for policy in policies:
        for scope, effect in _scopes(policy):
            kind = kind_of_stratum(scope.category[0]) if scope.category else ""
            about = sorted({test.dataset for test in tests if replace(scope, category=()).matches(test)}) if kind else []
            if not about or (present := strata(about)) is None:
                continue
            names = sorted(present)
            values = [name.removeprefix(f"{kind}=") for name in names if kind_of_stratum(name) == kind]
            for glob in scope.category:
                if any(Scope(category=(glob,)).admits("category", name) for name in names):
                    continue
                wanted = glob.removeprefix(f"{kind}=")
                columns = sorted({kind_of_stratum(name) for name in names} - {""})
                has = f"{kind} is {first_few(values, 10)}" if values else f"metadata columns: {first_few(columns, 10) or 'none'}"
                near = did_you_mean(wanted, values) if values else did_you_mean(kind, columns)
                raise PolicyError(
                    f"{effect}: no row of {first_few(about, 5)} has {kind} {wanted!r}.{near} In the data, {has}. "
                    "Correct the name, or leave it out of the policy of this run"
                )


def _scopes(policy: Policy) -> Iterator[tuple[Scope, str]]:
    """Yields each scope of a policy with the effect of a misspelt name in it."""
    for rule in policy.rules:
        yield rule.where, f"{rule.source}: rule {rule.id} gates nothing there"
        if rule.unless:
            yield rule.unless, f"{rule.source}: rule {rule.id} excludes nothing there"
    for waiver in policy.waivers:
        yield waiver.where, f"{waiver.source}: waiver {waiver.id} covers nothing"


# Known tests: the quantities of the shipped suites, read from their marks without running them, and of each setting.


ANY = "any"
"""Stands for every model, and for every dataset."""


@cache
def known_tests() -> frozenset[MetricKey]:
    """Returns all quantities that tests can have: of the shipped suites, and of questions under each registered setting."""
    registered = (Cell(ANY, ANY, Setting.parse(name)) for name in perturbations.names("all"))
    return shipped_tests().union(*(metric_keys(cell, baseline=True, attempts=True) for cell in registered))


@cache
def shipped_tests() -> frozenset[MetricKey]:
    """Returns the quantities of the shipped suites, for a dataset ``any`` and tasks ``any.TASK``."""
    files = sorted(shipped("suites").glob("test_*.py"))
    return frozenset(test for file in files for test in _tests_of(file))


def suite_names() -> list[str]:
    """Returns the names of the shipped suites, such as ``corruptions``."""
    return sorted(file.stem.removeprefix("test_") for file in shipped("suites").glob("test_*.py"))


@cache
def suite_tests(name: str, task: str = "") -> frozenset[MetricKey]:
    """Returns the quantities of one suite, such as ``corruptions``, for a dataset ``any``.

    With a ``task``, for the dataset ``any.TASK``.
    """
    dataset = f"{ANY}.{task}" if task else ANY
    return frozenset(test for test in whole_suite(name) if test.dataset == dataset)


@cache
def whole_suite(name: str) -> frozenset[MetricKey]:
    """Returns the quantities of one suite, for questions and tasks: of a shipped one, or of one in ``suites/`` here."""
    if name in suite_names():
        return frozenset(_tests_of(shipped("suites") / f"test_{name}.py"))
    file = Path("suites", f"test_{name}.py")
    if not file.is_file():
        raise UsageError(
            f"power does not know the suite {name!r} of the coverage: run in the folder with {file}, or try a copy of the policy "
            f"whose coverage names some of {', '.join(suite_names())}"
        )
    try:
        return frozenset(_tests_of(file))
    except (ValueError, KeyError, SyntaxError, TypeError, OSError, VlmRobustError) as error:
        raise UsageError(
            f"power cannot tell without running {file} what it tests: {type(error).__name__}: {error}. "
            f"Write the arguments of its marks as texts, or as *NAME of a list of texts in the file"
        ) from None


def own_settings(name: str) -> frozenset[str]:
    """Returns the settings of a suite in ``suites/`` here; none of a shipped one."""
    return frozenset() if name in suite_names() else frozenset(test.setting for test in whole_suite(name)) - {""}


def tests_of_suites(names: Iterable[str], models: Iterable[str], data: RunData, *, baseline: bool) -> dict[str, list[MetricKey]]:
    """Returns the quantities of each model in the named shipped suites; other names are ignored."""
    from pytest_vlmrobust import metrics

    from .context import BASELINE

    wanted = set(names)
    tests = [test for name in suite_names() if name in wanted for test in sorted(whole_suite(name), key=str)]
    if not baseline:
        comparing = {name for name in metrics.names() if metrics.get(name).suite == BASELINE}
        tests = [test for test in tests if test.metric not in comparing]
    tasks = {test.dataset.partition(".")[2] for test in tests}
    datasets = {f"{ANY}.{task}" if task else ANY: data.of_tasks([task]) if task else data.questions for task in tasks}
    return {
        model: [replace(test, model=model, dataset=name) for test in tests for name in datasets[test.dataset]] for model in models
    }


def _tests_of(file: Path) -> Iterator[MetricKey]:
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _tests_of_function(node, constants)


def _tests_of_function(function: ast.FunctionDef, constants: dict[str, tuple[str, ...]]) -> Iterator[MetricKey]:
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
            yield from metric_keys(Cell(ANY, dataset, setting), DatasetFacts(task), baseline=True, attempts=True)
        for metric, split in product(marks.get("vlm_metrics", ()), marks.get("vlm_splits", ("",))):
            yield from metric_keys(kind(ANY, dataset, metric, split), DatasetFacts(task))


def _arguments(nodes: Iterable[ast.expr], constants: dict[str, tuple[str, ...]]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Starred) and isinstance(node.value, ast.Name):
            yield from constants[node.value.id]
        else:
            yield str(ast.literal_eval(node))


# Which tests a rule or a waiver may be about, and waivers whose cap covers nothing.


def idle_cap(waiver: Waiver, rules: Iterable[Rule]) -> str:
    """Returns a sentence if a waiver's cap is looser than none of its bounds, and what to do; else an empty text."""
    coverable = [rule for rule in rules if could_need(rule, waiver)]
    if not coverable or any(waiver.goes_beyond(rule.bound) for rule in coverable):
        return ""
    nearest = min(coverable, key=lambda rule: abs(rule.bound.nearest_end(waiver.cap) - waiver.cap))
    sides = {"below": nearest.bound.low, "above": nearest.bound.high}
    bound = nearest.bound
    beyond = " or ".join(f"{side} {bound.written(end)}" for side, end in sides.items() if math.isfinite(end))
    return (
        f"waiver {waiver.id} of {waiver.owner} covers nothing: its cap of {bound.written(waiver.cap)} does not go beyond "
        f"the bound of rule {nearest.id} ({nearest.metric} {bound.condition}, {nearest.source}). Expected a cap {beyond}, "
        "the worst value that its owner accepts. Move the cap, or remove the waiver"
    )


def could_need(rule: Rule, waiver: Waiver) -> bool:
    """Whether a test may exist that the rule blocks and the waiver covers."""
    if rule.metric != waiver.metric or rule.treatment.tier is not Tier.BLOCK:
        return False
    if bool(rule.where.category) != bool(waiver.where.category):
        return False
    if not (is_listed(rule.where) and is_listed(waiver.where)):
        return True
    measured = [test for test in known_tests() if test.metric == rule.metric]
    together = any(meets(rule.where, rule.unless, test) and meets(waiver.where, None, test) for test in measured)
    return together or not measured


def meets(where: Scope, unless: Scope | None, test: MetricKey) -> bool:
    """Whether a test of some model, dataset and category may be in a scope."""
    excluded = unless is not None and not (unless.model or unless.dataset or unless.category) and unless.matches(test)
    return replace(where, model=(), dataset=(), category=()).matches(test) and not excluded


def is_listed(where: Scope) -> bool:
    """Whether each glob about settings matches a known test; other globs are about numbers and compositions."""
    return all(
        any(replace(Scope(), **{field: (glob,)}).matches(test) for test in known_tests())
        for field in ("setting", "family", "level")
        for glob in getattr(where, field)
    )
