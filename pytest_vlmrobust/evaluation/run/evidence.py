"""Evidence of a run: stores answers, chooses examples, and finds earlier runs."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

from pytest_vlmrobust.core.cell import BASELINES, CLEAN, Setting
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.record import NEWLY_WRONG, Example, Picture, Record, Reply
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.datasets import corpus_metric
from pytest_vlmrobust.store import Answer, Evidence, StoredCell
from pytest_vlmrobust.store.journal import FILE_NAME
from pytest_vlmrobust.store.questions import changes_to_json

from .results import UNASKED, CellResult
from .views import of_view

if TYPE_CHECKING:
    from .evaluator import Evaluator


_JOINED_SECONDS = 1.0
"""How long results wait for others with which they are stored."""


@dataclass(eq=False)
class EvidenceWriter:
    """Puts the result of every cell into the evidence; called by the evaluator."""

    evidence: Evidence
    source: Evaluator
    _known: set[tuple[str, str]] = field(default_factory=set)
    _changed: set[tuple[str, Setting]] = field(default_factory=set)
    """Datasets with settings whose changed questions are stored."""
    _waiting: list[StoredCell] = field(default_factory=list)
    """Results that are not stored yet."""
    _encoded: dict[str, str] = field(default_factory=dict)
    """Their predictions that were read from the store, as the JSON that they have there, by key."""
    _joins: bool = False
    """Whether results may briefly wait to share a transaction."""
    _stored_at: float = -math.inf

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Stores the results of the block in few transactions, the last one when the block ends or fails.

        Adaptive mode evaluates a cell in parts, and cached answers arrive at once. A part that takes longer, such as an
        inferred part, is stored with everything waiting, so that a killed run keeps its results.
        """
        self._joins = True
        try:
            yield
        finally:
            self._joins = False
            self._store()

    def _store(self) -> None:
        waiting, encoded, self._waiting, self._encoded = self._waiting, self._encoded, [], {}
        if waiting:
            self.evidence.put_cells(waiting, encoded)
            self._stored_at = time.monotonic()

    def __call__(self, result: CellResult) -> None:
        """Stores the answers of a cell, immediately except within :meth:`joined`, and once the facts about its model and dataset.

        The clean cell includes the image digests, which are known by then.
        """
        model, name = result.cell.model, result.cell.dataset
        if (model, name) not in self._known:
            dataset = self.source.dataset(name)
            self.evidence.put_model(model, self.source.model_fingerprint(model))
            samples = self.source.samples_in_model_coordinates(model, name)
            self.evidence.put_samples(name, dataset.digest, samples, corpus_metric(dataset))
            self.evidence.put_spaces(model, name, samples)
            self._known.add((model, name))
        if result.cell.setting == CLEAN:
            self.evidence.put_pictures(name, self.source.pictures(name))
        answers = tuple(map(Answer, result.keys, result.predictions, result.scores))
        questions = self._changed_questions(name, result.cell.setting)
        self._waiting.append(StoredCell(result.cell, result.views, answers, result.notes, result.places, questions))
        self._encoded |= self.source.encoded
        if not self._joins or time.monotonic() - self._stored_at > _JOINED_SECONDS:
            self._store()

    def _changed_questions(self, dataset: str, setting: Setting) -> dict[int, str]:
        """Returns the questions that a setting changes, by the places of their samples; a test counts only these."""
        if (dataset, setting) in self._changed:
            return {}
        self._changed.add((dataset, setting))
        before = self.source.samples(dataset)
        return {
            place: changes_to_json(before[place], self.source.question(before[place], setting))
            for place in self.source.changed(dataset, setting) or ()
        }


# Examples: a few samples of a cell as evidence, with question, images and answers.
#
# Only the answers decide which: of the samples of the wanted kind, the first of each category, then the
# second of each, and so on.


