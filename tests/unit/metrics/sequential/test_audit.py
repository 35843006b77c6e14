from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.metrics import sequential
from pytest_vlmrobust.metrics.sequential import Audit, Limit, Order, Reason, Target, Verdicts, curtail
from pytest_vlmrobust.metrics.sequential.betting import GRID

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Case:
    """One cell: its limit, its order, and all its answers by sample."""

    limit: Limit
    order: Order
    answers: Array

    @property
    def queue(self) -> list[int]:
        return [int(sample) for sample in self.order.samples if self.limit.member[sample]]

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
    return Case(gate(clean, bound, graded=graded), Order(rng.permutation(size), "uniform"), answers)


def advanced(case: Case, count: int | None = None, **options: object) -> Audit:
    audit = Audit([case.limit], [case.order], **options)  # type: ignore[arg-type]  # passed on as given
    queue = case.queue[:count]
    audit.advance([0] * len(queue), queue, case.answers[queue])
    return audit


def slow_oracle(case: Case, *, population: bool = False) -> tuple[float, float]:
    """Returns the natural logs of both e-values after all answers, one answer and one stake at a time."""
    limit, contrast = case.limit, case.limit.contrast
    reference = [float(limit.reference[sample]) for sample in case.queue]
    lows = (
        (contrast.low, contrast.high) if population and contrast else (min(reference, default=0.0), max(reference, default=1.0))
    )
    logs = [[0.0] * len(GRID), [0.0] * len(GRID)]
    most_lost = least_lost = right = wrong = harmful = helpful = 0.0
    for drawn, sample in enumerate(case.queue):
        known, answer = reference[drawn], float(case.answers[sample])
        answer = 1.0 - answer if limit.complement else answer
        as_wrong, as_right = (0.0, 1.0) if math.isnan(answer) else (answer, answer)
        left = len(reference) - drawn
        expected, slope, offset = sum(reference[drawn:]) / left, 0.0, known
        pass_mean, fail_mean = (limit.most + limit.step - most_lost) / left, (limit.most - least_lost) / left
        if population and contrast:
            offset, pass_mean, fail_mean = float(contrast.offset[sample]), contrast.bound, contrast.bound
        else:
            slope = (harmful + 0.5) / (right + 10.0) + (helpful + 0.5) / (wrong + 20.0)
        edges = [end - slope * (end - expected) for end in lows]
        adjusted = offset - slope * (offset - expected)
        for index, stake in enumerate(GRID):
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
    return tuple(max(side) + math.log(sum(math.exp(one - max(side)) for one in side) / len(side)) for side in logs)  # type: ignore[return-value]  # two sides


