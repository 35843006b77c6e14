"""Corruption: the frozen record of all facts about a perturbation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_vlmrobust.core.cell import read_level, spell_level
from pytest_vlmrobust.core.errors import SettingError, did_you_mean
from pytest_vlmrobust.core.sample import TEXT_HEIGHTS, USUAL_TEXT_HEIGHT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Image = NDArray[np.uint8]

Parameters = Mapping[str, int | float | str]

CHANGES = (
    *("colour", "count", "left_right", "meaning", "position", "presence"),
    *("text", *(f"text_{height}" for height in TEXT_HEIGHTS), "up_down"),
)
"""Aspects of the right answer that a perturbation may change:

``colour`` the colour of things; ``count`` how many are in view; ``left_right`` and ``up_down`` their order along an axis;
``meaning`` what the question asks for, so that its target is changed with it;
``position`` where they are in the image; ``presence`` whether they are in view at all; ``text`` which words can be read, and
``text_12`` to ``text_36`` which words in letters so many pixels high. What the built-in ones declare follows from
measurements by one rule, in ``studies/declarations``.
"""


def unreadable_text(height: int) -> frozenset[str]:
    """Returns the changes if letters up to a height are unreadable, which includes all smaller letters."""
    lost = {f"text_{each}" for each in TEXT_HEIGHTS if each <= height}
    return frozenset(lost | {"text"} if height >= USUAL_TEXT_HEIGHT else lost)


def aspects(changes: Iterable[str]) -> list[str]:
    """Returns members of :data:`CHANGES` in alphabetical order, those about text in a few words: "text up to 18 px"."""
    given = frozenset(changes)
    heights = [height for height in TEXT_HEIGHTS if f"text_{height}" in given]
    if not heights:
        return sorted(given)
    about_text = "text" if heights[-1] == TEXT_HEIGHTS[-1] else f"text up to {heights[-1]} px"
    return sorted({*given - unreadable_text(heights[-1]), about_text})


Note = Callable[..., str]
"""``(height, width, **parameters) -> what cannot be done to an image of that size``, or an empty text."""

CATEGORIES = {
    "blur": "Blur",
    "noise": "Noise",
    "weather": "Weather",
    "digital": "Digital",
    "geometric": "Geometric",
    "tone": "Color/Tone",
    "occlusion": "Occlusion",
    "resolution": "Resolution",
    "overlay": "VLM-specific",
    "binary": "Binary",
    "patches": "Patches",
    "attempts": "Attempts",
    "ladder": "Resolution ladder",
    "preprocessing": "Preprocessing",
    "observatory": "Observatory augmentation",
    "standin": "Illusion stand-in",
    "illusion": "Illusion",
    "albumentations": "Albumentations",
    "nrtk": "NRTK",
    "options": "Option order",
    "typographic": "Typographic attack",
    "wording": "Wording",
    "directional": "Directional question",
}
"""Family to its heading; those of the published 49 are the headings of Table 29 of VLM-RobustBench."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """Whole numbers of a range as levels, such as the 448 of ``resolution:448``, in addition to listed levels."""

    parameter: str
    """The keyword argument that the number becomes."""
    lowest: int
    highest: int
    noun: str
    """The meaning of the number in messages: "pixels of the long edge"."""

    def parameters(self, level: str | None) -> Parameters | None:
        """Returns the keyword arguments of a level, or ``None`` if it is not a plain number of the range."""
        # the length comes first: Python refuses to read numbers of thousands of digits
        if level is None or len(level) > len(str(self.highest)) or not level.isascii() or not level.isdigit():
            return None
        number = int(level)
        return {self.parameter: number} if str(number) == level and self.lowest <= number <= self.highest else None


@dataclass(frozen=True, slots=True, eq=False)
class Corruption:
    """A registered perturbation: its names, its parameters by level, and the function that changes pixels or the question.

    ``function`` takes ``(image, rng, *, <parameters>)`` when ``stochastic`` and ``(image, *, <parameters>)`` when not; it gets
    uint8 RGB of shape (H, W, 3), read-only and contiguous, and returns uint8 RGB. With ``on="question"`` it takes and returns a
    ``Sample`` in the image's place, see :mod:`~pytest_vlmrobust.perturbations.questions`.
    """

    name: str
    family: str
    category: str
    """The heading of its family in reports; see :data:`CATEGORIES`."""
    function: Callable[..., Image]
    levels: Mapping[str | None, Parameters]
    """Parameters by level, mildest first; a binary perturbation has only the key ``None``."""
    changes: Mapping[str | None, frozenset[str]]
    """Members of :data:`CHANGES` by level: questions about these have another answer afterwards."""
    stochastic: bool
    version: int
    """Raised whenever the pixels change for the same input and seed."""
    source: str
    keeps_size: bool
    """Whether the output has the input's height and width."""
    numbered: Numbered | None = None
    """Further levels that are not listed."""
    views: Callable[..., int] | None = None
    """``(**parameters) -> V`` for a perturbation that turns an image into V images, shape (V, H, W, 3); ``None`` for others."""
    note: Note | None = None
    on: str = "image"
    """What the function changes: ``image`` or the whole ``question``."""
    draws_as: str = ""
    """The name whose draws it shares; empty for its own."""
    depends_on: Callable[..., Parameters] | None = None
    """``(**parameters) -> other inputs of the pixels``, JSON-safe, such as digests of files; used only for fingerprints."""
    transforms: Callable[[str | None], Parameters] | None = None
    """Reads the unlisted levels of a library's transforms; raises ``SettingError``."""

    @property
    def doc(self) -> str:
        """The docstring of the function: what it does, and why."""
        return _doc(self.function)

    def settings(self) -> list[str]:
        """Returns its listed settings as strings, mildest first: ``["fog:low", "fog:mid", "fog:high"]`` or ``["flip_h"]``."""
        return [self.name if level is None else f"{self.name}:{level}" for level in self.levels]

    def parameters(self, level: str | None) -> Parameters:
        """Returns the keyword arguments of ``function`` at ``level``."""
        if self.transforms:
            return self.transforms(level)
        if level in self.levels:
            return self.levels[level]
        counted = self.numbered.parameters(level) if self.numbered else None
        if counted is not None:
            return counted
        word, numbers = read_level(level)
        if problem := self._refusal(level) if word or not self.ranges or not numbers else self._number_problem(numbers):
            raise SettingError(problem)
        return {**next(iter(self.levels.values())), **numbers}

    @property
    def ranges(self) -> Mapping[str, tuple[int | float, int | float]]:
        """The numeric parameters of a setting, ``gaussian_blur:radius=1.7``, each with its lowest and highest level.

        Empty if levels are numbers already or differ in text.
        """
        given = list(self.levels.values())
        if (
            self.transforms
            or self.numbered
            or any((level or "0").isdecimal() for level in self.levels)
            or len({tuple(each) for each in given}) > 1
        ):
            return {}
        values = {name: [each[name] for each in given] for name in given[0]}
        differing = {name: all_of for name, all_of in values.items() if len({*all_of}) > 1}
        numeric = {name: [n for n in all_of if isinstance(n, (int, float))] for name, all_of in differing.items()}
        return {name: (min(all_of), max(all_of)) for name, all_of in numeric.items()} if numeric == differing else {}

    @property
    def numbers(self) -> list[str]:
        """Its listed levels spelled as numbers: ``radius=0.5`` for the low of ``gaussian_blur``."""
        return [
            spell_level("", {name: float(each[name]) for name in self.ranges}) for each in self.levels.values() if self.ranges
        ]

    def require(self, level: str | None) -> None:
        """Looks whether the library that ``level`` names a transform of is installed and has it."""
        if self.transforms:
            self.facts_at(level)

    def changes_at(self, level: str | None) -> frozenset[str]:
        """Returns the changes of ``level``; an unlisted level has the changes of all listed levels."""
        return self.changes[level] if level in self.changes else frozenset().union(*self.changes.values())

    def views_at(self, level: str | None) -> int:
        """Returns the number of images per image: 1, unless the perturbation makes several."""
        return self.views(**self.parameters(level)) if self.views else 1

    def note_at(self, level: str | None, height: int, width: int) -> str:
        """Returns what cannot be done at ``level`` to an image of that size, or an empty text."""
        return self.note(height, width, **self.parameters(level)) if self.note else ""

    def facts_at(self, level: str | None) -> Parameters:
        """Returns all inputs of the pixels at ``level``: the keyword arguments, and other inputs of the function."""
        parameters = self.parameters(level)
        return {**parameters, **self.depends_on(**parameters)} if self.depends_on else parameters

    def apply(self, image: Any, generator: Callable[[], np.random.Generator], level: str | None) -> Any:
        """Applies ``function`` to ``image``, or to a sample, at ``level``, without checks.

        ``generator`` is called only for a stochastic function: deriving a generator takes longer than mirroring an image.
        """
        randomness = (generator(),) if self.stochastic else ()
        return self.function(image, *randomness, **self.parameters(level))

    def _refusal(self, level: str | None) -> str:
        if None in self.levels:
            return f"setting '{self.name}:{level}': {self.name} is binary and takes no level. Write {self.name!r}"
        offered = f"one of {', '.join(repr(setting) for setting in self.settings())}"
        if self.numbered:
            span = f"{self.numbered.lowest} to {self.numbered.highest} {self.numbered.noun}"
            offered = f"'{self.name}:N' with a whole number N from {span}, such as {self.settings()[0]!r}"
        elif self.ranges:
            offered += f", or '{self.name}:{self._form()}"
        problem = (
            f"setting {self.name!r} lacks a level" if level is None else f"setting '{self.name}:{level}': no level {level!r}"
        )
        return f"{problem}. Expected {offered}"

    def _form(self) -> str:
        """Returns the form and range of numbers for messages: ``radius=N' with N from 0.5 to 2.5``."""
        ends = {name: [spell_level("", {"": end})[1:] for end in both] for name, both in self.ranges.items()}
        spans = " and ".join(f"{name} from {low} to {high}" for name, (low, high) in ends.items())
        return ",".join(f"{name}=N" for name in ends) + f"' with {spans}"

    def _number_problem(self, numbers: Mapping[str, int | float]) -> str:
        """Returns why these numbers are refused; empty if they are accepted."""
        problem = ""
        if unknown := [name for name in numbers if name not in self.ranges]:
            problem = f"no parameter {unknown[0]!r}.{did_you_mean(unknown[0], self.ranges)}"
        elif [*numbers] != [*self.ranges]:
            problem = f"gives {', '.join(numbers)}, not {', '.join(self.ranges)} in this order."
        elif outside := [name for name, n in numbers.items() if not self.ranges[name][0] <= n <= self.ranges[name][1]]:
            problem = f"{outside[0]} is beyond the levels, where nothing is known about it."
        elif broken := [name for name, n in numbers.items() if n != int(n) and self._is_whole(name)]:
            problem = f"{broken[0]} is a whole number."
        return (
            f"setting '{self.name}:{spell_level('', numbers)}': {problem} Expected '{self.name}:{self._form()}" if problem else ""
        )

    def _is_whole(self, name: str) -> bool:
        """Whether a parameter takes only whole numbers: by its annotation, or without one because all its levels are whole."""
        parameter = inspect.signature(self.function).parameters.get(name)
        annotation = inspect.Parameter.empty if parameter is None else parameter.annotation
        if annotation is inspect.Parameter.empty:
            return all(isinstance(each[name], int) for each in self.levels.values())
        return annotation in (int, "int")


@functools.cache
def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""