WHOLE_ONLY = "whole_only"
PATCH_ONLY = "patch_only"
MOST = {NEWLY_WRONG: 3, WHOLE_ONLY: 4, PATCH_ONLY: 4}
"""How many samples of a kind a cell shows."""
RIGHT = 0.5
"""The lowest graded score that is shown as right."""
LONGEST = 500
"""Characters kept of a question or an answer."""

Thumbnails: TypeAlias = Callable[[Sample, Setting], tuple[str, ...]]
"""The file of each image of a view; empty names without a thumbnail, nothing without images."""


def examples(clean: CellResult, result: CellResult, thumbnails: Thumbnails) -> tuple[Example, ...]:
    """Returns samples that a setting turned wrong; for patches, samples answered only by the whole image or only by a patch."""
    setting = result.cell.setting
    if setting in BASELINES:
        return ()
    if result.views == 1:
        lost = [index for index, (before, after) in enumerate(_pairs(clean, result)) if after < before]
        chosen = spread(lost, result.samples, MOST[NEWLY_WRONG])
        return tuple(_perturbed(index, clean, result, thumbnails) for index in chosen)
    whole = [index for index, (before, after) in enumerate(_pairs(clean, result)) if before >= RIGHT > after]
    patch = [index for index, (before, after) in enumerate(_pairs(clean, result)) if before < RIGHT <= after]
    return tuple(
        _in_patches(kind, index, clean, result, thumbnails)
        for kind, indices in ((WHOLE_ONLY, whole), (PATCH_ONLY, patch))
        for index in spread(indices, result.samples, MOST[kind])
    )


def spread(indices: Iterable[int], samples: Sequence[Sample], most: int) -> list[int]:
    """Returns at most ``most`` of the indices: the first of each category, then the second of each, and so on."""
    met: Counter[str] = Counter()
    ranked = []
    for index in indices:
        category = samples[index].category
        ranked.append((met[category], index))
        met[category] += 1
    return [index for _, index in sorted(ranked)[:most]]


def patch_name(view: int, views: int) -> str:
    """Returns the name of a patch: its row and column, from 1.

    >>> patch_name(3, 9)
    'patch 2,1'
    """
    row, column = divmod(view, math.isqrt(views))
    return f"patch {row + 1},{column + 1}"


def _pairs(clean: CellResult, result: CellResult) -> Iterable[tuple[float, float]]:
    return zip(clean.values.tolist(), result.values.tolist(), strict=True)


def _perturbed(index: int, clean: CellResult, result: CellResult, thumbnails: Thumbnails) -> Example:
    setting, sample = result.cell.setting, result.samples[index]
    replies = [_reply(about, *_answer(answers, index, 0)) for about, answers in ((str(CLEAN), clean), (str(setting), result))]
    shown = clean.samples[index].options
    if shown != sample.options:
        replies[0] = replace(replies[0], option=shown.get(replies[0].answer, ""))
    changed = range(len(sample.images)) if sample.perturbed is None else sample.perturbed
    pictures = [
        *_pictures(str(CLEAN), sample, thumbnails(clean.samples[index], CLEAN)),
        *_pictures(str(setting), sample, thumbnails(sample, setting), shown=changed),
    ]
    return _example(NEWLY_WRONG, sample, replies, pictures)


def _in_patches(kind: str, index: int, clean: CellResult, result: CellResult, thumbnails: Thumbnails) -> Example:
    sample, views = result.samples[index], result.views
    answers = {str(CLEAN): _answer(clean, index, 0)}
    answers |= {patch_name(view, views): _answer(result, index, view) for view in range(views)}
    seen = {str(CLEAN): thumbnails(clean.samples[index], CLEAN)}
    files = thumbnails(sample, result.cell.setting)
    seen |= {patch_name(view, views): of_view(files, view, views) for view in range(views)}
    scored = {about: answer for about, answer in answers.items() if answer[1] is not UNASKED}
    pictures = [
        picture for about, (_, score) in scored.items() for picture in _pictures(about, sample, seen[about], frame=_frame(score))
    ]
    return _example(kind, sample, [_reply(about, *answer) for about, answer in scored.items()], pictures)


