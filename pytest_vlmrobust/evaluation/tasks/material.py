"""Material: the inputs of tasks, and the common way of drawing from them.

Nothing here depends on the order of the identities: layouts rotate by rank, and ranks depend only on a seed and the ids.
Choices by an identity's id alone (the image of the other domain, the shuffling of the rest) stay if others are added or removed;
ranks, which keep the layouts balanced, do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import derive_seed, rank_seed, rng_for
from pytest_vlmrobust.core.sample import ImageSource
from pytest_vlmrobust.datasets.protocol import Collection, Entity

from .pictures import Fitted

NEIGHBOURS_BY = "neighbours_by"
"""Optional attribute of a collection: how near neighbours are chosen, such as ``pixel statistics 1``."""
GROUPING = "grouping:"
"""Prefix of sample keys with a person's group in a further grouping: ``grouping:sex``."""


@dataclass(frozen=True)
class Material:
    """A collection, the collection of the other domain, and how tasks draw from both."""

    where: str
    """The name of the dataset in messages."""
    collection: Collection
    other: Collection
    seed: int
    id_prefix: str = ""

    @property
    def noun(self) -> str:
        """The noun for the image content in prompts: ``face`` or ``word``."""
        return self.collection.domain

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Every identity, in the order of the collection."""
        return tuple(self.collection.entities())

    def ranked_entities(self) -> Iterator[tuple[int, Entity]]:
        """Yields each identity with its rank, in the order of the collection.

        Ranks are shuffled by the seed within each group of people, so that layouts that rotate by rank are balanced over
        all people and nearly so in each group; they are the same for every task.
        """
        order = sorted(self.entities, key=lambda entity: (entity.group, rank_seed(self.seed, entity.id), entity.id))
        ranks = {entity.id: rank for rank, entity in enumerate(order)}
        return ((ranks[entity.id], entity) for entity in self.entities)

    def rng(self, entity: Entity, *use: str) -> np.random.Generator:
        """Returns a generator for one use, which depends only on the use, the seed and the identity's id."""
        return rng_for(self.seed, *use, entity.id)

    def keys(self, entity: Entity) -> dict[str, str]:
        """Returns the keys of an identity's samples: its id, its groups, and how its neighbours were chosen, if known."""
        chosen_by = str(getattr(self.collection, NEIGHBOURS_BY, ""))
        keys = {"entity": entity.id, "group": entity.group, NEIGHBOURS_BY: chosen_by}
        keys |= {f"{GROUPING}{name}": group for name, group in entity.groupings.items()}
        return {name: value for name, value in keys.items() if value}

    def near(self, entity: Entity, count: int) -> list[ImageSource]:
        """Returns images of ``count`` other identities that are easily confused with this one."""
        try:
            pictures = list(self.collection.neighbours(entity, count))
        except DatasetError as error:
            raise self._too_few(entity, count, str(error)) from error
        if len(pictures) != count:
            raise self._too_few(entity, count, f"the collection gave {len(pictures)}")
        return pictures

    def strange(self, entity: Entity) -> ImageSource:
        """Returns an image of the other domain, fitted to the size of the identity's image, so that size gives no hint."""
        chosen = self._others[derive_seed(self.seed, "other domain", entity.id) % len(self._others)]
        return chosen.image if chosen.size == entity.size else Fitted(chosen.image, entity.size)

    def check_distinct(self, entity: Entity, pictures: Sequence[ImageSource]) -> None:
        """Refuses duplicate candidates: there would be two right answers, or a wasted candidate."""
        if len({picture.identity() for picture in pictures}) < len(pictures):
            raise DatasetError(
                f"{self.where}: two of the {len(pictures)} candidates for {entity.id!r} are one and the same image, so that "
                "the right answer cannot be told. Remove the duplicate from the collection"
            )

    @cached_property
    def _others(self) -> tuple[Entity, ...]:
        mine, theirs = self.collection, self.other
        if mine.domain == theirs.domain:
            raise DatasetError(
                f"{self.where}: one candidate comes from another domain, and {theirs.name!r} is of the same one, "
                f"{mine.domain!r}. Pass a collection of another domain"
            )
        entities = sorted(theirs.entities(), key=lambda entity: entity.id)
        if not entities:
            raise DatasetError(f"{self.where}: the collection {theirs.name!r}, from which one candidate comes, is empty")
        return tuple(entities)

    def _too_few(self, entity: Entity, count: int, why: str) -> DatasetError:
        return DatasetError(
            f"{self.where}: {count} near neighbours of {entity.id!r} are needed, and {why}. "
            "Add identities to the collection, or ask for a task with fewer candidates"
        )


# Layout: positions of the target, the image of the other domain and the near neighbours among the candidates.


def other_place(target: int, turn: int, count: int) -> int:
    """Returns the position of the image of the other domain among ``count`` candidates.

    It differs from ``target``, and between the targets of one ``turn``. Over ``count - 1`` consecutive
    turns it takes every other position.
    """
    return (target + 1 + turn % (count - 1)) % count


def arrange(rng: np.random.Generator, fixed: Mapping[int, ImageSource], near: Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """Returns all candidates in order: some at fixed positions, the others shuffled into the rest."""
    rest = iter(near[place] for place in rng.permutation(len(near)))
    return tuple(fixed[place] if place in fixed else next(rest) for place in range(len(fixed) + len(near)))
