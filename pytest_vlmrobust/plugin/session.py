"""The beginning and the end of a run: what was asked for is checked at once, and what was opened is freed."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest

from pytest_vlmrobust.core.errors import VlmRobustError

from .command import command_at_worker, command_of
from .gate import Gate
from .options import Settings
from .planning import without_workers
from .progress import ProgressDisplay
from .repeating import check_repeating
from .rerun import Rerun, find_rerun
from .stash import GATE


def usage_error(error: VlmRobustError) -> pytest.UsageError:
    """Returns what makes pytest print one line and exit with 4."""
    return pytest.UsageError(str(error))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks and reads the settings; what the user named is checked at once when a model is."""
    config.addinivalue_line(
        "markers", "vlm_settings(*names): settings, or sets of them such as robustbench, of a vlm_cell or vlm_sweep test"
    )
    config.addinivalue_line("markers", "vlm_metrics(*names): summary metrics of a vlm_sweep or vlm_family test")
    config.addinivalue_line(
        "markers", "vlm_splits(*names): settings, or sets of them, that each summary metric is taken over one by one"
    )
    config.addinivalue_line("markers", "vlm_tasks(*names): what is asked of collections of identities, in place of questions")
    from .outcome import Collector

    given = getattr(config, "workerinput", {})
    gate = Gate(Settings.from_config(config), config.rootpath, config.invocation_params.dir, str(given.get("workerid", "main")))
    gate.run_id = str(given.get("vlm_run_id", gate.run_id))  # one run, one directory, whoever works on it
    config.stash[GATE] = gate
    gate.narrowed = "--lf" if config.getoption("lf", default=False) else ""
    if gate.settings.vlm:
        gate.command = command_of(config) if gate.controls else command_at_worker(given["vlm_command"])
        if gate.settings.vlm_plan:
            without_workers(config)
        # what a data set notes about itself must reach the reader, and not end a run whose other warnings are errors
        config.addinivalue_line("filterwarnings", "default::pytest_vlmrobust.datasets.files.DatasetWarning")
        check_report_directory(gate)
        check_baseline(gate)
        config.pluginmanager.register(Collector(gate), "vlmrobust-collector")
        gate.display = ProgressDisplay.for_run(config, reports=gate.controls)
        try:
            check_repeating(gate)
            gate.check()
            gate.rerun = find_rerun(gate) if gate.controls else Rerun.at_worker(given["vlm_rerun"])
        except VlmRobustError as error:
            raise usage_error(error) from None


def check_report_directory(gate: Gate) -> None:
    """Makes the report directory now: to find out at the end of a long run that it cannot be written would be late.

    Raises:
        pytest.UsageError: it cannot be made.
    """
    if gate.settings.vlm_report and gate.controls:
        directory = gate.invocation / gate.settings.vlm_report
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError(f"--vlm-report {str(directory)!r}: cannot make the directory: {error.strerror}") from None


def check_baseline(gate: Gate) -> None:
    """Refuses to replace a baseline where nobody looks.

    Raises:
        pytest.UsageError: in continuous integration, or without a place for it.
    """
    if not gate.settings.vlm_update_baseline:
        return
    if os.environ.get("CI"):
        raise pytest.UsageError(
            "--vlm-update-baseline is refused where the environment variable CI is set: a gate must not move its own bar. "
            "Run it by hand, look at the report, and commit the baseline"
        )
    if not gate.settings.vlm_baseline:
        raise pytest.UsageError("--vlm-update-baseline needs --vlm-baseline DIR, which says where the baseline is")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Frees what was opened."""
    gate = config.stash.get(GATE, None)
    if gate is not None:
        gate.close()


def ids_of(names: Sequence[object]) -> list[str]:
    """Returns test ids; never parsed back."""
    return [str(name) for name in names]
