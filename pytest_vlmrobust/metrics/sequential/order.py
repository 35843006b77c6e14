"""The order of a cell's samples, fixed before the run, and which cells of a sweep to ask first.

The order is the only randomness behind a dataset verdict. Cells may share an order, and be advanced under any schedule, where
what is shown of each is shown by its own evidence: that rarely ever exceeds 1/alpha. Evidence of several cells may be averaged
only where their orders are independent, or they advance together: one cell would otherwise reveal the next samples of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pytest_vlmrobust.core.fingerprint import derive_seed, rng_for

Scheme = Literal["uniform", "stratified", "fixed"]
Indices = NDArray[np.intp]

_PURPOSE = "order of an audit"


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A permutation of a cell's N samples, and its kind of randomness.

    ``uniform``: every permutation is equally likely. ``stratified``: every permutation within the samples of reference 1, and
    within those of reference 0, is. ``fixed``: nothing is, so only certainty can decide.
    """

    samples: Indices
    """Sample indices in the order in which they are asked, shape (N,)."""
    scheme: Scheme

    def __post_init__(self) -> None:
        if not np.array_equal(np.sort(self.samples), np.arange(self.samples.size)):
            raise ValueError(f"an order of {self.samples.size} samples must name each of 0..{self.samples.size - 1} once")


def pair_order(seed: int, settings: Sequence[str], names: Sequence[str]) -> Order:
    """Returns the order of all (setting, sample) pairs of a sweep, for a gate on its mean drop or mean RCE.

    Pair ``p`` is ``divmod(p, len(names))``: the position in ``settings``, and the sample. The matching limit is one of
    :mod:`.limits` over the clean (and no-image) scores repeated once for each setting, ``np.tile(clean, len(settings))``.

    Which of two pairs comes first follows from the names of their settings and samples alone: neither other places, nor further
    settings or samples, draw another order of these.

    Args:
        seed: another seed, another order.
        settings: the sweep's settings, unlike each other, in the order that numbers the pairs.
        names: one for each sample, unlike each other, in their order.
    """
    ranks = [derive_seed(seed, _PURPOSE, setting, name) for setting in settings for name in names]
    return Order(np.argsort(np.array(ranks, np.uint64), kind="stable"), "uniform")


def stratified_order(seed: int, model: str, dataset: str, setting: str, reference: ArrayLike, *, pace: float = 4.0) -> Order:
    """Returns an order for the stratified evidence: random within each stratum, the two mixed evenly.

    Args:
        seed: the run's seed.
        model: the cell's model.
        dataset: the cell's dataset.
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


# Which cells to ask first.


PRIOR_WORST = (
    *("upsample:high", "elastic_transform:high", "zoom_blur:mid", "zoom_blur:high"),
    *("glass_blur:low", "solarize:high", "flip_v", "invert"),
)
"""Settings that cost most in published sweeps (VLM-RobustBench): a failure is searched for here first."""


def prior_weights(settings: Sequence[str], worst: Iterable[str] = PRIOR_WORST) -> NDArray[np.float64]:
    """Returns weights that sum to 1: half on the settings among ``worst``, half on all; equal if none is.

    They must be fixed before the run. Bad weights cost inferences, but never validity.

    Args:
        settings: the sweep's settings as text, at least one.
        worst: settings expected to cost most.

    Returns:
        Shape (m,), each positive.

    >>> prior_weights(["flip_v", "fog:low"]).tolist()
    [0.75, 0.25]
    """
    wanted = set(worst)
    expected = np.array([setting in wanted for setting in settings])
    everywhere = np.full(len(settings), 1.0 / len(settings))
    return (expected / expected.sum() + everywhere) / 2.0 if expected.any() else everywhere


# The fixed orders of many cells: returns the next samples and refuses any others.


Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Answers sorted by cell, one row for each, padded to the longest."""

    rows: Indices
    """Cells of the batch, shape (rows,)."""
    outcomes: Array
    """Shape (rows, width); NaN where missing and where not ``filled``."""
    filled: NDArray[np.bool_]

    def parts(self, width: int) -> list[Batch]:
        """Returns the batch cut into consecutive ones of at most ``width`` answers for each cell."""
        starts = range(0, self.outcomes.shape[1], width)
        return [
            Batch(self.rows, self.outcomes[:, start : start + width], self.filled[:, start : start + width]) for start in starts
        ]


