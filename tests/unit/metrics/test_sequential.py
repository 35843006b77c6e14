from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.metrics import sequential
from pytest_vlmrobust.metrics.sequential import PRIOR_WORST, STAKES, Audit, Limit, pair_order, prior_weights

Array = NDArray[np.float64]

# Limits, against their definitions in exact fractions.


Holds = Callable[[int, int, int, int, Fraction], bool]
percents = st.integers(-20, 130).map(lambda value: f"{value / 100:.2f}")
clean_runs = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)
# (right when clean, right without images, samples, sum lost, bound) -> passes
DEFINITIONS: dict[str, Holds] = {
    "drop": lambda c, _, n, s, t: Fraction(c, n) - Fraction(c - s, n) <= t,
    "relative": lambda c, _, n, s, t: Fraction(c, n) - Fraction(c - s, n) <= t * Fraction(c, n),
    "rce": lambda c, i, _, s, t: Fraction(s) <= t * (c - i),
    "accuracy": lambda c, _, n, s, t: Fraction(c - s, n) >= t,
}


def _limit(gate: str, clean: Array, blind: Array, bound: float) -> Limit:
    if gate == "rce":
        return sequential.max_relative_corruption_error(clean, blind, bound)
    gates: dict[str, Callable[[Array, float], Limit]] = {
        "drop": sequential.max_drop,
        "relative": sequential.max_relative_drop,
        "accuracy": sequential.min_accuracy,
    }
    return gates[gate](clean, bound)


@pytest.mark.parametrize("gate", DEFINITIONS)
@given(clean=clean_runs, bound=percents, blind_right=st.integers(0, 60))
def test_limit_is_the_largest_sum_that_passes(gate: str, clean: list[float], bound: str, blind_right: int) -> None:
    before = np.array(clean)
    right, size = int(before.sum()), len(clean)
    blind = np.zeros(size)
    blind[: min(blind_right, right - 1)] = 1.0
    if gate == "rce" and right <= int(blind.sum()):
        return
    limit = _limit(gate, before, blind, float(bound))
    passing = [s for s in range(-size, size + 1) if DEFINITIONS[gate](right, int(blind.sum()), size, s, Fraction(bound))]
    assert min(max(limit.most, -size - 1), size) == max(passing, default=-size - 1)
    assert limit.step == 1.0


@given(clean=clean_runs, bound=percents)
def test_limit_of_flips_counts_samples_right_when_clean(clean: list[float], bound: str) -> None:
    limit = sequential.max_harmful_flip_rate(clean, float(bound))
    size = len(clean)
    passing = [flips for flips in range(size + 1) if Fraction(flips, size) <= Fraction(bound)]
    assert min(max(limit.most, -1), size) == max(passing, default=-1)
    assert limit.member.tolist() == [score == 1.0 for score in clean]
    assert limit.size == sum(clean)


def test_limit_of_a_product_that_is_an_integer_on_paper_is_that_integer() -> None:
    for bound, size, most in ((0.07, 100, 7), (0.29, 100, 29), (0.1, 30, 3), (0.57, 100, 57), (0.05, 869, 43), (1.1, 10, 11)):
        assert sequential.max_drop(np.ones(size), bound).most == most


def test_limit_of_graded_sums_lets_rounding_pass() -> None:
    """Three times 0.9 - 0.6 exceeds three times 0.3 by rounding alone."""
    limit = sequential.max_drop([0.9, 0.9, 0.9], 0.3, graded=True)
    assert limit.step == 0.0
    assert 0.3 * 3 < float(sum([0.9 - 0.6] * 3)) <= limit.most < 0.9 + 1e-8


def test_limit_of_a_model_without_right_answers_is_zero() -> None:
    assert sequential.max_relative_drop([0, 0, 0], 0.1).most == 0


@pytest.mark.cases(
    ("call", "message"),
    [
        (lambda: sequential.max_drop([1, math.nan], 0.1), "clean[1] is missing: a sequential gate needs this run complete"),
        (lambda: sequential.max_drop([1, 0.5], 0.1), "clean[1] is 0.5: expected 0 or 1. Graded scores need graded=True"),
        (lambda: sequential.max_harmful_flip_rate([0.5], 0.1, graded=True), "clean[0] is 0.5: expected 0 or 1"),
        (lambda: sequential.max_drop([], 0.1), "clean: there are no samples"),
        (lambda: sequential.max_drop([1], math.nan), "most is nan: a gate needs a finite bound"),
        (lambda: sequential.min_accuracy([1], math.inf), "least is inf: a gate needs a finite bound"),
        (lambda: sequential.max_relative_corruption_error([1, 1], [0], 0.1), "clean has 2 scores and no_image has 1"),
        (lambda: sequential.max_relative_corruption_error([1, 0, 0], [1, 1, 0], 0.5), "so there is no visual gain"),
    ],
)
def test_limit_that_cannot_be_judged_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


