"""Dataset: a named, fingerprinted, ordered collection of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pytest_vlmrobust.core.sample import Sample

from .benchmarks import ACCURACY


def corpus_metric(dataset: Dataset) -> str:
    """Returns the name of the metric that is reported for a data set as a whole: its ``corpus_metric``, else accuracy."""
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

        Raises:
            DatasetError: the data are empty or malformed; the message names file, line, value and what was expected.
        """
        ...
