"""Answers: what judging reads them from: the evaluator of a run, or the evidence of a run that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import PictureDigests, Sample

if TYPE_CHECKING:
    from pytest_vlmrobust.evaluation.run.results import CellResult


class Thumbnails(Protocol):
    """Where the images of examples come from."""

    def files(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each image of a view; empty names where there is no thumbnail, nothing where there are none."""
        ...


class Questions(Protocol):
    """What a run asks of its datasets."""

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asks about; the same object each time."""
        ...

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of their images by sample id; images that were not shown unchanged are missing.

        The same object each time, once none is missing.
        """
        ...


class Answers(Questions, Protocol):
    """The answers and scores of cells, and what is known about the models and datasets that they are about."""

    @property
    def models(self) -> Mapping[str, ModelRef]:
        """The models by the name that cells use."""
        ...

    @property
    def album(self) -> Thumbnails:
        """Where thumbnails come from."""
        ...

    @property
    def inferred(self) -> int:
        """How many answers came from a model so far."""
        ...

    @property
    def recalled(self) -> int:
        """How many answers came from a store so far."""
        ...

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        ...

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell: to the samples at these places of the dataset, or to all."""
        ...


def chances(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Returns the score of a uniform guess for each sample, shape (N,)."""
    return np.array([sample.chance for sample in samples], float)
