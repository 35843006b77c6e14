"""Audits: decide a rule on a value before all answers are in.

An audit covers one cell or one of its categories, the pairs of a mean, or the cells of a sweep. It bets against the
verdict of all answers, and may stop after any answer (``metrics.sequential``).
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import StoreError
from pytest_vlmrobust.core.estimate import ROUNDING
from pytest_vlmrobust.core.fingerprint import canonical_json, derive_seed, fingerprint
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.evaluation.run.prompts import prompt
from pytest_vlmrobust.metrics.corruption import BENIGN, CATASTROPHIC, SEVERE
from pytest_vlmrobust.metrics.sequential import (
    Audit,
    Limit,
    max_drop,
    max_harmful_flip_rate,
    max_relative_corruption_error,
    max_relative_drop,
    min_accuracy,
    min_relative_drop,
)
from pytest_vlmrobust.policies import Bound, JudgedBy, MetricKey, Multiplicity, Policy, Rule

Scores: TypeAlias = NDArray[np.float64]
LimitsOf: TypeAlias = Callable[[Bound, bool], list[Limit]]

FIRST = 8
"""Samples asked in every cell."""
STEP = 4
"""Samples of a cell between two checkpoints of an audit."""
GROWTH = 16
"""Later steps add this fraction of the samples so far: large batches are cheaper, and later answers decide less."""
_PURPOSE = "order in which samples are asked"


class NoAuditError(Exception):
    """No audit can decide this rule: its kind of bound has none, or a clean score is missing."""


# The order of the samples.


def fingerprints_of(samples: Sequence[Sample], prompt_mode: str, pictures: Mapping[str, PictureDigests]) -> tuple[str, ...]:
    """Returns the fingerprint of each sample's prompt and clean images; the order of samples follows from them.

    They contain nothing else, because only prompt and images are part of an answer's key. If the position, id or category
    counted, an author could change it at no cost until the order is favourable. Samples with equal prompt and images are numbered
    by their target and scorer, then by id.
    """
    if unknown := [sample.id for sample in samples if sample.images and sample.id not in pictures]:
        raise StoreError(
            f"the images of {first_few(unknown)} are not known, from which the order of samples follows. The store, or the "
            "evidence of the run, lacks them: run the model again to have another one, or with --vlm-mode=full"
        )
    seen = Counter[str]()
    by_id: dict[str, str] = {}
    for sample in sorted(samples, key=_scored_by):
        shown = fingerprint([prompt(sample, prompt_mode), pictures[sample.id].pixels if sample.images else ""])
        by_id[sample.id] = f"{shown} {seen[shown]}"
        seen[shown] += 1
    return tuple(by_id[sample.id] for sample in samples)


def _scored_by(sample: Sample) -> tuple[str, ...]:
    return canonical_json(sample.question_key), sample.task, sample.scorer, sample.category, sample.group, sample.id


@lru_cache(maxsize=64)
def asking_order(fingerprints: tuple[str, ...]) -> tuple[int, ...]:
    """Returns the order in which the samples of a dataset are asked, as positions in the dataset.

    It is random, and no option affects it: the fingerprints of two samples alone decide which comes first, whatever their
    positions and the number of samples. It is the same for all cells of a model and a dataset.

    >>> [("a", "b", "c")[place] for place in asking_order(("a", "b", "c"))]
    ['b', 'a', 'c']
    >>> [("c", "b", "d", "a")[place] for place in asking_order(("c", "b", "d", "a"))]
    ['b', 'd', 'a', 'c']
    """
    ranks = [derive_seed(0, _PURPOSE, digest) for digest in fingerprints]
    return tuple(sorted(range(len(ranks)), key=ranks.__getitem__))


# When audits may stop.


def step_after(n_asked: int) -> int:
    """Returns how many samples of a cell in a sweep to ask next."""
    return max(FIRST, n_asked // GROWTH)


def checkpoints(size: int) -> tuple[int, ...]:
    """Returns after how many samples the audit of a cell may stop: often at first, then less often.

    >>> checkpoints(20)
    (8, 12, 16)
    """
    counts = []
    n_asked = FIRST
    while n_asked < size:
        counts.append(n_asked)
        n_asked += max(STEP, n_asked // GROWTH)
    return tuple(counts)


class RuleAudit:
    """The audit of one rule: first its bound and, once that is shown to be broken, the caps of waivers.

    It covers one cell, the pairs of a mean, or m cells of a sweep, where all but k cells must keep a limit; k is 0
    for the largest drop. A result about a cell is final; partial conjunction combines them into a result about all cells.
    PASS: m - k cells are shown to keep their limit, each at 1 / (k + 1) of the risk of a wrong PASS. FAIL: k + 1 cells are shown
    to break theirs, at shares of the risk of a wrong FAIL such that no m - k of them exceed it. If PASS is wrong, V > k cells
    break the limit, and at least V - k of them were shown to keep it; the same argument holds for FAIL. It holds for any
    dependence between cells, and for any order of the cells.

    Source: Y. Benjamini and R. Heller, Biometrics 64 (2008) 1215-1222, of p-values that are the least 1 / e so far.
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
        allowed: Mapping[Bound, int] | None = None,
    ) -> None:
        """Prepares an audit without answers.

        Args:
            rule: the rule to audit.
            bounds: the bound of the rule, then the looser caps of waivers.
            limits: returns the limits for a bound, for 0/1 or graded scores.
            order: of the samples, as positions.
            risks: of a wrong PASS and a wrong FAIL.
            weights: one per cell, proportional to its share of the risk of a wrong FAIL.
            allowed: for each bound, how many cells may break its limit; 0 by default.
        """
        self.rule, self._bounds = rule, tuple(bounds)
        by_bound, self._graded = _limits_of(bounds, limits)
        every = [limit for group in by_bound for limit in group]
        ends = np.cumsum([0, *map(len, by_bound)]).tolist()
        self._columns = {bound: slice(start, end) for bound, start, end in zip(self._bounds, ends, ends[1:], strict=False)}
        self._audit, self._samples = Audit(every, order, len(weights)), len(order)
        self._allowed = dict.fromkeys(self._bounds, 0) if allowed is None else allowed
        self._needed = {bound: _needed(risks, np.array(weights), spared) for bound, spared in self._allowed.items()}
        self._evidence = np.zeros((2, len(weights), len(every)))
        self._kept = {bound: np.zeros(len(weights), bool) for bound in self._bounds}
        self._broken = {bound: np.zeros(len(weights), bool) for bound in self._bounds}
        self._open = np.ones(len(weights), bool)
        self._open_bounds = self._bounds[:1]  # the bound of the rule until it is shown to be broken, then the caps
        self.is_done = not self._samples
        """Whether the answers so far decide the rule, or all answers are in."""

    @property
    def n_asked(self) -> list[int]:
        """How many answers it has seen of each cell."""
        return self._audit.n_asked

    def closest(self, most: int) -> list[int]:
        """Returns the open cells to ask next, in order; empty once the audit is done.

        If no cell may break the limit, or more cells seem to break it than allowed, these are the cells closest to
        being shown to break it. Otherwise they are cells without answers, then the cells closest to being shown to
        keep it: the hardest cells may stay open.
        """
        if self.is_done:
            return []
        open_bounds = self._open_bounds
        evidence_of_pass, evidence_of_fail = (
            np.min([part[:, self._columns[bound]].max(axis=1) for bound in open_bounds], axis=0) for part in self._evidence
        )
        lacking = evidence_of_fail - self._needed[open_bounds[0]][1][:, 0]
        spared = max(self._allowed[bound] for bound in open_bounds)
        is_new = np.array(self.n_asked) == 0
        if spared and (evidence_of_fail > evidence_of_pass).sum() <= spared:
            lacking = np.where(is_new, lacking, evidence_of_pass)
            ranked = np.lexsort((-lacking, ~is_new))
        else:
            ranked = np.argsort(-lacking, kind="stable")
        closest: list[int] = ranked[self._open[ranked]][:most].tolist()
        return closest

    def upcoming(self, total: int, cell: int = 0) -> Sequence[int]:
        """Returns the positions of the samples to ask next to reach ``total`` samples; empty once the audit is done."""
        return () if self.is_done else self._audit.upcoming(total, cell)

    def advance(self, scores: Mapping[int, NDArray[np.float64]]) -> None:
        """Adds the scores of the next samples of some cells, in order.

        A missing score (NaN), or a graded score among 0/1 scores, counts as wrong for PASS and as right
        for FAIL.
        """
        for cell, values in scores.items():
            self._audit.advance(cell, values if self._graded else np.where((values == 0.0) | (values == 1.0), values, np.nan))
        self._conclude()

    def within(self, bound: Bound) -> Outcome:
        """Returns PASS or FAIL if the value over all answers is shown to keep or break ``bound``, else INCONCLUSIVE."""
        allowed = self._allowed[bound]
        if (~self._shown_to_keep(bound)).sum() <= allowed:
            return Outcome.PASS
        return Outcome.FAIL if self._broken[bound].sum() > allowed else Outcome.INCONCLUSIVE

    def _shown_to_keep(self, bound: Bound) -> NDArray[np.bool_]:
        """Returns which cells are shown to keep the limit of a bound or a tighter one."""
        shown = [kept for cap, kept in self._kept.items() if bound.holds(cap) and self._allowed[cap] == self._allowed[bound]]
        kept: NDArray[np.bool_] = np.any(shown, axis=0)
        return kept

    def _conclude(self) -> None:
        """Records which cells are shown to keep or break which bounds, and which need more answers."""
        self._evidence = self._audit.evidence()
        for bound, columns in self._columns.items():
            passed, failed = (
                part[:, columns] >= needed for part, needed in zip(self._evidence, self._needed[bound], strict=True)
            )
            broken, kept = failed.any(axis=1), passed.all(axis=1)
            self._kept[bound] |= kept & ~broken
            self._broken[bound] |= broken & ~kept
        if len(self._bounds) > 1 and self.within(self._bounds[0]) is Outcome.FAIL:
            self._open_bounds = self._bounds[1:]
        open_bounds = self._open_bounds
        most = max(self._allowed[bound] for bound in open_bounds)
        kept_at_last = [self._shown_to_keep(bound) for bound in open_bounds if self._allowed[bound] == most]
        decided = np.any(kept_at_last, axis=0) | np.all([self._broken[bound] for bound in open_bounds], axis=0)
        self._open = ~decided & (np.array(self.n_asked) < self._samples)
        shown = {self.within(bound) for bound in open_bounds}
        self.is_done = Outcome.PASS in shown or shown == {Outcome.FAIL} or not self._open.any()


