"""What was answered in one cell, and what it scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .guesses import counted, is_guess
from .stopping import HIGHEST, UNASKED_STATE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class CellResult:
    """The answers and scores of one cell, in the order of ``samples``; of each sample those to all its views in a row.

    A view that was not asked about, because an earlier one was right, has the score ``UNASKED``.
    """

    cell: Cell
    samples: tuple[Sample, ...]
    predictions: tuple[Prediction, ...]
    scores: tuple[Score, ...]
    n_requested: int
    n_inferred: int
    seconds: float
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Sample id to what the setting could not do to its pictures."""
    views: int = 1
    """How often each sample was asked about."""
    keys: tuple[str, ...] = ()
    """The name of each answer in the store; empty for a view that was not asked about."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Scores as numbers, shape (N,): of several views the best one's. NaN where an inference failed."""
        best: NDArray[np.float64] = self.attempts.max(axis=1)  # which keeps NaN: a missing view might have been the best one
        return best

    @property
    def by_view(self) -> NDArray[np.float64]:
        """Scores as numbers, shape (N, views); NaN where an inference failed or none was made.

        What cannot be read counts 0, and without the pictures what a guess does: see :mod:`guesses`.
        """
        import numpy as np

        return np.array(counted(self.cell.setting, self.samples, self.scores), float).reshape(len(self.samples), self.views)

    @property
    def attempts(self) -> NDArray[np.float64]:
        """As ``by_view``, with 0 where no inference was made: right for the best view of each sample, and for nothing else."""
        import numpy as np

        unasked = [score.state == UNASKED_STATE for score in self.scores]
        return np.where(np.reshape(unasked, (len(self.samples), self.views)), 0.0, self.by_view)

    @property
    def n_unasked(self) -> int:
        """How many views were not asked about."""
        return self.count(UNASKED_STATE)

    @property
    def n_guessed(self) -> int:
        """How many answers without the pictures count as guesses, because they cannot be read."""
        pairs = zip(self.samples, self.scores, strict=True) if self.views == 1 else ()
        return sum(is_guess(self.cell.setting, sample, score) for sample, score in pairs)

    @property
    def n_unparsed(self) -> int:
        """How many answers count as wrong, because they cannot be read."""
        return self.count("unparsed") - self.n_guessed

    @property
    def texts(self) -> tuple[int, int]:
        """How many answers say whether the model can be read, and how many of them cannot be.

        Of several views those up to each sample's first right one, asked or not: stopping there changes neither number.
        """
        import numpy as np

        states = np.reshape([score.state for score in self.scores], (len(self.samples), self.views))
        right = self.by_view == HIGHEST
        counted = (np.cumsum(right, axis=1) - right == 0) & (states != "error")
        return int(counted.sum()), int((counted & (states == "unparsed")).sum())

    def count(self, state: str) -> int:
        """Returns how many scores are in ``state`` (``scored``, ``unparsed``, ``error``, ``unasked``)."""
        return sum(score.state == state for score in self.scores)
