"""Which boxes did the model give? The last answer in a text, in any form; nothing is guessed.

A text may contain several objects and lists: examples, drafts, boxes of the other image. Each is read separately, and
``last_answer`` decides which readings form the answer. If an object gives two different boxes for an attribute, the attribute
has none. Corners in the wrong order are not swapped.

The box space of a model decides the meaning of numbers, not how they are read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from pytest_vlmrobust.core.boxes import Box, BoxSpace

from .json_answers import Document, read_json
from .text import Stop, answer_tag, final_words, is_refusal, plain_text, straighten

# The forms in which models write boxes: which numbers belong to which attribute.


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
"""The most characters of a text that is a single box."""
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
"""Text allowed between the name of an attribute and its box."""
_DENIED = re.compile(r"(?<!\w)(?:not?|neither|nor|without|never)(?!\w)|n't(?!\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RawBox:
    """Four numbers as written."""

    numbers: Box
    percent: bool = False
    """The numbers are percentages of the image's sides, in any space."""
    named: bool = False
    """Each number has a name, so they are (x1, y1, x2, y2) in every space."""

    def pixels(self, space: BoxSpace, size: tuple[int, int]) -> Box:
        """Returns the box in pixels of an image of ``size`` (width, height), from a model that answers in ``space``."""
        spoken = BoxSpace("percent", 100.0, 100.0, space.order) if self.percent else space
        return (dataclasses.replace(spoken, order="xy") if self.named else spoken).read(self.numbers, size)


Statement: TypeAlias = RawBox | Stop | None
"""The reading of an attribute: its box, None for "no box", or a stop for anything else."""


@dataclass(frozen=True, slots=True)
class Requested:
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
    def of(cls, attributes: Collection[str]) -> Requested:
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


def by_attribute(shown: Shown, requested: Requested) -> Statements:
    """``{"left_eye": {"x1": 10, …}}``, ``{"Left Eye": [10, 20, 30, 40]}``, ``{"nose": {"bbox": […]}}``, at any depth."""
    members = [(requested.attribute(key), member) for key, member in _members(shown.value, requested)]
    return _merge_statements((attribute, box_in(member)) for attribute, member in members if attribute)


def labelled_boxes(shown: Shown, requested: Requested) -> Statements:
    """``[{"label": "left eye", "bbox_2d": [10, 20, 30, 40]}, …]``; also ``attribute``, ``name``, and other names of the box."""
    entries = [entry for entry in _walk(shown.value) if isinstance(entry, dict)]
    labels = ((_label(entry, requested), entry) for entry in entries)
    return _merge_statements((label, box_in(entry)) for label, entry in labels if label)


def ref_box(shown: Shown, requested: Requested) -> Statements:
    """``<ref>left eye</ref><box>[[10, 20, 30, 40]]</box>``."""
    return _statement_after_name(shown, requested, tagged=True)


def named_boxes(shown: Shown, requested: Requested) -> Statements:
    """``Left eye: [10, 20, 30, 40]``, ``the nose is at (10, 20, 30, 40)``, ``left eye(10,20),(30,40)``."""
    return _statement_after_name(shown, requested, tagged=False)


def bare(shown: Shown, requested: Requested) -> Statements:
    """``[10, 20, 30, 40]`` if a single attribute is requested and no box has its name: the only box, under any name."""
    if len(requested.attributes) > 1:
        return {}
    boxes = {box for value in _walk(shown.value) if isinstance(box := box_in(value), RawBox)}
    return {requested.attributes[0]: boxes.pop() if len(boxes) == 1 else Stop.AMBIGUOUS} if boxes else {}


def none_found(shown: Shown, requested: Requested) -> Statements:
    """``[]``, ``{}``, ``{"final_answer": []}``: the model found nothing."""
    members = list(shown.value.values()) if isinstance(shown.value, dict) else []
    empty = not shown.value or any(member in ([], {}) for member in members)
    full = any(isinstance(member, list | dict) and member for member in members)
    stands_alone = not shown.before[-1:].isalnum()  # the braces of \boxed{} are not separate
    return dict.fromkeys(requested.attributes) if empty and not full and stands_alone else {}


def named_after(shown: Shown, after: str, requested: Requested) -> re.Match[str] | None:
    """Returns the name right ``after`` a box that was not read. That name does not belong to the next box."""
    return requested.following.match(after) if isinstance(box_in(shown.value), RawBox) else None


