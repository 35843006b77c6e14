from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.sequential import Order, next_cells, pair_order, right_first_order, stratified_order, uniform_order
from pytest_vlmrobust.metrics.sequential.order import CELLS, SAMPLES

CLEAN = np.array([1.0] * 40 + [0.0] * 60)


def test_the_order_of_a_cell_is_known_forever() -> None:
    order = uniform_order(1234, "tiny", "shapes", "fog:low", 8)
    assert order.samples.tolist() == uniform_order(1234, "tiny", "shapes", "fog:low", 8).samples.tolist()
    assert order.samples.tolist() == [6, 5, 3, 0, 7, 4, 1, 2]
    assert order.scheme == "uniform"


@pytest.mark.parametrize(
    "other",
    [(1235, "m", "d", "s"), (1234, "n", "d", "s"), (1234, "m", "e", "s"), (1234, "m", "d", "t")],
)
def test_each_cell_has_its_own_order(other: tuple[int, str, str, str]) -> None:
    first, second = uniform_order(1234, "m", "d", "s", 50), uniform_order(*other, 50)
    assert sorted(first.samples) == sorted(second.samples) == list(range(50))
    assert first.samples.tolist() != second.samples.tolist()


def test_every_permutation_is_about_equally_likely() -> None:
    seen = [tuple(uniform_order(seed, "m", "d", "s", 3).samples.tolist()) for seed in range(600)]
    assert sorted(set(seen)) == sorted({(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)})
    assert all(65 <= seen.count(one) <= 135 for one in set(seen))


def test_pairs_are_all_settings_and_samples() -> None:
    order = pair_order(7, "m", "d", ["fog:low", "fog:high"], 5)
    pairs = {divmod(int(pair), 5) for pair in order.samples}
    assert pairs == {(setting, sample) for setting in range(2) for sample in range(5)}
    assert order.samples.tolist() != pair_order(7, "m", "d", ["fog:high", "fog:low"], 5).samples.tolist()


def test_strata_are_mixed_at_the_pace() -> None:
    """At pace 4 the 40 right samples are used up when a quarter of the 60 others are."""
    order = stratified_order(7, "m", "d", "s", CLEAN)
    is_right = CLEAN[order.samples] == 1.0
    assert order.scheme == "stratified"
    assert is_right[:55].sum() == 40
    assert all(0 <= after - before <= 4 for before, after in pairwise(np.flatnonzero(~is_right)[:14]))
    assert is_right[:11].sum() == 8


@pytest.mark.parametrize("stratum", [0.0, 1.0])
def test_strata_are_shuffled_within(stratum: float) -> None:
    one, other = (stratified_order(seed, "m", "d", "s", CLEAN).samples for seed in (1, 2))
    one, other = one[CLEAN[one] == stratum], other[CLEAN[other] == stratum]
    assert sorted(one) == sorted(other)
    assert one.tolist() != other.tolist()


def test_an_infinite_pace_asks_right_ones_first() -> None:
    order = stratified_order(7, "m", "d", "s", CLEAN, pace=math.inf)
    assert CLEAN[order.samples].tolist() == CLEAN.tolist()
    assert order.samples[:40].tolist() != list(range(40))


@pytest.mark.parametrize("reference", [np.ones(5), np.zeros(5)])
def test_a_single_stratum_is_an_order_too(reference: NDArray[np.float64]) -> None:
    assert sorted(stratified_order(7, "m", "d", "s", reference).samples) == list(range(5))


def test_right_first_is_not_random() -> None:
    order = right_first_order([0.0, 1.0, 0.0, 1.0])
    assert (order.samples.tolist(), order.scheme) == ([1, 3, 0, 2], "fixed")


def test_wrong_orders_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("an order of 3 samples must name each of 0..2 once")):
        Order(np.array([0, 2, 2]), "uniform")
    with pytest.raises(ValueError, match=re.escape("pace is 0: expected a positive number")):
        stratified_order(7, "m", "d", "s", CLEAN, pace=0)


LOGS = np.array([0.5, 2.0, 1.0, 2.0, -3.0, 0.0])
EQUAL = np.full(6, 1 / 6)
ALL = np.ones(6, dtype=np.bool_)


def test_the_strongest_evidence_comes_first() -> None:
    assert next_cells(LOGS, EQUAL, ALL).tolist() == [1, 3, 2, 0]
    assert (CELLS, SAMPLES) == (4, 8)


def test_ties_go_to_the_lower_index() -> None:
    many = np.full(500, 1 / 500)
    assert next_cells(np.arange(500.0) % 2.0, many, many > 0.0, 250).tolist() == list(range(1, 500, 2))


def test_weights_count_like_evidence() -> None:
    """Three on top of no evidence outrank evidence of two."""
    weights = np.array([1.0, 1.0, 1.0, 1.0, 1.0, np.exp(3.0)])
    assert next_cells(LOGS, weights, ALL, 2).tolist() == [5, 1]


def test_only_open_cells_are_chosen() -> None:
    open_cells = np.array([True, False, True, False, True, False])
    assert next_cells(LOGS, EQUAL, open_cells).tolist() == [2, 0, 4]
    assert next_cells(LOGS, EQUAL, ~ALL).size == 0


def test_a_cell_without_weight_comes_last() -> None:
    assert next_cells(LOGS, np.array([0.2, 0.0, 0.2, 0.2, 0.2, 0.2]), ALL, 6).tolist() == [3, 2, 0, 5, 4, 1]


@pytest.mark.parametrize(("weights", "most"), [(EQUAL, 0), (EQUAL[:5], 4)])
def test_impossible_requests_are_refused(weights: NDArray[np.float64], most: int) -> None:
    with pytest.raises(ValueError, match=re.escape(f"most={most} of (6,) e-values, {weights.shape} weights and (6,) flags")):
        next_cells(LOGS, weights, ALL, most)
