"""Several models on the same samples: properties of a family that grows in size, and models side by side.

The properties need the scores of several models, so they are not registered metrics: see :data:`FAMILY_METRICS`.

Source: The Perceptual Observatory (arXiv 2512.15949), section 3.3 (scale consistency).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.estimate import ROUNDING, Estimate
from pytest_vlmrobust.core.words import first_few, points

from .accuracy import Bounds
from .corruption import types
from .record import Better, CommonFacts
from .statistics.clusters import Clusters, one_sided
from .statistics.curves import slope_weights
from .statistics.means import BoundedMeanTest, Ends, is_binary
from .statistics.multiple import Contest, count_interval
from .statistics.paired import BoundTest, TangoTest, drop_test, interval_of
from .statistics.ratios import score_ratio_interval
from .table import Scores, ScoreTable, as_scores, clusters_of, mean, name_scores, pair_scores, require_equal_lengths

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
    shown_lost = np.concatenate([test.p_above(0.0) for test in tests])
    shown_kept = np.concatenate([test.p_below(0.0) for test in tests])
    fewest, most = count_interval(shown_lost, shown_kept, tail)
    return 1.0 - most / len(tests), 1.0 - fewest / len(tests)


def _mean_slope(slopes: Scores, clusters: Clusters, confidence: float, *, binary: bool) -> Bounds:
    """Bounds the mean of slopes in [-1, 1]; 0/1 scores can have finitely many different slopes."""
    if binary:
        possible = np.unique(np.append(slopes, (-1.0, 1.0)))
        ones = np.ones_like(slopes)
        return score_ratio_interval(slopes, ones, clusters, confidence, np.stack([possible, np.ones_like(possible)], axis=1))
    return interval_of(BoundedMeanTest.of(slopes[:, None], clusters, -1.0, 1.0), confidence)


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


# SideBySide: scores of several models on the same samples under the same settings, and comparisons of the models.
#
# Each number uses the same samples for all models: a sample with a failed inference for one model is left out for all of them
# under that setting. Without failed inferences the values and intervals are those of the registered metrics.


Rows = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Values of M models, shape (M,), with each sample's influence on them, shape (N, M), of mean 0."""

    values: Scores
    influences: Scores

    def __add__(self, other: Means) -> Means:
        return Means(self.values + other.values, self.influences + other.influences)

    def over(self, count: int) -> Means:
        """Returns them divided by a number."""
        return Means(self.values / count, self.influences / count)


