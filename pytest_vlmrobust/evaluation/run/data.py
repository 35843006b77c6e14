"""Data: the datasets of a run, by the names in test ids; everything is read on demand."""

from __future__ import annotations

import contextlib
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import DatasetError, UsageError, VlmRobustError
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.words import first_few
from pytest_vlmrobust.datasets import (
    DATASETS,
    Collection,
    Dataset,
    corpus_metric,
    dataset_id,
    resolve,
    resolve_collection,
    sampling,
)
from pytest_vlmrobust.datasets.benchmarks import UNKNOWN
from pytest_vlmrobust.datasets.files import DatasetWarning
from pytest_vlmrobust.evaluation.tasks import TASKS, TaskDataset, task_dataset
from pytest_vlmrobust.perturbations.questions import perturbed, split
from pytest_vlmrobust.scoring import check_scoring

QUESTIONS = ("shapes", "words")
COLLECTIONS = ("faces", "words")
"""The embedded collections, used by default in the size that suits the models."""
UNHINTED = {"semi_guided": "unguided"}
"""Each hinted task and the same task without the hint."""
SMALL = "_160"
SMALL_EDGE = 400
"""Long edge in pixels up to which a collection counts as small; models trained on small images get it."""


class TaskData(Protocol):
    """Which datasets tasks make of collections."""

    @property
    def tasks(self) -> Mapping[str, str]:
        """The task of every dataset made from a collection."""
        ...

    def lacking(self, name: str) -> str:
        """Returns why the task of ``name`` has no questions for its collection, and what to do; else an empty text."""
        ...


