"""The flow of a test: read, measure, judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from pytest_vlmrobust.core.cell import Planned, Setting
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.run.answers import CountedAnswers
from pytest_vlmrobust.evaluation.run.data import StoredTasks, TaskData
from pytest_vlmrobust.evaluation.run.evaluator import Evaluator
from pytest_vlmrobust.evaluation.run.plan import Family
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.policies import Mode, Policy

from .baseline import Baseline
from .lookahead import Lookahead
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
    confidence: float = 0.90
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
            self.confidence,
            self.data,
            self.families,
            self.baseline,
            lambda cell: attempts_of(cell, self.policies[cell.model], always=self.attempts),
            lambda model: [rule for rule in self.policies[model].rules if rule.where.category],
        )

    @cached_property
    def coming(self) -> Lookahead:
        """The coming tests, which keep the model busy."""
        sources = self.sources
        return Lookahead(
            self.evaluator,
            self.asker,
            self.policies,
            lambda cell: Stopping.of(
                reads := sources.reads_of(cell), sources.of_changed(reads), self.policies[cell.model], self.today
            ),
            lambda dataset: bool(sources.task(dataset)),
            sources.why_task_not_shown,
        )

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
