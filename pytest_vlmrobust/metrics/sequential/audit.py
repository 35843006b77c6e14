"""The sequential gate over many cells: advance them by answers in any batches, ask for verdicts at any time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.decision import Outcome

from .betting import GRID, Betting, Stratified
from .limits import Limit, contrast_of
from .order import Batch, Order, OrderProgress
from .tally import Counts, Draws, running_sums

# The question of a sequential gate, and the reason of its verdict.


class Target(StrEnum):
    """The question that a gate answers; questions are never mixed, and every report names theirs.

    ``EXACT`` and ``DATASET`` ask for the verdict that all N answers would give: without any risk, or at a declared risk whose
    only source is the seeded order. ``POPULATION`` asks about the distribution that the N samples were drawn from.
    """

    EXACT = "exact"
    DATASET = "dataset"
    POPULATION = "population"


class Reason(StrEnum):
    """What decided: the missing answers cannot change the verdict, or the evidence suffices at the declared risk."""

    CERTAIN = "certain"
    EVIDENCE = "e-value"
    UNDECIDED = "undecided"


# The verdicts of an audit on its cells, at one moment.


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Verdicts:
    """Verdicts of m cells at declared error rates; arrays have shape (m,).

    Each holds for its own cell: a gate over several cells has to divide its risk among them.
    """

    alpha_pass: float
    """Largest probability of passing a cell that would fail on all its answers."""
    alpha_fail: float
    """Largest probability of failing a cell that would pass on all its answers."""
    certain_pass: Flags
    """Where the answers still missing cannot prevent a PASS."""
    certain_fail: Flags
    log_pass: Array
    """Natural logarithm of the e-value against "the gate fails"."""
    log_fail: Array
    """Natural logarithm of the e-value against "the gate passes"."""
    used: NDArray[np.intp]
    """How many answers were used, missing ones included."""
    sizes: NDArray[np.intp]
    """How many there are."""

    def __post_init__(self) -> None:
        for alpha in (self.alpha_pass, self.alpha_fail):
            needed_log(alpha)

    @property
    def passed(self) -> Flags:
        """Where the verdict is PASS; contradictory evidence decides nothing."""
        return self.certain_pass | (self._open & self._enough_to_pass & ~self._enough_to_fail)

    @property
    def failed(self) -> Flags:
        """Where the verdict is FAIL; contradictory evidence decides nothing."""
        return self.certain_fail | (self._open & self._enough_to_fail & ~self._enough_to_pass)

    @property
    def undecided(self) -> Flags:
        """Where there is no verdict yet, or no verdict even after the last answer."""
        return ~(self.passed | self.failed)

    @property
    def exhausted(self) -> Flags:
        """Where every sample was used."""
        return self.used >= self.sizes

    @property
    def log10_pass(self) -> Array:
        """Decimal logarithm of the e-value against "the gate fails"; 1.3 suffices for a risk of 5 %."""
        return self.log_pass / math.log(10.0)

    @property
    def log10_fail(self) -> Array:
        """Decimal logarithm of the e-value against "the gate passes"."""
        return self.log_fail / math.log(10.0)

    @property
    def sure_log_pass(self) -> Array:
        """``log_pass``, infinite where PASS is certain, and negatively so where FAIL is."""
        return np.where(self.certain_pass, np.inf, np.where(self.certain_fail, -np.inf, self.log_pass))

    @property
    def sure_log_fail(self) -> Array:
        """``log_fail``, infinite where FAIL is certain, and negatively so where PASS is."""
        return np.where(self.certain_fail, np.inf, np.where(self.certain_pass, -np.inf, self.log_fail))

    def outcome(self, cell: int) -> Outcome:
        """Returns PASS, FAIL or INCONCLUSIVE."""
        return outcome(passed=bool(self.passed[cell]), failed=bool(self.failed[cell]))

    def reason(self, cell: int) -> Reason:
        """Returns what decided."""
        if self.certain_pass[cell] or self.certain_fail[cell]:
            return Reason.CERTAIN
        return Reason.UNDECIDED if self.undecided[cell] else Reason.EVIDENCE

    @property
    def _open(self) -> Flags:
        return ~(self.certain_pass | self.certain_fail)

    @property
    def _enough_to_pass(self) -> Flags:
        return self.log_pass >= needed_log(self.alpha_pass)

    @property
    def _enough_to_fail(self) -> Flags:
        return self.log_fail >= needed_log(self.alpha_fail)


def outcome(*, passed: bool, failed: bool) -> Outcome:
    """Returns PASS, FAIL, or INCONCLUSIVE where neither or both hold."""
    if passed == failed:
        return Outcome.INCONCLUSIVE
    return Outcome.PASS if passed else Outcome.FAIL


def needed_log(alpha: float) -> float:
    """Returns the logarithm of the e-value that suffices at the error rate ``alpha``: 1 / alpha, by Ville's inequality.

    Raises:
        ValueError: an error rate outside (0, 1).
    """
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"the error rate is {alpha!r}: expected a number between 0 and 1, such as 0.05")
    return -math.log(alpha)


# Exact curtailment: the verdict of all N answers, as soon as the remaining ones cannot change it.


def curtail(
    sum_most: ArrayLike, sum_least: ArrayLike, right_left: ArrayLike, wrong_left: ArrayLike, most: ArrayLike
) -> tuple[Flags, Flags]:
    """Returns where PASS is certain, and where FAIL is; elsewhere the remaining samples can still decide.

    This needs no statistics: a remaining sample adds at most its reference (a wrong answer) and at least its reference - 1 (a
    right answer). With complete answers every cell is decided; with missing answers a cell may stay undecided, and its verdict is
    then unknown, not a pass.

    Args:
        sum_most: sums of reference - outcome so far with missing answers as wrong, any shape; all arguments broadcast.
        sum_least: the same with missing answers as right.
        right_left: sums of the references still to come.
        wrong_left: sums of 1 - reference still to come.
        most: largest sums that pass (K).

    Returns:
        ``(certain_pass, certain_fail)``, never both true.

    Source: curtailed sampling, applied to paired answers whose clean half is known.

    >>> curtail([2, 2, 6], [2, 2, 6], [3, 4, 1], [0, 0, 0], 5)
    (array([ True, False, False]), array([False, False,  True]))
    """
    passes = np.asarray(sum_most) + np.asarray(right_left) <= np.asarray(most)
    fails = np.asarray(sum_least) - np.asarray(wrong_left) > np.asarray(most)
    return np.asarray(passes), np.asarray(fails)


Array = NDArray[np.float64]
Indices = NDArray[np.intp]
EvidenceName = Literal["betting", "stratified"]

_WIDTH = 64  # answers of each cell at a time: what fits a processor cache


class EValues(Protocol):
    """How draws turn into e-values."""

    def absorb(self, draws: Draws) -> None:
        """Takes a batch of draws into account."""
        ...

    def logs(self, counts: Counts) -> tuple[Array, Array]:
        """Returns the natural logarithms of the e-values for PASS and for FAIL, shape (cells,) each."""
        ...


class NoEvidence:
    """No evidence, for exact verdicts."""

    def absorb(self, draws: Draws) -> None:
        """Does nothing."""

    def logs(self, counts: Counts) -> tuple[Array, Array]:
        """Returns zeros: e-values of 1."""
        return np.zeros(counts.right.shape), np.zeros(counts.right.shape)


class Audit:
    """Whether each of m cells passes its gate, from as few answers as the declared risk allows.

    The verdict that all N answers would give is audited like an election: the clean run plays the machine count, perturbed
    answers are the ballots drawn by hand. However often the audit is asked, the probability of ever seeing a wrong PASS is at
    most ``alpha_pass``, and of ever seeing a wrong FAIL at most ``alpha_fail``. Such a verdict says nothing about other samples,
    and after an early stop the observed drop is biased: never store it as a baseline.

    A missing answer (NaN: the inference failed or ran out of time, and will not be tried again) is never dropped. It counts as
    wrong wherever evidence for PASS is weighed and as right wherever evidence for FAIL is, so a verdict holds whatever the answer
    would have been. A cell whose missing answers matter stays undecided to the end.

    Source: gate as a risk-limiting audit: P. Stark, SHANGRLA (2020); I. Waudby-Smith, P. Stark and A. Ramdas, RiLACS (2021).
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        orders: Sequence[Order],
        *,
        target: Target | str = Target.DATASET,
        evidence: EvidenceName = "betting",
        grid: Sequence[float] = GRID,
        control: bool = True,
        labels: Sequence[str] = (),
    ) -> None:
        """Prepares cells without answers: only their references are known.

        Args:
            limits: one for each cell.
            orders: one for each cell, over all samples of its limit; those that do not count are skipped.
            target: the question. ``EXACT`` uses certainty only; ``POPULATION`` uses evidence only, and treats the samples as
                drawn from a distribution.
            evidence: ``betting``, or ``stratified`` for models below about 60 % clean accuracy that are expected to pass.
            grid: stakes of the betting.
            control: whether the bets use the clean answers still to come (not for ``POPULATION``).
            labels: names of the cells, for messages.

        Raises:
            ValueError: no cells, unequal lengths, an order that lacks the randomness that the evidence rests on, or a
                combination that is not offered.
        """
        self.target = Target(target)
        self.limits = tuple(limits)
        self._require_match(orders, labels)
        self._require_randomness(orders, evidence)
        drawn = [order.samples[limit.member[order.samples]] for limit, order in zip(limits, orders, strict=True)]
        self._progress = OrderProgress(drawn, labels)
        pairs = list(zip(limits, drawn, strict=True))
        self._reference = np.concatenate([limit.reference[order] for limit, order in pairs])
        self._offset = np.concatenate([self._offsets(limit)[order] for limit, order in pairs])
        self._right_total = np.array([limit.reference[limit.member].sum() for limit in limits])
        self._most = np.array([limit.most for limit in limits])
        self._whole = np.array([limit.step == 1.0 for limit in limits])
        self._complement = np.array([limit.complement for limit in limits])
        self._sums = np.zeros((len(Counts._fields), len(limits)))
        self._evidence = self._make_evidence(evidence, grid, control)

    @property
    def counts(self) -> Counts:
        """Sums over the answers so far, shape (m,); of a complemented limit, those of 1 - score."""
        return Counts(*self._sums.copy())

    @property
    def used(self) -> Indices:
        """How many answers each cell has used, shape (m,)."""
        return self._progress.used.copy()

    @property
    def sizes(self) -> Indices:
        """How many samples each cell has, shape (m,); those that do not count are left out."""
        return self._progress.sizes.copy()

    def upcoming(self, cells: ArrayLike, count: int) -> tuple[Indices, Indices]:
        """Returns the next ``count`` samples of each cell, fewer where its order ends.

        Args:
            cells: cell indices, each at most once.
            count: how many samples of each.

        Returns:
            ``(cells, samples)``, one entry for each answer needed, ready for :meth:`advance`.

        Raises:
            ValueError: an unknown or repeated cell.
        """
        return self._progress.upcoming(cells, count)

    def advance(self, cells: ArrayLike, samples: ArrayLike, outcomes: ArrayLike) -> None:
        """Takes answers into account; either all of them or, after an error, none.

        Args:
            cells: cell of each answer, shape (n,).
            samples: its sample, shape (n,); those of a cell must be the next ones of its order, in that order.
            outcomes: its score in [0, 1], shape (n,); NaN where the answer is missing for good.

        Raises:
            ValueError: a sample that was advanced already or is not the next one, a score that cannot be, an unknown cell, or
                unequal lengths.
        """
        batch = self._progress.batch(cells, samples, outcomes)
        self._require_scores(batch)
        for part in batch.parts(_WIDTH):
            self._absorb(part)

    def verdicts(self, alpha_pass: float = 0.05, alpha_fail: float = 0.05) -> Verdicts:
        """Returns the verdict on each cell from the answers so far, at the declared error rates.

        A decided cell needs no more answers. With more answers its verdict may become undecided again; after the last answer it
        is the verdict of all N.

        Args:
            alpha_pass: probability in (0, 1) of ever passing a cell that should fail, at most.
            alpha_fail: probability in (0, 1) of ever failing a cell that should pass, at most.

        Raises:
            ValueError: an error rate outside (0, 1).
        """
        counts = self.counts
        log_pass, log_fail = self._evidence.logs(counts)
        return Verdicts(alpha_pass, alpha_fail, *self._certain(counts), log_pass, log_fail, self.used, self.sizes)

    def _certain(self, counts: Counts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        if self.target is Target.POPULATION:
            nowhere = np.zeros(self._most.shape, dtype=np.bool_)
            return nowhere, nowhere
        right_left = self._right_total - counts.right
        wrong_left = self._progress.sizes - self._right_total - counts.wrong
        return curtail(counts.sum_most, counts.sum_least, right_left, wrong_left, self._most)

    def _absorb(self, batch: Batch) -> None:
        rows = batch.rows
        places, left = self._progress.places(batch)
        outcomes = np.where(self._complement[rows, None], 1.0 - batch.outcomes, batch.outcomes)
        sums = running_sums(self._sums[:, rows], self._reference[places], outcomes, batch.filled)
        before = Counts(*sums[:, :, :-1])
        right_left = self._right_total[rows, None] - before.right
        self._evidence.absorb(
            Draws(rows, before, self._offset[places], outcomes, batch.filled, left.astype(np.float64), right_left)
        )
        self._sums[:, rows] = sums[:, :, -1]
        self._progress.used[rows] += batch.filled.sum(axis=1)

    def _offsets(self, limit: Limit) -> Array:
        return contrast_of(limit).offset if self.target is Target.POPULATION else limit.reference

    def _make_evidence(self, evidence: EvidenceName, grid: Sequence[float], control: bool) -> EValues:
        if self.target is Target.EXACT:
            return NoEvidence()
        if evidence == "stratified":
            return Stratified(self.limits)
        return Betting(self.limits, population=self.target is Target.POPULATION, control=control, grid=grid)

    def _require_match(self, orders: Sequence[Order], labels: Sequence[str]) -> None:
        if not self.limits or len(self.limits) != len(orders) or (labels and len(labels) != len(orders)):
            raise ValueError(
                f"{len(self.limits)} limits, {len(orders)} orders and {len(labels)} labels: expected one of each for every cell, "
                "and at least one cell"
            )
        for cell, (limit, order) in enumerate(zip(self.limits, orders, strict=True)):
            if limit.member.size != order.samples.size:
                raise ValueError(
                    f"cell {cell}: the limit is about {limit.member.size} samples, its order about {order.samples.size}"
                )

    def _require_randomness(self, orders: Sequence[Order], evidence: EvidenceName) -> None:
        if evidence == "stratified" and self.target is Target.POPULATION:
            raise ValueError("stratified evidence is about the samples at hand: use target 'dataset', or the betting evidence")
        allowed = {"uniform", "stratified"} if evidence == "stratified" else {"uniform"}
        if self.target is Target.EXACT:
            allowed = {"uniform", "stratified", "fixed"}
        for cell, order in enumerate(orders):
            if order.scheme not in allowed:
                raise ValueError(
                    f"cell {cell}: {evidence} evidence needs an order that is {' or '.join(sorted(allowed))}, "
                    f"found a {order.scheme} one: without that randomness the declared risk does not hold. "
                    "Only target 'exact' may use any order"
                )

    def _require_scores(self, batch: Batch) -> None:
        """Refuses a value outside [0, 1], and one between 0 and 1 where scores are 0 or 1."""
        values, whole = batch.outcomes, self._whole[batch.rows, None]
        wrong = (values < 0.0) | (values > 1.0) | (whole & (values > 0.0) & (values < 1.0))
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            expected = "0, 1 or NaN (its limit is not graded)" if whole[row, 0] else "a number in [0, 1], or NaN"
            raise ValueError(
                f"{self._progress.name(int(batch.rows[row]))}: an outcome is {float(values[row, column])!r}, expected {expected}"
            )
