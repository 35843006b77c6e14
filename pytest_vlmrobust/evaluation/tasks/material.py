"""Material: what tasks are made of, and the one way in which they draw from it.

Nothing here depends on the order of the identities: layouts go round by rank, and ranks follow from a seed and the ids alone.
What depends on an identity's id alone (which image of the other domain, how the rest is shuffled) stays when others come or go;
ranks, which keep the layouts in balance, do not.
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
"""What a collection may say of itself: by what near neighbours are chosen, such as ``pixel statistics 1``."""
GROUPING = "grouping:"
"""How the keys of samples begin that hold somebody's group in a further grouping: ``grouping:sex``."""


@dataclass(frozen=True)
class Material:
    """A collection, the collection of the other domain, and how tasks draw from both."""

    where: str
    """How messages call the dataset that is made."""
    collection: Collection
    other: Collection
    seed: int
    id_prefix: str = ""

    @property
    def noun(self) -> str:
        """What prompts call the thing in an image: ``face`` or ``word``."""
        return self.collection.domain

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """Every identity, in the order of the collection."""
        return tuple(self.collection.entities())

    def ranked_entities(self) -> Iterator[tuple[int, Entity]]:
        """Yields each identity with its rank, in the order of the collection.

        Ranks are shuffled by the seed within people of one group, so that layouts which go round by rank are balanced over
        all and nearly so in each group; they are the same for every task.
        """
        order = sorted(self.entities, key=lambda entity: (entity.group, rank_seed(self.seed, entity.id), entity.id))
        ranks = {entity.id: rank for rank, entity in enumerate(order)}
        return ((ranks[entity.id], entity) for entity in self.entities)

    def rng(self, entity: Entity, *use: str) -> np.random.Generator:
        """Returns a generator for one use, which depends on that, the seed and the identity's id alone."""
        return rng_for(self.seed, *use, entity.id)

    def keys(self, entity: Entity) -> dict[str, str]:
        """Returns the keys of an identity's samples: its id, its groups, and how its neighbours were chosen, if known."""
        chosen_by = str(getattr(self.collection, NEIGHBOURS_BY, ""))
        keys = {"entity": entity.id, "group": entity.group, NEIGHBOURS_BY: chosen_by}
        keys |= {f"{GROUPING}{name}": group for name, group in entity.groupings.items()}
        return {name: value for name, value in keys.items() if value}

    def near(self, entity: Entity, count: int) -> list[ImageSource]:
        """Returns images of ``count`` other identities that are easily taken for this one."""
        try:
            pictures = list(self.collection.neighbours(entity, count))
        except DatasetError as error:
            raise self._too_few(entity, count, str(error)) from error
        if len(pictures) != count:
            raise self._too_few(entity, count, f"the collection gave {len(pictures)}")
        return pictures

    def strange(self, entity: Entity) -> ImageSource:
        """Returns an image of the other domain, fitted to the size of the identity's own, so that size gives no hint."""
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


# Layout: where the target, the image of the other domain and the near neighbours stand among the candidates.


def other_place(target: int, turn: int, count: int) -> int:
    """Returns where the image of the other domain stands among ``count`` candidates.

    It is another place than ``target``, and a different one for every target of one ``turn``. Over ``count - 1`` turns in a
    row it takes every other place.
    """
    return (target + 1 + turn % (count - 1)) % count


def arrange(rng: np.random.Generator, fixed: Mapping[int, ImageSource], near: Sequence[ImageSource]) -> tuple[ImageSource, ...]:
    """Returns all candidates in order: some at their places, the others shuffled into the rest."""
    rest = iter(near[place] for place in rng.permutation(len(near)))
    return tuple(fixed[place] if place in fixed else next(rest) for place in range(len(fixed) + len(near)))