class OrderProgress:
    """How far each cell is in its order."""

    def __init__(self, orders: Sequence[Indices], labels: Sequence[str]) -> None:
        """Starts at the beginning of each order; ``labels`` name the cells in messages."""
        self.sizes = np.array([order.size for order in orders], dtype=np.intp)
        self.used = np.zeros(len(orders), dtype=np.intp)
        # the last entry stands for whatever would follow an exhausted order: no sample
        self._samples = np.concatenate([*orders, np.array([-1], dtype=np.intp)])
        self._starts = np.cumsum(self.sizes) - self.sizes
        self._labels = labels

    def upcoming(self, cells: ArrayLike, count: int) -> tuple[Indices, Indices]:
        """Returns the next ``count`` samples of each cell, fewer where its order ends: ``(cells, samples)``, one entry each."""
        rows = self._require_known(np.asarray(cells, dtype=np.intp).reshape(-1))
        if (np.unique(rows, return_counts=True)[1] > 1).any():
            raise ValueError(f"cells {rows.tolist()} repeat a cell: each has one place in its order")
        position = self.used[rows][:, None] + np.arange(count)
        fits = position < self.sizes[rows][:, None]
        owner = np.broadcast_to(rows[:, None], position.shape)[fits]
        return owner, self._samples[self._starts[owner] + position[fits]]

    def batch(self, cells: ArrayLike, samples: ArrayLike, outcomes: ArrayLike) -> Batch:
        """Returns the answers sorted by cell, checked to be the next ones of each.

        Raises:
            ValueError: unequal lengths, an unknown cell, or a sample that is not the next one of its cell.
        """
        owner, named = np.asarray(cells, dtype=np.intp), np.asarray(samples, dtype=np.intp)
        values = np.asarray(outcomes, dtype=np.float64)
        if not owner.shape == named.shape == values.shape == (owner.size,):
            raise ValueError(
                f"cells, samples and outcomes have shapes {owner.shape}, {named.shape} and {values.shape}: "
                "expected one of each for every answer"
            )
        if owner.size and (owner == owner[0]).all():  # one cell, as most tests are about
            self._require_next(self._require_known(owner), named, np.arange(owner.size))
            return Batch(owner[:1], values[None], np.ones((1, owner.size), dtype=np.bool_))
        by_cell = np.argsort(self._require_known(owner), kind="stable")
        rows, starts, lengths = np.unique(owner[by_cell], return_index=True, return_counts=True)
        rank = np.arange(owner.size) - np.repeat(starts, lengths)
        self._require_next(owner[by_cell], named[by_cell], rank)
        place = np.repeat(np.arange(rows.size), lengths), rank
        shape = rows.size, int(lengths.max(initial=0))
        matrix, filled = np.full(shape, np.nan), np.zeros(shape, dtype=np.bool_)
        matrix[place], filled[place] = values[by_cell], True
        return Batch(rows, matrix, filled)

    def places(self, batch: Batch) -> tuple[Indices, Indices]:
        """Returns, for each place of a batch, its index in the concatenated orders, and how many samples could be drawn."""
        position = self.used[batch.rows][:, None] + np.arange(batch.outcomes.shape[1])
        sizes = self.sizes[batch.rows][:, None]
        return self._starts[batch.rows][:, None] + np.minimum(position, sizes - 1), np.maximum(sizes - position, 1)

    def name(self, cell: int) -> str:
        """Returns how messages call a cell."""
        label = self._labels[cell] if self._labels else ""
        return f"cell {cell} ({label})" if label else f"cell {cell}"

    def _require_known(self, cells: Indices) -> Indices:
        unknown = (cells < 0) | (cells >= self.sizes.size)
        if unknown.any():
            raise ValueError(f"cell {int(cells[unknown.argmax()])}: expected one of 0..{self.sizes.size - 1}")
        return cells

    def _require_next(self, owner: Indices, named: Indices, rank: Indices) -> None:
        position = self.used[owner] + rank
        inside = position < self.sizes[owner]
        expected = self._samples[np.where(inside, self._starts[owner] + position, -1)]
        refused = ~inside | (expected != named)
        if refused.any():
            first = int(refused.argmax())
            raise ValueError(self._refusal(int(owner[first]), int(named[first]), int(position[first])))

    def _refusal(self, cell: int, sample: int, position: int) -> str:
        order = self._samples[self._starts[cell] : self._starts[cell] + self.sizes[cell]]
        places = np.flatnonzero(order == sample)
        where = f"{self.name(cell)}: sample {sample}"
        if not places.size:
            return f"{where} is none of its {order.size} samples"
        if int(places[0]) < position:
            return f"{where} was advanced already, as number {int(places[0]) + 1}. Its first answer counts"
        return (
            f"{where} is number {int(places[0]) + 1} of its order, and next comes number {position + 1}: sample "
            f"{int(order[position])}. The order was fixed before the run; answers out of order void the declared risk"
        )