# Audits, against the definition: slowly in floats, and in exact fractions over every order.


@dataclasses.dataclass(frozen=True)
class Case:
    """One cell: its limit, its order, and all its answers by sample."""

    limit: Limit
    order: list[int]
    answers: Array

    def passes(self) -> bool:
        scored = 1.0 - self.answers if self.limit.complement else self.answers
        return float((self.limit.reference - scored)[self.limit.member].sum()) <= self.limit.most


@st.composite
def cases(draw: st.DrawFn, *, missing: bool = False, graded: bool = False, most: int = 30) -> Case:
    size = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    clean = (rng.random(size) < draw(st.sampled_from([0.0, 0.4, 0.9, 1.0]))).astype(float)
    answers = np.where(rng.random(size) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), 1.0 - clean, clean)
    if graded:
        clean, answers = np.round(0.8 * clean + 0.2 * rng.random(size), 3), np.round(answers * rng.random(size), 3)
    if missing:
        answers[rng.random(size) < 0.2] = math.nan
    bound = draw(st.sampled_from([-0.05, 0.0, 0.05, 0.1, 0.3]))
    gates: list[Callable[..., Limit]] = [sequential.max_drop, sequential.max_relative_drop, sequential.min_relative_drop]
    gate = draw(st.sampled_from(gates if graded else [*gates, sequential.max_harmful_flip_rate]))
    return Case(gate(clean, bound, graded=graded), rng.permutation(size).tolist(), answers)


def evidence(
    limit: Limit, order: Sequence[int], answers: Sequence[float] | Array, count: int | None = None
) -> tuple[float, float]:
    """Returns the logarithms of both e-values after the first answers."""
    audit = Audit([limit], order)
    audit.advance(0, np.array(answers, dtype=float)[audit.upcoming(len(order) if count is None else count)])
    passes, fails = audit.evidence()[:, 0, 0].tolist()
    return passes, fails


def oracle(case: Case) -> tuple[float, float]:
    """Returns both after all answers, one answer and one stake at a time; infinite where the answers to come change nothing."""
    limit = case.limit
    queue = [sample for sample in case.order if limit.member[sample]]
    reference = [float(limit.reference[sample]) for sample in queue]
    logs = [[0.0] * len(STAKES), [0.0] * len(STAKES)]
    most_lost = least_lost = right = wrong = harmful = helpful = 0.0
    for drawn, sample in enumerate(queue):
        known, answer = reference[drawn], float(case.answers[sample])
        answer = 1.0 - answer if limit.complement else answer
        as_wrong, as_right = (0.0, 1.0) if math.isnan(answer) else (answer, answer)
        left = len(reference) - drawn
        expected = sum(reference[drawn:]) / left
        slope = (harmful + 0.5) / (right + 10.0) + (helpful + 0.5) / (wrong + 20.0)
        pass_mean, fail_mean = (limit.most + limit.step - most_lost) / left, (limit.most - least_lost) / left
        edges = [end - slope * (end - expected) for end in (min(reference), max(reference))]
        adjusted = known - slope * (known - expected)
        for index, stake in enumerate(STAKES):
            bets = (
                -stake / max(max(edges) - pass_mean, 1e-9) * (adjusted - as_wrong - pass_mean),
                stake / max(fail_mean - (min(edges) - 1.0), 1e-9) * (adjusted - as_right - fail_mean),
            )
            for side, bet in enumerate(bets):
                logs[side][index] += math.log1p(max(bet, -1.0 + 1e-12))
        most_lost, least_lost = most_lost + known - as_wrong, least_lost + known - as_right
        right, wrong = right + known, wrong + 1.0 - known
        if not math.isnan(answer):
            harmful, helpful = harmful + max(known - answer, 0.0), helpful + max(answer - known, 0.0)
    # all answers are there: what remains open is what missing ones could still change
    if most_lost <= limit.most:
        return math.inf, -math.inf
    if least_lost > limit.most:
        return -math.inf, math.inf
    pass_log, fail_log = (max(side) + math.log(sum(math.exp(log - max(side)) for log in side) / len(side)) for side in logs)
    return pass_log, fail_log


