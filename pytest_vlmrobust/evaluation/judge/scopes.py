"""Which thresholds hold for which model, and what the scopes of their rules can be about."""

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
from pytest_vlmrobust.core.cell import CLEAN_NAME, NO_IMAGE_NAME, Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.errors import PolicyError, SettingError, UnknownName, did_you_mean
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.run.plan import LADDER, PATCHES, expand_settings
from pytest_vlmrobust.evaluation.run.resolutions import PREPROCESSING
from pytest_vlmrobust.perturbations.catalog import OFFERED_GRIDS as GRIDS
from pytest_vlmrobust.perturbations.catalog import SETS
from pytest_vlmrobust.perturbations.registry import REGISTRY
from pytest_vlmrobust.policies import NO_LEVEL, JudgedTest, Scope
from pytest_vlmrobust.shipped import shipped

from .measurements import Asked, judged_tests

if TYPE_CHECKING:
    from pytest_vlmrobust.policies import MetricFacts, Policy, Rule


# Which thresholds hold for which model.


DEFAULT = "default"
_ABOUT = {
    "box_coverage": "The share of the boxes asked for that an answer gives, right or wrong, on pictures under one setting.",
    "corpus_drop": "What the dataset's own metric loses from clean pictures to a setting, where that is no mean of scores.",
    "corpus_pcri": "One less the dataset's own metric of the best patches over that of whole pictures.",
    "corpus_score": "The dataset's own metric (F1, CIDEr, accuracy over groups of questions), where that is no mean of scores.",
    "fixation_rate": "The share of pictures for which a model names the same cell of a grid wherever they stand.",
    "grid_distance": "How many cells a wrong answer is away from the target in a grid.",
    "label_preserving_drop": "The accuracy drop over the samples whose answer the setting leaves right.",
    "preprocessing_gain": "What a small picture gains when it is padded or enlarged before the model sees it.",
    "unparsed_increase": "How many more answers cannot be read under a setting than on clean pictures; of written answers alone.",
}
"""What the evaluation measures beside registered metrics, and rules may bound."""


def policy_for(ref: ModelRef, given: Sequence[str], path: Callable[[str], Path], root: Path) -> Policy:
    """Returns the policy of a model: the files given, else the one its record names, else the default.

    Raises:
        PolicyError: a file that is absent or cannot be honoured.
        UnknownName: a rule about a metric that does not exist.
    """
    from pytest_vlmrobust.metrics.registry import AMBIGUOUS
    from pytest_vlmrobust.policies import load_policy

    files = tuple(thresholds_file(name, path) for name in given or (ref.policy or DEFAULT,))
    return load_policy(files, known_metrics=known_metrics(), ambiguous=AMBIGUOUS, root=root)


def thresholds_file(name: str, path: Callable[[str], Path], *, said: str = "--vlm-thresholds") -> Path:
    """Returns the file that ``name`` means: a path, or the name of a shipped policy; ``said`` is where the name was given.

    Raises:
        PolicyError: there is no such file, and no shipped policy of that name.
    """
    from pytest_vlmrobust.shipped import shipped

    file = path(name)
    own = path(f"thresholds/{name}.yaml")  # what `vlmrobust init` copied, and somebody may have tightened
    for candidate in (file, own):
        if candidate.is_file():
            return candidate
    offered = {entry.stem: entry for entry in sorted(shipped("thresholds").glob("*.yaml"))}
    if name in offered:
        return offered[name]
    raise PolicyError(
        f"{said} {name!r}: there is no file {str(file)!r}, and no shipped policy of that name."
        f"{did_you_mean(name, offered)} Shipped: {', '.join(offered)}"
    )


def is_relative(rule: Rule) -> bool:
    """Whether a rule compares with an earlier run."""
    from pytest_vlmrobust import metrics

    from .measurements import BASELINE

    return rule.metric in metrics.names() and metrics.get(rule.metric).suite == BASELINE


def is_summary(rule: Rule) -> bool:
    """Whether a rule bounds a property of one model over many settings, whatever other runs or models there are."""
    from pytest_vlmrobust import metrics

    from .families import MACRO

    name = rule.metric.removesuffix(MACRO)
    return name in metrics.names(scope="sweep") and not is_relative(rule)


def shows_looking(rule: Rule) -> bool:
    """Whether a rule asks that a model answers better with the pictures than without: else its robustness says nothing."""
    return rule.metric == "visual_gain"


def beside_metrics() -> dict[str, str]:
    """Returns what rules may bound and no registered metric is: name to what it is, with its facts."""
    found = {}
    for name, about in _ABOUT.items():
        facts = known_metrics()[name]
        low, high = (f"{end:g}".replace("inf", "∞") for end in facts.bounds)
        better = "neither is better" if facts.better == "none" else f"{facts.better} is better"
        found[name] = f"{about} Of one setting; {facts.unit}, {low} … {high}; {better}."
    return found


