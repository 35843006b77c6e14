"""TaskDataset: a dataset of the samples that a task makes from a collection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from pytest_vlmrobust.core.errors import DatasetError, UnknownName
from pytest_vlmrobust.core.fingerprint import SUBSET_SEED, fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.datasets.benchmarks import GROUP
from pytest_vlmrobust.datasets.protocol import Collection, Entity, how_to_add_boxes, most_neighbours, notes, notes_on_neighbours

from .identity import NEAR, matching, matching_published, near_count, pointing
from .localisation import (
    boxes_for_all,
    boxes_for_rest,
    guided,
    guided_published,
    semi_guided,
    semi_guided_published,
    unguided,
)
from .material import Material
from .pictures import cell_size

VERSION = 1
"""Changes whenever a question, a layout or a choice of candidates changes."""

GRIDS: Mapping[str, int] = {"pointing": 2, "pointing_3x3": 3, "pointing_4x4": 4}
"""Task to the number of rows, and of columns, of its collage."""


@dataclass(frozen=True, slots=True)
class Task:
    """The function that makes the samples of a task, and its requirements."""

    samples: Callable[[Material], Iterable[Sample]]
    near: int = 0
    """Number of near neighbours shown for each identity."""
    lacking: Callable[[Entity, str], str] = lambda _entity, _hinted: ""
    """Returns the boxes that an identity lacks, given the hint of the collection; identities that lack some are left out."""


TASKS: Mapping[str, Task] = {
    "matching": Task(matching, NEAR),
    "matching_published": Task(matching_published, NEAR),
    **{name: Task(partial(pointing, side=side), near_count(side)) for name, side in GRIDS.items()},
    "guided": Task(guided, lacking=boxes_for_all),
    "semi_guided": Task(semi_guided, lacking=boxes_for_rest),
    "unguided": Task(unguided, lacking=boxes_for_rest),
    "guided_published": Task(guided_published, lacking=boxes_for_all),
    "semi_guided_published": Task(semi_guided_published, lacking=boxes_for_rest),
}
"""Every task; add a row for a new one."""


@dataclass(frozen=True)
class TaskDataset:
    """The samples of one task about one collection.

    They depend on the collections, the task, the seed and the version of this code, not on the order of the identities.
    """

    task: str
    """A name in ``TASKS``."""
    collection: Collection
    other: Collection
    """The source of candidates from the other domain."""
    seed: int = SUBSET_SEED
    id_prefix: str = ""

    @property
    def keeps_together(self) -> tuple[str, ...]:
        """The group: an identity is pointed to in every cell or not at all, and a smaller dataset has the same for all tasks."""
        return (GROUP,)

    @property
    def name(self) -> str:
        """``faces.matching``: the collection, and the task."""
        return f"{self.collection.name}.{self.task}"

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the samples."""
        collections = [self.collection.digest, self.other.digest]
        return fingerprint([VERSION, self.task, self.seed, self.id_prefix, *collections])

    @property
    def native_long_edge(self) -> int | None:
        """Long edge in pixels of every image; None for collages, whose size differs from that of their images."""
        edge = self.collection.native_long_edge
        side = GRIDS.get(self.task)
        if edge is None or side is None:
            return edge
        return edge if side * cell_size((edge, edge), side)[0] == edge else None

    def samples(self) -> Sequence[Sample]:
        """Returns every sample, in the order of the collection; made once."""
        return self._samples

    @property
    def lacking(self) -> str:
        """Returns what the collection lacks if the task has no samples from it, and what to do; otherwise an empty string."""
        task, most = TASKS[self.task], most_neighbours(self.collection)
        if most is not None and most < task.near:
            return (
                f"{self.name}: {task.near} near neighbours are shown beside the target, and {self.collection.name!r} has "
                f"{_identities(most + 1)}. Add images of others until it has {task.near + 1}"
            )
        unboxed = self._unboxed
        if len(unboxed) < len(self.collection.entities()) or not unboxed:
            return ""
        first, lacks = next(iter(unboxed.items()))
        return (
            f"{self.name}: boxes are asked for, and none of {_identities(len(unboxed))} has them (the first, {first!r}, has "
            f"{lacks}). {how_to_add_boxes(self.collection)}. Matching and pointing need no boxes"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Returns notes on these data for readers of the report, those of the collection first."""
        lines = notes(self.collection)
        if self.lacking:
            return lines
        unboxed, total = self._unboxed, len(self.collection.entities())
        if unboxed:
            first, lacks = next(iter(unboxed.items()))
            left_out = f"{len(unboxed)} of {_identities(total)} are left out where boxes are asked for"
            why = f"the first, {first!r}, has {lacks}"
            lines += (f"{self.collection.name}: {left_out} ({why}). {how_to_add_boxes(self.collection)}",)
        near = TASKS[self.task].near
        return lines + (notes_on_neighbours(self.collection, near) if near else ())

    @cached_property
    def _unboxed(self) -> dict[str, str]:
        """The missing boxes of identities by id; complete identities are left out."""
        lacking, hinted = TASKS[self.task].lacking, self.collection.hinted
        lacks_by_id = {entity.id: lacking(entity, hinted) for entity in self.collection.entities()}
        return {name: lacks for name, lacks in lacks_by_id.items() if lacks}

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        if self.lacking:
            raise DatasetError(self.lacking)
        return tuple(TASKS[self.task].samples(Material(self.name, self.collection, self.other, self.seed, self.id_prefix)))


def _identities(count: int) -> str:
    return "1 identity" if count == 1 else f"{count} identities"


def task_dataset(
    task: str, collection: Collection, other: Collection, *, seed: int = SUBSET_SEED, id_prefix: str = ""
) -> TaskDataset:
    """Returns the dataset that a task makes from a collection; nothing is read before its samples are requested.

    Args:
        task: a name in ``TASKS``.
        collection: the identities of the questions.
        other: a collection of the other domain with images of the same size, for out-of-domain candidates.
        seed: determines layouts and distractors, but not perturbations.
        id_prefix: prefix of every sample's id, before the identity.
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    return TaskDataset(task, collection, other, seed, id_prefix)
