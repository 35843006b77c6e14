"""SideBySide: scores of several models on the same samples under the same settings, and comparisons of the models.

Each number uses the same samples for all models: a sample with a failed inference for one model is left out for all of them under
that setting. Without failed inferences the values and intervals are those of the registered metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.estimate import ROUNDING

from .corruption import types
from .statistics.clusters import Clusters
from .statistics.means import BoundedMeanTest, Ends
from .statistics.multiple import Contest
from .statistics.paired import BoundTest, TangoTest, drop_test
from .table import Scores, ScoreTable, as_scores, name_scores, require_equal_lengths

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
        groups = None if self.groups is None else [name for name, own in zip(self.groups, kept, strict=True) if own]
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
