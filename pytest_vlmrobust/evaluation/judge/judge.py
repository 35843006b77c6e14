"""The flow of a test: read, measure, judge; and what keeps a model busy with coming tests meanwhile."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import BASELINES, Cell, Planned, Setting
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.run.answers import CountedAnswers
from pytest_vlmrobust.evaluation.run.data import StoredTasks, TaskData
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.plan import Family
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.policies import Mode, Policy

from .baseline import Baseline
from .measure import Sources, measure, refused, why_not_asked
from .reads import Reads, attempts_of
from .record import judge
from .stopping import Stopping


def run_test(reads: Reads, sources: Sources, policy: Policy, today: date, coming: Lookahead) -> Record:
    """Judges one test: the whole flow, for cells, summary metrics and families alike."""
    begun, sources = coming.begin(reads.planned), sources.of_changed(reads)
    if why := why_not_asked(reads, sources):
        return judge(refused(reads, sources, why), policy, today)
    stopping = begun or Stopping.of(reads, sources, policy, today)  # None: all samples are asked
    while stopping and (requests := stopping.next()):
        stopping.take(coming.scores(requests))
    if stopping and stopping.is_decided:
        return stopping.counted(judge(stopping.measurement, policy, today, stopping.verdicts))
    coming.expect([CellRequest(cell) for cell in reads.of_settings])
    return judge(measure(reads, sources), stopping.remaining_policy if stopping else policy, today)


@dataclass(frozen=True)
class Judge:
    """Judges the tests of a run by the policy of each model."""

    evaluator: CountedAnswers
    policies: Mapping[str, Policy]
    today: date
    reference: str | None = None
    data: TaskData = field(default_factory=StoredTasks)
    """The datasets that tasks make of collections."""
    families: Mapping[str, Family] = field(default_factory=dict)
    baseline: Baseline | None = None
    """The earlier run that cells are compared with."""
    attempts: bool = False
    """Whether patches are compared with as many attempts at the whole image even if no rule asks for it."""
    asker: Evaluator | None = None
    """The evaluator that works ahead of coming tests; ``None`` without working ahead."""

    @cached_property
    def sources(self) -> Sources:
        """The data that tests are measured from."""
        return Sources(
            self.evaluator,
            self.reference,
            self.data,
            self.families,
            self.baseline,
            lambda cell: attempts_of(cell, self.policies[cell.model], always=self.attempts),
            lambda model: [rule for rule in self.policies[model].rules if rule.where.category],
        )

    @cached_property
    def coming(self) -> Lookahead:
        """The coming tests, which keep the model busy."""
        return Lookahead(self)

    def stopping_of(self, cell: Cell) -> Stopping | None:
        """Starts the early stopping of a cell; ``None`` if it uses all samples."""
        reads = self.sources.reads_of(cell)
        return Stopping.of(reads, self.sources.of_changed(reads), self.policies[cell.model], self.today)

    def run(self, planned: Planned, settings: Sequence[Setting] = ()) -> Record:
        """Judges one test; ``settings`` are those of a summary metric. Evaluates the cells that it needs."""
        sources, policy, coming = self.sources, self.policies[planned.model], self.coming
        before = [count - between for count, between in zip(self._counts, coming.between, strict=True)]
        coming.between = (0, 0)  # inferences between tests count for this record
        record = run_test(sources.reads_of(planned, settings), sources, policy, self.today, coming)
        return dataclasses.replace(
            record,
            task=sources.task(planned.dataset),
            n_inferred=self._counts[0] - before[0],
            n_recalled=self._counts[1] - before[1],
            policy_sha256=policy.sha256,
        )

    @property
    def _counts(self) -> tuple[int, int]:
        """How many answers came from a model so far, and how many from a store."""
        return self.evaluator.inferred, self.evaluator.recalled

    def in_full(self) -> Judge:
        """Returns a judge that uses all answers, whatever the policies say."""
        policies = {name: dataclasses.replace(policy, mode=Mode.FULL) for name, policy in self.policies.items()}
        return dataclasses.replace(self, policies=policies)


COMING = 512
"""How many coming cells are considered for asking ahead."""


@dataclass(eq=False)
class Lookahead:
    """The coming tests of a run, which keep its models busy: they may need more answers before their turn.

    A test whose answers are available continues before its turn, with the same requests.
    """

    judge: Judge
    between: tuple[int, int] = (0, 0)
    """Answers that were inferred and recalled between tests, which no record counts yet."""
    _coming: dict[Cell, None] = field(default_factory=dict)
    _tested: set[Cell] = field(default_factory=set)
    """Cells among them with a test."""
    _begun: dict[Cell, Stopping] = field(default_factory=dict)
    """Tests that were advanced before their turn."""
    _expected: dict[Cell, int] = field(default_factory=dict)
    """How many of the first samples of a cell are on their way."""

    def plan(self, cells: Iterable[Cell], tested: Collection[Cell]) -> None:
        """Sets the cells of a run."""
        if self.judge.asker is not None:
            self._coming.update(dict.fromkeys(cells))
            self._tested.update(tested)

    def begin(self, about: Planned) -> Stopping | None:
        """Returns the started stopping of the current test, or ``None``."""
        begun = None
        if isinstance(about, Cell):
            self._coming.pop(about, None)
            begun = self._begun.pop(about, None)
        self._ask_ahead(about.model)
        return begun

    def scores(self, requests: Sequence[CellRequest]) -> list[NDArray[np.float64]]:
        """Evaluates parts of cells of a model together, and returns the scores of each."""
        self._ask_ahead(requests[0].cell.model)
        if len(requests) > 1:
            self.expect(requests)
        return [self.judge.evaluator.result(request.cell, request.places).values for request in requests]

    def expect(self, requests: Sequence[CellRequest]) -> None:
        """Queues these requests together, so that none waits for another."""
        if self.judge.asker is not None and requests:
            self.judge.asker.expect(requests)
            self._ask_ahead(requests[0].cell.model)

    def between_tests(self) -> None:
        """Has the models that are asked go on with what coming tests need; the next record counts it."""
        if self.judge.asker is None:
            return
        inferred, recalled = self.judge.asker.inferred, self.judge.asker.recalled
        for model in self.judge.policies:
            self.judge.asker.work_ahead(model)
            self._ask_ahead(model)
        more = self.judge.asker.inferred - inferred, self.judge.asker.recalled - recalled
        self.between = (self.between[0] + more[0], self.between[1] + more[1])

    def _ask_ahead(self, model: str) -> None:
        """Queues requests of coming tests for a model while there is room."""
        if self.judge.asker is None or self.judge.asker.room(model) <= 0:  # a model whose answers are all stored gets no requests
            return
        unanswered: set[Cell] = set()
        for cell in list(islice((cell for cell in self._coming if cell.model == model), COMING)):
            if self.judge.asker.room(model) <= 0:
                return
            try:
                is_over = self._advance(cell, self.judge.asker, unanswered)
            except Exception:  # noqa: BLE001 - it is about another test, which begins anew and meets the same error
                self._begun.pop(cell, None)
                is_over = True
            if is_over:
                del self._coming[cell]

    def _advance(self, cell: Cell, asker: Evaluator, unanswered: set[Cell]) -> bool:
        """Advances a coming cell with available answers; returns whether no further request is known."""
        stopping = self._begun.get(cell) or self.judge.stopping_of(cell)
        if stopping and cell not in self._tested:
            return True
        may_be_refused = cell.setting not in BASELINES and bool(self.judge.sources.task(cell.dataset))
        if may_be_refused or stopping:
            baselines = {Cell(cell.model, cell.dataset, setting) for setting in BASELINES}
            if not unanswered & baselines:
                everything = range(len(asker.samples(cell.dataset)))
                answered = {
                    cell for cell in baselines if asker.is_evaluated(cell) or asker.scores_ahead(cell, everything) is not None
                }
                unanswered |= baselines - answered
            if unanswered & baselines:
                return False
            if self.judge.sources.why_task_not_shown(cell.model, cell.dataset):
                return True
        if not stopping:
            asker.expect([CellRequest(cell)])
            return True
        self._begun[cell] = stopping
        return self._advance_test(cell, stopping, asker)

    def _advance_test(self, cell: Cell, stopping: Stopping, asker: Evaluator) -> bool:
        while (requests := stopping.next()) and not stopping.at_look:
            scores = asker.scores_ahead(cell, requests[0].places or ())
            if scores is None:
                self._expect_first(cell, stopping, asker)
                return False
            if np.isnan(scores).any():
                return True
            stopping.take([scores])
        if stopping.at_look:
            self._expect_first(cell, stopping, asker)
        return True

    def _expect_first(self, cell: Cell, stopping: Stopping, asker: Evaluator) -> None:
        """Queues the first samples of a cell that are not pending yet."""
        request = stopping.request(cell, self._expected.get(cell, 0), stopping.n_asked)
        if request.places:
            asker.expect([request])
            self._expected[cell] = stopping.n_asked
