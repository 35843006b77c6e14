"""`shapes`: multiple-choice and yes/no questions about scenes of coloured shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_vlmrobust.core.fingerprint import fingerprint, rng_for
from pytest_vlmrobust.core.sample import Sample

from .questions import LETTERS, Question, ask
from .scenes import CANVAS, Scene, draw, mirrored, scenes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = 1
"""Changes whenever a pixel or a question changes."""
EVALUATION_SEED = 20_240_229


REFERENCE_KINDS = ("color_at", "color_of", "shape_at", "shape_of", "relation", "orientation", "size", "existence")
"""Kinds that the embedded reference model can answer; the others are in ``shapes_all``."""


@dataclass(frozen=True, slots=True)
class SceneImage:
    """The picture of one scene, drawn when loaded."""

    scene: Scene

    def load(self) -> NDArray[np.uint8]:
        """Draws the scene: RGB, uint8, shape (160, 160, 3)."""
        return draw(self.scene)

    def identity(self) -> str:
        """Returns what the pixels are a function of."""
        return fingerprint(["scene", VERSION, repr(self.scene)])


@dataclass(frozen=True)
class Shapes:
    """Questions in equal numbers per kind, several per scene, from the evaluation split.

    ``per_kind`` questions of each of ``kinds``; every sample carries the perturbations that change its answer.
    """

    name: str = "shapes"
    per_kind: int = 16
    kinds: tuple[str, ...] = REFERENCE_KINDS
    seed: int = EVALUATION_SEED

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return CANVAS

    @property
    def digest(self) -> str:
        """SHA-256 of what determines the samples."""
        return fingerprint(["shapes", VERSION, self.per_kind, list(self.kinds), self.seed])

    def samples(self) -> Sequence[Sample]:
        """Returns the questions in the order of their scenes."""
        return self._samples

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        rng = rng_for(self.seed, "shapes")
        wanted = dict.fromkeys(self.kinds, self.per_kind)
        found: list[Sample] = []
        for number, scene in enumerate(scenes(rng, evaluation=True)):
            for kind in sorted(wanted, key=lambda kind: -wanted[kind])[:4]:
                question = ask(rng, scene, kind)
                if question is not None:
                    found.append(_sample(number, scene, question))
                    wanted[kind] -= 1
            wanted = {kind: left for kind, left in wanted.items() if left > 0}
            if not wanted:
                return tuple(found)
        raise AssertionError("scenes never end")


def _sample(number: int, scene: Scene, question: Question) -> Sample:
    options = dict(zip(LETTERS, question.options, strict=False))
    target = next((letter for letter, text in options.items() if text == question.answer), question.answer)
    return Sample(
        id=f"shapes-{number:04d}-{question.kind}",
        images=(SceneImage(scene),),
        question=question.text,
        target=target,
        task="choice" if options else "yes_no",
        options=options,
        category=question.category,
        group=f"scene-{number:04d}",
        changed_by=frozenset(_changed_by(scene, question)),
    )


def _changed_by(scene: Scene, question: Question) -> list[str]:
    """Returns the kinds of change after which another answer is right; mirrors are tried, not guessed."""
    changed = []
    for kind, horizontally in (("left_right", True), ("up_down", False)):
        if question.solve(mirrored(scene, horizontally=horizontally)) != question.answer:
            changed.append(kind)
    if question.about_color:
        changed.append("colour")
    if question.category in ("count", "size"):
        changed.append("count")
    return changed
