"""Adaptive: a test asks its samples in a fixed random order, and stops as soon as its rules are decided at their declared risk.

A rule that judges the value (``judge: point``) asks for the verdict that all answers would give. An audit of one cell, or of the
pairs of a mean, bets against that verdict and may stop after any answer. What no audit is known for, and any rule that judges the
interval, is looked at a few times: each look spends a part of the risk, and the last one asks about all samples.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, FamilyMetric, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.fingerprint import rng_for
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.answers import Measured, Thumbnails, chances
from pytest_vlmrobust.evaluation.run.asking import Want
from pytest_vlmrobust.evaluation.run.resolutions import same_pictures
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.metrics.corruption import low_settings
from pytest_vlmrobust.metrics.table import Needs, ScoreTable
from pytest_vlmrobust.policies import Bound, JudgedTest, Mode, Multiplicity, Policy, Rule, Tier, Waiver
from pytest_vlmrobust.policies import Judge as Judging
from pytest_vlmrobust.policies.judge import early_verdict, judge_rule, verdict_of_part

from .context import Asked, floors, groups_of
from .judge import Judge
from .measurements import UNPARSED_INCREASE, judged_tests
from .replay import NoThumbnails
from .required_cells import WITHOUT_SETTINGS, attempts_of
from .strata import strata

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_vlmrobust.metrics.sequential import Audit, Limit

    Scores: TypeAlias = NDArray[np.float64]
    LimitsOf: TypeAlias = Callable[[Bound, bool], list[Limit]]

FIRST = 8
"""Samples that every cell is asked about."""
STEP = 4
"""Samples of a cell between two moments at which an audit may stop."""
PAIRS = 32
"""Pairs of a setting and a sample between two moments at which the audit of a mean may stop."""
GROWTH = 16
"""From so many steps on, each step is this part of what was asked before: later ones decide less, and large batches cost less."""
HUNTED = 4
"""Cells of a sweep that are asked next: those closest to a breach."""
FIRST_LOOK = 24
"""Samples at the first look; each further look has twice as many."""
LAST_LOOK = 0.75
"""The share of the samples after which no look comes but that at all of them."""
EARLY_RISK = 0.5
"""The part of a rule's risk that the looks before the last one share evenly."""
_PURPOSE = "order in which samples are asked"


def asking_order(size: int) -> tuple[int, ...]:
    """Returns in which order the samples of a dataset are asked about, by their places in it: a permutation of ``size`` places.

    >>> sorted(asking_order(4))
    [0, 1, 2, 3]
    """
    return tuple(_permutation(size))


@lru_cache(maxsize=64)
def _permutation(size: int) -> list[int]:
    places: list[int] = rng_for(0, _PURPOSE, str(size)).permutation(size).tolist()
    return places


def look_sizes(size: int) -> tuple[int, ...]:
    """Returns after how many samples rules are looked at before all of them are asked about.

    >>> look_sizes(20), look_sizes(128), look_sizes(869)
    ((), (24, 48, 96), (24, 48, 96, 192, 384))
    """
    doubled = (FIRST_LOOK * 2**power for power in range(32))
    return tuple(look for look in doubled if look <= LAST_LOOK * size)