def _needed(risks: tuple[float, float], weights: Scores, allowed: int) -> tuple[Scores, Scores]:
    """Returns how much evidence shows that a cell keeps its limit, shape (1, 1), and that it breaks it, shape (cells, 1)."""
    shares = weights / np.sort(weights)[allowed:].sum() if allowed else weights
    of_pass = -np.log(np.full((1, 1), risks[0] / (allowed + 1)))
    return of_pass, -np.log(risks[1]) - np.log(shares)[:, None]


def judges_value(rule: Rule) -> bool:
    """Whether a rule judges the value over all answers."""
    return rule.treatment.judge is JudgedBy.POINT


def risks(policy: Policy, rule: Rule, test: MetricKey) -> tuple[float, float]:
    """Returns the risks of a wrong PASS and a wrong FAIL for one test; all tests of a run share the risk of a wrong FAIL."""
    treatment = rule.treatment
    shared = policy.sharing(rule, test) if treatment.multiplicity is Multiplicity.BONFERRONI else 1
    return treatment.alpha_pass, treatment.alpha_fail / shared / len(rule.bound.ends)


# From a rule to the limits that an audit can decide.


def _limits_of(bounds: Sequence[Bound], limits: LimitsOf) -> tuple[list[list[Limit]], bool]:
    """Returns the limits of each bound, and whether scores are graded, which needs more answers than 0/1 scores."""
    try:
        return [limits(bound, False) for bound in bounds], False
    except ValueError:  # scores that are not 0 or 1
        pass
    try:
        return [limits(bound, True) for bound in bounds], True
    except ValueError as error:
        raise NoAuditError(str(error)) from error


