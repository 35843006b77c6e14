"""Grid pointing: in which cell of a collage is the face, or the word, that the support picture shows?

Section 3.2, task 2. The support is under the setting; the collage holds originals: the target, near neighbours, and one
picture of the other domain. Every identity is asked about once with the target in each cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from string import ascii_uppercase

from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.datasets.collection import Entity

from .collage import Collage, cell_size
from .layout import arranged, other_place
from .material import Material


def near_count(side: int) -> int:
    """Returns how many near neighbours a collage shows, beside who is meant and the picture of the other domain."""
    return side * side - 2


def question(noun: str, side: int) -> str:
    """Returns the question, with the places of the support picture and of the collage."""
    return (
        f"This picture shows a {noun}: {IMAGE_MARK}\nThis grid has {side} rows and {side} columns: {IMAGE_MARK}\n"
        f"Which cell [row,column] of the grid shows the same {noun}? [0,0] is at the top left."
    )


def cell_text(cell: int, side: int) -> str:
    """Returns how a cell is called, cells being counted row by row: ``[row,column]``, both from 0."""
    return f"[{cell // side},{cell % side}]"


def pointing(material: Material, *, side: int) -> Iterator[Sample]:
    """Yields ``side * side`` samples for each identity, one for each cell that the target can be in.

    The options are the cells in reading order, begun at a cell that goes round over the identities and is the same for all
    samples of one: so each letter is right once per identity, each letter stands for each cell equally often but for one, and a
    model that always gives one letter always gives one cell. The picture of the other domain takes each cell once per identity;
    where it stands beside the target goes round. The neighbours are shuffled anew for every sample.

    Raises:
        DatasetError: an identity has fewer than ``side * side - 2`` neighbours, or there is nothing of the other domain.
    """
    for rank, entity in material.ranked():
        near, strange = material.near(entity, near_count(side)), material.strange(entity)
        material.check_distinct(entity, [entity.image, strange, *near])
        for cell in range(side * side):
            fixed = {cell: entity.image, other_place(cell, rank, side * side): strange}
            parts = arranged(material.rng(entity, "pointing", str(cell)), fixed, near)
            collage = Collage(parts, side, cell_size(entity.size, side))
            yield _sample(material, entity, collage, cell, _options(rank, side))


def _sample(material: Material, entity: Entity, collage: Collage, cell: int, options: Mapping[str, str]) -> Sample:
    side = collage.side
    position = cell_text(cell, side)
    return Sample(
        id=f"{material.id_prefix}{entity.id}-r{cell // side}c{cell % side}",
        images=(entity.image, collage),
        question=question(material.noun, side),
        target=next(letter for letter, text in options.items() if text == position),
        task="choice",
        options=options,
        category=entity.category or entity.group,
        group=entity.id,
        keys={**material.keys(entity), "position": position},
        perturbed=(0,),
        seeded_by=entity.id,
    )


def _options(rank: int, side: int) -> dict[str, str]:
    count = side * side
    texts = [cell_text((rank + place) % count, side) for place in range(count)]
    return dict(zip(ascii_uppercase, texts, strict=False))
