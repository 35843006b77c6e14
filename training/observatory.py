"""The fourth stage: the language model learns to compare pictures, for the Observatory's matching and pointing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from illustrated import Illustrator, restricted_letters
from network import read
from rows import Packer
from transformers import Qwen2VLForConditionalGeneration

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.seeding import derive_seed
from pytest_vlmrobust.core.setting import CLEAN, Setting
from pytest_vlmrobust.datasets.collection import Collection
from pytest_vlmrobust.evaluation.tasks import task_dataset

TASKS = ("matching", "pointing")
CLEAN_SHARE = 0.4
VARIANTS = 3
POINTED_AT = 300
ROWS = 24


def settings(rng: np.random.Generator, samples: Sequence[Sample], clean_share: float) -> list[Setting]:
    """Returns a random setting for each sample: clean, or one of the few in-distribution augmentations that its entity is shown under."""
    names = perturbations.names("observatory_id")
    return [
        CLEAN
        if rng.random() < clean_share
        else Setting.parse(names[(derive_seed(0, sample.group) + int(rng.integers(VARIANTS)) * 5) % len(names)])
        for sample in samples
    ]


class Course:
    """Samples of every task about two collections, by data set."""

    def __init__(self, collections: Sequence[Collection]) -> None:
        self._pairs = list(zip(collections, reversed(collections), strict=True))

    def samples(self, seed: int) -> dict[str, Sequence[Sample]]:
        """Returns every data set's samples, laid out by a seed."""
        made = [task_dataset(task, own, other, seed=seed) for own, other in self._pairs for task in TASKS]
        return {dataset.name: dataset.samples() for dataset in made}


def drawn(rng: np.random.Generator, course: Course, shares: Mapping[str, float]) -> Iterator[tuple[str, list[Sample]]]:
    """Yields batches of samples for ever, each of one data set; every pass over the entities has new layouts."""
    queues: dict[str, list[Sample]] = {}
    while True:
        if any(len(queue) < ROWS for queue in queues.values()) or not queues:
            fresh = course.samples(int(rng.integers(2**31)))
            for name, samples in fresh.items():
                if len(queues.get(name, ())) < ROWS:
                    queues[name] = [samples[i] for i in rng.permutation(len(samples))]
        names = list(queues)
        weights = np.array([shares[name.rpartition(".")[2]] for name in names])
        name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
        yield name, [queues[name].pop() for _ in range(ROWS)]


class Examiner:
    """Accuracy on held-out entities."""

    def __init__(self, model: Qwen2VLForConditionalGeneration, packer: Packer, course: Course, count: int) -> None:
        self._model, self._packer = model, packer
        self._samples = {name: list(samples[:count]) for name, samples in course.samples(0).items()}
        self._illustrator = Illustrator(model, packer)

    @torch.no_grad()
    def report(self, pools: Mapping[str, Sequence[Setting]]) -> dict[str, dict[str, float]]:
        """Returns accuracy by pool of settings and data set; sample i is shown under setting i of the pool, round and round."""
        letters = [self._packer.ids(letter)[0] for letter in "ABCD"]
        out: dict[str, dict[str, float]] = {}
        for pool, members in pools.items():
            for name, samples in self._samples.items():
                shown = [members[i % len(members)] for i in range(len(samples))]
                hits: list[bool] = []
                for start in range(0, len(samples), ROWS):
                    part = slice(start, start + ROWS)
                    batch, tokens, _ = self._illustrator.batch(samples[part], shown[part], name)
                    hits += restricted_letters(batch, read(self._model, batch, tokens), letters)
                out.setdefault(pool, {})[name] = round(float(np.mean(hits)), 3)
        return out


def pools() -> dict[str, list[Setting]]:
    """Returns the settings of the Observatory's three splits."""
    named = {"id": "observatory_id", "ood": "observatory_ood"}
    return {"clean": [CLEAN], **{k: [Setting.parse(name) for name in perturbations.names(v)] for k, v in named.items()}}
