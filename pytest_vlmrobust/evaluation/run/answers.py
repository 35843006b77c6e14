"""Answers: the source of answers for judging, which is the evaluator of a run or the evidence of a finished run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.perturbations.questions import split
from pytest_vlmrobust.store import Answer

from .results import CellResult


class Questions(Protocol):
    """The samples of a run's datasets."""

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asks about; the same object each time."""
        ...

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of clean images by sample id; images that were never shown clean are missing.

        The same object each time once it is complete.
        """
        ...


class Answers(Questions, Protocol):
    """The answers and scores of cells, and the facts about their models and datasets."""

    @property
    def models(self) -> Mapping[str, ModelRef]:
        """The models by the name that cells use."""
        ...

    def thumbnails(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each image of a view; empty names without a thumbnail, nothing without images."""
        ...

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        ...

    def changed(self, dataset: str, setting: Setting) -> tuple[int, ...] | None:
        """Returns the places of the samples whose question a setting changes; ``None`` if it changes only images.

        The others are asked as before: no test of the setting counts them.
        """
        ...

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell, for the samples at these positions of the dataset or for all."""
        ...


class CountedAnswers(Answers, Protocol):
    """Answers that count where they came from."""

    @property
    def inferred(self) -> int:
        """How many answers came from a model so far."""
        ...

    @property
    def recalled(self) -> int:
        """How many answers came from a store so far."""
        ...


@dataclass(eq=False)
class PartOfAnswers:
    """The answers about some samples of each dataset, as if there were no others."""

    whole: Answers
    _samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict, init=False)

    def places(self, dataset: str) -> tuple[int, ...]:
        """Returns the places of these samples among all."""
        raise NotImplementedError

    @property
    def models(self) -> Mapping[str, ModelRef]:
        """The models by their name in cells."""
        return self.whole.models

    def thumbnails(self, sample: Sample, setting: Setting) -> tuple[str, ...]:
        """Returns the file of each image of a view."""
        return self.whole.thumbnails(sample, setting)

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return self.whole.corpus_metric(dataset)

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the digests of images by sample id."""
        return self.whole.pictures(dataset)

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns these samples, in the order of the dataset; the same object each time."""
        if dataset not in self._samples:
            everything = self.whole.samples(dataset)
            self._samples[dataset] = tuple(everything[place] for place in self.places(dataset))
        return self._samples[dataset]

    def changed(self, dataset: str, setting: Setting) -> tuple[int, ...] | None:
        """Returns the places of the samples whose question a setting changes; ``None`` if it changes only images."""
        changed = self.whole.changed(dataset, setting)
        among = None if changed is None else {*changed}
        return None if among is None else tuple(i for i, place in enumerate(self.places(dataset)) if place in among)

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell."""
        chosen = self.places(cell.dataset)
        return self.whole.result(cell, chosen if places is None else [chosen[place] for place in places])


def whole_of(questions: Questions, dataset: str) -> tuple[Questions, tuple[int, ...] | None]:
    """Returns the source of all samples of a dataset, and the places among them of these; ``None`` if these are all."""
    return (questions.whole, questions.places(dataset)) if isinstance(questions, PartOfAnswers) else (questions, None)


@dataclass(eq=False)
class AnswersOfChanged(PartOfAnswers):
    """The answers about the questions that the settings of a test change."""

    chosen: tuple[int, ...]

    def places(self, dataset: str) -> tuple[int, ...]:  # noqa: ARG002 - a task without its hint has the same samples
        """Returns the places of these samples among all."""
        return self.chosen

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell; a question that its setting does not change has its clean answer."""
        chosen = self.chosen if places is None else [self.chosen[place] for place in places]
        places_changed = self.whole.changed(cell.dataset, cell.setting)
        changed = {*(chosen if places_changed is None else places_changed)}
        ask = self.whole.result if places is not None else self._whole_cell
        if changed.issuperset(chosen) or split(cell.setting)[1] != CLEAN:
            return ask(cell, chosen)
        perturbed = ask(cell, [place for place in chosen if place in changed])
        clean = ask(replace(cell, setting=CLEAN), [place for place in chosen if place not in changed])
        rows = {
            place: (sample, answer)
            for part in (perturbed, clean)
            for place, sample, answer in zip(
                part.places or (), part.samples, map(Answer, part.keys, part.predictions, part.scores), strict=True
            )
        }
        samples, answers = zip(*(rows[place] for place in chosen), strict=True)
        return CellResult.of(cell, samples, answers, views=1, places=chosen, notes=perturbed.notes, seconds=perturbed.seconds)

    def _whole_cell(self, cell: Cell, places: Sequence[int]) -> CellResult:
        """Returns a part of a cell that is asked whole, as readers of the evidence expect it."""
        changed = self.whole.changed(cell.dataset, cell.setting)
        return self.whole.result(cell, None if changed is None else sorted({*changed, *places})).part(places)

    def changed_places(self, cell: Cell, places: Sequence[int]) -> list[int]:
        """Returns the places in the dataset of these samples, without questions that the setting does not change."""
        changed = self.whole.changed(cell.dataset, cell.setting)
        among = {*(self.chosen if changed is None else changed)}
        return [place for place in (self.chosen[place] for place in places) if place in among]


def chances(samples: Sequence[Sample]) -> NDArray[np.float64]:
    """Returns the score of a uniform guess for each sample, shape (N,)."""
    return np.array([sample.chance for sample in samples], float)
