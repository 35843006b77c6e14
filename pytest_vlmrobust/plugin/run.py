"""The run of one pytest process: what its tests are, what was opened for them, and how they ended.

Everything is opened when it is first asked for: models and data when tests are planned, the store when one is evaluated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.errors import UnknownName, UsageError, VlmRobustError

from .options import RERUN, Settings, data_directory
from .progress import ProgressDisplay

if TYPE_CHECKING:
    from pytest_vlmrobust.backends import AnswerKey, Backend
    from pytest_vlmrobust.core.cell import Cell, Planned, Setting
    from pytest_vlmrobust.core.comparison import Repeatability
    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.after.rerun import Rerun
    from pytest_vlmrobust.evaluation.judge.adaptive import AdaptiveJudge
    from pytest_vlmrobust.evaluation.judge.baseline import Baseline
    from pytest_vlmrobust.evaluation.judge.conditions import Conditions
    from pytest_vlmrobust.evaluation.judge.context import Asked
    from pytest_vlmrobust.evaluation.judge.judge_inputs import StoredTest
    from pytest_vlmrobust.evaluation.run.data import RunData
    from pytest_vlmrobust.evaluation.run.directories import RunDirectories
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator, Progress
    from pytest_vlmrobust.policies import JudgedTest, Policy
    from pytest_vlmrobust.reporting import Command, RunFacts
    from pytest_vlmrobust.store import Evidence, Journal

MAIN = "main"
"""The process that reports: pytest without xdist, and with it its controller."""
NOT_CONCLUDED = "the run was not concluded, so that nobody knows what it left out: run it again, what it has answered is kept"
_SMALL = 400
"""A model that was trained on pictures of at most this long edge is shown the small embedded collections."""


@dataclass(frozen=True, slots=True)
class SelectedTest:
    """One gated test that is to run: what it is about, and the settings or sets of them that its summary metric names."""

    nodeid: str
    about: Planned
    names: tuple[str, ...] = ()


@dataclass
class Selection:
    """The gated tests of a run: those that are planned, and those of them that were selected."""

    narrowed: str = ""
    """An option that may leave out an unknown number of tests, as whole files; empty if there is none."""
    plan: list[Planned] = field(default_factory=list)
    """What the tests are about, whatever is deselected: a verdict does not depend on which of them run."""
    planned: int = 0
    selected: int = 0
    tests: Sequence[SelectedTest] = ()
    """Those that were selected; a controller of xdist knows their number alone."""
    notes: Sequence[str] = ()
    """What the collections that selected tests ask about say of themselves, each note once."""
    refusal: VlmRobustError | None = None
    """An error that was detected during collection; then no test runs."""
    refused_at_worker: bool = False
    """Whether a worker of xdist detected it, so that it was not reported yet."""

    @property
    def datasets(self) -> list[str]:
        """The datasets that selected tests are about."""
        return list(dict.fromkeys(test.about.dataset for test in self.tests))

    def add(self, planned: Sequence[Planned]) -> None:
        """Adds the tests of one function to the plan."""
        self.plan += planned
        self.planned += len(planned)

    def narrow(self, reason: str) -> None:
        """Notes why the number of omitted tests is unknown; the first reason is kept."""
        self.narrowed = self.narrowed or reason

    def refuse(self, error: VlmRobustError, *, at_worker: bool = False) -> None:
        """Notes why no test is to run; the first reason stands."""
        if self.refusal is None:
            self.refusal, self.refused_at_worker = error, at_worker

    def select(self, tests: Sequence[SelectedTest], notes: Sequence[str]) -> None:
        """Notes which tests are to run, and what a reader should know about their data."""
        self.tests, self.selected, self.notes = tests, len(tests), notes

    def expect(self, selected: int) -> None:
        """Notes how many gated tests there seem to be, before the collecting process reports it."""
        self.selected = selected

    def learn(self, *, planned: int, selected: int, narrowed: str, notes: Iterable[str]) -> None:
        """Notes what a worker knows; each worker knows all."""
        self.planned, self.selected = planned, selected
        self.narrowed = narrowed or self.narrowed
        self.notes = list(dict.fromkeys([*self.notes, *notes]))


@dataclass
class Run:
    """One run: its settings, its tests, whatever has been opened for them so far, and their records."""

    settings: Settings
    invocation: Path
    """The directory where pytest was called."""
    run_id: str
    worker: str = MAIN
    """The process: ``MAIN``, or a worker of xdist by its name there."""
    workers: int = 1
    """How many processes ask at the same time."""
    command: Command | None = None
    """How pytest was called, for commands that run tests again."""
    display: ProgressDisplay | None = None
    selection: Selection = field(default_factory=Selection)
    today: date = field(default_factory=date.today)
    """Waivers expire by local date."""
    rerun: Rerun | None = None
    """The tests of an earlier run to run again, if ``--vlm-rerun`` selects them."""
    stopped: str = ""
    """What ended pytest early, or a failure that no record reports; empty if nothing did."""
    repeatability: Sequence[Repeatability] = ()
    """How often answers changed when they were asked for again (``--vlm-aa``)."""
    by_test: dict[str, Record] = field(default_factory=dict)
    workers_noticed: list[str] = field(default_factory=list)
    """What workers of xdist noticed of models that changed while they were asked."""
    workers_said: dict[str, dict[str, object]] = field(default_factory=dict)
    """What each worker of xdist said at its end about how it ran its models, by the worker's name."""
    _opened: dict[str, Backend] = field(default_factory=dict)

    # What the run was asked for.

    @property
    def controls(self) -> bool:
        """Whether this process reports: true without xdist and on its controller, false on its workers."""
        return self.worker == MAIN

    @property
    def only_plans(self) -> bool:
        """Whether the run only prints its plan."""
        return self.settings.vlm_plan and bool(self.settings.vlm)

    @cached_property
    def directories(self) -> RunDirectories:
        """Where it reads answers and keeps what it finds."""
        from pytest_vlmrobust.evaluation.run.directories import RunDirectories

        settings = self.settings
        return RunDirectories(
            self.run_id,
            self.invocation,
            self._path(settings.vlm_store),
            offline=settings.vlm_offline,
            report_given=settings.vlm_report,
            baseline_given=settings.vlm_baseline,
        )

    def check(self) -> None:
        """Looks at everything the user named, without opening weights or data.

        Raises:
            UsageError: something of it cannot be used.
        """
        from pytest_vlmrobust.datasets import sampling

        if not self.only_plans:
            self.directories.check()
        self._refuse_partial_baseline()
        _ = self.policies, self.reference, self.grids, self.baseline
        for ref in self.models.values():
            self.open_backend(ref)
        if self.settings.vlm_sample:
            sampling.count_of(self.settings.vlm_sample, 1)
        self.data.check()

    def _refuse_partial_baseline(self) -> None:
        """Refuses to replace a baseline by a run that may stop early: later runs would be compared with a part of the samples.

        Raises:
            UsageError: ``--vlm-update-baseline`` where a policy is adaptive.
        """
        from pytest_vlmrobust.policies import Mode

        stopping = [name for name, policy in self.policies.items() if policy.mode is Mode.ADAPTIVE]
        if self.settings.vlm_update_baseline and stopping:
            raise UsageError(
                f"--vlm-update-baseline: the policy of {', '.join(stopping)} is adaptive, and a run that stops early is no "
                "baseline. Add --vlm-mode=full: answers that are in the store are not asked for again"
            )

    def choose_rerun(self, sent: Mapping[str, object] | None = None) -> None:
        """Looks for the tests that ``--vlm-rerun`` asks for; a worker takes them from what its controller ``sent``.

        Raises:
            UsageError: the store has no earlier run about the models of this one.
            StoreError: its records cannot be read.
        """
        from pytest_vlmrobust.evaluation.after.rerun import Rerun, find_rerun

        if sent is not None:
            self.rerun = Rerun.at_worker(sent)
        elif verdicts := self.settings.vlm_rerun:
            self.rerun = find_rerun(verdicts, RERUN[verdicts], list(self.models), self.directories.earlier)

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
        given = data_directory(self.settings)
        return RunData(self.settings.vlm_dataset, self._path(given) if given else None, small=small)

    @cached_property
    def policies(self) -> dict[str, Policy]:
        """The policy of each model.

        Raises:
            UsageError: a thresholds file that cannot be read or honoured.
        """
        from pytest_vlmrobust.evaluation.judge.scopes import policy_for
        from pytest_vlmrobust.policies import Mode

        settings = self.settings
        policies = {
            name: policy_for(ref, settings.vlm_thresholds, self._path, self.invocation) for name, ref in self.models.items()
        }
        if not settings.vlm_mode:
            return policies
        return {name: dataclasses.replace(policy, mode=Mode(settings.vlm_mode)) for name, policy in policies.items()}

    @cached_property
    def reference(self) -> str | None:
        """The model whose errors normalise the mean corruption error, ``None`` for the gated model without images.

        Raises:
            UsageError: no such model in this run.
        """
        name = self.settings.vlm_reference
        if name == "no_image":
            return None
        if name not in self.models:
            raise UnknownName("reference model", name, [*self.models, "no_image"], where="--vlm-reference")
        return name

    @cached_property
    def baseline(self) -> Baseline | None:
        """The earlier run that cells are compared with.

        Raises:
            UsageError: the directory holds no evidence of a run, or none of a model of this one.
        """
        from pytest_vlmrobust.evaluation.judge.baseline import Baseline

        if not self.settings.vlm_baseline:
            return None
        directory = self.directories.baseline
        if self.settings.vlm_update_baseline and not directory.exists():
            return None  # the first one
        baseline = Baseline.open(directory)
        for name in self.models:
            baseline.model(name)
        return baseline

    @cached_property
    def grids(self) -> tuple[int, ...]:
        """How many patches on a side the suite of patches cuts pictures into.

        Raises:
            UsageError: no such grid.
        """
        from pytest_vlmrobust.evaluation.run.plan import read_grids

        return read_grids(self.settings.vlm_patches)

    # What its tests are about.

    def expand_settings(self, names: Sequence[str], dataset: str) -> tuple[Setting, ...]:
        """Returns the settings that the names in a mark stand for on a dataset; no sample is read.

        Raises:
            VlmRobustError: there is no such dataset, or no such setting.
        """
        from pytest_vlmrobust.evaluation.run.plan import expand_settings

        return expand_settings(names, self.data.open(dataset).native_long_edge, self.grids)

    def settings_of(self, test: SelectedTest) -> tuple[Setting, ...]:
        """Returns the settings that a summary metric is taken over; none for a test of one cell."""
        return self.expand_settings(test.names, test.about.dataset) if test.names else ()

    def check_tests(self, tests: Iterable[SelectedTest]) -> None:
        """Refuses rules and waivers that match nothing that exists, and a baseline that tests cannot be compared with.

        Args:
            tests: those that are to be compared.

        Raises:
            PolicyError: a rule or a waiver names what does not exist.
            DatasetError: the baseline was made with another seed, and both runs have a cell whose setting depends on it.
            StoreError: the manifest of the baseline cannot be read.
        """
        from pytest_vlmrobust.evaluation.judge.conditions import refuse_unknown_scopes
        from pytest_vlmrobust.evaluation.judge.required_cells import compared_cells

        plan = self.selection.plan
        judged = (test for planned in plan for test in self.judged_tests(planned))
        refuse_unknown_scopes(self.policies.values(), plan, judged, models=self.models, datasets=self.data.factories)
        if self.baseline is not None:
            cells = (cell for test in tests for cell in compared_cells(test.about, self.settings_of(test)))
            self.baseline.refuse_seed(self.settings.vlm_seed, cells)

    def required_cells(self) -> list[Cell]:
        """Returns the cells that the selected tests need, each once, in the order in which they will be asked for."""
        from pytest_vlmrobust.evaluation.judge.required_cells import required_cells

        required: dict[Cell, None] = {}
        for test in self.selection.tests:
            settings = self.settings_of(test)
            cells = required_cells(test.about, settings, self.models, self.data, self.reference, self.attempts_of)
            required |= dict.fromkeys(cells)
        return list(required)

    def judged_tests(self, planned: Planned) -> list[JudgedTest]:
        """Returns what a planned test may be judged by; no data are read for it."""
        from pytest_vlmrobust.evaluation.judge.context import Asked

        return self._judged_tests(planned, Asked(self.data.tasks.get(planned.dataset, "")))

    def judged_tests_by_model(self) -> dict[str, list[JudgedTest]]:
        """Returns what the tests of each model may be judged by; no data are read for it."""
        by_model: dict[str, list[JudgedTest]] = {}
        for planned in self.selection.plan:
            by_model.setdefault(planned.model, []).extend(self.judged_tests(planned))
        return by_model

    def attempts_of(self, cell: Cell) -> Cell | None:
        """Returns the cell of attempts that a cell of patches is compared with; ``None`` where none are asked for."""
        from pytest_vlmrobust.evaluation.judge.required_cells import attempts_of

        return attempts_of(cell, self.policies[cell.model], always=self.settings.vlm_patch_attempts)

    def sample_warnings(self, planned: Mapping[str, Sequence[JudgedTest]]) -> list[str]:
        """Returns, a sentence for each, the rules that too few samples are there for.

        Args:
            planned: model to what it will be judged by.
        """
        from pytest_vlmrobust.evaluation.power.sample_size import sample_warnings

        datasets = [test.dataset for tests in planned.values() for test in tests]
        return sample_warnings(self.policies, planned, self.data.sizes(datasets, self.settings.vlm_sample), today=self.today)

    # What was opened to evaluate them.

    @cached_property
    def evaluator(self) -> Evaluator:
        """What evaluates cells; opens the store, and datasets and weights on first use.

        Raises:
            StoreError: the store cannot be opened.
        """
        from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
        from pytest_vlmrobust.store import Store
        from pytest_vlmrobust.store.run_directory import FOLDER

        settings, directories = self.settings, self.directories
        return Evaluator(
            models=self.models,
            datasets=self.data.factories,
            open_backend=self._open_to_ask,
            store=Store.open(directories.store, read_only=settings.vlm_offline or not directories.store_is_writable),
            options=EvaluationOptions(
                seed=settings.vlm_seed,
                sample=settings.vlm_sample or None,
                offline=settings.vlm_offline,
                batch_size=settings.vlm_batch_size,
                threads=settings.vlm_threads,
                patch_stop=settings.vlm_patch_stop,
                pictures=directories.store / FOLDER,
            ),
            listener=self._show_progress,
            notice=self._show_notice,
        )

    def open_backend(self, ref: ModelRef) -> Backend:
        """Returns the backend of a model with the run's options; no weights are loaded yet."""
        from pytest_vlmrobust.backends import BackendOptions, open_backend
        from pytest_vlmrobust.backends.devices import threads_for
        from pytest_vlmrobust.evaluation.judge.conditions import asks_for_all_samples

        settings = self.settings
        options = BackendOptions(
            device=settings.vlm_device,
            batch_size=settings.vlm_batch_size,
            threads=threads_for(self.workers),
            preprocessing=settings.vlm_preprocessing,
            offline=settings.vlm_offline,
            digest_cache=self.directories.store / "digests.json",
            servers=self.directories.store / "servers",
            digests_of=self.run_id if asks_for_all_samples(self.policies.values()) else "",
            notice=self._show_notice,
            answers=self._answers,
        )
        return open_backend(ref, options)

    @property
    def processes(self) -> dict[str, object]:
        """How each process that asked a model ran it, as far as it has said so, by the name of the process."""
        said = {self.worker: self.how_models_ran(), **self.workers_said}
        return {name: models for name, models in said.items() if models}

    def how_models_ran(self) -> dict[str, object]:
        """Returns how this process ran each model that it loaded, JSON-safe: device, threads, size of batches."""
        found: dict[str, object] = {}
        for name, backend in self._opened.items():
            with contextlib.suppress(VlmRobustError):  # its records say why it could not be asked
                about = backend.describe()
                if "loaded" in about:
                    found[name] = {key: about[key] for key in ("batches", "failed_batches", "loaded") if key in about}
        return found

    def model_changes(self) -> list[str]:
        """Returns, a sentence for each, the models that may have changed while this process or its workers asked them."""
        own = self.evaluator.changes() if "evaluator" in self.__dict__ else []
        return list(dict.fromkeys([*own, *self.workers_noticed]))

    @cached_property
    def judge(self) -> AdaptiveJudge:
        """What turns measurements into records with verdicts; with it the run writes down what it judges, and its evidence.

        Raises:
            StoreError: the store, or the evidence of this run, cannot be opened.
        """
        from pytest_vlmrobust.evaluation.judge.adaptive import AdaptiveJudge
        from pytest_vlmrobust.evaluation.judge.judge import Judge
        from pytest_vlmrobust.evaluation.run.evidence import Testimony
        from pytest_vlmrobust.evaluation.run.families import families

        self.evaluator.witness = Testimony(self.evidence, self.evaluator)
        members = families(self.models)
        policies = {**self.policies, **{name: self.policies[family.largest] for name, family in members.items()}}
        tests = self._tests_sharing_risk()
        policies = {name: policy.for_tests(tests.get(name, ())) for name, policy in policies.items()}
        self._write_judge_inputs(policies)
        judge = Judge(
            self.evaluator,
            policies,
            self.today,
            self.reference,
            data=self.data,
            families=members,
            baseline=self.baseline,
            attempts=self.settings.vlm_patch_attempts,
        )
        adaptive = AdaptiveJudge(judge, self.evaluator.expect)
        if self.controls:  # a worker of xdist does not know which tests it will be given
            self.evaluator.expect(adaptive.first_wants(self.required_cells()))
        return adaptive

    @cached_property
    def evidence(self) -> Evidence:
        """The questions, answers and scores of this run, which its workers share."""
        from pytest_vlmrobust.store import Evidence

        return Evidence.open(self.directories.run)

    @cached_property
    def journal(self) -> Journal:
        """The records of this run on disk, one line each, written as tests end.

        Opening it describes the run, and copies the evidence of its baseline: by the end, another one may be in its place.
        """
        from pytest_vlmrobust.store import Journal
        from pytest_vlmrobust.store.run_directory import BASELINE

        self.describe([NOT_CONCLUDED])
        if self.baseline is not None:
            self.baseline.evidence.copy_to(self.directories.run / BASELINE)
        return Journal(self.directories.run)

    def close(self) -> None:
        """Frees models and closes what is open."""
        opened = self.__dict__
        if self.display is not None:
            self.display.close()
            self.display = None
        for name in ("journal", "evidence", "baseline"):
            if opened.get(name) is not None:
                opened[name].close()
        if "evaluator" in opened:
            self.evaluator.close()
            self.evaluator.store.close()

    # How its tests ended.

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order in which tests first ended; of a test that ran again, the last one."""
        return list(self.by_test.values())

    def begin(self) -> None:
        """Makes the directory of the run, so that a run that is killed in its first test leaves a trace.

        Raises:
            StoreError: it cannot be written.
        """
        if self.controls and self.selection.selected:
            _ = self.journal

    def finish_test(self, record: Record) -> None:
        """Takes the record of a test that ended: into the journal first, then onto the display.

        Raises:
            StoreError: the journal cannot be written.
        """
        self.by_test[record.key] = record
        if self.controls:
            self.journal.append(record)
        if self.display is not None:
            self.display.show_finished_test(record, self.selection.selected)

    def stop(self, reason: str) -> None:
        """Notes what ended pytest before its end; with an empty reason, that its records say it all."""
        self.stopped = reason

    def repeat(self) -> None:
        """Asks again about each model and dataset of the run; no verdict depends on what comes back.

        With xdist this is a different process from those that asked first.
        """
        from pytest_vlmrobust.evaluation.after.repeat import repeat_run

        process = "" if "evaluator" in self.__dict__ else "another process"
        rules = {name: policy.rules for name, policy in self.policies.items()}
        most = self.settings.vlm_aa_sample
        self.repeatability = repeat_run(self.evaluator, self.evidence, rules, self.records, most=most, process=process)

    @property
    def conditions(self) -> Conditions:
        """What the policies ask of the run as a whole."""
        from pytest_vlmrobust.evaluation.judge.conditions import Conditions

        return Conditions(
            self.policies,
            self.models,
            planned=self.selection.planned,
            selected=self.selection.selected,
            narrowed=self.selection.narrowed,
            today=self.today,
            has_baseline=bool(self.settings.vlm_baseline),
            without_pictures=self.baseline.without_pictures if self.baseline else (),
            samples_asked=lambda: self._samples_asked,
            categories=lambda: self.data.categories(self._measured_datasets),
        )

    def facts(self) -> RunFacts:
        """Returns the facts about the run that its records lack, for its decision and its reports."""
        from pytest_vlmrobust.reporting import RunFacts
        from pytest_vlmrobust.reporting.comparison import noise_warnings
        from pytest_vlmrobust.store.journal import FILE_NAME
        from pytest_vlmrobust.store.run_directory import FOLDER, planned_tests

        conditions, records = self.conditions, self.records
        return RunFacts(
            policies={name: f"{', '.join(f.name for f in p.files)} {p.sha256[:12]}" for name, p in self.policies.items()},
            models=tuple(self.models),
            planned=self.selection.planned,
            selected=self.selection.selected,
            warnings=[*self.selection.notes, *conditions.warnings(records), *noise_warnings(self.repeatability)],
            shortfalls=conditions.shortfalls(records),
            stopped=self.stopped,
            pictures=self.directories.store / FOLDER,
            command=self.command,
            repeatability=self.repeatability,
            kept=os.path.relpath(self.directories.run / FILE_NAME, self.invocation),
            origins=self.origins(),
            tests=planned_tests(self.directories.run),
        )

    def origins(self) -> dict[str, object]:
        """Returns what determined the run as far as it is known before anything is inferred, JSON-safe."""
        from pytest_vlmrobust.evaluation.run.manifest import origins

        return origins(
            self.run_id,
            self.today,
            settings=dataclasses.asdict(self.settings),
            command=self.command.to_dict() if self.command else {},
            models=self.models,
            policies=self.policies,
        )

    def manifest(self) -> dict[str, object]:
        """Returns what determined this run, JSON-safe; a value that is no longer available is replaced by the reason."""
        from pytest_vlmrobust.evaluation.run.manifest import measured_facts

        measured = measured_facts(self.records, self.models, self.data, self.open_backend)
        return {**self.origins(), **measured, "processes": self.processes, "decision": str(self.facts().decision(self.records))}

    def describe(self, lacks: Sequence[str], **conclusion: object) -> None:
        """Writes the manifest beside the journal: what was to run, and which requirements of policies are not met.

        Raises:
            StoreError: it cannot be written.
        """
        from pytest_vlmrobust.store import write_manifest

        directories = self.directories
        content = {
            **self.origins(),
            "planned": self.selection.planned,
            "selected": self.selection.selected,
            "shortfalls": list(lacks),
            "stopped": self.stopped,
            "repeats": self.rerun.run if self.rerun else "",
            "repeatability": [about.to_dict() for about in self.repeatability],
            "store": os.path.relpath(directories.store, directories.run),
            "processes": self.processes,
        }
        write_manifest(directories.run, {**content, **conclusion})

    # Parts of these.

    def _open_to_ask(self, ref: ModelRef) -> Backend:
        """Opens the backend that the evaluator asks, and keeps it in mind for what it says of itself later."""
        self._opened[ref.name] = self.open_backend(ref)
        return self._opened[ref.name]

    @cached_property
    def _answers(self) -> AnswerKey:
        """The questions of this run and their right answers, for scripted models; read on first use."""
        from pytest_vlmrobust.backends import AnswerKey
        from pytest_vlmrobust.core.fingerprint import fingerprint

        def digest() -> str:
            names = sorted({planned.dataset for planned in self.selection.plan})
            return fingerprint({name: self.data.open(name).digest for name in names})

        return AnswerKey(lambda name: self.evaluator.samples(name), digest)  # noqa: PLW0108 - the store is opened when one asks

    def _judged_tests(self, planned: Planned, asked: Asked) -> list[JudgedTest]:
        from pytest_vlmrobust.core.cell import Cell
        from pytest_vlmrobust.evaluation.judge.measurements import judged_tests

        attempts = isinstance(planned, Cell) and self.attempts_of(planned) is not None
        return judged_tests(planned, asked, baseline=bool(self.settings.vlm_baseline), attempts=attempts)

    def _tests_sharing_risk(self) -> dict[str, list[JudgedTest]]:
        """Returns, by model, what its planned tests will be judged by: they share the risk of the rules on it."""
        from pytest_vlmrobust.evaluation.judge.context import Asked

        tasks, plan = self.data.tasks, self.selection.plan
        names = dict.fromkeys(planned.dataset for planned in plan)
        asked = {name: Asked.of(self.evaluator, name, tasks.get(name, "")) for name in names}
        by_model: dict[str, list[JudgedTest]] = {}
        for planned in plan:
            by_model.setdefault(planned.model, []).extend(self._judged_tests(planned, asked[planned.dataset]))
        return by_model

    def _write_judge_inputs(self, policies: Mapping[str, Policy]) -> None:
        """Writes the inputs of the judge, with the policy files; every measuring process writes the same bytes.

        Raises:
            StoreError: they cannot be written.
        """
        from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs

        asked = {planned.dataset for planned in self.selection.plan}
        JudgeInputs(
            today=self.today,
            models=self.models,
            policies=policies,
            tests=tuple(map(self._stored_test, self.selection.tests)),
            reference=self.reference,
            tasks={name: task for name, task in self.data.tasks.items() if name in asked},
            lacking=self.data.lacking_of(asked),
            baseline=self.baseline is not None,
            attempts=self.settings.vlm_patch_attempts,
        ).write(self.directories.run)

    def _stored_test(self, test: SelectedTest) -> StoredTest:
        from pytest_vlmrobust.evaluation.judge.judge_inputs import StoredTest

        return StoredTest(test.nodeid, test.about, self.settings_of(test))

    @property
    def _measured_datasets(self) -> list[str]:
        return [name for name in dict.fromkeys(record.dataset for record in self.records) if name]

    @cached_property
    def _samples_asked(self) -> dict[str, tuple[int, int]]:
        """For each dataset that ``--vlm-sample`` reduced: the number of samples asked, and the total."""
        return self.data.samples_asked(self._measured_datasets, self.settings.vlm_sample)

    def _path(self, text: str) -> Path:
        return self.invocation / Path(text).expanduser()

    def _show_progress(self, progress: Progress) -> None:
        if self.display is not None:
            self.display.show_progress(progress)

    def _show_notice(self, text: str) -> None:
        if self.display is not None:
            self.display.notice(text if self.controls else f"{self.worker}: {text}")


RUN: pytest.StashKey[Run] = pytest.StashKey()
"""Where pytest's configuration keeps the run."""
