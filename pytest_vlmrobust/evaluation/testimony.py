"""Testimony: what an evaluator found, as the evidence of a run keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_vlmrobust.datasets.protocol import Dataset
from pytest_vlmrobust.store import Answer, Evidence, StoredCell

from .evaluator import CellResult


@dataclass(eq=False)
class Testimony:
    """Puts the result of every cell into the evidence; called by the evaluator."""

    evidence: Evidence
    open_dataset: Callable[[str], Dataset]
    _known: set[str] = field(default_factory=set)

    def __call__(self, result: CellResult) -> None:
        """Stores the answers of a cell, and the questions of its data set when it is the first one.

        Raises:
            StoreError: the evidence cannot be written.
        """
        name = result.cell.dataset
        if name not in self._known:
            self.evidence.put_samples(name, self.open_dataset(name).digest, result.samples)
            self._known.add(name)
        rows = zip(result.keys, result.predictions, result.scores, strict=True)
        self.evidence.put_cell(StoredCell(result.cell, result.views, tuple(Answer(*row) for row in rows)))
