"""The betting evidence against exact arithmetic: published-style sequence, exhaustive validity over all orders, no simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.sequential import Audit, Contrast, Limit, Order, stratified_order
from pytest_vlmrobust.metrics.sequential.betting import Drawn, Strata, log_e_fail, log_e_pass

Array = NDArray[np.float64]
Pair = tuple[int, int]  # clean score, outcome

GRID = (0.1, 0.5, 0.9)
EXACT_GRID = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
NARROWEST = Fraction(1, 10**9)

# differences 0,0,1,0,0,0,-1,0,0,0 with N = 40, K = 4: ten digits, from exact fractions
SEQUENCE = (
    "1.0714285714 1.1524509804 .5430602241 .5630681182 .5849969777 .6091206963 .8622375607 .9223982796 .9913745145 1.0709806236",
    ".9545454545 .9110500352 1.2646561965 1.2133005472 1.1635284751 1.1153142723 .5395658935 .5221610629 .5052592578 .4888453610",
)


def exact_e_values(pairs: Sequence[Pair], most: int, *, control: bool) -> list[tuple[Fraction, Fraction]]:
    """Returns the e-values after each answer, in fractions, straight from the definition."""
    size, lost, right_left = len(pairs), 0, sum(clean for clean, _ in pairs)
    harmful = helpful = right = wrong = 0
    capital = [[Fraction(1)] * len(EXACT_GRID), [Fraction(1)] * len(EXACT_GRID)]
    values = []
    for drawn, (clean, outcome) in enumerate(pairs):
        left = size - drawn
        expected = Fraction(right_left, left)
        slope = (
            Fraction(2 * harmful + 1, 2 * (right + 10)) + Fraction(2 * helpful + 1, 2 * (wrong + 20)) if control else Fraction(0)
        )
        value = clean - outcome - slope * (clean - expected)
        ceiling = max(1 - slope * (1 - expected), slope * expected)
        floor = min(-slope * (1 - expected), slope * expected - 1)
        pass_mean, fail_mean = Fraction(most + 1 - lost, left), Fraction(most - lost, left)
        for index, stake in enumerate(EXACT_GRID):
            capital[0][index] *= 1 - stake / max(ceiling - pass_mean, NARROWEST) * (value - pass_mean)
            capital[1][index] *= 1 + stake / max(fail_mean - floor, NARROWEST) * (value - fail_mean)
        lost, right_left = lost + clean - outcome, right_left - clean
        right, wrong = right + clean, wrong + 1 - clean
        harmful, helpful = harmful + (clean > outcome), helpful + (clean < outcome)
        values.append((sum(capital[0], Fraction(0)) / len(EXACT_GRID), sum(capital[1], Fraction(0)) / len(EXACT_GRID)))
    return values


def engine_e_values(orders: Sequence[Sequence[tuple[float, float]]], most: int, *, control: bool) -> Array:
    """Returns the engine's e-values for each order and answer, shape (orders, N, 2)."""
    pairs = np.array(orders, dtype=np.float64)
    cells, size, _ = pairs.shape
    everyone = np.ones(size, dtype=np.bool_)
    limits = [Limit(one[:, 0], everyone, float(most), 1.0) for one in pairs]
    audit = Audit(limits, [Order(np.arange(size), "uniform")] * cells, grid=GRID, control=control)
    found = np.empty((cells, size, 2))
    for sample in range(size):
        audit.advance(range(cells), [sample] * cells, pairs[:, sample, 1])
        verdicts = audit.verdicts()
        found[:, sample] = np.exp(np.stack([verdicts.log_pass, verdicts.log_fail], axis=1))
    return found


def test_golden_sequence() -> None:
    differences = [0, 0, 1, 0, 0, 0, -1, 0, 0, 0]
    clean = np.array([0.0 if one < 0 else 1.0 for one in differences] + [1.0] * 30)
    limit = Limit(clean, np.ones(40, dtype=np.bool_), 4.0, 1.0)
    audit = Audit([limit], [Order(np.arange(40), "uniform")], grid=GRID, control=False)
    for sample, (difference, e_pass, e_fail) in enumerate(zip(differences, *(one.split() for one in SEQUENCE), strict=True)):
        audit.advance([0], [sample], [clean[sample] - difference])
        verdicts = audit.verdicts()
        assert 10 ** verdicts.log10_pass[0] == pytest.approx(float(e_pass), abs=6e-11)
        assert 10 ** verdicts.log10_fail[0] == pytest.approx(float(e_fail), abs=6e-11)


POPULATIONS: list[tuple[list[Pair], int, Fraction]] = [
    # two lost and one won of eight with K = 0, two lost with K = 1: both fail by one answer, without control variate
    ([(1, 0), (1, 0), (0, 1), *[(1, 1)] * 5], 0, Fraction(3, 56)),
    ([(1, 0), (1, 0), *[(1, 1)] * 6], 1, Fraction(1, 28)),
]


