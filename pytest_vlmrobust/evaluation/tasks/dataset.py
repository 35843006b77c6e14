"""TaskDataset: the samples that a task makes of a collection, as a data set like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.fingerprint import fingerprint
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.seeding import SUBSET_SEED
from pytest_vlmrobust.datasets.collection import Collection

from .collage import cell_size
from .localisation import guided, guided_published, semi_guided, semi_guided_published, unguided
from .matching import matching, matching_published
from .material import Material
from .pointing import pointing

VERSION = 1
"""Changes whenever a question, a layout or a choice of candidates changes."""

Maker = Callable[[Material], Iterable[Sample]]

GRIDS: Mapping[str, int] = {"pointing": 2, "pointing_3x3": 3, "pointing_4x4": 4}
"""Task to the number of rows, and of columns, of its collage."""

TASKS: Mapping[str, Maker] = {
    "matching": matching,
    "matching_published": matching_published,
    **{name: partial(pointing, side=side) for name, side in GRIDS.items()},
    "guided": guided,
    "semi_guided": semi_guided,
    "unguided": unguided,
    "guided_published": guided_published,
    "semi_guided_published": semi_guided_published,
}
"""Task to what makes its samples; a new one is one row."""


@dataclass(frozen=True)
class TaskDataset:
    """The samples of one task about one collection.

    They follow from the collections, the task, the seed and the version of this code, whatever the order of the identities.
    """

    task: str
    """One of ``TASKS``."""
    collection: Collection
    other: Collection
    """Where candidates of the other domain come from."""
    seed: int = SUBSET_SEED
    id_prefix: str = ""

    @property
    def keeps_groups(self) -> bool:
        """True: an identity is pointed to in every cell or not at all, and all tasks ask about the same ones."""
        return True

    @property
    def name(self) -> str:
        """``faces.matching``: the collection, and the task."""
        return f"{self.collection.name}.{self.task}"

    @property
    def digest(self) -> str:
        """SHA-256 of what determines the samples."""
        collections = [self.collection.digest, self.other.digest]
        return fingerprint([VERSION, self.task, self.seed, self.id_prefix, *collections])

    @property
    def native_long_edge(self) -> int | None:
        """Long edge in pixels of every picture; None where a collage has another one than the pictures in it."""
        edge = self.collection.native_long_edge
        side = GRIDS.get(self.task)
        if edge is None or side is None:
            return edge
        return edge if side * cell_size((edge, edge), side)[0] == edge else None

    def samples(self) -> Sequence[Sample]:
        """Returns every sample, in the order of the collection; made once.

        Raises:
            DatasetError: the collection lacks what the task needs; the message says what, and what to do.
        """
        return self._samples

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        return tuple(TASKS[self.task](Material(self.name, self.collection, self.other, self.seed, self.id_prefix)))


def task_dataset(
    task: str, collection: Collection, other: Collection, *, seed: int = SUBSET_SEED, id_prefix: str = ""
) -> TaskDataset:
    """Returns the data set that a task makes of a collection; nothing is read before its samples are asked for.

    Args:
        task: one of ``TASKS``.
        collection: the identities that are asked about.
        other: a collection of the other domain with pictures of the same size, for candidates out of domain.
        seed: decides about layouts and distractors; not about perturbations.
        id_prefix: comes before the identity in every sample's id.

    Raises:
        UnknownName: there is no such task.
    """
    if task not in TASKS:
        raise UnknownName("task", task, TASKS)
    return TaskDataset(task, collection, other, seed, id_prefix)
