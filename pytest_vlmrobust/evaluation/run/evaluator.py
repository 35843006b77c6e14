"""Evaluator: asks a model about every sample of a cell, once, and remembers the answers.

*Pull, don't stage.* Whoever needs a cell asks for it: a hit in the store when it was evaluated before, inference when not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_vlmrobust.backends import generation_for
from pytest_vlmrobust.backends.batch_size import START
from pytest_vlmrobust.backends.protocol import Backend
from pytest_vlmrobust.core.cell import NO_IMAGE, Cell, Setting
from pytest_vlmrobust.core.errors import BackendError, DatasetError, OfflineError, VlmRobustError
from pytest_vlmrobust.core.fingerprint import AUGMENTATION_SEED, fingerprint
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Request, Score
from pytest_vlmrobust.core.sample import PictureDigests, Sample
from pytest_vlmrobust.datasets import corpus_metric, sampling
from pytest_vlmrobust.datasets.protocol import Dataset
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.scoring import check_scoring, score
from pytest_vlmrobust.store import Pictures, Store

from .answers import score_table
from .leases import LEASE_SECONDS, Wait, owner_name, renewed
from .prompts import answer_limit, in_space_of, prompt, scorable_choices
from .results import HIGHEST, NOT_PREDICTED, UNASKED, CellResult, turns
from .views import Album, Pipeline, View, ViewMaker, of_view, view_count

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """What a run is told about evaluation; see the command line for the meaning of each."""

    seed: int = AUGMENTATION_SEED
    sample: str | None = None
    offline: bool = False
    batch_size: int | str = 32
    """Requests that a model is handed at a time; ``auto`` for as many as its backend says."""
    threads: int = 1
    """Threads that make views ahead of the model."""
    patch_stop: bool = False
    """Whether a sample is asked about no further patch once one is right."""
    pictures: Path | None = None
    """The folder of thumbnails; ``None`` for none. Nothing is added to it offline."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a cell is: ``done`` of ``total`` samples, ``inferred`` of them by the model just now."""

    cell: Cell
    done: int
    total: int
    inferred: int


@dataclass(eq=False)
class Asking:
    """One view of a sample on its way: where it comes from, and the key of its answer once known."""

    sample: Sample
    text: str
    recipe: str
    view: int
    views: int
    key: str | None = None


