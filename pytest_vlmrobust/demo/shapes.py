"""`shapes`: multiple-choice and yes/no questions about scenes of coloured shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pytest_vlmrobust.core.fingerprint import fingerprint, rng_for
from pytest_vlmrobust.core.sample import ImageSource, Sample

from .scenes import CANVAS, COLORS, DIRECTIONS, QUADRANTS, SHAPES, Figure, Scene, brightness_step, draw, mirror_scene, scenes

# Questions about scenes: every answer is computed from the scene, and distractors are drawn from it if it has any.


RELATIONS = {"to the left of": (0, -1), "to the right of": (0, 1), "above": (-1, 0), "below": (1, 0)}
"""Steps (rows, columns) from the named figure to the figure asked for, by phrase."""
LETTERS = "ABCD"

Solver = Callable[[Scene], str | None]
Asker = Callable[["np.random.Generator", Scene], "SceneQuestion | None"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its answer; ``options`` is empty for yes/no questions."""

    kind: str
    category: str
    text: str
    answer: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SceneQuestion(Question):
    """A question about a scene.

    ``solve`` returns the answer in another scene (a mirrored one), or ``None`` if the question makes no sense there.
    """

    solve: Solver
    about_color: bool


def _pick(rng: np.random.Generator, items: Sequence[str]) -> str | None:
    return items[int(rng.integers(len(items)))] if items else None


def _only(scene: Scene, **facts: str) -> Figure | None:
    """Returns the only figure with these facts; ``None`` if there are none or several."""
    matches = [f for f in scene.figures if all(getattr(f, name) == value for name, value in facts.items())]
    return matches[0] if len(matches) == 1 else None


def _unique(scene: Scene, name: str) -> list[str]:
    values = [getattr(figure, name) for figure in scene.figures]
    return sorted(value for value in set(values) if values.count(value) == 1)


def _options(rng: np.random.Generator, answer: str, present: Sequence[str], universe: Sequence[str]) -> tuple[str, ...]:
    """Returns four shuffled options: the answer, then other values in the scene, then absent values."""
    others = [value for value in dict.fromkeys(present) if value and value != answer]
    absent = [value for value in universe if value != answer and value not in others]
    pool = [others[i] for i in rng.permutation(len(others))] + [absent[i] for i in rng.permutation(len(absent))]
    chosen = [answer, *pool[: len(LETTERS) - 1]]
    return tuple(chosen[i] for i in rng.permutation(len(chosen)))


UNIVERSES: dict[str, Sequence[str]] = {"color": tuple(COLORS), "shape": SHAPES, "quadrant": QUADRANTS, "direction": DIRECTIONS}
"""All values of each attribute of a figure."""


def _about(
    rng: np.random.Generator, scene: Scene, name: tuple[str, str], text: str, solve: Solver, *, attribute: str, about_color: bool
) -> SceneQuestion | None:
    """Builds a choice question, named by kind and category, with values of one attribute of the scene's figures as options."""
    answer = solve(scene)
    if answer is None:
        return None
    options = _options(rng, answer, [getattr(figure, attribute) for figure in scene.figures], UNIVERSES[attribute])
    return SceneQuestion(*name, text, answer, options, solve, about_color)


