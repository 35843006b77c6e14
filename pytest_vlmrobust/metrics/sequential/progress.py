"""The fixed orders of many cells: what comes next, and the refusal of anything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


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


class Progress:
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
        rows = self._known(np.asarray(cells, dtype=np.intp).reshape(-1))
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
        by_cell = np.argsort(self._known(owner), kind="stable")
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

    def _known(self, cells: Indices) -> Indices:
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
        found = np.flatnonzero(order == sample)
        where = f"{self.name(cell)}: sample {sample}"
        if not found.size:
            return f"{where} is none of its {order.size} samples"
        if int(found[0]) < position:
            return f"{where} was advanced already, as number {int(found[0]) + 1}. Its first answer counts"
        return (
            f"{where} is number {int(found[0]) + 1} of its order, and next comes number {position + 1}: sample "
            f"{int(order[position])}. The order was fixed before the run; answers out of order void the declared risk"
        )