@dataclass
class Evaluator:
    """Evaluates cells on demand; one model is resident at a time.

    ``models`` and ``datasets`` map the names that stand in cells. ``inferred`` and ``recalled`` count the answers that this
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
    """Told what keeps this evaluator from getting on."""
    witness: Callable[[CellResult], None] = lambda _result: None
    """Told of each cell once it is evaluated, before anybody is told its result."""

    def __post_init__(self) -> None:
        self._results: dict[Cell, CellResult] = {}
        self._samples: dict[str, tuple[Sample, ...]] = {}
        self._pictures: dict[str, Mapping[str, PictureDigests]] = {}
        self._failed: dict[str, VlmRobustError] = {}
        self._loaded: dict[str, Dataset] = {}
        self._fingerprints: dict[str, Mapping[str, Any]] = {}
        self._backends: dict[str, Backend] = {}
        self._views = ViewMaker(self.options.seed)
        self._pipeline = Pipeline(self._views, threads=self.options.threads)
        pictures = Pictures(self.options.pictures) if self.options.pictures else None
        self.album = Album(self._views, self.store, pictures, read_only=self.options.offline)
        self.inferred = 0
        self.recalled = 0

    def dataset(self, name: str) -> Dataset:
        """Returns the dataset called ``name``, read on first use."""
        if name not in self._loaded:
            self._loaded[name] = self.datasets[name]()
        return self._loaded[name]

    def samples(self, dataset: str) -> tuple[Sample, ...]:
        """Returns the samples of a dataset that the run asks about.

        Raises:
            DatasetError: there are none.
            UnknownName: they are to be scored by what does not exist.
        """
        if dataset in self._failed:
            raise self._failed[dataset]
        if dataset not in self._samples:
            try:
                self._samples[dataset] = self._chosen(dataset)
            except VlmRobustError as error:
                self._failed[dataset] = error
                raise
        return self._samples[dataset]

    def pictures(self, dataset: str) -> Mapping[str, PictureDigests]:
        """Returns what tells the pictures of its samples from others, by id, of those that a model was shown as they are.

        Raises:
            DatasetError: there are no samples.
            ImageError: a picture cannot be found.
        """
        if dataset not in self._pictures:
            samples = self.samples(dataset)
            found = self._views.picture_digests(samples, self.store.get_digests)
            if len(found) < len(samples):
                return found
            self._pictures[dataset] = found
        return self._pictures[dataset]

    def _chosen(self, dataset: str) -> tuple[Sample, ...]:
        samples = tuple(sampling.chosen(self.dataset(dataset), self.options.sample))
        if not samples:
            raise DatasetError(f"dataset {dataset!r} has no samples: a gate over nothing measures nothing")
        check_scoring(dataset, self.corpus_metric(dataset), samples)
        return samples

    def result(self, cell: Cell) -> CellResult:
        """Returns the answers and scores of a cell; what is not in the store yet is inferred and stored.

        Raises:
            InfrastructureError: the model does not load, the store fails, or the run is offline and an answer is missing.
        """
        if cell not in self._results:
            result = self._evaluate(cell)
            self.witness(result)
            self._results[cell] = result
        return self._results[cell]

    def table(self, model: str, dataset: str, settings: Sequence[Setting], *, reference: str | None = None) -> ScoreTable:
        """Returns the paired scores of a model on a dataset: clean, without image, and under each of ``settings``.

        ``reference`` names the model whose errors normalise the mean corruption error; ``None`` takes the same model without
        the image, which knows only what guessing and language give.
        """
        return score_table(self, model, dataset, settings, reference=reference)

    def corpus_metric(self, dataset: str) -> str:
        """Returns the name of the metric that is reported for a dataset as a whole."""
        return corpus_metric(self.dataset(dataset))

    def model_fingerprint(self, model: str) -> Mapping[str, Any]:
        """Returns what determines the answers of a model; no weights are loaded for it."""
        if model not in self._fingerprints:
            self._fingerprints[model] = self._backend(model).fingerprint()
        return self._fingerprints[model]

    def close(self) -> None:
        """Frees the models and stops making views."""
        self._pipeline.close()
        for backend in self._backends.values():
            backend.close()

    def _backend(self, model: str) -> Backend:
        if model not in self._backends:
            self._backends[model] = self.open_backend(self.models[model])
        return self._backends[model]

    def resident(self, model: str) -> Backend:
        """Returns the backend that may load weights now: every other one frees its own first."""
        for name, backend in self._backends.items():
            if name != model:
                backend.close()
        return self._backend(model)

    def _evaluate(self, cell: Cell) -> CellResult:
        started = time.monotonic()
        asked = self.asked(cell)
        count = view_count(cell.setting)
        found, inferred = self._answered(cell, asked, count)
        self.inferred += inferred
        self.recalled += len(found) - inferred
        replies = [found.get(index, (NOT_PREDICTED, UNASKED)) for index in range(len(asked))]
        return CellResult(
            cell=cell,
            samples=tuple(asking.sample for asking in asked[::count]),
            predictions=tuple(prediction for prediction, _ in replies),
            scores=tuple(scored for _, scored in replies),
            n_requested=len(found),
            n_inferred=inferred,
            seconds=time.monotonic() - started,
            notes=self._notes(asked),
            views=count,
            keys=tuple(asking.key or "" for asking in asked),
        )

    def asked(self, cell: Cell) -> list[Asking]:
        """Returns what a cell asks, view by view, with the key of each answer where its pixels are known; none are read for it.

        Raises:
            InfrastructureError: the files of the model, or the store, cannot be read.
        """
        samples = self._spoken_to(cell.model, self.samples(cell.dataset))
        mode, count = self.models[cell.model].prompt_mode, view_count(cell.setting)
        recipes = [(sample, prompt(sample, mode), self._views.recipe(sample, cell.setting)) for sample in samples]
        asked = [Asking(*recipe, view, count) for recipe in recipes for view in range(count)]
        self._recall(cell, asked)
        return asked

    def _answered(self, cell: Cell, asked: Sequence[Asking], views: int) -> tuple[dict[int, tuple[Prediction, Score]], int]:
        """Returns the answer to each view that has to be asked about, by its index, and how many of them were inferred."""
        found: dict[int, tuple[Prediction, Score]] = {}
        settled: set[int] = set()
        inferred = 0
        for turn in turns(len(asked) // views, views, stop=self.options.patch_stop and views > 1):
            chosen = [index for index in turn if index // views not in settled]
            batch = [asked[index] for index in chosen]
            answers = self.store.get_many({asking.key for asking in batch if asking.key is not None})
            inferred += self._infer_missing(cell, batch, answers)
            for index, asking in zip(chosen, batch, strict=True):
                prediction = answers[asking.key or ""]
                found[index] = prediction, score(asking.sample, prediction)
            settled |= {index // views for index in chosen if found[index][1].value == HIGHEST}
        return found, inferred

    def _spoken_to(self, model: str, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        """Returns the samples as a model is asked: boxes in the coordinates that it speaks."""
        if not any(sample.localisation for sample in samples):
            return samples
        backend, convention = self._backend(model), self.models[model].box_convention
        return tuple(in_space_of(sample, convention, backend) for sample in samples)

    def _notes(self, asked: Sequence[Asking]) -> dict[str, tuple[str, ...]]:
        by_recipe = self.store.get_notes({asking.recipe for asking in asked})
        return {asking.sample.id: by_recipe[asking.recipe] for asking in asked if asking.recipe in by_recipe}

    def _recall(self, cell: Cell, asked: Sequence[Asking]) -> None:
        """Fills in the keys of answers whose pixels are known from an earlier run by their recipe."""
        known = self.store.get_digests({asking.recipe for asking in asked})
        for asking in asked:
            digests = () if cell.setting == NO_IMAGE else known.get(asking.recipe)
            if digests is not None:
                asking.key = self._key(cell, asking, digests)

    def _key(self, cell: Cell, asking: Asking, digests: tuple[str, ...]) -> str:
        ref = self.models[cell.model]
        choices = scorable_choices(asking.sample, ref.prompt_mode)
        model = self.model_fingerprint(cell.model)
        seen = of_view(digests, asking.view, asking.views)
        return fingerprint(
            [dict(model), list(seen), asking.text, list(choices), ref.prompt_mode, self._limit(ref, asking.sample)]
        )

    def _limit(self, ref: ModelRef, sample: Sample) -> int:
        return answer_limit(sample, ref.prompt_mode, generation_for(ref).max_new_tokens)

    def _infer_missing(self, cell: Cell, asked: Sequence[Asking], answers: dict[str, Prediction]) -> int:
        """Infers what has no answer, batch by batch, each stored before the next; returns how many were inferred here."""
        missing = [asking for asking in asked if asking.key is None or asking.key not in answers]
        if not missing:
            return 0
        if self.options.offline:
            raise OfflineError(
                f"{cell}: {len(missing)} of {len(asked)} answers are not in the store, and --vlm-offline forbids asking "
                "the model. Run once without --vlm-offline"
            )
        inferred = 0
        views = self._pipeline.views([(asking.sample, cell.setting, asking.recipe) for asking in missing])
        done = len(asked) - len(missing)
        while missing:
            size = self.batch_size(cell.model)
            batch, missing = missing[:size], missing[size:]
            inferred += self._ask(cell, batch, [next(views) for _ in batch], answers)
            done += len(batch)
            self.listener(Progress(cell, done, len(asked), inferred))
        return inferred

    def batch_size(self, model: str) -> int:
        """Returns how many requests a model is handed at a time; with ``auto``, as many as its backend says where it can say."""
        if isinstance(self.options.batch_size, int):
            return self.options.batch_size
        return int(getattr(self._backend(model), "batch_size", START))

    def _ask(self, cell: Cell, batch: Sequence[Asking], views: Sequence[View], answers: dict[str, Prediction]) -> int:
        """Answers one batch: from the store, from another worker that is at it, or by asking the model."""
        sent = [self.request(cell, asking, view) for asking, view in zip(batch, views, strict=True)]
        requests = {request.key: request for request in sent}
        made = [(asking.recipe, view) for asking, view in zip(batch, views, strict=True) if view.digests]
        self.store.put_digests({recipe: view.digests for recipe, view in made}, {recipe: view.notes for recipe, view in made})
        return self._settle(cell, requests, answers)

    def request(self, cell: Cell, asking: Asking, view: View | None = None) -> Request:
        """Returns what is sent to the model for one view of a sample, whose key is then known.

        Raises:
            ImageError: its picture cannot be read.
        """
        view = self._views.view(asking.sample, cell.setting) if view is None else view
        ref = self.models[cell.model]
        asking.key = self._key(cell, asking, view.digests)
        return Request(
            key=asking.key,
            images=of_view(view.images, asking.view, asking.views),
            text=asking.text,
            choices=scorable_choices(asking.sample, ref.prompt_mode),
            max_new_tokens=self._limit(ref, asking.sample),
            sample_id=asking.sample.id,
            setting=str(cell.setting),
            dataset=cell.dataset,
        )

    def _settle(self, cell: Cell, requests: Mapping[str, Request], answers: dict[str, Prediction]) -> int:
        inferred = 0
        wait = Wait(self.notice)
        while open_keys := [key for key in requests if key not in answers]:
            answers.update(self.store.get_many(open_keys))
            open_keys = [key for key in open_keys if key not in answers]
            mine = self.store.claim(open_keys, self.owner, LEASE_SECONDS)
            if open_keys and not mine:
                self._wait(open_keys, wait)
                continue
            inferred += self._infer(cell, [requests[key] for key in open_keys if key in mine], answers)
        return inferred

    def _wait(self, keys: Sequence[str], wait: Wait) -> None:
        """Waits a moment for others that work on these keys; takes the leases of those that died or give no sign of life."""
        lapsed = wait.lapsed(self.store.holders(keys), len(keys))
        for owner in lapsed:
            self.store.release(keys, owner)
        if not lapsed:
            time.sleep(_POLL_SECONDS)

    def _infer(self, cell: Cell, requests: Sequence[Request], answers: dict[str, Prediction]) -> int:
        if not requests:
            return 0
        keys = [request.key for request in requests]
        try:
            with renewed(self.store, keys, self.owner):
                found = dict(zip(keys, self.resident(cell.model).infer(requests), strict=True))
            _refuse_contradictions(cell, found.values())
            self.store.put_many(found, context={"model": cell.model, "dataset": cell.dataset, "setting": str(cell.setting)})
            answers.update({**found, **self.store.get_many(keys)})
        finally:
            self.store.release(keys, self.owner)
        return len(found)


def _refuse_contradictions(cell: Cell, predictions: Iterable[Prediction]) -> None:
    """Refuses letters that their own log-probabilities do not give: a verification of the run would read others.

    Raises:
        BackendError: there is one.
    """
    for prediction in predictions:
        if prediction.contradicts_itself:
            raise BackendError(
                f"{cell}: the backend answered with the letter {prediction.text!r}, and its log-probabilities are "
                f"{dict(prediction.logprobs)}. Expected the letter of the highest one: mend the backend of model {cell.model!r}"
            )
