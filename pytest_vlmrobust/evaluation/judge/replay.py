"""Replay: the answers of a run that is over, scored anew, for whoever judges them again; no model, no pictures, no datasets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.errors import StoreError, UnknownName
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Score
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.evaluation.run.results import HIGHEST, NOT_PREDICTED, UNASKED, UNASKED_STATE, CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.store import Evidence, StoredCell

_SAME = 1e-12
"""Numbers closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """An answer whose letter or score is not the one that the evidence has."""

    cell: Cell
    sample: str
    view: int
    """Which view of the sample, from 0."""
    stored: Score
    recomputed: Score
    letter: str | None = None
    """The stored letter, where its log-probabilities give another one."""

    def __str__(self) -> str:
        view = f", view {self.view}" if self.view else ""
        letter = "" if self.letter is None else f"its log-probabilities do not give the letter {self.letter!r}: "
        scores = f"stored {_shown(self.stored)}, scored again {_shown(self.recomputed)}"
        return f"{self.cell}, sample {self.sample!r}{view}: {letter}{scores}"


@dataclass(frozen=True, slots=True)
class NoThumbnails:
    """Where thumbnails come from when there are no pictures."""

    def files(self, sample: Sample, setting: Setting) -> tuple[str, ...]:  # noqa: ARG002 - the same for all
        """Returns nothing."""
        return ()


@dataclass(eq=False)
class Replay:
    """Gives the results of a run's cells from its evidence; every prediction is scored again, and its stored score only compared.

    Nothing is inferred and nothing comes from a store.
    """

    evidence: Evidence
    models: Mapping[str, ModelRef]
    album: NoThumbnails = field(default_factory=NoThumbnails)
    inferred: int = 0
    recalled: int = 0
    rescored: list[Rescored] = field(default_factory=list)
    """Answers whose score is another one, in the order in which cells were asked for."""
    _results: dict[Cell, CellResult] = field(default_factory=dict)
    _samples: dict[tuple[str, str], tuple[Sample, ...]] = field(default_factory=dict)
    _pictures: dict[str, Mapping[str, PictureDigests]] = field(default_factory=dict)

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole.

        Raises:
            StoreError: the run asked nothing of it.
        """
        return self.evidence.corpus_metric(dataset)

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns what the run asked of a dataset.

        Raises:
            StoreError: it asked nothing of it.
        """
        return self._asked("", dataset)

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns what tells the pictures of its samples from others, by id; nothing where an older release did not keep it."""
        if dataset not in self._pictures:
            self._pictures[dataset] = self.evidence.pictures(dataset)
        return self._pictures[dataset]

    def result(self, cell: Cell) -> CellResult:
        """Returns the answers of a cell with their scores of now.

        Raises:
            StoreError: the run has no answers of the cell, or not one for each view of each sample.
            UnknownName: a sample is scored by what is not registered here.
        """
        if cell not in self._results:
            self._results[cell] = self._result(self.evidence.get_cell(cell))
        return self._results[cell]

    def _result(self, stored: StoredCell) -> CellResult:
        samples = self._asked(stored.cell.model, stored.cell.dataset)
        scores, differing = scored_again(self.evidence, stored, samples)
        self.rescored += differing
        return CellResult(
            cell=stored.cell,
            samples=samples,
            predictions=tuple(answer.prediction for answer in stored.answers),
            scores=tuple(scores),
            n_requested=sum(score.state != UNASKED_STATE for score in scores),
            n_inferred=0,
            seconds=0.0,
            notes=stored.notes,
            views=stored.views,
            keys=tuple(answer.key for answer in stored.answers),
        )

    def _asked(self, model: str, dataset: str) -> tuple[Sample, ...]:
        if (model, dataset) not in self._samples:
            self._samples[model, dataset] = self.evidence.samples(dataset, model)
        return self._samples[model, dataset]


def scored_again(evidence: Evidence, stored: StoredCell, samples: Sequence[Sample]) -> tuple[list[Score], list[Rescored]]:
    """Returns the scores of now of a cell's answers, and those answers whose stored letter or score is another one.

    The letter of an answer by log-probabilities is taken from these, never from its text.

    Args:
        evidence: where the cell is from.
        stored: its answers.
        samples: what was asked, with boxes in the coordinates that the model speaks.

    Raises:
        StoreError: the answers are about another number of views than the setting has.
        UnknownName: a sample is scored by what is not registered here.
    """
    _check_views(evidence, stored)
    scores: list[Score] = []
    differing: list[Rescored] = []
    for place, answer in enumerate(stored.answers):
        number, view = divmod(place, stored.views)
        settled = any(earlier.value == HIGHEST for earlier in scores[place - view :])
        rescored = _scored(samples[number], answer.prediction, settled=settled)
        scores.append(rescored)
        letter = answer.prediction.text if answer.prediction.contradicts_itself else None
        if letter is not None or not _equal(rescored, answer.score):
            differing.append(Rescored(stored.cell, samples[number].id, view, answer.score, rescored, letter))
    return scores, differing


def _check_views(evidence: Evidence, stored: StoredCell) -> None:
    """Refuses another number of views than a setting has; of one that is not registered here nobody knows it."""
    try:
        expected = view_count(stored.cell.setting)
    except UnknownName:
        return
    if stored.views != expected:
        raise StoreError(f"{evidence.path}: {stored.cell} has {stored.views} views of each sample, expected {expected}")


def _scored(sample: Sample, prediction: Prediction, *, settled: bool) -> Score:
    """Returns the score of an answer; ``settled``: an earlier view was right, so that this one may be left out."""
    if prediction == NOT_PREDICTED:
        return UNASKED if settled else Score.unscored("not asked, and no earlier view was right")
    if prediction.contradicts_itself:
        prediction = dataclasses.replace(prediction, text=next(iter(prediction.most_probable), ""))
    return score(sample, prediction)


def _equal(first: Score, second: Score) -> bool:
    close = math.isclose(first.value, second.value, rel_tol=0.0, abs_tol=_SAME)
    same_value = close or (math.isnan(first.value) and math.isnan(second.value))
    return same_value and (first.rule, first.answer, first.state) == (second.rule, second.answer, second.state)


def _shown(score: Score) -> str:
    return f"{score.value:g} ({score.state}, {score.rule}, {score.answer!r})"
