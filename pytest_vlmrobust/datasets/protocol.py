"""What questions are asked from: a dataset has samples, a collection has identities that the Observatory's tasks are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_vlmrobust.core.boxes import Box
from pytest_vlmrobust.core.registry import Registry
from pytest_vlmrobust.core.sample import ImageSource, Sample

from .benchmarks import ACCURACY

# Datasets.


def corpus_metric(dataset: Dataset) -> str:
    """Returns the name of the metric that is reported for a dataset as a whole: its ``corpus_metric``, else accuracy."""
    return str(getattr(dataset, "corpus_metric", ACCURACY))


def keeps_together(dataset: Dataset) -> tuple[str, ...]:
    """Returns by which keys samples count only together, ``group`` among them: its ``keeps_together``, else nothing."""
    return tuple(getattr(dataset, "keeps_together", ()))


class Dataset(Protocol):
    """What a run asks its questions from.

    One that is scored as a whole by more than accuracy has a ``corpus_metric``; one whose samples mean something only
    together, such as those of a group, says so by ``keeps_together``.

    Ids are unique, and the order is the same in every process. Pixels stay where they are until ``Sample.images[i].load()``.
    """

    @property
    def name(self) -> str:
        """Short and safe in a test id: letters, digits, ``.``, ``_`` and ``-``."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the content: it goes into the manifest, and two runs with equal digests saw the same data."""
        ...

    @property
    def native_long_edge(self) -> int | None:
        """Long edge of the images in pixels where all share one by construction, else None."""
        ...

    def samples(self) -> Sequence[Sample]:
        """Returns every sample, always in the same order.

        Malformed data are a DatasetError that names file, line, value and what was expected.
        """
        ...


# Collections: images of identities (faces, words) with exact boxes.


@dataclass(frozen=True, slots=True)
class Entity:
    """One identity: a person's face, or a word as it is written."""

    id: str
    """Unique in its collection; safe in a sample's id."""
    label: str
    """Who or what it is; never part of a prompt."""
    image: ImageSource
    size: tuple[int, int]
    """Width and height of the image in pixels."""
    boxes: Mapping[str, Box] = field(default_factory=dict)
    """Attribute to its box: ``left_eye``, ``right_eye``, ``nose``, ``mouth`` of a face, ``word`` of a word; empty where unknown.
    Left and right are the viewer's."""
    group: str = ""
    """The group of people that it belongs to, where gaps between groups are to be measured; empty where unknown."""
    category: str = ""
    """Its stratum: the semantic category of a word."""
    groupings: Mapping[str, str] = field(default_factory=dict)
    """Further groupings of people (``sex``, ``age``) to its group in each; those where it is unknown are absent."""


class Collection(Protocol):
    """Identities of one domain. Ids are unique, and the order is the same in every process.

    One may say more of itself: see ``notes``, ``notes_on_neighbours``, ``most_neighbours`` and ``how_to_add_boxes`` in this
    module, which read what it has of these names.
    """

    @property
    def name(self) -> str:
        """Short and safe in a test id: letters, digits, ``_`` and ``-``."""
        ...

    @property
    def domain(self) -> str:
        """``face`` or ``word``: the noun of prompts, and what tells which collection is the other domain."""
        ...

    @property
    def hinted(self) -> str:
        """What is told in semi-guided localisation: an attribute (``nose``), or ``corner`` for the top left corner of a word."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of what determines the images."""
        ...

    @property
    def native_long_edge(self) -> int | None:
        """Long edge of the images in pixels where all share one, else None."""
        ...

    def entities(self) -> Sequence[Entity]:
        """Returns every identity, always in the same order.

        Malformed data are a DatasetError that names file, row, value and what was expected.
        """
        ...

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        """Returns images of ``count`` other identities that are easily taken for this one, nearest first.

        They are drawn by the code that draws the entities, at the same size, and balanced over groups where there are any, so
        that nothing but the identity tells them apart. A collection with fewer others raises DatasetError.
        """
        ...


def notes(collection: Collection) -> tuple[str, ...]:
    """Returns what a reader of the report should know about the data of a collection: its ``notes``, else nothing."""
    return tuple(getattr(collection, "notes", ()))


def notes_on_neighbours(collection: Collection, count: int) -> tuple[str, ...]:
    """Returns what a reader should know about ``count`` neighbours of each: its ``notes_on_neighbours(count)``, else nothing."""
    ask = getattr(collection, "notes_on_neighbours", None)
    return tuple(ask(count)) if callable(ask) else ()


def most_neighbours(collection: Collection) -> int | None:
    """Returns how many neighbours it has for each of its identities; ``None`` where it does not say: it may draw any number."""
    most: int | None = getattr(collection, "most_neighbours", None)
    return most


def how_to_add_boxes(collection: Collection) -> str:
    """Returns a sentence about where boxes of a collection come from, for those who lack them."""
    return str(getattr(collection, "how_to_add_boxes", "Give them in the collection's annotations"))


CollectionFactory = Callable[[], Collection]

COLLECTIONS: Registry[CollectionFactory] = Registry("collection", "collections")


def register_collection(name: str, factory: CollectionFactory, *, replace: bool = False) -> CollectionFactory:
    """Registers ``factory``, which is called without arguments when a run first needs the images, under ``name``."""
    return COLLECTIONS.add(name, factory, replace=replace)
