"""Adaptive: a test asks its samples in a fixed random order, and stops as soon as its rules are decided at their declared risk.

A rule that judges the value (``judge: point``) asks for the verdict that all answers would give. An audit of a cell, of a
category, of the cells of a sweep or of the pairs of a mean bets against that verdict and may stop after any answer. What no
audit is known for, and any rule that judges the interval, is looked at a few times: each look spends a part of the risk, and the
last one asks about all samples.

The order follows from the prompt and the pixels of each sample, not from its place, its id or any option. It is the same for all
cells of a model and a dataset, so that metrics of several cells find the same samples in each. Every verdict of a cell follows
from its own answers in that order, so that it is the same whatever else the run asks, in any process. Unchanged pictures, by
whose pixels samples are known, are asked about in full before a test may stop early.

A failed inference leaves its test to all samples, as does a category or a metric that the samples so far lack. Budgets are judged
on what was asked. A run that is compared with an earlier one asks about everything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.evaluation.run.queue import Want
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.metrics.table import Needs, ScoreTable
from pytest_vlmrobust.policies import JudgedTest, Mode, Rule

from .audits import (
    CELL_LIMITS,
    FIRST,
    NoAuditError,
    RuleAudit,
    asking_order,
    fingerprints_of,
    judges_value,
    limits_within,
    moments,
    risks,
)
from .context import Asked
from .judge import Judge
from .looks import Decisions, Prefix, alone, blocks, breaks_budget, is_broken, look_sizes, risk_shares, strata_of, with_risk
from .measurements import UNPARSED_INCREASE, judged_tests, quantity
from .reads import BASELINES, attempts_of, floors, reads_baselines_only, references, score_table, unseen_names
from .replay import NoThumbnails
from .strata import rows_of
from .sweep_audits import SweepTest

if TYPE_CHECKING:
    from .audits import Scores

COMING = 512
"""Cells that are looked at for what can be asked ahead: those behind them have to wait for theirs."""


class AsksAhead(Protocol):
    """What keeps a model busy with questions of tests that have not begun."""

    def room(self, model: str) -> int:
        """Returns how many more questions may be expected of a model for now."""
        ...

    def expect(self, wants: Iterable[Want]) -> None:
        """Says what will be asked for next, in this order."""
        ...

    def work_ahead(self, model: str) -> None:
        """Goes on with what is expected next of a model."""
        ...

    def is_evaluated(self, cell: Cell) -> bool:
        """Whether all samples of a cell were asked about."""
        ...

    def scores_ahead(self, cell: Cell, places: Sequence[int]) -> Scores | None:
        """Returns the scores of samples of a cell, shape (N,), once all of their answers are stored; counts nothing as asked."""
        ...


@dataclass(eq=False)
class CellTest:
    """The test of one cell on its way: which samples it waits for, and what its audits make of their answers."""

    order: Sequence[int]
    """The places of all samples, in the order in which they are asked."""
    decisions: Decisions
    audits: Mapping[tuple[JudgedTest, str], RuleAudit]
    moments: deque[int]
    """After how many answers it may stop, those that are still to come."""
    is_due: bool = False
    """Whether a look may end it now."""
    n_seen: int = 0
    """How many answers its audits have seen."""

    def upcoming(self) -> Sequence[int]:
        """Returns the places of the samples that its audits wait for; none once a look is due, or nothing is left to wait for."""
        while self.moments and not self.is_due:
            self.decisions.asked = self.moments[0]
            if not all(audit.is_done for audit in self.audits.values()):
                return self.order[self.n_seen : self.moments[0]]
            self._pass_moment()
        return ()

    def take(self, scores: Scores) -> None:
        """Takes the scores of the samples that were upcoming into account."""
        for (test, _), audit in self.audits.items():
            if not audit.is_done:
                audit.advance({0: scores})
                self.decisions.conclude(test, audit.rule, audit.within)
        self._pass_moment()

    def _pass_moment(self) -> None:
        asked = self.n_seen = self.moments.popleft()
        all_done = all(audit.is_done for audit in self.audits.values())
        may_stop = all_done and (asked in look_sizes(len(self.order)) or not self.decisions.open_looks)
        self.is_due = self.decisions.has_failed or may_stop


@dataclass(frozen=True, slots=True)
class AdaptiveJudge:
    """Judges as :class:`Judge` does, and asks no further once a test is decided, where the policy of its model says so."""

    judge: Judge
    asker: AsksAhead | None = None
    """Told what is asked next, so that a model is kept busy; ``None`` where nothing is asked ahead."""
    _coming: dict[Cell, None] = field(default_factory=dict, init=False)
    """Cells that will be asked about, in their order, as far as more may be asked of them before their turn."""
    _tested: set[Cell] = field(default_factory=set, init=False)
    """Those among them that have a test of their own."""
    _begun: dict[Cell, CellTest] = field(default_factory=dict, init=False)
    """Tests of cells that were advanced before their turn."""
    _expected: dict[Cell, int] = field(default_factory=dict, init=False)
    """How many of the first samples of a cell are on their way."""
    _ahead: list[int] = field(default_factory=lambda: [0, 0], init=False)
    """Answers that were inferred and recalled between tests, which no record counts yet."""
    _fingerprints: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, init=False)
    """By model and dataset, what the order of the samples is made of."""

    def cell(self, cell: Cell) -> Record:
        """Evaluates a cell and judges it.

        Raises:
            InfrastructureError: nothing could be measured.
        """
        return self._counted(lambda: self._cell(cell))

    def sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        """Computes a summary metric over ``settings`` and judges it.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        return self._counted(lambda: self._sweep(sweep, settings))

    def plan(self, cells: Iterable[Cell], tested: Collection[Cell]) -> None:
        """Says what a run will ask, so that it can be asked before its turn while a model has nothing else to do.

        Args:
            cells: all that are needed, in the order of the tests.
            tested: those that have a test of their own. Of the others, a test that may stop early says itself what it needs.
        """
        if self.asker is not None:
            self._coming.update(dict.fromkeys(cells))
            self._tested.update(tested)

    def family(self, about: FamilyMetric, settings: Sequence[Setting]) -> Record:
        """Computes a property of a family of models over ``settings``, always from all samples, and judges it.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        return self.judge.family(about, settings)

    def _cell(self, cell: Cell) -> Record:
        judge = self.judge
        self._coming.pop(cell, None)
        self._ask_ahead(cell.model)
        if cell.setting in BASELINES or not self._stops_early(cell) or judge.why_task_not_shown(cell.model, cell.dataset):
            return judge.cell(cell)
        test = self._begun.pop(cell, None) or self._cell_test(cell)
        while True:
            self._ask_ahead(cell.model)
            if places := test.upcoming():
                scores = judge.evaluator.result(cell, places).values
                if any(math.isnan(score) for score in scores):  # then the value of all answers is unknown
                    break
                test.take(scores)
            elif test.is_due:
                record = self._look(test.decisions, cell, partial(Judge.cell, cell=cell))
                if record is not None:
                    return record
                if test.decisions.beyond_budget:
                    break
                test.is_due = False
            else:
                break
        return self._at_all_samples(test.decisions).cell(cell)

    def _cell_test(self, cell: Cell) -> CellTest:
        """Returns the test of a cell that has seen no answer yet."""
        judge = self.judge
        size = len(judge.evaluator.samples(cell.dataset))
        policy, task = judge.policies[cell.model], judge.tasks.get(cell.dataset, "")
        attempts = not task and attempts_of(cell, policy, always=judge.attempts) is not None
        planned = judged_tests(cell, Asked.of(judge.evaluator, cell.dataset, task), attempts=attempts)
        decisions = self._decisions(cell, size, planned)
        tests = [*planned, *self._category_tests(cell, planned)]
        decisions.unfit = self._unfit(cell, tests)
        blocking = [(test, rule) for test in tests for rule in policy.rules if rule.applies(test) and blocks(rule)]
        fit = [(test, rule) for test, rule in blocking if (test.metric, test.category) not in decisions.unfit]
        audits = self._cell_audits(cell, decisions, fit)
        decisions.audited = set(audits)
        decisions.open_looks = any((alone(test), rule.id) not in audits for test, rule in blocking)
        stops = deque(sorted({*(moments(size) if audits else (FIRST,)), *look_sizes(size)}))
        of_strata = {rule.metric for rule in policy.rules if rule.where.category and blocks(rule)}
        if self._lacks_reference(cell, of_strata | {test.metric for test, _ in blocking}):
            stops.clear()
            decisions.shares = {}
        return CellTest(self._order(cell), decisions, audits, stops)

    def _category_tests(self, cell: Cell, planned: Sequence[JudgedTest]) -> list[JudgedTest]:
        """Returns the tests of the categories of a cell that a rule is about and an audit may decide."""
        names = sorted({sample.category for sample in self.judge.evaluator.samples(cell.dataset)} - {""})
        rules = [rule for rule in self.judge.policies[cell.model].rules if rule.where.category]
        tests = [
            dataclasses.replace(test, category=name, strata=len(names))
            for test in planned
            if rules and test.metric in CELL_LIMITS and quantity(test.metric).by_category
            for name in names
        ]
        return [test for test in tests if any(rule.applies(test) for rule in rules)]

    # Asking ahead: a test whose answers are there goes on to the next ones before its turn. It asks what it would ask then.

    def ask_ahead(self) -> None:
        """Has the model that is asked go on with what coming tests need; between tests, of which the next record counts it."""
        if self.asker is None:
            return
        before = self.judge.counts()
        for model in self.judge.policies:
            self.asker.work_ahead(model)
            self._ask_ahead(model)
        self._ahead[:] = (sum(each) for each in zip(self._ahead, self._since(before), strict=True))

    def _ask_ahead(self, model: str) -> None:
        """Has a model asked about what coming tests need, as far as it has room."""
        if self.asker is None or self.asker.room(model) <= 0:  # nothing is asked of a model whose answers are all stored
            return
        unanswered: set[Cell] = set()
        for cell in list(islice((cell for cell in self._coming if cell.model == model), COMING)):
            if self.asker.room(model) <= 0:
                return
            try:
                is_over = self._advance(cell, self.asker, unanswered)
            except Exception:  # noqa: BLE001 - it is about another test, which begins anew and meets the same error
                self._begun.pop(cell, None)
                is_over = True
            if is_over:
                del self._coming[cell]

    def _advance(self, cell: Cell, asker: AsksAhead, unanswered: set[Cell]) -> bool:
        """Takes a coming cell as far as answers are there; returns whether nothing more is known to be needed of it.

        Args:
            cell: the coming cell.
            asker: what keeps its model busy.
            unanswered: baselines that still lack answers, as far as others have met them just now.
        """
        in_full = cell.setting in BASELINES or not self._stops_early(cell)
        if not in_full and cell not in self._tested:
            return True
        may_be_refused = cell.setting not in BASELINES and cell.dataset in self.judge.tasks
        if may_be_refused or not in_full:
            baselines = {Cell(cell.model, cell.dataset, setting) for setting in BASELINES}
            if not unanswered & baselines:
                unanswered |= {baseline for baseline in baselines if not self._is_answered(baseline, asker)}
            if unanswered & baselines:
                return False
            if self.judge.why_task_not_shown(cell.model, cell.dataset):
                return True
        if in_full:
            asker.expect([Want(cell)])
        return in_full or self._advance_test(cell, asker)

    def _is_answered(self, cell: Cell, asker: AsksAhead) -> bool:
        if asker.is_evaluated(cell):
            return True
        everything = range(len(self.judge.evaluator.samples(cell.dataset)))
        return asker.scores_ahead(cell, everything) is not None

    def _advance_test(self, cell: Cell, asker: AsksAhead) -> bool:
        if cell not in self._begun:
            self._begun[cell] = self._cell_test(cell)
        test = self._begun[cell]
        while places := test.upcoming():
            scores = asker.scores_ahead(cell, places)
            if scores is None:
                self._expect_first(cell, test.n_seen + len(places), asker)
                return False
            if any(math.isnan(score) for score in scores):
                return True
            test.take(scores)
        if test.is_due:
            self._expect_first(cell, test.decisions.asked, asker)
        return True

    def _expect_first(self, cell: Cell, count: int, asker: AsksAhead) -> None:
        """Has the first samples of a cell asked about, those that are not on their way yet."""
        order = self._order(cell)
        if places := order[self._expected.get(cell, 0) : count]:
            asker.expect([Want(cell, places)])
            self._expected[cell] = count

    def _sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        judge = self.judge
        if not self._stops_early(sweep) or reads_baselines_only(sweep) or judge.why_sweep_not_asked(sweep):
            self._expect_settings(sweep, settings)
            return judge.sweep(sweep, settings)
        if self._lacks_reference(sweep, {sweep.metric}):
            return judge.sweep(sweep, settings)
        fingerprints = self._fingerprints_of(sweep.model, sweep.dataset)
        if (audited := SweepTest.of(judge, sweep, settings, fingerprints, self._expect)) is not None:
            with contextlib.suppress(NoAuditError):
                return audited.record() or judge.sweep(sweep, settings)
        size = len(judge.evaluator.samples(sweep.dataset))
        looks = look_sizes(size)
        task = judge.tasks.get(sweep.dataset, "")
        decisions = self._decisions(sweep, size, judged_tests(sweep, Asked.of(judge.evaluator, sweep.dataset, task)))
        for asked in sorted({FIRST, *looks}):
            decisions.asked = asked
            self._expect_settings(sweep, settings, self._order(sweep)[:asked])
            record = self._look(decisions, sweep, partial(Judge.sweep, sweep=sweep, settings=settings))
            if record is not None:
                return record
            if decisions.beyond_budget:
                break
        self._expect_settings(sweep, settings)
        return self._at_all_samples(decisions).sweep(sweep, settings)

    def _expect_settings(self, sweep: SweepMetric, settings: Sequence[Setting], places: Sequence[int] | None = None) -> None:
        """Has these samples, or all, asked about under all settings at once, so that no setting waits for the one before."""
        unused = reads_baselines_only(sweep) or self.judge.why_sweep_not_asked(sweep)
        chosen = () if unused else dict.fromkeys(setting for setting in settings if setting not in BASELINES)
        self._expect(Want(Cell(sweep.model, sweep.dataset, setting), places) for setting in chosen)
        self._ask_ahead(sweep.model)

    def _expect(self, wants: Iterable[Want]) -> None:
        if self.asker is not None:
            self.asker.expect(wants)

    def _counted(self, judged: Callable[[], Record]) -> Record:
        """Returns a record with all the answers that judging it took, of the policy as it is written."""
        before = self.judge.counts()
        record = judged()
        inferred, recalled = (sum(each) for each in zip(self._since(before), self._ahead, strict=True))
        self._ahead[:] = 0, 0
        sha256 = self.judge.policies[record.model].sha256
        return dataclasses.replace(record, n_inferred=inferred, n_recalled=recalled, policy_sha256=sha256)

    def _since(self, before: tuple[int, int]) -> tuple[int, int]:
        """Returns how many answers were inferred and recalled since."""
        inferred, recalled = self.judge.counts()
        return inferred - before[0], recalled - before[1]

    def _stops_early(self, about: Cell | SweepMetric) -> bool:
        """Whether the policy lets a test stop early, there is enough to ask, and no earlier run wants to be compared in full."""
        judge = self.judge
        adaptive = judge.policies[about.model].mode is Mode.ADAPTIVE and judge.baseline is None
        return adaptive and not judge.why_nothing_asked(about.dataset) and len(judge.evaluator.samples(about.dataset)) > FIRST

    def _decisions(self, about: Cell | SweepMetric, size: int, planned: Sequence[JudgedTest]) -> Decisions:
        """Returns that nothing is decided yet about a test."""
        policy = self.judge.policies[about.model]
        ruled = {test.metric for test in planned for rule in policy.rules if rule.applies(test) and blocks(rule)}
        # whether answers are texts that are read, or letters that are scored, is the same for all samples
        return Decisions(self.judge, size, risk_shares(size), planned=frozenset(ruled - {UNPARSED_INCREASE}))

    def _look(self, decisions: Decisions, about: Cell | SweepMetric, judged: Callable[[Judge], Record]) -> Record | None:
        """Returns the record of a test that is decided by what is asked so far, or ``None``."""
        whole, asked, size = self.judge.evaluator, decisions.asked, decisions.size
        decisions.undecided = set()
        album = None if decisions.open_looks else whole.album  # thumbnails cost more than a look
        fingerprints = partial(self._fingerprints_of, about.model)
        prefix = Prefix(whole, asked / size, fingerprints, album or NoThumbnails())
        lacks_name = self._lacks_name(about, prefix, decisions)
        decisions.at_look = asked in look_sizes(size) and not lacks_name
        record = judged(dataclasses.replace(self.judge, evaluator=prefix, early=decisions))
        decisions.open_looks = bool(decisions.undecided - decisions.audited)
        unmeasured = decisions.planned - {measure.metric for measure in record.measures if not measure.category}
        if unmeasured or lacks_name or self._lacks_stratum(about, prefix):
            decisions.open_looks = True
        decisions.beyond_budget = breaks_budget(record)
        if ((decisions.undecided or decisions.open_looks) and not is_broken(record)) or decisions.beyond_budget:
            return None
        if album is None:
            decisions.at_look = False
            prefix = Prefix(whole, asked / size, fingerprints, whole.album)
            record = judged(dataclasses.replace(self.judge, evaluator=prefix, early=decisions))
        return dataclasses.replace(record, n_samples=record.n_requested * size // asked)

    def _order(self, about: Cell | SweepMetric) -> Sequence[int]:
        """Returns the places of all samples in the order in which they are asked."""
        return asking_order(self._fingerprints_of(about.model, about.dataset))

    def _fingerprints_of(self, model: str, dataset: str) -> tuple[str, ...]:
        """Returns what the order of samples is made of; has a model asked about their unchanged pictures, which it takes."""
        about = model, dataset
        if about not in self._fingerprints:
            evaluator = self.judge.evaluator
            samples, mode = evaluator.result(Cell(*about, CLEAN)).samples, evaluator.models[model].prompt_mode
            self._fingerprints[about] = fingerprints_of(samples, mode, evaluator.pictures(dataset))
        return self._fingerprints[about]

    def _lacks_name(self, about: Cell | SweepMetric, prefix: Prefix, decisions: Decisions) -> bool:
        """Whether a rule blocks on a metric that compares groups or categories, and no sample of one is asked about yet."""
        if isinstance(about, Cell) or not decisions.planned:
            return False
        samples = self.judge.evaluator.samples(about.dataset)
        return bool(unseen_names(metrics.get(about.metric).needs, samples, prefix.samples(about.dataset)))

    def _lacks_stratum(self, about: Cell | SweepMetric, prefix: Prefix) -> bool:
        """Whether a rule blocks on a category of which no sample is asked about yet."""
        rules = [rule for rule in self.judge.policies[about.model].rules if rule.where.category and blocks(rule)]
        if not rules:
            return False
        absent = strata_of(self.judge.evaluator.samples(about.dataset)) - strata_of(prefix.samples(about.dataset))
        return any(rule.where.admits("category", name) for rule in rules for name in absent)

    def _unfit(self, cell: Cell, tests: Sequence[JudgedTest]) -> dict[tuple[str, str], Estimate]:
        """Returns which metrics do not apply to a cell, or to a category, by all answers with unchanged pictures and without."""
        import numpy as np

        rules = self.judge.policies[cell.model].rules
        ruled = {(test.metric, test.category) for test in tests for rule in rules if rule.metric == test.metric}
        if not (gated := [about for about in ruled if about[0] in CELL_LIMITS and metrics.get(about[0]).validity]):
            return {}
        clean, blind = references(self.judge.evaluator, cell)
        samples, views = self.judge.evaluator.samples(cell.dataset), view_count(cell.setting)
        of_patches: dict[str, Any] = {}
        if views > 1:
            by_view = {str(cell.setting): np.repeat(clean[:, None], views, axis=1)}
            of_patches = {"patches_by_setting": by_view, **floors(samples)}
        whole = score_table(samples, clean, by_setting={str(cell.setting): clean}, no_image=blind, **of_patches)
        tables = {category: self._part_of(whole, cell.dataset, category) for _, category in gated}
        estimates = {
            (name, category): metrics.estimate(name, tables[category], setting=str(cell.setting), confidence=None)
            for name, category in gated
        }
        return {about: estimate for about, estimate in estimates.items() if not estimate.valid}

    def _part_of(self, table: ScoreTable, dataset: str, category: str) -> ScoreTable:
        """Returns the table of one category of all samples; the whole table without one."""
        if not category:
            return table
        samples = self.judge.evaluator.samples(dataset)
        part = rows_of(table, [sample.category == category for sample in samples])
        own = [sample for sample in samples if sample.category == category]
        return part if table.floors is None else dataclasses.replace(part, **floors(own))

    def _at_all_samples(self, decisions: Decisions) -> Judge:
        """Returns what judges a test that asked about all samples: with the risk that earlier looks have left."""
        if not decisions.shares:
            return self.judge
        rest = decisions.shares[decisions.size]
        policies = {name: with_risk(policy, rest) for name, policy in self.judge.policies.items()}
        return dataclasses.replace(self.judge, policies=policies)

    def _cell_audits(
        self, cell: Cell, decisions: Decisions, rules: Sequence[tuple[JudgedTest, Rule]]
    ) -> dict[tuple[JudgedTest, str], RuleAudit]:
        """Returns an audit of each rule on a cell, or on a category of it, that can have one."""
        import numpy as np

        policy, size = self.judge.policies[cell.model], decisions.size
        categories = np.array([sample.category for sample in self.judge.evaluator.samples(cell.dataset)])
        audits = {}
        for test, rule in rules:
            if not judges_value(rule) or test.metric not in CELL_LIMITS:
                continue
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in decisions.waivers(test))]
            members = categories == test.category if test.category else np.ones(size, bool)
            own = partial(CELL_LIMITS[test.metric], *(scores[members] for scores in references(self.judge.evaluator, cell)))
            limits = partial(limits_within, members, own)
            with contextlib.suppress(NoAuditError):  # without a limit there is no audit, and looks decide
                audits[alone(test), rule.id] = RuleAudit(rule, bounds, limits, self._order(cell), risks(policy, rule, test))
        return audits

    def _lacks_reference(self, about: Cell | SweepMetric, names: Iterable[str]) -> bool:
        """Whether an inference failed on an unchanged picture, or without it, that a metric needs: no part has its value then."""
        registered = set(metrics.names())
        needs = {need for name in names if name in registered for need in metrics.get(name).needs}
        read = [setting for need, setting in ((Needs.CLEAN, CLEAN), (Needs.NO_IMAGE, NO_IMAGE)) if need in needs]
        results = [self.judge.evaluator.result(Cell(about.model, about.dataset, setting)) for setting in read]
        return any(math.isnan(value) for result in results for value in result.values)
