"""Slow plain-Python readings of the papers' formulas, against the vectorised ones on random scores."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pytest_vlmrobust import metrics

Sweep = dict[str, list[int]]


def _scores(seed: int) -> tuple[list[int], list[int], Sweep, Sweep]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))

    def draw(rate: float) -> list[int]:
        return [int(value) for value in rng.random(n) < rate]

    names = [f"kind{kind}:{level}" for kind in range(4) for level in ("low", "mid", "high")] + ["flip_v", "invert"]
    clean, blind = [1, *draw(0.8)[1:]], [0, *draw(0.3)[1:]]
    return clean, blind, {name: draw(rng.uniform(0.4, 0.9)) for name in names}, {name: [0, *draw(0.5)[1:]] for name in names}


def _accuracy(scores: list[int]) -> Fraction:
    return Fraction(sum(scores), len(scores))


def _drop(clean: list[int], perturbed: list[int]) -> Fraction:
    return _accuracy(clean) - _accuracy(perturbed)


@pytest.mark.cases("seed", range(30))
def test_summaries(seed: int) -> None:
    clean, blind, sweep, _ = _scores(seed)
    drops = {name: _drop(clean, scores) for name, scores in sweep.items()}
    low = [drop for name, drop in drops.items() if name.endswith(":low")]
    assert metrics.worst_case_drop(clean, sweep) == float(max(drops.values()))
    assert metrics.worst_at_low(clean, sweep) == float(max(low))
    assert metrics.benign_at_low(clean, sweep) == float(Fraction(sum(drop < Fraction(1, 100) for drop in low), len(low)))
    severe = [drop > Fraction(1, 10) * _accuracy(clean) for drop in drops.values()]
    assert metrics.severe_failure_rate(clean, sweep) == sum(severe) / len(severe)
    catastrophic = [drop > Fraction(1, 10) for drop in drops.values()]
    assert metrics.catastrophic_rate(clean, sweep) == sum(catastrophic) / len(catastrophic)
    assert metrics.mean_drop(clean, sweep) == pytest.approx(float(sum(drops.values()) / len(drops)))
    if (gain := _drop(clean, blind)) > 0:
        rces = [drop / gain for drop in drops.values()]
        assert metrics.mean_relative_corruption_error(clean, sweep, blind) == pytest.approx(float(sum(rces) / len(rces)))
    else:
        assert math.isnan(metrics.mean_relative_corruption_error(clean, sweep, blind))


@pytest.mark.cases("seed", range(30))
def test_flips(seed: int) -> None:
    clean, _, sweep, _ = _scores(seed)
    harmful = [sum(c == 1 and x == 0 for c, x in zip(clean, scores, strict=True)) / len(clean) for scores in sweep.values()]
    helpful = [sum(c == 0 and x == 1 for c, x in zip(clean, scores, strict=True)) / len(clean) for scores in sweep.values()]
    assert [metrics.flip_rates(clean, scores) for scores in sweep.values()] == list(zip(harmful, helpful, strict=True))
    assert metrics.mean_harmful_flip_rate(clean, sweep) == pytest.approx(sum(harmful) / len(harmful))
    assert metrics.mean_helpful_flip_rate(clean, sweep) == pytest.approx(sum(helpful) / len(helpful))


@pytest.mark.cases("seed", range(30))
def test_mean_corruption_error(seed: int) -> None:
    _, _, sweep, reference = _scores(seed)
    ratios = []
    for kind in ("kind0", "kind1", "kind2", "kind3", "flip_v", "invert"):
        names = [name for name in sweep if name.partition(":")[0] == kind]
        errors = [sum(1 - score for name in names for score in scores[name]) for scores in (sweep, reference)]
        ratios.append(Fraction(errors[0], errors[1]))
    assert metrics.mean_corruption_error(sweep, reference) == pytest.approx(float(sum(ratios) / len(ratios)))


@pytest.mark.cases("seed", range(30))
def test_severity(seed: int) -> None:
    clean, _, sweep, _ = _scores(seed)
    violations, correlations = [], []
    for kind in range(4):
        low, mid, high = (_drop(clean, sweep[f"kind{kind}:{level}"]) for level in ("low", "mid", "high"))
        violations.append(low > mid or mid > high)
        correlations.append(_spearman([low, mid, high]))
    defined = [value for value in correlations if value is not None]
    assert metrics.mean_severity_violation(clean, sweep) == sum(violations) / 4
    assert metrics.mean_severity_correlation(clean, sweep) == pytest.approx(sum(defined) / len(defined))


def _spearman(drops: list[Fraction]) -> float | None:
    ranks = [sum(other < drop for other in drops) + (sum(other == drop for other in drops) + 1) / 2 for drop in drops]
    spread = sum((rank - 2) ** 2 for rank in ranks)
    return (ranks[2] - ranks[0]) / math.sqrt(2 * spread) if spread else None


@pytest.mark.cases("seed", range(30))
def test_patches(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 40))
    whole, patches = [1, *rng.integers(0, 2, n - 1).tolist()], rng.integers(0, 2, (n, 9)).tolist()
    best = Fraction(sum(max(row) for row in patches), sum(whole))
    assert metrics.pcri(whole, patches) == pytest.approx(float(1 - best))
    total = sum(map(sum, patches))
    assert metrics.patch_contribution(patches) == tuple(sum(row[j] for row in patches) / total for j in range(9))
