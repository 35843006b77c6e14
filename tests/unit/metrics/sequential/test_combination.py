from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.metrics import paired_drop_interval, sequential
from pytest_vlmrobust.metrics.sequential import Audit, Limit, Order, Reason, Verdicts, look_sizes, look_verdicts
from pytest_vlmrobust.metrics.sequential.combination import BOUNDS, FRACTIONS

Array = NDArray[np.float64]

PASS, FAIL, OPEN = Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE


def verdicts(e_pass: list[float], e_fail: list[float], certain: str = "", alpha: float = 0.05) -> Verdicts:
    """Returns verdicts with these e-values; ``certain`` holds P, F or a dot for each cell."""
    marks = np.array(list(certain or "." * len(e_pass)))
    with np.errstate(divide="ignore"):
        logs = np.log(e_pass), np.log(e_fail)
    return Verdicts(alpha, alpha, marks == "P", marks == "F", *logs, np.full(len(marks), 5), np.full(len(marks), 9))


e_values = st.lists(st.sampled_from([0.01, 0.5, 1.0, 15.0, 25.0, 45.0, 80.0, 1e6]), min_size=4, max_size=4)


@given(e_pass=e_values, e_fail=e_values, allowed=st.integers(0, 5))
def test_count_gate_is_the_worst_choice_of_cells(e_pass: list[float], e_fail: list[float], allowed: int) -> None:
    """The least mean over every set of cells that could all be violators, or all not."""
    verdict = sequential.at_most(verdicts(e_pass, e_fail), allowed)
    if allowed >= 4:
        assert (verdict.outcome, verdict.reason) == (PASS, Reason.CERTAIN)
        return
    least_pass = min(float(np.mean(one)) for one in combinations(e_pass, allowed + 1))
    least_fail = min(float(np.mean(one)) for one in combinations(e_fail, 4 - allowed))
    assert verdict.log10_pass == pytest.approx(math.log10(least_pass))
    assert verdict.log10_fail == pytest.approx(math.log10(least_fail))
    passed, failed = least_pass >= 20.0, least_fail >= 20.0
    assert verdict.outcome is (OPEN if passed == failed else PASS if passed else FAIL)


@given(marks=st.lists(st.sampled_from("PF."), min_size=1, max_size=6), allowed=st.integers(0, 6))
def test_count_gate_is_certain_when_counting_suffices(marks: list[str], allowed: int) -> None:
    completions = product(*("PF" if mark == "." else mark for mark in marks))
    holds = {one.count("F") <= allowed for one in completions}
    verdict = sequential.at_most(verdicts([1.0] * len(marks), [1.0] * len(marks), "".join(marks)), allowed)
    expected = PASS if holds == {True} else FAIL if holds == {False} else OPEN
    assert verdict.outcome is expected
    assert (verdict.reason is Reason.CERTAIN) == (expected is not OPEN)


@pytest.mark.parametrize(
    ("rate", "cells", "allowed"), [(0.0, 133, 0), (0.1, 133, 13), (0.07, 100, 7), (0.29, 100, 29), (1.0, 5, 5)]
)
def test_allowed_violations(rate: float, cells: int, allowed: int) -> None:
    assert sequential.allowed_violations(rate, cells) == allowed


