from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust.metrics import sequential
from pytest_vlmrobust.metrics.sequential import Limit, UndefinedGate

Array = NDArray[np.float64]
Holds = Callable[[int, int, int, int, Fraction], bool]

percents = st.integers(-20, 130).map(lambda value: f"{value / 100:.2f}")
clean_runs = st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=60)


def _accuracy(right: int, size: int, loss: int) -> Fraction:
    return Fraction(right - loss, size)


# a gate as its definition says it, in exact fractions: (clean right, blind right, samples, sum lost, bound) -> passes
DEFINITIONS: dict[str, Holds] = {
    "drop": lambda c, _, n, s, t: Fraction(c, n) - _accuracy(c, n, s) <= t,
    "relative": lambda c, _, n, s, t: Fraction(c, n) - _accuracy(c, n, s) <= t * Fraction(c, n),
    "rce": lambda c, i, _, s, t: Fraction(s) <= t * (c - i),
    "accuracy": lambda c, _, n, s, t: _accuracy(c, n, s) >= t,
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
def test_the_threshold_is_the_largest_sum_that_passes(gate: str, clean: list[float], bound: str, blind_right: int) -> None:
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
def test_the_threshold_of_flips_counts_samples_right_when_clean(clean: list[float], bound: str) -> None:
    limit = sequential.max_harmful_flip_rate(clean, float(bound))
    size = len(clean)
    passing = [flips for flips in range(size + 1) if Fraction(flips, size) <= Fraction(bound)]
    assert min(max(limit.most, -1), size) == max(passing, default=-1)
    assert limit.member.tolist() == [score == 1.0 for score in clean]
    assert limit.size == sum(clean)


@pytest.mark.parametrize(
    ("bound", "size", "most"), [(0.07, 100, 7), (0.29, 100, 29), (0.1, 30, 3), (0.57, 100, 57), (0.05, 869, 43), (1.1, 10, 11)]
)
def test_a_product_that_is_an_integer_on_paper_is_one(bound: float, size: int, most: int) -> None:
    assert sequential.max_drop(np.ones(size), bound).most == most


def test_graded_sums_pass_within_rounding() -> None:
    """Three times 0.9 - 0.6 exceeds three times 0.3 by rounding alone."""
    limit = sequential.max_drop([0.9, 0.9, 0.9], 0.3, graded=True)
    lost = float(sum([0.9 - 0.6] * 3))
    assert limit.step == 0.0
    assert 0.3 * 3 < lost <= limit.most < 0.9 + 1e-8


@pytest.mark.parametrize("gate", [*DEFINITIONS, "least"])
@given(data=st.data(), bound=percents.map(float))
def test_the_claim_about_a_distribution_is_the_same_gate(gate: str, data: st.DataObject, bound: float) -> None:
    size = data.draw(st.integers(1, 12))
    scores = st.lists(st.sampled_from([0.0, 1.0]), min_size=size, max_size=size).map(np.array)
    clean, blind, outcomes = data.draw(scores), data.draw(scores), data.draw(scores)
    if gate == "rce" and clean.sum() <= blind.sum():
        return
    limit = sequential.min_relative_drop(clean, bound) if gate == "least" else _limit(gate, clean, blind, bound)
    scored = 1.0 - outcomes if limit.complement else outcomes
    contrast = limit.contrast
    assert contrast is not None
    assert contrast.low - 1e-12 <= contrast.offset.min() <= contrast.offset.max() <= contrast.high + 1e-12
    by_mean = float((contrast.offset - scored).mean()) <= contrast.bound + 1e-9
    assert by_mean == (float((limit.reference - scored).sum()) <= limit.most)


def test_a_ratio_without_a_denominator_is_refused() -> None:
    with pytest.raises(UndefinedGate, match=r"clean scores sum to 1 and those without images to 2, so there is no visual gain"):
        sequential.max_relative_corruption_error([1, 0, 0], [1, 1, 0], 0.5)


def test_a_model_without_right_answers_loses_nothing() -> None:
    assert sequential.max_relative_drop([0, 0, 0], 0.1).most == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sequential.max_drop([1, math.nan], 0.1), "clean[1] is missing: a sequential gate needs this run complete"),
        (lambda: sequential.max_drop([1, 0.5], 0.1), "clean[1] is 0.5: expected 0 or 1. Graded scores need graded=True"),
        (lambda: sequential.max_harmful_flip_rate([0.5], 0.1, graded=True), "clean[0] is 0.5: expected 0 or 1"),
        (lambda: sequential.max_drop([], 0.1), "clean: there are no samples"),
        (lambda: sequential.max_drop([1], math.nan), "most is nan: a gate needs a finite bound"),
        (lambda: sequential.min_accuracy([1], math.inf), "least is inf: a gate needs a finite bound"),
        (lambda: sequential.max_relative_corruption_error([1, 1], [0], 0.1), "clean has 2 scores and no_image has 1"),
    ],
)
def test_what_cannot_be_judged_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
