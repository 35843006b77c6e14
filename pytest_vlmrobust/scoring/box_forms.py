"""Boxes in the forms in which models write them: which numbers belong to which attribute.

The box space of a model decides what the numbers mean. Reading is the same in every space.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pytest_vlmrobust.core.boxes import Box, BoxSpace

from .json_answers import read_json
from .text import Stop

LARGEST = 1e6
"""Larger numbers are not read as coordinates."""

_CORNERS: Final = (
    ("x1", "y1", "x2", "y2"),
    ("x0", "y0", "x1", "y1"),
    ("xmin", "ymin", "xmax", "ymax"),
    ("left", "top", "right", "bottom"),
)
_EXTENTS: Final = (("x", "y", "width", "height"), ("x", "y", "w", "h"))
_POINTS: Final = ("topleft", "bottomright")
_POSITIONS: Final = range(4)
_LONGEST_TEXT = 120
"""Most characters of a text that is one box."""
_TAG = re.compile(r"</?(?:b?box)>|<\|box_(?:start|end)\|>", re.IGNORECASE)
_UNIT = re.compile(r"(?<=\d)\s*(%|)(?:px|pixels)?(?![\w%])")
_BETWEEN = re.compile(r"[\s,;:=()\[\]{}]+")
_BOX_KEYS: Final = ("bbox2d", "box2d", "bbox", "box", "boundingbox", "coordinates", "coords", "rect")
_LABEL_KEYS: Final = ("label", "attribute", "name", "feature", "class", "object", "category", "part")
_NOTHING: Final = frozenset({"", "none", "null", "n/a", "not found", "not visible"})
_COORDINATE = re.compile(r"([+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20}))\s?(%?)")
_ARTICLE = re.compile(r"\s*the[\s_-]+", re.IGNORECASE)
_SUFFIX = re.compile(r"(?:boundingbox|bbox|box|coordinates)$")
_LINK = (
    r"(?:[^\w<]|_|(?<![^\W_])(?:is|are|at|lies|located|box|bbox|bounding|coordinates|position|"
    r"around|about|approximately|roughly|seen|found|visible|below|above|beside|it|json)(?![^\W_]))*"
)
"""Text that may stand between the name of an attribute and its box."""
_DENIED = re.compile(r"(?<!\w)(?:not?|neither|nor|without|never)(?!\w)|n't(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RawBox:
    """Four numbers as they were written."""

    numbers: Box
    percent: bool = False
    """The numbers are percentages of the picture's sides, in any space."""
    named: bool = False
    """Each number was given by name, so they are (x1, y1, x2, y2) in any order of the space."""

    def pixels(self, space: BoxSpace, size: tuple[int, int]) -> Box:
        """Returns the box in pixels of a picture of ``size`` (width, height), from a model that answers in ``space``."""
        spoken = BoxSpace("percent", 100.0, 100.0, space.order) if self.percent else space
        return (dataclasses.replace(spoken, order="xy") if self.named else spoken).read(self.numbers, size)


Statement: TypeAlias = RawBox | Stop | None
"""The reading of one attribute: its box, None for "no box", or a stop for anything that is not one box."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The requested attributes, and the patterns that recognise their names."""

    attributes: tuple[str, ...]
    spellings: Mapping[str, str]
    """A name in lower case without blanks, hyphens and underscores, to its attribute."""
    announced: re.Pattern[str]
    """The name of an attribute (``name``) at the end of a text, in ``<ref>`` or followed by nothing but link words."""
    mentioned: re.Pattern[str]
    """The name of an attribute (``name``) anywhere."""
    coupled: re.Pattern[str]
    """The name of an attribute that the end of a text joins to the next name: ``the left eye and the``."""
    following: re.Pattern[str]
    """The name of an attribute (``name``) at the beginning of a text, about the box before it: ``is the left eye,``."""

    @classmethod
    def of(cls, attributes: Collection[str]) -> Asked:
        """Returns the patterns for ``attributes``; the same attributes are compiled once."""
        return _compile_names(tuple(attributes))

    def attribute(self, name: str) -> str | None:
        """Returns the attribute that ``name`` is a spelling of: ``Left Eye``, ``left-eye``, ``leftEye``, ``left_eye_bbox``."""
        spelled = _bare(name)
        return self.spellings.get(spelled) or self.spellings.get(_SUFFIX.sub("", spelled))


@dataclass(frozen=True, slots=True)
class Shown:
    """An object or a list in a text, and the text before it."""

    value: Any
    before: str


Statements: TypeAlias = dict[str, Statement]


def by_attribute(shown: Shown, asked: Asked) -> Statements:
    """``{"left_eye": {"x1": 10, …}}``, ``{"Left Eye": [10, 20, 30, 40]}``, ``{"nose": {"bbox": […]}}``, at any depth."""
    members = [(asked.attribute(key), member) for key, member in _members(shown.value, asked)]
    return _merge_statements((attribute, box_in(member)) for attribute, member in members if attribute)


