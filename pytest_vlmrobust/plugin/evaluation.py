"""How the tests of a run are evaluated and judged: the store, the models, the evidence and the judge, opened on first use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.evaluation.run.selection import Selection

from .inputs import Inputs
from .progress import ProgressDisplay

if TYPE_CHECKING:
    from pytest_vlmrobust.backends import AnswerKey, Backend
    from pytest_vlmrobust.backends.contract import Guard
    from pytest_vlmrobust.core.prediction import ModelRef
    from pytest_vlmrobust.evaluation.judge.judge import Judge
    from pytest_vlmrobust.evaluation.judge.judge_inputs import PlannedTests
    from pytest_vlmrobust.evaluation.run.evaluator import Evaluator, Progress
    from pytest_vlmrobust.evaluation.run.evidence import EvidenceWriter
    from pytest_vlmrobust.evaluation.run.ledger import SharedSpending
    from pytest_vlmrobust.policies import MetricKey
    from pytest_vlmrobust.store import Evidence, Store
    from pytest_vlmrobust.store.spending import Spending


@dataclass
class Evaluation:
    """The tests of a run in one process, and everything opened for them."""

    inputs: Inputs
    display: ProgressDisplay | None = None
    selection: Selection = field(default_factory=Selection)
    written: dict[Path, str] = field(default_factory=dict)
    """The SHA-256 of each file that the run wrote for good."""
    workers_files: set[tuple[str, int, int]] = field(default_factory=set)
    """The store and evidence files of xdist workers: path and file identity."""

    def check(self) -> None:
        """Looks at everything the user named, without opening weights or data."""
        from pytest_vlmrobust.datasets import sampling

        if not self.inputs.only_plans:
            self.inputs.directories.check()
        self.inputs.refuse_partial_baseline()
        _ = self.inputs.policies, self.inputs.reference, self.inputs.grids, self.inputs.baseline
        for name, ref in self.inputs.models.items():
            backend = self.hold_backend(ref)
            if self.inputs.settings.vlm_budget_tokens and not backend.traits.counts_tokens:
                raise UsageError(
                    f"--vlm-budget-tokens: the backend {ref.backend!r} of model {name!r} does not say how many tokens its "
                    "answers take. Leave the option out, or limit the run by --vlm-budget-seconds"
                )
        if self.inputs.settings.vlm_sample:
            sampling.count_of(self.inputs.settings.vlm_sample, 1)
        self.inputs.data.check()

    def free(self) -> None:
        """Frees models and their queue after the last inference, so that a report has room in memory."""
        if self.is_open:
            self.evaluator.free()

    @property
    def open_databases(self) -> list[Evidence | Store]:
        """The evidence and the store, if this process opened them."""
        databases: list[Evidence | Store] = [self.evidence] if "evidence" in vars(self) else []
        return [*databases, self.evaluator.store] if self.is_open else databases

    @property
    def open_files(self) -> set[tuple[str, int, int]]:
        """The databases of this process and its workers: path and file identity."""
        return self.workers_files | {(str(opened.path), *opened.identity) for opened in self.open_databases if opened.identity}

    @property
    def is_open(self) -> bool:
        """Whether this process has opened the store, and may have loaded a model."""
        return "evaluator" in vars(self)

    @cached_property
    def tests(self) -> PlannedTests:
        """The tests, their needs and their quantities."""
        from pytest_vlmrobust.evaluation.judge.judge_inputs import PlannedTests

        return PlannedTests(
            self.selection,
            self.inputs.models,
            self.inputs.policies,
            self.inputs.data,
            self.inputs.grids,
            self.inputs.reference,
            attempts=self.inputs.settings.vlm_patch_attempts,
            compares=bool(self.inputs.settings.vlm_baseline),
        )

    @cached_property
    def planned_answers(self) -> dict[str, int]:
        """The most answers that each cell of the selected tests needs, by id; empty if its data cannot be read.

        Only for display: an error in the data is raised where the data are used.
        """
        from pytest_vlmrobust.evaluation.run.views import view_count

        counts: dict[str, int] = {}
        with contextlib.suppress(Exception):
            for cell in self.tests.required_cells():
                changed = self.evaluator.changed(cell.dataset, cell.setting)
                samples = self.evaluator.samples(cell.dataset) if changed is None else changed
                counts[str(cell)] = len(samples) * view_count(cell.setting)
        return counts

    def rule_warnings(self, planned: Mapping[str, Sequence[MetricKey]]) -> list[str]:
        """Returns a sentence for each model that rules leave out, and for each rule with too few samples.

        ``planned`` has the quantities of each model.
        """
        from pytest_vlmrobust.evaluation.judge.requirements import unbounded_models_of_plan
        from pytest_vlmrobust.evaluation.power.sample_size import sample_warnings

        datasets = [test.dataset for tests in planned.values() for test in tests]
        return unbounded_models_of_plan(self.inputs.policies, planned) + sample_warnings(
            self.inputs.policies,
            planned,
            self.inputs.data.sizes(datasets, self.inputs.settings.vlm_sample),
            today=self.inputs.clock.today,
            changed=self.tests.changed_size,
        )

    def suite_warnings(self, nodeids: Iterable[str]) -> list[str]:
        """Returns a sentence for each suite that a policy requires and that none of these tests is of."""
        from pytest_vlmrobust.policies import suites_of

        names = suites_of(nodeids)
        lacking = (line for policy in self.inputs.policies.values() for line in policy.coverage.uncollected(names))
        return [*dict.fromkeys(lacking)]

    @cached_property
    def evaluator(self) -> Evaluator:
        """The evaluator of cells; opens the store, and datasets and weights on first use."""
        from pytest_vlmrobust.evaluation.run.evaluator import EvaluationOptions, Evaluator
        from pytest_vlmrobust.evaluation.run.ledger import FILE_NAME, Ledger
        from pytest_vlmrobust.store import Store
        from pytest_vlmrobust.store.run_directory import FOLDER

        settings, directories = self.inputs.settings, self.inputs.directories
        return Evaluator(
            models=self.inputs.models,
            datasets=self.inputs.data.factories,
            open_backend=self.open_backend,
            store=Store.open(directories.store, read_only=settings.vlm_offline or not directories.store_is_writable),
            options=EvaluationOptions(
                seed=settings.vlm_seed,
                sample=settings.vlm_sample or None,
                offline=settings.vlm_offline,
                batch_size=settings.vlm_batch_size,
                threads=settings.vlm_threads,
                patch_stop=settings.vlm_patch_stop,
                time_limit=settings.vlm_timeout,
                pictures=directories.store / FOLDER,
            ),
            ledger=Ledger(
                None if self.inputs.only_fills else directories.run / FILE_NAME,
                seconds=settings.vlm_budget_seconds,
                tokens=settings.vlm_budget_tokens,
                started=self.inputs.started,
            ),
            listener=self._show_progress,
            notice=self._show_notice,
        )

    def open_backend(self, ref: ModelRef) -> Backend:
        """Returns the backend of a model with the run's options; no weights are loaded yet."""
        from pytest_vlmrobust.backends import BackendOptions, Cluster, open_backend
        from pytest_vlmrobust.backends.devices import threads_for
        from pytest_vlmrobust.evaluation.judge.requirements import asks_for_all_samples

        settings = self.inputs.settings
        options = BackendOptions(
            device=settings.vlm_device,
            batch_size=settings.vlm_batch_size,
            threads=threads_for(self.inputs.workers),
            preprocessing=settings.vlm_preprocessing,
            offline=settings.vlm_offline,
            digest_cache=self.inputs.directories.store / "digests.json",
            servers=self.inputs.directories.store / "servers",
            digests_of=self.inputs.run_id if asks_for_all_samples(self.inputs.policies.values()) else "",
            notice=self._show_notice,
            cluster=Cluster(settings.vlm_ray_address, settings.vlm_ray_actors, settings.vlm_ray_cpus, settings.vlm_ray_gpus)
            if settings.vlm_engine == "ray"
            else None,
            answers=self._answers,
        )
        return open_backend(ref, options)

    def hold_backend(self, ref: ModelRef) -> Guard:
        """Returns the backend of a model behind its guard, with the limit of ``--vlm-timeout``."""
        from pytest_vlmrobust.backends.contract import Guard

        return Guard(lambda: self.open_backend(ref), ref.name, self.inputs.settings.vlm_timeout)

    @property
    def spending(self) -> list[Spending]:
        """The spending of this run's models so far, over all processes."""
        spent = self.evaluator.ledger.spending if self.inputs.only_fills else self._open_spending().read()
        return [spent[name].priced(ref) for name, ref in self.inputs.models.items() if name in spent]

    def count_answers(self) -> int:
        """Returns how many requests the models of this run answered, or failed to answer, over all of its processes so far."""
        spent = self.evaluator.ledger.spending if self.inputs.only_fills else self._spending_so_far.read()
        return sum(spending.inferences for spending in spent.values())

    @cached_property
    def _spending_so_far(self) -> SharedSpending:
        """The shared file, read line by line during the run and from the start at its end, because it may be replaced."""
        return self._open_spending()

    def _open_spending(self) -> SharedSpending:
        from pytest_vlmrobust.evaluation.run.ledger import FILE_NAME, SharedSpending

        return SharedSpending(self.inputs.directories.run / FILE_NAME)

    def how_models_ran(self) -> dict[str, object]:
        """Returns how this process ran each model that it loaded, JSON-safe: device, threads, size of batches."""
        return self.evaluator.how_models_ran() if self.is_open else {}

    @cached_property
    def judge(self) -> Judge:
        """The judge, which turns measurements into records; creating it writes the judge inputs and opens the evidence."""
        from pytest_vlmrobust.core.cell import Cell
        from pytest_vlmrobust.store.run_directory import DOCKET_FILE

        self.evaluator.witness = self.evidence_writer
        inputs = self.tests.judge_inputs(self.evaluator, self.inputs.clock, self.inputs.baseline)
        run = self.inputs.directories.run
        self.written[run / DOCKET_FILE] = inputs.write(run)  # every measuring process writes the same bytes
        judge = inputs.judge(self.evaluator, self.inputs.baseline, self.evaluator)
        if self.inputs.controls:  # an xdist worker does not know its tests in advance
            tested = {test.about for test in self.selection.tests if isinstance(test.about, Cell)}
            judge.coming.plan(self.tests.required_cells(), tested)
        return judge

    def ask_ahead(self) -> None:
        """Lets a running model work on what coming tests need."""
        if "judge" in vars(self):  # otherwise nothing was evaluated yet
            self.judge.coming.between_tests()

    @cached_property
    def evidence(self) -> Evidence:
        """The questions, answers and scores of this run, shared by its workers."""
        from pytest_vlmrobust.store import Evidence

        return Evidence.open(self.inputs.directories.run)

    @cached_property
    def evidence_writer(self) -> EvidenceWriter:
        """The writer of the evidence."""
        from pytest_vlmrobust.evaluation.run.evidence import EvidenceWriter

        return EvidenceWriter(self.evidence, self.evaluator)

    @cached_property
    def _answers(self) -> AnswerKey:
        """The questions and targets of this run, for scripted models; read on first use."""
        from pytest_vlmrobust.backends import AnswerKey
        from pytest_vlmrobust.core.fingerprint import fingerprint

        def digest() -> str:
            names = sorted({planned.dataset for planned in self.selection.plan})
            return fingerprint({name: self.inputs.data.open(name).digest for name in names})

        # the store is opened on first use
        return AnswerKey(
            lambda name: self.evaluator.samples(name),  # noqa: PLW0108
            digest,
            lambda sample, setting: self.evaluator.question(sample, setting),  # noqa: PLW0108
        )

    def _show_progress(self, progress: Progress) -> None:
        if self.display is not None:
            self.display.show_progress(progress)

    def _show_notice(self, text: str) -> None:
        if self.display is not None:
            self.display.notice(text if self.inputs.controls else f"{self.inputs.worker}: {text}")
