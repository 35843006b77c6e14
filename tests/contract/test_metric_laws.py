"""What holds for all scores: laws that tie metrics to each other and to the answers behind them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pytest_vlmrobust import metrics

Array = NDArray[np.float64]
Sweep = dict[str, Array]

NAMES = ("fog:low", "fog:mid", "fog:high", "flip_v")
laws = settings(deadline=None, derandomize=True, database=None, max_examples=40)


@st.composite
def sweeps(draw: st.DrawFn, values: tuple[float, ...] = (0.0, 1.0)) -> tuple[Array, Array, Sweep]:
    n = draw(st.integers(1, 12))
    scores = st.lists(st.sampled_from(values), min_size=n, max_size=n).map(np.array)
    return draw(scores), draw(scores), {name: draw(scores) for name in NAMES}


@laws
@given(sweeps((0.0, 0.25, 0.5, 1.0)))
def test_the_drop_is_harmful_minus_helpful(case: tuple[Array, Array, Sweep]) -> None:
    clean, _, sweep = case
    for scores in sweep.values():
        rates = metrics.flip_rates(clean, scores)
        assert metrics.accuracy_drop(clean, scores) == pytest.approx(rates.harmful - rates.helpful)
        assert metrics.accuracy_drop(scores, clean) == -metrics.accuracy_drop(clean, scores)


@laws
@given(sweeps((0.0, 0.25, 0.5, 1.0)))
def test_extremes_bound_means(case: tuple[Array, Array, Sweep]) -> None:
    clean, _, sweep = case
    worst = metrics.worst_case_drop(clean, sweep)
    assert metrics.mean_drop(clean, sweep) <= worst + 1e-12
    assert metrics.worst_at_low(clean, sweep) <= worst
    assert metrics.mean_drop_at_low(clean, sweep) <= metrics.worst_at_low(clean, sweep) + 1e-12
    assert metrics.mean_drop(clean, sweep) <= metrics.worst_tenth_drop(clean, sweep) + 1e-12
    assert metrics.worst_tenth_drop(clean, sweep) <= worst + 1e-12
    assert worst == max(metrics.accuracy_drop(clean, scores) for scores in sweep.values())


@laws
@given(sweeps())
def test_one_more_setting_never_lowers_the_worst_case(case: tuple[Array, Array, Sweep]) -> None:
    clean, _, sweep = case
    part = dict(list(sweep.items())[:2])
    assert metrics.worst_case_drop(clean, part) <= metrics.worst_case_drop(clean, sweep)


@laws
@given(sweeps())
def test_rce_is_one_without_the_image_and_zero_without_harm(case: tuple[Array, Array, Sweep]) -> None:
    clean, blind, _ = case
    if metrics.visual_gain(clean, blind) > 0:
        assert metrics.relative_corruption_error(clean, blind, blind) == 1.0
        assert metrics.relative_corruption_error(clean, clean, blind) == 0.0
    else:
        assert math.isnan(metrics.relative_corruption_error(clean, blind, blind))


@laws
@given(st.floats(-1, 1), st.floats(-1, 1))
def test_tiers_are_ordered(drop: float, other: float) -> None:
    low, high = sorted([drop, other])
    assert metrics.TIERS.index(metrics.robustness_tier(low)) <= metrics.TIERS.index(metrics.robustness_tier(high))


@laws
@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_ace_is_at_least_the_net_change(curve: list[float]) -> None:
    error = metrics.absolute_continuous_error(curve)
    assert error >= abs(curve[-1] - curve[0]) - 1e-12
    assert error == pytest.approx(metrics.absolute_continuous_error(curve[::-1]))


@laws
@given(sweeps(), st.integers(1, 9))
def test_one_more_patch_never_raises_the_index(case: tuple[Array, Array, Sweep], count: int) -> None:
    whole, _, sweep = case
    patches = np.stack([list(sweep.values())[index % 4] for index in range(count)], axis=1)
    index, more = metrics.pcri(whole, patches), metrics.pcri(whole, np.concatenate([patches, whole[:, None]], axis=1))
    assert math.isnan(index) or more <= min(index, 0.0) + 1e-12


Corners = tuple[float, float, float, float]
boxes = st.tuples(*[st.integers(0, 20)] * 4).map(
    lambda c: (float(min(c[0], c[2])), float(min(c[1], c[3])), float(max(c[0], c[2])), float(max(c[1], c[3])))
)


@laws
@given(boxes, boxes, st.integers(-50, 50))
def test_overlap_is_symmetric_and_does_not_depend_on_the_origin(box: Corners, other: Corners, shift: int) -> None:
    overlap = metrics.intersection_over_union(box, other)
    moved = metrics.intersection_over_union([c + shift for c in box], [c + shift for c in other])
    assert overlap == metrics.intersection_over_union(other, box) or math.isnan(overlap)
    assert moved == pytest.approx(overlap, nan_ok=True)
    assert math.isnan(overlap) or 0.0 <= overlap <= 1.0
