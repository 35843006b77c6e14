from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_vlmrobust.metrics import effective_size


def _groups(count: int, size: int) -> list[str]:
    return [str(index) for index in range(count) for _ in range(size)]


def test_correlation_by_hand() -> None:
    """Groups (1, 3) and (5, 7): B = 16, W = 2, m0 = 2, so (16 - 2) / (16 + 2) = 7/9; the design effect is 1 + 7/9."""
    size = effective_size([1.0, 3.0, 5.0, 7.0], list("aabb"))
    assert size.correlation == pytest.approx(7 / 9)
    assert size.design_effect == pytest.approx(16 / 9)
    assert size.effective == pytest.approx(4 * 9 / 16)
    assert (size.samples, size.clusters) == (4, 2)


def test_copies_of_a_sample_count_once() -> None:
    values = np.repeat(np.random.default_rng(1).random(50), 4)
    size = effective_size(values, _groups(50, 4))
    assert size.correlation == pytest.approx(1.0)
    assert size.effective == pytest.approx(50)


def test_strangers_count_in_full() -> None:
    size = effective_size(np.random.default_rng(2).random(4000), _groups(1000, 4))
    assert abs(size.correlation) < 0.05
    assert 3700 < size.effective <= 4000


def test_published_sizes_of_circular_copies() -> None:
    """1 164 questions in 4 329 rows at a correlation of one half are worth 1 834 rows."""
    rng = np.random.default_rng(3)
    sizes = np.full(1164, 4)
    sizes[: 4 * 1164 - 4329] = 3
    shared, own = np.repeat(rng.normal(size=1164), sizes), rng.normal(size=4329)
    size = effective_size(shared + own, np.repeat(np.arange(1164), sizes).astype(str).tolist())
    assert size.correlation == pytest.approx(0.5, abs=0.04)
    assert size.effective == pytest.approx(1834, rel=0.04)


def test_without_groups_everything_counts() -> None:
    size = effective_size([1, 0, 1], None)
    assert math.isnan(size.correlation)
    assert (size.design_effect, size.effective) == (1.0, 3.0)


def test_without_variance_the_worst_is_assumed() -> None:
    size = effective_size([0.0] * 12, _groups(3, 4))
    assert math.isnan(size.correlation)
    assert (size.design_effect, size.effective) == (4.0, 3.0)


def test_disagreeing_members_gain_nothing() -> None:
    assert effective_size([0.0, 1.0] * 20, _groups(20, 2)).design_effect == 1.0


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_of_nothing_or_missing_values_nothing_is_known(values: list[float]) -> None:
    size = effective_size(values, None)
    assert math.isnan(size.effective)
    assert math.isnan(size.design_effect)


def test_shapes_are_checked() -> None:
    with pytest.raises(
        ValueError, match=r"found values of shape \(3,\) and 2 groups: expected shape \(N,\) and one group for each"
    ):
        effective_size([1, 0, 1], ["a", "b"])
