"""Intervals of patch indices: exact errors by enumeration of all outcomes, and the p-values that agree with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.metrics import ScoreTable, estimate, patch_intervals

Array = NDArray[np.float64]

WHOLE, BEST = np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0])
"""The four kinds of samples."""


def _counts(n: int, kinds: int = 4) -> Iterator[tuple[int, ...]]:
    if kinds == 1:
        yield (n,)
        return
    for first in range(n + 1):
        for rest in _counts(n - first, kinds - 1):
            yield (first, *rest)


def _probability(counts: tuple[int, ...], shares: tuple[float, ...]) -> float:
    ways = math.factorial(sum(counts)) / math.prod(math.factorial(count) for count in counts)
    return ways * math.prod(share**count for share, count in zip(shares, counts, strict=True))


def _patches(best: Array, attempts: int = 4) -> Array:
    patches = np.zeros((best.size, attempts))
    patches[:, 0] = best
    return patches


def _errors(shares: tuple[float, ...], truth: float, interval: patch_intervals.Bounds | object, n: int) -> tuple[float, float]:
    """Returns the exact probabilities that the lower bound is too high and the upper one too low."""
    high = low = 0.0
    for counts in _counts(n):
        whole, best = np.repeat(WHOLE, counts), np.repeat(BEST, counts)
        if not whole.any():
            continue
        table = ScoreTable(whole, patches_by_setting={"patches:2": _patches(best)}, chance=0.25)
        bounds = interval(table, "patches:2", 0.90)  # type: ignore[operator]
        weight = _probability(counts, shares)
        high, low = high + weight * (bounds[0] > truth + 1e-12), low + weight * (bounds[1] < truth - 1e-12)
    return high, low


@pytest.mark.parametrize("known", [0.1, 0.5, 0.8])
def test_an_indifferent_model_is_seldom_said_to_be_anything_else(known: float) -> None:
    """Four options, four patches, nominal 5 % on either side."""
    guessed, best = 1 - known, 1 - 0.75**4
    shares = (known + guessed * 0.25 * best, guessed * 0.25 * (1 - best), guessed * 0.75 * best, guessed * 0.75 * (1 - best))
    assert sum(shares) == pytest.approx(1.0)
    assert max(_errors(shares, 0.0, patch_intervals.excess, 14)) <= 0.05


@pytest.mark.parametrize("shares", [(0.6, 0.05, 0.05, 0.3), (0.8, 0.005, 0.1, 0.095), (0.6, 0.2, 0.02, 0.18)])
def test_bounds_of_the_raw_index_err_seldom(shares: tuple[float, ...]) -> None:
    truth = 1 - (shares[0] + shares[2]) / (shares[0] + shares[1])
    assert max(_errors(shares, truth, patch_intervals.index, 14)) <= 0.05


def test_without_the_guard_they_would_not() -> None:
    """Two options: the samples that show no distraction are rare, so that their absence says little."""
    rng = np.random.default_rng(1)
    false_claims = 0
    for _ in range(200):
        known = rng.random(60) < 0.7
        whole = np.where(known, 1.0, rng.random(60) < 0.5)
        best = np.where(known, 1.0, rng.random(60) < 1 - 0.5**4)
        table = ScoreTable(whole, patches_by_setting={"patches:2": _patches(best)}, chance=0.5)
        false_claims += estimate("pcri_excess", table, "patches:2").high < 0
        plain = (1 - best) - 0.5**3 * (1 - whole)
        if plain.std() and plain.mean() + 1.671 * plain.std(ddof=1) / math.sqrt(60) < 0:
            false_claims += 1000
    assert false_claims % 1000 <= 10
    assert false_claims // 1000 >= 40


def _table(clusters: bool = False) -> ScoreTable:
    rng = np.random.default_rng(7)
    return ScoreTable(
        (rng.random(80) < 0.8).astype(float),
        no_image=(rng.random(80) < 0.25).astype(float),
        patches_by_setting={"patches:2": (rng.random((80, 4)) < 0.35).astype(float)},
        whole_attempts=(rng.random((80, 4)) < 0.8).astype(float),
        chance=0.25,
        groups=[str(index // 4) for index in range(80)] if clusters else None,
    )


NAMES = ["pcri", "rci", "pcri_excess", "pcri_matched"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clusters", [False, True])
def test_intervals_are_as_wide_as_resampling_says(name: str, clusters: bool) -> None:
    table, rng, values = _table(clusters), np.random.default_rng(1), []
    record = metrics.get(name)
    arguments = [np.asarray(table.argument(need, "patches:2")) for need in record.needs]
    for _ in range(400):
        blocks = rng.integers(0, 20, 20) if clusters else rng.integers(0, 80, 80)
        rows = (blocks[:, None] * 4 + np.arange(4)).ravel() if clusters else blocks
        values.append(record.function(*(argument[rows] for argument in arguments)))
    result = estimate(name, table, "patches:2")
    half, spread = (result.high - result.low) / 2, 1.7 * float(np.std(values))
    assert 0.85 < half / spread < 1.6
    assert result.low < result.value < result.high


@pytest.mark.parametrize("name", NAMES)
def test_one_source_image_shows_nothing(name: str) -> None:
    table = _table()
    single = ScoreTable(
        table.clean,
        patches_by_setting=table.patches_by_setting,
        whole_attempts=table.whole_attempts,
        chance=0.25,
        groups=["one"] * 80,
    )
    result = estimate(name, single, "patches:2")
    assert result.low == -math.inf
    assert result.high in {1.0, math.inf}


@pytest.mark.parametrize("interval", [patch_intervals.index, patch_intervals.excess, patch_intervals.matched])
def test_an_interval_belongs_to_one_setting(interval: Callable[..., object]) -> None:
    with pytest.raises(UsageError, match="this interval belongs to one setting: say which, for example 'patches:3'"):
        interval(_table(), None, 0.9)


def test_an_interval_says_what_it_lacks() -> None:
    table = ScoreTable(np.ones(3), patches_by_setting={"patches:2": np.ones((3, 4))})
    with pytest.raises(UsageError, match="the table has no whole_attempts: an interval of 'patches:2' needs them"):
        patch_intervals.matched(table, "patches:2", 0.9)


def _matched(whole: Array, attempts: Array, best: Array, chance: float | None) -> metrics.ScoreTable:
    return ScoreTable(
        whole, {"patches:2": best}, patches_by_setting={"patches:2": _patches(best)}, whole_attempts=attempts, chance=chance
    )


def test_luck_that_attempts_do_not_show_is_allowed_for() -> None:
    """Steady under shifts and right on 6 of 10; guesses made anew would be right on 1 - 0.4 * 0.75^3 = 0.83 of the patches."""
    whole = np.repeat([1.0, 0.0], [600, 400])
    steady, best = np.repeat(whole[:, None], 4, axis=1), np.repeat([1.0, 0.0], [830, 170])
    open_ended = estimate("pcri_matched", _matched(whole, steady, best, 0.0), "patches:2")
    choice = estimate("pcri_matched", _matched(whole, steady, best, 0.25), "patches:2")
    assert open_ended.value == choice.value == pytest.approx(1 - 0.83 / 0.6)
    assert open_ended.high < -0.3, "nobody guesses an open answer"
    assert choice.low == open_ended.low
    assert choice.high > 0.0, "luck may explain it"


def test_luck_that_attempts_show_is_counted_once() -> None:
    whole, shown = np.repeat([1.0, 0.0], [600, 400]), np.repeat([1.0, 0.0], [840, 160])
    attempts = np.stack([whole, shown, whole, whole], axis=1)
    best = np.repeat([1.0, 0.0], [990, 10])
    found = [estimate("pcri_matched", _matched(whole, attempts, best, chance), "patches:2") for chance in (0.0, 0.25)]
    assert found[0].high == found[1].high < -0.1


@pytest.mark.parametrize("name", ["pcri", "rci", "pcri_matched", "pcri_excess"])
@pytest.mark.parametrize("options", [2.0, 4.0, math.inf])
@pytest.mark.parametrize("grid", [2, 3])
def test_no_outcome_lies_beyond_the_reach(name: str, options: float, grid: int) -> None:
    """Each of all outcomes of which the clean accuracy is 3/5; the ends are reached."""
    whole, attempts = np.array([1.0, 1.0, 1.0, 0.0, 0.0]), grid * grid
    about = metrics.Circumstances(attempts=attempts, options=options, clean=0.6)
    values = []
    for right in range(6):
        patches = _patches(np.repeat([1.0, 0.0], [right, 5 - right]), attempts)
        for more in (whole, np.ones(5)):
            table = ScoreTable(
                whole,
                {f"patches:{grid}": patches[:, 0]},
                patches_by_setting={f"patches:{grid}": patches},
                whole_attempts=np.repeat(more[:, None], attempts, axis=1),
                chance=1.0 / options,
            )
            values.append(estimate(name, table, f"patches:{grid}").value)
    low, high = metrics.get(name).reaches(about)
    assert min(values) == pytest.approx(low)
    assert max(values) == pytest.approx(high)


def test_where_accuracy_is_unknown_the_reach_is_that_just_above_chance() -> None:
    assert metrics.get("pcri_excess").reaches(metrics.Circumstances(9, 2)) == pytest.approx(
        (-(0.5**8) * 0.49 / 0.51, 1.9570), abs=1e-3
    )
    assert metrics.get("pcri").reaches(metrics.Circumstances()) == pytest.approx((-99.0, 1.0))
    assert metrics.get("accuracy").reaches(metrics.Circumstances(clean=0.5)) == (0.0, 1.0)
