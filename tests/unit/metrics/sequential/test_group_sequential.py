from __future__ import annotations

import math
import re

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from pytest_vlmrobust.metrics import paired_drop_interval
from pytest_vlmrobust.metrics.sequential import look_sizes, look_verdicts
from pytest_vlmrobust.metrics.sequential.group_sequential import BOUNDS, FRACTIONS

Array = NDArray[np.float64]


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
