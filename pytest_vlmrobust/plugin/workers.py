"""Workers of pytest-xdist: what goes to them, what comes back, and how models are shared out over them."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_vlmrobust.core.conversion import to_plain
from pytest_vlmrobust.core.decision import EXIT_CODES, Decision
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.words import on_one_line

from .outcome import PRINTING, raised_in
from .run import RUN, Run

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_LOOK_SECONDS = 1.0
"""How often a worker looks whether its controller is still there."""


def end_with_controller() -> None:
    """Makes a worker end once its controller is gone: nobody takes its records, and its model would keep the device.

    A worker that computes does not notice by itself that nobody listens any more.
    """
    controller = os.getppid()

    def watch() -> None:
        while os.getppid() == controller:
            time.sleep(_LOOK_SECONDS)
        os._exit(EXIT_CODES[Decision.INCOMPLETE])

    threading.Thread(target=watch, name="vlm-controller", daemon=True).start()


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None]:
    """Says that a worker died while xdist started it; of xdist that is an internal error, before any hook at the end of a run."""
    try:
        return (yield)
    except (EOFError, OSError) as error:
        if not session.config.stash[RUN].inputs.settings.vlm or raised_in(error, PRINTING):
            raise
        said = f"{Decision.INCOMPLETE}: a worker of pytest-xdist died while it was started ({error}). Run it again"
    pytest.exit(said, returncode=EXIT_CODES[Decision.INCOMPLETE])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker which run it belongs to, how pytest was called, and which tests run again."""
    run = node.config.stash[RUN]
    node.workerinput["vlm_run_id"] = run.inputs.run_id
    node.workerinput["vlm_started"] = run.inputs.started
    settings = run.inputs.settings
    days = (run.inputs.clock.today, run.inputs.clock.latest) if settings.vlm else ()  # a run without models loads no policies
    node.workerinput["vlm_days"] = [day.isoformat() for day in days]
    compares = settings.vlm and settings.vlm_baseline
    node.workerinput["vlm_baseline"] = str(run.inputs.directories.baseline) if compares else ""
    node.workerinput["vlm_command"] = to_plain(run.inputs.command) if run.inputs.command else {}
    node.workerinput["vlm_rerun"] = run.inputs.rerun.to_worker() if run.inputs.rerun else {}


def tell_controller(config: pytest.Config) -> None:
    """Tells the controller, at the end of a worker, what it knows about tests and models and the controller does not."""
    run = config.stash[RUN]
    selection = run.evaluation.selection
    config.workeroutput.update(  # type: ignore[attr-defined]  # xdist's
        vlm_selection={
            "planned": selection.planned,
            "selected": selection.selected,
            "narrowed": selection.narrowed,
            "notes": list(selection.notes),
            "idle": list(selection.idle),
        },
        vlm_refused=str(selection.refusal or ""),
        vlm_models=json.dumps(run.evaluation.how_models_ran()),
        vlm_changes=[] if run.results.stopped else [*run.results.model_changes(), *run.results.losses()],
        vlm_files=[list(file) for file in run.evaluation.open_files],
        vlm_written={str(path): sha256 for path, sha256 in run.evaluation.written.items()},
    )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - the hook's argument
    """Takes what a worker reports at its end; a worker that died reports nothing."""
    output = getattr(node, "workeroutput", {})
    run = node.config.stash[RUN]
    selection = run.evaluation.selection
    if "vlm_models" in output:
        run.results.workers_said[node.gateway.id] = json.loads(output["vlm_models"])
    run.results.workers_noticed += output.get("vlm_changes", [])
    run.evaluation.workers_files |= {tuple(file) for file in output.get("vlm_files", [])}
    run.evaluation.written |= {Path(path): sha256 for path, sha256 in output.get("vlm_written", {}).items()}
    if "vlm_selection" in output:
        selection.update_from_worker(**output["vlm_selection"])
    if output.get("vlm_refused"):
        selection.refuse(UsageError(output["vlm_refused"]), at_worker=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Tells the controller, which collects nothing, how many gated tests there seem to be, until workers report it."""
    run = node.config.stash[RUN]
    is_first = not run.evaluation.selection.selected
    run.evaluation.selection.set_expected(sum(scope_of(run, nodeid) != nodeid for nodeid in ids))
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    if run.evaluation.selection.selected and is_first and reporter is not None:
        for warning in [*run.evaluation.suite_warnings(ids), *_rule_warnings(run, ids)]:
            reporter.write_line(on_one_line(f"vlm: warning: {warning}", None))


def _rule_warnings(run: Run, ids: Iterable[str]) -> list[str]:
    """Returns warnings about rules, for files named like shipped suites; the controller reads no others."""
    from pytest_vlmrobust.evaluation.judge.scopes import tests_of_suites
    from pytest_vlmrobust.policies import suites_of

    return run.evaluation.rule_warnings(
        tests_of_suites(suites_of(ids), run.inputs.models, run.inputs.data, baseline=bool(run.inputs.settings.vlm_baseline))
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups tests by model when several are gated, so that weights load once per worker; speed only, never a verdict.

    The choice of ``--dist`` stands where the user made one that groups already.
    """
    run = config.stash[RUN]
    if len(run.inputs.settings.vlm) < 2 or config.getoption("dist") not in ("load", "loadgroup"):
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ModelScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is optional and untyped here
        """One scope per model."""

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(run, nodeid)

    return ModelScheduling(config, log)


def scope_of(run: Run, nodeid: str) -> str:
    """Returns the model whose test ``nodeid`` is, or the node id itself for any other test."""
    about = nodeid.rpartition("[")[2]
    owners = [name for name in run.inputs.models if about.startswith(f"{name}-")]
    return max(owners, key=len, default=nodeid)