@pytest.mark.parametrize(("population", "most", "ever"), POPULATIONS)
def test_exhaustive_validity_without_control(population: list[Pair], most: int, ever: Fraction) -> None:
    """Over all orders the evidence for a wrong PASS averages exactly 1 after each answer, and rarely reaches 5."""
    orders = sorted(set(permutations(population)))
    exact = [[e_pass for e_pass, _ in exact_e_values(order, most, control=False)] for order in orders]
    assert all(sum(step, Fraction(0)) == len(orders) for step in zip(*exact, strict=True))
    assert Fraction(sum(max(one) >= 5 for one in exact), len(orders)) == ever <= Fraction(1, 5)
    found = engine_e_values(orders, most, control=False)[:, :, 0]
    np.testing.assert_allclose(found, np.array(exact, dtype=np.float64), rtol=1e-11)
    assert np.mean(found.max(axis=1) >= 5.0) == float(ever)


MIXED: list[Pair] = [(1, 0), (1, 0), (1, 1), (1, 1), (0, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("side", ["pass", "fail"])
def test_exhaustive_validity_on_both_sides_of_the_threshold(side: str, control: bool) -> None:
    """One answer is lost on balance: with K = 0 every PASS is wrong, with K = 1 every FAIL."""
    orders = sorted(set(permutations(MIXED)))
    most, column = (0, 0) if side == "pass" else (1, 1)
    exact = [[step[column] for step in exact_e_values(order, most, control=control)] for order in orders]
    assert all(sum(step, Fraction(0)) == len(orders) for step in zip(*exact, strict=True))
    for inverse_risk in (2, 5, 10, 20):
        assert Fraction(sum(max(one) >= inverse_risk for one in exact), len(orders)) <= Fraction(1, inverse_risk)
    found = engine_e_values(orders, most, control=control)[:, :, column]
    np.testing.assert_allclose(found, np.array(exact, dtype=np.float64), rtol=1e-10)


@pytest.mark.parametrize("most", [-1, 0, 1, 2])
def test_the_engine_is_the_definition(most: int) -> None:
    """On and off the threshold, also where a null has become impossible."""
    orders = sorted(set(permutations(MIXED)))[::7]
    exact = [exact_e_values(order, most, control=True) for order in orders]
    found = engine_e_values(orders, most, control=True)
    np.testing.assert_allclose(found, np.array(exact, dtype=np.float64), rtol=1e-9)


@pytest.mark.parametrize("side", ["pass", "fail"])
def test_exhaustive_validity_with_missing_answers(side: str) -> None:
    """Missing ones wrong: 3 lost, and K = 2 must not pass. Missing ones right: 1 lost, and K = 1 must not fail."""
    population = [(1.0, 0.0), (1.0, -1.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, -2.0)]
    most, column = (2, 0) if side == "pass" else (1, 1)
    orders = [[(clean, math.nan if outcome < 0.0 else outcome) for clean, outcome in one] for one in permutations(population)]
    found = engine_e_values(orders, most, control=True)[:, :, column]
    np.testing.assert_allclose(found.mean(axis=0), 1.0, rtol=1e-10)
    assert np.mean(found.max(axis=1) >= 5.0) <= 0.2


def test_a_distribution_on_the_bound_gives_no_evidence() -> None:
    """All 3^6 sequences of losses, gains and ties whose mean is the bound of 0.1, weighted by their probabilities."""
    chances = {1.0: 0.3, 0.0: 0.5, -1.0: 0.2}
    sequences = list(product(chances, repeat=6))
    weights = np.array([math.prod(chances[one] for one in sequence) for sequence in sequences])
    differences = np.array(sequences)
    clean = np.where(differences < 0.0, 0.0, 1.0)
    everyone = np.ones(6, dtype=np.bool_)
    limits = [Limit(one, everyone, 0.0, 1.0, contrast=Contrast(one, 0.1, 0.0, 1.0)) for one in clean]
    audit = Audit(limits, [Order(np.arange(6), "uniform")] * len(limits), target="population", grid=GRID)
    peak = np.zeros((2, len(limits)))
    for sample in range(6):
        audit.advance(range(len(limits)), [sample] * len(limits), (clean - differences)[:, sample])
        verdicts = audit.verdicts()
        values = np.exp(np.stack([verdicts.log_pass, verdicts.log_fail]))
        np.testing.assert_allclose(values @ weights, 1.0, rtol=1e-12)
        peak = np.maximum(peak, values)
    assert ((peak >= 4.0) @ weights <= 0.25).all()
    assert (peak >= 4.0).any()


@pytest.mark.parametrize("grid", [[], [0.0, 0.5], [1.0], [math.nan]])
def test_stakes_that_can_ruin_are_refused(grid: list[float]) -> None:
    limit = Limit(np.ones(2), np.ones(2, dtype=np.bool_), 1.0, 1.0)
    with pytest.raises(ValueError, match="expected at least one stake, each a fraction between 0 and 1"):
        Audit([limit], [Order(np.arange(2), "uniform")], grid=grid)


# The likelihood ratio against exact fractions, and its validity over every order: no simulation.


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
