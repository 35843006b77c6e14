"""Image matching: which of four candidates shows the same face, or the same word, as the support picture?

The candidates are the same entity, two near neighbours and one picture of the other domain (section 3.2, task 1).

Who is perturbed. The paper calls the target "a perturbed version of the support entity" and says nothing of the other three.
As far as the released code shows, they are originals: it draws the neighbours of a word afresh, without any perturbation, and
looks for those of a face among originals; which pictures of faces it then showed cannot be told, as the generator of
augmentations is not released. So the published numbers were most likely made with the target alone perturbed. The odd one out
is then right, which can be seen without a look at the support picture; or, for a model that goes by style, wrong, as the support
is an original like the three distractors. Neither is a matter of identity. Here all four candidates are under the setting
(``matching``); ``matching_published`` perturbs the target alone, for comparison with the published numbers. Without a
perturbation both ask the same.

Illusions that are read from a folder must be there for every perturbed picture: for ``matching`` also for the distractors.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from pytest_vlmrobust.core.sample import IMAGE_MARK, ImageSource, Sample
from pytest_vlmrobust.datasets.collection import Entity

from .layout import arranged, other_place
from .material import Material

LETTERS = "ABCD"
NEAR = len(LETTERS) - 2
"""Near neighbours among the candidates, beside who is meant and the picture of the other domain."""


def question(noun: str) -> str:
    """Returns the question, with the place of the support picture."""
    return f"This picture shows a {noun}: {IMAGE_MARK}\nWhich option shows the same {noun}?"


def _samples(material: Material, *, target_only: bool) -> Iterator[Sample]:
    """Yields one sample for each identity.

    Over the identities each letter is the target, and each the picture of the other domain, equally often but for one.

    Raises:
        DatasetError: an identity has fewer than two neighbours, or there is nothing of the other domain.
    """
    for rank, entity in material.ranked():
        target = rank % len(LETTERS)
        near, strange = material.near(entity, NEAR), material.strange(entity)
        fixed = {target: entity.image, other_place(target, rank // len(LETTERS), len(LETTERS)): strange}
        candidates = arranged(material.rng(entity, "matching"), fixed, near)
        material.check_distinct(entity, candidates)
        yield _sample(material, entity, candidates, target, target_only=target_only)


matching = partial(_samples, target_only=False)
matching_published = partial(_samples, target_only=True)


def _sample(material: Material, entity: Entity, candidates: tuple[ImageSource, ...], target: int, *, target_only: bool) -> Sample:
    return Sample(
        id=f"{material.id_prefix}{entity.id}",
        images=(entity.image, *candidates),
        question=question(material.noun),
        target=LETTERS[target],
        task="choice",
        options=dict.fromkeys(LETTERS, IMAGE_MARK),
        category=entity.category or entity.group,
        group=entity.id,
        keys=material.keys(entity),
        perturbed=(1 + target,) if target_only else tuple(range(1, 1 + len(LETTERS))),
        seeded_by=entity.id,
    )
