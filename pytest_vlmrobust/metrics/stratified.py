"""The drop of a stratified sample, and what it says about the whole benchmark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.words import first_few

from .scores import paired, require_equal_lengths
from .statistics.clusters import Clusters, one_sided
from .statistics.groups import Strata


def stratified_drop(
    clean: ArrayLike,
    perturbed: ArrayLike,
    strata: Sequence[str],
    population: Mapping[str, int],
    *,
    finite: bool = True,
    groups: Sequence[str] | None = None,
    confidence: float = 0.90,
) -> Estimate:
    """Estimates the accuracy drop on a whole benchmark of which some samples of each stratum were drawn at random.

    Args:
        clean: shape (N,), each in [0, 1].
        perturbed: shape (N,), the same samples in the same order.
        strata: the stratum of each sample, N names.
        population: how many samples each stratum of the benchmark has.
        finite: whether the claim is about the benchmark itself (its finite size then narrows the interval), or about what the
            benchmark was drawn from.
        groups: the source image of each sample; None when all samples are independent.
        confidence: two-sided level of the interval in (0, 1).

    Returns:
        The drop weighted by the strata's sizes, by tails of flips for 0/1 scores and guarded Student's t for graded ones; a
        benchmark of which every sample was drawn has an interval of width 0. ``value`` is NaN for no samples or a missing score.

    Raises:
        ValueError: unequal lengths, a score outside [0, 1], a stratum that was not drawn from, is unknown or has more samples
            than members, or a level outside (0, 1).
    """
    before, after = paired(clean=clean, perturbed=perturbed)
    require_equal_lengths({"clean": len(before), "strata": len(strata)})
    tail = one_sided(confidence)
    differences = before - after
    if not differences.size or np.isnan(differences).any():
        missing = int(np.isnan(differences).sum())
        return Estimate(math.nan, differences.size - missing, reason=f"scores of {missing} samples are missing")
    design = Strata(*_codes(strata, population), Clusters.of(groups, differences.size), finite)
    value = float(design.means(differences[:, None])[0])
    if design.exhausted:
        return Estimate(value, differences.size, value, value, confidence)
    test = design.test_of_differences(differences[:, None])
    return Estimate(value, differences.size, float(test.lower(tail)[0]), float(test.upper(tail)[0]), confidence)


def _codes(
    strata: Sequence[str], population: Mapping[str, int]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], np.ndarray[tuple[int], np.dtype[np.float64]]]:
    drawn = Counter(strata)
    if unknown := [name for name in drawn if name not in population]:
        raise ValueError(f"population lacks the strata {first_few(unknown)}: say how many samples each has")
    if empty := [name for name, size in population.items() if size and name not in drawn]:
        raise ValueError(f"no sample of {first_few(empty)} was drawn: nothing is known about these strata. Draw from each")
    if small := [f"{name} ({drawn[name]} of {population[name]})" for name in drawn if drawn[name] > population[name]]:
        raise ValueError(f"more samples than members: {first_few(small)}. Expected the size of the whole stratum")
    names = {name: code for code, name in enumerate(drawn)}
    return np.array([names[name] for name in strata], dtype=np.intp), np.array([float(population[name]) for name in drawn])