def unread_attributes(shown: Shown, statements: Statements, requested: Requested) -> frozenset[str]:
    """Returns the attributes whose boxes no rule could read: several at once, or after unknown words."""
    if Stop.AMBIGUOUS in statements.values():
        return frozenset(name for name, statement in statements.items() if statement is Stop.AMBIGUOUS)
    if statements or not isinstance(box_in(shown.value), RawBox) or _DENIED.search(shown.before):
        return frozenset()
    names = (requested.attribute(match["name"]) for match in requested.mentioned.finditer(shown.before))
    return frozenset(filter(None, names))


def box_in(value: Any) -> Statement:
    """Returns the box in ``value``; None if it says that there is no box."""
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
    """Returns a number and whether it is a percentage; None if it is not a coordinate."""
    percent = ""
    if isinstance(value, str):
        match = _COORDINATE.fullmatch(value.strip())
        if not match:
            return None
        value, percent = float(match[1]), match[2]
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
        return None
    return float(value), bool(percent)


def _members(value: Any, requested: Requested) -> Iterator[tuple[str, Any]]:
    """Yields the members of every object in ``value``, but does not descend into the value of an attribute."""
    whole = _parse_whole(value) if isinstance(value, str) else value
    if isinstance(whole, list):
        for item in whole:
            yield from _members(item, requested)
    elif isinstance(whole, dict):
        for key, member in whole.items():
            yield key, member
            if not requested.attribute(key):
                yield from _members(member, requested)


def _walk(value: Any) -> Iterator[Any]:
    whole = _parse_whole(value) if isinstance(value, str) else value
    if isinstance(whole, list | dict):
        yield whole
        for member in whole.values() if isinstance(whole, dict) else whole:
            yield from _walk(member)


def _parse_whole(text: str) -> Any:
    """Returns the object or list if ``text`` contains nothing else (JSON in a string); else None."""
    values = read_json(text.strip()).values if text.lstrip()[:1] in tuple("[{") else ()
    return values[0].value if values and (values[0].start, values[0].end) == (0, len(text.strip())) else None


def _label(entry: Mapping[str, Any], requested: Requested) -> str | None:
    spelled = {_bare(key): member for key, member in entry.items()}
    labels = (spelled.get(key) for key in _LABEL_KEYS)
    return next((attribute for label in labels if isinstance(label, str) and (attribute := requested.attribute(label))), None)


def _statement_after_name(shown: Shown, requested: Requested, *, tagged: bool) -> Statements:
    statement = box_in(shown.value)
    match = requested.announced.search(shown.before) if statement is not Stop.NONE else None
    if not match or bool(match["tag"]) is not tagged or requested.coupled.search(shown.before, 0, match.start()):
        return {}
    attribute = requested.attribute(match["name"])
    return {attribute: statement} if attribute else {}


def _merge_statements(pairs: Iterator[tuple[str, Statement]]) -> Statements:
    """Returns a statement for each attribute; a stop if two statements differ."""
    statements: Statements = {}
    for attribute, statement in pairs:
        same = attribute not in statements or statements[attribute] == statement
        statements[attribute] = statement if same else Stop.AMBIGUOUS
    return statements


def _bare(name: str) -> str:
    article = _ARTICLE.match(name)
    return "".join(filter(str.isalnum, name[article.end() :] if article else name)).casefold()


@lru_cache(maxsize=256)
def _compile_names(attributes: tuple[str, ...]) -> Requested:
    words = (re.split(r"[\W_]+", attribute) for attribute in attributes)
    names = "|".join(r"[\s_-]?".join(map(re.escape, parts)) for parts in words)
    announced = rf"(?:(?P<tag><ref>)\s*(?:the\s)?|(?<![^\W_]))(?P<name>{names})(?:(?(tag)\s*</ref>\s*<box>\s*|{_LINK}))\Z"
    mentioned = rf"(?<![^\W_])(?P<name>{names})(?![^\W_])"
    coupled = rf"{mentioned}\W{{1,9}}(?:and|or)\W{{1,9}}(?:the\s)?\Z"
    following = rf"[^\w.;:\n]{{1,9}}(?:(?:is|for|as)\s)?(?:the\s)?{mentioned}(?!\W{{0,3}}[:=])(?!\s(?:is|at|lies)\s)"
    patterns = (re.compile(pattern, re.IGNORECASE) for pattern in (announced, mentioned, coupled, following))
    return Requested(attributes, {_bare(attribute): attribute for attribute in attributes}, *patterns)


