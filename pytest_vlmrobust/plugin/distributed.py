"""With pytest-xdist: the run's name goes to the workers, and each worker keeps to one model as long as it can."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vlmrobust.core.errors import UsageError

from .stash import GATE
from .summary import too_few_samples

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_vlmrobust.policies import JudgedTest

    from .gate import Gate


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker which run it belongs to, how pytest was called, and which tests run again."""
    gate = node.config.stash[GATE]
    node.workerinput["vlm_run_id"] = gate.run_id
    node.workerinput["vlm_command"] = gate.command.to_dict() if gate.command else {}
    node.workerinput["vlm_rerun"] = gate.rerun.to_worker() if gate.rerun else {}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Tells the controller, which collects nothing itself, how many gated tests there seem to be; workers tell it at the end."""
    gate = node.config.stash[GATE]
    said, gate.selected = gate.selected, sum(scope_of(gate, nodeid) != nodeid for nodeid in ids)
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    if gate.selected and not said and reporter is not None:
        for warning in too_few_samples(gate, _of_shipped_suites(gate, ids)):
            reporter.write_line(warning)


def _of_shipped_suites(gate: Gate, ids: Iterable[str]) -> dict[str, list[JudgedTest]]:
    """Returns what each model will be judged by in the files that are named as shipped suites: a controller reads no others."""
    from pytest_vlmrobust import metrics
    from pytest_vlmrobust.evaluation.judge.measurements import BASELINE
    from pytest_vlmrobust.evaluation.judge.scopes import ANY, suite_names, whole_suite

    named = dict.fromkeys(PurePath(nodeid.partition("::")[0]).stem.removeprefix("test_") for nodeid in ids)
    tests = [test for name in suite_names() if name in named for test in sorted(whole_suite(name), key=str)]
    if not gate.settings.vlm_baseline:
        comparing = {name for name in metrics.names() if metrics.get(name).suite == BASELINE}
        tests = [test for test in tests if test.metric not in comparing]
    tasks = {test.dataset.partition(".")[2] for test in tests}
    datasets = {f"{ANY}.{task}" if task else ANY: gate.data.of_tasks([task]) if task else gate.data.questions for task in tasks}
    return {
        model: [replace(test, model=model, dataset=name) for test in tests for name in datasets[test.dataset]]
        for model in gate.models
    }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - the hook's argument
    """Tells the controller how many gated tests its workers planned and selected, and what the data note; each knows all."""
    output = getattr(node, "workeroutput", {})
    gate = node.config.stash[GATE]
    if "vlm_counts" in output:
        gate.planned, gate.selected = output["vlm_counts"]
        gate.narrowed = output["vlm_narrowed"] or gate.narrowed
    gate.data_notes = list(dict.fromkeys([*gate.data_notes, *output.get("vlm_notes", ())]))
    if output.get("vlm_refused"):
        gate.refused = UsageError(output["vlm_refused"])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups tests by model when several are gated, so that weights load once per worker; speed only, never a verdict.

    The choice of ``--dist`` stands where the user made one that groups already.
    """
    gate = config.stash[GATE]
    if len(gate.settings.vlm) < 2 or config.getoption("dist") not in ("load", "loadgroup"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ModelScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is optional and untyped here
        """One scope per model."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(gate, nodeid)

    return ModelScheduling(config, log)


def scope_of(gate: Gate, nodeid: str) -> str:
    """Returns the model whose test ``nodeid`` is, or the node id itself for any other test."""
    about = nodeid.rpartition("[")[2]
    owners = [name for name in gate.models if about.startswith(f"{name}-")]
    return max(owners, key=len, default=nodeid)