def assert_logs(audit: Audit, expected: tuple[float, float]) -> None:
    verdicts = audit.verdicts()
    # where a null is impossible the capital explodes with a rate that rounding decides: both are then beyond any risk
    for found, wanted in zip((float(verdicts.log_pass[0]), float(verdicts.log_fail[0])), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("graded", [False, True])
@given(data=st.data())
def test_agrees_with_a_slow_oracle(graded: bool, data: st.DataObject) -> None:
    case = data.draw(cases(graded=graded, missing=data.draw(st.booleans())))
    assert_logs(advanced(case), slow_oracle(case))


@given(case=cases(missing=True))
def test_claims_about_a_distribution_agree_with_the_oracle(case: Case) -> None:
    if case.limit.contrast is None:
        return
    audit = advanced(case, target="population")
    assert_logs(audit, slow_oracle(case, population=True))
    verdicts = audit.verdicts()
    assert not verdicts.certain_pass.any()
    assert not verdicts.certain_fail.any()


@pytest.mark.parametrize("graded", [False, True])
@given(data=st.data())
def test_however_answers_are_split_the_state_is_the_same(graded: bool, data: st.DataObject) -> None:
    """Many cells at once, in ragged batches of mixed cells, give the same bits as each cell alone in one go."""
    many = data.draw(st.lists(cases(graded=graded, missing=True, most=150), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    together = Audit([case.limit for case in many], [case.order for case in many])
    while (together.used < together.sizes).any():
        cells = rng.permutation(np.flatnonzero(together.used < together.sizes))[: rng.integers(1, 5)]
        owner, samples = together.upcoming(cells, int(rng.integers(1, 100)))
        together.advance(owner, samples, [many[cell].answers[sample] for cell, sample in zip(owner, samples, strict=True)])
    found = together.verdicts()
    for cell, case in enumerate(many):
        alone = advanced(case)
        expected = alone.verdicts()
        assert (found.log_pass[cell], found.log_fail[cell]) == (expected.log_pass[0], expected.log_fail[0])
        assert [one[cell] for one in together.counts] == [one[0] for one in alone.counts]
        assert found.outcome(cell) is expected.outcome(0)


def test_cells_of_a_batch_may_be_interleaved() -> None:
    limit, order = sequential.max_drop([1, 1, 0, 1], 0.25), Order(np.arange(4), "uniform")
    mixed, sorted_ = Audit([limit] * 2, [order] * 2), Audit([limit] * 2, [order] * 2)
    mixed.advance([1, 0, 1, 0, 1], [0, 0, 1, 1, 2], [1, 0, 0, 1, 1])
    sorted_.advance([0, 0, 1, 1, 1], [0, 1, 0, 1, 2], [0, 1, 1, 0, 1])
    np.testing.assert_array_equal(np.stack(mixed.counts), np.stack(sorted_.counts))
    np.testing.assert_array_equal(mixed.verdicts().log_pass, sorted_.verdicts().log_pass)
    assert mixed.used.tolist() == [2, 3]


@pytest.mark.parametrize("target", ["exact", "dataset"])
@pytest.mark.parametrize("evidence", ["betting", "stratified"])
@given(case=cases())
def test_run_to_the_end_the_verdict_is_that_of_all_answers(target: str, evidence: str, case: Case) -> None:
    verdicts = advanced(case, target=target, evidence=evidence).verdicts()
    assert verdicts.outcome(0) is (Outcome.PASS if case.passes() else Outcome.FAIL)
    assert verdicts.reason(0) is Reason.CERTAIN


@given(case=cases(graded=True))
def test_graded_verdicts_at_the_end_are_those_of_all_answers(case: Case) -> None:
    assert bool(advanced(case).verdicts().passed[0]) == case.passes()


@given(data=st.data(), tighter=st.integers(1, 5))
def test_a_tighter_bound_never_turns_fail_into_pass(data: st.DataObject, tighter: int) -> None:
    case = data.draw(cases(missing=True))
    count = data.draw(st.integers(0, len(case.queue)))
    alpha = data.draw(st.sampled_from([0.05, 0.3, 0.8]))
    strict = dataclasses.replace(case, limit=dataclasses.replace(case.limit, most=case.limit.most - tighter))
    loose_verdict, strict_verdict = (advanced(one, count).verdicts(alpha, alpha) for one in (case, strict))
    assert not (strict_verdict.passed[0] and loose_verdict.failed[0])
    assert strict_verdict.log_pass[0] <= loose_verdict.log_pass[0] + 1e-9
    assert strict_verdict.log_fail[0] >= loose_verdict.log_fail[0] - 1e-9


@given(case=cases(missing=True))
def test_a_verdict_holds_whatever_the_missing_answers_were(case: Case) -> None:
    """Without the control variate, evidence for PASS is exactly that of all missing answers wrong, for FAIL of all right."""
    verdicts = advanced(case, control=False).verdicts()
    low, high = (dataclasses.replace(case, answers=np.nan_to_num(case.answers, nan=score)) for score in (0.0, 1.0))
    worst, best = (high, low) if case.limit.complement else (low, high)
    assert verdicts.log_pass[0] == advanced(worst, control=False).verdicts().log_pass[0]
    assert verdicts.log_fail[0] == advanced(best, control=False).verdicts().log_fail[0]
    assert not verdicts.certain_pass[0] or (worst.passes() and best.passes())
    assert not verdicts.certain_fail[0] or not (worst.passes() or best.passes())


def test_all_answers_missing_decide_nothing() -> None:
    limit = sequential.max_drop(np.ones(200), 0.05)
    audit = Audit([limit], [Order(np.arange(200), "uniform")])
    audit.advance([0] * 200, range(200), [math.nan] * 200)
    verdicts = audit.verdicts()
    assert verdicts.outcome(0) is Outcome.INCONCLUSIVE
    assert verdicts.reason(0) is Reason.UNDECIDED
    assert verdicts.used[0] == verdicts.sizes[0] == 200


def test_clear_cases_stop_early() -> None:
    """No answer changes: 88 % of 869 clean answers, 5 points allowed; a third lost fails at once."""
    rng = np.random.default_rng(5)
    clean = (rng.random(869) < 0.88).astype(float)
    lossy = np.where(rng.random(869) < 0.33, 0.0, clean)
    orders = [Order(rng.permutation(869), "uniform") for _ in range(2)]
    audit = Audit([sequential.max_drop(clean, 0.05)] * 2, orders)
    decided: dict[int, tuple[Outcome, Reason, int]] = {}
    while len(decided) < 2:
        cells, samples = audit.upcoming([cell for cell in range(2) if cell not in decided], 4)
        audit.advance(cells, samples, np.where(cells == 0, clean[samples], lossy[samples]))
        verdicts = audit.verdicts()
        for cell in set(cells.tolist()) - set(np.flatnonzero(verdicts.undecided).tolist()):
            decided[cell] = verdicts.outcome(cell), verdicts.reason(cell), int(verdicts.used[cell])
    assert decided[0][:2] == (Outcome.PASS, Reason.EVIDENCE)
    assert decided[1][:2] == (Outcome.FAIL, Reason.EVIDENCE)
    assert 50 < decided[0][2] < 150
    assert decided[1][2] < 60


def test_exact_verdicts_use_no_evidence() -> None:
    limit = sequential.max_drop(np.ones(300), 0.05)
    audit = Audit([limit], [Order(np.arange(300), "uniform")], target=Target.EXACT)
    audit.advance([0] * 280, range(280), np.ones(280))
    assert audit.verdicts(0.5, 0.5).undecided[0]
    audit.advance([0] * 5, range(280, 285), np.ones(5))
    assert audit.verdicts().passed[0]


def test_contradictory_evidence_decides_nothing() -> None:
    """Three lost answers, then only gains: at a reckless risk both sides have enough, so the cell goes on."""
    verdicts = sequential.Verdicts(
        *(0.05, 0.05, *np.zeros((2, 1), dtype=np.bool_), np.array([9.0]), np.array([9.0]), np.array([5]), np.array([9]))
    )
    assert verdicts.undecided[0]
    assert verdicts.outcome(0) is Outcome.INCONCLUSIVE


def test_samples_that_do_not_count_are_never_asked() -> None:
    limit = sequential.max_harmful_flip_rate([1, 0, 1, 0, 1], 0.4)
    audit = Audit([limit], [Order(np.array([1, 4, 3, 0, 2]), "uniform")])
    assert audit.upcoming([0], 9)[1].tolist() == [4, 0, 2]
    assert audit.sizes.tolist() == [3]


def test_a_gate_without_samples_that_count_is_certain_at_once() -> None:
    audit = Audit([sequential.max_harmful_flip_rate([0, 0], 0.0)], [Order(np.arange(2), "uniform")])
    assert audit.verdicts().certain_pass[0]
    assert audit.upcoming([0], 3)[1].size == 0
    with pytest.raises(ValueError, match="cell 0: sample 1 is none of its 0 samples"):
        audit.advance([0], [1], [1.0])


def _two_cells() -> Audit:
    limit = sequential.max_drop([1, 1, 0], 0.1)
    graded = sequential.max_drop([1, 1, 0], 0.1, graded=True)
    audit = Audit([limit, graded], [Order(np.array([2, 0, 1]), "uniform")] * 2, labels=["fog:low", "fog:high"])
    audit.advance([0], [2], [1.0])
    return audit


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (([0], [2], [1.0]), "cell 0 (fog:low): sample 2 was advanced already, as number 1. Its first answer counts"),
        (([0, 0], [0, 0], [1, 1]), "cell 0 (fog:low): sample 0 was advanced already, as number 2."),
        (([1, 0], [2, 1], [1, 1]), "cell 0 (fog:low): sample 1 is number 3 of its order, and next comes number 2: sample 0."),
        (([0], [7], [1.0]), "cell 0 (fog:low): sample 7 is none of its 3 samples"),
        (([0] * 3, [0, 1, 2], [1] * 3), "cell 0 (fog:low): sample 2 was advanced already"),
        (([2], [0], [1.0]), "cell 2: expected one of 0..1"),
        (([0], [0, 1], [1.0]), "cells, samples and outcomes have shapes (1,), (2,) and (1,): expected one of each"),
        (([0], [0], [0.5]), "cell 0 (fog:low): an outcome is 0.5, expected 0, 1 or NaN (its limit is not graded)"),
        (([1, 0], [2, 0], [1.5, 1]), "cell 1 (fog:high): an outcome is 1.5, expected a number in [0, 1], or NaN"),
        (([0], [0], [math.inf]), "an outcome is inf"),
    ],
)
def test_answers_that_cannot_be_are_refused_and_change_nothing(
    answers: tuple[Sequence[int], Sequence[int], Sequence[float]], message: str
) -> None:
    audit = _two_cells()
    before = np.stack(audit.counts), audit.used
    with pytest.raises(ValueError, match=re.escape(message)):
        audit.advance(*answers)
    np.testing.assert_array_equal(np.stack(audit.counts), before[0])
    np.testing.assert_array_equal(audit.used, before[1])


def test_no_answers_change_nothing() -> None:
    audit = _two_cells()
    audit.advance([], [], [])
    assert audit.used.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda limit, order: Audit([], []), "0 limits, 0 orders and 0 labels: expected one of each"),
        (lambda limit, order: Audit([limit], [order], labels=["a", "b"]), "1 limits, 1 orders and 2 labels"),
        (lambda limit, order: Audit([limit], [Order(np.arange(3), "uniform")]), "limit is about 2 samples, its order about 3"),
        (
            lambda limit, order: Audit([limit], [Order(np.arange(2), "fixed")]),
            "cell 0: betting evidence needs an order that is uniform, found a fixed one",
        ),
        (
            lambda limit, order: Audit([limit], [Order(np.arange(2), "stratified")]),
            "cell 0: betting evidence needs an order that is uniform, found a stratified one",
        ),
        (
            lambda limit, order: Audit([limit], [Order(np.arange(2), "fixed")], evidence="stratified"),
            "stratified evidence needs an order that is stratified or uniform, found a fixed one",
        ),
        (lambda limit, order: Audit([limit], [order], target="population", evidence="stratified"), "use target 'dataset'"),
        (
            lambda limit, order: Audit([sequential.max_drop([1, 0.5], 0.1, graded=True)], [order], evidence="stratified"),
            "stratified evidence counts flips: graded scores have none",
        ),
        (
            lambda limit, order: Audit([sequential.max_harmful_flip_rate([1, 0], 0.1)], [order], target="population"),
            "harmful flips: no sequential claim about a distribution is offered",
        ),
        (lambda limit, order: Audit([limit], [order], target="sample"), "'sample' is not a valid Target"),
        (
            lambda limit, order: Audit([limit], [order]).verdicts(alpha_pass=5),
            "the error rate is 5: expected a number between 0 and 1",
        ),
        (lambda limit, order: Audit([limit], [order]).verdicts(alpha_fail=0.0), "the error rate is 0.0"),
        (lambda limit, order: Audit([limit], [order]).upcoming([0, 0], 1), "repeat a cell"),
        (lambda limit, order: Audit([limit], [order]).upcoming([-1], 1), "cell -1: expected one of 0..0"),
    ],
)
def test_audits_that_cannot_hold_their_risk_are_refused(build: Callable[[Limit, Order], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        build(sequential.max_drop([1, 0], 0.1), Order(np.arange(2), "uniform"))


answers = st.sampled_from([0.0, 1.0, math.nan])


def _completions(seen: list[float], size: int) -> list[list[float]]:
    """Returns every list of answers that agrees with what was seen."""
    places = [[0.0, 1.0] if math.isnan(one) else [one] for one in [*seen, *[math.nan] * (size - len(seen))]]
    return [list(one) for one in product(*places)]


@settings(max_examples=150)
@given(data=st.data())
def test_certain_is_what_holds_for_every_completion(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 7))
    clean = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size)))
    most = data.draw(st.integers(-size - 1, size + 1))
    seen = data.draw(st.lists(answers, max_size=size))
    audit = Audit([Limit(clean, np.ones(size, dtype=np.bool_), most, 1.0)], [Order(np.arange(size), "fixed")], target="exact")
    audit.advance([0] * len(seen), range(len(seen)), seen)
    verdicts = audit.verdicts()
    passes = [float((clean - np.array(one)).sum()) <= most for one in _completions(seen, size)]
    assert bool(verdicts.certain_pass[0]) == all(passes)
    assert bool(verdicts.certain_fail[0]) == (not any(passes))


