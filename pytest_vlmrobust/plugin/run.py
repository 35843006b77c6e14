"""The run of one pytest process: what is checked before it, the journal of its tests, how they ended, and what reports say of it.

Its bases say what it was asked for (``inputs``) and how its tests are evaluated (``evaluation``). Everything is opened when it is
first asked for: models and data when tests are planned, the store when one is evaluated.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_vlmrobust.core.conversion import prepare, to_plain
from pytest_vlmrobust.core.decision import Decision, Outcome

from .evaluation import RunEvaluation
from .options import RERUN

if TYPE_CHECKING:
    from pytest_vlmrobust.core.record import Record
    from pytest_vlmrobust.evaluation.after.rerun import Rerun
    from pytest_vlmrobust.evaluation.judge.requirements import Requirements
    from pytest_vlmrobust.reporting import Command, RunFacts, RunView
    from pytest_vlmrobust.reporting.directory import ReportDirectory
    from pytest_vlmrobust.store import Evidence, Journal, Store
    from pytest_vlmrobust.store.repeatability import Repeatability

NOT_CONCLUDED = "the run did not finish, so it is unknown which tests it left out: run it again, answers that it has are kept"


@dataclass
class Run(RunEvaluation):
    """One run: what it was asked for, its tests, whatever has been opened for them so far, and their records."""

    command: Command | None = None
    """How pytest was called, for commands that run tests again."""
    rerun: Rerun | None = None
    """The tests of an earlier run to run again, if ``--vlm-rerun`` selects them."""
    stopped: str = ""
    """What ended pytest early, or a failure that no record reports; empty if nothing did."""
    unprinted: str = ""
    """Why pytest could not print what it had to say; empty where it could."""
    repeatability: Sequence[Repeatability] = ()
    """How often answers changed when they were asked for again (``--vlm-aa``)."""
    report: ReportDirectory | None = None
    """Where the report is written, where one is asked for."""
    hold_signals: Callable[[], None] = lambda: None
    """Makes signals wait that would end this process while it concludes."""
    release_signals: Callable[[], None] = lambda: None
    """Lets them end this process again."""
    end_with: Callable[[int | None], None] = lambda status: None  # noqa: ARG005
    """Is called with the exit code of pytest when it is about to end: no other way out leads to 0 then, unless it is 0."""
    by_test: dict[str, Record] = field(default_factory=dict)
    workers_noticed: list[str] = field(default_factory=list)
    """What workers of xdist noticed of models that changed while they were asked."""
    workers_said: dict[str, dict[str, object]] = field(default_factory=dict)
    """What each worker of xdist said at its end about how it ran its models, by the worker's name."""
    workers_files: set[tuple[str, int, int]] = field(default_factory=set)
    """The store and the evidence that workers of xdist had open: path, and what tells the file from another in its place."""
    _concluded: RunFacts | None = None
    _digest: str = ""
    """The digest of the evidence that workers of xdist wrote."""
    _described: Mapping[str, object] = field(default_factory=dict)
    """What its manifest says."""
    _closed: bool = False

    # What the run was asked for.

    def check(self) -> None:
        """Looks at everything the user named, without opening weights or data."""
        from pytest_vlmrobust.datasets import sampling

        if not self.only_plans:
            self.directories.check()
        self.refuse_partial_baseline()
        _ = self.policies, self.reference, self.grids, self.baseline
        for ref in self.models.values():
            self.hold_backend(ref)
        self.check_budget()
        if self.settings.vlm_sample:
            sampling.count_of(self.settings.vlm_sample, 1)
        self.data.check()

    def choose_rerun(self, sent: Mapping[str, object] | None = None) -> None:
        """Looks for the tests that ``--vlm-rerun`` asks for; a worker takes them from what its controller ``sent``."""
        from pytest_vlmrobust.evaluation.after.rerun import Rerun, find_rerun

        if sent is not None:
            self.rerun = Rerun.at_worker(sent)
        elif verdicts := self.settings.vlm_rerun:
            self.rerun = find_rerun(verdicts, RERUN[verdicts], list(self.models), self.directories.earlier)

    def model_changes(self) -> list[str]:
        """Returns, a sentence for each, the models that may have changed while this process or its workers asked them."""
        own = self.evaluator.changes() if "evaluator" in self.__dict__ else []
        return list(dict.fromkeys([*own, *self.workers_noticed]))

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

    def free(self) -> None:
        """Frees models and what was asked of them once nothing more is asked, so that a report need not fit beside them."""
        if "evaluator" in self.__dict__:
            self.evaluator.free()

    def close(self) -> None:
        """Frees models and closes what is open; closing twice is fine."""
        if self._closed:
            return
        self._closed = True
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

    # Whether what it wrote is still there.

    @property
    def open_databases(self) -> list[Evidence | Store]:
        """The evidence and the store, where this process has opened them."""
        found: list[Evidence | Store] = [self.evidence] if "evidence" in self.__dict__ else []
        return [*found, self.evaluator.store] if "evaluator" in self.__dict__ else found

    @property
    def open_files(self) -> set[tuple[str, int, int]]:
        """The databases that this process, or its workers, had open: path, and what tells the file from another in its place."""
        own = {(str(one.path), *one.identity) for one in self.open_databases if one.identity}
        return own | self.workers_files

    def keep_sums(self, files: Iterable[Path]) -> None:
        """Remembers what was just written for good: these files, and what stands in the run's own directory."""
        from pytest_vlmrobust.evaluation.run.ledger import FILE_NAME as SPENDING
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.run_directory import BASELINE, MANIFEST_FILE, file_sum

        directory = self.directories.run
        own = [directory / MANIFEST_FILE, *filter(Path.exists, (directory / SPENDING, directory / BASELINE / FILE_NAME))]
        self.written |= {path: file_sum(path) for path in (*own, *files)}
        if self.workers_files:  # else this process knows each answer that it wrote
            self._digest = self.evidence.digest()

    def losses(self) -> list[str]:
        """Returns, a sentence for each, the files of the run that are no longer what was written, or were exchanged meanwhile.

        Asked after the last test, and of a GO once more when pytest is about to end: a journal, evidence or a store that went
        missing on the way supports no verdict.
        """
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.evaluation.judge.judge_inputs import changed_policies
        from pytest_vlmrobust.store.run_directory import DOCKET_FILE, LOST, alteration, replacement

        found = [self.journal.damage()] if self.controls else []
        found += [replacement(Path(path), (device, inode)) for path, device, inode in sorted(self.open_files)]
        found += [one.damage() for one in self.open_databases]
        altered = {path: alteration(path, sha256) for path, sha256 in self.written.items()}
        found += [*altered.values(), self._changed_answers()]
        judged = self.controls and not altered.get(self.directories.run / DOCKET_FILE)
        if judged and any(record.is_gated and record.outcome is not Outcome.ERROR for record in self.records):
            try:
                found += [f"{self.directories.run}: {change}. {LOST}" for change in changed_policies(self.directories.run)]
            except StoreError as error:
                found.append(f"{error}. {LOST}")
        return list(dict.fromkeys(filter(None, found)))

    def _changed_answers(self) -> str:
        """Returns, as a sentence, that the evidence which workers wrote has other answers than at the end; empty where not."""
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.store import Evidence
        from pytest_vlmrobust.store.run_directory import LOST

        if not self._digest:
            return ""
        try:
            with Evidence.open(self.directories.run, read_only=True) as fresh:
                same = fresh.digest() == self._digest
        except StoreError as error:
            return f"{error}. {LOST}"
        return "" if same else f"{self.evidence.path}: its answers are not the ones that this run wrote. {LOST}"

    # How its tests ended.

    @property
    def records(self) -> list[Record]:
        """The records so far, in the order in which tests first ended; of a test that ran again, the last one."""
        return list(self.by_test.values())

    @property
    def has_begun(self) -> bool:
        """Whether it has a directory, as it does from its first test on."""
        return "journal" in self.__dict__

    def begin(self) -> None:
        """Makes the directory of the run, so that a run that is killed in its first test leaves a trace."""
        if self.controls and self.selection.selected:
            from pytest_vlmrobust.core.record import Record

            prepare(Record)  # later a process may be unable to open the files of a library
            _ = self.journal

    def finish_test(self, record: Record) -> None:
        """Takes the record of a test that ended: into the journal first, then onto the display."""
        self.by_test[record.key] = record
        if self.controls:
            self.journal.append(record)
        if self.display is not None:
            self.display.show_finished_test(record)

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
    def processes(self) -> dict[str, object]:
        """How each process that asked a model ran it, as far as it has said so, by the name of the process."""
        said = {self.worker: self.how_models_ran(), **self.workers_said}
        return {name: models for name, models in said.items() if models}

    @property
    def requirements(self) -> Requirements:
        """What the policies ask of the run as a whole."""
        from pytest_vlmrobust.evaluation.judge.requirements import Requirements

        return Requirements(
            self.policies,
            self.models,
            self.records,
            planned=self.selection.planned,
            selected=self.selection.selected,
            narrowed=self.selection.narrowed,
            today=self.today,
            has_baseline=bool(self.settings.vlm_baseline),
            behind=self.clock.behind,
            without_pictures=self.baseline.without_pictures if self.baseline else (),
            compared={name: self.baseline.model(name) for name in self.models} if self.baseline else {},
            samples_asked=lambda: self._samples_asked,
            categories=lambda: self.data.strata(self._measured_datasets),
        )

    def facts(self) -> RunFacts:
        """Returns the facts about the run that its records lack, for its decision and its reports."""
        from pytest_vlmrobust.reporting import RunFacts
        from pytest_vlmrobust.reporting.files import REPORT
        from pytest_vlmrobust.reporting.noise import noise_warnings
        from pytest_vlmrobust.store.journal import FILE_NAME
        from pytest_vlmrobust.store.run_directory import FOLDER, planned_tests

        requirements = self.requirements
        return RunFacts(
            policies={name: f"{', '.join(f.name for f in p.files)} {p.sha256[:12]}" for name, p in self.policies.items()},
            models=tuple(self.models),
            planned=self.selection.planned,
            selected=self.selection.selected,
            warnings=[*self.selection.notes, *requirements.warnings, *noise_warnings(self.repeatability)],
            shortfalls=requirements.shortfalls,
            allowances=requirements.allowances,
            stopped=self.stopped,
            pictures=self.directories.store / FOLDER,
            command=self.command,
            repeatability=self.repeatability,
            spending=self.spending,
            kept=os.path.relpath(self.directories.run / FILE_NAME, self.invocation),
            directory=os.path.relpath(self.directories.run, self.invocation),
            report=os.path.relpath(self.directories.report / REPORT, self.invocation) if self.settings.vlm_report else "",
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
            command=to_plain(self.command) if self.command else {},
            models=self.models,
            policies=self.policies,
            directory=self.invocation,
        )

    def manifest(self, directory: Path) -> dict[str, object]:
        """Returns the manifest of a report in a directory: what determined this run, and what came of it, JSON-safe.

        A value that is no longer available is replaced by the reason.
        """
        from pytest_vlmrobust.evaluation.run.manifest import measured_facts

        measured = measured_facts(self.records, self.models, self.data, self.hold_backend, self.processes)
        measured["spending"] = self._spending_by_model
        return {
            **self._described,
            **self.origins(),
            **measured,
            "report": True,
            "store": os.path.relpath(self.directories.store, directory),
            "stopped": self.stopped,
            "processes": self.processes,
            "decision": str(self.conclusion.decision(self.records)),
            "warnings": list(self.conclusion.warnings),
            "gates": to_plain(self.conclusion.gates),
        }

    def copy_to(self, directory: Path) -> list[Path]:
        """Copies into a report what makes it a run: records, what judged them, and evidence; returns the files."""
        import shutil

        from pytest_vlmrobust.store.journal import FILE_NAME
        from pytest_vlmrobust.store.run_directory import BASELINE, DOCKET_FILE, POLICIES

        own = self.directories.run
        directory.mkdir(parents=True, exist_ok=True)
        files = [Path(shutil.copy(own / name, directory / name)) for name in (FILE_NAME, DOCKET_FILE) if (own / name).is_file()]
        for name in (POLICIES, BASELINE):
            if (own / name).is_dir():
                shutil.copytree(own / name, directory / name, dirs_exist_ok=True)
        return [*files, self.evidence.copy_to(directory)]

    def describe(self, lacks: Sequence[str], **conclusion: object) -> None:
        """Writes the manifest beside the journal: what was to run, and which requirements of policies are not met."""
        from pytest_vlmrobust.store import write_manifest

        directories = self.directories
        content = {
            **self.origins(),
            "planned": self.selection.planned,
            "selected": self.selection.selected,
            "shortfalls": list(lacks),
            "stopped": self.stopped,
            "repeats": self.rerun.run if self.rerun else "",
            "repeatability": to_plain(self.repeatability),
            "spending": self._spending_by_model,
            "store": os.path.relpath(directories.store, directories.run),
            "processes": self.processes,
        }
        self._described = {**content, **conclusion}
        write_manifest(directories.run, self._described)

    def judge_budgets(self) -> None:
        """Judges the budgets over all answers of each model about a dataset, of which each test knows a part.

        With xdist they lie in several processes: what these wrote down is read.
        """
        from pytest_vlmrobust.core.errors import VlmRobustError
        from pytest_vlmrobust.evaluation.judge.judge_inputs import JudgeInputs
        from pytest_vlmrobust.evaluation.judge.stored_answers import StoredAnswers
        from pytest_vlmrobust.store import Evidence
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.run_directory import DOCKET_FILE

        directory = self.directories.run
        if not ((directory / DOCKET_FILE).is_file() and (directory / FILE_NAME).is_file()):
            return  # nothing was asked
        try:
            inputs = JudgeInputs.read(directory)
            with Evidence.open(directory, read_only=True) as evidence:
                records = inputs.budget_records(StoredAnswers(evidence, inputs.models))
        except VlmRobustError as error:
            self.stop("; ".join(filter(None, (self.stopped, f"the budgets could not be judged: {error}"))))
            return
        for record in records:
            self.finish_test(record)

    def conclude(self) -> Decision:
        """Decides, and writes the decision into the directory of the run."""
        facts = self.facts()
        decision = facts.decision(self.records)
        self._concluded = facts = self._with_gates(facts, decision)
        missing = facts.missing(self.records)
        allowances = to_plain(facts.allowances)
        self.describe(
            facts.shortfalls,
            missing=missing,
            decision=str(decision),
            warnings=list(facts.warnings),
            allowances=allowances,
            gates=to_plain(facts.gates),
        )
        return decision

    def _with_gates(self, facts: RunFacts, decision: Decision) -> RunFacts:
        """Counts this gate in the store, and returns the facts with its number; a run that decided nothing is none."""
        from pytest_vlmrobust.core.errors import StoreError
        from pytest_vlmrobust.core.fingerprint import fingerprint
        from pytest_vlmrobust.store import Evidence, Store
        from pytest_vlmrobust.store.database import FILE_NAME
        from pytest_vlmrobust.store.gates import Gate

        directories, counted = self.directories, self._concluded is not None and self._concluded.gates
        if not (counted or decision is not Decision.INCOMPLETE) or not (directories.run / FILE_NAME).is_file():
            return facts
        gates: list[Gate] = []
        try:
            if decision is not Decision.INCOMPLETE:
                with Evidence.open(directories.run, read_only=True) as evidence:
                    models, decisions = evidence.models(), facts.decisions(self.records)
                    for model, dataset in sorted({(cell.model, cell.dataset) for cell in evidence.cells()}):
                        policy, (questions, answers) = self.policies[model], evidence.gate_members(model, dataset)
                        print_of, decided = fingerprint(models[model]), str(decisions.get(model, decision))
                        about = (self.run_id, model, dataset, self.today.isoformat(), print_of, policy.sha256)
                        gates.append(Gate(*about, questions, answers, policy.risk, decided))
            with Store.open(directories.store, read_only=not directories.store_is_writable) as store:
                return dataclasses.replace(facts, gates=store.count_gates(self.run_id, gates))
        except StoreError as error:
            return dataclasses.replace(facts, warnings=[*facts.warnings, f"this gate is not counted among others: {error}"])

    @property
    def decision(self) -> Decision | None:
        """What was decided; ``None`` before that, and where it never came to it."""
        return None if self._concluded is None else self._concluded.decision(self.records)

    @property
    def view(self) -> RunView:
        """What reports say of the run."""
        from pytest_vlmrobust.reporting import RunView

        return RunView(self.records, self.conclusion)

    @property
    def conclusion(self) -> RunFacts:
        """The facts that the run was decided by; before that, those that are known."""
        return self._concluded or self.facts()

    def take_back(self, reason: str) -> None:
        """Makes a run that was decided GO INCOMPLETE, here and in its directory; what stands there may be gone or unreadable."""
        from pytest_vlmrobust.store import write_manifest

        facts = dataclasses.replace(self._with_gates(self.conclusion, Decision.INCOMPLETE), stopped=reason)
        self._concluded = facts
        self.stop(reason)
        changed = {"stopped": reason, "decision": str(Decision.INCOMPLETE), "warnings": list(facts.warnings), "gates": []}
        write_manifest(self.directories.run, {**self._described, **changed})

    # Parts of these.

    @property
    def _spending_by_model(self) -> dict[str, object]:
        return {spent.model: to_plain(spent) for spent in (self._concluded.spending if self._concluded else self.spending)}

    @property
    def _measured_datasets(self) -> list[str]:
        return [name for name in dict.fromkeys(record.dataset for record in self.records) if name]

    @cached_property
    def _samples_asked(self) -> dict[str, tuple[int, int]]:
        """For each dataset that ``--vlm-sample`` reduced: the number of samples asked, and the total."""
        return self.data.samples_asked(self._measured_datasets, self.settings.vlm_sample)


RUN: pytest.StashKey[Run] = pytest.StashKey()
"""Where pytest's configuration keeps the run."""
