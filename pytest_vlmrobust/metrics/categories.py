"""Which questions suffer most: the mean drop of each category."""

from __future__ import annotations

import math
from collections.abc import Mapping


def category_sensitivity(clean: Mapping[str, float], by_setting: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean accuracy drop over all settings for each category of questions: which skill suffers most.

    Args:
        clean: category to accuracy on unchanged pictures, a fraction in [0, 1].
        by_setting: setting to the accuracies of the same categories under it.

    Returns:
        Category to a fraction in [-1, 1], the largest drop first; NaN where an accuracy is missing, and for no settings.

    Source: VLM-RobustBench appendix A.2.

    >>> category_sensitivity({"colour": 1.0, "count": 1.0}, {"fog:low": {"colour": 1.0, "count": 0.5}})
    {'count': 0.5, 'colour': 0.0}
    """
    drops = {name: _mean([before - after.get(name, math.nan) for after in by_setting.values()]) for name, before in clean.items()}
    return dict(sorted(drops.items(), key=lambda item: math.inf if math.isnan(item[1]) else -item[1]))


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
