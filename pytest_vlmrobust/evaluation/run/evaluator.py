"""Evaluator: asks a model about every sample of a cell once, and stores the answers.

*Pull, don't stage.* A test requests the cells that it needs: cached in the store if evaluated before, else inferred.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.backends import generation_for
from pytest_vlmrobust.backends.contract import START, Backend, Guard
from pytest_vlmrobust.core.cell import AGAIN, EXCHANGED, NO_IMAGE, Cell, Setting, Step
from pytest_vlmrobust.core.errors import BackendError, BudgetSpent, DatasetError, ImageError, OfflineError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED, canonical_json, fingerprint, fingerprints_after
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.core.words import first_few, quantity
from pytest_vlmrobust.datasets import corpus_metric, sampling
from pytest_vlmrobust.datasets.protocol import Dataset
from pytest_vlmrobust.perturbations.questions import split
from pytest_vlmrobust.scoring import check_scoring, score
from pytest_vlmrobust.store import Answer, Pictures, Store

from .asking import Engine
from .leases import owner_name
from .ledger import Ledger
from .probes import exchanges, shown_setting, with_pictures_of
from .profile import picture_sizes
from .prompts import answer_limit, in_space_of, prompt, scorable_choices
from .queue import CellRequest, Query
from .results import MAX_SCORE, NO_ANSWER, CellResult, view_batches, view_indices
from .views import Album, View, ViewMaker, of_view, view_count

NAMED = 10
"""Images that cannot be read and are named at most."""
_RESULTS = 8
"""Cached results per cell: one for each look of adaptive mode."""


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of evaluation, as on the command line."""

    seed: int = AUGMENTATION_SEED
    sample: str | None = None
    offline: bool = False
    batch_size: int | str = 32
    """Requests that a model is handed at a time; ``auto`` for as many as its backend says."""
    threads: int = 1
    """Threads that make views ahead of the model."""
    patch_stop: bool = False
    """Whether a sample's further patches are skipped once one is right."""
    time_limit: float = 0.0
    """Time limit of a batch in seconds, including loading before the first; 0 for no limit."""
    pictures: Path | None = None
    """The folder of thumbnails, or ``None``. Offline nothing is added."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a cell is: ``done`` of ``total`` samples."""

    cell: Cell
    done: int
    total: int


@dataclass(eq=False)
class PartialCell:
    """The state of a cell: its questions so far and their answers."""

    cell: Cell
    size: int
    """How many samples the dataset has."""
    views: int
    queries: dict[int, Query] = field(default_factory=dict)
    """Questions by their index in the cell, created on demand because adaptive mode needs few."""
    answers: dict[int, Answer] = field(default_factory=dict)
    """Answers by their place in ``asked``."""
    evaluated: set[int] = field(default_factory=set)
    """The evaluated samples, by position in the dataset."""
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Notes about images that the setting could not change as intended, by id of an evaluated sample."""
    n_inferred: int = 0
    seconds: float = 0.0
    results: dict[tuple[int, ...] | None, CellResult] = field(default_factory=dict)
    """Cached results by their samples, until another sample is evaluated; summary metrics share them."""

    def missing(self, places: Sequence[int] | None) -> list[int]:
        """Returns the samples (all by default) that are not evaluated yet."""
        wanted = range(self.size) if places is None else places
        return [place for place in wanted if place not in self.evaluated]

    def result(self, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers to these samples, or to all."""
        key = None if places is None else tuple(places)
        if key not in self.results:
            chosen = range(self.size) if key is None else key
            if len(self.results) == _RESULTS:
                del self.results[next(iter(self.results))]
            self.results[key] = CellResult.of(
                self.cell,
                [self.queries[place * self.views].sample for place in chosen],
                [self.answers.get(index, NO_ANSWER) for index in view_indices(chosen, self.views)],
                views=self.views,
                places=key,
                notes=self.notes,
                n_inferred=self.n_inferred,
                seconds=self.seconds,
            )
        return self.results[key]