# Which of the boxes in a text are the answer? The last group of boxes that belong together.
#
# Boxes of different attributes that follow each other are one answer, even with remarks between them. A box that replaces
# another box begins a new answer. An attribute that the new answer leaves out is "owed": the model gave a box for it, and we
# cannot tell whether that box still holds. An answer that owes a box is unclear, unless the text says that it replaces
# everything before it or is about another image.


UNNAMED: Final = frozenset({"bare", "none_found"})
"""Rules that read boxes without the name of an attribute. Readings of all other rules take precedence."""
LONGEST_REMARK = 300
"""The most characters between two boxes of an answer."""

_FIRST, _SECOND = "first", "second"
_PICTURES: Final = {
    place: re.compile(
        rf"(?<!\w)(?:(?:{words})\s(?:picture|image|photo)(?!\w)|(?:picture|image|photo)\s#?(?:{marks})(?!\w)|"
        rf"in\sthe\s{place}(?=\W*\Z|[,:)]))",
        re.IGNORECASE,
    )
    for place, words, marks in (
        (_FIRST, "first|1st|reference|support|previous|example", "1|one|A"),
        (_SECOND, "second|2nd|query|target", "2|two|B"),
    )
}
_REMARK_AFTER = re.compile(r"[\s\"'`]*+(?:\([^()]*+\)|(?:in|of|for|from|on)(?!\w)[^.,;:\n()]*+)", re.IGNORECASE)
"""A remark about the box right before it: in brackets, or in the same sentence."""
_REPLACES = re.compile(r"(?<!\w)(?:final|(?:a|my|the) draft|i was wrong|start(?:ing)? over)(?!\w)", re.IGNORECASE)
"""Words after which everything before no longer counts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The boxes of an object or list."""

    boxes: Mapping[str, RawBox | None]
    """The box of each attribute, or None if the text says that there is none."""
    rule: str
    gap: str
    """The text since the previous reading."""
    owed: frozenset[str] = frozenset()
    """Attributes with boxes in an unreadable form."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The readings that belong together."""

    boxes: Mapping[str, RawBox | None]
    rule: str
    owed: frozenset[str] = frozenset()
    """Attributes with a box that may or may not be part of the answer."""
    picture: str = ""
    """The image that it is about: ``first``, ``second``, or empty when the text does not say."""
    contested: bool = False
    """Whether there are several unnamed boxes for the only attribute."""

    @property
    def is_clear(self) -> bool:
        """Whether the answer covers every attribute for which the text gave a box."""
        return not self.contested and self.owed <= self.boxes.keys()


def last_answer(readings: Sequence[Reading], rest: str) -> Answer:
    """Returns the last answer in ``readings``; without one, an answer without boxes and rule.

    ``rest`` is the text after the last of them.
    """
    answer = Answer({}, "")
    for reading, picture in zip(readings, _pictures([*(reading.gap for reading in readings), rest]), strict=True):
        answer = _extend_answer(answer, reading, picture)
    return answer


def _pictures(gaps: Sequence[str]) -> list[str]:
    """Returns the image of each reading: named before it or right after it, else that of the previous reading."""
    remarks = ["", *(match[0] if (match := _REMARK_AFTER.match(gap)) else "" for gap in gaps[1:])]
    before = [_last_mention(gap[len(remark) :]) for gap, remark in zip(gaps, remarks, strict=True)]
    pictures: list[str] = []
    for picture, remark in zip(before, remarks[1:], strict=False):  # no reading follows the last gap
        pictures.append(picture or _last_mention(remark) or (pictures[-1] if pictures else ""))
    return pictures


def _last_mention(text: str) -> str:
    """Returns which of two images ``text`` mentions last; an empty string for neither."""
    ends = {place: match.end() for place, pattern in _PICTURES.items() for match in pattern.finditer(text)}
    return max(ends, key=lambda place: ends[place], default="")


def _extend_answer(answer: Answer, reading: Reading, picture: str) -> Answer:
    if picture == _FIRST != answer.picture and answer.rule:  # a look back
        return answer if answer.picture else _with_owed(answer, _attributes_with_box(reading.boxes))
    moved = picture != answer.picture and bool(answer.rule)
    if not reading.boxes:
        return _after_unread(answer, reading)
    fresh = Answer(reading.boxes, reading.rule, reading.owed, picture)
    if moved and answer.picture:
        return fresh
    replaces = _REPLACES.search(reading.gap) is not None
    if _yields(answer, reading):
        return _with_owed(fresh, answer.owed)
    if _yields(reading, answer) and not replaces:
        return _with_owed(answer, (), contested=moved)
    return _join_or_replace(answer, fresh, reading.gap, replaces=replaces or moved)


