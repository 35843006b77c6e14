"""The Gate: what one pytest process knows about its run; models and data are opened only when a test asks."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import StoreError, VlmRobustError
from pytest_vlmrobust.core.verdict import EXIT_CODES, Decision

from .conditions import asks_for_all_samples, samples_asked, shortfalls
from .docket import keep_baseline, write_docket
from .options import ENVIRONMENT_DATA, Settings
from .origins import origins
from .places import RUNS, check_places, runs_of, store_is_writable
from .progress import ProgressDisplay
from .rerun import Rerun

if TYPE_CHECKING:
    from pytest_vlmrobust.backends import AnswerKey, Backend
    from pytest_vlmrobust.core.cell import Cell, Planned, Setting
    from pytest_vlmrobust.core.comparison import Repeatability
    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.judge.baseline import Baseline
    from pytest_vlmrobust.evaluation.judge.context import Asked
    from pytest_vlmrobust.evaluation.judge.judge import Judge
    from pytest_vlmrobust.evaluation.run.data import RunData
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator, Progress
    from pytest_vlmrobust.policies import JudgedTest, Policy
    from pytest_vlmrobust.reporting import Command, RunFacts
    from pytest_vlmrobust.store import Evidence, Journal


NOT_CONCLUDED = "the run was not concluded, so that nobody knows what it left out: run it again, what it has answered is kept"
_SMALL = 400
"""A model that was trained on pictures of at most this long edge is shown the small embedded collections."""


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
    run_id: str = field(default_factory=lambda: f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}")
    """Names its directory by universal time, so that the newest one sorts last. Two runs share none, not even those that one
    process, or two containers, start in one second."""
    by_test: dict[str, Record] = field(default_factory=dict)
    today: date = field(default_factory=date.today)
    """Waivers expire by local date."""
    refused: VlmRobustError | None = None
    refused_here: bool = False
    """Whether this process raised it, so that pytest says it; what a worker refuses, nobody else does."""
    plan: list[Planned] = field(default_factory=list)
    """What its tests are about, whatever is deselected: a verdict does not depend on which of them run."""
    idle: set[str] = field(default_factory=set)
    """Test functions that this run has nothing for, such as those about identities when only questions were named."""
    collected: set[str] = field(default_factory=set)
    """Node ids of files and classes whose tests are known."""
    left_out: dict[str, pytest.Collector] = field(default_factory=dict)
    """Classes in collected files whose tests are not, by node id: the arguments name others."""
    planned: int = 0
    selected: int = 0
    items: list[pytest.Item] = field(default_factory=list)
    """The gated tests that were selected."""
    data_notes: list[str] = field(default_factory=list)
    """What the collections that selected tests ask about say of themselves, each note once."""
    narrowed: str = ""
    """An option by which whole files of tests may be left out, so that nobody knows how many; empty without one."""
    stopped: str = ""
    """What ended pytest before its end, or in a failure that no record tells of; empty where nothing did."""
    display: ProgressDisplay | None = None
    unwritten: str = ""
    """Why a summary could not be put where it was asked for; empty when it could."""
    command: Command | None = None
    """How pytest was called, for whoever wants to run some of it again."""
    repeatability: list[Repeatability] = field(default_factory=list)
    """What the answers of this run are worth when they are asked for again, where somebody wanted to know."""
    rerun: Rerun | None = None
    """Which tests of an earlier run are to run again, where only those are."""

    @cached_property
    def journal(self) -> Journal:
        """The records of this run on disk, one line each, written as tests end."""
        from pytest_vlmrobust.store import Journal

        self.describe([NOT_CONCLUDED])
        keep_baseline(self)
        return Journal(self.run_directory)

    def begin(self) -> None:
        """Makes the directory of the run, so that one that is killed in its first test is known of as well."""
        if self.controls and self.selected:
            self._keep(lambda: self.journal)

    def describe(self, lacks: Sequence[str], **conclusion: object) -> None:
        """Writes beside the journal what its records do not say: what was to run, and what the policies ask for beside."""
        from pytest_vlmrobust.store import write_manifest

        found = [about.to_dict() for about in self.repeatability]
        counts = {"planned": self.planned, "selected": self.selected}
        more = {
            "shortfalls": list(lacks),
            "stopped": self.stopped,
            "repeats": self.rerun.run if self.rerun else "",
            "repeatability": found,
            "store": os.path.relpath(self.store_directory, self.run_directory),
        }
        write_manifest(self.run_directory, {**origins(self), **counts, **more, **conclusion})

    @cached_property
    def samples_asked(self) -> dict[str, tuple[int, int]]:
        """Of each data set of which ``--vlm-sample`` left samples out: how many were asked, and how many there are."""
        return samples_asked(self) if self.settings.vlm_sample else {}

    @property
    def run_directory(self) -> Path:
        """Where the journal and the evidence of this run are."""
        return self.runs / self.run_id

    @cached_property
    def runs(self) -> Path:
        """Where the directories of runs like this one are."""
        return runs_of(self)

    @property
    def earlier_runs(self) -> list[Path]:
        """Where the directories of earlier runs may be."""
        return list(dict.fromkeys((self.store_directory / RUNS, self.runs)))

    @property
    def controls(self) -> bool:
        """Whether this process reports: true without xdist and on its controller, false on its workers."""
        return self.worker == "main"

    @property
    def only_plans(self) -> bool:
        """Whether the run says what it would do, and does nothing of it."""
        return self.settings.vlm_plan and bool(self.settings.vlm)

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
    def data(self) -> RunData:
        """What the run asks from."""
        from pytest_vlmrobust.evaluation.run.data import RunData

        small = all(ref.trained_long_edge is not None and ref.trained_long_edge <= _SMALL for ref in self.models.values())
        return RunData(self.settings.vlm_dataset, self.data_directory, small=small)

    @property
    def datasets(self) -> dict[str, str]:
        """What the user called each dataset and collection, by the name that stands in test ids; nothing is read for it.

        Raises:
            UsageError: two datasets would share a name.
        """
        return self.data.typed

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """The policy of each model.

        Raises:
            UsageError: a thresholds file that cannot be read or honoured.
        """
        from pytest_vlmrobust.evaluation.judge.scopes import policy_for

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
        """What evaluates cells and leaves evidence of them.

        Raises:
            StoreError: the store, or the evidence of this run, cannot be opened.
        """
        from pytest_vlmrobust.evaluation.run.evidence import Testimony

        self.unwitnessed.witness = Testimony(self.evidence, self.unwitnessed)
        return self.unwitnessed

    @cached_property
    def unwitnessed(self) -> Evaluator:
        """The same before there is any evidence; opens the store, and datasets and weights on first use.

        Raises:
            StoreError: the store cannot be opened.
        """
        from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
        from pytest_vlmrobust.store import Store
        from pytest_vlmrobust.store.run_directory import FOLDER

        settings = self.settings
        return Evaluator(
            models=self.models,
            datasets=self.data.factories,
            open_backend=self.open_backend,
            store=Store.open(self.store_directory, read_only=settings.vlm_offline or not store_is_writable(self)),
            options=EvaluationOptions(
                seed=settings.vlm_seed,
                sample=settings.vlm_sample or None,
                offline=settings.vlm_offline,
                batch_size=settings.vlm_batch_size,
                threads=settings.vlm_threads,
                patch_stop=settings.vlm_patch_stop,
                pictures=self.store_directory / FOLDER,
            ),
            listener=self._progressed,
            notice=self._noticed,
        )

    @cached_property
    def evidence(self) -> Evidence:
        """The questions, answers and scores of this run, which its workers share."""
        from pytest_vlmrobust.store import Evidence

        return Evidence.open(self.run_directory)

    @cached_property
    def grids(self) -> tuple[int, ...]:
        """How many patches on a side the suite of patches cuts pictures into.

        Raises:
            UsageError: no such grid.
        """
        from pytest_vlmrobust.evaluation.run.plan import read_grids

        return read_grids(self.settings.vlm_patches)

    def expanded(self, names: Sequence[str], dataset: str) -> tuple[Setting, ...]:
        """Returns the settings that the names in a mark stand for on a dataset; no sample is read.

        Raises:
            VlmRobustError: there is no such dataset, or no such setting.
        """
        from pytest_vlmrobust.evaluation.run.plan import expand_settings

        return expand_settings(names, self.data.open(dataset).native_long_edge, self.grids)

    def sizes(self, datasets: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Returns how many source pictures and questions the run asks of datasets; those that cannot be read are left out."""
        from pytest_vlmrobust.datasets import sampling
        from pytest_vlmrobust.datasets.files import DatasetWarning

        found = {}
        for short in dict.fromkeys(datasets):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DatasetWarning)  # the evaluation says the same when it reads them
                    chosen = sampling.chosen(self.data.open(short), self.settings.vlm_sample or None)
            except VlmRobustError:
                continue  # the tests that need it say why
            found[short] = len({sample.group or sample.id for sample in chosen}), len(chosen)
        return {short: counts for short, counts in found.items() if all(counts)}

    def open_backend(self, ref: ModelRef) -> Backend:
        """Returns the backend of a model with the run's options; no weights are loaded yet."""
        from pytest_vlmrobust.backends import BackendOptions, open_backend

        settings = self.settings
        options = BackendOptions(
            device=settings.vlm_device,
            batch_size=settings.vlm_batch_size,
            offline=settings.vlm_offline,
            digest_cache=self.store_directory / "digests.json",
            digests_of=self.run_id if asks_for_all_samples(self) else "",
            answers=self._answers,
        )
        return open_backend(ref, options)

    @cached_property
    def _answers(self) -> AnswerKey:
        """What is asked in this run and what is right, for scripted models; nothing is read for it before one asks."""
        from pytest_vlmrobust.backends import AnswerKey
        from pytest_vlmrobust.core.fingerprint import fingerprint

        def digest() -> str:
            names = sorted({planned.dataset for planned in self.plan})
            return fingerprint({name: self.data.open(name).digest for name in names})

        return AnswerKey(lambda name: self.unwitnessed.samples(name), digest)  # noqa: PLW0108 - the store is opened when one asks

    @cached_property
    def judge(self) -> Judge:
        """What turns measurements into records with verdicts."""
        from pytest_vlmrobust.evaluation.judge.families import families
        from pytest_vlmrobust.evaluation.judge.judge import Judge

        members = families(self.models)
        policies = {**self.policies, **{name: self.policies[family.largest] for name, family in members.items()}}
        tests = self._will_be_judged()
        policies = {name: policy.planned(tests.get(name, ())) for name, policy in policies.items()}
        write_docket(self, policies)
        return Judge(
            self.evaluator,
            policies,
            self.today,
            self.reference,
            data=self.data,
            families=members,
            baseline=self.baseline,
            attempts=self.settings.vlm_patch_attempts,
        )

    @cached_property
    def baseline(self) -> Baseline | None:
        """The earlier run that cells are compared with.

        Raises:
            UsageError: the directory holds no evidence of a run, or none of a model of this one.
        """
        from pytest_vlmrobust.evaluation.judge.baseline import Baseline

        if not self.settings.vlm_baseline:
            return None
        directory = self.baseline_directory
        if self.settings.vlm_update_baseline and not directory.exists():
            return None  # the first one
        found = Baseline.open(directory)
        for name in self.models:
            found.model(name)
        return found

    def judged(self, planned: Planned) -> list[JudgedTest]:
        """Returns what a planned test may be judged by; no data are read for it."""
        from pytest_vlmrobust.evaluation.judge.context import Asked

        return self._judged(planned, Asked(self.data.tasks.get(planned.dataset, "")))

    def _judged(self, planned: Planned, asked: Asked) -> list[JudgedTest]:
        from pytest_vlmrobust.core.cell import Cell
        from pytest_vlmrobust.evaluation.judge.measurements import judged_tests

        attempts = isinstance(planned, Cell) and self.attempts_of(planned) is not None
        return judged_tests(planned, asked, baseline=bool(self.settings.vlm_baseline), attempts=attempts)

    def _will_be_judged(self) -> Mapping[str, list[JudgedTest]]:
        """Returns, by model, what its planned tests will be judged by: they share the risk of the rules on it."""
        from pytest_vlmrobust.evaluation.judge.context import Asked

        tasks = self.data.tasks
        names = dict.fromkeys(planned.dataset for planned in self.plan)
        asked = {name: Asked.of(self.evaluator, name, tasks.get(name, "")) for name in names}
        found: dict[str, list[JudgedTest]] = {}
        for planned in self.plan:
            found.setdefault(planned.model, []).extend(self._judged(planned, asked[planned.dataset]))
        return found

    def attempts_of(self, cell: Cell) -> Cell | None:
        """Returns the cell of attempts that a cell of patches is compared with; ``None`` where none are asked for."""
        from pytest_vlmrobust.evaluation.judge.required_cells import attempts_of

        return attempts_of(cell, self.policies[cell.model], always=self.settings.vlm_patch_attempts)

    @property
    def store_directory(self) -> Path:
        """Where predictions and runs live."""
        return self._path(self.settings.vlm_store)

    @property
    def baseline_directory(self) -> Path:
        """Where the run is that this one is compared with, where one is named."""
        return self._path(self.settings.vlm_baseline)

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
        from pytest_vlmrobust.datasets import sampling

        check_places(self)
        _ = self.policies, self.reference, self.grids, self.baseline
        for ref in self.models.values():
            self.open_backend(ref)
        if self.settings.vlm_sample:
            sampling.count_of(self.settings.vlm_sample, 1)
        self.data.check()

    def open_evaluator(self) -> Evaluator | None:
        """Returns the evaluator if anybody has asked for it."""
        return self.__dict__.get("unwitnessed")

    @property
    def decision(self) -> Decision:
        """The decision of the run as far as it went."""
        return self.facts().decision(self.records)

    def facts(self, warnings: Sequence[str] = ()) -> RunFacts:
        """Returns what is known about the run beside its records."""
        from pytest_vlmrobust.reporting import RunFacts
        from pytest_vlmrobust.reporting.comparison import noise_warnings
        from pytest_vlmrobust.store.journal import FILE_NAME
        from pytest_vlmrobust.store.run_directory import FOLDER, planned_tests

        warnings = [*self.data_notes, *warnings, *noise_warnings(self.repeatability)]
        policies = {name: f"{', '.join(f.name for f in p.files)} {p.sha256[:12]}" for name, p in self.policies.items()}
        return RunFacts(
            policies=policies,
            models=tuple(self.models),
            planned=self.planned,
            selected=self.selected,
            warnings=warnings,
            shortfalls=shortfalls(self),
            stopped=self.stopped,
            pictures=self.store_directory / FOLDER,
            command=self.command,
            repeatability=self.repeatability,
            kept=os.path.relpath(self.run_directory / FILE_NAME, self.invocation),
            origins=origins(self),
            tests=planned_tests(self.run_directory),
        )

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order in which tests first ended; of a test that ran again, the last one."""
        return list(self.by_test.values())

    def finished(self, record: Record) -> None:
        """Takes the record of a test that ended: into the journal first, then into memory and onto the display."""
        self.by_test[record.key] = record
        if self.controls:
            self._keep(lambda: self.journal.append(record))
        if self.display is not None:
            self.display.finished(record, self.selected)

    def close(self) -> None:
        """Frees models and closes what is open."""
        if self.display is not None:
            self.display.close()
            self.display = None
        if "journal" in self.__dict__:
            self.journal.close()
        if "evidence" in self.__dict__:
            self.evidence.close()
        if self.__dict__.get("baseline") is not None:
            self.__dict__["baseline"].close()
        evaluator = self.open_evaluator()
        if evaluator is not None:
            evaluator.close()
            evaluator.store.close()

    def _keep(self, write: Callable[[], object]) -> None:
        """Writes to the directory of the run, and ends pytest where that cannot be done."""
        try:
            write()
        except StoreError as error:
            pytest.exit(str(error), returncode=EXIT_CODES[Decision.INCOMPLETE])

    def _path(self, text: str) -> Path:
        return self.invocation / Path(text).expanduser()

    def _progressed(self, progress: Progress) -> None:
        if self.display is not None:
            self.display.progressed(progress)

    def _noticed(self, text: str) -> None:
        if self.display is not None:
            self.display.notice(text if self.controls else f"{self.worker}: {text}")
