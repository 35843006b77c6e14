"""The inputs of a run: models, data, policies and directories from the options, each opened on first use."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import BY_AGE, UnknownName, UsageError, typed_path

from .options import COMMON, RERUN, Settings, data_directory

if TYPE_CHECKING:
    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.evaluation.after.rerun import Rerun
    from pytest_vlmrobust.evaluation.judge.baseline import Baseline
    from pytest_vlmrobust.evaluation.run.clock import Clock
    from pytest_vlmrobust.evaluation.run.data import RunData
    from pytest_vlmrobust.evaluation.run.directories import RunDirectories
    from pytest_vlmrobust.evaluation.run.filling import Shard
    from pytest_vlmrobust.policies import Policy
    from pytest_vlmrobust.reporting import Command

MAIN = "main"
"""The process that reports: pytest without xdist, and with it its controller."""


@dataclass
class Inputs:
    """The objects behind the options of one run, in one process."""

    settings: Settings
    invocation: Path
    """The directory where pytest was called."""
    run_id: str
    days_of_controller: Sequence[str] = ()
    """The two days of the clock as a controller of xdist sent them to this worker."""
    baseline_of_controller: str = ""
    """The directory of the baseline as it sent it: another run may end in between, and ``latest`` name that."""
    worker: str = MAIN
    """The process: ``MAIN``, or a worker of xdist by its name there."""
    workers: int = 1
    """How many processes ask at the same time."""
    started: float = field(default_factory=time.time)
    """Start of the run in seconds since 1970; workers get it from the controller."""
    command: Command | None = None
    """The command line of pytest, for commands that rerun tests."""
    rerun: Rerun | None = None
    """The tests of an earlier run to run again, if ``--vlm-rerun`` selects them."""

    @property
    def controls(self) -> bool:
        """Whether this process reports: true without xdist and on its controller, false on its workers."""
        return self.worker == MAIN

    @property
    def only_plans(self) -> bool:
        """Whether the run only prints its plan."""
        return self.settings.vlm_plan and bool(self.settings.vlm)

    @property
    def only_fills(self) -> bool:
        """Whether the run only asks, and judges nothing."""
        return self.settings.vlm_fill and bool(self.settings.vlm) and not self.only_plans

    @cached_property
    def shard(self) -> tuple[Shard, str]:
        """The part of the questions of a filling run, and the environment variable that sets it, if any."""
        from pytest_vlmrobust.evaluation.run.filling import Shard

        typed = self.settings.vlm_shard
        return (Shard.parse(typed), "") if typed else Shard.of_scheduler()

    @cached_property
    def directories(self) -> RunDirectories:
        """The directories of the run."""
        from pytest_vlmrobust.evaluation.run.directories import RunDirectories

        settings = self.settings
        return RunDirectories(
            self.run_id,
            self.invocation,
            self._path(settings.vlm_store, "--vlm-store"),
            offline=settings.vlm_offline,
            report_given=settings.vlm_report,
            baseline_given=self.baseline_of_controller or settings.vlm_baseline,
            network_store=settings.vlm_network_store,
        )

    @cached_property
    def models(self) -> dict[str, ModelRef]:
        """The models by their name in test ids."""
        from pytest_vlmrobust.backends import model_ids, resolve

        names = self.settings.vlm
        models_file = self._path(self.settings.vlm_models, "--vlm-models") if self.settings.vlm_models else None
        dtype = self.settings.vlm_dtype or None
        return {
            short: resolve(name, models_file=models_file, dtype=dtype, answer=self.settings.vlm_answer)
            for short, name in zip(model_ids(names), names, strict=True)
        }

    @cached_property
    def data(self) -> RunData:
        """The datasets of the run."""
        from pytest_vlmrobust.evaluation.run.data import SMALL_EDGE, RunData

        small = all(ref.trained_long_edge is not None and ref.trained_long_edge <= SMALL_EDGE for ref in self.models.values())
        given = data_directory(self.settings)
        folder = self._path(given, "--vlm-data") if given else None
        return RunData(self.settings.vlm_dataset, folder, small=small, sample=self.settings.vlm_sample)

    @cached_property
    def clock(self) -> Clock:
        """The date of the run, used for waivers, and any sign that it is wrong."""
        from pytest_vlmrobust.evaluation.judge.scopes import policy_files
        from pytest_vlmrobust.evaluation.run.clock import Clock

        if self.days_of_controller:
            today, latest = map(date.fromisoformat, self.days_of_controller)
            return Clock(today, latest)
        files = [file for ref in self.models.values() for file in policy_files(ref, self.settings.vlm_thresholds, self._path)]
        return Clock.of(self.directories.earlier, self.directories.store, files)

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """The policy of each model."""
        from pytest_vlmrobust.evaluation.judge.scopes import policy_for
        from pytest_vlmrobust.policies import Mode

        settings = self.settings
        policies = {
            name: policy_for(ref, settings.vlm_thresholds, self._path, self.invocation).as_of(self.clock.latest)
            for name, ref in self.models.items()
        }
        if not settings.vlm_mode:
            return policies
        return {name: dataclasses.replace(policy, mode=Mode(settings.vlm_mode)) for name, policy in policies.items()}

    @cached_property
    def reference(self) -> str | None:
        """The model whose errors normalise the mean corruption error; ``None``: the gated model without images."""
        name = self.settings.vlm_reference
        if name == "no_image":
            return None
        if name not in self.models:
            raise UnknownName("reference model", name, [*self.models, "no_image"], where="--vlm-reference")
        return name

    @cached_property
    def baseline(self) -> Baseline | None:
        """The earlier run that cells are compared with."""
        from pytest_vlmrobust.evaluation.judge.baseline import Baseline
        from pytest_vlmrobust.evaluation.run.evidence import newest_runs

        if not self.settings.vlm_baseline:
            return None
        directory = self.directories.baseline
        if self.settings.vlm_update_baseline and not directory.exists():
            return None  # the first one
        known = [run.name for run in newest_runs(self.directories.earlier)]
        baseline = Baseline.open(directory, common=self.settings.vlm_baseline_samples == COMMON, known=known)
        if baseline.stopped_early:
            baseline.close()
            raise UsageError(
                f"--vlm-baseline {self.settings.vlm_baseline}: tests of that run stopped early (adaptive mode), and a part of "
                "the answers is no baseline. Make one with --vlm-mode=full: answers that are in the store are not asked for again"
            )
        for name in self.models:
            baseline.model(name)
        return baseline

    @cached_property
    def grids(self) -> tuple[int, ...]:
        """How many patches on a side the suite of patches cuts images into."""
        from pytest_vlmrobust.evaluation.run.plan import read_grids

        return read_grids(self.settings.vlm_patches)

    def refuse_partial_baseline(self) -> None:
        """Refuses to replace a baseline by a run that may stop early: later runs would be compared with a part of the samples."""
        from pytest_vlmrobust.policies import Mode

        stopping = [name for name, policy in self.policies.items() if policy.mode is Mode.ADAPTIVE]
        if self.settings.vlm_update_baseline and self.settings.vlm_baseline in BY_AGE:
            raise UsageError(
                f"--vlm-update-baseline with --vlm-baseline={self.settings.vlm_baseline}: that names another run after each one. "
                "Name a directory for the baseline"
            )
        if self.settings.vlm_update_baseline and stopping:
            raise UsageError(
                f"--vlm-update-baseline: the policy of {', '.join(stopping)} is adaptive, and a run that stops early is no "
                "baseline. Add --vlm-mode=full: answers that are in the store are not asked for again"
            )

    def choose_rerun(self, sent: Mapping[str, object] | None = None) -> None:
        """Selects the tests for ``--vlm-rerun``; a worker gets them from its controller."""
        from pytest_vlmrobust.evaluation.after.rerun import Rerun, find_rerun

        if sent is not None:
            self.rerun = Rerun.at_worker(sent)
        elif verdicts := self.settings.vlm_rerun:
            self.rerun = find_rerun(verdicts, RERUN[verdicts], list(self.models), self.directories.earlier)

    def _path(self, text: str, option: str = "--vlm-thresholds") -> Path:
        return typed_path(text, self.invocation, given_as=option)
