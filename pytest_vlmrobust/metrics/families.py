"""Properties of a family of models as it grows in size, by name, with their intervals.

They need the scores of several models, so they are not registered metrics: see :data:`FAMILY_METRICS`.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 (scale consistency).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import ROUNDING, Estimate
from pytest_vlmrobust.core.words import first_few, points

from .accuracy import Bounds
from .record import Better, CommonFacts
from .statistics.clusters import Clusters, one_sided
from .statistics.curves import slope_weights
from .statistics.means import BoundedMeanTest, is_binary
from .statistics.multiple import count_interval
from .statistics.paired import BoundTest, drop_test, interval_of
from .statistics.ratios import score_ratio_interval
from .table import Scores, clusters_of, mean, pair_scores

FamilyScores: TypeAlias = Sequence[ArrayLike] | Scores
"""Scores of several models on the same samples, shape (models, N)."""


def scale_gain(parameters: Sequence[float], scores: Sequence[float]) -> float:
    """Average gain per doubling of the number of parameters: the least-squares slope of the score over log2 of the size.

    With two models it is their difference over the number of doublings between them. The paper does not say how it averages over
    more than two; the slope weighs each step by the doublings it spans.

    Formula: ``sum over models k of w_k scores_k, with w the least-squares weights of log2(parameters)``

    Returns: Score per doubling; NaN for fewer than two sizes or a missing score.

    >>> round(scale_gain([3, 6, 12], [0.50, 0.55, 0.70]), 3)
    0.1
    """
    sizes, values = _family(parameters, scores)
    if values.size < 2 or np.isnan(values).any() or not np.ptp(sizes) > 0.0:
        return math.nan
    return float(slope_weights(np.log2(sizes)) @ values)


def scale_consistency(parameters: Sequence[float], scores: Sequence[float]) -> float:
    """Share of the steps to the next larger model that lose nothing: 1.0 when scores never fall with size.

    Formula: ``share of the steps k with scores_(k+1) >= scores_k, models in ascending size``

    Returns: A fraction in [0, 1]; NaN for fewer than two models or a missing score.

    >>> scale_consistency([3, 72, 7], [0.5, 0.6, 0.7])
    0.5
    """
    sizes, values = _family(parameters, scores)
    _require_different(sizes)
    if values.size < 2 or np.isnan(values).any():
        return math.nan
    steps = np.diff(values[np.argsort(sizes)])
    return float((steps >= -ROUNDING).mean())


class SizeTrend(NamedTuple):
    """A straight line through the mean drops of a family of models against the logarithm of their size."""

    slope: float
    """Mean drop gained per tenfold size."""
    r_squared: float
    """Share of the variance of the drops that the line explains, in [0, 1]; always 1 for two models."""


def size_trend(parameters: Sequence[float], drops: Sequence[float]) -> SizeTrend:
    """Fits the mean drop against the decimal logarithm of the number of parameters, by least squares.

    The paper does not name its unit: its slopes and R^2 follow from its mean drops per tenfold size, not per doubling or per
    parameter.

    Returns slope and R^2; NaN for fewer than two sizes or a missing drop; R^2 also if all drops are equal.

    Source: VLM-RobustBench appendix A.3.

    >>> [round(number, 3) for number in size_trend([4, 8], [0.024, 0.0213])]
    [-0.009, 1.0]
    """
    sizes, values = _family(parameters, drops)
    if values.size < 2 or np.isnan(values).any() or not np.ptp(sizes) > 0.0:
        return SizeTrend(math.nan, math.nan)
    slope = float(size_weights(sizes) @ values)
    total = float(((values - values.mean()) ** 2).sum())
    explained = slope**2 * float(((np.log10(sizes) - np.log10(sizes).mean()) ** 2).sum())
    return SizeTrend(slope, min(explained / total, 1.0) if total > ROUNDING**2 else math.nan)


def size_weights(parameters: ArrayLike) -> Scores:
    """Returns the weights of the models' values in their slope per tenfold size; the sizes must differ."""
    return slope_weights(np.log10(np.asarray(parameters, dtype=np.float64)))


