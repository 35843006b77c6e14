"""`local_cue`, `redundant_cue` and `global_cue`: questions answered by one quarter of the picture, by any, or by no single one.

They illustrate the comparison of a picture with its patches. In a local cue, one quarter has the answer and the others have
distractors; in a redundant one, each quarter has the answer; a global one spans all quarters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from pytest_vlmrobust.core.fingerprint import fingerprint, rng_for
from pytest_vlmrobust.core.sample import ImageSource, Sample, text_of_height

from .scenes import CANVAS, COLORS, QUADRANTS, SHAPES, Figure, Scene
from .shapes import EVALUATION_SEED, LETTERS, SceneImage
from .words import WORDS, Page, PageImage, centred_word, look_alikes

VERSION = 2
"""Changes whenever a pixel or a question changes."""
GROUND = (226, 224, 220)
RADIUS = 22
WORD_SIZE = 44
FORMS = tuple(shape for shape in SHAPES if shape != "arrow")


@dataclass(frozen=True, slots=True)
class Cue:
    """A picture with a question about it; the first option is the answer."""

    image: ImageSource
    question: str
    options: tuple[str, ...]
    changed_by: frozenset[str]


def local(rng: np.random.Generator) -> Cue:
    """Asks for the colour of one of four shapes, each in its own quarter."""
    forms = [FORMS[i] for i in rng.permutation(len(FORMS))[:4]]
    colors = tuple(tuple(COLORS)[i] for i in rng.permutation(len(COLORS))[:4])
    places = [QUADRANTS[i] for i in rng.permutation(4)]
    figures = tuple(_figure(*look) for look in zip(forms, colors, places, strict=True))
    return Cue(_scene(figures), f"What color is the {forms[0]}?", colors, frozenset({"colour"}))


def redundant(rng: np.random.Generator) -> Cue:
    """Asks for the shape that appears in each quarter."""
    forms = tuple(FORMS[i] for i in rng.permutation(len(FORMS))[:4])
    color = tuple(COLORS)[int(rng.integers(len(COLORS)))]
    figures = tuple(_figure(forms[0], color, place) for place in QUADRANTS)
    return Cue(_scene(figures), f"Which shape is {color}?", forms, frozenset({"colour"}))


def across(rng: np.random.Generator) -> Cue:
    """Asks for a word in the middle; each patch shows a part of it, and the other options are spelled like it."""
    word = WORDS[int(rng.integers(len(WORDS)))]
    shown = centred_word(rng, word, size=WORD_SIZE)
    changed_by = frozenset({text_of_height(shown.letter_height)})
    return Cue(PageImage(Page((shown,), GROUND)), "Which word is in the picture?", (word, *look_alikes(word)[:3]), changed_by)


def _scene(figures: tuple[Figure, ...]) -> SceneImage:
    return SceneImage(Scene(figures, GROUND, (0, 0)))


def _figure(shape: str, color: str, quadrant: str) -> Figure:
    vertical, horizontal = quadrant.split()
    x = CANVAS // 4 if horizontal == "left" else 3 * CANVAS // 4
    y = CANVAS // 4 if vertical == "top" else 3 * CANVAS // 4
    return Figure(shape, color, quadrant, x, y, RADIUS, COLORS[color])


CUES: dict[str, Callable[[np.random.Generator], Cue]] = {"local_cue": local, "redundant_cue": redundant, "global_cue": across}
"""Functions that make the questions, by dataset name."""


@dataclass(frozen=True)
class Cues:
    """Questions with four options, one about each picture."""

    name: str
    count: int = 96
    seed: int = EVALUATION_SEED

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return CANVAS

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the samples."""
        return fingerprint([self.name, VERSION, self.count, self.seed])

    def samples(self) -> Sequence[Sample]:
        """Returns the questions, one about each picture."""
        return self._samples

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        rng = rng_for(self.seed, self.name)
        return tuple(self._sample(rng, number) for number in range(self.count))

    def _sample(self, rng: np.random.Generator, number: int) -> Sample:
        cue = CUES[self.name](rng)
        order = rng.permutation(len(cue.options)).tolist()
        return Sample(
            id=f"{self.name}-{number:04d}",
            images=(cue.image,),
            question=cue.question,
            target=LETTERS[order.index(0)],
            task="choice",
            options={letter: cue.options[place] for letter, place in zip(LETTERS, order, strict=True)},
            category=self.name,
            changed_by=cue.changed_by,
        )


LOCAL_CUE, REDUNDANT_CUE, GLOBAL_CUE = (partial(Cues, name) for name in ("local_cue", "redundant_cue", "global_cue"))