def labelled_boxes(shown: Shown, asked: Asked) -> Statements:
    """``[{"label": "left eye", "bbox_2d": [10, 20, 30, 40]}, …]``; also ``attribute``, ``name``, and other names of the box."""
    entries = [entry for entry in _walk(shown.value) if isinstance(entry, dict)]
    labels = ((_label(entry, asked), entry) for entry in entries)
    return _merge_statements((label, box_in(entry)) for label, entry in labels if label)


def ref_box(shown: Shown, asked: Asked) -> Statements:
    """``<ref>left eye</ref><box>[[10, 20, 30, 40]]</box>``."""
    return _statement_after_name(shown, asked, tagged=True)


def named_boxes(shown: Shown, asked: Asked) -> Statements:
    """``Left eye: [10, 20, 30, 40]``, ``the nose is at (10, 20, 30, 40)``, ``left eye(10,20),(30,40)``."""
    return _statement_after_name(shown, asked, tagged=False)


def bare(shown: Shown, asked: Asked) -> Statements:
    """``[10, 20, 30, 40]`` where one attribute is requested and no box has its name: the only box, under any name."""
    if len(asked.attributes) > 1:
        return {}
    boxes = {box for value in _walk(shown.value) if isinstance(box := box_in(value), RawBox)}
    return {asked.attributes[0]: boxes.pop() if len(boxes) == 1 else Stop.AMBIGUOUS} if boxes else {}


def none_found(shown: Shown, asked: Asked) -> Statements:
    """``[]``, ``{}``, ``{"final_answer": []}``: the model found nothing."""
    members = list(shown.value.values()) if isinstance(shown.value, dict) else []
    empty = not shown.value or any(member in ([], {}) for member in members)
    full = any(isinstance(member, list | dict) and member for member in members)
    stands_alone = not shown.before[-1:].isalnum()  # the braces of \boxed{} do not stand alone
    return dict.fromkeys(asked.attributes) if empty and not full and stands_alone else {}


def named_after(shown: Shown, after: str, asked: Asked) -> re.Match[str] | None:
    """Returns the name right ``after`` a box that was not read. That name does not belong to the next box."""
    return asked.following.match(after) if isinstance(box_in(shown.value), RawBox) else None


def unread_attributes(shown: Shown, statements: Statements, asked: Asked) -> frozenset[str]:
    """Returns the attributes whose boxes no rule could read: several at once, or after unknown words."""
    if Stop.AMBIGUOUS in statements.values():
        return frozenset(name for name, statement in statements.items() if statement is Stop.AMBIGUOUS)
    if statements or not isinstance(box_in(shown.value), RawBox) or _DENIED.search(shown.before):
        return frozenset()
    names = (asked.attribute(match["name"]) for match in asked.mentioned.finditer(shown.before))
    return frozenset(filter(None, names))


def box_in(value: Any) -> Statement:
    """Returns the box that ``value`` is or holds; None where it says that there is no box."""
    if isinstance(value, str):
        inside = _parse_whole(_TAG.sub(" ", value))
        return None if value.strip().casefold() in _NOTHING else _box_of_text(value) if inside is None else box_in(inside)
    if value is None or value in ([], {}):
        return None
    if isinstance(value, dict):
        return _box_of_mapping({_bare(key): member for key, member in value.items()})
    return _box_of_list(value) if isinstance(value, list) else Stop.NONE


def _box_of_mapping(members: Mapping[str, Any]) -> Statement:
    for names in _CORNERS:
        if members.keys() >= set(names):
            return _raw([members[name] for name in names], is_named=True)
    for names in _EXTENTS:
        if members.keys() >= set(names):
            return _box_of_extents(_raw([members[name] for name in names], is_named=True))
    if members.keys() >= set(_POINTS):
        return box_in([members[name] for name in _POINTS])
    return next((box_in(members[name]) for name in _BOX_KEYS if name in members), Stop.NONE)


def _box_of_text(text: str) -> Statement:
    """Returns the box if a text is only that: ``10%, 60%, 40%, 90%``, ``10 60 40 90``, ``(10,60),(40,90)``, ``x1=10, …``."""
    if len(text) > _LONGEST_TEXT:
        return Stop.NONE
    parts = [part for part in _BETWEEN.split(_UNIT.sub(r"\1", _TAG.sub(" ", text))) if part]
    if len(parts) == 2 * len(_POSITIONS):
        return _box_of_mapping({_bare(name): number for name, number in zip(parts[::2], parts[1::2], strict=True)})
    return _raw(parts) if len(parts) == len(_POSITIONS) else Stop.NONE


def _box_of_extents(box: Statement) -> Statement:
    if not isinstance(box, RawBox):
        return box
    x, y, width, height = box.numbers
    return dataclasses.replace(box, numbers=(x, y, x + width, y + height))


