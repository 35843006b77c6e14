"""What every registered metric must hold, and every estimate of one."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.metrics import Metric, Needs, ScoreTable, estimate, get, names
from pytest_vlmrobust.metrics.table import WITHOUT_SCORES
from pytest_vlmrobust.testing import INTERVALS, LAWS, PROFILES, PROPERTIES, check_metric, checks_of

Scores: TypeAlias = NDArray[np.float64]

LEVELS = ("low", "mid", "high")
SETTINGS = [f"kind{kind}:{level}" for kind in range(4) for level in LEVELS] + ["flip_v", "invert"]
RESOLUTIONS = [f"resolution:{edge}" for edge in (112, 224, 448, 896)]

every_metric = pytest.mark.cases("name", names())


@cache
def _table(seed: int, *, graded: bool = False, clustered: bool = False, n: int = 120) -> ScoreTable:
    rng = np.random.default_rng(seed)

    def scores(*shape: int, rate: float = 0.7) -> Scores:
        return rng.random(shape) ** (1 / rate - 1) if graded else (rng.random(shape) < rate).astype(float)

    return ScoreTable(
        scores(n, rate=0.85),
        {name: scores(n, rate=rng.uniform(0.5, 0.85)) for name in SETTINGS + RESOLUTIONS},
        no_image=scores(n, rate=0.35),
        reference_by_setting={
            name: scores(n, rate=0.7 if name == "clean" else 0.4) for name in ("clean", *SETTINGS, *RESOLUTIONS)
        },
        groups=[str(index // 3) for index in range(n)] if clustered else None,
        patches_by_setting={"patches:2": scores(n, 4, rate=0.5)},
        positions=["left", "right"] * (n // 2),
        people=["f", "m", "m", "f"] * (n // 4),
        categories=["read", "count", "colour"] * (n // 3),
        chance=0.25,
        chance_levels=scores(n, rate=0.4),
        whole_attempts=scores(n, 4, rate=0.8),
        baseline_by_setting={name: scores(n, rate=0.7) for name in ("clean", *SETTINGS, *RESOLUTIONS)},
        unhinted_by_setting={name: scores(n, rate=0.6) for name in SETTINGS + RESOLUTIONS},
        base_by_setting={name: scores(n, rate=0.6) for name in SETTINGS + RESOLUTIONS},
        confidences={name: rng.random(n).round(2) for name in ("clean", *SETTINGS)},
        same_by_setting={name: scores(n, rate=0.8) for name in SETTINGS + RESOLUTIONS},
        chosen_by_letter={name: scores(n, rate=0.3) for name in "ABC"},
        right_by_letter={name: scores(n, rate=0.3) for name in "ABC"},
    )


def _changed(table: ScoreTable, change: Callable[[Scores], Scores], order: Sequence[int] | None = None) -> ScoreTable:
    """Returns the table with every array changed, and groups, positions and people in another order."""

    def of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: of(inner) for key, inner in value.items()}
        if isinstance(value, np.ndarray):
            return change(value)
        return [value[index] for index in order] if order is not None and isinstance(value, list | tuple) else value

    given = [field.name for field in dataclasses.fields(ScoreTable) if field.init]
    return ScoreTable(**{name: of(getattr(table, name)) for name in given})


def _setting(record: Metric) -> str | None:
    if record.scope == "sweep":
        return None
    return "patches:2" if Needs.PATCHES in record.needs else "kind1:high"


def _estimate(name: str, table: ScoreTable, confidence: float = 0.90) -> Estimate:
    return estimate(name, table, _setting(get(name)), confidence)


@pytest.mark.parametrize("name", names())
def test_its_formula_has_every_property(name: str) -> None:
    for check in PROPERTIES.keys() & {*checks_of(name)}:
        check_metric(name, examples=30 if check in {"oracle", "monotone"} else PROFILES["vlm-fast"], check=check)


@pytest.mark.study
@pytest.mark.parametrize("name", names())
def test_its_interval_and_verdicts_pass_the_checks_for_users(name: str) -> None:
    """On all examples of the default profile: a gate tries the metrics of this package on a part of them."""
    for check in (*INTERVALS, *LAWS):
        if check in checks_of(name):
            check_metric(name, examples=PROFILES["vlm-fast"], check=check)


@every_metric
def test_its_record_is_complete(name: str) -> None:
    record = get(name)
    assert record.name == name == record.function.__name__
    assert record.summary.endswith((".", ":", "`."))
    assert record.unit in {"fraction", "ratio", "correlation"}
    papers = ("VLM-RobustBench", "PCRI", "RCI", "Res-Bench", "The Perceptual Observatory")
    assert any(paper in record.reference for paper in papers) or re.search(r"\b(19|20)\d\d\b", record.reference)
    assert all(part in (record.function.__doc__ or "") for part in ("Formula:", "Returns:"))
    assert record.validity or record.gate is None


def _spoilt(value: Any) -> Any:
    """Returns scores of which the first is a percentage."""
    if isinstance(value, Mapping):
        return {**value, next(iter(value)): _spoilt(next(iter(value.values())))}
    scores = np.array(value)
    scores.flat[0] = 50.0
    return scores


@every_metric
def test_every_metric_refuses_what_the_package_says(name: str) -> None:
    """The docstring of the package says once, for all metrics, what they take and what they raise."""
    record, table = get(name), _table(0)
    arguments = [table.argument(need, _setting(record)) for need in record.needs]
    for position, need in enumerate(record.needs):
        if need in WITHOUT_SCORES:
            continue
        spoilt = [*arguments[:position], _spoilt(arguments[position]), *arguments[position + 1 :]]
        with pytest.raises(ValueError, match="a score lies in"):
            record.function(*spoilt)


@every_metric
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("clustered", [False, True])
def test_its_estimate_is_made_of_built_in_numbers_in_order(name: str, graded: bool, clustered: bool) -> None:
    result = _estimate(name, _table(2 * graded + clustered, graded=graded, clustered=clustered))
    assert result.n == 120
    assert [type(number) for number in (result.value, result.low, result.high, result.confidence)] == [float] * 4
    low, high = get(name).bounds
    assert low - 1e-9 <= result.value <= high + 1e-9
    if get(name).interval is None:
        assert math.isnan(result.low)
        assert math.isnan(result.high)
        assert math.isnan(result.confidence)
    else:
        assert low <= result.low <= result.value <= result.high <= high
        assert result.confidence == 0.90


@every_metric
def test_more_confidence_is_never_narrower(name: str) -> None:
    table = _table(1)
    narrow, wide = _estimate(name, table, 0.80), _estimate(name, table, 0.99)
    assert math.isnan(narrow.low) or wide.low <= narrow.low <= narrow.high <= wide.high


@every_metric
def test_its_interval_does_not_depend_on_the_order_of_samples(name: str) -> None:
    table, order = _table(2, clustered=True), np.random.default_rng(0).permutation(120)
    shuffled = _changed(table, lambda scores: scores[order], order.tolist())
    before, after = _estimate(name, table), _estimate(name, shuffled)
    assert (after.value, after.low, after.high) == pytest.approx((before.value, before.low, before.high), nan_ok=True, abs=1e-9)


@every_metric
def test_without_samples_its_estimate_is_unknown(name: str) -> None:
    result = _estimate(name, _empty())
    assert math.isnan(result.value)
    assert math.isnan(result.low)
    assert math.isnan(result.high)
    assert (result.n, result.reason) == (0, "no samples")


def _empty() -> ScoreTable:
    return _changed(_table(0), lambda scores: scores[:0], [])


@every_metric
def test_one_missing_sample_makes_its_estimate_unknown(name: str) -> None:
    def holed(scores: Scores) -> Scores:
        changed = scores.copy()
        changed[5] = math.nan
        return changed

    broken = _changed(_table(3), holed)
    result = _estimate(name, broken)
    assert math.isnan(result.value)
    assert math.isnan(result.low)
    assert result.n == 119
    assert result.reason.startswith("scores of 1 of 120 samples are missing: ")


@every_metric
def test_a_part_of_a_sweep_never_passes_for_the_whole(name: str) -> None:
    if Needs.PERTURBED_BY_SETTING in get(name).needs:
        covered = (" of 133 settings", " of 42 ", "over 18 settings")  # the last: no published number of settings
        assert any(part in _estimate(name, _table(4)).reason for part in covered)
