"""Adaptive: a test asks its samples in a fixed random order, and stops as soon as its rules are decided at their declared risk.

A rule that judges the value (``judge: point``) asks for the verdict that all answers would give. An audit of a cell, of a
category, of the cells of a sweep or of the pairs of a mean bets against that verdict and may stop after any answer. What no
audit is known for, and any rule that judges the interval, is looked at a few times: each look spends a part of the risk, and the
last one asks about all samples.

The order depends on the number of samples alone, and is the same for all cells of a dataset: nobody can choose another one, and
metrics of several cells find the same samples in each. Every verdict of a cell follows from its own answers in that order, so
that it is the same whatever else the run asks, in any process.

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
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import LARGEST_DROP, Record
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.answers import chances
from pytest_vlmrobust.evaluation.run.asking import Want
from pytest_vlmrobust.evaluation.run.resolutions import same_pictures
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.metrics.corruption import low_settings
from pytest_vlmrobust.metrics.table import Needs, ScoreTable
from pytest_vlmrobust.policies import Bound, JudgedTest, Mode, Rule, Waiver
from pytest_vlmrobust.policies.judge import early_verdict

from .audits import (
    CELL_LIMITS,
    EVERY_CELL,
    FIRST,
    GROWTH,
    LOW_ONLY,
    MEANS,
    OF_RUNGS,
    SHARES,
    MissingScoreError,
    NoAuditError,
    RuleAudit,
    allowed_breaches,
    asking_order,
    judges_value,
    known,
    limits_within,
    moments,
    risks,
    step_after,
)
from .context import Asked, floors, groups_of
from .judge import Judge
from .looks import Decisions, Prefix, alone, blocks, look_sizes, risk_shares, strata_of, with_risk
from .measurements import UNPARSED_INCREASE, judged_tests, quantity
from .required_cells import BASELINES, WITHOUT_SETTINGS, attempts_of
from .strata import rows_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .audits import Scores

PAIRS = 32
"""Pairs of a setting and a sample between two moments at which the audit of a mean may stop."""
COMING = 512
"""Cells that are looked at for what can be asked ahead: those behind them have to wait for theirs."""
HUNTED = 4
"""Cells of a sweep that are asked next: those closest to a breach."""


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
    decide: Callable[[JudgedTest, RuleAudit], None]
    """Writes down what an audit shows."""
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
                self.decide(test, audit)
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
        audits = self._cell_audits(cell, size, fit)
        decisions.audited = set(audits)
        decisions.open_looks = any((alone(test), rule.id) not in audits for test, rule in blocking)
        stops = deque(sorted({*(moments(size) if audits else (FIRST,)), *look_sizes(size)}))
        of_strata = {rule.metric for rule in policy.rules if rule.where.category and blocks(rule)}
        if self._lacks_reference(cell, of_strata | {test.metric for test, _ in blocking}):
            stops.clear()
            decisions.shares = {}
        decide = partial(self._decide_audit, decisions)
        return CellTest(asking_order(size), decisions, audits, stops, decide)

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
        order = asking_order(len(self.judge.evaluator.samples(cell.dataset)))
        if places := order[self._expected.get(cell, 0) : count]:
            asker.expect([Want(cell, places)])
            self._expected[cell] = count

    def _decide_audit(self, decisions: Decisions, test: JudgedTest, audit: RuleAudit) -> None:
        self._decide(decisions, test, audit.rule, audit.within)

    def _sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        judge = self.judge
        if not self._stops_early(sweep) or reads_baselines_only(sweep) or judge.why_task_not_shown(sweep.model, sweep.dataset):
            self._expect_settings(sweep, settings)
            return judge.sweep(sweep, settings)
        if self._lacks_reference(sweep, {sweep.metric}):
            return judge.sweep(sweep, settings)
        if (record := self._audited_sweep(sweep, settings)) is not None:
            return record
        size = len(judge.evaluator.samples(sweep.dataset))
        looks = look_sizes(size)
        task = judge.tasks.get(sweep.dataset, "")
        decisions = self._decisions(sweep, size, judged_tests(sweep, Asked.of(judge.evaluator, sweep.dataset, task)))
        for asked in sorted({FIRST, *looks}):
            decisions.asked = asked
            self._expect_settings(sweep, settings, asking_order(size)[:asked])
            record = self._look(decisions, sweep, partial(Judge.sweep, sweep=sweep, settings=settings))
            if record is not None:
                return record
            if decisions.beyond_budget:
                break
        self._expect_settings(sweep, settings)
        return self._at_all_samples(decisions).sweep(sweep, settings)

    def _expect_settings(self, sweep: SweepMetric, settings: Sequence[Setting], places: Sequence[int] | None = None) -> None:
        """Has these samples, or all, asked about under all settings at once, so that no setting waits for the one before."""
        unused = reads_baselines_only(sweep) or self.judge.why_task_not_shown(sweep.model, sweep.dataset)
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
        decisions.at_look, decisions.undecided = asked in look_sizes(size), set()
        album = None if decisions.open_looks else whole.album  # thumbnails cost more than a look
        prefix = Prefix.of(whole, asked, size, album)
        record = judged(dataclasses.replace(self.judge, evaluator=prefix, early=decisions))
        decisions.open_looks = bool(decisions.undecided - decisions.audited)
        unmeasured = decisions.planned - {measure.metric for measure in record.measures if not measure.category}
        if unmeasured or self._lacks_stratum(about, prefix):
            decisions.open_looks = True
        decisions.beyond_budget = breaks_budget(record)
        if ((decisions.undecided or decisions.open_looks) and not is_broken(record)) or decisions.beyond_budget:
            return None
        if album is None:
            decisions.at_look = False
            prefix = Prefix.of(whole, asked, size, whole.album)
            record = judged(dataclasses.replace(self.judge, evaluator=prefix, early=decisions))
        return dataclasses.replace(record, n_samples=record.n_requested * size // asked)

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
        clean, blind = self._references(cell)
        samples, views = self.judge.evaluator.samples(cell.dataset), view_count(cell.setting)
        of_patches: dict[str, Any] = {}
        if views > 1:
            by_view = {str(cell.setting): np.repeat(clean[:, None], views, axis=1)}
            of_patches = {"patches_by_setting": by_view, **floors(samples)}
        whole = ScoreTable(
            clean=clean,
            by_setting={str(cell.setting): clean},
            no_image=blind,
            groups=groups_of(samples),
            chances=chances(samples),
            **of_patches,
        )
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

    def _decide(self, decisions: Decisions, test: JudgedTest, rule: Rule, within: Callable[[Bound], Outcome]) -> None:
        """Writes down what audits show about a rule."""
        waivers = self._waivers(test)
        treatment = rule.treatment
        risk = treatment.alpha_fail if within(rule.bound) is Outcome.FAIL else treatment.alpha_pass
        because = f"shown at a risk of {risk:.3g} by {decisions.in_words}"
        if verdict := early_verdict(rule, within, waivers, self.judge.today, because, category=test.category):
            decisions.decided.setdefault((test, rule.id), verdict)

    def _waivers(self, test: JudgedTest) -> list[Waiver]:
        judge = self.judge
        every = judge.policies[test.model].waivers
        return [waiver for waiver in every if waiver.applies(test) and not waiver.is_expired(judge.today)]

    # Audits: of one cell, of every cell of a sweep, and of the pairs of a mean.

    def _cell_audits(
        self, cell: Cell, size: int, rules: Sequence[tuple[JudgedTest, Rule]]
    ) -> dict[tuple[JudgedTest, str], RuleAudit]:
        """Returns an audit of each rule on a cell, or on a category of it, that can have one."""
        import numpy as np

        policy = self.judge.policies[cell.model]
        categories = np.array([sample.category for sample in self.judge.evaluator.samples(cell.dataset)])
        audits = {}
        for test, rule in rules:
            if not judges_value(rule) or test.metric not in CELL_LIMITS:
                continue
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            members = categories == test.category if test.category else np.ones(size, bool)
            own = partial(CELL_LIMITS[test.metric], *(scores[members] for scores in self._references(cell)))
            limits = partial(limits_within, members, own)
            with contextlib.suppress(NoAuditError):  # without a limit there is no audit, and looks decide
                audits[alone(test), rule.id] = RuleAudit(rule, bounds, limits, asking_order(size), risks(policy, rule, test))
        return audits

    def _references(self, about: Cell | SweepMetric) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the scores of all samples with their pictures unchanged, and without them."""
        clean, blind = (self.judge.evaluator.result(Cell(about.model, about.dataset, each)) for each in (CLEAN, NO_IMAGE))
        return clean.values, blind.values

    def _lacks_reference(self, about: Cell | SweepMetric, names: Iterable[str]) -> bool:
        """Whether an inference failed on an unchanged picture, or without it, that a metric needs: no part has its value then."""
        registered = set(metrics.names())
        needs = {need for name in names if name in registered for need in metrics.get(name).needs}
        read = [setting for need, setting in ((Needs.CLEAN, CLEAN), (Needs.NO_IMAGE, NO_IMAGE)) if need in needs]
        results = [self.judge.evaluator.result(Cell(about.model, about.dataset, setting)) for setting in read]
        return any(math.isnan(value) for result in results for value in result.values)

    def _audited_sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record | None:
        """Returns the record of a summary metric whose rules audits decide; ``None`` where there are others, or none.

        Where an inference fails, a budget is broken or a rule stays open, all samples are judged: nothing asked is forgotten.
        """
        judge = self.judge
        policy = judge.policies[sweep.model]
        test = JudgedTest(sweep.model, sweep.dataset, sweep.metric, sweep.split)
        rules = [rule for rule in policy.rules if rule.bounds(test)]
        audited = sweep.metric in EVERY_CELL or sweep.metric in SHARES or sweep.metric in MEANS
        if not audited or not rules or not all(rule.applies(test) and blocks(rule) and judges_value(rule) for rule in rules):
            return None
        chosen = list(dict.fromkeys(setting for setting in settings if setting not in (CLEAN, NO_IMAGE)))
        if sweep.metric in LOW_ONLY:
            low = set(low_settings(map(str, chosen)))
            chosen = [setting for setting in chosen if str(setting) in low]
        if not chosen or (sweep.metric in OF_RUNGS and self._shows_one_rung(sweep, chosen)):
            return None
        decide = self._mean_of_pairs if sweep.metric in MEANS else self._cell_by_cell
        try:
            record = decide(sweep, test, rules, [Cell(sweep.model, sweep.dataset, setting) for setting in chosen])
        except MissingScoreError:
            record = None
        except NoAuditError:
            return None
        return record or judge.sweep(sweep, settings)

    def _shows_one_rung(self, sweep: SweepMetric, rungs: Sequence[Setting]) -> bool:
        """Whether all rungs show the same pictures of the samples that are asked about first, so that there is no curve."""
        evaluator = self.judge.evaluator
        first = asking_order(len(evaluator.samples(sweep.dataset)))[:FIRST]
        return bool(same_pictures([evaluator.result(Cell(sweep.model, sweep.dataset, rung), first) for rung in rungs]))

    def _cell_by_cell(self, sweep: SweepMetric, test: JudgedTest, rules: Sequence[Rule], cells: Sequence[Cell]) -> Record | None:
        """Judges the largest drop, or a share of cells: by how many cells are shown to keep a limit, and to break it."""
        from pytest_vlmrobust.metrics.sequential import prior_weights

        evaluator, policy = self.judge.evaluator, self.judge.policies[sweep.model]
        order = asking_order(len(evaluator.samples(sweep.dataset)))
        decisions = Decisions(self.judge, len(order) * len(cells), {})
        weights = prior_weights([str(cell.setting) for cell in cells]).tolist()
        clean, blind = self._references(sweep)
        limits = partial(SHARES.get(sweep.metric, CELL_LIMITS["accuracy_drop"]), clean, blind)
        asked = [0] * len(cells)
        for rule in rules:
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            allowed = {bound: allowed_breaches(sweep.metric, bound, len(cells)) for bound in bounds}
            audit = RuleAudit(rule, bounds, limits, order, risks(policy, rule, test), weights=weights, allowed=allowed)
            while closest := audit.closest(HUNTED):
                upcoming = {
                    index: audit.upcoming(audit.asked[index] + step_after(audit.asked[index]), index) for index in closest
                }
                self._expect(Want(cells[index], places) for index, places in upcoming.items())
                audit.advance({index: known(evaluator.result(cells[index], places)) for index, places in upcoming.items()})
            asked = list(map(max, asked, audit.asked))
            decisions.asked = sum(asked)
            self._decide(decisions, test, rule, audit.within)
        results = [evaluator.result(cell, order[:count]) for cell, count in zip(cells, asked, strict=True) if count]
        formula = metrics.get(sweep.metric).function
        values = [float(formula(clean[list(order[: len(one.samples)])], {str(one.cell.setting): one.values})) for one in results]
        if sweep.metric in SHARES:
            note = f"a share of the {counted(len(values), 'setting')} asked about"
            return self._summary(sweep, decisions, Estimate(sum(values) / len(values), max(asked)), results, note)
        worst = max(range(len(values)), key=values.__getitem__)
        note = f"{LARGEST_DROP}{values[worst]:.3f} at {results[worst].cell.setting}"
        return self._summary(sweep, decisions, Estimate(values[worst], max(asked)), results, note)

    def _mean_of_pairs(self, sweep: SweepMetric, test: JudgedTest, rules: Sequence[Rule], cells: Sequence[Cell]) -> Record | None:
        """Judges a mean over all settings and samples from pairs of both, drawn in a fixed random order."""
        import numpy as np

        from pytest_vlmrobust.metrics.sequential import pair_order

        evaluator, policy = self.judge.evaluator, self.judge.policies[sweep.model]
        size = len(evaluator.samples(sweep.dataset))
        clean, blind = (np.tile(scores, len(cells)) for scores in self._references(sweep))
        order = pair_order(0, "", "", [str(cell.setting) for cell in cells], size).samples.tolist()
        decisions = Decisions(self.judge, len(order), {})
        places: dict[Cell, list[int]] = {}
        values: dict[int, float] = {}
        for rule in rules:
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            audit = RuleAudit(rule, bounds, partial(MEANS[sweep.metric], clean, blind), order, risks(policy, rule, test))
            while pairs := audit.upcoming(audit.asked[0] + max(PAIRS, audit.asked[0] // GROWTH)):
                by_cell = {
                    number: [pair for pair in pairs if pair // size == number] for number in {pair // size for pair in pairs}
                }
                self._expect(Want(cells[number], [pair % size for pair in own]) for number, own in sorted(by_cell.items()))
                for number, own in sorted(by_cell.items()):
                    scores = known(evaluator.result(cells[number], [pair % size for pair in own])).tolist()
                    values |= zip(own, scores, strict=True)
                    places.setdefault(cells[number], []).extend(pair % size for pair in own)
                audit.advance({0: np.array([values[pair] for pair in pairs])})
            decisions.asked = max(decisions.asked, audit.asked[0])
            self._decide(decisions, test, rule, audit.within)
        results = [evaluator.result(cell, sorted(set(own))) for cell, own in places.items()]
        losses = clean[list(values)] - np.array(list(values.values()))
        seen = {"mean_harmful_flip_rate": losses.clip(min=0.0), "resolution_accuracy": np.array(list(values.values()))}
        estimate = Estimate(float(seen.get(sweep.metric, losses).mean()), len(values))
        return self._summary(sweep, decisions, estimate, results, "")

    def _summary(
        self, sweep: SweepMetric, decisions: Decisions, estimate: Estimate, results: Sequence[CellResult], note: str
    ) -> Record | None:
        """Returns the record of a summary metric that audits decided; ``None`` where something is left open."""
        judge = dataclasses.replace(self.judge, early=decisions)
        notes = (note,) if note else ()
        record = judge.summary("sweep", sweep, estimate, results, judge.counts(), notes=notes)
        if (decisions.undecided and not is_broken(record)) or breaks_budget(record):
            return None
        return dataclasses.replace(record, n_samples=decisions.size)


def reads_baselines_only(sweep: SweepMetric) -> bool:
    """Whether a summary metric is computed from answers about unchanged pictures, and without any."""
    return set(metrics.get(sweep.metric).needs) <= WITHOUT_SETTINGS


def is_broken(record: Record) -> bool:
    """Whether a rule is broken: further verdicts cannot mend the test."""
    return any(measure.outcome is Outcome.FAIL for measure in record.measures)


def breaks_budget(record: Record) -> bool:
    """Whether more inferences failed, or more answers were unreadable, than the policy admits."""
    budgets = ("error_rate", "unparsed_rate")
    return any(measure.metric in budgets and measure.outcome is not Outcome.MEASURED for measure in record.measures)