def _box_of_list(value: list[Any]) -> Statement:
    points = [number for point in value if isinstance(point, list) and len(point) == 2 for number in point]
    numbers = points if len(value) == 2 and len(points) == 4 else value
    if len(numbers) == 4 and not any(isinstance(number, list | dict) for number in numbers):
        return _raw(numbers)
    readable = list | dict | str if len(value) == 1 else list | dict
    boxes = {box_in(item) if isinstance(item, readable) else Stop.NONE for item in value}
    if len(boxes) == 1:
        return boxes.pop()
    return Stop.AMBIGUOUS if all(isinstance(box, RawBox) for box in boxes) else Stop.NONE


def _raw(values: Sequence[Any], *, is_named: bool = False) -> Statement:
    if all(value is None for value in values):
        return None
    read = [_coordinate(value) for value in values]
    known = [each for each in read if each is not None]
    if len(known) != 4 or len({percent for _, percent in known}) > 1:
        return Stop.NONE
    (x1, percent), (y1, _), (x2, _), (y2, _) = known
    return RawBox((x1, y1, x2, y2), percent, is_named)


def _coordinate(value: Any) -> tuple[float, bool] | None:
    """Returns a number and whether it is a percentage; None for anything that is not a coordinate."""
    percent = ""
    if isinstance(value, str):
        match = _COORDINATE.fullmatch(value.strip())
        if not match:
            return None
        value, percent = float(match[1]), match[2]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value), bool(percent)


def _members(value: Any, asked: Asked) -> Iterator[tuple[str, Any]]:
    """Yields the members of every object in ``value``, but does not descend into the value of an attribute."""
    whole = _parse_whole(value) if isinstance(value, str) else value
    if isinstance(whole, list):
        for item in whole:
            yield from _members(item, asked)
    elif isinstance(whole, dict):
        for key, member in whole.items():
            yield key, member
            if not asked.attribute(key):
                yield from _members(member, asked)


def _walk(value: Any) -> Iterator[Any]:
    """Yields ``value`` and every object and list in it."""
    whole = _parse_whole(value) if isinstance(value, str) else value
    if isinstance(whole, list | dict):
        yield whole
        for member in whole.values() if isinstance(whole, dict) else whole:
            yield from _walk(member)


def _parse_whole(text: str) -> Any:
    """Returns the object or list if ``text`` is nothing else (JSON in a string); None for any other text."""
    values = read_json(text.strip()).values if text.lstrip()[:1] in tuple("[{") else ()
    return values[0].value if values and (values[0].start, values[0].end) == (0, len(text.strip())) else None


def _label(entry: Mapping[str, Any], asked: Asked) -> str | None:
    spelled = {_bare(key): member for key, member in entry.items()}
    labels = (spelled.get(key) for key in _LABEL_KEYS)
    return next((attribute for label in labels if isinstance(label, str) and (attribute := asked.attribute(label))), None)


def _statement_after_name(shown: Shown, asked: Asked, *, tagged: bool) -> Statements:
    statement = box_in(shown.value)
    match = asked.announced.search(shown.before) if statement is not Stop.NONE else None
    if not match or bool(match["tag"]) is not tagged or asked.coupled.search(shown.before, 0, match.start()):
        return {}
    attribute = asked.attribute(match["name"])
    return {attribute: statement} if attribute else {}


def _merge_statements(pairs: Iterator[tuple[str, Statement]]) -> Statements:
    """Returns one statement for each attribute; a stop where two statements differ."""
    statements: Statements = {}
    for attribute, statement in pairs:
        same = attribute not in statements or statements[attribute] == statement
        statements[attribute] = statement if same else Stop.AMBIGUOUS
    return statements


def _bare(name: str) -> str:
    article = _ARTICLE.match(name)
    return "".join(filter(str.isalnum, name[article.end() :] if article else name)).casefold()


@lru_cache(maxsize=256)
def _compile_names(attributes: tuple[str, ...]) -> Asked:
    words = (re.split(r"[\W_]+", attribute) for attribute in attributes)
    names = "|".join(r"[\s_-]?".join(map(re.escape, parts)) for parts in words)
    announced = rf"(?:(?P<tag><ref>)\s*(?:the\s)?|(?<![^\W_]))(?P<name>{names})(?:(?(tag)\s*</ref>\s*<box>\s*|{_LINK}))\Z"
    mentioned = rf"(?<![^\W_])(?P<name>{names})(?![^\W_])"
    coupled = rf"{mentioned}\W{{1,9}}(?:and|or)\W{{1,9}}(?:the\s)?\Z"
    following = rf"[^\w.;:\n]{{1,9}}(?:(?:is|for|as)\s)?(?:the\s)?{mentioned}(?!\W{{0,3}}[:=])(?!\s(?:is|at|lies)\s)"
    patterns = (re.compile(pattern, re.IGNORECASE) for pattern in (announced, mentioned, coupled, following))
    return Asked(attributes, {_bare(attribute): attribute for attribute in attributes}, *patterns)