def scale_gain_interval(
    parameters: Sequence[float],
    scores_by_model: FamilyScores,
    confidence: float = 0.90,
    source_images: Sequence[str] | None = None,
) -> Bounds:
    """Bounds the gain per doubling by the samples' own slopes: score test for 0/1 scores, guarded Student's t otherwise.

    The slope of the means is the mean of these slopes. For two models and 0/1 scores it is the interval of their difference.

    Returns ``(low, high)``, score per doubling; NaN for fewer than two sizes, no samples or a missing score.

    >>> low, high = scale_gain_interval([4, 16], [[0] * 36 + [1] * 833, [1] * 36 + [0] * 13 + [1] * 820])
    >>> round(2 * low, 4), round(2 * high, 4)
    (0.013, 0.0409)
    """
    one_sided(confidence)
    sizes, scores = _scored_family(parameters, scores_by_model)
    if not _comparable(scores) or not np.ptp(sizes) > 0.0:
        return math.nan, math.nan
    weights, clusters = slope_weights(np.log2(sizes)), clusters_of(source_images, scores.shape[1])
    steepest = float(weights.clip(min=0.0).sum())  # of a sample that only models above the mean size get right
    low, high = _mean_slope(weights / steepest @ scores, clusters, confidence, binary=is_binary(scores))
    return steepest * max(low, -1.0), steepest * min(high, 1.0)


def scale_consistency_interval(
    parameters: Sequence[float],
    scores_by_model: FamilyScores,
    confidence: float = 0.90,
    source_images: Sequence[str] | None = None,
) -> Bounds:
    """Bounds the share of steps that lose nothing, by partial conjunction of the tests of the single steps.

    A step counts as lost, or as kept, only if the scores of its two models show it: tails of flips for 0/1 scores, guarded
    Student's t for graded ones. A family of few sizes therefore has a wide interval unless its steps are large.

    Returns ``(low, high)``, fractions in [0, 1]; NaN for fewer than two models, no samples or a missing score.

    >>> scale_consistency_interval([3, 7, 72], [[0] * 50 + [1] * 50, [1] * 100, [1] * 50 + [0] * 50])
    (0.5, 0.5)
    """
    tail, sizes, scores = one_sided(confidence), *_scored_family(parameters, scores_by_model)
    _require_different(sizes)
    if not _comparable(scores):
        return math.nan, math.nan
    clusters = clusters_of(source_images, scores.shape[1])
    steps = itertools.pairwise(scores[np.argsort(sizes)])
    tests = [drop_test(smaller, larger[:, None], clusters) for smaller, larger in steps]
    shown_lost, shown_kept = (np.concatenate(p_values) for p_values in zip(*map(_p_values, tests), strict=True))
    fewest, most = count_interval(shown_lost, shown_kept, tail)
    return 1.0 - most / len(tests), 1.0 - fewest / len(tests)


def _mean_slope(slopes: Scores, clusters: Clusters, confidence: float, *, binary: bool) -> Bounds:
    """Bounds the mean of slopes in [-1, 1]; 0/1 scores can have finitely many different slopes."""
    if binary:
        possible = np.unique(np.append(slopes, (-1.0, 1.0)))
        ones = np.ones_like(slopes)
        return score_ratio_interval(slopes, ones, clusters, confidence, np.stack([possible, np.ones_like(possible)], axis=1))
    return interval_of(BoundedMeanTest.of(slopes[:, None], clusters, -1.0, 1.0), confidence)


def _p_values(test: BoundTest) -> tuple[Scores, Scores]:
    return test.p_above(0.0), test.p_below(0.0)


def _comparable(scores: Scores) -> bool:
    return len(scores) > 1 and scores.shape[1] > 0 and not bool(np.isnan(scores).any())


def _scored_family(parameters: Sequence[float], scores_by_model: FamilyScores) -> tuple[Scores, Scores]:
    """Returns the sizes (models,) and the scores (models, N)."""
    scores = pair_scores(**{f"scores_by_model[{model}]": model_scores for model, model_scores in enumerate(scores_by_model)})
    sizes, _ = _family(parameters, [mean(model_scores) for model_scores in scores])
    return sizes, np.array(scores).reshape(len(scores), -1)


def _require_different(sizes: Scores) -> None:
    if np.unique(sizes).size < sizes.size:
        raise ValueError(
            f"parameters are {sizes.tolist()}: expected models of different sizes, or which step is larger is unknown"
        )