def _answer(result: CellResult, index: int, view: int) -> tuple[Prediction, Score]:
    at = index * result.views + view
    return result.predictions[at], result.scores[at]


def _reply(about: str, prediction: Prediction, score: Score) -> Reply:
    said = prediction.text or prediction.error
    return Reply(about, said[:LONGEST], score.answer or "", score.rule, float(score.value), score.state)


def _frame(score: Score) -> str:
    if math.isnan(score.value):
        return ""
    return "right" if score.value >= RIGHT else "wrong"


def _pictures(
    about: str, sample: Sample, files: Sequence[str], *, shown: Iterable[int] | None = None, frame: str = ""
) -> list[Picture]:
    """Returns the thumbnails of a view's images; ``shown`` selects images, all by default."""
    names = image_names(sample)
    chosen = range(len(files)) if shown is None else shown
    return [
        Picture(files[index], f"{about}, {names[index]}" if len(names) > 1 else about, frame)
        for index in chosen
        if index < len(files) and files[index]
    ]


def image_names(sample: Sample) -> list[str]:
    """Returns the names of a sample's images: the option that shows them, else their number from 1."""
    marked = [
        *[""] * sample.question.count(IMAGE_MARK),
        *(n for n, text in sample.options.items() for _ in range(text.count(IMAGE_MARK))),
    ]
    options = marked if len(marked) == len(sample.images) else [""] * len(sample.images)
    return [option or f"image {number}" for number, option in enumerate(options, 1)]


def _example(kind: str, sample: Sample, replies: Sequence[Reply], pictures: Sequence[Picture]) -> Example:
    return Example(
        sample=sample.id,
        kind=kind,
        question=_worded(sample.question),
        options={letter: _worded(text, numbered=False) for letter, text in sample.options.items()},
        target=" | ".join(sample.targets)[:LONGEST],
        category=sample.category,
        replies=tuple(replies),
        pictures=tuple(pictures),
    )


def _worded(text: str, *, numbered: bool = True) -> str:
    """Returns a text with words in place of images."""
    parts = text.split(IMAGE_MARK)
    marks = [f"[picture {number}]" if numbered else "[picture]" for number in range(1, len(parts))]
    return "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))[:LONGEST]


# Earlier runs of a store, and their speed.


@dataclass(frozen=True, slots=True)
class Rate:
    """Time per answer in one process, including perturbing."""

    seconds: float
    """Seconds per answer: the median over cells, so that loading weights counts little."""
    cells: int
    """How many cells it was measured in."""
    run: str
    dataset: str
    """The dataset of those cells."""


def newest_runs(places: Iterable[Path]) -> list[Path]:
    """Returns the directories of runs that have a journal, the newest first: by the time in their names, then by its change."""
    journals = (path for place in places for path in place.glob(f"*/{FILE_NAME}"))
    dated = sorted(journals, key=lambda path: (path.parent.name.rpartition("-")[0], path.stat().st_mtime_ns), reverse=True)
    return [path.parent for path in dated]


def measured_rate(runs: Iterable[tuple[str, Sequence[Record]]], model: str, dataset: str) -> Rate | None:
    """Returns the speed of the newest run with this model, on this dataset or else on another; ``None`` without one.

    Only cells count whose answers were all inferred without other work.
    """
    rates = [rate for name, records in runs for rate in _rates(name, records, model)]
    return next((rate for rate in rates if rate.dataset == dataset), next(iter(rates), None))


def _rates(run: str, records: Iterable[Record], model: str) -> list[Rate]:
    seconds: dict[str, list[float]] = {}
    for record in records:
        alone = record.n_inferred == record.n_requested > 0 == record.n_recalled
        if record.test == "cell" and record.model == model and alone and record.seconds > 0.0:
            seconds.setdefault(record.dataset, []).append(record.seconds / record.n_inferred)
    return [Rate(median(times), len(times), run, dataset) for dataset, times in seconds.items()]
