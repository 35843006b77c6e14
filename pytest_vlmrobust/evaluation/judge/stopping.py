"""Stopping: a test asks its samples in a fixed random order and stops once its rules are decided at their declared risk.

A rule that judges the value (``judge: point``) needs the verdict of all answers. An audit of a cell, of a
category, of the cells of a sweep or of the pairs of a mean bets against that verdict and may stop after any answer. A rule
without an audit, and any rule that judges the interval, gets a few looks: each spends a part of the risk, and the last one uses
all samples.

The order follows from the prompt and pixels of each sample, not from its position, its id or any option. It is the same for all
cells of a model and a dataset, so that metrics of several cells use the same samples. The verdict of a cell follows
from its answers in that order, so it does not depend on other tests or on the process. Clean images, whose
pixels decide the order, are all asked before a test may stop early.

After a failed inference a test uses all samples, as it does for a category or metric without samples so far. Budgets are judged
on the answers of the run. A run with a baseline uses all samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import BASELINES, Cell, FamilyMetric, SweepMetric
from pytest_vlmrobust.core.decision import Outcome, Verdict
from pytest_vlmrobust.core.estimate import ROUNDING, Estimate
from pytest_vlmrobust.core.record import BUDGET_METRICS, LARGEST_DROP, Record
from pytest_vlmrobust.core.sample import Sample, kind_of_stratum, strata_by_kind
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.answers import AnswersOfChanged, PartOfAnswers
from pytest_vlmrobust.evaluation.run.queue import CellRequest
from pytest_vlmrobust.evaluation.run.resolutions import same_pictures
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.metrics.corruption import low_settings
from pytest_vlmrobust.metrics.sequential import pair_order, prior_weights
from pytest_vlmrobust.metrics.table import Needs, ScoreTable, rung_of
from pytest_vlmrobust.policies import Bound, MetricKey, Mode, Policy, Rule, Tier, Waiver
from pytest_vlmrobust.policies.judge import early_verdict, judge_rule, verdict_of_part

from .audits import (
    CELL_LIMITS,
    EVERY_CELL,
    FIRST,
    GROWTH,
    LOW_ONLY,
    MEANS,
    OF_RUNGS,
    SHARES,
    LimitsOf,
    NoAuditError,
    RuleAudit,
    Scores,
    allowed_breaches,
    asking_order,
    checkpoints,
    fingerprints_of,
    judges_value,
    limits_within,
    risks,
    step_after,
)
from .cell_quantities import unparsed_increase
from .measure import Measurement, Sources, measure, summary
from .measurements import metric_keys, quantity, summary_key
from .reads import Reads, chance_levels, labels_missing, references, score_table
from .record import Verdicts, is_broken, judge_budgets, judge_estimates
from .strata import rows_of, strata

PAIRS = 32
"""Pairs of a setting and a sample between two checkpoints of the audit of a mean."""
CELLS_PER_ROUND = 4
"""Cells of a sweep asked per round, those closest to a breach."""
Steps: TypeAlias = Generator[list[CellRequest], list[Scores], bool]
"""Yields the next requests, receives their scores, and returns whether the test is decided."""
RuleKey: TypeAlias = tuple[MetricKey, str]
"""A rule: its metric key and id."""


class _ScoreMissing(Exception):
    """An inference for an audit failed, so the value of all answers is unknown."""


@dataclass(eq=False)
class Stopping:
    """The early stopping of one test; its verdicts are final."""

    reads: Reads
    sources: Sources
    policy: Policy
    today: date
    size: int
    """How many answers the test would ask for."""
    n_asked: int = 0
    """The number of samples after the next requests."""
    at_look: bool = False
    """Whether a look follows the next requests, which reads more cells."""
    is_decided: bool = False
    decided: dict[RuleKey, Verdict] = field(default_factory=dict)
    _measurement: Measurement | None = None
    _shares: Mapping[int, float] = field(default_factory=dict)
    """The parts of a rule's risk for each look and for all samples; empty without looks."""
    _audited: set[RuleKey] = field(default_factory=set)
    """Rules that an audit decides; looks spend no risk on them."""
    _invalid: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    """By metric and category: estimates that do not apply, as all clean answers show."""
    _planned: frozenset[str] = frozenset()
    """The metrics that blocking rules are about, and that all answers have a value of."""
    _open_looks: bool = False
    """Whether the last look left a rule open that no audit decides."""
    _beyond_budget: bool = False
    """Whether more inferences failed, or more answers were unreadable, than the policy admits; then all samples are judged."""
    _steps: Steps | None = None
    _requests: Sequence[CellRequest] = ()

    @classmethod
    def of(cls, reads: Reads, sources: Sources, policy: Policy, today: date) -> Stopping | None:
        """Returns the stopping rule of a test.

        ``None`` if the policy needs all answers, the run has a baseline, the dataset is small, or nothing
        can stop early: clean tests and families.
        """
        about = reads.planned
        if policy.mode is not Mode.ADAPTIVE or sources.baseline is not None:
            return None
        size = len(sources.answers.samples(about.dataset))
        if isinstance(about, FamilyMetric) or size <= FIRST:
            return None
        if about.setting in BASELINES if isinstance(about, Cell) else not reads.of_settings:
            return None
        if isinstance(about, SweepMetric) and _lacks_reference(about, {about.metric}, sources):
            return None
        return cls(reads, sources, policy, today, size)

    def next(self) -> Sequence[CellRequest]:
        """Returns the next requests; empty once the test is decided or needs all samples."""
        if self._steps is None:
            self._steps = self._all_steps()
            self._advance(None)
        return self._requests

    def take(self, scores: Sequence[Scores]) -> None:
        """Adds the scores of the last requests, in order."""
        self._advance(list(scores))

    def _all_steps(self) -> Steps:
        about = self.reads.planned
        if isinstance(about, Cell):
            return self._cell_steps(about)
        assert isinstance(about, SweepMetric)
        return self._sweep_steps(about)

    def _advance(self, scores: Any) -> None:
        assert self._steps is not None
        try:
            self._requests = [self._request(request.cell, request.places or ()) for request in self._steps.send(scores)]
        except StopIteration as end:
            self._requests, self.is_decided = (), end.value

    @property
    def order(self) -> Sequence[int]:
        """The places of all samples that the test is about, in the order in which they are asked."""
        return asking_order(self._fingerprints(self.reads.planned.dataset))

    def request(self, cell: Cell, first: int, last: int) -> CellRequest:
        """Returns how these samples of a cell are asked, by their numbers in that order."""
        return self._request(cell, self.order[first:last])

    def _request(self, cell: Cell, places: Sequence[int]) -> CellRequest:
        """Returns how the samples at these places are asked, by their places in the dataset."""
        answers = self.sources.answers
        return CellRequest(cell, answers.changed_places(cell, places) if isinstance(answers, AnswersOfChanged) else places)

    @cached_property
    def measurement(self) -> Measurement:
        """The measurement of a decided test."""
        return self._measurement or measure(self.reads, self._part())

    @property
    def remaining_policy(self) -> Policy:
        """The policy, with the risk that looks have left to all samples."""
        return with_risk(self.policy, self._shares[self.size]) if self._shares else self.policy

    def counted(self, record: Record) -> Record:
        """Returns the record of a decided test, with how many answers all samples would have taken."""
        size = self.size if self._measurement else record.n_requested * self.size // self.n_asked
        return dataclasses.replace(record, n_samples=size)

    @property
    def verdicts(self) -> Verdicts:
        """The verdicts of decided rules on the estimates of that measurement."""
        return self._verdicts(self.measurement)

    def _verdicts(self, measurement: Measurement) -> Verdicts:
        return {test: self._verdicts_on(test, estimate) for test, estimate in measurement.estimates}

    def _verdicts_on(self, test: MetricKey, estimate: Estimate) -> Mapping[str, Verdict]:
        verdicts = {}
        for rule in (rule for rule in self.policy.rules if rule.applies(test)):
            if (invalid := self._invalid.get((test.metric, test.category))) is not None:
                verdicts[rule.id] = judge_rule(rule, invalid, (), self.today, category=test.category)
            elif estimate.valid and estimate.finite and (key := (without_strata(test), rule.id)) in self.decided:
                verdicts[rule.id] = self.decided[key]
        return verdicts

    # One cell.

    def _cell_steps(self, cell: Cell) -> Steps:
        audits, stops = self._prepare(cell)
        order, seen = self.order, 0
        while stops:
            self.n_asked = stops[0]
            if not all(audit.is_done for audit in audits.values()):
                (scores,) = yield [CellRequest(cell, order[seen : stops[0]])]
                if np.isnan(scores).any():  # then the value of all answers is unknown
                    return False
                for (test, _), audit in audits.items():
                    if not audit.is_done:
                        audit.advance({0: scores})
                        self._conclude(test, audit.rule, audit.within)
            seen = stops.popleft()
            has_failed = any(verdict.outcome is Outcome.FAIL for verdict in self.decided.values())
            all_done = all(audit.is_done for audit in audits.values())
            if has_failed or (all_done and (seen in look_sizes(self.size) or not self._open_looks)):
                if (yield from self._look([cell])):
                    return True
                if self._beyond_budget:
                    return False
        return False

    def _prepare(self, cell: Cell) -> tuple[dict[RuleKey, RuleAudit], deque[int]]:
        """Returns the audits of a cell that has seen no answer, and after how many answers it may stop."""
        sources, rules = self.sources, self.policy.rules
        attempts = Needs.WHOLE_ATTEMPTS in self.reads.by_need
        planned = metric_keys(cell, sources.facts(cell.dataset), attempts=attempts)
        self._planned, self._shares = self._ruled(planned), risk_shares(self.size)
        tests = [*planned, *self._category_tests(cell, planned)]
        self._invalid = self._invalid_metrics(cell, tests)
        blocking = [(test, rule) for test in tests for rule in rules if rule.applies(test) and is_blocking(rule)]
        audits = self._cell_audits(cell, [pair for pair in blocking if (pair[0].metric, pair[0].category) not in self._invalid])
        self._audited = set(audits)
        self._open_looks = any((without_strata(test), rule.id) not in audits for test, rule in blocking)
        of_strata = {rule.metric for rule in self._rules_of_strata}
        if _lacks_reference(cell, of_strata | {test.metric for test, _ in blocking}, sources):
            self._shares = {}
            return audits, deque()
        return audits, deque(sorted({*(checkpoints(self.size) if audits else (FIRST,)), *look_sizes(self.size)}))

    def _category_tests(self, cell: Cell, planned: Sequence[MetricKey]) -> list[MetricKey]:
        """Returns the tests of the categories of a cell that a rule is about and an audit may decide."""
        if not (rules := self.sources.rules_of_strata(cell.model)):
            return []
        alike = strata_by_kind(self.sources.answers.samples(cell.dataset)).values()
        tests = [
            dataclasses.replace(test, category=name, strata=len(names))
            for test in planned
            if test.metric in CELL_LIMITS and quantity(test.metric).by_category
            for names in alike
            for name in names
        ]
        return [test for test in tests if any(rule.applies(test) for rule in rules)]

    def _cell_audits(self, cell: Cell, rules: Sequence[tuple[MetricKey, Rule]]) -> dict[RuleKey, RuleAudit]:
        """Returns the possible audits of rules on a cell or its categories."""
        answers = self.sources.answers
        samples = answers.samples(cell.dataset)
        audits = {}
        for test, rule in rules:
            if not judges_value(rule) or test.metric not in CELL_LIMITS:
                continue
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
            members = np.array([not test.category or test.category in sample.strata for sample in samples])
            part_limits = partial(CELL_LIMITS[test.metric], *(scores[members] for scores in references(answers, cell)))
            limits = partial(limits_within, members, part_limits)
            with contextlib.suppress(NoAuditError):  # without a limit there is no audit, and looks decide
                audit = RuleAudit(rule, bounds, limits, self.order, risks(self.policy, rule, test))
                audits[without_strata(test), rule.id] = audit
        return audits

    def _invalid_metrics(self, cell: Cell, tests: Sequence[MetricKey]) -> dict[tuple[str, str], Estimate]:
        """Returns which metrics do not apply to a cell, or to a category, by all answers with unchanged images and without."""
        rules, answers = self.policy.rules, self.sources.answers
        ruled = {(test.metric, test.category) for test in tests for rule in rules if rule.metric == test.metric}
        if not (gated := [about for about in ruled if about[0] in CELL_LIMITS and metrics.get(about[0]).validity]):
            return {}
        clean, blind = references(answers, cell)
        samples, views, setting = answers.samples(cell.dataset), view_count(cell.setting), str(cell.setting)
        of_patches: dict[str, Any] = {}
        if views > 1:
            of_patches = {"patches_by_setting": {setting: np.repeat(clean[:, None], views, axis=1)}, **chance_levels(samples)}
        whole = score_table(samples, clean, by_setting={setting: clean}, no_image=blind, **of_patches)
        tables = {category: self._part_of(whole, cell.dataset, category) for _, category in gated}
        estimates = {
            (name, category): metrics.estimate(name, tables[category], setting=setting, confidence=None)
            for name, category in gated
        }
        return {about: estimate for about, estimate in estimates.items() if not estimate.valid}

    def _part_of(self, table: ScoreTable, dataset: str, category: str) -> ScoreTable:
        """Returns the table of one category, or the whole table without a category."""
        if not category:
            return table
        samples = self.sources.answers.samples(dataset)
        part = rows_of(table, [category in sample.strata for sample in samples])
        members = [sample for sample in samples if category in sample.strata]
        return part if table.chance_levels is None else dataclasses.replace(part, **chance_levels(members))

    # A summary metric.

    def _sweep_steps(self, sweep: SweepMetric) -> Steps:
        rules = [rule for rule in self.policy.rules if rule.bounds(summary_key(sweep))]
        if cells := self._audited_cells(sweep, rules):
            with contextlib.suppress(NoAuditError):
                try:
                    steps = self._pair_steps if sweep.metric in MEANS else self._closest_steps
                    return (yield from steps(sweep, rules, cells))
                except _ScoreMissing:
                    return False
        self.size = len(self.sources.answers.samples(sweep.dataset))
        self.decided, self._shares = {}, risk_shares(self.size)
        self._planned = self._ruled(metric_keys(sweep, self.sources.facts(sweep.dataset)))
        for n_asked in sorted({FIRST, *look_sizes(self.size)}):
            self.n_asked = n_asked
            if (yield from self._look(self.reads.of_settings)):
                return True
            if self._beyond_budget:
                return False
        return False

    def _audited_cells(self, sweep: SweepMetric, rules: Sequence[Rule]) -> list[Cell]:
        """Returns the cells of a summary metric if audits can decide all its rules, else an empty list."""
        test = summary_key(sweep)
        if metrics.get(sweep.metric).gate is not None and not self.sources.task(sweep.dataset):  # not known to apply
            return []
        audited = sweep.metric in EVERY_CELL or sweep.metric in SHARES or sweep.metric in MEANS
        if not audited or not rules or not all(rule.applies(test) and is_blocking(rule) and judges_value(rule) for rule in rules):
            return []
        # such as the mean of its categories' curves
        others = [key for key in metric_keys(sweep, self.sources.facts(sweep.dataset)) if key != test]
        if any(rule.bounds(key) for rule in self.policy.rules for key in others):
            return []
        if any(setting in BASELINES for setting in self.reads.settings):  # which count, but are not asked about in parts
            return []
        cells = self.reads.of_settings
        if sweep.metric in LOW_ONLY:
            low = set(low_settings([str(cell.setting) for cell in cells]))
            cells = [cell for cell in cells if str(cell.setting) in low]
        if sweep.metric in OF_RUNGS:
            cells = [cell for cell in cells if rung_of(cell.setting) is not None]
            shown = [self.sources.answers.result(cell, self.order[:FIRST]) for cell in cells]
            return [] if cells and same_pictures(shown) else cells  # without different images there is no curve
        return cells

    def _closest_steps(self, sweep: SweepMetric, rules: Sequence[Rule], cells: Sequence[Cell]) -> Steps:
        """Judges the largest drop or a share of cells, by how many cells are shown to keep or break a limit."""
        result, order = self.sources.answers.result, self.order
        clean, blind = references(self.sources.answers, sweep)
        self.size = len(order) * len(cells)
        weights = prior_weights([str(cell.setting) for cell in cells]).tolist()
        limits = partial(SHARES.get(sweep.metric, CELL_LIMITS["accuracy_drop"]), clean, blind)
        n_by_cell = [0] * len(cells)
        for rule in rules:
            audit = self._sweep_audit(rule, sweep, limits, order, weights)
            while closest := audit.closest(CELLS_PER_ROUND):
                counts = audit.n_asked
                upcoming = {index: audit.upcoming(counts[index] + step_after(counts[index]), index) for index in closest}
                scores = yield [CellRequest(cells[index], places) for index, places in upcoming.items()]
                audit.advance(dict(zip(upcoming, map(_complete, scores), strict=True)))
            n_by_cell = list(map(max, n_by_cell, audit.n_asked))
            self.n_asked = sum(n_by_cell)
            self._conclude(summary_key(sweep), rule, audit.within)
        results = [result(cell, order[:count]) for cell, count in zip(cells, n_by_cell, strict=True) if count]
        formula = metrics.get(sweep.metric).function
        values = [
            float(formula(clean[list(order[: len(part.samples)])], {str(part.cell.setting): part.values})) for part in results
        ]
        if sweep.metric in SHARES:
            note = f"a share of the {counted(len(values), 'setting')} asked about"
            return self._ends(sweep, Estimate(sum(values) / len(values), max(n_by_cell)), results, note)
        worst = max(range(len(values)), key=values.__getitem__)
        note = f"{LARGEST_DROP}{values[worst]:.3f} at {results[worst].cell.setting}"
        return self._ends(sweep, Estimate(values[worst], max(n_by_cell)), results, note)

    def _pair_steps(self, sweep: SweepMetric, rules: Sequence[Rule], cells: Sequence[Cell]) -> Steps:
        """Judges a mean over all settings and samples from pairs of both, drawn in a fixed random order."""
        once = references(self.sources.answers, sweep)
        clean, blind = (np.tile(scores, len(cells)) for scores in once)
        size = once[0].size
        order = pair_order([str(cell.setting) for cell in cells], self._fingerprints(sweep.dataset))
        self.size = len(order)
        places: dict[Cell, list[int]] = {}
        values: dict[int, float] = {}
        n_asked = 0
        for rule in rules:
            audit = self._sweep_audit(rule, sweep, partial(MEANS[sweep.metric], clean, blind), order, [1.0])
            while pairs := audit.upcoming(audit.n_asked[0] + max(PAIRS, audit.n_asked[0] // GROWTH)):
                by_cell = _by_cell(pairs, size)
                scores = yield [CellRequest(cells[number], [pair % size for pair in drawn]) for number, drawn in by_cell.items()]
                for (number, drawn), of_cell in zip(by_cell.items(), scores, strict=True):
                    values |= zip(drawn, _complete(of_cell).tolist(), strict=True)
                    places.setdefault(cells[number], []).extend(pair % size for pair in drawn)
                audit.advance({0: np.array([values[pair] for pair in pairs])})
            self.n_asked = n_asked = max(n_asked, audit.n_asked[0])
            self._conclude(summary_key(sweep), rule, audit.within)
        results = [self.sources.answers.result(cell, sorted(set(chosen))) for cell, chosen in places.items()]
        estimate = Estimate(_mean(sweep.metric, clean[list(values)], np.array(list(values.values()))), len(values))
        return self._ends(sweep, estimate, results, "")

    def _sweep_audit(
        self, rule: Rule, sweep: SweepMetric, limits: LimitsOf, order: Sequence[int], weights: Sequence[float]
    ) -> RuleAudit:
        """Returns an audit of a rule's bound and of the caps of its valid waivers."""
        test = summary_key(sweep)
        bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in self._waivers(test))]
        allowed = {bound: allowed_breaches(sweep.metric, bound, len(weights)) for bound in bounds}
        return RuleAudit(rule, bounds, limits, order, risks(self.policy, rule, test), weights=weights, allowed=allowed)

    def _ends(self, sweep: SweepMetric, estimate: Estimate, results: Sequence[CellResult], note: str) -> bool:
        """Returns whether the audits of a summary metric have decided it, and no budget is broken."""
        self._measurement = summary(sweep, estimate, results, (note,) if note else (), self.sources)
        open_rules, broken = self._open_rules(self._measurement)
        decided = (not open_rules or broken) and not self._breaks_budget(self._measurement)
        self._measurement = self._measurement if decided else None
        return decided

    # Looks: interim analyses that judge a test on the samples so far, as if there were no others.

    def _look(self, cells: Sequence[Cell]) -> Steps:
        """Asks about the first samples of some cells, and returns whether they decide the test."""
        self.at_look = True
        if cells:
            first = first_places(self._fingerprints(self.reads.planned.dataset), self.n_asked)
            yield [CellRequest(cell, first) for cell in cells]
        self.at_look = False
        part = self._part(frozenset(rule.metric for rule in self.policy.rules))
        measurement = measure(self.reads, part)
        lacks_name = self._lacks_name(part)
        if self.n_asked in look_sizes(self.size) and not lacks_name:
            for test, estimate in measurement.estimates:
                self._decide(test, estimate)
        open_rules, broken = self._open_rules(measurement)
        unmeasured = self._planned - {test.metric for test, _ in measurement.estimates if not test.category}
        self._open_looks = bool(open_rules - self._audited or unmeasured or lacks_name or self._lacks_stratum(part, measurement))
        self._beyond_budget = self._breaks_budget(measurement)
        return (broken or not (open_rules or self._open_looks)) and not self._beyond_budget

    def _part(self, names: frozenset[str] | None = None) -> Sources:
        """Returns the answers to the first samples, for these quantities."""
        share = self.n_asked / self.size
        return self.sources.part(PartialAnswers(self.sources.answers, share, self._fingerprints), names)

    def _decide(self, test: MetricKey, estimate: Estimate) -> None:
        """Records the result of a look for the rules on an estimate, at this look's part of the risk."""
        for rule in self.policy.rules:
            key = without_strata(test), rule.id
            if not (rule.applies(test) and estimate.valid and estimate.finite) or key in self.decided or key in self._audited:
                continue
            waivers = [waiver for waiver in self.policy.waivers if waiver.applies(test)]
            if test.category:
                alike = strata_of(self.sources.answers.samples(test.dataset), kind_of_stratum(test.category))
                sharing = self.policy.sharing(rule, dataclasses.replace(test, strata=max(test.strata, len(alike))))
            else:
                sharing = self.policy.sharing(rule, test)
            share = self._shares[self.n_asked]
            if judges_value(rule):  # the verdict of all answers carries no risk, so no part is reserved for it
                share /= 1.0 - self._shares[self.size]
            verdict = verdict_of_part(
                rule, estimate, waivers, self.today, sharing, share=share, progress=self._in_words, category=test.category
            )
            if verdict is not None:
                self.decided[key] = verdict

    def _open_rules(self, measurement: Measurement) -> tuple[set[RuleKey], bool]:
        """Returns the undecided blocking rules, and whether another rule is broken."""
        decided = self._verdicts(measurement)
        judged = judge_estimates(measurement, self.policy, self.today, decided)
        open_rules = {
            (without_strata(test), rule.id)
            for (_, measured), (test, estimate, _) in zip(measurement.estimates, judged, strict=True)
            for rule in self.policy.rules
            if rule.applies(test) and is_blocking(rule) and (rule.id not in decided[test] or estimate is not measured)
        }
        return open_rules, is_broken(measure for _, _, measure in judged)

    def _breaks_budget(self, measurement: Measurement) -> bool:
        """Whether more inferences failed, or more answers were unreadable, than the policy admits."""
        measures = judge_budgets(measurement, self.policy, self.today)
        return any(measure.metric in BUDGET_METRICS and measure.outcome is not Outcome.MEASURED for measure in measures)

    def _lacks_name(self, part: Sources) -> bool:
        """Whether a blocking rule compares groups or categories and one of them has no sample yet."""
        about = self.reads.planned
        if not isinstance(about, SweepMetric) or not self._planned:
            return False
        samples = self.sources.answers.samples(about.dataset)
        return bool(labels_missing(metrics.get(about.metric).needs, samples, part.answers.samples(about.dataset)))

    def _lacks_stratum(self, part: Sources, measurement: Measurement) -> bool:
        """Whether a blocking rule is about a category without samples, or without a value, so far."""
        if not (rules := self._rules_of_strata):
            return False
        dataset = self.reads.planned.dataset
        absent = strata_of(self.sources.answers.samples(dataset)) - strata_of(part.answers.samples(dataset))
        measured = {(test.metric, test.category) for test, _ in measurement.estimates}
        return any(rule.where.admits("category", name) for rule in rules for name in absent) or bool(self._of_strata - measured)

    @property
    def _rules_of_strata(self) -> list[Rule]:
        return [rule for rule in self.policy.rules if rule.where.category and is_blocking(rule)]

    @cached_property
    def _of_strata(self) -> set[tuple[str, str]]:
        """The metrics and categories that blocking rules are about, by all samples: a part may lack what a metric needs."""
        about, answers, attempts = self.reads.planned, self.sources.answers, Needs.WHOLE_ATTEMPTS in self.reads.by_need
        samples, facts = answers.samples(about.dataset), self.sources.facts(about.dataset)
        members: Mapping[str, Any] = strata(samples)
        if isinstance(about, Cell):
            members = {
                name: [name in sample.strata for sample in samples] for kind in strata_by_kind(samples).values() for name in kind
            }
        planned = set()
        for name, kept in members.items():
            if not any(rule.where.admits("category", name) for rule in self._rules_of_strata):
                continue
            part = dataclasses.replace(facts, samples=[sample for sample, is_in in zip(samples, kept, strict=True) if is_in])
            tests = metric_keys(about, part, attempts=attempts)
            planned |= {dataclasses.replace(test, category=name) for test in tests if quantity(test.metric).by_category}
        ruled = {test for test in planned for rule in self._rules_of_strata if rule.applies(test)}
        return {(test.metric, test.category) for test in ruled if test.metric != unparsed_increase.name}  # see _ruled

    # Common to audits and looks.

    def _conclude(self, test: MetricKey, rule: Rule, within: Callable[[Bound], Outcome]) -> None:
        """Records the result of an audit for a rule: ``within`` says whether a bound is shown to be kept or broken."""
        treatment = rule.treatment
        risk = treatment.alpha_fail if within(rule.bound) is Outcome.FAIL else treatment.alpha_pass
        because = f"shown at a risk of {risk:.3g} by {self._in_words}"
        if verdict := early_verdict(rule, within, self._waivers(test), self.today, because, category=test.category):
            self.decided.setdefault((test, rule.id), verdict)

    @property
    def _in_words(self) -> str:
        """The number of answers, for reasons of verdicts."""
        return f"{self.n_asked:,} of {counted(self.size, 'answer')}"

    def _waivers(self, test: MetricKey) -> list[Waiver]:
        """Returns the waivers about a test that hold today."""
        return [waiver for waiver in self.policy.waivers if waiver.applies(test) and not waiver.is_expired(self.today)]

    def _ruled(self, planned: Iterable[MetricKey]) -> frozenset[str]:
        ruled = {test.metric for test in planned for rule in self.policy.rules if rule.applies(test) and is_blocking(rule)}
        # whether answers are texts that are read, or letters that are scored, is the same for all samples
        return frozenset(ruled - {unparsed_increase.name})

    def _fingerprints(self, dataset: str) -> tuple[str, ...]:
        """Returns the fingerprints that decide the order of samples; this evaluates the clean cell."""
        model, known = self.reads.planned.model, self.sources.fingerprints
        if (model, dataset) not in known:
            answers = self.sources.answers
            samples, mode = answers.result(Cell(model, dataset, BASELINES[0])).samples, answers.models[model].prompt_mode
            known[model, dataset] = fingerprints_of(samples, mode, answers.pictures(dataset))
        return known[model, dataset]


