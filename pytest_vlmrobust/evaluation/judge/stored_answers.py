"""The stored answers of a finished run, scored again without models, images or datasets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_vlmrobust.core.cell import CLEAN, Cell, Setting
from pytest_vlmrobust.core.errors import StoreError, UnknownName
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Score
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import quantity
from pytest_vlmrobust.evaluation.run.results import MAX_SCORE, NOT_PREDICTED, UNASKED, CellResult
from pytest_vlmrobust.evaluation.run.views import view_count
from pytest_vlmrobust.perturbations.questions import split
from pytest_vlmrobust.scoring import score
from pytest_vlmrobust.store import Answer, Evidence, StoredCell
from pytest_vlmrobust.store.questions import RUN_AGAIN

_SAME = 1e-12
"""Numbers closer than this are equal."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """An answer whose recomputed letter or score differs from the evidence."""

    cell: Cell
    sample: str
    view: int
    """Index of the view of the sample, from 0."""
    stored: Score
    recomputed: Score
    letter: str | None = None
    """The stored letter, if its log-probabilities give another letter."""

    def __str__(self) -> str:
        view = f", view {self.view}" if self.view else ""
        letter = "" if self.letter is None else f"its log-probabilities do not give the letter {self.letter!r}: "
        scores = f"stored {_describe_score(self.stored)}, scored again {_describe_score(self.recomputed)}"
        return f"{self.cell}, sample {self.sample!r}{view}: {letter}{scores}"


@dataclass(eq=False)
class StoredAnswers:
    """The answers of a finished run, read from its evidence.

    Every prediction is scored again and compared with its stored score. No model is called.
    """

    evidence: Evidence
    models: Mapping[str, ModelRef] = field(default_factory=dict)
    inferred: int = 0
    recalled: int = 0
    rescored: list[Rescored] = field(default_factory=list)
    """Answers whose recomputed score differs, in the order in which cells were requested."""
    _results: dict[Cell, CellResult] = field(default_factory=dict)
    _samples: dict[tuple[str, str], tuple[Sample, ...]] = field(default_factory=dict)
    _changed: dict[tuple[str, Setting], tuple[int, ...] | None] = field(default_factory=dict)
    _pictures: dict[str, Mapping[str, PictureDigests]] = field(default_factory=dict)

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return self.evidence.corpus_metric(dataset)

    def thumbnails(self, sample: Sample, setting: Setting) -> tuple[str, ...]:  # noqa: ARG002 - the same for all
        """Returns no thumbnails: the images are not looked for."""
        return ()

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asked about."""
        return self._load_samples("", dataset)

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the image digests of each sample, by id; empty if it had no clean cell."""
        if dataset not in self._pictures:
            self._pictures[dataset] = self.evidence.pictures(dataset)
        return self._pictures[dataset]

    def changed(self, dataset: str, setting: Setting) -> tuple[int, ...] | None:
        """Returns the places of the samples whose question a setting changes; ``None`` if it changes only images."""
        if (dataset, setting) not in self._changed:
            places = tuple(sorted(self.evidence.changed_questions(dataset, setting)))
            self._changed[dataset, setting] = places if places or _changes_questions(setting) else None
        return self._changed[dataset, setting]

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers of a cell with their scores of now: to the samples at these places, or to all.

        All are those that the setting changes, where it changes questions.
        """
        if places is None:
            if cell not in self._results or self._results[cell].places not in (None, self.changed(cell.dataset, cell.setting)):
                self._results[cell] = self._result(self.evidence.get_cell(cell))
            return self._results[cell]
        result = self.partial(cell)
        if missing := set(places) - set(range(len(result.samples)) if result.places is None else result.places):
            samples = self._load_samples(cell.model, cell.dataset)
            first = samples[min(missing)].id
            raise StoreError(
                f"{self.evidence.path}: {cell} has no answer about {quantity(len(missing), 'sample')} that its verdict rests on, "
                f"such as {first!r}. {RUN_AGAIN}"
            )
        return result.part(places)

    def partial(self, cell: Cell) -> CellResult:
        """Returns all stored answers of a cell like :meth:`result`, even if the run asked only part of the samples."""
        if cell not in self._results:
            self._results[cell] = self._result(self.evidence.get_cell(cell, whole=False))
        return self._results[cell]

    def _result(self, stored: StoredCell) -> CellResult:
        _check_views(self.evidence, stored)
        everything = self._load_samples(stored.cell.model, stored.cell.dataset, stored.cell.setting)
        whole = stored.places is None or len(stored.places) == len(everything)
        places = None if whole else stored.places
        samples = everything if places is None else tuple(everything[place] for place in places)
        answers: list[Answer] = []
        for index, answer in enumerate(stored.answers):
            number, view = divmod(index, stored.views)
            settled = any(earlier.score.value == MAX_SCORE for earlier in answers[index - view :])
            score = _recompute_score(samples[number], answer.prediction, settled=settled)
            answers.append(dataclasses.replace(answer, score=score))
            letter = answer.prediction.text if answer.prediction.contradicts_itself else None
            if letter is not None or not _same_score(score, answer.score):
                self.rescored.append(Rescored(stored.cell, samples[number].id, view, answer.score, score, letter))
        return CellResult.of(stored.cell, samples, answers, views=stored.views, places=places, notes=stored.notes)

    def _load_samples(self, model: str, dataset: str, setting: Setting = CLEAN) -> tuple[Sample, ...]:
        if self.evidence.changed_questions(dataset, setting):
            return self.evidence.samples(dataset, model, setting)
        if (model, dataset) not in self._samples:
            self._samples[model, dataset] = self.evidence.samples(dataset, model)
        return self._samples[model, dataset]


def _changes_questions(setting: Setting) -> bool:
    """Whether a setting changes questions, even if a run refused its tests; False if it is not registered."""
    try:
        return bool(split(setting)[0])
    except UnknownName:
        return False


def _check_views(evidence: Evidence, stored: StoredCell) -> None:
    """Refuses a number of views that differs from that of the setting; settings that are not registered are not checked."""
    try:
        expected = view_count(stored.cell.setting)
    except UnknownName:
        return
    if stored.views != expected:
        raise StoreError(f"{evidence.path}: {stored.cell} has {stored.views} views of each sample, expected {expected}")


def _recompute_score(sample: Sample, prediction: Prediction, *, settled: bool) -> Score:
    """Returns the score of an answer; ``settled``: an earlier view was right, so this view may be unasked.

    If an answer has log-probabilities, its letter is taken from them, never from its text.
    """
    if prediction == NOT_PREDICTED:
        return UNASKED if settled else Score.unscored("not asked, and no earlier view was right")
    if prediction.contradicts_itself:
        prediction = dataclasses.replace(prediction, text=next(iter(prediction.most_probable), ""))
    return score(sample, prediction)


def _same_score(first: Score, second: Score) -> bool:
    close = math.isclose(first.value, second.value, rel_tol=0.0, abs_tol=_SAME)
    same_value = close or (math.isnan(first.value) and math.isnan(second.value))
    return same_value and (first.rule, first.answer, first.state) == (second.rule, second.answer, second.state)


def _describe_score(score: Score) -> str:
    return f"{score.value:g} ({score.state}, {score.rule}, {score.answer!r})"
