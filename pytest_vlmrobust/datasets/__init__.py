"""Datasets: what the questions are asked from.

``resolve`` turns what the user typed into a ``Dataset``; ``dataset_id`` gives the name used in test ids without opening
anything; ``register`` adds one under a name. Readers of file formats are imported when a file of theirs is resolved.
``benchmark_of`` gives the record of a benchmark, ``register_benchmark`` adds one.

A ``Collection`` has identities instead of questions: the Observatory's tasks are made of it. ``resolve_collection`` turns what
the user typed into one, ``register_collection`` adds one under a name.
"""

from .benchmarks import BENCHMARKS, Benchmark, Kind, Layout, benchmark_of, benchmarks, register_benchmark
from .protocol import COLLECTIONS, Collection, CollectionFactory, Dataset, Entity, corpus_metric, register_collection
from .resolve import DATASETS, DatasetFactory, dataset_id, names, register, resolve, resolve_collection

__all__ = [
    "BENCHMARKS",
    "COLLECTIONS",
    "DATASETS",
    "Benchmark",
    "Collection",
    "CollectionFactory",
    "Dataset",
    "DatasetFactory",
    "Entity",
    "Kind",
    "Layout",
    "benchmark_of",
    "benchmarks",
    "corpus_metric",
    "dataset_id",
    "names",
    "register",
    "register_benchmark",
    "register_collection",
    "resolve",
    "resolve_collection",
]
