"""Datasets: the sources of questions.

``resolve`` turns what the user typed into a ``Dataset``; ``dataset_id`` gives the name used in test ids without opening
anything; ``register`` adds one under a name. The reader of a file format is imported when such a file is resolved.
``benchmark_of`` returns the record of a benchmark, ``register_benchmark`` adds one.

A ``Collection`` has identities, from which the Observatory's tasks are made, not questions. ``resolve_collection`` turns what
the user typed into one; ``register_collection`` adds one under a name.
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