@dataclass(eq=False)
class Prefix:
    """The answers about the first samples in the order in which they are asked: what a look judges."""

    whole: Measured
    share: float
    """The part of each dataset that is asked about."""
    album: Thumbnails = field(default_factory=NoThumbnails)
    _samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: Measured, asked: int, size: int, album: Thumbnails | None = None) -> Prefix:
        """Returns the first ``asked`` of ``size`` samples, and as large a part of any other dataset."""
        return cls(whole, asked / size, album or NoThumbnails())

    @property
    def models(self) -> Mapping[str, ModelRef]:
        """The models by the name that stands in cells."""
        return self.whole.models

    @property
    def inferred(self) -> int:
        """How many answers came from a model so far."""
        return self.whole.inferred

    @property
    def recalled(self) -> int:
        """How many answers came from a store so far."""
        return self.whole.recalled

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return self.whole.corpus_metric(dataset)

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of pictures by sample id."""
        return self.whole.pictures(dataset)

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples that are asked about, in the order of the dataset; the same object each time."""
        if dataset not in self._samples:
            everything = self.whole.samples(dataset)
            self._samples[dataset] = tuple(everything[place] for place in self.places(len(everything)))
        return self._samples[dataset]

    def places(self, size: int) -> list[int]:
        """Returns the places of the samples that are asked about, of a dataset of ``size``."""
        return sorted(asking_order(size)[: math.ceil(self.share * size - 1e-9)])

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell."""
        chosen = self.places(len(self.whole.samples(cell.dataset)))
        return self.whole.result(cell, chosen if places is None else [chosen[place] for place in places])


@dataclass(eq=False)
class Decisions:
    """What is decided about one test so far: a verdict that was reached once stands."""

    judge: Judge
    size: int
    """How many answers the test would ask for."""
    looks: int
    asked: int = 0
    decided: dict[tuple[JudgedTest, str], Verdict] = field(default_factory=dict)
    undecided: set[tuple[JudgedTest, str]] = field(default_factory=set)
    """Of rules that block, those that the last look left open."""
    audited: set[tuple[JudgedTest, str]] = field(default_factory=set)
    """Those that an audit decides; looks spend no risk on them."""
    open_looks: bool = False
    """Whether the last look left a rule open that no audit decides."""
    at_look: bool = False
    beyond_budget: bool = False
    """Whether more inferences failed, or more answers were unreadable, than the policy admits; then all samples are judged."""
    planned: frozenset[str] = frozenset()
    """The metrics that blocking rules are about, and that all answers have a value of."""
    unfit: Mapping[str, Estimate] = field(default_factory=dict)
    """The metrics that do not apply, as the answers about all unchanged samples show; no further answer can change that."""

    @property
    def whole(self) -> Measured:
        """The answers about all samples, asked for on demand."""
        return self.judge.evaluator

    @property
    def in_words(self) -> str:
        """How much was asked, for reasons."""
        return f"{self.asked:,} of {counted(self.size, 'answer')}"

    @property
    def has_failed(self) -> bool:
        """Whether a rule that blocks is shown to be broken."""
        return any(verdict.outcome is Outcome.FAIL for verdict in self.decided.values())

    def verdicts(self, policy: Policy, test: JudgedTest, estimate: Estimate) -> Mapping[str, Verdict]:
        """Returns the verdicts of those rules that are decided, by rule; at a look, decides those that the estimate can."""
        said = estimate.valid and estimate.finite
        about = dataclasses.replace(test, strata=1)  # of which a part of the samples may have fewer than all
        decided = {}
        for rule in policy.rules:
            if not rule.applies(test):
                continue
            key = about, rule.id
            if self.at_look and said and key not in self.decided and key not in self.audited:
                self._look(policy, rule, test, estimate)
            if test.metric in self.unfit and not test.category:
                decided[rule.id] = judge_rule(rule, self.unfit[test.metric], (), self.judge.today)
            elif key in self.decided and said:
                decided[rule.id] = self.decided[key]
            elif blocks(rule):
                self.undecided.add(key)
        return decided

    def _look(self, policy: Policy, rule: Rule, test: JudgedTest, estimate: Estimate) -> None:
        waivers = [waiver for waiver in policy.waivers if waiver.applies(test)]
        strata = max(test.strata, len(strata_of(self.whole.samples(test.dataset)))) if test.category else 1
        sharing, share = policy.sharing(rule, dataclasses.replace(test, strata=strata)), EARLY_RISK / self.looks
        today = self.judge.today
        if verdict := verdict_of_part(rule, estimate, waivers, today, sharing, share=share, asked=self.in_words):
            self.decided[dataclasses.replace(test, strata=1), rule.id] = verdict


class RuleAudit:
    """The audit of one rule: of its bound, and of the caps of waivers that hold.

    It is about one cell, about the pairs of a mean, or about all cells of a sweep, each of which has to keep the bound. Whatever
    it showed once stands. The risk of a wrong FAIL is split among the cells, and that of a wrong PASS needs no split: to pass
    wrongly, one certain cell would have to pass wrongly. Neither depends on which cells are asked first.
    """

    def __init__(
        self,
        rule: Rule,
        bounds: Sequence[Bound],
        limits: LimitsOf,
        order: Sequence[int],
        risks: tuple[float, float],
        *,
        weights: Sequence[float] = (1.0,),
    ) -> None:
        """Prepares an audit that has seen no answer.

        Args:
            rule: what is audited.
            bounds: the bound of the rule, then looser ones that waivers admit.
            limits: gives the limits that a bound stands for, of 0/1 or of graded scores.
            order: of the samples, by their places.
            risks: of a wrong PASS and of a wrong FAIL.
            weights: the share of the risk of a wrong FAIL that each cell may take.

        Raises:
            ValueError: there is no such limit: a score that it needs is missing, or its denominator is 0.
        """
        import numpy as np

        from pytest_vlmrobust.metrics.sequential import Audit, Order

        self.rule, self._bounds, self._order = rule, tuple(bounds), tuple(order)
        try:
            by_bound, self._graded = [limits(bound, False) for bound in bounds], False
        except ValueError:
            by_bound, self._graded = [limits(bound, True) for bound in bounds], True
        every = [limit for own in by_bound for limit in own]
        ends = np.cumsum([0, *map(len, by_bound)]).tolist()
        self._columns = {bound: slice(start, end) for bound, start, end in zip(self._bounds, ends, ends[1:], strict=False)}
        self._members = np.array([limit.member for limit in every])
        shape = len(weights), len(every)
        self._audit: Audit = Audit(every * len(weights), [Order(np.array(order, dtype=np.intp), "uniform")] * math.prod(shape))
        self._needed = -np.log(risks[0]), -np.log(risks[1]) - np.log(np.array(weights))[:, None]
        self._evidence_of_fail = np.zeros(shape)
        self._kept = {bound: np.zeros(len(weights), bool) for bound in self._bounds}
        self._broken = {bound: np.zeros(len(weights), bool) for bound in self._bounds}
        self._open = np.ones(len(weights), bool)
        self.asked = [0] * len(weights)
        """How many answers it has seen of each cell."""
        self.is_done = not self._order
        """Whether a verdict follows from what it has seen, or it has seen everything."""

    def closest(self, most: int) -> list[int]:
        """Returns the open cells that are closest to breaking every bound, the closest first; nothing once it is done."""
        import numpy as np

        if self.is_done:
            return []
        by_bound = [self._evidence_of_fail[:, columns].max(axis=1) for columns in self._columns.values()]
        lacking = np.min(by_bound, axis=0) - self._needed[1][:, 0]
        ranked = np.argsort(-lacking, kind="stable")
        closest: list[int] = ranked[self._open[ranked]][:most].tolist()
        return closest

    def upcoming(self, asked: int, cell: int = 0) -> Sequence[int]:
        """Returns the places of the samples to ask next, so that ``asked`` are seen; nothing once it is done."""
        return () if self.is_done else self._order[self.asked[cell] : asked]

    def advance(self, scores: Mapping[int, NDArray[np.float64]]) -> None:
        """Takes the scores of the next samples of some cells into account, in their order.

        A missing score (NaN), and a graded one where all others are 0 or 1, counts as wrong where PASS is weighed, and as right
        where FAIL is.
        """
        import numpy as np

        rows: list[NDArray[np.intp]] = []
        places: list[NDArray[np.intp]] = []
        outcomes: list[NDArray[np.float64]] = []
        for cell, values in scores.items():
            start = self.asked[cell]
            upcoming = np.array(self._order[start : start + len(values)], np.intp)
            known = values if self._graded else np.where((values == 0.0) | (values == 1.0), values, np.nan)
            limit, position = np.nonzero(self._members[:, upcoming])
            rows.append(limit + cell * len(self._members))
            places.append(upcoming[position])
            outcomes.append(known[position])
            self.asked[cell] += len(values)
        self._audit.advance(np.concatenate(rows), np.concatenate(places), np.concatenate(outcomes))
        self._conclude()

    def within(self, bound: Bound) -> Outcome:
        """Returns whether the value of all answers is shown to keep ``bound``, or to break it."""
        import numpy as np

        kept = [shown for within, shown in self._kept.items() if bound.holds(within)]
        if np.any(kept, axis=0).all():
            return Outcome.PASS
        return Outcome.FAIL if self._broken[bound].any() else Outcome.INCONCLUSIVE

    def _conclude(self) -> None:
        """Writes down which cells are shown to keep or to break which bounds, and which of them are to be asked further."""
        import numpy as np

        verdicts = self._audit.verdicts(0.5, 0.5)  # whose risks are not read
        shape = self._evidence_of_fail.shape
        self._evidence_of_fail = verdicts.sure_log_fail.reshape(shape)
        passed = verdicts.sure_log_pass.reshape(shape) >= self._needed[0]
        failed = self._evidence_of_fail >= self._needed[1]
        for bound, columns in self._columns.items():
            broken = failed[:, columns].any(axis=1)
            kept = passed[:, columns].all(axis=1)
            self._kept[bound] |= kept & ~broken
            self._broken[bound] |= broken & ~kept
        decided = np.any(list(self._kept.values()), axis=0) | np.all(list(self._broken.values()), axis=0)
        self._open = ~decided & (np.array(self.asked) < len(self._order))
        self.is_done = all(broken.any() for broken in self._broken.values()) or not self._open.any()


@dataclass(frozen=True, slots=True)
class AdaptiveJudge:
    """Judges as :class:`Judge` does, and asks no further once a test is decided, where the policy of its model says so."""

    judge: Judge
    ask_ahead: Callable[[Iterable[Want]], None] = lambda _wants: None
    """Told what is asked next, so that a model can be kept busy."""

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

    def first_wants(self, cells: Iterable[Cell]) -> Iterator[Want]:
        """Yields what is surely asked of cells, in their order: all samples, or those before the first moment to stop."""
        for cell in cells:
            if cell.setting in (CLEAN, NO_IMAGE):
                yield Want(cell)
            elif cell.dataset not in self.judge.tasks:  # a task that is not shown to be done asks about no changed picture
                size = len(self.judge.evaluator.samples(cell.dataset))
                yield Want(cell, asking_order(size)[:FIRST] if self._stops_early(cell) else None)

    def family(self, about: FamilyMetric, settings: Sequence[Setting]) -> Record:
        """Computes a property of a family of models over ``settings``, always from all samples, and judges it.

        Raises:
            InfrastructureError: a cell that it needs could not be measured.
        """
        return self.judge.family(about, settings)

    def _cell(self, cell: Cell) -> Record:
        judge = self.judge
        if cell.setting in (CLEAN, NO_IMAGE) or not self._stops_early(cell) or judge.why_task_not_shown(cell.model, cell.dataset):
            return judge.cell(cell)
        size = len(judge.evaluator.samples(cell.dataset))
        looks = look_sizes(size)
        policy, task = judge.policies[cell.model], judge.tasks.get(cell.dataset, "")
        attempts = not task and attempts_of(cell, policy, always=judge.attempts) is not None
        planned = judged_tests(cell, Asked.of(judge.evaluator, cell.dataset, task), attempts=attempts)
        decisions = self._decisions(cell, size, planned)
        decisions.unfit = self._unfit(cell, planned)
        blocking = {(test, rule.id): rule for test in planned for rule in policy.rules if rule.applies(test) and blocks(rule)}
        of_strata = {rule.metric for rule in policy.rules if rule.where.category and blocks(rule)}
        if self._lacks_reference(cell, of_strata | {test.metric for test, _ in blocking}):
            return judge.cell(cell)
        audits = self._cell_audits(cell, size, {key: blocking[key] for key in blocking if key[0].metric not in decisions.unfit})
        decisions.audited = set(audits)
        decisions.open_looks = any(key not in audits for key in blocking)
        for asked in sorted({*(moments(size) if audits else (FIRST,)), *looks}):
            decisions.asked = asked
            for (test, _), audit in audits.items():
                if places := audit.upcoming(asked):
                    values = judge.evaluator.result(cell, places).values
                    if any(math.isnan(value) for value in values):  # then the value of all answers is unknown
                        return self._at_all_samples(decisions).cell(cell)
                    audit.advance({0: values})
                    self._decide(decisions, test, audit.rule, audit.within)
            all_done = all(audit.is_done for audit in audits.values())
            if decisions.has_failed or (all_done and (asked in looks or not decisions.open_looks)):
                record = self._look(decisions, cell, partial(Judge.cell, cell=cell))
                if record is not None:
                    return record
            if decisions.beyond_budget:
                break
        return self._at_all_samples(decisions).cell(cell)

    def _sweep(self, sweep: SweepMetric, settings: Sequence[Setting]) -> Record:
        judge = self.judge
        if not self._stops_early(sweep) or reads_baselines_only(sweep) or judge.why_task_not_shown(sweep.model, sweep.dataset):
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
            record = self._look(decisions, sweep, partial(Judge.sweep, sweep=sweep, settings=settings))
            if record is not None:
                return record
            if decisions.beyond_budget:
                break
        return self._at_all_samples(decisions).sweep(sweep, settings)

    def _counted(self, judged: Callable[[], Record]) -> Record:
        """Returns a record with all the answers that judging it took, of the policy as it is written."""
        before = self.judge.counts()
        record = judged()
        inferred, recalled = (now - then for now, then in zip(self.judge.counts(), before, strict=True))
        sha256 = self.judge.policies[record.model].sha256
        return dataclasses.replace(record, n_inferred=inferred, n_recalled=recalled, policy_sha256=sha256)

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
        return Decisions(self.judge, size, len(look_sizes(size)), planned=frozenset(ruled - {UNPARSED_INCREASE}))

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

    def _unfit(self, cell: Cell, planned: Sequence[JudgedTest]) -> dict[str, Estimate]:
        """Returns the metrics of a cell that do not apply, by the answers about all samples unchanged and without pictures."""
        import numpy as np

        rules = self.judge.policies[cell.model].rules
        ruled = {test.metric for test in planned for rule in rules if rule.metric == test.metric}
        if not (gated := [name for name in ruled if name in CELL_LIMITS and metrics.get(name).validity]):
            return {}
        clean, blind = self._references(cell)
        samples, views = self.judge.evaluator.samples(cell.dataset), view_count(cell.setting)
        of_patches: dict[str, Any] = {}
        if views > 1:
            by_view = {str(cell.setting): np.repeat(clean[:, None], views, axis=1)}
            of_patches = {"patches_by_setting": by_view, **floors(samples)}
        table = ScoreTable(
            clean=clean,
            by_setting={str(cell.setting): clean},
            no_image=blind,
            groups=groups_of(samples),
            chances=chances(samples),
            **of_patches,
        )
        estimates = {name: metrics.estimate(name, table, setting=str(cell.setting), confidence=None) for name in gated}
        return {name: estimate for name, estimate in estimates.items() if not estimate.valid}

    def _at_all_samples(self, decisions: Decisions) -> Judge:
        """Returns what judges a test that asked about all samples: with the risk that earlier looks have left."""
        if not decisions.looks:
            return self.judge
        policies = {name: with_risk(policy, 1.0 - EARLY_RISK) for name, policy in self.judge.policies.items()}
        return dataclasses.replace(self.judge, policies=policies)

    def _decide(self, decisions: Decisions, test: JudgedTest, rule: Rule, within: Callable[[Bound], Outcome]) -> None:
        """Writes down what audits show about a rule."""
        waivers = self._waivers(test)
        treatment = rule.treatment
        risk = treatment.alpha_fail if within(rule.bound) is Outcome.FAIL else treatment.alpha_pass
        because = f"shown at a risk of {risk:.3g} by {decisions.in_words}"
        if verdict := early_verdict(rule, within, waivers, self.judge.today, because):
            decisions.decided.setdefault((test, rule.id), verdict)

    def _waivers(self, test: JudgedTest) -> list[Waiver]:
        judge = self.judge
        every = judge.policies[test.model].waivers
        return [waiver for waiver in every if waiver.applies(test) and not waiver.is_expired(judge.today)]

    # Audits: of one cell, of every cell of a sweep, and of the pairs of a mean.

    def _cell_audits(
        self, cell: Cell, size: int, rules: Mapping[tuple[JudgedTest, str], Rule]
    ) -> dict[tuple[JudgedTest, str], RuleAudit]:
        """Returns an audit of each rule on a cell that can have one."""
        policy = self.judge.policies[cell.model]
        audits = {}
        for (test, name), rule in rules.items():
            if not judges_value(rule) or test.metric not in CELL_LIMITS:
                continue
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            limits = partial(CELL_LIMITS[test.metric], *self._references(cell))
            with contextlib.suppress(ValueError):  # without a limit there is no audit, and looks decide
                audits[test, name] = RuleAudit(rule, bounds, limits, asking_order(size), risks(policy, rule, test))
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
        audited = sweep.metric in EVERY_CELL or sweep.metric in MEANS
        if not audited or not rules or not all(rule.applies(test) and blocks(rule) and judges_value(rule) for rule in rules):
            return None
        chosen = list(dict.fromkeys(setting for setting in settings if setting not in (CLEAN, NO_IMAGE)))
        if sweep.metric in LOW_ONLY:
            low = set(low_settings(map(str, chosen)))
            chosen = [setting for setting in chosen if str(setting) in low]
        if not chosen or (sweep.metric in OF_RUNGS and self._shows_one_rung(sweep, chosen)):
            return None
        decide = self._every_cell if sweep.metric in EVERY_CELL else self._mean_of_pairs
        try:
            record = decide(sweep, test, rules, [Cell(sweep.model, sweep.dataset, setting) for setting in chosen])
        except ScoreMissing:
            record = None
        except ValueError:  # there is no limit
            return None
        return record or judge.sweep(sweep, settings)

    def _shows_one_rung(self, sweep: SweepMetric, rungs: Sequence[Setting]) -> bool:
        """Whether all rungs show the same pictures of the samples that are asked about first, so that there is no curve."""
        evaluator = self.judge.evaluator
        first = asking_order(len(evaluator.samples(sweep.dataset)))[:FIRST]
        return bool(same_pictures([evaluator.result(Cell(sweep.model, sweep.dataset, rung), first) for rung in rungs]))

    def _every_cell(self, sweep: SweepMetric, test: JudgedTest, rules: Sequence[Rule], cells: Sequence[Cell]) -> Record | None:
        """Judges the largest drop: kept where every cell keeps the bound, broken where one cell breaks it."""
        from pytest_vlmrobust.metrics.sequential import prior_weights

        evaluator, policy = self.judge.evaluator, self.judge.policies[sweep.model]
        order = asking_order(len(evaluator.samples(sweep.dataset)))
        decisions = Decisions(self.judge, len(order) * len(cells), 0)
        weights = prior_weights([str(cell.setting) for cell in cells]).tolist()
        clean, blind = self._references(sweep)
        limits = partial(CELL_LIMITS["accuracy_drop"], clean, blind)
        asked = [0] * len(cells)
        for rule in rules:
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            audit = RuleAudit(rule, bounds, limits, order, risks(policy, rule, test), weights=weights)
            while closest := audit.closest(HUNTED):
                upcoming = {
                    index: audit.upcoming(audit.asked[index] + step_after(audit.asked[index]), index) for index in closest
                }
                audit.advance({index: known(evaluator.result(cells[index], places)) for index, places in upcoming.items()})
            asked = list(map(max, asked, audit.asked))
            decisions.asked = sum(asked)
            self._decide(decisions, test, rule, audit.within)
        results = [evaluator.result(cell, order[:count]) for cell, count in zip(cells, asked, strict=True) if count]
        drops = [float((clean[list(order[: len(result.samples)])] - result.values).mean()) for result in results]
        worst = max(range(len(drops)), key=drops.__getitem__)
        note = f"largest drop in what was asked: {drops[worst]:.3f} at {results[worst].cell.setting}"
        return self._summary(sweep, decisions, Estimate(drops[worst], max(asked)), results, note)

    def _mean_of_pairs(self, sweep: SweepMetric, test: JudgedTest, rules: Sequence[Rule], cells: Sequence[Cell]) -> Record | None:
        """Judges a mean over all settings and samples from pairs of both, drawn in a fixed random order."""
        import numpy as np

        from pytest_vlmrobust.metrics.sequential import pair_order

        evaluator, policy = self.judge.evaluator, self.judge.policies[sweep.model]
        size = len(evaluator.samples(sweep.dataset))
        clean, blind = (np.tile(scores, len(cells)) for scores in self._references(sweep))
        order = pair_order(0, "", "", [str(cell.setting) for cell in cells], size).samples.tolist()
        decisions = Decisions(self.judge, len(order), 0)
        places: dict[Cell, list[int]] = {}
        values: dict[int, float] = {}
        for rule in rules:
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            audit = RuleAudit(rule, bounds, partial(MEANS[sweep.metric], clean, blind), order, risks(policy, rule, test))
            while pairs := audit.upcoming(audit.asked[0] + max(PAIRS, audit.asked[0] // GROWTH)):
                by_cell = {
                    number: [pair for pair in pairs if pair // size == number] for number in {pair // size for pair in pairs}
                }
                self.ask_ahead(Want(cells[number], [pair % size for pair in own]) for number, own in sorted(by_cell.items()))
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


def with_risk(policy: Policy, share: float) -> Policy:
    """Returns a policy whose rules may spend a part of their risks."""
    rules = [
        dataclasses.replace(
            rule,
            treatment=dataclasses.replace(
                rule.treatment, alpha_pass=rule.treatment.alpha_pass * share, alpha_fail=rule.treatment.alpha_fail * share
            ),
        )
        for rule in policy.rules
    ]
    return dataclasses.replace(policy, rules=tuple(rules))


def blocks(rule: Rule) -> bool:
    """Whether a test has to ask until a rule is decided."""
    return rule.treatment.tier is Tier.BLOCK


def judges_value(rule: Rule) -> bool:
    """Whether a rule asks for the verdict that all answers would give."""
    return rule.treatment.judge is Judging.POINT


def risks(policy: Policy, rule: Rule, test: JudgedTest) -> tuple[float, float]:
    """Returns the risks of a wrong PASS and of a wrong FAIL that one test may take; the latter is shared by all of a run."""
    treatment = rule.treatment
    shared = policy.sharing(rule, test) if treatment.multiplicity is Multiplicity.BONFERRONI else 1
    return treatment.alpha_pass, treatment.alpha_fail / shared / len(rule.bound.ends)


class ScoreMissing(Exception):
    """An inference failed that an audit asked for."""


def known(result: CellResult) -> Scores:
    """Returns the scores of a cell.

    Raises:
        ScoreMissing: an inference failed, so that no value of all answers is known.
    """
    values = result.values
    if any(math.isnan(value) for value in values):
        raise ScoreMissing(f"{result.cell}: a score is missing")
    return values


def strata_of(samples: Sequence[Sample]) -> set[str]:
    """Returns the names of the categories of samples, and of their sub-tasks."""
    return {sample.category for sample in samples if sample.category} | set(strata(samples))


def step_after(asked: int) -> int:
    """Returns how many samples of one cell of a sweep to ask next."""
    return max(FIRST, asked // GROWTH)


def moments(size: int) -> tuple[int, ...]:
    """Returns after how many samples the audit of a cell may stop: often at first, then less often.

    >>> moments(20)
    (8, 12, 16)
    """
    found = []
    asked = FIRST
    while asked < size:
        found.append(asked)
        asked += max(STEP, asked // GROWTH)
    return tuple(found)


# From a rule to limits: what an audit can decide.


def _drop(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    from pytest_vlmrobust.metrics.sequential import max_drop

    return [max_drop(clean, _only_max(bound), graded=graded)]


def _accuracy(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    from pytest_vlmrobust.metrics.sequential import min_accuracy

    if math.isfinite(bound.high):
        raise ValueError("no limit from above")
    return [min_accuracy(clean, bound.low, graded=graded)]


def _harmful_flips(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    from pytest_vlmrobust.metrics.sequential import max_harmful_flip_rate

    return [max_harmful_flip_rate(clean, _only_max(bound), graded=graded)]


def _share_of_gain(clean: Scores, blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    from pytest_vlmrobust.metrics.sequential import max_relative_corruption_error

    return [max_relative_corruption_error(clean, blind, _only_max(bound), graded=graded)]


def _patch_index(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    from pytest_vlmrobust.metrics.sequential import max_relative_drop, min_relative_drop

    if not clean.sum() > 0:
        raise ValueError("the index is undefined: no answer about a whole picture is right")
    limits = []
    if math.isfinite(bound.low):
        limits.append(min_relative_drop(clean, bound.low, graded=graded))
    if math.isfinite(bound.high):
        limits.append(max_relative_drop(clean, bound.high, graded=graded))
    return limits


def _only_max(bound: Bound) -> float:
    if math.isfinite(bound.low) or not math.isfinite(bound.high):
        raise ValueError("no limit from below")
    return bound.high


CELL_LIMITS = {
    "accuracy_drop": _drop,
    "harmful_flip_rate": _harmful_flips,
    "relative_corruption_error": _share_of_gain,
    "pcri": _patch_index,
    "rci": _patch_index,
}
"""Metrics of a cell that an audit knows, and what their bounds mean for sums of scores."""
EVERY_CELL = ("worst_case_drop", "worst_at_low")
"""Summary metrics that keep a bound where every cell does."""
MEANS = {
    "mean_drop": _drop,
    "mean_drop_at_low": _drop,
    "mean_harmful_flip_rate": _harmful_flips,
    "resolution_accuracy": _accuracy,
}
"""Summary metrics that are means over settings and samples."""
OF_RUNGS = ("resolution_accuracy",)
"""Those over rungs, which have to show different pictures."""
LOW_ONLY = ("worst_at_low", "mean_drop_at_low")
"""Those over settings at level low."""
