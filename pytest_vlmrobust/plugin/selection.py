"""Selection: from marks to a test per cell and summary metric, in a fixed order; then the tests to run."""

from __future__ import annotations

import os
import shlex
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import UnknownName, UsageError, VlmRobustError
from pytest_vlmrobust.evaluation.run.selection import SelectedTest

from .run import RUN, Run

if TYPE_CHECKING:
    from pytest_vlmrobust.core.cell import Planned

FIXTURES = ("vlm_cell", "vlm_sweep", "vlm_family")
NO_MODEL = (
    "these suites gate a vision-language model, and none was named. Say which with --vlm=NAME; "
    "--vlm=tiny runs the embedded reference model, offline, in about four minutes on a CPU"
)


@dataclass
class _Collected:
    """Facts about this process's collection."""

    nodes: set[str] = field(default_factory=set)
    """Node ids of files and classes that were collected."""
    left_out: dict[str, pytest.Collector] = field(default_factory=dict)
    """Classes of collected files that were not collected, by node id, because the arguments name other tests."""
    empty: set[str] = field(default_factory=set)
    """Test functions without data in this run, such as those about identities if only questions were named."""


_COLLECTED: pytest.StashKey[_Collected] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Records which classes are collected, and which a test id such as ``FILE::TestOne`` leaves out."""
    report = yield
    collected = _collection_of(collector.config)
    collected.nodes.add(collector.nodeid)
    collected.left_out.pop(collector.nodeid, None)
    classes = [node for node in report.result or () if isinstance(node, pytest.Class)]
    collected.left_out |= {node.nodeid: node for node in classes if node.nodeid not in collected.nodes}
    return report


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrises tests that ask for ``vlm_cell``, ``vlm_sweep`` or ``vlm_family``."""
    fixture = next((name for name in FIXTURES if name in metafunc.fixturenames), None)
    if fixture is None:
        return
    run = metafunc.config.stash[RUN]
    planned: Sequence[Planned] = ()
    try:
        planned = plan(run, metafunc.definition, fixture)
    except VlmRobustError as error:
        run.evaluation.selection.refuse(error)
    run.evaluation.selection.add(planned)
    if not planned:
        _collection_of(metafunc.config).empty.add(metafunc.definition.nodeid)
    metafunc.parametrize(fixture, planned, ids=list(map(str, planned)), indirect=True)