@pytest.mark.parametrize("graded", [False, True])
@given(data=st.data())
def test_audit_agrees_with_a_slow_oracle(graded: bool, data: st.DataObject) -> None:
    case = data.draw(cases(graded=graded, missing=True))
    # where a claim is impossible the capital explodes with a rate that rounding decides: both are then beyond any risk
    assert evidence(case.limit, case.order, case.answers) == pytest.approx(oracle(case), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("graded", [False, True])
@given(data=st.data())
def test_audit_has_the_same_bits_however_answers_are_split(graded: bool, data: st.DataObject) -> None:
    """Cells and limits together, in batches of any size, give the bits of each alone in one go."""
    case = data.draw(cases(graded=graded, missing=True, most=150))
    looser = dataclasses.replace(case.limit, most=case.limit.most + 2)
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    cells = [case.answers, rng.permutation(case.answers)]
    together = Audit([case.limit, looser], case.order, 2)
    while min(together.n_asked) < len(case.order):
        cell = int(rng.integers(2))
        together.advance(cell, cells[cell][together.upcoming(together.n_asked[cell] + int(rng.integers(1, 50)), cell)])
    for cell, answers in enumerate(cells):
        for number, limit in enumerate((case.limit, looser)):
            assert tuple(together.evidence()[:, cell, number]) == evidence(limit, case.order, answers)


@pytest.mark.parametrize("graded", [False, True])
@given(data=st.data())
def test_audit_of_all_answers_is_certain_of_their_verdict(graded: bool, data: st.DataObject) -> None:
    case = data.draw(cases(graded=graded))
    assert evidence(case.limit, case.order, case.answers) == ((math.inf, -math.inf) if case.passes() else (-math.inf, math.inf))


@given(data=st.data(), tighter=st.integers(1, 5))
def test_audit_of_a_tighter_bound_has_less_evidence_for_it(data: st.DataObject, tighter: int) -> None:
    case = data.draw(cases(missing=True))
    count = data.draw(st.integers(0, len(case.order)))
    strict_limit = dataclasses.replace(case.limit, most=case.limit.most - tighter)
    loose, strict = (evidence(limit, case.order, case.answers, count) for limit in (case.limit, strict_limit))
    assert strict[0] <= loose[0] + 1e-9
    assert strict[1] >= loose[1] - 1e-9


@settings(max_examples=150)
@given(data=st.data(), graded=st.booleans())
def test_audit_is_certain_of_what_holds_for_every_completion(data: st.DataObject, graded: bool) -> None:
    size = data.draw(st.integers(1, 5 if graded else 7))
    grades = st.sampled_from([0.0, 0.3, 0.9, 1.0] if graded else [0.0, 1.0])
    clean = np.array(data.draw(st.lists(grades, min_size=size, max_size=size)))
    seen = data.draw(st.lists(grades | st.just(math.nan), max_size=size))
    limit = Limit(
        clean, np.ones(size, dtype=np.bool_), data.draw(st.integers(-size - 1, size + 1)) + 1e-9, 0.0 if graded else 1.0
    )
    known = [*seen, *[math.nan] * (size - len(seen))]
    completions = list(product(*([0.0, 1.0] if math.isnan(score) else [score] for score in known)))
    passes = [float((clean - np.array(answers)).sum()) <= limit.most for answers in completions]
    logs = evidence(limit, range(size), known, len(seen))
    assert (logs[0] == math.inf) == all(passes)
    assert (logs[1] == math.inf) == (not any(passes))


def test_audit_of_missing_answers_decides_nothing() -> None:
    logs = evidence(sequential.max_drop(np.ones(200), 0.05), range(200), [math.nan] * 200)
    assert max(logs) < math.log(20)


def test_audit_of_clear_cases_is_decided_early() -> None:
    """No answer changes: 88 % of 869 clean answers, 5 points allowed. Or a third is lost."""
    rng = np.random.default_rng(5)
    clean = (rng.random(869) < 0.88).astype(float)
    lossy = np.where(rng.random(869) < 0.33, 0.0, clean)
    limit, order = sequential.max_drop(clean, 0.05), rng.permutation(869).tolist()
    kept = [count for count in range(0, 869, 4) if evidence(limit, order, clean, count)[0] > math.log(20)]
    broken = [count for count in range(0, 869, 4) if evidence(limit, order, lossy, count)[1] > math.log(20)]
    assert 50 < kept[0] < 150
    assert broken[0] < 60


def test_audit_asks_samples_that_do_not_count_for_nothing() -> None:
    limit = sequential.max_harmful_flip_rate([1, 0, 1, 0, 1], 0.4)
    order = [1, 4, 3, 0, 2]
    assert evidence(limit, order, [1.0, 0.0, 1.0, 0.0, 1.0]) == evidence(limit, order, [1.0, 1.0, 1.0, 1.0, 1.0])
    assert evidence(sequential.max_harmful_flip_rate([0, 0], 0.0), [0, 1], [], 0) == (math.inf, -math.inf)


Pair = tuple[int, int]  # clean score, answer
EXACT_STAKES = (Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
MIXED: list[Pair] = [(1, 0), (1, 0), (1, 1), (1, 1), (0, 1), (0, 0), (0, 0)]


def exact_e_values(pairs: Sequence[Pair], most: int) -> list[tuple[Fraction, Fraction]]:
    """Returns the e-values of the bets after each answer, in fractions, straight from the definition."""
    size, lost, right_left = len(pairs), 0, sum(clean for clean, _ in pairs)
    harmful = helpful = right = wrong = 0
    capital = [[Fraction(1)] * len(EXACT_STAKES), [Fraction(1)] * len(EXACT_STAKES)]
    values = []
    for drawn, (clean, answer) in enumerate(pairs):
        left = size - drawn
        expected = Fraction(right_left, left)
        slope = Fraction(2 * harmful + 1, 2 * (right + 10)) + Fraction(2 * helpful + 1, 2 * (wrong + 20))
        value = clean - answer - slope * (clean - expected)
        ceiling, floor = max(1 - slope * (1 - expected), slope * expected), min(-slope * (1 - expected), slope * expected - 1)
        pass_mean, fail_mean = Fraction(most + 1 - lost, left), Fraction(most - lost, left)
        for index, stake in enumerate(EXACT_STAKES):
            capital[0][index] *= 1 - stake / max(ceiling - pass_mean, Fraction(1, 10**9)) * (value - pass_mean)
            capital[1][index] *= 1 + stake / max(fail_mean - floor, Fraction(1, 10**9)) * (value - fail_mean)
        lost, right_left = lost + clean - answer, right_left - clean
        right, wrong = right + clean, wrong + 1 - clean
        harmful, helpful = harmful + (clean > answer), helpful + (clean < answer)
        values.append((sum(capital[0], Fraction(0)) / len(EXACT_STAKES), sum(capital[1], Fraction(0)) / len(EXACT_STAKES)))
    return values


def capital_of(orders: Sequence[Sequence[tuple[float, float]]], most: int) -> Array:
    """Returns the mean capital of the audit's stakes after each answer, shape (orders, N, 2): without what is certain."""
    values = []
    for pairs in np.array(orders, dtype=np.float64):
        everyone = np.ones(len(pairs), dtype=np.bool_)
        audit = Audit([Limit(pairs[:, 0], everyone, float(most), 1.0)], range(len(pairs)))
        for answer in pairs[:, 1]:
            audit.advance(0, [answer])
            values.append(np.exp(audit._capital[0, 0]).mean(axis=-1))
    return np.array(values).reshape(len(orders), -1, 2)


@pytest.fixture
def few_stakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "STAKES", np.array([float(stake) for stake in EXACT_STAKES]))


@pytest.mark.study
@pytest.mark.usefixtures("few_stakes")
@pytest.mark.parametrize("side", ["pass", "fail"])
def test_bets_are_valid_over_every_order(side: str) -> None:
    """An answer is lost on balance: with K = 0 every PASS is wrong, with K = 1 every FAIL."""
    orders = sorted(set(permutations(MIXED)))
    most, column = (0, 0) if side == "pass" else (1, 1)
    exact = [[step[column] for step in exact_e_values(order, most)] for order in orders]
    assert all(sum(step, Fraction(0)) == len(orders) for step in zip(*exact, strict=True))
    for inverse_risk in (2, 5, 10, 20):
        assert Fraction(sum(max(values) >= inverse_risk for values in exact), len(orders)) <= Fraction(1, inverse_risk)
    np.testing.assert_allclose(capital_of(orders, most)[:, :, column], np.array(exact, dtype=np.float64), rtol=1e-10)


@pytest.mark.usefixtures("few_stakes")
@pytest.mark.parametrize("most", [-1, 0, 1, 2])
def test_bets_are_those_of_the_definition(most: int) -> None:
    """On and off the threshold, also where a claim has become impossible."""
    orders = sorted(set(permutations(MIXED)))[::7]
    exact = [exact_e_values(order, most) for order in orders]
    np.testing.assert_allclose(capital_of(orders, most), np.array(exact, dtype=np.float64), rtol=1e-9)


@pytest.mark.study
@pytest.mark.usefixtures("few_stakes")
@pytest.mark.parametrize("side", ["pass", "fail"])
def test_bets_are_valid_with_missing_answers(side: str) -> None:
    """Missing ones wrong: 3 lost, and K = 2 must not pass. Missing ones right: 1 lost, and K = 1 must not fail."""
    population = [(1.0, 0.0), (1.0, math.nan), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, math.nan)]
    most, column = (2, 0) if side == "pass" else (1, 1)
    values = capital_of(list(permutations(population)), most)[:, :, column]
    np.testing.assert_allclose(values.mean(axis=0), 1.0, rtol=1e-10)
    assert np.mean(values.max(axis=1) >= 5.0) <= 0.2


