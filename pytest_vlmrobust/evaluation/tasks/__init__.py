"""Tasks of the Perceptual Observatory: from a collection of identities to datasets of samples.

``task_dataset`` makes one of a task in ``TASKS``; matching and pointing show images of a second collection too, of the other
domain.
"""

from .dataset import TASKS, TaskDataset, task_dataset

__all__ = ["TASKS", "TaskDataset", "task_dataset"]