def _after_unread(answer: Answer, reading: Reading) -> Answer:
    if reading.rule not in UNNAMED:
        return _with_owed(answer, reading.owed)
    return answer if answer.rule and answer.rule not in UNNAMED else replace(answer, rule=reading.rule, contested=True)


def _join_or_replace(answer: Answer, fresh: Answer, gap: str, *, replaces: bool) -> Answer:
    """Returns both joined if they agree, otherwise the new answer with the attributes that it owes."""
    shared = answer.boxes.keys() & fresh.boxes.keys()
    clash = any(answer.boxes[name] != fresh.boxes[name] for name in shared)
    if not clash and (shared or (not replaces and len(gap) <= LONGEST_REMARK) or not answer.rule):
        boxes = {**answer.boxes, **fresh.boxes}
        return replace(answer, boxes=boxes, rule=answer.rule or fresh.rule, owed=answer.owed | fresh.owed, picture=fresh.picture)
    if replaces and (clash or answer.contested):
        return fresh
    contested = clash and answer.rule in UNNAMED
    return replace(_with_owed(fresh, answer.owed | _attributes_with_box(answer.boxes)), contested=contested or answer.contested)


def _yields(first: Answer | Reading, second: Answer | Reading) -> bool:
    """Whether ``first`` is an unnamed box, or no box, and ``second`` gives more."""
    ranks = [2 if each.rule not in UNNAMED else int(each.rule == "bare") for each in (first, second)]
    return bool(first.rule and second.rule) and ranks[0] < ranks[1]


def _with_owed(answer: Answer, names: Iterable[str], *, contested: bool = False) -> Answer:
    return replace(answer, owed=answer.owed | frozenset(names), contested=answer.contested or contested)


def _attributes_with_box(boxes: Mapping[str, RawBox | None]) -> frozenset[str]:
    return frozenset(name for name, box in boxes.items() if box is not None)


MOST_TRIED = 200
"""The most objects and lists that are read, from the end."""
_REACH = 120
"""Characters before an object or a list that may hold the name of its attribute."""

_N = r"\s*([+-]?\d{1,20}(?:\.\d{0,20})?\s?%?)\s*"
_M = r"([+-]?\d{1,20}(?:\.\d{0,20})?\s?%?)"
_COMMAS, _BLANKS, _EITHER = (rf"\s{{0,9}}{separator}\s{{0,9}}".join([_M] * 4) for separator in (",", r"[;\s]", r"[,;\s]"))
_UNNAMED_TAG = re.compile(r"(?<!>)(?<!>\s)<b?box>\s*+", re.IGNORECASE)
_UNLISTED: Final = (
    re.compile(rf"(?P<before>)\({_N},{_N}(?:\)\s*,?\s*\(|,){_N},{_N}\)"),
    re.compile(rf"(?P<before><b?box>\s*+){_EITHER}(?=\s*+</b?box>)", re.IGNORECASE),
    re.compile(rf"(?P<before>)\[\s*+{_BLANKS}\s*\]"),
    re.compile(rf"(?P<before>[:=]\s*+){_COMMAS}(?=[^\S\n]*+(?:[\n;}}]|,\s*+[\"'A-Za-z]|\.?\s*+\Z))"),
    re.compile(rf"(?P<before>\A)[\s\"'`]*+{_EITHER}[\s\"'`.]*+\Z"),
)
"""Four numbers of a box that are no JSON list: two points or a tuple, in a tag, with blanks, after a name, a whole answer."""
_NAME_OF_NUMBER = rf"\b([xywhXYWH](?:[_ ]?(?:min|max|[012]))?|left|top|right|bottom|width|height)\s?[:=]{_N}"
_NAMED = re.compile(rf"(?<![{{\w\"'])(?<!{{\s)(?:{_NAME_OF_NUMBER}(?:[,;]\s*|(?<=\s))){{3}}{_NAME_OF_NUMBER}")
_IN_POINTS = re.compile(
    rf"\btop[\s_-]?left\b(?![\"'])[^\n\d(\[]{{0,20}}[(\[]{_N},{_N}[)\]]"
    rf"[^\d(\[]{{1,9}}\bbottom[\s_-]?right\b[^\n\d(\[]{{0,20}}[(\[]{_N},{_N}[)\]]",
    re.IGNORECASE,
)
_LOCATED = re.compile(r"<loc(\d{4})><loc(\d{4})><loc(\d{4})><loc(\d{4})>[ \t]*([^<;\n]*)")
"""PaliGemma's boxes: top, left, bottom and right in 1024ths, and what they are of."""

