"""Tasks of the Perceptual Observatory: make datasets of samples from a collection of identities.

``task_dataset`` makes the dataset of a task in ``TASKS``; matching and pointing also show images of a collection of the other
domain.
"""

from .dataset import TASKS, TaskDataset, task_dataset

__all__ = ["TASKS", "TaskDataset", "task_dataset"]
