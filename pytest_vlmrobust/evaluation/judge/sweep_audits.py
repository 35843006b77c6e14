"""Audits of a sweep: of the largest drop, of a share of its cells, and of a mean over all pairs of a setting and a sample.

Where audits decide all rules on a summary metric, its test ends with them. Where an inference fails, a budget is broken or a rule
stays open, all samples are judged: nothing asked is forgotten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting, SweepMetric
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.record import LARGEST_DROP, Record
from pytest_vlmrobust.core.words import quantity as counted
from pytest_vlmrobust.evaluation.run.queue import Want
from pytest_vlmrobust.evaluation.run.resolutions import same_pictures
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.metrics.corruption import low_settings
from pytest_vlmrobust.policies import JudgedTest, Rule

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
    RuleAudit,
    allowed_breaches,
    asking_order,
    judges_value,
    known,
    risks,
    step_after,
)
from .judge import Judge
from .looks import Decisions, blocks, breaks_budget, is_broken
from .reads import references

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .audits import LimitsOf

PAIRS = 32
"""Pairs of a setting and a sample between two moments at which the audit of a mean may stop."""
HUNTED = 4
"""Cells of a sweep that are asked next: those closest to a breach."""


@dataclass(frozen=True, slots=True)
class SweepTest:
    """The test of a summary metric whose rules audits may decide."""

    judge: Judge
    sweep: SweepMetric
    rules: Sequence[Rule]
    """All rules on the metric; each blocks, and asks for the verdict of all answers."""
    cells: Sequence[Cell]
    fingerprints: tuple[str, ...]
    """What the order of its samples is made of."""
    expect: Callable[[Iterable[Want]], None]
    """Told what is asked next, so that the model is kept busy."""

    @classmethod
    def of(
        cls,
        judge: Judge,
        sweep: SweepMetric,
        settings: Sequence[Setting],
        fingerprints: tuple[str, ...],
        expect: Callable[[Iterable[Want]], None],
    ) -> SweepTest | None:
        """Returns the test of a summary metric over ``settings``; ``None`` where no audit is known for one of its rules."""
        policy, test = judge.policies[sweep.model], _judged(sweep)
        rules = [rule for rule in policy.rules if rule.bounds(test)]
        audited = sweep.metric in EVERY_CELL or sweep.metric in SHARES or sweep.metric in MEANS
        if metrics.get(sweep.metric).gate is not None and sweep.dataset not in judge.tasks:  # nobody saw that it applies
            return None
        if not audited or not rules or not all(rule.applies(test) and blocks(rule) and judges_value(rule) for rule in rules):
            return None
        chosen = list(dict.fromkeys(setting for setting in settings if setting not in (CLEAN, NO_IMAGE)))
        if sweep.metric in LOW_ONLY:
            low = set(low_settings(map(str, chosen)))
            chosen = [setting for setting in chosen if str(setting) in low]
        cells = [Cell(sweep.model, sweep.dataset, setting) for setting in chosen]
        if not cells or (sweep.metric in OF_RUNGS and _show_one_rung(judge, cells, asking_order(fingerprints)[:FIRST])):
            return None
        return cls(judge, sweep, rules, cells, fingerprints, expect)

    def record(self) -> Record | None:
        """Asks until audits have decided the rules, and returns the record; ``None`` where something is left open.

        Raises:
            InfrastructureError: a cell could not be measured.
            NoAuditError: there is no audit for a bound.
        """
        try:
            return self._of_pairs() if self.sweep.metric in MEANS else self._of_cells()
        except MissingScoreError:
            return None

    def _of_cells(self) -> Record | None:
        """Judges the largest drop, or a share of cells: by how many cells are shown to keep a limit, and to break it."""
        from pytest_vlmrobust.metrics.sequential import prior_weights

        sweep, cells, result = self.sweep, self.cells, self.judge.evaluator.result
        clean, blind = references(self.judge.evaluator, sweep)
        order = asking_order(self.fingerprints)
        decisions = Decisions(self.judge, len(order) * len(cells), {})
        weights = prior_weights([str(cell.setting) for cell in cells]).tolist()
        asked = [0] * len(cells)
        limits = partial(SHARES.get(sweep.metric, CELL_LIMITS["accuracy_drop"]), clean, blind)
        for rule, audit in self._audits(decisions, limits, order, weights):
            while closest := audit.closest(HUNTED):
                upcoming = {
                    index: audit.upcoming(audit.asked[index] + step_after(audit.asked[index]), index) for index in closest
                }
                self.expect(Want(cells[index], places) for index, places in upcoming.items())
                audit.advance({index: known(result(cells[index], places)) for index, places in upcoming.items()})
            asked = list(map(max, asked, audit.asked))
            decisions.asked = sum(asked)
            decisions.conclude(_judged(sweep), rule, audit.within)
        results = [result(cell, order[:count]) for cell, count in zip(cells, asked, strict=True) if count]
        formula = metrics.get(sweep.metric).function
        values = [float(formula(clean[list(order[: len(one.samples)])], {str(one.cell.setting): one.values})) for one in results]
        if sweep.metric in SHARES:
            note = f"a share of the {counted(len(values), 'setting')} asked about"
            return self._summary(decisions, Estimate(sum(values) / len(values), max(asked)), results, note)
        worst = max(range(len(values)), key=values.__getitem__)
        note = f"{LARGEST_DROP}{values[worst]:.3f} at {results[worst].cell.setting}"
        return self._summary(decisions, Estimate(values[worst], max(asked)), results, note)

    def _of_pairs(self) -> Record | None:
        """Judges a mean over all settings and samples from pairs of both, drawn in a fixed random order."""
        import numpy as np

        from pytest_vlmrobust.metrics.sequential import pair_order

        sweep, cells, result = self.sweep, self.cells, self.judge.evaluator.result
        once = references(self.judge.evaluator, sweep)
        clean, blind = (np.tile(scores, len(cells)) for scores in once)
        size = once[0].size
        order = pair_order([str(cell.setting) for cell in cells], self.fingerprints)
        decisions = Decisions(self.judge, len(order), {})
        places: dict[Cell, list[int]] = {}
        values: dict[int, float] = {}
        for rule, audit in self._audits(decisions, partial(MEANS[sweep.metric], clean, blind), order):
            while pairs := audit.upcoming(audit.asked[0] + max(PAIRS, audit.asked[0] // GROWTH)):
                by_cell = _by_cell(pairs, size)
                self.expect(Want(cells[number], [pair % size for pair in own]) for number, own in by_cell.items())
                for number, own in by_cell.items():
                    scores = known(result(cells[number], [pair % size for pair in own])).tolist()
                    values |= zip(own, scores, strict=True)
                    places.setdefault(cells[number], []).extend(pair % size for pair in own)
                audit.advance({0: np.array([values[pair] for pair in pairs])})
            decisions.asked = max(decisions.asked, audit.asked[0])
            decisions.conclude(_judged(sweep), rule, audit.within)
        results = [result(cell, sorted(set(own))) for cell, own in places.items()]
        estimate = Estimate(_mean(sweep.metric, clean[list(values)], np.array(list(values.values()))), len(values))
        return self._summary(decisions, estimate, results, "")

    def _audits(
        self, decisions: Decisions, limits: LimitsOf, order: Sequence[int], weights: Sequence[float] = (1.0,)
    ) -> Iterator[tuple[Rule, RuleAudit]]:
        """Yields each rule and an audit of its bound, and of the caps of waivers that hold.

        Raises:
            NoAuditError: there is none for one of these bounds.
        """
        test, policy = _judged(self.sweep), self.judge.policies[self.sweep.model]
        for rule in self.rules:
            bounds = [rule.bound, *(waiver.bound_of(rule.bound) for waiver in decisions.waivers(test))]
            allowed = {bound: allowed_breaches(self.sweep.metric, bound, len(weights)) for bound in bounds}
            yield rule, RuleAudit(rule, bounds, limits, order, risks(policy, rule, test), weights=weights, allowed=allowed)

    def _summary(self, decisions: Decisions, estimate: Estimate, results: Sequence[CellResult], note: str) -> Record | None:
        judge = dataclasses.replace(self.judge, early=decisions)
        notes = (note,) if note else ()
        record = judge.summary("sweep", self.sweep, estimate, results, judge.counts(), notes=notes)
        if (decisions.undecided and not is_broken(record)) or breaks_budget(record):
            return None
        return dataclasses.replace(record, n_samples=decisions.size)


def _judged(sweep: SweepMetric) -> JudgedTest:
    return JudgedTest(sweep.model, sweep.dataset, sweep.metric, sweep.split)


def _show_one_rung(judge: Judge, rungs: Sequence[Cell], first: Sequence[int]) -> bool:
    """Whether all rungs show the same pictures of the samples that are asked about first, so that there is no curve."""
    return bool(same_pictures([judge.evaluator.result(rung, first) for rung in rungs]))


def _by_cell(pairs: Iterable[int], size: int) -> Mapping[int, list[int]]:
    """Returns pairs of a setting and a sample by the number of their setting; there are ``size`` samples."""
    by_cell: dict[int, list[int]] = {}
    for pair in pairs:
        by_cell.setdefault(pair // size, []).append(pair)
    return dict(sorted(by_cell.items()))


def _mean(metric: str, clean: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """Returns what a metric of ``MEANS`` comes to on the pairs that were asked about."""
    if metric in OF_RUNGS:
        return float(scores.mean())
    losses = clean - scores
    return float((losses.clip(min=0.0) if metric == "mean_harmful_flip_rate" else losses).mean())
