from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.metrics.sequential import PRIOR_WORST, Order, pair_order, prior_weights, stratified_order

CLEAN = np.array([1.0] * 40 + [0.0] * 60)


def test_the_order_of_a_sweep_is_known_forever() -> None:
    order = pair_order(1234, ["fog:low"], "abcdefgh")
    assert order.samples.tolist() == pair_order(1234, ["fog:low"], "abcdefgh").samples.tolist()
    assert order.samples.tolist() == [0, 1, 4, 5, 6, 2, 7, 3]
    assert order.scheme == "uniform"


def test_every_permutation_is_about_equally_likely() -> None:
    seen = [tuple(pair_order(seed, ["s"], "abc").samples.tolist()) for seed in range(600)]
    assert sorted(set(seen)) == sorted({(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)})
    assert all(65 <= seen.count(one) <= 135 for one in set(seen))


def pairs_in_order(settings: Sequence[str], names: Sequence[str], seed: int = 7) -> list[tuple[str, str]]:
    order = pair_order(seed, settings, names)
    return [(settings[pair // len(names)], names[pair % len(names)]) for pair in order.samples.tolist()]


def test_pairs_are_all_settings_and_samples() -> None:
    pairs = pairs_in_order(["fog:low", "fog:high"], "abcde")
    assert sorted(pairs) == sorted(product(["fog:low", "fog:high"], "abcde"))
    assert pairs != pairs_in_order(["fog:low", "fog:high"], "abcde", seed=8)
    assert [name for setting, name in pairs if setting == "fog:low"] != [name for setting, name in pairs if setting == "fog:high"]


def test_no_other_places_settings_or_samples_draw_another_order_of_pairs() -> None:
    pairs = pairs_in_order(["fog:low", "fog:high"], "abcde")
    assert pairs_in_order(["fog:high", "fog:low"], "cebda") == pairs
    more = pairs_in_order(["rain:low", "fog:high", "fog:low"], "zecbda")
    assert [pair for pair in more if pair in pairs] == pairs


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


def test_wrong_orders_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("an order of 3 samples must name each of 0..2 once")):
        Order(np.array([0, 2, 2]), "uniform")
    with pytest.raises(ValueError, match=re.escape("pace is 0: expected a positive number")):
        stratified_order(7, "m", "d", "s", CLEAN, pace=0)


def test_half_of_the_prior_weight_is_on_the_worst() -> None:
    settings = [*PRIOR_WORST, *(f"fog{index}:low" for index in range(125))]
    weights = prior_weights(settings)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[:8] == pytest.approx(1 / 16 + 1 / 266)
    assert weights[8:] == pytest.approx(1 / 266)
    assert prior_weights(["fog:low", "fog:mid"]).tolist() == [0.5, 0.5]
