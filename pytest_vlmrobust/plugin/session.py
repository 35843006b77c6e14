"""The Gate: what one pytest process knows about its run; models and data are opened only when a test asks."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import StoreError, UsageError, VlmRobustError
from pytest_vlmrobust.core.verdict import EXIT_CODES, Decision, decide

from .options import ENVIRONMENT_DATA, Settings
from .progress import ProgressDisplay
from .stash import GATE

if TYPE_CHECKING:
    from pytest_vlmrobust.backends import Backend
    from pytest_vlmrobust.core.cell import Cell, SweepMetric
    from pytest_vlmrobust.core.model import ModelRef
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.evaluator import Evaluator, Progress
    from pytest_vlmrobust.evaluation.judging import Judge
    from pytest_vlmrobust.policies import Policy
    from pytest_vlmrobust.reporting import RunFacts
    from pytest_vlmrobust.store import Journal


DEFAULT_DATASETS = ("shapes", "words")


@dataclass
class Gate:
    """One run: its settings, and whatever has been opened for it so far.

    ``refused`` is a mistake in what was asked for, found while tests were generated: raised once collection is over, where
    pytest turns it into a usage error.
    """

    settings: Settings
    root: Path
    invocation: Path
    worker: str = "main"
    run_id: str = field(default_factory=lambda: time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}")
    by_test: dict[str, Record] = field(default_factory=dict)
    today: date = field(default_factory=date.today)
    """Waivers expire by local date."""
    refused: VlmRobustError | None = None
    plan: list[Cell | SweepMetric] = field(default_factory=list)
    """What its tests are about, whatever is deselected: a verdict does not depend on which of them run."""
    planned: int = 0
    selected: int = 0
    display: ProgressDisplay | None = None

    @cached_property
    def journal(self) -> Journal:
        """The records of this run on disk, one line each, written as tests end."""
        from pytest_vlmrobust.store import Journal, write_manifest

        directory = self.store_directory / "runs" / self.run_id
        write_manifest(directory, {"run": self.run_id, "planned": self.planned, "selected": self.selected})
        return Journal(directory)

    @property
    def controls(self) -> bool:
        """Whether this process reports: true without xdist and on its controller, false on its workers."""
        return self.worker == "main"

    @cached_property
    def models(self) -> dict[str, ModelRef]:
        """The models by the name that stands in test ids.

        Raises:
            UsageError: a model that cannot be found or described.
        """
        from pytest_vlmrobust.backends import model_ids, resolve

        names = self.settings.vlm
        models_file = self._path(self.settings.vlm_models) if self.settings.vlm_models else None
        dtype = self.settings.vlm_dtype or None
        return {
            short: resolve(name, models_file=models_file, dtype=dtype)
            for short, name in zip(model_ids(names), names, strict=True)
        }

    @cached_property
    def datasets(self) -> dict[str, str]:
        """What the user called each dataset, by the name that stands in test ids; nothing is opened for it.

        Raises:
            UsageError: two datasets would share a name.
        """
        from pytest_vlmrobust.datasets import dataset_id

        found: dict[str, str] = {}
        for name in self.settings.vlm_dataset or DEFAULT_DATASETS:
            short = dataset_id(name)
            if short in found:
                raise UsageError(
                    f"--vlm-dataset {name!r} and {found[short]!r} would both be called {short!r} in test ids. "
                    "Give each dataset once, or rename one of the files"
                )
            found[short] = name
        return found

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """The policy of each model.

        Raises:
            UsageError: a thresholds file that cannot be read or honoured.
        """
        from pytest_vlmrobust.evaluation.policy_files import policy_for

        return {
            name: policy_for(ref, self.settings.vlm_thresholds, self._path, self.invocation) for name, ref in self.models.items()
        }

    @cached_property
    def reference(self) -> str | None:
        """The model whose errors normalise the mean corruption error, ``None`` for the gated model without images.

        Raises:
            UsageError: no such model in this run.
        """
        from pytest_vlmrobust.core.errors import UnknownName

        name = self.settings.vlm_reference
        if name == "no_image":
            return None
        if name not in self.models:
            raise UnknownName("reference model", name, [*self.models, "no_image"], where="--vlm-reference")
        return name

    @cached_property
    def evaluator(self) -> Evaluator:
        """What evaluates cells; opens the store, and datasets and weights on first use.

        Raises:
            StoreError: the store cannot be opened.
        """
        from pytest_vlmrobust.datasets import resolve
        from pytest_vlmrobust.evaluation.evaluator import EvaluationOptions, Evaluator
        from pytest_vlmrobust.store import Store

        settings = self.settings
        return Evaluator(
            models=self.models,
            datasets={short: partial(resolve, name, data_dir=self.data_directory) for short, name in self.datasets.items()},
            open_backend=self.open_backend,
            store=Store.open(self.store_directory, read_only=settings.vlm_offline),
            options=EvaluationOptions(
                seed=settings.vlm_seed,
                sample=settings.vlm_sample or None,
                offline=settings.vlm_offline,
                batch_size=settings.vlm_batch_size,
                threads=settings.vlm_threads,
            ),
            listener=self._progressed,
        )

    def native_long_edge(self, dataset: str) -> int | None:
        """Returns the long edge in pixels that all pictures of a dataset share, ``None`` where they differ; nothing is read.

        Raises:
            VlmRobustError: there is no such dataset.
        """
        from pytest_vlmrobust.datasets import resolve

        return resolve(self.datasets[dataset], data_dir=self.data_directory).native_long_edge

    def sizes(self) -> dict[str, int]:
        """Returns how many independent samples (source pictures) the run asks about, by dataset; unreadable ones are left out."""
        from pytest_vlmrobust.datasets import resolve, sampling
        from pytest_vlmrobust.datasets.files import DatasetWarning

        found = {}
        for short, name in self.datasets.items():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DatasetWarning)  # the evaluation says the same when it reads them
                    samples = list(resolve(name, data_dir=self.data_directory).samples())
                chosen = sampling.take(samples, self.settings.vlm_sample) if self.settings.vlm_sample else samples
            except VlmRobustError:
                continue  # the tests that need it say why
            found[short] = len({sample.group or sample.id for sample in chosen})
        return {short: count for short, count in found.items() if count}

    def open_backend(self, ref: ModelRef) -> Backend:
        """Returns the backend of a model with the run's options; no weights are loaded yet."""
        from pytest_vlmrobust.backends import BackendOptions, open_backend

        settings = self.settings
        options = BackendOptions(
            device=settings.vlm_device,
            batch_size=settings.vlm_batch_size,
            offline=settings.vlm_offline,
            digest_cache=self.store_directory / "digests.json",
        )
        return open_backend(ref, options)

    @cached_property
    def judge(self) -> Judge:
        """What turns measurements into records with verdicts."""
        from pytest_vlmrobust.evaluation.judging import Judge, judged_tests

        policies = {
            name: policy.planned(test for planned in self.plan if planned.model == name for test in judged_tests(planned))
            for name, policy in self.policies.items()
        }
        return Judge(self.evaluator, policies, self.today, self.reference)

    @property
    def store_directory(self) -> Path:
        """Where predictions and runs live."""
        return self._path(self.settings.vlm_store)

    @property
    def data_directory(self) -> Path | None:
        """Where benchmark names are looked up."""
        given = self.settings.vlm_data or next((os.environ[name] for name in ENVIRONMENT_DATA if os.environ.get(name)), "")
        return self._path(given) if given else None

    def check(self) -> None:
        """Looks at everything the user named, without opening weights or data.

        Raises:
            UsageError: something of it cannot be used.
        """
        from pytest_vlmrobust.datasets import resolve, sampling

        _ = self.policies, self.reference
        for ref in self.models.values():
            self.open_backend(ref)
        if self.settings.vlm_sample:
            sampling.count_of(self.settings.vlm_sample, 1)
        for name in self.datasets.values():
            resolve(name, data_dir=self.data_directory)

    def open_evaluator(self) -> Evaluator | None:
        """Returns the evaluator if a test has asked for it."""
        return self.__dict__.get("evaluator")

    @property
    def decision(self) -> Decision:
        """The decision of the run as far as it went."""
        missing = self.facts().missing(self.records)
        return decide((record.outcome for record in self.records), missing=missing)

    def facts(self, warnings: Sequence[str] = ()) -> RunFacts:
        """Returns what is known about the run beside its records."""
        from pytest_vlmrobust.reporting import RunFacts

        policies = {name: f"{', '.join(f.name for f in p.files)} {p.sha256[:12]}" for name, p in self.policies.items()}
        return RunFacts(policies, self.planned, self.selected, warnings)

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order in which tests first ended; of a test that ran again, the last one."""
        return list(self.by_test.values())

    def finished(self, record: Record) -> None:
        """Takes the record of a test that ended: into the journal first, then into memory and onto the display."""
        self.by_test[record.key] = record
        if self.controls:
            try:
                self.journal.append(record)
            except StoreError as error:
                pytest.exit(str(error), returncode=EXIT_CODES[Decision.INCOMPLETE])
        if self.display is not None:
            self.display.finished(record, self.selected)

    def close(self) -> None:
        """Frees models and closes what is open."""
        if self.display is not None:
            self.display.close()
            self.display = None
        if "journal" in self.__dict__:
            self.journal.close()
        evaluator = self.open_evaluator()
        if evaluator is not None:
            evaluator.close()
            evaluator.store.close()

    def _path(self, text: str) -> Path:
        return self.invocation / Path(text).expanduser()

    def _progressed(self, progress: Progress) -> None:
        if self.display is not None:
            self.display.progressed(progress)


def usage_error(error: VlmRobustError) -> pytest.UsageError:
    """Returns what makes pytest print one line and exit with 4."""
    return pytest.UsageError(str(error))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marks and reads the settings; what the user named is checked at once when a model is."""
    config.addinivalue_line(
        "markers", "vlm_settings(*names): settings, or sets of them such as robustbench, of a vlm_cell or vlm_sweep test"
    )
    config.addinivalue_line("markers", "vlm_metrics(*names): summary metrics of a vlm_sweep test")
    from .outcome import Collector

    worker = str(getattr(config, "workerinput", {}).get("workerid", "main"))
    gate = Gate(Settings.from_config(config), config.rootpath, config.invocation_params.dir, worker)
    config.stash[GATE] = gate
    if gate.settings.vlm:
        # what a data set notes about itself must reach the reader, and not end a run whose other warnings are errors
        config.addinivalue_line("filterwarnings", "default::pytest_vlmrobust.datasets.files.DatasetWarning")
        check_report_directory(gate)
        config.pluginmanager.register(Collector(gate), "vlmrobust-collector")
        gate.display = ProgressDisplay.for_run(config) if gate.controls else None
        try:
            gate.check()
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


def pytest_unconfigure(config: pytest.Config) -> None:
    """Frees what was opened."""
    gate = config.stash.get(GATE, None)
    if gate is not None:
        gate.close()


def ids_of(names: Sequence[object]) -> list[str]:
    """Returns test ids; never parsed back."""
    return [str(name) for name in names]
