"""Testimony: what an evaluator found, as the evidence of a run keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_vlmrobust.core.cell import CLEAN
from pytest_vlmrobust.core.sample import PictureDigests
from pytest_vlmrobust.datasets import corpus_metric
from pytest_vlmrobust.datasets.protocol import Dataset
from pytest_vlmrobust.store import Answer, Evidence, StoredCell

from .cell_result import CellResult


class Source(Protocol):
    """Who can say what answers are about: the evaluator."""

    def dataset(self, name: str) -> Dataset:
        """Returns the data set called ``name``."""
        ...

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns what tells the pictures of its samples from others, by id, of those that were shown as they are."""
        ...

    def model_fingerprint(self, model: str) -> Mapping[str, Any]:
        """Returns what determines the answers of a model."""
        ...


@dataclass(eq=False)
class Testimony:
    """Puts the result of every cell into the evidence; called by the evaluator."""

    evidence: Evidence
    source: Source
    _known: set[tuple[str, str]] = field(default_factory=set)

    def __call__(self, result: CellResult) -> None:
        """Stores the answers of a cell; before the first one of a model and a data set, what they are.

        With the clean cell goes what tells pictures from others: by then it is known, whatever made or remembered them.

        Raises:
            StoreError: the evidence cannot be written.
        """
        model, name = result.cell.model, result.cell.dataset
        if (model, name) not in self._known:
            dataset = self.source.dataset(name)
            self.evidence.put_model(model, self.source.model_fingerprint(model))
            self.evidence.put_samples(name, dataset.digest, result.samples, corpus_metric(dataset))
            self.evidence.put_spaces(model, name, result.samples)
            self._known.add((model, name))
        if result.cell.setting == CLEAN:
            self.evidence.put_pictures(name, self.source.pictures(name))
        rows = zip(result.keys, result.predictions, result.scores, strict=True)
        self.evidence.put_cell(StoredCell(result.cell, result.views, tuple(Answer(*row) for row in rows), result.notes))