def _family(parameters: Sequence[float], scores: Sequence[float]) -> tuple[Scores, Scores]:
    sizes, values = np.array(parameters, dtype=np.float64), np.array(scores, dtype=np.float64)
    if sizes.shape != values.shape:
        raise ValueError(f"{sizes.size} sizes and {values.size} scores: expected one score for each size")
    if (wrong := sizes[~((sizes > 0.0) & np.isfinite(sizes))]).size:
        raise ValueError(f"parameters has {float(wrong[0])!r}: expected a number of parameters above 0")
    return sizes, values


FamilyInterval: TypeAlias = Callable[[Sequence[float], FamilyScores, float, Sequence[str] | None], Bounds]
"""``(parameters, scores of each model, confidence, source images) -> (low, high)``; the level is two-sided."""


@dataclass(frozen=True, slots=True)
class FamilyProperty(CommonFacts):
    """One property of a family of models: its formula over sizes and mean scores, and facts for reports, policies and docs."""

    name: str
    function: Callable[[Sequence[float], Sequence[float]], float]
    interval: FamilyInterval = field(repr=False)
    _: KW_ONLY
    better: Better = "higher"
    suite: str = "observatory"
    reference: str = "The Perceptual Observatory section 3.3 (scale consistency)"
    validity: str = "at least two sizes"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def estimate(
        self,
        parameters: Sequence[float],
        scores: FamilyScores,
        groups: Sequence[str] | None = None,
        confidence: float = 0.90,
    ) -> Estimate:
        """Computes the property from the scores of the models of a family on the same samples.

        - ``parameters``: number of parameters of each model, in any unit and order.
        - ``scores``: the scores of each, shape (models, N), each in [0, 1]; NaN marks a missing one.
        - ``groups``: source image of each sample; None when all samples are independent.

        Returns an :class:`Estimate`, NaN with a reason if something is missing or the property is undefined. ``reason`` also
        names the size steps that lose.
        """
        one_sided(confidence)
        models = pair_scores(**{f"scores[{model}]": model_scores for model, model_scores in enumerate(scores)})
        samples = models[0].size if models else 0
        if not samples:
            return Estimate(math.nan, 0, reason="no samples")
        complete = samples - int(np.isnan(models).any(axis=0).sum())
        if complete < samples:
            return Estimate(math.nan, complete, reason=f"scores of {samples - complete} of {samples} samples are missing")
        means = [float(model_scores.mean()) for model_scores in models]
        value = self.function(parameters, means)
        if math.isnan(value):
            return Estimate(value, samples, reason=f"undefined: needs {self.validity}")

        def at(level: float) -> Bounds:
            low, high = self.interval(parameters, models, level, groups)
            return max(low, self.bounds[0]), min(high, self.bounds[1])

        return Estimate(value, samples, *at(confidence), confidence, reason=_losses(parameters, means), at=at)


def _losses(parameters: Sequence[float], means: Sequence[float]) -> str:
    """Returns which steps to the next larger model lose how much, or an empty string."""
    ordered = sorted(zip(parameters, means, strict=True))
    steps = [(score - next_score, size, larger) for (size, score), (larger, next_score) in itertools.pairwise(ordered)]
    lost = [f"{points(loss)} from {size:g} to {larger:g}" for loss, size, larger in steps if loss > ROUNDING]
    return f"loses {first_few(lost)}" if lost else ""


FAMILY_METRICS: Mapping[str, FamilyProperty] = {
    record.name: record
    for record in (
        FamilyProperty(
            "scale_gain",
            scale_gain,
            scale_gain_interval,
            unsuited="Two models show a difference and no trend: the interval is about the samples, and others of these "
            "sizes may differ as much. Use `scale_consistency` for whether a step loses.",
        ),
        FamilyProperty(
            "scale_consistency",
            scale_consistency,
            scale_consistency_interval,
            bounds=(0.0, 1.0),
            unsuited="It counts a loss of a tenth of a point like one of 20, and of two models it can only be 0 or 1. Use "
            "`scale_gain` for how much size gains.",
        ),
    )
}
"""The properties of families, by name."""