@given(data=st.data())
def test_graded_answers_are_bounded_by_their_extremes(data: st.DataObject) -> None:
    """A sum is linear, so over [0, 1] it is extreme where every answer still to come is."""
    size = data.draw(st.integers(1, 5))
    grades = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
    clean = np.array(data.draw(st.lists(grades, min_size=size, max_size=size)))
    seen = data.draw(st.lists(grades, max_size=size))
    most = data.draw(st.sampled_from([-1.0, -0.2, 0.0, 0.4, 1.2])) + 1e-9
    audit = Audit([Limit(clean, np.ones(size, dtype=np.bool_), most, 0.0)], [Order(np.arange(size), "fixed")], target="exact")
    audit.advance([0] * len(seen), range(len(seen)), seen)
    passes = [float((clean - np.array(one)).sum()) <= most for one in _completions(seen, size)]
    assert audit.verdicts().passed[0] == all(passes)
    assert audit.verdicts().failed[0] == (not any(passes))


def test_a_weak_model_passes_after_a_third() -> None:
    """Clean-right samples first: 36 of 100 answers can be lost, and once most are not, the rest cannot matter."""
    clean = np.array([1.0] * 36 + [0.0] * 64)
    audit = Audit([Limit(clean, np.ones(100, dtype=np.bool_), 5.0, 1.0)], [Order(np.arange(100), "fixed")], target="exact")
    used = 0
    while not audit.verdicts().passed[0]:
        audit.advance(*audit.upcoming([0], 1), [1.0])
        used += 1
    assert used == 31