@dataclass(frozen=True, eq=False)
class SideBySide:
    """Scores of M > 1 models on the same N samples, clean and under the same settings; NaN marks a failed inference."""

    clean: Scores
    """Shape (M, N)."""
    by_setting: Mapping[str, Scores]
    """Setting to scores, shape (M, N)."""
    groups: Sequence[str] | None = None
    """The source image of each sample; None when all samples are independent."""
    clusters: Clusters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "clean", as_scores(self.clean, "clean", axes=2))
        checked = {name: as_scores(scores, name_scores("by_setting", name), axes=2) for name, scores in self.by_setting.items()}
        object.__setattr__(self, "by_setting", checked)
        for axis, noun in enumerate(("models", "samples")):
            sizes = {name_scores("by_setting", name): scores.shape[axis] for name, scores in checked.items()}
            require_equal_lengths({f"clean ({noun})": self.clean.shape[axis], **sizes})
        object.__setattr__(self, "clusters", Clusters.of(self.groups, self.samples))

    @property
    def models(self) -> int:
        """How many models there are, M."""
        return len(self.clean)

    @property
    def samples(self) -> int:
        """How many samples there are, N."""
        return int(self.clean.shape[1])

    def complete_samples(self, setting: str = "") -> Rows:
        """Returns which samples count under a setting: all models have a score for them, there and clean; shape (N,)."""
        scores = [self.clean, self.by_setting[setting]] if setting else [self.clean]
        return np.array(~np.isnan(np.concatenate(scores)).any(axis=0))

    def settings_with_samples(self) -> tuple[str, ...]:
        """Returns the settings under which at least one sample counts."""
        return tuple(name for name in self.by_setting if self.complete_samples(name).any())

    def failed_inferences(self) -> list[int]:
        """Returns how many inferences of each model failed, clean and under all settings."""
        scores = [self.clean, *self.by_setting.values()]
        return [int(sum(np.isnan(matrix[model]).sum() for matrix in scores)) for model in range(self.models)]

    def score_table(self, model: int, setting: str = "", no_image: Scores | None = None) -> ScoreTable:
        """Returns one model's clean and perturbed scores of the samples that count; ``no_image`` has shape (M, N)."""
        rows = self.complete_samples(setting)
        groups = None if self.groups is None else [name for name, kept in zip(self.groups, rows, strict=True) if kept]
        by_setting = {setting: self.by_setting[setting][model, rows]} if setting else {}
        return ScoreTable(self.clean[model, rows], by_setting, None if no_image is None else no_image[model, rows], groups=groups)

    def clean_accuracy(self) -> Contest:
        """Mean clean score; needs a sample that counts."""
        return self._contest(self._means(self.clean, self.complete_samples()), Ends(0.0, 1.0), ("",))

    def mean_accuracy(self, settings: Sequence[str]) -> Contest:
        """Mean score under each setting, averaged over one or more settings that count."""
        return self._contest(self._average([self._accuracy(name) for name in settings]), Ends(0.0, 1.0), settings)

    def mean_drop(self, settings: Sequence[str]) -> Contest:
        """Mean drop from clean to each setting, averaged over one or more that count: the metric ``mean_drop``."""
        drops = [self._means(self.clean - self.by_setting[name], self.complete_samples(name)) for name in settings]
        return self._contest(self._average(drops), Ends(-1.0, 1.0), settings, losses=True)

    def weighted_accuracy(self, weights: Scores) -> BoundedMeanTest:
        """Tests a weighted sum of the models' clean accuracies, weights of shape (M,); needs a sample that counts."""
        ends = float(weights.clip(max=0.0).sum()), float(weights.clip(min=0.0).sum())
        return self._weighted(self._means(self.clean, self.complete_samples()), weights, *ends, ("",))

    def weighted_drop(self, weights: Scores, settings: Sequence[str]) -> BoundedMeanTest:
        """Tests a weighted sum of the models' mean drops over one or more settings that count, with weights of shape (M,).

        Weights 1 and -1 give the paired difference of two models; weights of a slope give the trend over sizes.
        """
        drops = [self._means(self.clean - self.by_setting[name], self.complete_samples(name)) for name in settings]
        most = float(np.abs(weights).sum())
        return self._weighted(self._average(drops), weights, -most, most, settings)

    def _weighted(
        self, means: Means, weights: Scores, smallest: float, largest: float, settings: Sequence[str]
    ) -> BoundedMeanTest:
        points = ((means.values + means.influences) @ weights)[:, None]
        count = self.clusters.effective * self._counted(settings)
        value, variances = np.array([float(means.values @ weights)]), self.clusters.variances(points)
        return BoundedMeanTest.from_variances(value, variances, count, self.clusters.degrees_of_freedom, Ends(smallest, largest))

    def of_samples(self, kept: Rows) -> SideBySide:
        """Returns the same for the samples where ``kept`` is true, shape (N,)."""
        groups = None if self.groups is None else [name for name, is_kept in zip(self.groups, kept, strict=True) if is_kept]
        return SideBySide(self.clean[:, kept], {name: scores[:, kept] for name, scores in self.by_setting.items()}, groups)

    def mean_corruption_error(self, settings: Sequence[str], reference: int) -> Contest:
        """Errors relative to a reference model's: the metric ``mean_corruption_error`` over one or more settings that count.

        The reference model must make an error under each perturbation, see :meth:`perfect`.
        """
        kinds = types(settings).values()
        errors = [self._errors(levels) for levels in kinds]
        ratios = [self._ratio(part, reference) for part in errors]
        average = self._average(ratios)
        weights = [len(levels) / float(part.values[reference]) / len(kinds) for levels, part in zip(kinds, errors, strict=True)]
        best = np.sum([weight * part.values for weight, part in zip(weights, ratios, strict=True)], axis=0)
        ends = Ends(average.values - best, average.values + sum(weights))
        return Contest.of(average.values, average.influences, self.clusters, ends, losses=True)

    def perfect(self, settings: Sequence[str], model: int) -> list[str]:
        """Returns the perturbations under which a model makes no error."""
        kinds = types(settings).items()
        return [name for name, levels in kinds if not self._errors(levels).values[model] > ROUNDING]

    def drops(self, settings: Sequence[str], model: int) -> dict[str, float]:
        """Returns the drop of one model under each setting that counts."""
        lost = {name: (self.clean - self.by_setting[name])[model, self.complete_samples(name)] for name in settings}
        return {name: float(values.mean()) for name, values in lost.items()}

    def drop_tests(self, settings: Sequence[str], model: int) -> list[BoundTest]:
        """Returns tests that together cover the drops of one model under settings that count."""
        by_rows: dict[bytes, list[str]] = {}
        for name in settings:
            by_rows.setdefault(self.complete_samples(name).tobytes(), []).append(name)
        tests = [self._drop_test(names, model) for names in by_rows.values()]
        binary = [test for test in tests if isinstance(test, TangoTest)]
        graded = [test for test in tests if not isinstance(test, TangoTest)]
        return [*([TangoTest.join(binary)] if binary else []), *graded]

    def _drop_test(self, settings: Sequence[str], model: int) -> BoundTest:
        rows = np.flatnonzero(self.complete_samples(settings[0]))
        perturbed = np.stack([self.by_setting[name][model, rows] for name in settings], axis=1)
        return drop_test(self.clean[model, rows], perturbed, self.clusters.within(rows))

    def _contest(self, means: Means, ends: Ends, settings: Sequence[str], *, losses: bool = False) -> Contest:
        return Contest.of(means.values, means.influences, self.clusters, ends, self._counted(settings), losses=losses)

    def _counted(self, settings: Sequence[str]) -> float:
        """Returns the share of samples that count, on average over settings."""
        return float(np.mean([self.complete_samples(name).mean() for name in settings]))

    def _accuracy(self, setting: str) -> Means:
        return self._means(self.by_setting[setting], self.complete_samples(setting))

    def _errors(self, settings: Sequence[str]) -> Means:
        accuracies = reduce(Means.__add__, [self._accuracy(name) for name in settings])
        return Means(len(settings) - accuracies.values, -accuracies.influences)

    def _means(self, scores: Scores, rows: Rows) -> Means:
        """Returns the mean over some samples; with fewer samples, each has more influence on it."""
        counted = scores[:, rows].T
        values = counted.mean(axis=0)
        influences = np.zeros((self.samples, self.models))
        influences[rows] = (counted - values) * (self.samples / len(counted))
        return Means(values, influences)

    @staticmethod
    def _ratio(errors: Means, reference: int) -> Means:
        """Returns sums of errors divided by those of one model; the influence on a ratio E/R is (e - (E/R) r) / R."""
        unit = float(errors.values[reference])
        ratios = errors.values / unit
        return Means(ratios, (errors.influences - ratios * errors.influences[:, [reference]]) / unit)

    @staticmethod
    def _average(parts: Sequence[Means]) -> Means:
        return reduce(Means.__add__, parts).over(len(parts))