def test_half_of_the_prior_weight_is_on_the_worst() -> None:
    settings = [*sequential.PRIOR_WORST, *(f"fog{index}:low" for index in range(125))]
    weights = sequential.prior_weights(settings)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[:8] == pytest.approx(1 / 16 + 1 / 266)
    assert weights[8:] == pytest.approx(1 / 266)
    assert sequential.prior_weights(["fog:low", "fog:mid"]).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda found: sequential.at_most(found, -1), "allowed is -1: expected a count of at least 0"),
        (lambda found: sequential.allowed_violations(10, 5), "rate is 10: expected a fraction between 0 and 1"),
    ],
)
def test_what_makes_no_gate_is_refused(call: Callable[[Verdicts], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call(verdicts([1, 1], [1, 1]))


def _boundary_audit(orders: list[tuple[int, ...]], most: float) -> Audit:
    """Returns pairs of cells, one pair for each pair of orders, all clean answers right."""
    size = len(orders[0])
    limit = Limit(np.ones(size), np.ones(size, dtype=np.bool_), most, 1.0)
    return Audit([limit] * (2 * len(orders) ** 2), [Order(np.arange(size), "uniform")] * (2 * len(orders) ** 2))


@pytest.mark.parametrize("side", ["pass", "fail"])
def test_gates_keep_their_risk_under_a_schedule_that_looks(side: str) -> None:
    """Two cells with two lost of seven, every pair of orders, each run advanced where the evidence is strongest: exact, 441 runs.

    With K = 2 both cells pass and no FAIL is right; with K = 1 both fail, so neither "none fails" nor "at most one fails" holds.
    """
    orders = sorted(set(permutations([0] * 5 + [1] * 2)))
    lost = np.array([order for pair in product(orders, repeat=2) for order in pair], dtype=np.float64)
    runs, alpha = len(lost) // 2, 0.25
    audit = _boundary_audit(orders, 1.0 if side == "pass" else 2.0)
    wrong = {"worst": np.zeros(runs, dtype=np.bool_), "count": np.zeros(runs, dtype=np.bool_)}
    weights = np.array([0.7, 0.3])
    for _ in range(14):
        found = audit.verdicts(alpha, alpha)
        values = np.exp(found.log_pass if side == "pass" else found.log_fail).reshape(runs, 2)
        least = values.min(axis=1)
        wrong["worst"] |= (least if side == "pass" else values @ weights) >= 1 / alpha
        wrong["count"] |= (values.mean(axis=1) if side == "pass" else least) >= 1 / alpha
        left = (audit.used < audit.sizes).reshape(runs, 2)
        logs = np.where(left, found.log_fail.reshape(runs, 2) + np.log(weights), -np.inf)
        chosen = [2 * run + int(logs[run].argmax()) for run in range(runs)]
        cells, samples = audit.upcoming(chosen, 1)
        audit.advance(cells, samples, 1.0 - lost[cells, samples])
    assert all(0.0 <= one.mean() <= alpha for one in wrong.values())
    assert wrong["worst"].any() or wrong["count"].any()


@given(seed=st.integers(0, 10**6), bound=st.sampled_from([0.0, 0.05, 0.1, 0.2]))
def test_gates_run_to_the_end_agree_with_their_metrics(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    clean = (rng.random(40) < 0.8).astype(float)
    answers = np.where(rng.random((6, 40)) < rng.choice([0.0, 0.1, 0.2], size=(6, 1)), 1.0 - clean, clean)
    sweep = {f"fog{index}:low": row for index, row in enumerate(answers)}
    limits = {"drop": sequential.max_drop(clean, bound), "severe": sequential.max_relative_drop(clean, 0.1)}
    orders = [Order(rng.permutation(40), "uniform") for _ in range(6)]
    found = {name: _finished([limit] * 6, orders, answers) for name, limit in limits.items()}
    worst = sequential.at_most(found["drop"], 0)
    assert (worst.outcome is PASS) == (metrics.worst_case_drop(clean, sweep) <= bound + 1e-9)
    severe = sequential.at_most(found["severe"], sequential.allowed_violations(1 / 3, 6))
    assert (severe.outcome is PASS) == (metrics.severe_failure_rate(clean, sweep) <= 1 / 3 + 1e-9)
    pairs = sequential.pair_order(seed, "m", "d", list(sweep), 40)
    mean = _finished([sequential.max_drop(np.tile(clean, 6), bound / 2)], [pairs], answers.reshape(1, -1))
    assert (mean.outcome(0) is PASS) == (metrics.mean_drop(clean, sweep) <= bound / 2 + 1e-9)


def _finished(limits: list[Limit], orders: list[Order], answers: Array) -> Verdicts:
    audit = Audit(limits, orders)
    cells, samples = audit.upcoming(range(len(limits)), answers.shape[1])
    audit.advance(cells, samples, answers[cells, samples])
    return audit.verdicts()


def test_bounds_fall_with_the_root_of_the_fraction() -> None:
    assert pytest.approx([BOUNDS[-1] / math.sqrt(fraction) for fraction in FRACTIONS], abs=0.02) == BOUNDS


def test_the_bounds_spend_five_per_cent() -> None:
    """A random walk crosses them with this probability: its density is integrated from look to look, on a grid."""
    grid = np.linspace(-6.0, 6.0, 2401)
    step = grid[1] - grid[0]
    density, crossed, before = np.zeros(0), 0.0, 0.0
    for fraction, bound in zip(FRACTIONS, BOUNDS, strict=True):
        scale = math.sqrt(fraction - before)
        if before == 0.0:
            density = stats.norm.pdf(grid, scale=scale)
        else:
            kernel = stats.norm.pdf(grid - grid[grid.size // 2], scale=scale)
            density = np.convolve(density, kernel, mode="same") * step
        beyond = grid >= bound * math.sqrt(fraction)
        crossed += float(density[beyond].sum() * step)
        density, before = np.where(beyond, 0.0, density), fraction
    assert crossed == pytest.approx(0.05, abs=0.001)


def test_looks() -> None:
    assert look_sizes(1000) == (100, 200, 300, 400, 500, 600, 700, 850, 1000)
    assert look_sizes(1) == (1,) * 9


def _answers(harmful: int, helpful: int, size: int) -> tuple[Array, Array]:
    clean = np.r_[np.ones(size - helpful), np.zeros(helpful)]
    return clean, np.r_[np.zeros(harmful), np.ones(size - harmful)]


@pytest.mark.parametrize(("harmful", "helpful"), [(36, 13), (60, 13), (90, 13), (120, 13), (0, 0)])
def test_the_last_look_is_tangos_interval(harmful: int, helpful: int) -> None:
    clean, answers = _answers(harmful, helpful, 869)
    passed, failed = look_verdicts(clean, answers, 869, 0.05)
    low, high = paired_drop_interval(harmful, helpful, 869, 1.0 - 2.0 * stats.norm.sf(1.78))
    assert (bool(passed[0]), bool(failed[0])) == (high <= 0.05, low >= 0.05)


def test_early_looks_ask_for_more() -> None:
    """Nothing lost: enough half way, not after a tenth; nearly everything lost: enough at the second look."""
    half, tenth = _answers(0, 0, 435), _answers(0, 0, 87)
    assert look_verdicts(*half, 869, 0.05)[0].tolist() == [True]
    assert look_verdicts(*tenth, 869, 0.05)[0].tolist() == [False]
    assert look_verdicts(*_answers(150, 0, 174), 869, 0.05)[1].tolist() == [True]


def test_many_cells_share_or_own_their_order() -> None:
    clean, same = _answers(0, 0, 435)
    lost = np.where(np.arange(435) < 100, 0.0, same)
    passed, failed = look_verdicts(clean, np.stack([same, lost]), 869, 0.05)
    assert (passed.tolist(), failed.tolist()) == ([True, False], [False, True])
    assert look_verdicts(np.stack([clean, clean]), np.stack([same, lost]), 869, 0.05)[0].tolist() == [True, False]


def test_missing_answers_never_decide() -> None:
    clean = np.ones(435)
    missing = np.where(np.arange(435) < 100, math.nan, 1.0)
    passed, failed = look_verdicts(clean, missing, 869, 0.05)
    assert not passed[0]
    assert not failed[0]


def test_a_twice_seen_sample_meets_the_stricter_bound() -> None:
    assert not look_verdicts([1.0], [[0.0]], 1, 0.05)[1][0]


@pytest.mark.parametrize(
    ("seen", "score", "most", "message"),
    [
        (86, 1.0, 0.05, "86 answers of 869: looks were fixed at 87, 174"),
        (87, 0.5, 0.05, "expected scores of 0 and 1 (or NaN for a missing answer)"),
        (87, 1.0, 1.0, "found a drop of 1.0"),
    ],
)
def test_other_looks_and_scores_are_refused(seen: int, score: float, most: float, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        look_verdicts(np.ones(seen), np.full((1, seen), score), 869, most)
