"""Data sets: what the questions are asked from.

``resolve`` turns what the user typed into a ``Dataset``; ``dataset_id`` gives the name used in test ids without opening
anything; ``register`` adds one under a name. Readers of file formats are imported when a file of theirs is resolved.
"""

from .embedded import EMBEDDED
from .protocol import Dataset
from .registry import DATASETS, DatasetFactory, names, register
from .resolve import dataset_id, resolve

__all__ = ["DATASETS", "Dataset", "DatasetFactory", "dataset_id", "names", "register", "resolve"]

for _name, _factory in EMBEDDED.items():
    register(_name, _factory)
