"""The registry of perturbations: the record of all facts about each, and the decorator that fills it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_vlmrobust.core.cell import CLEAN_NAME, LEVELS, NO_IMAGE_NAME, Setting, Step, read_level, spell_level
from pytest_vlmrobust.core.errors import SettingError, UsageError, did_you_mean
from pytest_vlmrobust.core.registry import DISABLE_VARIABLE, Registry
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
``text_12`` to ``text_36`` which words can be read in letters of that height in pixels. The built-in perturbations declare what
``studies/declarations`` measures, by one rule.
"""


def unreadable_text(height: int) -> frozenset[str]:
    """Returns the changes if letters up to a height are unreadable, which includes all smaller letters."""
    lost = {f"text_{size}" for size in TEXT_HEIGHTS if size <= height}
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
            or len({tuple(level) for level in given}) > 1
        ):
            return {}
        values = {name: [level[name] for level in given] for name in given[0]}
        differing = {name: all_of for name, all_of in values.items() if len({*all_of}) > 1}
        numeric = {name: [n for n in all_of if isinstance(n, (int, float))] for name, all_of in differing.items()}
        return {name: (min(all_of), max(all_of)) for name, all_of in numeric.items()} if numeric == differing else {}

    @property
    def numbers(self) -> list[str]:
        """Its listed levels spelled as numbers: ``radius=0.5`` for the low of ``gaussian_blur``."""
        return [
            spell_level("", {name: float(level[name]) for name in self.ranges}) for level in self.levels.values() if self.ranges
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
            return all(isinstance(level[name], int) for level in self.levels.values())
        return annotation in (int, "int")


@functools.cache
def _doc(function: Callable[..., Any]) -> str:
    return inspect.getdoc(function) or ""


class _Corruptions(Registry[Corruption]):
    """The records; an entry point may lead to a record or to a decorated function."""

    def _load(self, entry: EntryPoint) -> Corruption:
        thing: Any = super()._load(entry)
        record = getattr(thing, _RECORDS, {}).get(entry.name, thing)
        if not isinstance(record, Corruption) or record.name != entry.name:
            expected = f"Expected a function decorated with @corruption whose name is {entry.name!r}"
            raise UsageError(
                f"perturbation {entry.name!r} of {self.owner(entry.name)}: its entry point leads to {thing!r}. {expected}. Fix "
                f"or uninstall it, or set {DISABLE_VARIABLE}=1"
            )
        return record


REGISTRY = _Corruptions("perturbation", group="perturbations")

F = TypeVar("F", bound=Callable[..., Any])
Changes = Iterable[str] | Mapping[str, Iterable[str]]

SUBJECTS = {"image": "image", "question": "sample"}
"""What a perturbation may change, with the name of its function's argument in messages."""
_RECORDS = "__corruptions__"  # a function registered under two names has two records


def corruption(
    *,
    family: str,
    low: Parameters | None = None,
    mid: Parameters | None = None,
    high: Parameters | None = None,
    levels: Mapping[str, Parameters] | None = None,
    numbered: Numbered | None = None,
    name: str | None = None,
    category: str | None = None,
    on: str = "image",
    stochastic: bool = False,
    draws_as: str = "",
    changes: Changes = (),
    keeps_size: bool = True,
    views: Callable[..., int] | None = None,
    note: Note | None = None,
    depends_on: Callable[..., Parameters] | None = None,
    source: str = "",
    version: int = 1,
    replace: bool = False,
) -> Callable[[F], F]:
    """Registers the decorated function as a perturbation and returns it unchanged.

    A function with severity is given ``low``, ``mid`` and ``high``, its keyword arguments by level, or ``levels`` with names of
    their own; a binary one gets none::

        @corruption(family="noise", low={"sigma": 4}, mid={"sigma": 9}, high={"sigma": 20}, stochastic=True)
        def grain(image, rng, *, sigma): ...

    The other arguments are facts of :class:`Corruption`. By default ``name`` is the function's, and ``category`` the paper's word
    for the family. ``changes`` holds for all levels or is given by level; ``text_18`` stands for letters up to 18 pixels, and
    ``text`` for those of any height. All levels of one draw get the same generator: draw first what they share, so that a higher
    level is a lower one made stronger. ``replace`` takes the place of an own perturbation of that name, as when a notebook cell
    is run again.
    """
    severities = {"low": low, "mid": mid, "high": high}

    def register(function: F) -> F:
        label = _name(function, name)
        by_level = _levels(label, severities, levels)
        _check_name(label, replace=replace)
        if on not in SUBJECTS:
            raise UsageError(f"perturbation {label!r}: got on={on!r}. Expected one of {', '.join(map(repr, SUBJECTS))}")
        _check_signature(label, function, by_level, (SUBJECTS[on], *(["rng"] if stochastic else [])))
        _check_facts(label, by_level, version)
        record = Corruption(
            name=label,
            family=family,
            category=category or CATEGORIES.get(family, family.capitalize()),
            function=function,
            levels=by_level,
            changes=_changes(label, changes, by_level),
            on=on,
            stochastic=stochastic,
            draws_as=draws_as,
            version=version,
            source=source,
            keeps_size=keeps_size,
            numbered=numbered,
            views=views,
            note=note,
            depends_on=depends_on,
        )
        REGISTRY.add(label, record, replace=replace, origin=_origin(function))
        vars(function).setdefault(_RECORDS, {})[label] = record
        return function

    return register


def graded(**values: Sequence[float | str]) -> dict[str, Parameters]:
    """Returns keyword arguments by level: ``graded(sigma=(4, 9, 20))`` is ``{"low": {"sigma": 4}, ...}``."""
    return {level: {name: by_level[place] for name, by_level in values.items()} for place, level in enumerate(LEVELS)}


def _levels(
    name: str, severities: Mapping[str, Parameters | None], named: Mapping[str, Parameters] | None
) -> Mapping[str | None, Parameters]:
    stated = {level: parameters for level, parameters in severities.items() if parameters is not None}
    if named is not None:
        stated = _named_levels(name, stated, named)
    elif stated and len(stated) < len(severities):
        missing = ", ".join(level for level in severities if level not in stated)
        raise UsageError(f"perturbation {name!r} lacks {missing}. Give low, mid and high, or none of them for a binary one")
    by_level: dict[str | None, Parameters] = {level: MappingProxyType(dict(values)) for level, values in stated.items()}
    return MappingProxyType(by_level or {None: MappingProxyType({})})


def _named_levels(name: str, stated: Mapping[str, Parameters], named: Mapping[str, Parameters]) -> dict[str, Parameters]:
    if stated or not named:
        raise UsageError(f"perturbation {name!r}: levels= takes the place of low, mid and high, and names at least one level")
    for level in named:
        if not _spells(f"{name}:{level}", Step(name, level)):
            raise UsageError(f"perturbation {name!r}: level {level!r} could not be written. Expected a-z, digits, '_' and '.'")
    return dict(named)


def _spells(text: str, step: Step) -> bool:
    try:
        return Setting.parse(text).steps == (step,)
    except SettingError:
        return False


def _check_name(name: str, *, replace: bool) -> None:
    if name in {CLEAN_NAME, NO_IMAGE_NAME}:
        raise UsageError(f"perturbation {name!r}: the name is reserved. Choose another name")
    if not _spells(name, Step(name)):
        raise UsageError(
            f"perturbation {name!r} could not be written in a setting. Expected a name of a-z, digits and '_', such as 'fog_2'"
        )
    if replace and name in REGISTRY and REGISTRY.get(name).function.__module__.startswith(f"{__package__}."):
        raise UsageError(f"perturbation {name!r} is built in, and its published results mean these pixels. Choose another name")


def _name(function: Callable[..., Any], name: str | None) -> str:
    called = name or getattr(function, "__name__", None)
    if called is None:
        raise UsageError(f"a perturbation has no name: {function!r} is no function. Say name=")
    return str(called)


def _origin(function: Callable[..., Any]) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _check_facts(name: str, levels: Mapping[str | None, Parameters], version: object) -> None:
    """Refuses values that are not valid in a fingerprint, which is JSON."""
    for parameters in levels.values():
        for key, value in parameters.items():
            if not isinstance(value, int | float | str):
                raise UsageError(
                    f"perturbation {name!r}: {key} is {value!r} of type {type(value).__qualname__}. Expected an int, a float or "
                    "a str, for the fingerprint holds it; make anything else of them in the function"
                )
    if not isinstance(version, int) or version < 1:
        raise UsageError(f"perturbation {name!r}: got version={version!r}. Expected a whole number of at least 1")


def _check_signature(name: str, function: F, levels: Mapping[str | None, Parameters], positional: tuple[str, ...]) -> None:
    signature = inspect.signature(function)
    for level, parameters in levels.items():
        try:
            signature.bind(*positional, **parameters)
        except TypeError as error:
            call = ", ".join([*positional, *(f"{key}={value!r}" for key, value in parameters.items())])
            at = f" at level {level}" if level else ""
            raise UsageError(
                f"perturbation {name!r}{at} is called as {name}({call}), and {name}{signature} refuses: {error}"
            ) from error


def _changes(name: str, changes: Changes, levels: Mapping[str | None, Parameters]) -> Mapping[str | None, frozenset[str]]:
    by_level: Mapping[Any, Iterable[str]] = changes if isinstance(changes, Mapping) else dict.fromkeys(levels, tuple(changes))
    checked = {level: frozenset(by_level.get(level, ())) for level in levels}
    unknown = sorted({*by_level} - {*levels}, key=str) or sorted(frozenset().union(*checked.values()) - {*CHANGES})
    if unknown:
        hint = did_you_mean(str(unknown[0]), CHANGES)
        raise UsageError(
            f"perturbation {name!r}: changes names {unknown[0]!r}.{hint} Expected tags among {', '.join(CHANGES)}, "
            "by level or for all"
        )
    return MappingProxyType({level: tags.union(*map(_with_smaller_text, tags)) for level, tags in checked.items()})


def _with_smaller_text(tag: str) -> frozenset[str]:
    """Returns the changes implied by a change: if letters of a height are unreadable, smaller ones are too."""
    if tag == "text":
        return unreadable_text(TEXT_HEIGHTS[-1])
    return unreadable_text(int(tag.removeprefix("text_"))) if tag.startswith("text_") else frozenset()
