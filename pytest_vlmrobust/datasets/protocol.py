"""Sources of questions: a dataset has samples, a collection has identities, from which the Observatory's tasks are made."""

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
    """Returns the name of the metric for a dataset as a whole: its ``corpus_metric``, else accuracy."""
    return str(getattr(dataset, "corpus_metric", ACCURACY))


def keeps_together(dataset: Dataset) -> tuple[str, ...]:
    """Returns the keys (possibly ``group``) by which samples count only together: its ``keeps_together``, else nothing."""
    return tuple(getattr(dataset, "keeps_together", ()))


class Dataset(Protocol):
    """The source of a run's questions.

    A dataset scored as a whole by more than accuracy has a ``corpus_metric``; one whose samples are meaningful only
    together, such as those of a group, has ``keeps_together``.

    Ids are unique, and the order is the same in every process. Pixels are not read until ``Sample.images[i].load()``.
    """

    @property
    def name(self) -> str:
        """Short and safe in a test id: letters, digits, ``.``, ``_`` and ``-``."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the content, for the manifest: two runs with equal digests saw the same data."""
        ...

    @property
    def native_long_edge(self) -> int | None:
        """Long edge of the images in pixels if all share one by construction, else None."""
        ...

    def samples(self) -> Sequence[Sample]:
        """Returns all samples, always in the same order.

        Malformed data raise a DatasetError that names file, line, value and what was expected.
        """
        ...


# Collections: images of identities (faces, words) with exact boxes.


@dataclass(frozen=True, slots=True)
class Entity:
    """One identity: a person's face, or a word as written."""

    id: str
    """Unique in its collection; safe in a sample's id."""
    label: str
    """Who or what it is; never part of a prompt."""
    image: ImageSource
    size: tuple[int, int]
    """Width and height of the image in pixels."""
    boxes: Mapping[str, Box] = field(default_factory=dict)
    """Boxes by attribute: ``left_eye``, ``right_eye``, ``nose``, ``mouth`` of a face, ``word`` of a word; empty if unknown.
    Left and right are the viewer's."""
    group: str = ""
    """Its group of people, for measuring gaps between groups; empty if unknown."""
    category: str = ""
    """Its stratum: the semantic category of a word."""
    groupings: Mapping[str, str] = field(default_factory=dict)
    """Its group in further groupings of people (``sex``, ``age``); groupings in which it is unknown are absent."""


class Collection(Protocol):
    """Identities of one domain. Ids are unique, and the order is the same in every process.

    A collection may also have ``notes``, ``notes_on_neighbours``, ``most_neighbours`` and ``how_to_add_boxes``: see the
    functions of these names in this module, which read them.
    """

    @property
    def name(self) -> str:
        """Short and safe in a test id: letters, digits, ``_`` and ``-``."""
        ...

    @property
    def domain(self) -> str:
        """``face`` or ``word``: the noun in prompts; it also determines which collection is the other domain."""
        ...

    @property
    def hinted(self) -> str:
        """The hint in semi-guided localisation: an attribute (``nose``), or ``corner`` for the top left corner of a word."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of everything that determines the images."""
        ...

    @property
    def native_long_edge(self) -> int | None:
        """Long edge of the images in pixels if all share one, else None."""
        ...

    def entities(self) -> Sequence[Entity]:
        """Returns all identities, always in the same order.

        Malformed data raise a DatasetError that names file, row, value and what was expected.
        """
        ...

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        """Returns images of ``count`` other identities easily mistaken for this one, nearest first.

        They are drawn by the code that draws the entities, at the same size, and balanced over groups, if any, so
        that only the identity distinguishes them. A collection with fewer others raises DatasetError.
        """
        ...


def notes(collection: Collection) -> tuple[str, ...]:
    """Returns notes on a collection's data for the reader of the report: its ``notes``, else nothing."""
    return tuple(getattr(collection, "notes", ()))


def notes_on_neighbours(collection: Collection, count: int) -> tuple[str, ...]:
    """Returns notes on ``count`` neighbours of each identity: its ``notes_on_neighbours(count)``, else nothing."""
    ask = getattr(collection, "notes_on_neighbours", None)
    return tuple(ask(count)) if callable(ask) else ()


def most_neighbours(collection: Collection) -> int | None:
    """Returns the number of neighbours per identity; ``None`` if undeclared: it may then draw any number."""
    most: int | None = getattr(collection, "most_neighbours", None)
    return most


def how_to_add_boxes(collection: Collection) -> str:
    """Returns a sentence on how to provide the boxes of a collection that lacks them."""
    return str(getattr(collection, "how_to_add_boxes", "Give them in the collection's annotations"))


CollectionFactory = Callable[[], Collection]

COLLECTIONS: Registry[CollectionFactory] = Registry("collection", "collections")


def register_collection(name: str, factory: CollectionFactory, *, replace: bool = False) -> CollectionFactory:
    """Registers under ``name`` a ``factory``, which is called without arguments when a run first needs the images."""
    return COLLECTIONS.add(name, factory, replace=replace)