@cache
def known_metrics() -> dict[str, MetricFacts]:
    """Returns what rules may be about: registered metrics, and what the evaluation computes beside them.

    That is the drop over label-preserving samples, a data set's own metric, metrics on the mean curve of categories, what
    preprocessing gains, properties of families of models, and what the Observatory counts beside scores.
    """
    from pytest_vlmrobust import metrics
    from pytest_vlmrobust.policies import MetricFacts

    from .corpus import CORPUS_DROP, CORPUS_PCRI, CORPUS_SCORE
    from .families import MACRO, has_macro
    from .measurements import (
        BASELINE,
        LABEL_PRESERVING_DROP,
        OBSERVATORY,
        PREPROCESSING_GAIN,
        UNPARSED_INCREASE,
    )
    from .observatory import COVERAGE, DISTANCE, FIXATION

    records = {name: metrics.get(name) for name in metrics.names()}
    facts = {
        name: MetricFacts(
            record.unit,
            record.better,
            record.scope,
            record.interval is not None,
            split=record.suite in (OBSERVATORY, BASELINE),
            bounds=record.bounds,
        )
        for name, record in records.items()
    }
    families = {
        name: MetricFacts(record.unit, record.better, "sweep", split=True, bounds=record.bounds)
        for name, record in metrics.FAMILY_METRICS.items()
    }
    beside = {
        FIXATION: MetricFacts("fraction", "lower", "cell", bounds=(0.0, 1.0)),
        COVERAGE: MetricFacts("fraction", "higher", "cell", bounds=(0.0, 1.0)),
        DISTANCE: MetricFacts("cells", "lower", "cell", bounds=(0.0, math.inf)),
    }
    own = {
        CORPUS_SCORE: MetricFacts("benchmark's own", "higher", "cell"),
        CORPUS_DROP: MetricFacts("benchmark's own", "lower", "cell"),
        CORPUS_PCRI: MetricFacts("ratio", "none", "cell", bounds=facts["pcri"].bounds),
    }
    macro = {
        f"{name}{MACRO}": MetricFacts(record.unit, record.better, record.scope, interval=False, bounds=record.bounds)
        for name, record in records.items()
        if has_macro(record)
    }
    own[UNPARSED_INCREASE] = MetricFacts("fraction", "lower", "cell", bounds=(-1.0, 1.0))
    own[PREPROCESSING_GAIN] = MetricFacts("fraction", "higher", "cell", bounds=(-1.0, 1.0))
    return {**facts, LABEL_PRESERVING_DROP: facts["accuracy_drop"], **own, **macro, **families, **beside}


# Known names: the settings, families and levels that a scope can be about, and which of its globs are about none of them.


_SETS = (*SETS, LADDER, PATCHES, PREPROCESSING)
"""Sets of settings, which a summary metric may be taken over."""
_LARGEST = 4096
"""Levels that are numbers are tried up to this one."""
_FIELDS = ("setting", "family", "level")


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What the fields of a scope about settings can match; models, data sets and categories may be called anything."""

    settings: frozenset[str]
    families: frozenset[str]
    levels: frozenset[str]

    @classmethod
    def of(cls, tests: Iterable[JudgedTest] = ()) -> KnownNames:
        """Returns the names of everything that is registered, and of the tests of a run."""
        planned = list(tests)
        listed = [perturbations.info(name) for name in _registered()]
        return cls(
            frozenset((*_SETS, CLEAN_NAME, NO_IMAGE_NAME, *_registered(), *(test.setting for test in planned))),
            frozenset((*(about.family for about in listed), *(test.family for test in planned))) - {""},
            frozenset((*(about.level or NO_LEVEL for about in listed), *(test.level or NO_LEVEL for test in planned))),
        )

    def unknown_globs(self, scope: Scope) -> list[str]:
        """Returns, a sentence for each, the globs that match nothing that is known, with the nearest that does."""
        found = []
        for field in _FIELDS:
            for glob in getattr(scope, field):
                if not self._is_known(field, glob):
                    near = did_you_mean(glob, self._spellings(field, glob))
                    found.append(f"{field} {glob!r} matches no {field} that is known.{near}")
        return found

    def _is_known(self, field: str, glob: str) -> bool:
        scope = replace(Scope(), **{field: (glob,)})
        known = {"setting": self.settings, "family": self.families, "level": self.levels}[field]
        tests = (_test(field, name) for name in known)
        if any(scope.matches(test) for test in tests) or (field != "family" and _is_number(field, glob)):
            return True
        parts = glob.split("+") if field != "level" else [glob]  # several settings in a row are called like all of them
        return len(parts) > 1 and all(self._is_known(field, part) for part in parts)

    def _spellings(self, field: str, glob: str) -> Iterable[str]:
        if field == "setting":
            return self.settings if ":" in glob else {name.partition(":")[0] for name in self.settings}
        return self.families if field == "family" else self.levels


def _test(field: str, name: str) -> JudgedTest:
    about: dict[str, Any] = {field: name}
    return JudgedTest("", "", "", **about)


@cache
def _composed() -> tuple[str, ...]:
    return tuple(map(str, expand_settings([PREPROCESSING])))


def _registered() -> list[str]:
    return [*perturbations.names("all"), *_composed()]


def _is_number(field: str, glob: str) -> bool:
    """Whether a glob admits a setting that is not listed: one with a number for its level, or several in a row."""
    if field == "setting" and _is_setting(glob):
        return True
    scope = replace(Scope(), **{field: (glob,)})
    numbered = [record for record in map(REGISTRY.get, REGISTRY.names()) if record.numbered]
    return any(
        scope.matches(JudgedTest("", "", "", f"{record.name}:{number}", record.family, str(number)))
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


# Known tests: what the shipped suites measure, read from their marks without running them, and what each setting could be.


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
