"""The properties of a family of models of different sizes, by name, each with its interval.

They belong to no table of one model, and stand beside the registered metrics: :data:`FAMILY_METRICS`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from pytest_vlmrobust.core.estimate import Estimate

from . import scaling
from .intervals import Bounds
from .record import Better
from .scores import ROUNDING, paired
from .statistics.quantiles import one_sided
from .wording import listed, points

FamilyInterval: TypeAlias = Callable[[Sequence[float], scaling.FamilyScores, float, Sequence[str] | None], Bounds]
"""``(parameters, scores of each model, confidence, source images) -> (low, high)``; the level is two-sided."""


@dataclass(frozen=True, slots=True)
class FamilyProperty:
    """One property of a family of models: its formula over sizes and mean scores, and what reports, policies and docs read."""

    name: str
    function: Callable[[Sequence[float], Sequence[float]], float]
    interval: FamilyInterval = field(repr=False)
    unit: str = "fraction"
    better: Better = "higher"
    bounds: tuple[float, float] = (-math.inf, math.inf)
    reference: str = "The Perceptual Observatory section 3.3 (scale consistency)"
    validity: str = "at least two sizes"
    suite: str = "observatory"

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def estimate(
        self,
        parameters: Sequence[float],
        scores: scaling.FamilyScores,
        groups: Sequence[str] | None = None,
        confidence: float = 0.90,
    ) -> Estimate:
        """Computes the property from the scores of the models of a family on the same samples.

        Args:
            parameters: number of parameters of each model, in any unit and order.
            scores: the scores of each, shape (models, N), each in [0, 1]; NaN marks a missing one.
            groups: source image of each sample; None when all samples are independent.
            confidence: two-sided level of the interval in (0, 1).

        Returns:
            An :class:`Estimate`, NaN with a reason where something is missing or the property is undefined. ``reason`` also names
            the steps in size that lose.

        Raises:
            ValueError: unequal lengths, a size that is no positive number, or a level or a score out of range.
        """
        one_sided(confidence)
        models = paired(**{f"scores[{model}]": own for model, own in enumerate(scores)})
        samples = models[0].size if models else 0
        if not samples:
            return Estimate(math.nan, 0, reason="no samples")
        complete = samples - int(np.isnan(models).any(axis=0).sum())
        if complete < samples:
            return Estimate(math.nan, complete, reason=f"scores of {samples - complete} of {samples} samples are missing")
        means = [float(own.mean()) for own in models]
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
    steps = [(one - other, size, larger) for (size, one), (larger, other) in itertools.pairwise(ordered)]
    lost = [f"{points(loss)} from {size:g} to {larger:g}" for loss, size, larger in steps if loss > ROUNDING]
    return f"loses {listed(lost)}" if lost else ""


FAMILY_METRICS: Mapping[str, FamilyProperty] = {
    record.name: record
    for record in (
        FamilyProperty("scale_gain", scaling.scale_gain, scaling.scale_gain_interval),
        FamilyProperty("scale_consistency", scaling.scale_consistency, scaling.scale_consistency_interval, bounds=(0.0, 1.0)),
    )
}
"""The properties of families, by name."""