@dataclass(frozen=True, slots=True)
class StoredTasks:
    """The task datasets recorded by a finished run."""

    tasks: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Dataset to the reason why its task asked nothing."""

    def lacking(self, name: str) -> str:
        """Returns why the task of ``name`` had no questions for its collection; else an empty text."""
        return self.lacks.get(name, "")


@dataclass
class RunData:
    """The datasets of questions, the collections of identities, and the task datasets made from collections.

    Args:
        named: the values of ``--vlm-dataset``; by default the embedded datasets.
        data_dir: the directory of benchmarks.
        small: use the embedded collections with small images.
        sample: the value of ``--vlm-sample``; empty for all.
    """

    named: Sequence[str]
    data_dir: Path | None = None
    small: bool = False
    sample: str = ""
    _opened: dict[str, Collection | None] = field(default_factory=dict)
    _looked: dict[str, Dataset] = field(default_factory=dict)
    _changed: dict[tuple[str, Setting], tuple[int, int]] = field(default_factory=dict)
    _unreadable: set[str] = field(default_factory=set)

    @cached_property
    def questions(self) -> dict[str, str]:
        """The typed name of each dataset of questions, by its name in test ids."""
        if not self.named:
            return {name: name for name in QUESTIONS}
        return self._distinct(typed for typed in self.named if self._asks_questions(typed))

    @cached_property
    def collections(self) -> dict[str, str]:
        """The typed name of each collection of identities, by its name in test ids."""
        if not self.named:
            return {f"{name}{SMALL if self.small else ''}": f"{name}{SMALL if self.small else ''}" for name in COLLECTIONS}
        return self._distinct(typed for typed in self.named if self._collection(typed) is not None)

    @property
    def typed(self) -> dict[str, str]:
        """The typed name of all data, by name in test ids."""
        return {**self.questions, **self.collections}

    def of_tasks(self, tasks: Iterable[str]) -> dict[str, str]:
        """Returns the datasets that tasks make of the collections: name in test ids to task."""
        return {f"{collection}.{task}": task for collection in self.collections for task in tasks}

    @cached_property
    def tasks(self) -> dict[str, str]:
        """The task of every dataset that can be made from a collection; datasets of questions have none."""
        return self.of_tasks(TASKS)

    @cached_property
    def factories(self) -> dict[str, Callable[[], Dataset]]:
        """The function that opens each dataset, by its name in test ids."""
        factories: dict[str, Callable[[], Dataset]] = {
            short: partial(self._questions, typed) for short, typed in self.questions.items()
        }
        for short, typed in self.collections.items():
            factories.update({f"{short}.{task}": partial(self._of_task, typed, task) for task in TASKS})
        return factories

    def open(self, name: str) -> Dataset:
        """Returns the dataset called ``name`` in test ids."""
        return self.factories[name]()

    def check(self) -> None:
        """Looks for everything that was named, without reading it."""
        for typed in self.questions.values():
            try:
                resolve(typed, data_dir=self.data_dir)
            except DatasetError:
                self._refuse_task(typed)
                raise
        for typed in self.collections.values():
            self._collection(typed)

    def lacking(self, name: str) -> str:
        """Returns why the task of ``name`` has no questions for its collection, and what to do; else an empty text."""
        return "" if name not in self.tasks else self._made(name).lacking

    def notes(self, names: Iterable[str]) -> list[str]:
        """Returns the notes about datasets, each once: about tasks, and settings that are skipped.

        Unreadable datasets are left out; the tests that need them report why.
        """
        notes: dict[str, None] = {}
        for name in names:
            idle = self.idle(name)
            notes |= dict.fromkeys([f"{name}: not asked, as no question of it would change: {first_few(idle)}"] if idle else ())
            if name in self.tasks:
                with contextlib.suppress(VlmRobustError):
                    notes |= dict.fromkeys(self._made(name).notes)
        return list(notes)

    def lacking_of(self, names: Iterable[str]) -> dict[str, str]:
        """Returns what collections of datasets without questions lack, and what to do.

        Unreadable datasets are left out; the tests that need them report why.
        """
        reasons = {}
        for name in sorted(names):
            with contextlib.suppress(VlmRobustError):
                reasons[name] = self.lacking(name)
        return {name: why for name, why in reasons.items() if why}

    def sizes(self, names: Iterable[str], sample: str) -> dict[str, tuple[int, int]]:
        """Returns the source images and questions of a run by dataset; unreadable datasets are left out."""
        return {name: _size(samples) for name in dict.fromkeys(names) if (samples := self._chosen(name, sample))}

    def check_scoring(self, names: Iterable[str], sample: str) -> None:
        """Checks, before the first inference, that a scorer is known for every question.

        Tasks set their own scorers, and unreadable data are left out: the tests that need them
        report why.
        """
        for name in dict.fromkeys(names):
            samples = self._chosen(name, sample) if name in self.questions else ()
            if not samples:
                continue
            dataset = self._looked_at(name)
            try:
                check_scoring(name, corpus_metric(dataset), samples)
            except UsageError as error:
                benchmark = getattr(dataset, "benchmark", UNKNOWN)
                if benchmark.number != "refused":
                    raise
                raise UsageError(f"{benchmark.name} is not scored here, since {benchmark.why}: {error}") from None

    def samples_asked(self, names: Iterable[str], sample: str) -> dict[str, tuple[int, int]]:
        """Returns the number of samples in use and in total for datasets that ``sample`` reduces."""
        chosen = {name: self._chosen(name, sample) for name in dict.fromkeys(names)} if sample else {}
        return {name: (len(part), part.available) for name, part in chosen.items() if isinstance(part, sampling.Subset)}

    def strata(self, names: Iterable[str]) -> set[str]:
        """Returns the categories and slices of datasets; unreadable datasets are left out."""
        return {stratum for name in dict.fromkeys(names) for sample in self._chosen(name, "") for stratum in sample.strata}

    def readable_strata(self, names: Sequence[str]) -> set[str] | None:
        """Returns the categories and slices of datasets; ``None`` if one of them cannot be read."""
        return self.strata(names) if all(self._chosen(name, "") for name in names) else None

    def most_options(self, name: str) -> int:
        """Returns the largest number of options in a dataset; 0 if it cannot be read."""
        return max((len(sample.options) for sample in self._chosen(name, "")), default=0)

    def changes(self, name: str, setting: Setting) -> bool:
        """Whether a setting that changes questions changes one of a dataset; any other setting changes images."""
        size = self.changed_size(name, setting)
        return size is None or any(size)

    def idle(self, name: str) -> list[str]:
        """Returns the settings of the run that change no question of a dataset, as far as they were looked at."""
        return [str(setting) for (dataset, setting), size in self._changed.items() if dataset == name and not any(size)]

    def changed_size(self, name: str, setting: Setting) -> tuple[int, int] | None:
        """Returns how many source images and questions of a dataset are in questions that a setting changes.

        ``None`` for a setting that changes images alone, and for data that cannot be read.
        """
        if not split(setting)[0] or name in self._unreadable:
            return None
        if (name, setting) not in self._changed:
            if not (samples := self._chosen(name, self.sample)):
                self._unreadable.add(name)
                return None
            self._changed[name, setting] = _size(changed_by(setting, samples))
        return self._changed[name, setting]

    def _chosen(self, name: str, sample: str) -> Sequence[Sample]:
        """Returns the samples that a run asks about; none of a dataset that cannot be read: the tests that need it report why."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DatasetWarning)  # the evaluation says the same when it reads them
                return sampling.chosen(self._looked_at(name), sample or None)
        except VlmRobustError:
            return ()

    def _questions(self, typed: str) -> Dataset:
        return sampling.drawn_by(resolve(typed, data_dir=self.data_dir), self.sample)

    def _looked_at(self, name: str) -> Dataset:
        """Returns a cached dataset for checks before the run, separate from the run's dataset."""
        if name not in self._looked:
            self._looked[name] = self.open(name)
        return self._looked[name]

    def _made(self, name: str) -> TaskDataset:
        task = self.tasks[name]
        return self._of_task(self.collections[name.removesuffix(f".{task}")], task)

    def _refuse_task(self, typed: str) -> None:
        """Refuses the name of a single task of a collection."""
        name, _, task = typed.rpartition(".")
        collection = self._collection(name) if name else None
        meant = task if task in TASKS else next(iter(difflib.get_close_matches(task, TASKS, n=1)), "")
        if collection is None or not meant:
            return
        lacking = self._of_task(name, meant).lacking
        raise UsageError(
            f"--vlm-dataset {typed!r}: no dataset has this name. {name!r} is a collection of identities; the vlm_tasks marks "
            f"of a suite say which tasks are asked of it. Give --vlm-dataset={name}, and choose tests with "
            f"-k {collection.name}.{meant}{f'. But nothing can be asked there. {lacking}' if lacking else ''}"
        )

    def _of_task(self, typed: str, task: str) -> TaskDataset:
        collection = self._collection(typed)
        if collection is None:
            raise UsageError(f"{typed!r} is not a collection of identities")
        return task_dataset(task, collection, self._other(collection))

    def _other(self, collection: Collection) -> Collection:
        """Returns the embedded collection of the other domain, with images of about the same size."""
        edge = collection.native_long_edge
        name = ("faces" if collection.domain == "word" else "words") + (SMALL if edge and edge <= SMALL_EDGE else "")
        other = self._collection(name)
        if other is None:
            raise UsageError(f"the embedded collection {name!r} is not registered")
        return other

    def _collection(self, typed: str) -> Collection | None:
        """Returns the collection of that name, the same each time: it may have read images and embedded them."""
        if typed not in self._opened:
            self._opened[typed] = resolve_collection(typed, data_dir=self.data_dir)
        return self._opened[typed]

    def _asks_questions(self, typed: str) -> bool:
        """A name may be both: ``words`` has questions about pages, and is a collection of words."""
        return typed in DATASETS.names() or self._collection(typed) is None

    def _distinct(self, names: Iterable[str]) -> dict[str, str]:
        by_id: dict[str, str] = {}
        for name in names:
            short = dataset_id(name)
            if short in by_id:
                raise UsageError(
                    f"--vlm-dataset {name!r} and {by_id[short]!r} would both be called {short!r} in test ids. "
                    "Give each dataset once, or rename one of the files"
                )
            by_id[short] = name
        return by_id


def changed_by(setting: Setting, samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples whose question a setting changes; all if the perturbation of a user fails, as its test will say."""
    try:
        return [sample for sample in samples if perturbed(sample, setting, seed=0) != sample]
    except Exception:  # noqa: BLE001 - of a user's perturbation: the test that asks says what is wrong
        return [*samples]


def _size(samples: Sequence[Sample]) -> tuple[int, int]:
    return len({sample.source_image for sample in samples}), len(samples)


def unhinted(name: str, tasks: Mapping[str, str]) -> str:
    """Returns the dataset with the same questions as ``name`` but without hints; ``tasks`` has the task of each dataset."""
    task = tasks.get(name, "")
    if task not in UNHINTED:
        raise UsageError(
            f"the gain from a hint cannot be measured on {name!r}: no task asks the same without the hint. "
            f"Expected a task among {', '.join(UNHINTED)}"
        )
    return f"{name.removesuffix(task)}{UNHINTED[task]}"