def _attribute(name: tuple[str, str], text: str, *, given: str, wanted: str) -> Asker:
    """Returns a function that asks for the ``wanted`` attribute of the only figure with a value of the ``given`` one."""

    def ask(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
        value = _pick(rng, [f.quadrant for f in scene.figures] if given == "quadrant" else _unique(scene, given))
        if value is None:
            return None

        def solve(s: Scene) -> str | None:
            figure = _only(s, **{given: value})
            return str(getattr(figure, wanted)) if figure else None

        return _about(rng, scene, name, text.format(value), solve, attribute=wanted, about_color="color" in (given, wanted))

    return ask


def _count(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
    what = int(rng.integers(3))
    if what == 0:
        text, facts = "How many shapes are there?", dict[str, str]()
    elif what == 1:
        shape = str(_pick(rng, [figure.shape for figure in scene.figures]))
        text, facts = f"How many {plural(shape)} are there?", {"shape": shape}
    else:
        color = str(_pick(rng, [figure.color for figure in scene.figures]))
        text, facts = f"How many {color} shapes are there?", {"color": color}

    def solve(s: Scene) -> str | None:
        return str(sum(all(getattr(f, k) == v for k, v in facts.items()) for f in s.figures))

    options = _options(rng, str(solve(scene)), (), ("1", "2", "3", "4"))
    return SceneQuestion("count", "count", text, str(solve(scene)), options, solve, "color" in facts)


def neighbour(scene: Scene, figure: Figure, relation: str) -> Figure | None:
    """Returns the figure in ``relation`` to ``figure``, in its row or column."""
    down, right = RELATIONS[relation]
    row, column = _place(figure)
    wanted = (row + down, column + right)
    return next((other for other in scene.figures if _place(other) == wanted), None)


def _place(figure: Figure) -> tuple[int, int]:
    vertical, horizontal = figure.quadrant.split()
    return int(vertical == "bottom"), int(horizontal == "right")


def _relation(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
    shape = _pick(rng, _unique(scene, "shape"))
    anchor = _only(scene, shape=shape) if shape else None
    if shape is None or anchor is None:
        return None
    relation = _pick(rng, [r for r in RELATIONS if neighbour(scene, anchor, r) is not None])
    if relation is None:
        return None

    def solve(s: Scene) -> str | None:
        figure = _only(s, shape=shape)
        other = neighbour(s, figure, relation) if figure else None
        return other.shape if other else None

    text = f"Which shape is {relation} the {shape}?"
    return _about(rng, scene, ("relation", "relation"), text, solve, attribute="shape", about_color=False)


def _orientation(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
    arrows = [figure for figure in scene.figures if figure.shape == "arrow"]
    colors = [arrow.color for arrow in arrows]
    color = _pick(rng, sorted(c for c in set(colors) if colors.count(c) == 1))
    if color is None:
        return None
    named = len(arrows) > 1
    facts = {"shape": "arrow", "color": color} if named else {"shape": "arrow"}
    text = f"Which way does the {color} arrow point?" if named else "Which way does the arrow point?"

    def solve(s: Scene) -> str | None:
        figure = _only(s, **facts)
        return figure.direction if figure else None

    if not solve(scene):
        return None
    name = ("orientation", "orientation")
    return _about(rng, scene, name, text, solve, attribute="direction", about_color=named)


def _size(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
    if len(scene.figures) < 2 or not any(figure.large for figure in scene.figures):
        return None
    attribute = "shape" if rng.random() < 0.5 else "color"

    def solve(s: Scene) -> str | None:
        value = str(getattr(next(f for f in s.figures if f.large), attribute))
        return value if value in _unique(s, attribute) else None

    text = "Which shape is the largest?" if attribute == "shape" else "What color is the largest shape?"
    return _about(rng, scene, ("size", "size"), text, solve, attribute=attribute, about_color=attribute == "color")


def _existence(rng: np.random.Generator, scene: Scene) -> SceneQuestion | None:
    """Asks for a colour and a shape that are both in the scene: half of the time on one figure, otherwise on two."""
    pairs = {(figure.color, figure.shape) for figure in scene.figures}
    crossed = sorted({(a.color, b.shape) for a in scene.figures for b in scene.figures} - pairs)
    if not crossed:
        return None
    candidates = sorted(pairs) if rng.random() < 0.5 else crossed
    color, shape = candidates[int(rng.integers(len(candidates)))]

    def solve(s: Scene) -> str | None:
        return "yes" if any((f.color, f.shape) == (color, shape) for f in s.figures) else "no"

    text = f"Is there {article(color)} {color} {shape}?"
    return SceneQuestion("existence", "yes_no", text, str(solve(scene)), (), solve, about_color=True)


def plural(noun: str) -> str:
    """Returns the plural of a shape's name."""
    return f"{noun}es" if noun.endswith("s") else f"{noun}s"


def article(word: str) -> str:
    """Returns the indefinite article before ``word``."""
    return "an" if word[0] in "aeiou" else "a"


KINDS: dict[str, Asker] = {
    "color_of": _attribute(("color_of", "color"), "What color is the {}?", given="shape", wanted="color"),
    "color_at": _attribute(("color_at", "color"), "What color is the shape in the {}?", given="quadrant", wanted="color"),
    "shape_of": _attribute(("shape_of", "shape"), "Which shape is {}?", given="color", wanted="shape"),
    "shape_at": _attribute(("shape_at", "shape"), "Which shape is in the {}?", given="quadrant", wanted="shape"),
    "count": _count,
    "where": _attribute(("where", "position"), "Where is the {}?", given="shape", wanted="quadrant"),
    "relation": _relation,
    "orientation": _orientation,
    "size": _size,
    "existence": _existence,
}
"""Functions that ask a question, by kind; a new kind is one row."""


# The dataset.


VERSION = 1
"""Changes whenever a pixel or a question changes."""
EVALUATION_SEED = 20_240_229
FAINT = 8.0
"""Difference of luma, in levels, up to which a figure in grey is invisible on the ground, which itself varies by up to 24."""


REFERENCE_KINDS = ("color_at", "color_of", "shape_at", "shape_of", "relation", "orientation", "size", "existence")
"""Kinds that the embedded reference model can answer; the others are in ``shapes_all``."""


@dataclass(frozen=True)
class SceneImage:
    """The picture of one scene, drawn when loaded."""

    scene: Scene

    def load(self) -> NDArray[np.uint8]:
        """Draws the scene: RGB, uint8, shape (160, 160, 3)."""
        return draw(self.scene)

    def identity(self) -> str:
        """Returns the identity of all inputs of the pixels."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        return fingerprint(["scene", VERSION, repr(self.scene)])


@dataclass(frozen=True)
class DrawnQuestions(ABC):
    """``per_kind`` questions of each of ``kinds`` about drawn pictures of the evaluation split."""

    source: ClassVar[str]
    version: ClassVar[int]
    name: str
    per_kind: int
    kinds: tuple[str, ...]
    seed: int = EVALUATION_SEED

    @property
    def native_long_edge(self) -> int:
        """Side of every picture, pixels."""
        return CANVAS

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the samples."""
        return fingerprint([self.source, self.version, self.per_kind, list(self.kinds), self.seed])

    def samples(self) -> Sequence[Sample]:
        """Returns the questions in the order of their pictures."""
        return self._samples

    @cached_property
    def _samples(self) -> tuple[Sample, ...]:
        return tuple(self.draw(rng_for(self.seed, self.source)))

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Iterator[Sample]:
        """Yields the questions."""


@dataclass(frozen=True)
class Shapes(DrawnQuestions):
    """Questions in equal numbers per kind, several per scene; every sample carries the perturbations that change its answer."""

    source, version = "shapes", VERSION
    name: str = "shapes"
    per_kind: int = 16
    kinds: tuple[str, ...] = REFERENCE_KINDS

    def draw(self, rng: np.random.Generator) -> Iterator[Sample]:
        """Yields the questions in the order of their scenes."""
        wanted = dict.fromkeys(self.kinds, self.per_kind)
        for number, scene in enumerate(scenes(rng, evaluation=True)):
            for kind in sorted(wanted, key=lambda kind: -wanted[kind])[:4]:
                question = KINDS[kind](rng, scene)
                if question is not None:
                    group, changed_by = f"scene-{number:04d}", _changed_by(scene, question)
                    image = SceneImage(scene)
                    yield sample_of(question, image, dataset="shapes", group=group, changed_by=changed_by)
                    wanted[kind] -= 1
            wanted = {kind: left for kind, left in wanted.items() if left > 0}
            if not wanted:
                return


def sample_of(question: Question, image: ImageSource, *, dataset: str, group: str, changed_by: Iterable[str]) -> Sample:
    """Returns the sample of a question; its id ends in the number of its group."""
    options = dict(zip(LETTERS, question.options, strict=False))
    target = next((letter for letter, text in options.items() if text == question.answer), question.answer)
    return Sample(
        id=f"{dataset}-{group.partition('-')[2]}-{question.kind}",
        images=(image,),
        question=question.text,
        target=target,
        task="choice" if options else "yes_no",
        options=options,
        category=question.category,
        group=group,
        changed_by=frozenset(changed_by),
    )


def _changed_by(scene: Scene, question: SceneQuestion) -> list[str]:
    """Returns the kinds of change that change the right answer; mirrors are computed, not guessed.

    All questions of existence depend on presence. An answer "no" stays right if a figure is hidden, but if only those questions
    were kept, every answer would be "no". A number also depends on colour if it counts a figure that only its colour
    distinguishes from the ground: in grey, yellow on a light page disappears.
    """
    changed = ["presence"] if question.kind == "existence" else []
    for kind, horizontally in (("left_right", True), ("up_down", False)):
        if question.solve(mirror_scene(scene, horizontally=horizontally)) != question.answer:
            changed.append(kind)
    if question.about_color or (question.kind == "count" and _counts_by_colour(scene, question)):
        changed.append("colour")
    if question.category in ("count", "size"):
        changed.append("count")
    return changed


def _counts_by_colour(scene: Scene, question: SceneQuestion) -> bool:
    """Returns whether the count changes if figures as bright as the ground are invisible."""
    shown = tuple(figure for figure in scene.figures if brightness_step(scene, figure) > FAINT)
    return question.solve(replace(scene, figures=shown)) != question.answer


SHAPES_ALL = partial(Shapes, "shapes_all", kinds=tuple(KINDS))
"""All kinds of questions, including those for which ``tiny`` was not trained."""
