"""Image matching and grid pointing: which candidate, or which cell of a collage, shows the identity of the support image?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from string import ascii_uppercase

from pytest_vlmrobust.core.sample import IMAGE_MARK, ImageSource, Sample
from pytest_vlmrobust.datasets.protocol import Entity

from .material import Material, arrange, other_place
from .pictures import Collage, cell_size

# Image matching: which of four candidates shows the same face, or the same word, as the support image?
#
# The candidates are the same entity, two near neighbours and one image of the other domain (section 3.2, task 1).
#
# Perturbed images. The paper calls the target "a perturbed version of the support entity" and does not mention the other
# three. According to the released code, they are originals: it draws the neighbours of a word afresh, without any
# perturbation, and looks for those of a face among originals; which images of faces it then showed is unknown, because the
# generator of augmentations is not released. So most likely only the target was perturbed for the published numbers.
# The odd one out is then right, which is visible without the support image; or, for a model that judges by style,
# wrong, because the support is an original like the three distractors. Neither depends on identity. Here all four candidates
# are under the setting (``matching``); ``matching_published`` perturbs only the target, for comparison with the published
# numbers. Without a perturbation both ask the same.
#
# Illusions read from a folder must exist for every perturbed image: for ``matching`` also for the distractors.


LETTERS = "ABCD"
NEAR = len(LETTERS) - 2
"""Number of near neighbours among the candidates, besides the target and the image of the other domain."""


def matching_question(noun: str) -> str:
    """Returns the question, with the position of the support image."""
    return f"This picture shows a {noun}: {IMAGE_MARK}\nWhich option shows the same {noun}?"


def _samples(material: Material, *, target_only: bool) -> Iterator[Sample]:
    """Yields one sample for each identity.

    Over the identities, each letter is the target, and each the image of the other domain, equally often up to one.
    """
    for rank, entity in material.ranked_entities():
        target = rank % len(LETTERS)
        near, strange = material.near(entity, NEAR), material.strange(entity)
        fixed = {target: entity.image, other_place(target, rank // len(LETTERS), len(LETTERS)): strange}
        candidates = arrange(material.rng(entity, "matching"), fixed, near)
        material.check_distinct(entity, candidates)
        yield _sample(material, entity, candidates, target, target_only=target_only)


matching = partial(_samples, target_only=False)
matching_published = partial(_samples, target_only=True)


def _sample(material: Material, entity: Entity, candidates: tuple[ImageSource, ...], target: int, *, target_only: bool) -> Sample:
    changed = (1 + target, *(1 + place for place in range(len(LETTERS)) if place != target))  # the identity has the first draw
    return Sample(
        id=f"{material.id_prefix}{entity.id}",
        images=(entity.image, *candidates),
        question=matching_question(material.noun),
        target=LETTERS[target],
        task="choice",
        options=dict.fromkeys(LETTERS, IMAGE_MARK),
        category=entity.category or entity.group,
        group=entity.id,
        keys=material.keys(entity),
        perturbed=changed[:1] if target_only else changed,
        seeded_by=entity.id,
    )


# Grid pointing: in which cell of a collage is the face, or the word, that the support image shows?
#
# Section 3.2, task 2. The support is under the setting; the collage holds originals: the target, near neighbours, and one
# image of the other domain. Every identity is asked about once with the target in each cell.


def near_count(side: int) -> int:
    """Returns the number of near neighbours in a collage, besides the target and the image of the other domain."""
    return side * side - 2


def pointing_question(noun: str, side: int) -> str:
    """Returns the question, with the positions of the support image and of the collage."""
    return (
        f"This picture shows a {noun}: {IMAGE_MARK}\nThis grid has {side} rows and {side} columns: {IMAGE_MARK}\n"
        f"Which cell [row,column] of the grid shows the same {noun}? [0,0] is at the top left."
    )


def cell_text(cell: int, side: int) -> str:
    """Returns the name ``[row,column]`` of a cell, both from 0; cells are counted row by row."""
    return f"[{cell // side},{cell % side}]"


def pointing(material: Material, *, side: int) -> Iterator[Sample]:
    """Yields ``side * side`` samples for each identity, one for each possible cell of the target.

    The options are the cells in reading order, starting at a cell that rotates over the identities and is the same for all
    samples of one: so each letter is right once per identity, each letter means each cell equally often up to one, and a
    model that always gives one letter always gives one cell. The image of the other domain is in each cell once per identity;
    its offset from the target rotates. The neighbours are shuffled anew for every sample.
    """
    for rank, entity in material.ranked_entities():
        near, strange = material.near(entity, near_count(side)), material.strange(entity)
        material.check_distinct(entity, [entity.image, strange, *near])
        for cell in range(side * side):
            fixed = {cell: entity.image, other_place(cell, rank, side * side): strange}
            parts = arrange(material.rng(entity, "pointing", str(cell)), fixed, near)
            collage = Collage(parts, side, cell_size(entity.size, side))
            yield _pointing_sample(material, entity, collage, cell, _options(rank, side))


def _pointing_sample(material: Material, entity: Entity, collage: Collage, cell: int, options: Mapping[str, str]) -> Sample:
    side = collage.side
    position = cell_text(cell, side)
    return Sample(
        id=f"{material.id_prefix}{entity.id}-r{cell // side}c{cell % side}",
        images=(entity.image, collage),
        question=pointing_question(material.noun, side),
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
