"""Answers: what judging reads them from: the evaluator of a run, or the evidence of a run that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.metrics.table import ScoreTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pytest_vlmrobust.evaluation.run.results import CellResult


class Thumbnails(Protocol):
    """Where the pictures of examples come from."""

    def files(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each picture of a view; empty names where there is no thumbnail, nothing where there are none."""
        ...


class Questions(Protocol):
    """What a run asks of its datasets."""

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asks about; the same object each time."""
        ...

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of their pictures by sample id; pictures that were not shown unchanged are missing.

        The same object each time, once none is missing.
        """
        ...


class Measured(Questions, Protocol):
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


def score_table(
    measured: Measured, model: str, dataset: str, settings: Sequence[Setting], *, reference: str | None = None
) -> ScoreTable:
    """Returns the paired scores of a model on a dataset: clean, without image, and under each of ``settings``.

    ``reference`` names the model whose errors normalise the mean corruption error; ``None`` takes the same model without
    the image, which knows only what guessing and language give.
    """
    blind = _values(measured, Cell(model, dataset, NO_IMAGE))
    results = {str(setting): measured.result(Cell(model, dataset, setting)) for setting in settings}
    own = {name: result.values for name, result in results.items()}
    other = {
        name: blind if reference is None else _values(measured, Cell(reference, dataset, Setting.parse(name))) for name in own
    }
    samples = measured.samples(dataset)
    return ScoreTable(
        clean=_values(measured, Cell(model, dataset, CLEAN)),
        by_setting=own,
        no_image=blind,
        reference_by_setting=other,
        groups=[sample.group or sample.id for sample in samples],
        patches_by_setting={name: result.by_view for name, result in results.items() if result.views > 1},
        chances=chances(samples),
    )


def chances(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Returns the score of a uniform guess for each sample, shape (N,)."""
    import numpy as np

    return np.array([sample.chance for sample in samples], float)


def _values(measured: Measured, cell: Cell) -> NDArray[np.float64]:
    return measured.result(cell).values
