"""What flips when answers are asked for again, and what that puts on metrics; asking itself is tested with the plugin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust.evaluation.repeat import ACE, flip_rate, noise
from pytest_vlmrobust.metrics import absolute_continuous_error

N, RATE, RUNS, RUNGS = 400, 0.04, 4000, 12


def test_the_noise_on_a_drop_is_what_repeating_it_gives() -> None:
    rng = np.random.default_rng(0)
    # some samples answer by a coin each time: half of them toggle between two runs, so that twice the rate has to
    fickle = rng.random((RUNS, 1, N)) < 2 * RATE
    scores = np.where(fickle, rng.random((RUNS, 4, N)) < 0.5, True).mean(axis=2)
    between = (scores[:, 0] - scores[:, 1]) - (scores[:, 2] - scores[:, 3])
    assert np.quantile(np.abs(between), 0.95) == pytest.approx(noise(RATE, N)["accuracy_drop"], rel=0.08)


def test_the_noise_on_ace_is_that_of_a_flat_curve() -> None:
    rng = np.random.default_rng(1)
    fickle = rng.random((300, 1, N)) < 2 * RATE
    curves = np.where(fickle, rng.random((300, RUNGS, N)) < 0.5, True).mean(axis=2)
    measured = np.mean([absolute_continuous_error(list(curve)) for curve in curves])
    assert measured == pytest.approx(noise(RATE, N)[ACE], rel=0.08)


def test_without_flips_there_is_no_noise_and_an_upper_end() -> None:
    rate, low, high = flip_rate([0.0] * 200)
    assert (rate, low) == (0.0, 0.0)
    assert high == pytest.approx(1.0 - 0.05 ** (1 / 200))
    assert set(noise(rate, 100).values()) == {0.0}


def test_of_nothing_nothing_is_known() -> None:
    assert all(map(math.isnan, flip_rate([])))
    assert all(map(math.isnan, noise(math.nan, 100).values()))


def test_grades_count_in_part() -> None:
    rate, low, high = flip_rate([0.5, -0.5, 0.0, 0.0])
    assert rate == 0.125
    assert low == 0.0
    assert high == pytest.approx(flip_rate([1.0, -1.0, 0.0, 0.0])[2])