def test_missing_answers_that_matter_leave_the_verdict_open() -> None:
    """Both missing ones right: one lost of two allowed. Both wrong: three."""
    clean = np.ones(4)
    audit = Audit([Limit(clean, np.ones(4, dtype=np.bool_), 2.0, 1.0)], [Order(np.arange(4), "fixed")], target="exact")
    audit.advance([0] * 4, range(4), [math.nan, 0.0, 1.0, math.nan])
    verdicts = audit.verdicts()
    assert verdicts.undecided[0]
    assert verdicts.exhausted[0]


@pytest.mark.parametrize("left", [0.0, 3.0])
def test_never_both(left: float) -> None:
    sums = np.arange(-5.0, 6.0)
    passes, fails = curtail(sums, sums, left, left, 1.0)
    assert not (passes & fails).any()
    assert (passes | fails).all() == (left == 0.0)


@given(seed=st.integers(0, 10**6), bound=st.sampled_from([0.0, 0.05, 0.1, 0.2]))
def test_audits_run_to_the_end_agree_with_metrics_of_sweeps(seed: int, bound: float) -> None:
    rng = np.random.default_rng(seed)
    clean = (rng.random(40) < 0.8).astype(float)
    answers = np.where(rng.random((6, 40)) < rng.choice([0.0, 0.1, 0.2], size=(6, 1)), 1.0 - clean, clean)
    sweep = {f"fog{index}:low": row for index, row in enumerate(answers)}
    orders = [Order(rng.permutation(40), "uniform") for _ in range(6)]
    drops = finished([sequential.max_drop(clean, bound)] * 6, orders, answers)
    assert drops.passed.all() == (metrics.worst_case_drop(clean, sweep) <= bound + 1e-9)
    severe = finished([sequential.max_relative_drop(clean, 0.1)] * 6, orders, answers)
    assert severe.failed.mean() == pytest.approx(metrics.severe_failure_rate(clean, sweep))
    pairs = sequential.pair_order(seed, list(sweep), list(map(str, range(40))))
    mean = finished([sequential.max_drop(np.tile(clean, 6), bound / 2)], [pairs], answers.reshape(1, -1))
    assert mean.passed[0] == (metrics.mean_drop(clean, sweep) <= bound / 2 + 1e-9)


def finished(limits: list[Limit], orders: list[Order], answers: NDArray[np.float64]) -> Verdicts:
    audit = Audit(limits, orders)
    cells, samples = audit.upcoming(range(len(limits)), answers.shape[1])
    audit.advance(cells, samples, answers[cells, samples])
    return audit.verdicts()