@given(seed=st.integers(0, 10**6), bound=st.sampled_from([0.0, 0.05, 0.1, 0.2]))
def test_audits_of_all_answers_agree_with_metrics_of_sweeps(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    clean = (rng.random(40) < 0.8).astype(float)
    answers = np.where(rng.random((6, 40)) < rng.choice([0.0, 0.1, 0.2], size=(6, 1)), 1.0 - clean, clean)
    sweep = {f"fog{index}:low": row for index, row in enumerate(answers)}
    order = rng.permutation(40).tolist()
    audit = Audit([sequential.max_drop(clean, bound), sequential.max_relative_drop(clean, 0.1)], order, 6)
    for cell, scores in enumerate(answers):
        audit.advance(cell, scores[order])
    passed = audit.evidence()[0] == math.inf
    assert passed[:, 0].all() == (metrics.worst_case_drop(clean, sweep) <= bound + 1e-9)
    assert (~passed[:, 1]).mean() == pytest.approx(metrics.severe_failure_rate(clean, sweep))
    pairs = pair_order(list(sweep), list(map(str, range(40))))
    mean = evidence(sequential.max_drop(np.tile(clean, 6), bound / 2), pairs, answers.reshape(-1))
    assert (mean[0] == math.inf) == (metrics.mean_drop(clean, sweep) <= bound / 2 + 1e-9)


# The order of pairs, and which settings to ask first.


def pairs_in_order(names: Sequence[str], samples: Sequence[str]) -> list[tuple[str, str]]:
    return [(names[pair // len(samples)], samples[pair % len(samples)]) for pair in pair_order(names, samples)]


def test_pair_order_never_changes() -> None:
    assert pair_order(["fog:low"], "abcdefgh") == [0, 6, 3, 4, 7, 2, 5, 1]


def test_pair_order_draws_each_permutation_about_equally_often() -> None:
    drawn = [tuple(pair_order([str(number)], "abc")) for number in range(600)]
    assert sorted(set(drawn)) == sorted(permutations(range(3)))
    assert all(65 <= drawn.count(order) <= 135 for order in set(drawn))


def test_pair_order_names_all_settings_and_samples() -> None:
    pairs = pairs_in_order(["fog:low", "fog:high"], "abcde")
    assert sorted(pairs) == sorted(product(["fog:low", "fog:high"], "abcde"))
    assert [name for setting, name in pairs if setting == "fog:low"] != [name for setting, name in pairs if setting == "fog:high"]


def test_pair_order_ignores_places_and_what_else_is_asked() -> None:
    pairs = pairs_in_order(["fog:low", "fog:high"], "abcde")
    assert pairs_in_order(["fog:high", "fog:low"], "cebda") == pairs
    more = pairs_in_order(["rain:low", "fog:high", "fog:low"], "zecbda")
    assert [pair for pair in more if pair in pairs] == pairs


def test_prior_weights_put_half_on_the_worst() -> None:
    weights = prior_weights([*PRIOR_WORST, *(f"fog{index}:low" for index in range(125))])
    assert weights.sum() == pytest.approx(1.0)
    assert weights[:8] == pytest.approx(1 / 16 + 1 / 266)
    assert weights[8:] == pytest.approx(1 / 266)
    assert prior_weights(["fog:low", "fog:mid"]).tolist() == [0.5, 0.5]
