"""In which order a cell's samples are asked: seeded, fixed before the run, and independent for each cell.

The order is the only randomness behind a dataset verdict. Cells with independent orders may be advanced under any schedule,
however it looks at the evidence; cells that share an order must advance together, or one would peek at the samples that come
next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.fingerprint import rng_for

Scheme = Literal["uniform", "stratified", "fixed"]
Indices = NDArray[np.intp]

_PURPOSE = "order of an audit"


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A permutation of a cell's N samples, and what is random about it.

    ``uniform``: every permutation is equally likely. ``stratified``: every permutation within the samples of reference 1, and
    within those of reference 0, is. ``fixed``: nothing is, so only certainty can decide.
    """

    samples: Indices
    """Sample indices in the order in which they are asked, shape (N,)."""
    scheme: Scheme

    def __post_init__(self) -> None:
        if not np.array_equal(np.sort(self.samples), np.arange(self.samples.size)):
            raise ValueError(f"an order of {self.samples.size} samples must name each of 0..{self.samples.size - 1} once")


def uniform_order(seed: int, model: str, dataset: str, setting: str, size: int) -> Order:
    """Returns the order of one cell, the same in every process.

    Args:
        seed: the run's seed; it belongs in the report, for another seed is another test.
        model: the cell's model.
        dataset: the cell's data set.
        setting: the cell's setting.
        size: number of samples N.

    >>> uniform_order(1234, "tiny", "shapes", "fog:low", 5).scheme
    'uniform'
    """
    return Order(rng_for(seed, _PURPOSE, model, dataset, setting).permutation(size).astype(np.intp), "uniform")


def pair_order(seed: int, model: str, dataset: str, settings: Sequence[str], size: int) -> Order:
    """Returns the order of all (setting, sample) pairs of a sweep, for a gate on its mean drop or mean RCE.

    Pair ``p`` is ``divmod(p, size)``: the position in ``settings``, and the sample. The matching limit is one of :mod:`.limits`
    over the clean (and no-image) scores repeated once for each setting, ``np.tile(clean, len(settings))``.

    Args:
        seed: the run's seed.
        model: the sweep's model.
        dataset: the sweep's data set.
        settings: the sweep's settings, in the order that numbers the pairs.
        size: number of samples N of each setting.
    """
    generator = rng_for(seed, _PURPOSE, model, dataset, *settings)
    return Order(generator.permutation(size * len(settings)).astype(np.intp), "uniform")


def stratified_order(seed: int, model: str, dataset: str, setting: str, reference: ArrayLike, *, pace: float = 4.0) -> Order:
    """Returns an order for the stratified evidence: random within each stratum, the two mixed evenly.

    Args:
        seed: the run's seed.
        model: the cell's model.
        dataset: the cell's data set.
        setting: the cell's setting.
        reference: known scores, shape (N,), each 0 or 1.
        pace: how many times as fast the samples of reference 1 are used up as those of reference 0; infinite asks them first.

    Raises:
        ValueError: ``pace`` is not positive.
    """
    if not pace > 0.0:
        raise ValueError(f"pace is {pace!r}: expected a positive number, such as 4.0")
    right = np.asarray(reference) > 0.0
    shuffled = rng_for(seed, _PURPOSE, "strata", model, dataset, setting).permutation(right.size).astype(np.intp)
    is_right = right[shuffled]
    # when a stratum's i-th of n samples is due, as a share of the time that the slower one takes
    due = np.where(
        is_right, np.cumsum(is_right) / max(int(right.sum()), 1) / pace, np.cumsum(~is_right) / max(int((~right).sum()), 1)
    )
    return Order(shuffled[np.lexsort((~is_right, due))], "stratified")


def right_first_order(reference: ArrayLike) -> Order:
    """Returns the order that asks the samples of reference 1 first: the shortest way to a certain PASS of a weak model.

    Args:
        reference: known scores, shape (N,).
    """
    return Order(np.argsort(-np.asarray(reference, dtype=np.float64), kind="stable"), "fixed")