@dataclass
class Evaluator:
    """Evaluates cells on demand; one model is resident at a time.

    ``models`` and ``datasets`` map the names in cells. ``inferred`` and ``recalled`` count the answers that this
    evaluator got from a model and from the store.
    """

    models: Mapping[str, ModelRef]
    datasets: Mapping[str, Callable[[], Dataset]]
    open_backend: Callable[[ModelRef], Backend]
    store: Store
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    owner: str = field(default_factory=owner_name)
    listener: Callable[[Progress], None] = lambda _progress: None
    notice: Callable[[str], None] = lambda _text: None
    """Called with a sentence when the evaluator has to wait."""
    witness: Callable[[CellResult], None] = lambda _result: None
    """Called with the new answers of a cell before its result is returned."""
    ledger: Ledger = field(default_factory=Ledger)
    """The spending and budget of the run."""

    def __post_init__(self) -> None:
        self._results: dict[Cell, CellResult] = {}
        self._partial: dict[Cell, PartialCell] = {}
        self._samples: dict[str, tuple[Sample, ...]] = {}
        self._pictures: dict[str, Mapping[str, PictureDigests]] = {}
        self._exchanges: dict[str, Mapping[str, Sample]] = {}
        self._failed: dict[str, VlmRobustError] = {}
        self._unreadable: dict[str, list[str]] = {}
        """Errors of unreadable images by dataset, collected after the first such error."""
        self._loaded: dict[str, Dataset] = {}
        self._fingerprints: dict[str, Mapping[str, Any]] = {}
        self._questions: dict[tuple[str, str, tuple[Step, ...]], Sequence[tuple[Sample, str]]] = {}
        self._changed: dict[tuple[str, tuple[Step, ...]], tuple[int, ...]] = {}
        self._key_of: dict[str, Callable[..., str]] = {}
        """The function for answer keys of each model."""
        self._questions_json: dict[tuple[str, str, str, tuple[Step, ...]], str] = {}
        self._longest: dict[str, int] = {}
        """Tokens that a text of each model may have."""
        self._backends: dict[str, Guard] = {}
        self._views = ViewMaker(self.options.seed)
        self._wanted: dict[str, deque[CellRequest]] = {}
        self._opening = threading.RLock()
        self._engine = Engine(
            self.store,
            self._views,
            request=self.request,
            resident=self._make_resident,
            digest=lambda model: fingerprint(self.model_fingerprint(model))[:16],
            owner=self.owner,
            batch_size=self.batch_size,
            threads=self.options.threads,
            notice=lambda text: self.notice(text),  # noqa: PLW0108 - self.notice can change later
            time_limit=self.options.time_limit,
            ledger=self.ledger,
        )
        pictures = Pictures(self.options.pictures) if self.options.pictures else None
        self.thumbnails = Album(self._views, self.store, pictures, read_only=self.options.offline).files
        self.encoded: dict[str, str] = {}
        """The stored JSON of predictions of the current cell, by key."""
        self.inferred = 0
        self.recalled = 0

    def dataset(self, name: str) -> Dataset:
        """Returns the dataset called ``name``, read on first use."""
        if name not in self._loaded:
            self._loaded[name] = self.datasets[name]()
        return self._loaded[name]

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asks about."""
        if dataset in self._failed:
            raise self._failed[dataset]
        if dataset not in self._samples:
            try:
                samples = tuple(sampling.chosen(self.dataset(dataset), self.options.sample))
                if not samples:
                    raise DatasetError(f"dataset {dataset!r} has no samples: there is nothing to measure")
                check_scoring(dataset, self.corpus_metric(dataset), samples)
                self._samples[dataset] = samples
            except VlmRobustError as error:
                self._failed[dataset] = error
                raise
        return self._samples[dataset]

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns the image digests of samples that were shown clean, by id."""
        if dataset not in self._pictures:
            samples = self.samples(dataset)
            digests = self._views.picture_digests(samples, self.store.get_digests)
            if len(digests) < len(samples):
                return digests
            self._pictures[dataset] = digests
        return self._pictures[dataset]

    def result(self, cell: Cell, places: Sequence[int] | None = None) -> CellResult:
        """Returns the answers and scores of a cell; missing answers are inferred and stored.

        It holds the samples at these places of the dataset, in this order, or all.
        """
        if places is None and cell in self._results:
            return self._results[cell]
        partial = self._partial_cell(cell)
        if missing := partial.missing(places):
            try:
                self._evaluate(partial, missing)
            except ImageError as error:
                raise ImageError(f"{error}{self._more_unreadable(cell.dataset, str(error))}") from error
            is_new = len(missing) == (partial.size if places is None else len(places))
            self.witness(partial.result(places if is_new else missing))  # an answer is reported only once
        result = partial.result(places)
        if places is None:
            self._results[cell] = result
        return result

    def _more_unreadable(self, dataset: str, first: str) -> str:
        """Returns a line with other unreadable images of a dataset; empty if none."""
        if dataset not in self._unreadable:
            self._unreadable[dataset] = picture_sizes(self.samples(dataset))[1]
        others = [why.partition(": ")[0] for why in self._unreadable[dataset] if why != first]
        named = "; ".join([*others[: NAMED - 1], *([f"{len(others) - NAMED + 1} more"] if len(others) >= NAMED else [])])
        return f"\n({quantity(len(others) + 1, 'image')} cannot be read in all; the others: {named})" if others else ""

    def expect(self, wants: Iterable[CellRequest]) -> None:
        """Announces the next requests in order, so that an idle model can work on them.

        No result depends on it except by float32 rounding. An expected cell that is never requested may have some
        answers in the store but no result. A failing preparation is an error only for the test that requests
        it. Offline nothing is expected.
        """
        if self.options.offline or self.store.read_only:
            return
        wanted = list(wants)
        for request in wanted:
            self._wanted.setdefault(request.cell.model, deque()).append(request)
        for model in dict.fromkeys(request.cell.model for request in wanted):
            self.work_ahead(model)

    def room(self, model: str) -> int:
        """Returns how many more questions a model may be expected to answer; 0 before its first request."""
        if not self._engine.is_asking(model):
            return 0
        return self._engine.room - sum(map(self._size, self._wanted.get(model, ())))

    def _size(self, request: CellRequest) -> int:
        """Returns about how many samples a request has; for an unread dataset, as many as there is room."""
        return (
            len(self._samples.get(request.cell.dataset, ())) or self._engine.room  # at most
            if request.places is None
            else len(request.places)
        )

    def is_evaluated(self, cell: Cell) -> bool:
        """Whether all samples of a cell are evaluated."""
        return cell in self._results

    def scores_ahead(self, cell: Cell, places: Sequence[int]) -> NDArray[np.float64] | None:
        """Returns the scores of samples of a cell, shape (N,), if all their answers are stored, without counting them."""
        partial = self._partial_cell(cell)
        if self._stops(partial):  # the patches to ask depend on answers
            return None
        numbers = view_indices(places, partial.views)
        queries = self._queries(partial, numbers)
        if self._engine.is_pending(queries):
            return None
        stored = self.store.get_many({query.key for query in queries if query.key is not None})
        answers = [
            Answer(query.key, stored[query.key], score(query.sample, stored[query.key]))
            for query in queries
            if query.key is not None and query.key in stored
        ]
        if len(answers) < len(queries):
            return None
        samples = [partial.queries[place * partial.views].sample for place in places]
        return CellResult.of(cell, samples, answers, views=partial.views, places=places, notes={}).values

    def question(self, sample: Sample, setting: str | Setting) -> Sample:
        """Returns a sample as a setting changes its question."""
        return self._views.question(sample, Setting.parse(setting) if isinstance(setting, str) else setting)

    def changed(self, dataset: str, setting: Setting) -> tuple[int, ...] | None:
        """Returns the places of the samples whose question a setting changes; ``None`` if it changes only images."""
        if not (steps := split(setting)[0]):
            return None
        if (dataset, steps) not in self._changed:
            samples = enumerate(self.samples(dataset))
            self._changed[dataset, steps] = tuple(place for place, sample in samples if self.question(sample, setting) != sample)
        return self._changed[dataset, steps]

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return corpus_metric(self.dataset(dataset))

    def model_fingerprint(self, model: str) -> Mapping[str, Any]:
        """Returns the fingerprint of a model without loading weights."""
        with self._opening:  # also called by threads that prepare requests
            if model not in self._fingerprints:
                self._fingerprints[model] = self._backend(model).fingerprint()
            return self._fingerprints[model]

    def changes(self) -> list[str]:
        """Returns a sentence for each model that may have changed during the run.

        Call it after the last answer: a server may have changed its model without any other sign.
        """
        self._engine.rest()
        return list(filter(None, map(self._change, self._backends)))

    def _change(self, model: str) -> str:
        """Returns a sentence if a model or its fingerprint changed since its first use; else an empty text."""
        if self._backends[model].is_remote:
            return self._backends[model].check()
        before = self._fingerprints.get(model)
        if before is None:
            return ""
        try:
            now = self._backend(model).fingerprint()
        except VlmRobustError as error:
            return f"model {model!r} cannot be compared with the one that was asked first: {error}"
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return (
            f"the fingerprint of model {model!r} changed while it was asked, by {first_few(map(repr, names))}: it is not sure "
            "that one model gave all answers. Fix the backend, or run again with a model that stays the same"
            if names
            else ""
        )

    def how_models_ran(self) -> dict[str, object]:
        """Returns how each model ran that was loaded, JSON-safe: device, threads, size of batches; or why it does not say so."""
        descriptions: dict[str, object] = {}
        for name, backend in self._backends.items():
            try:
                about = backend.describe()
            except VlmRobustError as error:  # its records say why it could not be asked; this decides nothing
                descriptions[name] = {"problem": str(error)}
            else:
                if "loaded" in about:
                    descriptions[name] = {key: about[key] for key in ("batches", "failed_batches", "loaded") if key in about}
        return descriptions

    def free(self) -> None:
        """Frees weights, cells and images, so that a report has room in memory.

        Later requests load them again. Servers stay connected, because their description is read later.
        """
        self._engine.rest()
        for kept in (self._wanted, self._results, self._partial):
            kept.clear()
        self._views.forget()
        remote = self._remote()
        self._close_backends(backend for backend in self._backends.values() if backend not in remote)

    def interrupt(self) -> None:
        """Tells the user what an interrupted run still waits for."""
        self._engine.interrupt()

    def close(self) -> None:
        """Frees the models and stops working ahead."""
        for remote in self._remote():
            remote.give_up()  # a server that hangs must not keep an interrupted run alive
        self._engine.close()
        self._close_backends(self._backends.values())

    def _close_backends(self, backends: Iterable[Guard]) -> None:
        for backend in backends:
            with contextlib.suppress(VlmRobustError):  # all answers are in, and memory is freed with the process
                backend.close()

    def _remote(self) -> list[Guard]:
        return [backend for backend in self._backends.values() if backend.is_remote]

    def _backend(self, model: str) -> Guard:
        with self._opening:
            if model not in self._backends:
                ref = self.models[model]
                self._backends[model] = Guard(lambda: self.open_backend(ref), model, self.options.time_limit)
            return self._backends[model]

    def ask(self, model: str, requests: Sequence[Request]) -> list[Prediction]:
        """Returns new answers of a model, ignoring the store; nothing else runs meanwhile, and nothing is stored."""
        self._engine.rest()
        return self._make_resident(model).infer(requests)

    def _make_resident(self, model: str) -> Guard:
        """Returns the backend after freeing the weights of all others."""
        for name, backend in self._backends.items():
            if name != model:
                backend.close()
        return self._backend(model)

    def _evaluate(self, partial: PartialCell, places: Sequence[int]) -> None:
        """Evaluates these samples of a cell, by position in the dataset; none may be evaluated yet."""
        started = time.monotonic()
        self.work_ahead(partial.cell.model)
        self.encoded.clear()
        try:
            answers = self._answered(partial, places)
        except BudgetSpent:
            self._engine.rest()  # answers in flight are awaited, stored and counted
            self.inferred += self._engine.counted(query.key for query in partial.queries.values() if query.key is not None)[0]
            raise
        inferred, seconds = self._engine.counted(answer.key for answer in answers.values())
        partial.results.clear()
        partial.answers |= answers
        partial.evaluated |= set(places)
        partial.notes |= self._notes(partial, places)
        partial.n_inferred += inferred
        partial.seconds += seconds or time.monotonic() - started
        self.inferred += inferred
        self.recalled += len(answers) - inferred

    def queries(self, cell: Cell, places: Sequence[int] | None = None) -> list[Query]:
        """Returns the questions of a cell, by view, with the answer keys for known pixels; reads no image."""
        questions, count = self._questions_of(cell), view_count(cell.setting)
        if places is not None:
            questions = [questions[place] for place in places]
        if cell.setting == EXCHANGED:
            questions = [(self._exchanged(cell.dataset, sample), text) for sample, text in questions]
        recipes = self._views.recipes([sample for sample, _ in questions], cell.setting)
        recipes_of = zip(questions, recipes, strict=True)
        queries = [Query(*question, recipe, view, count) for question, recipe in recipes_of for view in range(count)]
        self._recall(cell, queries)
        return queries

    def _exchanged(self, dataset: str, sample: Sample) -> Sample:
        """Returns a sample with exchanged images."""
        other = self._pictures_from(dataset).get(sample.id)
        return sample if other is None else with_pictures_of(sample, other)

    def _pictures_from(self, dataset: str) -> Mapping[str, Sample]:
        if dataset not in self._exchanges:
            self._exchanges[dataset] = exchanges(self.samples(dataset))
        return self._exchanges[dataset]

    def _questions_of(self, cell: Cell) -> Sequence[tuple[Sample, str]]:
        """Returns the samples of a cell as sent to its model, each with its prompt.

        They are the same for all settings that only change pixels.
        """
        key = cell.model, cell.dataset, split(cell.setting)[0]
        if key not in self._questions:
            ref = self.models[cell.model]
            samples = (
                self._views.question(each, cell.setting) for each in self.samples_in_model_coordinates(cell.model, cell.dataset)
            )
            self._questions[key] = [(sample, ref.framed(prompt(sample, ref.prompt_mode))) for sample in samples]
        return self._questions[key]

    def _answered(self, partial: PartialCell, places: Sequence[int]) -> dict[int, Answer]:
        """Returns the answer to each needed view, by its index in the cell."""
        views = partial.views
        answers: dict[int, Answer] = {}
        settled: set[int] = set()
        for turn in view_batches(len(places), views, stop=self._stops(partial)):
            numbers = [places[index // views] * views + index % views for index in turn]
            chosen = [number for number in numbers if number // views not in settled]
            batch = self._queries(partial, chosen)
            predictions = self._predictions(partial.cell, batch)
            for number, query in zip(chosen, batch, strict=True):
                prediction = predictions[query]
                answers[number] = Answer(query.key or "", prediction, score(query.sample, prediction))
            settled |= {number // views for number in chosen if answers[number].score.value == MAX_SCORE}
        return answers

    def _stops(self, partial: PartialCell) -> bool:
        return self.options.patch_stop and partial.views > 1

    def _predictions(self, cell: Cell, queries: Sequence[Query]) -> dict[Query, Prediction]:
        """Returns the answers to some questions of a cell; missing answers are inferred."""
        encoded = self.store.get_encoded({query.key for query in queries if query.key is not None})
        self.encoded |= encoded
        stored = {key: self.store.decoded(key, text) for key, text in encoded.items()}
        answered = {query: stored[query.key] for query in queries if query.key in stored}
        missing = [query for query in queries if query not in answered]
        if missing and self.options.offline:
            raise OfflineError(
                f"{cell}: {len(missing)} of {len(queries)} answers are not in the store, and --vlm-offline forbids asking "
                "the model. Run once without --vlm-offline"
            )
        if missing:
            self._engine.turn_to(cell.model)
            self.work_ahead(cell.model)
        for answers in self._engine.answers(cell, missing):
            answered |= answers
            self.listener(Progress(cell, len(answered), len(queries)))
        self._refuse_other_method(cell, answered)
        return answered

    def _refuse_other_method(self, cell: Cell, answered: Mapping[Query, Prediction]) -> None:
        """Refuses answers to choices by another method than the user chose, from any run."""
        ref = self.models[cell.model]
        for query, prediction in answered.items() if ref.answer else ():
            other = prediction.answered_by
            if prediction.finish_reason == "error" or other == ref.answer or not scorable_choices(query.sample, ref.prompt_mode):
                continue
            raise BackendError(
                f"model {cell.model!r}: sample {query.sample.id!r} of {cell.dataset!r} was answered by {other}, and choices are "
                f"to be answered by {ref.answer} (--vlm-answer, or answer in the models file). Say {other} there, or leave it out"
            )

    def work_ahead(self, model: str) -> None:
        """Lets an active model work on expected questions while there is room."""
        wanted = self._wanted.get(model, ())
        while wanted and self._engine.is_asking(model) and self._engine.room > 0:
            request = wanted.popleft()
            try:
                self._engine.expect(request.cell, self._missing(request))
            except VlmRobustError:
                continue  # the test that requests this cell gets the same error

    def _missing(self, request: CellRequest) -> list[Query]:
        """Returns the questions of an expected part of a cell that the store has no answers to."""
        partial = self._partial_cell(request.cell)
        views = 1 if self._stops(partial) else partial.views  # whether further patches are needed depends on the first
        places = self.changed(request.cell.dataset, request.cell.setting) if request.places is None else request.places
        numbers = [place * partial.views + view for place in partial.missing(places) for view in range(views)]
        queries = self._queries(partial, numbers)
        known = self.store.has({query.key for query in queries if query.key is not None})
        return [query for query in queries if query.key not in known]

    def _partial_cell(self, cell: Cell) -> PartialCell:
        if cell not in self._partial:
            self._partial[cell] = PartialCell(cell, len(self._questions_of(cell)), view_count(cell.setting))
        return self._partial[cell]

    def _queries(self, partial: PartialCell, numbers: Sequence[int]) -> list[Query]:
        """Returns questions of a cell by index; each is created once."""
        views = partial.views
        new = list(dict.fromkeys(number // views for number in numbers if number not in partial.queries))
        if new:
            partial.queries |= zip(view_indices(new, views), self.queries(partial.cell, new), strict=True)
        return [partial.queries[number] for number in numbers]

    def samples_in_model_coordinates(self, model: str, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset with boxes in the model's coordinates."""
        samples = self.samples(dataset)
        if not any(sample.localisation for sample in samples):
            return samples
        backend, convention = self._backend(model), self.models[model].box_convention
        return tuple(in_space_of(sample, convention, backend) for sample in samples)

    def _notes(self, partial: PartialCell, places: Sequence[int]) -> dict[str, tuple[str, ...]]:
        chosen = [partial.queries[place * partial.views] for place in places]
        by_recipe = self.store.get_notes({query.recipe for query in chosen})
        return {query.sample.id: by_recipe[query.recipe] for query in chosen if query.recipe in by_recipe}

    def _recall(self, cell: Cell, queries: Sequence[Query]) -> None:
        """Fills in the answer keys of recipes whose pixels are known from an earlier run."""
        known = {} if cell.setting == NO_IMAGE else self.store.get_digests({query.recipe for query in queries})
        no_digests = () if cell.setting == NO_IMAGE else None
        key = self._keys_of(cell)
        for query in queries:
            digests = known.get(query.recipe, no_digests)
            if digests is not None:
                query.key = key(query, digests)

    def _keys_of(self, cell: Cell) -> Callable[[Query, tuple[str, ...]], str]:
        """Returns the function for answer keys in a cell, by the digests of a sample's images."""
        if cell.model not in self._key_of:
            self._key_of[cell.model] = fingerprints_after(canonical_json(dict(self.model_fingerprint(cell.model))))
        key_of = self._key_of[cell.model]
        is_another = cell.setting == AGAIN and not self._backend(cell.model).traits.answers_alone
        more = [canonical_json(str(AGAIN))] if is_another else []

        def key(query: Query, digests: tuple[str, ...]) -> str:
            seen = ",".join([f'"{digest}"' for digest in of_view(digests, query.view, query.views)])  # as canonical JSON
            return key_of(f"[{seen}]", self._question_json(cell, query), *more)

        return key

    def _question_json(self, cell: Cell, query: Query) -> str:
        """Returns the shared part of all answer keys of a question: text, choices, and how to answer."""
        about = cell.model, cell.dataset, query.sample.id, split(cell.setting)[0]
        if about not in self._questions_json:
            ref = self.models[cell.model]
            choices = scorable_choices(query.sample, ref.prompt_mode)
            facts = query.text, choices, ref.prompt_mode, self._limit(ref, query.sample)
            self._questions_json[about] = ",".join(map(canonical_json, facts))
        return self._questions_json[about]

    def _limit(self, ref: ModelRef, sample: Sample) -> int:
        if ref.name not in self._longest:
            self._longest[ref.name] = generation_for(ref).max_new_tokens
        return answer_limit(sample, ref.prompt_mode, self._longest[ref.name])

    def batch_size(self, model: str) -> int:
        """Returns how many requests a model is handed at a time: as many as its backend says, else as many as the options say."""
        chosen = self.options.batch_size
        return self._backend(model).traits.batch_size or (chosen if isinstance(chosen, int) else START)

    def request(self, cell: Cell, query: Query, view: View | None = None) -> Request:
        """Returns the request for a view of a sample and sets its key."""
        view = self._views.view(query.sample, cell.setting) if view is None else view
        ref = self.models[cell.model]
        query.key = self._keys_of(cell)(query, view.digests)
        whose = self._pictures_from(cell.dataset).get(query.sample.id) if cell.setting == EXCHANGED else None
        return Request(
            key=query.key,
            images=of_view(view.images, query.view, query.views),
            text=query.text,
            choices=scorable_choices(query.sample, ref.prompt_mode),
            max_new_tokens=self._limit(ref, query.sample),
            sample_id=(whose or query.sample).id,
            setting=str(shown_setting(cell.setting)),
            dataset=cell.dataset,
        )
