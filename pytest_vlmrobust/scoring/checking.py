"""Checking: whether what a data set names to score it exists, before any model is asked."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample

from .corpus import CORPUS_METRICS
from .scorers import SCORERS


def check_scoring(dataset: str, corpus_metric: str, samples: Iterable[Sample]) -> None:
    """Looks up the corpus metric of a data set, and the scorer of each of its samples.

    Raises:
        UnknownName: one of them is not registered; names the data set, and the first sample that asks for it.
    """
    if corpus_metric not in CORPUS_METRICS:
        raise UnknownName("corpus metric", corpus_metric, CORPUS_METRICS.names(), where=f"dataset {dataset!r}")
    first: dict[str, Sample] = {}
    for sample in samples:
        first.setdefault(sample.scorer or sample.task, sample)
    for name, sample in first.items():
        if name not in SCORERS:
            raise UnknownName("scorer", name, SCORERS.names(), where=f"dataset {dataset!r}, sample {sample.id!r}")