def limits_within(members: NDArray[np.bool_], limits: LimitsOf, bound: Bound, graded: bool) -> list[Limit]:
    """Turns limits for a subset of the samples, such as a category, into limits for all samples; the others need no answer.

    ``members`` says for each sample whether it is in that part; ``limits`` gives limits about the part alone.
    """
    padded = []
    for limit in limits(bound, graded):
        reference, member = np.zeros(members.size), np.zeros(members.size, bool)
        reference[members], member[members] = limit.reference, limit.member
        padded.append(dataclasses.replace(limit, reference=reference, member=member))
    return padded


def _drop(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    return [max_drop(clean, _only_max(bound), graded=graded)]


def _accuracy(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    if math.isfinite(bound.high):
        raise ValueError("no limit from above")
    return [min_accuracy(clean, bound.low, graded=graded)]


def _harmful_flips(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    return [max_harmful_flip_rate(clean, _only_max(bound), graded=graded)]


def _share_of_gain(clean: Scores, blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    return [max_relative_corruption_error(clean, blind, _only_max(bound), graded=graded)]


def _patch_index(clean: Scores, _blind: Scores, bound: Bound, graded: bool) -> list[Limit]:
    if not clean.sum() > 0:
        raise ValueError("the index is undefined: no answer about a whole image is right")
    limits = []
    if math.isfinite(bound.low):
        limits.append(min_relative_drop(clean, bound.low, graded=graded))
    if math.isfinite(bound.high):
        limits.append(max_relative_drop(clean, bound.high, graded=graded))
    return limits


def _severe(clean: Scores, _blind: Scores, _bound: Bound, graded: bool) -> list[Limit]:
    if not clean.sum() > 0:
        raise ValueError("the share of severe settings is undefined: no clean answer is right")
    return [max_relative_drop(clean, SEVERE, graded=graded)]


def _catastrophic(clean: Scores, _blind: Scores, _bound: Bound, graded: bool) -> list[Limit]:
    return [max_drop(clean, CATASTROPHIC, graded=graded)]


def _not_benign(clean: Scores, _blind: Scores, _bound: Bound, graded: bool) -> list[Limit]:
    return [max_drop(clean, BENIGN - 2 * ROUNDING, graded=graded)]  # which a drop of just 1 pp is not


def allowed_breaches(metric: str, bound: Bound, cells: int) -> int:
    """Returns how many cells may break their limit within a bound: 0 for the largest drop, more for a share of cells."""
    if metric not in SHARES:
        return 0
    bad = metrics.get(metric).better == "lower"
    counts = [count for count in range(cells + 1) if bound.admits(count / cells if bad else 1.0 - count / cells)]
    if not counts or counts != list(range(len(counts))) or len(counts) > cells:
        raise NoAuditError(f"{metric} {bound.condition}: no audit of {cells} settings decides it")
    return counts[-1]


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
"""The cell metrics that have an audit, and the limits on sums of scores for their bounds."""
EVERY_CELL = ("worst_case_drop", "worst_at_low")
"""Summary metrics that keep a bound if every cell keeps it."""
SHARES = {"severe_failure_rate": _severe, "catastrophic_rate": _catastrophic, "benign_at_low": _not_benign}
"""Summary metrics that are shares of cells, and the limit of a cell that counts as bad."""
MEANS = {
    "mean_drop": _drop,
    "mean_drop_at_low": _drop,
    "mean_harmful_flip_rate": _harmful_flips,
    "identity_drop": _drop,
    "resolution_accuracy": _accuracy,
}
"""Summary metrics that are means over settings and samples; ``identity_drop`` only if the model can do the task."""
OF_RUNGS = ("resolution_accuracy",)
"""Metrics over rungs, whose images must differ."""
LOW_ONLY = ("worst_at_low", "mean_drop_at_low", "benign_at_low")
"""Metrics over settings at level low."""
