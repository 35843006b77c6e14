"""The results of a run: the journal of its tests, how they ended, the decision, and what reports say of it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.conversion import prepare, to_plain
from pytest_vlmrobust.core.decision import Decision, Outcome
from pytest_vlmrobust.core.errors import StoreError

from .evaluation import Evaluation
from .inputs import Inputs

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.judge.requirements import Requirements
    from pytest_vlmrobust.reporting import RunFacts, RunView
    from pytest_vlmrobust.reporting.directory import ReportDirectory
    from pytest_vlmrobust.store import Journal
    from pytest_vlmrobust.store.repeatability import Repeatability

NOT_CONCLUDED = "the run did not finish, so it is unknown which tests it left out: run it again, answers that it has are kept"


@dataclass
class Results:
    """The records of a run, what is concluded from them, and the files that it rests on."""

    inputs: Inputs
    evaluation: Evaluation
    stopped: str = ""
    """Why pytest ended early, or a failure that no record reports; empty otherwise."""
    unprinted: str = ""
    """Why pytest could not print its output; empty if it could."""
    repeatability: Sequence[Repeatability] = ()
    """How often answers changed on repetition (``--vlm-aa``)."""
    report: ReportDirectory | None = None
    """The report directory, if requested."""
    by_test: dict[str, Record] = field(default_factory=dict)
    workers_noticed: list[str] = field(default_factory=list)
    """Reports of xdist workers about models that changed during the run."""
    workers_said: dict[str, dict[str, object]] = field(default_factory=dict)
    """How each xdist worker ran its models, by the worker's name."""
    _concluded: RunFacts | None = None
    _digest: str = ""
    """The digest of the evidence that workers of xdist wrote."""
    _described: Mapping[str, object] = field(default_factory=dict)
    """Its manifest."""

    def model_changes(self) -> list[str]:
        """Returns, a sentence for each, the models that may have changed while this process or its workers asked them."""
        changes = self.evaluation.evaluator.changes() if self.evaluation.is_open else []
        return list(dict.fromkeys([*changes, *self.workers_noticed]))

    @cached_property
    def journal(self) -> Journal:
        """The records of this run on disk, a line each, written as tests end.

        Opening it writes the manifest and copies the baseline's evidence, which may be replaced by the end.
        """
        from pytest_vlmrobust.store import Journal
        from pytest_vlmrobust.store.run_directory import BASELINE

        self.describe([NOT_CONCLUDED])
        if self.inputs.baseline is not None:
            self.inputs.baseline.evidence.copy_to(self.inputs.directories.run / BASELINE)
        return Journal(self.inputs.directories.run)

    # Whether its files are still there.

    def keep_sums(self, files: Iterable[Path]) -> None:
        """Remembers the digests of these final files and of the run's directory."""
        from pytest_vlmrobust.evaluation.run.ledger import FILE_NAME as SPENDING
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.run_directory import BASELINE, MANIFEST_FILE, file_sum

        evaluation = self.evaluation
        directory = self.inputs.directories.run
        run_files = [directory / MANIFEST_FILE, *filter(Path.exists, (directory / SPENDING, directory / BASELINE / FILE_NAME))]
        evaluation.written |= {path: file_sum(path) for path in (*run_files, *files)}
        if evaluation.workers_files:  # else this process knows each answer that it wrote
            self._digest = evaluation.evidence.digest()

    def losses(self) -> list[str]:
        """Returns a sentence for each file of the run that changed or was replaced since it was written.

        Checked after the last test, and for a GO again when pytest is about to end: a journal, evidence or store that went
        missing supports no verdict.
        """
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.evaluation.judge.judge_inputs import changed_policies
        from pytest_vlmrobust.store.run_directory import DOCKET_FILE, LOST, alteration, replacement

        inputs, evaluation = self.inputs, self.evaluation
        problems = [self.journal.damage()] if inputs.controls else []
        problems += [replacement(Path(path), (device, inode)) for path, device, inode in sorted(evaluation.open_files)]
        problems += [database.damage() for database in evaluation.open_databases]
        altered = {path: alteration(path, sha256) for path, sha256 in evaluation.written.items()}
        problems += [*altered.values(), self._changed_answers()]
        judged = inputs.controls and not altered.get(inputs.directories.run / DOCKET_FILE)
        if judged and any(record.is_gated and record.outcome is not Outcome.ERROR for record in self.records):
            try:
                problems += [f"{inputs.directories.run}: {change}. {LOST}" for change in changed_policies(inputs.directories.run)]
            except StoreError as error:
                problems.append(f"{error}. {LOST}")
        return list(dict.fromkeys(filter(None, problems)))

    def _changed_answers(self) -> str:
        """Returns a sentence if answers in the evidence changed after the end; empty otherwise."""
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.store import Evidence
        from pytest_vlmrobust.store.run_directory import LOST

        if not self._digest:
            return ""
        try:
            with Evidence.open(self.inputs.directories.run, read_only=True) as fresh:
                same = fresh.digest() == self._digest
        except StoreError as error:
            return f"{error}. {LOST}"
        return "" if same else f"{self.evaluation.evidence.path}: its answers are not the ones that this run wrote. {LOST}"

    # How its tests ended.

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order of first results; a repeated test has its last record."""
        return list(self.by_test.values())

    @property
    def has_begun(self) -> bool:
        """Whether it has a directory, as it does from its first test on."""
        return "journal" in vars(self)

    def begin(self) -> None:
        """Creates the directory of the run, so that a run killed in its first test leaves a trace."""
        if self.inputs.controls and self.evaluation.selection.selected:
            from pytest_vlmrobust.core.record import Record

            prepare(Record)  # later a process may be unable to open the files of a library
            _ = self.journal

    def finish_test(self, record: Record) -> None:
        """Takes the record of a test that ended: into the journal first, then onto the display."""
        self.by_test[record.key] = record
        if self.inputs.controls:
            self.journal.append(record)
        if self.evaluation.display is not None:
            self.evaluation.display.show_finished_test(record)

    def repeat(self) -> None:
        """Repeats answers of each model and dataset of the run; no verdict depends on them.

        With xdist this is another process than the first time.
        """
        from pytest_vlmrobust.evaluation.after.repeat import repeat_run

        evaluation, most = self.evaluation, self.inputs.settings.vlm_aa_sample
        process = "" if evaluation.is_open else "another process"
        rules = {name: policy.rules for name, policy in self.inputs.policies.items()}
        self.repeatability = repeat_run(
            evaluation.evaluator, evaluation.evidence, rules, self.records, most=most, process=process
        )

    @property
    def processes(self) -> dict[str, object]:
        """How each process ran its model, if known, by the name of the process."""
        said = {self.inputs.worker: self.evaluation.how_models_ran(), **self.workers_said}
        return {name: models for name, models in said.items() if models}

    @property
    def requirements(self) -> Requirements:
        """The requirements of the policies for the whole run."""
        from pytest_vlmrobust.evaluation.judge.measurements import metric_keys
        from pytest_vlmrobust.evaluation.judge.requirements import Requirements

        inputs, selection = self.inputs, self.evaluation.selection
        datasets = [name for name in dict.fromkeys(record.dataset for record in self.records) if name]
        return Requirements(
            inputs.policies,
            inputs.models,
            self.records,
            planned=selection.planned,
            selected=selection.selected,
            narrowed=selection.narrowed,
            today=inputs.clock.today,
            has_baseline=bool(inputs.settings.vlm_baseline),
            behind=inputs.clock.behind,
            without_pictures=inputs.baseline.without_pictures if inputs.baseline else (),
            compared={name: inputs.baseline.model(name) for name in inputs.models} if inputs.baseline else {},
            samples_asked=lambda: inputs.data.samples_asked(datasets, inputs.settings.vlm_sample),
            categories=lambda: inputs.data.strata(datasets),
            idle=[
                key
                for model in inputs.models
                for dataset, setting in selection.idle
                for key in metric_keys(Cell(model, dataset, Setting.parse(setting)))
            ],
        )

    def facts(self) -> RunFacts:
        """Returns the facts about the run for its decision and reports that are not in its records."""
        from pytest_vlmrobust.reporting import RunFacts
        from pytest_vlmrobust.reporting.facts import noise_warnings
        from pytest_vlmrobust.reporting.files import REPORT
        from pytest_vlmrobust.store.run_directory import FOLDER, planned_tests

        inputs, evaluation = self.inputs, self.evaluation
        requirements = self.requirements
        return RunFacts(
            policies={name: f"{', '.join(f.name for f in p.files)} {p.sha256[:12]}" for name, p in inputs.policies.items()},
            models=tuple(inputs.models),
            planned=evaluation.selection.planned,
            selected=evaluation.selection.selected,
            warnings=[*evaluation.selection.notes, *requirements.warnings, *noise_warnings(self.repeatability)],
            shortfalls=requirements.shortfalls,
            allowances=requirements.allowances,
            stopped=self.stopped,
            pictures=inputs.directories.store / FOLDER,
            command=inputs.command,
            repeatability=self.repeatability,
            spending=evaluation.spending,
            directory=os.path.relpath(inputs.directories.run, inputs.invocation),
            report=os.path.relpath(inputs.directories.report / REPORT, inputs.invocation) if inputs.settings.vlm_report else "",
            origins=self.origins(),
            tests=planned_tests(inputs.directories.run),
        )

    def origins(self) -> dict[str, object]:
        """Returns everything that determines the run and is known before the first inference, JSON-safe."""
        from pytest_vlmrobust.evaluation.run.manifest import origins

        inputs = self.inputs
        return origins(
            inputs.run_id,
            inputs.clock.today,
            settings=dataclasses.asdict(inputs.settings),
            command=to_plain(inputs.command) if inputs.command else {},
            models=inputs.models,
            policies=inputs.policies,
            directory=inputs.invocation,
        )

    def manifest(self, directory: Path) -> dict[str, object]:
        """Returns the manifest of a report: what determined this run, and its result, JSON-safe.

        An unavailable value is replaced by the reason.
        """
        from pytest_vlmrobust.evaluation.run.manifest import measured_facts

        fingerprints: Mapping[str, Mapping[str, Any]] = {}
        with contextlib.suppress(StoreError):  # which the decision says
            fingerprints = self.evaluation.evidence.models()
        inputs, evaluation = self.inputs, self.evaluation
        measured = measured_facts(
            self.records, inputs.models, inputs.data, evaluation.hold_backend, self.processes, fingerprints=fingerprints
        )
        store = os.path.relpath(inputs.directories.store, directory)
        return {**self._described, **measured, "report": True, "store": store}

    def copy_to(self, directory: Path) -> list[Path]:
        """Copies records, judge inputs and evidence into a report, so that it can be used as a run; returns the files."""
        from pytest_vlmrobust.reporting.directory import copy_records

        files = copy_records(self.inputs.directories.run, directory)
        return [*files, self.evaluation.evidence.copy_to(directory)]

    def describe(self, lacks: Sequence[str], **conclusion: object) -> None:
        """Writes the manifest next to the journal: what was to run, and unmet requirements of policies."""
        from pytest_vlmrobust.store import write_manifest

        directories = self.inputs.directories
        content = {
            **self.origins(),
            "planned": self.evaluation.selection.planned,
            "selected": self.evaluation.selection.selected,
            "shortfalls": list(lacks),
            "stopped": self.stopped,
            "repeats": self.inputs.rerun.run if self.inputs.rerun else "",
            "repeatability": to_plain(self.repeatability),
            "spending": self._spending_by_model,
            "store": os.path.relpath(directories.store, directories.run),
            "processes": self.processes,
        }
        self._described = {**content, **conclusion}
        write_manifest(directories.run, self._described)

    def judge_budgets(self) -> None:
        """Judges the budgets over all answers of each model on a dataset; each test knows only a part of them.

        With xdist, the answers are read from the evidence of all processes.
        """
        from pytest_vlmrobust.core.errors import VlmRobustError
        from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
        from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
        from pytest_vlmrobust.store import Evidence
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.run_directory import DOCKET_FILE

        directory = self.inputs.directories.run
        if not ((directory / DOCKET_FILE).is_file() and (directory / FILE_NAME).is_file()):
            return  # nothing was evaluated
        try:
            inputs = JudgeInputs.read(directory)
            with Evidence.open(directory, read_only=True) as evidence:
                records = inputs.budget_records(StoredAnswers(evidence, inputs.models))
        except VlmRobustError as error:
            self.stopped = "; ".join(filter(None, (self.stopped, f"the budgets could not be judged: {error}")))
            return
        for record in records:
            self.finish_test(record)

    def conclude(self) -> Decision:
        """Decides, and writes the decision into the directory of the run."""
        facts = self.facts()
        decision = facts.decision(self.records)
        self._concluded = facts = self._with_gates(facts, decision)
        self.describe(
            facts.shortfalls,
            missing=facts.missing(self.records),
            decision=str(decision),
            warnings=list(facts.warnings),
            allowances=to_plain(facts.allowances),
            gates=to_plain(facts.gates),
        )
        return decision

    def _with_gates(self, facts: RunFacts, decision: Decision) -> RunFacts:
        """Counts this gate in the store and returns the facts with its number; a run without a decision does not count."""
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.core.fingerprint import fingerprint
        from pytest_vlmrobust.store import Evidence, Store
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.gates import Gate

        directories, counted = self.inputs.directories, self._concluded is not None and self._concluded.gates
        if not (counted or decision is not Decision.INCOMPLETE) or not (directories.run / FILE_NAME).is_file():
            return facts
        gates: list[Gate] = []
        try:
            if decision is not Decision.INCOMPLETE:
                with Evidence.open(directories.run, read_only=True) as evidence:
                    models, decisions = evidence.models(), facts.decisions(self.records)
                    for model, dataset in sorted({(cell.model, cell.dataset) for cell in evidence.cells()}):
                        policy, (questions, answers) = self.inputs.policies[model], evidence.gate_members(model, dataset)
                        print_of, decided = fingerprint(models[model]), str(decisions.get(model, decision))
                        about = (self.inputs.run_id, model, dataset, self.inputs.clock.today.isoformat(), print_of, policy.sha256)
                        gates.append(Gate(*about, questions, answers, policy.risk, decided))
            with Store.open(directories.store, read_only=not directories.store_is_writable) as store:
                return dataclasses.replace(facts, gates=store.count_gates(self.inputs.run_id, gates))
        except StoreError as error:
            return dataclasses.replace(facts, warnings=[*facts.warnings, f"this gate is not counted among others: {error}"])

    @property
    def decision(self) -> Decision | None:
        """The decision; ``None`` before it, or if there never was one."""
        return None if self._concluded is None else self._concluded.decision(self.records)

    @property
    def view(self) -> RunView:
        """The view of the run for reports."""
        from pytest_vlmrobust.reporting import RunView

        return RunView(self.records, self.conclusion)

    @property
    def conclusion(self) -> RunFacts:
        """The facts behind the decision; before it, the facts so far."""
        return self._concluded or self.facts()

    def take_back(self, reason: str) -> None:
        """Changes a GO to INCOMPLETE, here and in its directory, whose files may be missing or unreadable."""
        from pytest_vlmrobust.store import write_manifest

        facts = dataclasses.replace(self._with_gates(self.conclusion, Decision.INCOMPLETE), stopped=reason)
        self._concluded = facts
        self.stopped = reason
        changed = {"stopped": reason, "decision": str(Decision.INCOMPLETE), "warnings": list(facts.warnings), "gates": []}
        self._described = {**self._described, **changed}
        write_manifest(self.inputs.directories.run, self._described)

    # Parts of these.

    @property
    def _spending_by_model(self) -> dict[str, object]:
        spending = self._concluded.spending if self._concluded else self.evaluation.spending
        return {spent.model: to_plain(spent) for spent in spending}
