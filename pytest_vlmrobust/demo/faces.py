"""`faces`: drawn people with exact boxes of eyes, nose and mouth, for the tasks of the Observatory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.errors import DatasetError
from pytest_vlmrobust.core.fingerprint import fingerprint, rng_for
from pytest_vlmrobust.datasets import Entity

from .portraits import Portrait, families, relatives
from .shapes import EVALUATION_SEED

VERSION = 1
"""Changes whenever a pixel or an identity changes."""


@dataclass(frozen=True)
class PortraitImage:
    """The picture of one portrait, drawn when loaded."""

    portrait: Portrait
    side: int

    def load(self) -> NDArray[np.uint8]:
        """Draws the portrait: RGB, uint8, shape (side, side, 3)."""
        from .portrait_drawing import draw_portrait

        return draw_portrait(self.portrait, self.side)

    def identity(self) -> str:
        """Returns everything that determines the pixels, including the renderer: edges may differ between its versions."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        from cv2 import __version__

        return fingerprint(["portrait", VERSION, __version__, self.side, repr(self.portrait)])


@dataclass(frozen=True)
class FaceCollection:
    """Drawn faces of the evaluation split, equally many of each group (one more ``light`` one if ``count`` is odd).

    The group is that of the skin tone, ``light`` or ``dark``, which perturbations of brightness, contrast and noise can affect
    unequally. All else is independent of it. No real people are shown: a gap shows how a model treats drawings of light and
    of dark skin, not how it treats people.

    Neighbours have the entity's tone. With one neighbour of each group, as in the paper, the entity's group is always the
    more frequent one among the candidates, and the odd one out can be excluded without looking at the support. If all share
    one group, it reveals nothing; the groups are balanced over the entities. In other respects, too, entity and neighbours are
    exchangeable, see ``families``; neighbours after the third are less near, see ``relatives``.

    Position and size of the head vary between entities, so that no box is at the same place for all, and none can be
    inferred from other entities.
    """

    name: str = "faces"
    side: int = 1024
    count: int = 100
    seed: int = EVALUATION_SEED
    domain: str = field(default="face", init=False)
    hinted: str = field(default="nose", init=False)

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the pictures."""
        return fingerprint(["faces", VERSION, self.side, self.count, self.seed])

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return self.side

    def entities(self) -> Sequence[Entity]:
        """Returns all identities, alternating between groups."""
        return self._entities

    def neighbours(self, entity: Entity, count: int) -> tuple[PortraitImage, ...]:
        """Returns drawings of ``count`` other people who share all but a few features with the entity, nearest first."""
        family = self._families.get(entity.id)
        if family is None:
            raise DatasetError(f"{self.name} has no face {entity.id!r}; it has {self.count}, from face-000 on")
        more = relatives(rng_for(self.seed, "faces", "relatives", entity.id), family)
        others = (*family[1 : count + 1], *islice(more, max(0, count + 1 - len(family))))
        return tuple(PortraitImage(other, self.side) for other in others)

    @cached_property
    def _entities(self) -> tuple[Entity, ...]:
        return tuple(_entity(name, family[0], self.side) for name, family in self._families.items())

    @cached_property
    def _families(self) -> dict[str, tuple[Portrait, ...]]:
        source = families(rng_for(self.seed, "faces"), evaluation=True)
        return {f"face-{number:03d}": family for number, family in enumerate(islice(source, self.count))}


def _entity(name: str, portrait: Portrait, side: int) -> Entity:
    from .portrait_drawing import portrait_boxes

    return Entity(
        id=name,
        label=f"{portrait.face} face, {portrait.hair_colour} hair ({portrait.hair})",
        image=PortraitImage(portrait, side),
        size=(side, side),
        boxes=portrait_boxes(portrait, side),
        group=portrait.group,
    )


FACES_160 = partial(FaceCollection, "faces_160", side=160, count=24)
"""Small enough for ``tiny``."""