def without_strata(test: MetricKey) -> MetricKey:
    """Returns a test key without its number of strata, because a part of the samples may lack some."""
    return test if test.strata == 1 else dataclasses.replace(test, strata=1)


def _lacks_reference(about: Cell | SweepMetric, names: Iterable[str], sources: Sources) -> bool:
    """Whether an inference failed on an unchanged image, or without it, that a metric needs: no part has its value then."""
    registered, baselines = set(metrics.names()), (Needs.CLEAN, Needs.NO_IMAGE)  # of others it is not known what they read
    needs = {need for name in names for need in (metrics.get(name).needs if name in registered else baselines)}
    read = [setting for need, setting in zip(baselines, BASELINES, strict=True) if need in needs]
    results = [sources.answers.result(Cell(about.model, about.dataset, setting)) for setting in read]
    return any(np.isnan(result.values).any() for result in results)


def _complete(scores: Scores) -> Scores:
    if np.isnan(scores).any():
        raise _ScoreMissing
    return scores


def _by_cell(pairs: Iterable[int], size: int) -> Mapping[int, list[int]]:
    """Returns pairs of a setting and a sample by the number of their setting; there are ``size`` samples."""
    by_cell: dict[int, list[int]] = {}
    for pair in pairs:
        by_cell.setdefault(pair // size, []).append(pair)
    return dict(sorted(by_cell.items()))


def _mean(metric: str, clean: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """Returns a metric of ``MEANS`` over the pairs so far."""
    if metric in OF_RUNGS:
        return float(scores.mean())
    losses = clean - scores
    return float((losses.clip(min=0.0) if metric == "mean_harmful_flip_rate" else losses).mean())


# Looks: interim analyses that judge a test on the samples so far, as if there were no others.
#
# Each look spends a part of a rule's risk, and the last look, at all samples, has the rest. The parts add up to the risk, so it
# holds for any interval and any dependence between looks. Verdicts of audits are final.


FIRST_LOOK = 24
"""Samples at the first look; each further look has twice as many."""
LAST_LOOK = 0.6
"""The share of the samples after which no look comes but that at all of them, which would have little risk left."""


def look_sizes(size: int) -> tuple[int, ...]:
    """Returns the sample counts of the looks before the last one.

    >>> look_sizes(20), look_sizes(128), look_sizes(869)
    ((), (24, 48), (24, 48, 96, 192, 384))
    """
    doubled = (FIRST_LOOK * 2**power for power in range(32))
    return tuple(look for look in doubled if look <= LAST_LOOK * size)


def risk_shares(size: int) -> dict[int, float]:
    """Returns the part of a rule's risk for each look, by its number of samples; cumulatively the square of the share of samples.

    Equal parts would leave less for the last look, where most close verdicts are decided; O'Brien-Fleming bounds leave more,
    but need more samples for clear cases. ``studies/verdicts/README.md`` compares them.

    Source: K. Kim and D. DeMets, Biometrika 74 (1987) 149-154: spending functions that are powers of the share; here of 2.

    >>> risk_shares(96)
    {24: 0.0625, 48: 0.1875, 96: 0.75}
    """
    looks = (*look_sizes(size), size)
    return {look: (look / size) ** 2 - (before / size) ** 2 for before, look in zip((0, *looks), looks, strict=False)}


@dataclass(eq=False)
class PartialAnswers(PartOfAnswers):
    """The answers to the first samples in their random order, for a look."""

    share: float
    """The share of each dataset that is used."""
    fingerprints: Callable[[str], tuple[str, ...]]
    """Returns the fingerprints that decide the order of a dataset's samples."""

    def places(self, dataset: str) -> tuple[int, ...]:
        """Returns the positions of the samples of a dataset that are used."""
        fingerprints = self.fingerprints(dataset)
        return first_places(fingerprints, math.ceil(self.share * len(fingerprints) - ROUNDING))


@lru_cache(maxsize=64)
def first_places(fingerprints: tuple[str, ...], count: int) -> tuple[int, ...]:
    """Returns the positions of the first samples in the random order, sorted by position."""
    return tuple(sorted(asking_order(fingerprints)[:count]))


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


def is_blocking(rule: Rule) -> bool:
    """Whether a test must continue until this rule is decided."""
    return rule.treatment.tier is Tier.BLOCK


def strata_of(samples: Sequence[Sample], kind: str | None = None) -> set[str]:
    """Returns the names of the categories, sub-tasks and slices of samples, or of one kind of them."""
    names = {name for sample in samples for name in sample.strata} | set(strata(samples))
    return names if kind is None else {name for name in names if kind_of_stratum(name) == kind}