BOX_RULES: Final[Mapping[str, Callable[[Shown, Requested], Statements]]] = {
    "by_attribute": by_attribute,
    "labelled": labelled_boxes,
    "ref_box": ref_box,
    "named": named_boxes,
    "bare": bare,
    "none_found": none_found,
}
"""Forms of boxes. For each object or list, the first rule that finds something decides."""


@dataclass(frozen=True, slots=True)
class BoxExtraction:
    """The boxes read from a text, and the name of the rule that read them.

    ``boxes`` has every requested attribute, with None for a missing box. It is None for an unreadable text;
    ``rule`` then says why: ``empty``, ``unfinished_thinking``, ``truncated`` (cut off in the middle of an object or a list),
    ``ambiguous`` (only attributes with several boxes, or boxes that may or may not count), ``refusal``
    or ``none``.
    """

    boxes: Mapping[str, RawBox | None] | None
    rule: str


def extract_boxes(text: str, attributes: Collection[str]) -> BoxExtraction:
    """Returns the boxes that ``text`` gives for ``attributes``; never raises.

    >>> extract_boxes("{'Left Eye': [10, 20, 30, 40]}", ["left_eye"]).boxes["left_eye"].numbers
    (10.0, 20.0, 30.0, 40.0)
    """
    reply = final_words(text)
    if isinstance(reply, Stop):
        return BoxExtraction(None, reply.value)
    answer = answer_tag(reply)
    content = straighten(reply if answer is None else answer)
    if not content.strip():
        return BoxExtraction(None, "empty")
    listed = _with_lists(content)
    document = read_json(listed)
    if document.cut is not None:
        return BoxExtraction(None, Stop.TRUNCATED.value)
    return _last_answer(listed, document, Requested.of(attributes))


def _with_lists(text: str) -> str:
    """Returns ``text`` with boxes in forms such as tuples rewritten as JSON lists."""
    text = _LOCATED.sub(_percentages, text)
    text = _IN_POINTS.sub(r"[\1,\2,\3,\4]", _NAMED.sub(_object, text))
    for pattern in _UNLISTED:
        text = pattern.sub(r"\g<before>[\2,\3,\4,\5]", text)
    return _UNNAMED_TAG.sub("", text)


def _object(match: re.Match[str]) -> str:
    return f"{{{', '.join(f'{name}: {number}' for name, number in re.findall(_NAME_OF_NUMBER, match[0]))}}}"


def _percentages(match: re.Match[str]) -> str:
    top, left, bottom, right = (f"{int(number) / 10.24}%" for number in match.groups()[:4])
    name = f"<ref>{match[5].strip()}</ref><box>" if match[5].strip() else ""
    return f'{name}{{"x1": {left}, "y1": {top}, "x2": {right}, "y2": {bottom}}}'


def _last_answer(text: str, document: Document, requested: Requested) -> BoxExtraction:
    readings, end = _readings(text, document, requested)
    answer = last_answer(readings, text[end:])
    if not answer.is_clear:
        return BoxExtraction(None, Stop.AMBIGUOUS.value)
    if not answer.boxes:
        return BoxExtraction(None, (Stop.REFUSAL if is_refusal(plain_text(text).lower()) else Stop.NONE).value)
    return BoxExtraction({name: answer.boxes.get(name) for name in requested.attributes}, answer.rule)


def _readings(text: str, document: Document, requested: Requested) -> tuple[list[Reading], int]:
    """Returns the readings of all objects and lists with boxes, and the end of the last in ``text``."""
    readings: list[Reading] = []
    previous = since = 0
    for value, start, end in document.values[-MOST_TRIED:]:
        shown = Shown(value, text[max(previous, start - _REACH) : start])
        rule, statements = _apply_box_rules(shown, requested)
        boxes = {name: statement for name, statement in statements.items() if not isinstance(statement, Stop)}
        owed = frozenset() if boxes else unread_attributes(shown, statements, requested)
        previous = end
        if not statements and (after := named_after(shown, text[end : end + _REACH], requested)):
            owed |= frozenset(filter(None, [requested.attribute(after["name"])]))
            previous += after.end()
        if boxes or owed:
            readings.append(Reading(boxes, rule, text[since:start], owed))
            since = end
    return readings, since


def _apply_box_rules(shown: Shown, requested: Requested) -> tuple[str, Statements]:
    for name, rule in BOX_RULES.items():
        statements = rule(shown, requested)
        if statements:
            return name, statements
    return "", {}
