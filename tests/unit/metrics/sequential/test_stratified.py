"""The likelihood ratio against exact fractions, and its validity over every order: no simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.sequential import Audit, Limit, Order, stratified_order
from pytest_vlmrobust.metrics.sequential.stratified import Drawn, Strata, log_e_fail, log_e_pass

Array = NDArray[np.float64]

RIGHT, WRONG = 5, 4


def _falling(size: int, drawn: int) -> int:
    return math.prod(range(size, size - drawn, -1)) if drawn <= size else 0


def _likelihood(flips: int, drawn: int, total: int, size: int) -> Fraction:
    return Fraction(_falling(total, flips) * _falling(size - total, drawn - flips), _falling(size, drawn))


def _mixture(flips: int, drawn: int, a: Fraction, b: Fraction) -> Fraction:
    """Returns the chance of a sequence under a Beta(a, b) prior, one prediction after the other."""
    chance = Fraction(1)
    for seen in range(drawn):
        chance *= (a + seen) if seen < flips else (b + seen - flips)
        chance /= a + b + seen
    return chance


def _exact(k: int, a: int, j: int, b: int, most: int) -> tuple[float, float]:
    """Returns both e-values by trying every possible pair of totals."""
    numerator = _mixture(k, a, Fraction(7, 10), Fraction(7)) * _mixture(j, b, Fraction(7, 10), Fraction(14))
    null = {True: Fraction(0), False: Fraction(0)}
    for harmful, helpful in product(range(RIGHT + 1), range(WRONG + 1)):
        passes = harmful - helpful <= most
        null[passes] = max(null[passes], _likelihood(k, a, harmful, RIGHT) * _likelihood(j, b, helpful, WRONG))
    return tuple(float(numerator / null[side]) if null[side] else math.inf for side in (False, True))  # type: ignore[return-value]  # two sides


@pytest.mark.parametrize("most", range(-WRONG - 1, RIGHT + 2))
def test_the_null_is_searched_in_full(most: int) -> None:
    states = [(k, a, j, b) for a in range(RIGHT + 1) for k in range(a + 1) for b in range(WRONG + 1) for j in range(b + 1)]
    drawn = Drawn(*np.array(states, dtype=np.float64).T)
    size = len(states)
    strata = Strata(np.full(size, float(RIGHT)), np.full(size, float(WRONG)), np.full(size, float(most)))
    expected = np.array([_exact(*state, most) for state in states])
    np.testing.assert_allclose(np.exp(log_e_pass(drawn, strata)), expected[:, 0], rtol=1e-9)
    np.testing.assert_allclose(np.exp(log_e_fail(drawn, strata)), expected[:, 1], rtol=1e-9)


def _sequences(size: int, flips: int) -> list[tuple[int, ...]]:
    return [tuple(int(index in chosen) for index in range(size)) for chosen in combinations(range(size), flips)]


INTERLEAVINGS: dict[str, Sequence[int]] = {
    "right first": [1] * RIGHT + [0] * WRONG,
    "alternating": [1, 0, 1, 0, 1, 0, 1, 0, 1],
    "wrong first": [0] * WRONG + [1] * RIGHT,
}


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
@pytest.mark.parametrize("totals", list(product(range(RIGHT + 1), range(WRONG + 1))))
def test_exhaustive_validity(totals: tuple[int, int], interleaving: str) -> None:
    """Over all orders within the strata the evidence for the wrong verdict averages at most 1, and rarely reaches 1 / alpha."""
    strata_order = np.array(INTERLEAVINGS[interleaving], dtype=np.float64)
    size = RIGHT + WRONG
    flips = [
        np.where(strata_order == 1.0, _spread(right, strata_order), _spread(wrong, 1.0 - strata_order))
        for right, wrong in product(_sequences(RIGHT, totals[0]), _sequences(WRONG, totals[1]))
    ]
    answers = [np.abs(strata_order - one) for one in flips]
    for side, most in (("log_pass", totals[0] - totals[1] - 1), ("log_fail", totals[0] - totals[1])):
        limit = Limit(strata_order, np.ones(size, dtype=np.bool_), float(most), 1.0)
        audit = Audit([limit] * len(answers), [Order(np.arange(size), "stratified")] * len(answers), evidence="stratified")
        peak = np.zeros(len(answers))
        for sample in range(size):
            audit.advance(range(len(answers)), [sample] * len(answers), [one[sample] for one in answers])
            values = np.exp(getattr(audit.verdicts(), side))
            assert values.mean() <= 1.0 + 1e-9
            peak = np.maximum(peak, values)
        assert all(np.mean(peak >= inverse_risk) <= 1.0 / inverse_risk for inverse_risk in (1.5, 2.0, 4.0, 10.0))


def _spread(flips: Sequence[int], places: Array) -> Array:
    spread = np.zeros(places.size)
    spread[places == 1.0] = flips
    return spread


def test_infinite_evidence_is_certainty() -> None:
    clean = np.array([1.0] * RIGHT + [0.0] * WRONG)
    limit = Limit(clean, np.ones(9, dtype=np.bool_), 1.0, 1.0)
    audit = Audit([limit], [Order(np.arange(9), "stratified")], evidence="stratified")
    for sample in range(9):
        audit.advance([0], [sample], [clean[sample]])
        verdicts = audit.verdicts()
        assert math.isinf(verdicts.log_pass[0]) == bool(verdicts.certain_pass[0]) == (sample >= 3)


def test_strata_of_different_sizes_side_by_side() -> None:
    """Each cell of a batch has the evidence that it has alone."""
    limits = [Limit(np.r_[np.ones(n), np.zeros(12 - n)], np.ones(12, dtype=np.bool_), 2.0, 1.0) for n in (0, 4, 9, 12)]
    orders = [stratified_order(3, "m", "d", str(cell), limit.reference) for cell, limit in enumerate(limits)]
    answers = np.tile([1.0, 1.0, 0.0, 1.0], 3)
    together = Audit(limits, orders, evidence="stratified")
    cells, samples = together.upcoming(range(4), 7)
    together.advance(cells, samples, answers[samples])
    for cell, (limit, order) in enumerate(zip(limits, orders, strict=True)):
        alone = Audit([limit], [order], evidence="stratified")
        alone.advance([0] * 7, samples[cells == cell], answers[samples[cells == cell]])
        assert alone.verdicts().log_pass[0] == together.verdicts().log_pass[cell]
        assert alone.verdicts().log_fail[0] == together.verdicts().log_fail[cell]


def test_missing_answers_count_against_each_side() -> None:
    clean = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    limit = Limit(clean, np.ones(7, dtype=np.bool_), 1.0, 1.0)

    def logs(missing: float) -> tuple[float, float]:
        audit = Audit([limit], [Order(np.arange(7), "stratified")], evidence="stratified")
        audit.advance([0] * 6, range(6), [1.0, missing, 1.0, 0.0, missing, 0.0])
        return float(audit.verdicts().log_pass[0]), float(audit.verdicts().log_fail[0])

    assert logs(math.nan) == (logs(0.0)[0], logs(1.0)[1])
    assert logs(0.0)[0] < logs(1.0)[0]


def test_a_weak_model_passes_with_fewer_answers() -> None:
    """36 % right when clean and nothing lost: the strata decide earlier than the betting."""
    clean = np.array([1.0] * 190 + [0.0] * 342)
    limit = Limit(clean, np.ones(532, dtype=np.bool_), 26.0, 1.0)
    used = []
    for evidence in ("betting", "stratified"):
        order = Order(np.random.default_rng(2).permutation(532), "uniform")
        order = stratified_order(2, "m", "d", "s", clean) if evidence == "stratified" else order
        audit = Audit([limit], [order], evidence=evidence)
        while audit.verdicts().undecided[0]:
            cells, samples = audit.upcoming([0], 4)
            audit.advance(cells, samples, clean[samples])
        used.append(int(audit.used[0]))
    assert used[1] < 0.75 * used[0]
