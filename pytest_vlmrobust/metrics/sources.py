"""Source images given to a function instead of a table: which samples move together."""

from __future__ import annotations

from collections.abc import Sequence

from .statistics.clusters import Clusters


def clusters_of(groups: Sequence[str] | None, samples: int) -> Clusters:
    """Returns the clusters of ``samples`` samples by the names of their source images; None when all are independent.

    Raises:
        ValueError: not one name for each sample.
    """
    if groups is not None and len(groups) != samples:
        raise ValueError(f"{len(groups)} source images for {samples} samples: expected one for each sample, or None")
    return Clusters.of(groups, samples)
