"""Bounds of corpus metrics where they can be worked by hand: the accuracy of independent samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.corpus import bounds_of_drop, bounds_of_index, bounds_of_value
from pytest_vlmrobust.metrics.statistics.clusters import critical_value
from pytest_vlmrobust.scoring import Sums, corpus_sums

N = 40
SAMPLES = [Sample(f"q{number}", (), "?", "yes", "yes_no") for number in range(N)]


def sums(values: Sequence[float], samples: Sequence[Sample] = SAMPLES) -> Sums:
    said = [Prediction("yes", "generate")] * len(values)
    found = corpus_sums("accuracy", samples, said, [Score(value, "rule") for value in values])
    assert found is not None
    return found


def t_bound(values: Sequence[float], side: float) -> float:
    spread = np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) + side * critical_value(0.05, len(values) - 1) * spread)


def test_a_value_is_bounded_with_one_answer_more_against_each_bound() -> None:
    right = [1.0] * 30 + [0.0] * 10
    low, high = bounds_of_value(sums(right), SAMPLES)(0.90)
    assert (low, high) == pytest.approx((t_bound([*right, 0.0], -1.0), t_bound([*right, 1.0], 1.0)))


def test_a_drop_is_bounded_by_pairs_with_one_pair_more_against_each_bound() -> None:
    clean, own = [1.0] * 35 + [0.0] * 5, [1.0] * 30 + [0.0] * 9 + [1.0]
    lost = [before - after for before, after in zip(clean, own, strict=True)]
    low, high = bounds_of_drop(sums(clean), sums(own), SAMPLES)(0.90)
    assert (low, high) == pytest.approx((t_bound([*lost, -1.0], -1.0), t_bound([*lost, 1.0], 1.0)))


def test_an_index_of_patches_is_bounded_on_the_same_sides() -> None:
    clean, own = [1.0] * 35 + [0.0] * 5, [1.0] * 30 + [0.0] * 9 + [1.0]
    low, high = bounds_of_index(sums(clean), sums(own), SAMPLES)(0.90)
    drop_low, drop_high = bounds_of_drop(sums(clean), sums(own), SAMPLES)(0.90)
    assert low == pytest.approx(drop_low / (35 / 40), abs=0.02)
    assert high == pytest.approx(drop_high / (35 / 40), abs=0.02)
    assert bounds_of_index(sums([1.0] * N), sums([0.0] * N), SAMPLES)(0.999)[1] == 1.0


def test_bounds_stay_where_values_can_be() -> None:
    assert bounds_of_value(sums([1.0] * N), SAMPLES)(0.90)[1] == 1.0
    assert bounds_of_value(sums([0.0] * N), SAMPLES)(0.90)[0] == 0.0


def test_samples_of_one_picture_count_together() -> None:
    pairs = [Sample(f"q{number}", (), "?", "yes", "yes_no", group=f"g{number // 4}") for number in range(N)]
    right = [1.0, 1.0, 1.0, 1.0] * 7 + [0.0, 0.0, 0.0, 0.0] * 3
    apart, together = (bounds_of_value(sums(right, samples), samples)(0.90) for samples in (SAMPLES, pairs))
    assert together[1] - together[0] > 1.7 * (apart[1] - apart[0])
