"""Datasets that the package draws itself, so that a gate runs anywhere; no file is shipped or downloaded."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_vlmrobust.datasets.protocol import Collection, Dataset


def _shapes() -> Dataset:
    from .shapes import Shapes

    return Shapes()


def _shapes_all() -> Dataset:
    from .shapes import KINDS, Shapes

    return Shapes(name="shapes_all", kinds=tuple(KINDS))


def _words() -> Dataset:
    from .words import Words

    return Words()


def _cues(name: str) -> Dataset:
    from .cues import Cues

    return Cues(name)


def _face_collection(name: str, side: int, count: int) -> Collection:
    from .faces import FaceCollection

    return FaceCollection(name, side=side, count=count)


def _word_collection(name: str, side: int, count: int) -> Collection:
    from .word_collection import WordCollection

    return WordCollection(name, side=side, count=count)


EMBEDDED: dict[str, Callable[[], Dataset]] = {
    "shapes": _shapes,
    "shapes_all": _shapes_all,
    "words": _words,
    **{name: partial(_cues, name) for name in ("local_cue", "redundant_cue", "global_cue")},
}
"""Name to what makes the dataset; a new one is one row."""

EMBEDDED_COLLECTIONS: dict[str, Callable[[], Collection]] = {
    "faces": partial(_face_collection, "faces", side=1024, count=100),
    "faces_160": partial(_face_collection, "faces_160", side=160, count=24),
    "words": partial(_word_collection, "words", 1024, 100),
    "words_160": partial(_word_collection, "words_160", 160, 24),
}
"""Name to what makes the collection; a new one is one row."""
