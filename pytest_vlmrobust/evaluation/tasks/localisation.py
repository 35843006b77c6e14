"""Attribute localisation: where are the eyes, nose and mouth, or the word, in the query image?

Section 3.2, task 3. ``guided`` gives the boxes of everything in the support image and asks for all in the query.
``semi_guided`` gives one hint, the collection's, in the query itself, and asks for the rest: a model that knows faces can infer
the mouth from a nose. ``unguided`` gives no hint and asks for the same, so the hint's gain is measured on the same samples,
which have the same ids. For a word the hint is the top left corner of its box, and the whole box is asked for.

In the paper the query is the support image itself, under the setting: a model that copies the boxes of guided localisation
is always right, even without images. ``guided_published`` and ``semi_guided_published`` follow the paper, for comparison with
the published numbers: blind copying answers the first with an overlap of 1, and the hint of the second has its given position.

Here the query is moved before the setting is applied: the same image at 0.6 to 0.8 of its size and anywhere on the canvas, as
determined by the seed and the identity alone, the same for the three tasks and under every setting. The boxes of ``guided`` then
show what to look for and how its box is drawn, but not where it is. Copied boxes overlap with the true ones by 0.04 on average
over the embedded faces (0.06 for the nose, less for the rest) and by 0.34 over the embedded words, whose boxes are large relative
to the free space; the best blind answer, one scale and one shift for all, gets 0.06 and 0.40. Around a moved image
its outermost pixels continue, so the edge of a word's white paper is invisible.

The hint of ``semi_guided`` is in the query itself, so it does reveal positions: one linear map of the given numbers, fitted
to other identities and the same for all, overlaps by 0.60 to 0.62. The prompt's overlap is computed for the same samples that
are asked (``evaluation.run.prompts``), and a model is not shown to do a box task unless its overlap is clearly larger.

Illusions read from a folder must exist for the moved image: ``Sample.images[1]`` of the task's samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from pytest_vlmrobust import perturbations
from pytest_vlmrobust.core.boxes import Box, Localisation
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.datasets.protocol import Entity
from pytest_vlmrobust.perturbations.registry import REGISTRY

from .material import Material
from .pictures import Move, Moved, draw_move

CORNER = "corner"
"""The hint that is a point: the top left corner of the requested box."""

_Boxes = Mapping[str, Box]
_Split = Callable[[_Boxes, str], tuple[_Boxes, _Boxes]]


def question(noun: str, *, is_moved: bool) -> str:
    """Returns the introduction of both images; the prompt continues with the hints and the question."""
    how = " at another size and in another place" if is_moved else ""
    return f"The first picture shows a {noun}: {IMAGE_MARK}\nThe second picture shows the same {noun}{how}: {IMAGE_MARK}"


def _samples(material: Material, *, split: _Split, is_moved: bool) -> Iterator[Sample]:
    """Yields one sample for each identity whose hinted and requested boxes are known."""
    moving = _moving()
    for entity in material.entities:
        if _lacking(entity, material.collection.hinted, split=split):
            continue
        move = draw_move(entity.size, material.rng(entity, "moved")) if is_moved else None
        yield _sample(material, entity, split, move, moving)


def _everything(boxes: _Boxes, hinted: str) -> tuple[_Boxes, _Boxes]:
    """Returns the hinted boxes and the requested boxes."""
    del hinted
    return boxes, boxes


def _one_hint(boxes: _Boxes, hinted: str) -> tuple[_Boxes, _Boxes]:
    if hinted == CORNER:
        left, top = min(box[0] for box in boxes.values()), min(box[1] for box in boxes.values())
        return {CORNER: (left, top, left, top)}, boxes
    return {hinted: boxes[hinted]}, {name: box for name, box in boxes.items() if name != hinted}


def _no_hint(boxes: _Boxes, hinted: str) -> tuple[_Boxes, _Boxes]:
    return {}, _one_hint(boxes, hinted)[1]


guided = partial(_samples, split=_everything, is_moved=True)
semi_guided = partial(_samples, split=_one_hint, is_moved=True)
unguided = partial(_samples, split=_no_hint, is_moved=True)
guided_published = partial(_samples, split=_everything, is_moved=False)
semi_guided_published = partial(_samples, split=_one_hint, is_moved=False)


def _sample(material: Material, entity: Entity, split: _Split, move: Move | None, moving: frozenset[str]) -> Sample:
    given, asked = split(entity.boxes, material.collection.hinted)
    in_query = move is not None and split is _one_hint
    return Sample(
        id=f"{material.id_prefix}{entity.id}",
        images=(entity.image, entity.image if move is None else Moved(entity.image, move)),
        question=question(material.noun, is_moved=move is not None),
        target="",
        task="boxes",
        scorer="boxes",
        category=entity.category or entity.group,
        group=entity.id,
        keys=material.keys(entity),
        changed_by=moving,
        perturbed=(1,),
        seeded_by=entity.id,
        localisation=Localisation(
            size=entity.size,
            boxes={name: box if move is None else move.box(box) for name, box in asked.items()},
            given={name: move.box(box) if move is not None and in_query else box for name, box in given.items()},
            given_in=int(in_query),
        ),
    )


def _lacking(entity: Entity, hinted: str, *, split: _Split) -> str:
    """Returns the boxes that an identity lacks, or an empty string; the identities are the same with and without a hint."""
    needs_hint = split is not _everything and hinted != CORNER
    if not entity.boxes:
        return "no boxes"
    if needs_hint and hinted not in entity.boxes:
        return f"no box of {hinted!r}, only of {', '.join(map(repr, sorted(entity.boxes)))}"
    if needs_hint and len(entity.boxes) == 1:
        return f"a box of {hinted!r} and no other: nothing is left to ask for"
    return ""


boxes_for_all = partial(_lacking, split=_everything)
boxes_for_rest = partial(_lacking, split=_one_hint)


def _moving() -> frozenset[str]:
    """Returns the changes that move things away from their boxes: kinds of change, and the geometric corruptions by name."""
    perturbations.names()  # registers the built-in perturbations
    geometric = (name for name, corruption in REGISTRY.loaded_things().items() if corruption.family == "geometric")
    return frozenset({"left_right", "up_down", "position", *geometric})
