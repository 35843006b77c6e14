"""Data sets: what the questions are asked from.

``resolve`` turns what the user typed into a ``Dataset``; ``dataset_id`` gives the name used in test ids without opening
anything; ``register`` adds one under a name. Readers of file formats are imported when a file of theirs is resolved.
``benchmark_of`` gives the record of a benchmark, ``register_benchmark`` adds one.
"""

from .benchmark import Benchmark, Kind, Layout
from .benchmark_registry import BENCHMARKS, benchmark_of, benchmarks, register_benchmark
from .embedded import EMBEDDED
from .protocol import Dataset, corpus_metric
from .registry import DATASETS, DatasetFactory, names, register
from .resolve import dataset_id, resolve

__all__ = [
    "BENCHMARKS",
    "DATASETS",
    "Benchmark",
    "Dataset",
    "DatasetFactory",
    "Kind",
    "Layout",
    "benchmark_of",
    "benchmarks",
    "corpus_metric",
    "dataset_id",
    "names",
    "register",
    "register_benchmark",
    "resolve",
]

for _name, _factory in EMBEDDED.items():
    register(_name, _factory)