PLUGINS_REFUSED = {
    "splits": "--splits (pytest-split) leaves tests out, so no part can be GO. To share a gate between machines, "
    "give each --vlm-fill --vlm-shard I/N, and join the stores by vlmrobust merge",
    "forked": "--forked or @pytest.mark.forked (pytest-forked) runs a test in a separate process, where its answers and its "
    "verdict are lost. Leave it out, or use -n N (pytest-xdist), whose workers send them back",
}
"""Options of other plugins that are incompatible with a gate, and what to do; a mark of that name affects a single test."""
_REPETITION = "__pytest_repeat_step_number"
"""The parameter by which pytest-repeat numbers the repetitions of a test."""
CHECK_OF_A_METRIC = "vlm_metric_check"
"""The keyword of tests that check a metric on this installation."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks a check of a metric by a keyword, which travels with its reports."""
    if "vlm_check_memory" in getattr(item, "fixturenames", ()):
        item.keywords[CHECK_OF_A_METRIC] = True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses what could not be planned, and records what was selected."""
    run, collected = config.stash[RUN], _collection_of(config)
    selection = run.evaluation.selection
    if any(map(is_gated, items)):
        _plan_left_out(run, collected)
    items[:] = [item for item in items if item.nodeid.partition("[")[0] not in collected.empty and not _is_repeated(item)]
    if selection.plan and selection.refusal is None:
        try:
            _refuse_shared_ids(config, filter(is_gated, items))
            tests = [selected_test(item) for item in items if is_gated(item)]
            run.evaluation.tests.check(tests, run.inputs.baseline, run.inputs.settings.vlm_seed, run.inputs.clock.today)
            if not config.option.collectonly:
                for name, reason in PLUGINS_REFUSED.items():
                    given = config.getoption(name, default=None)  # None: the plugin is not installed
                    if given or (given is not None and any(is_gated(item) and item.get_closest_marker(name) for item in items)):
                        raise UsageError(reason)
                run.inputs.data.check_scoring((test.about.dataset for test in tests), run.inputs.settings.vlm_sample)
                run.evaluation.tests.check_slices()
        except VlmRobustError as error:
            selection.refuse(error)
    if selection.refusal is not None:
        if run.inputs.controls:
            raise pytest.UsageError(str(selection.refusal)) from None
        items.clear()  # a worker cannot refuse: it runs nothing and tells its controller
    if run.inputs.rerun is not None:
        _deselect(config, items, [item for item in items if not run.inputs.rerun.includes(item.nodeid)])
    tests = [selected_test(item) for item in items if is_gated(item)]
    datasets = list(dict.fromkeys(test.about.dataset for test in tests))
    idle = [(name, setting) for name in datasets for setting in run.inputs.data.idle(name)]
    selection.select(tests, run.inputs.data.notes(datasets) if tests else [], idle)


def plan(run: Run, definition: pytest.Item, fixture: str) -> Sequence[Planned]:
    """Returns the subjects of a test function; empty if the run has no data or models of its kind."""
    if not run.inputs.settings.vlm:
        raise UsageError(NO_MODEL)
    from pytest_vlmrobust.evaluation.run.plan import plan_cells, plan_families, plan_sweeps

    models, datasets = run.inputs.models, _datasets(run, definition)
    if fixture == "vlm_cell":
        names = _required_arguments(definition, "vlm_settings")
        settings = {dataset: run.evaluation.tests.expand_settings(names, dataset) for dataset in datasets}
        changes = run.inputs.data.changes
        return plan_cells(
            list(models), {name: [setting for setting in chosen if changes(name, setting)] for name, chosen in settings.items()}
        )
    metrics, splits = _required_arguments(definition, "vlm_metrics"), _arguments(definition, "vlm_splits") or [""]
    if fixture == "vlm_family":
        return plan_families(models, datasets, metrics, splits)
    for dataset in datasets:
        run.evaluation.tests.expand_settings(_names(definition, splits[0]), dataset)  # refuses a misspelt name now
    return plan_sweeps(models, datasets, metrics, splits, baseline=run.inputs.baseline is not None)


def selected_test(item: pytest.Item) -> SelectedTest:
    """Returns a gated test with the settings named in its marks."""
    about = about_of(item)
    split = getattr(about, "split", None)  # a cell has none
    return SelectedTest(item.nodeid, about, () if split is None else tuple(_names(item, split)))


def about_of(item: pytest.Item) -> Planned:
    """Returns the subject of a gated test."""
    params = getattr(item, "callspec").params  # noqa: B009 - not declared on Item
    planned: Planned = next(params[name] for name in FIXTURES if name in params)
    return planned


def is_gated(item: pytest.Item) -> bool:
    """Whether a test is gated."""
    return bool(set(FIXTURES) & set(getattr(item, "fixturenames", ())))


def _is_repeated(item: pytest.Item) -> bool:
    """Whether a gated test repeats another, so that its verdict would count twice."""
    return is_gated(item) and bool(getattr(item, "callspec").params.get(_REPETITION))  # noqa: B009 - not declared on Item


def _refuse_shared_ids(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Refuses tests that share an id: a verdict could not be told from the other one."""
    paths: dict[str, Path] = {}
    for item in items:
        other = paths.setdefault(item.nodeid, item.path)
        if other != item.path:
            common = shlex.quote(os.path.commonpath([config.rootpath, other, item.path]))
            raise UsageError(
                f"{item.nodeid!r} is the id of two tests, in {other} and in {item.path}: ids have no path for files outside of "
                f"pytest's rootdir {config.rootpath}. Add --rootdir={common}"
            )


def _collection_of(config: pytest.Config) -> _Collected:
    return config.stash.setdefault(_COLLECTED, _Collected())


def _plan_left_out(run: Run, collected: _Collected) -> None:
    """Plans the tests of classes that no argument names, as pytest itself does with functions: a part of a file is a part."""
    while collected.left_out:
        node = next(iter(collected.left_out.values()))
        report = node.ihook.pytest_make_collect_report(collector=node)
        if report.failed:
            run.evaluation.selection.mark_incomplete(f"a test id (of a file whose {node.name} cannot be collected)")


def _deselect(config: pytest.Config, items: list[pytest.Item], left_out: Sequence[pytest.Item]) -> None:
    if left_out:
        without = set(left_out)
        items[:] = [item for item in items if item not in without]
        config.hook.pytest_deselected(items=left_out)


def _datasets(run: Run, definition: pytest.Item) -> list[str]:
    """Returns the datasets of a test function: its tasks on collections, or the datasets of questions."""
    tasks = _arguments(definition, "vlm_tasks")
    if not tasks:
        return list(run.inputs.data.questions)
    from pytest_vlmrobust.evaluation.tasks import TASKS

    for task in tasks:
        if task not in TASKS:
            raise UnknownName("task", task, TASKS, where=definition.nodeid)
    return list(run.inputs.data.of_tasks(tasks))


def _names(definition: pytest.Item, split: str) -> list[str]:
    """Returns the names of a summary metric's settings: its split, or the names in the test's mark."""
    return [split] if split else _required_arguments(definition, "vlm_settings")


def _required_arguments(definition: pytest.Item, mark: str) -> list[str]:
    """Returns the arguments of a test's marks of one name."""
    names = _arguments(definition, mark)
    if not names:
        raise UsageError(f"{definition.nodeid}: the test lacks @pytest.mark.{mark}(...), which says what it is about")
    return names


def _arguments(definition: pytest.Item, mark: str) -> list[str]:
    return [str(name) for marker in definition.iter_markers(mark) for name in marker.args]
