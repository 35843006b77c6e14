"""Faces and words to learn comparing from: the training split of the Observatory's embedded collections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from pytest_vlmrobust.core.sample import ImageSource, Sample
from pytest_vlmrobust.datasets.protocol import Collection, Entity
from pytest_vlmrobust.demo.faces import PortraitImage
from pytest_vlmrobust.demo.portraits import families
from pytest_vlmrobust.demo.scenes import CANVAS
from pytest_vlmrobust.demo.word_collection import random_prints
from pytest_vlmrobust.evaluation.tasks import task_dataset

KIN = 3
"""How many pictures that are easily taken for each other are drawn together: an entity and two neighbours."""


class Identities:
    """A collection of groups whose members are easily taken for each other: each is an entity once, the others its neighbours."""

    hinted = "none"
    native_long_edge = CANVAS

    def __init__(self, domain: str, groups: Sequence[Sequence[ImageSource]]) -> None:
        self.domain, self.name, self.digest = domain, f"{domain}s", f"training {domain}s, {len(groups)} groups"
        self._entities: list[Entity] = []
        self._others: dict[str, tuple[ImageSource, ...]] = {}
        for number, group in enumerate(groups):
            for member, image in enumerate(group):
                entity = Entity(f"{domain}-{number}-{member}", domain, image, (CANVAS, CANVAS))
                self._entities.append(entity)
                self._others[entity.id] = (*group[member + 1 :], *group[:member])

    def entities(self) -> Sequence[Entity]:
        """Returns every member of every group."""
        return self._entities

    def neighbours(self, entity: Entity, count: int) -> tuple[ImageSource, ...]:
        """Returns other members of the entity's group."""
        return self._others[entity.id][:count]


def identities(rng: np.random.Generator, groups: int) -> tuple[Identities, Identities]:
    """Returns faces and words of the training split, ``groups`` groups of ``KIN`` each."""
    people = islice(families(rng, evaluation=False, size=KIN), groups)
    faces = [[PortraitImage(portrait, CANVAS) for portrait in family] for family in people]
    words = [group[:KIN] for group in islice(random_prints(rng, CANVAS, evaluation=False, count=KIN - 1), groups)]
    return Identities("face", faces), Identities("word", words)


def questions(
    rng: np.random.Generator, collections: Sequence[Collection], task: str, rows: int
) -> Iterator[tuple[str, list[Sample]]]:
    """Yields batches of samples for ever, each about one collection; every pass over the entities has new layouts."""
    queues: list[tuple[str, list[Sample]]] = [("", []) for _ in collections]
    while True:
        turn = int(rng.integers(len(collections)))
        if len(queues[turn][1]) < rows:
            made = task_dataset(task, collections[turn], collections[1 - turn], seed=int(rng.integers(2**31)))
            samples = made.samples()
            queues[turn] = made.name, [samples[i] for i in rng.permutation(len(samples))]
        name, queue = queues[turn]
        yield name, [queue.pop() for _ in range(rows)]
