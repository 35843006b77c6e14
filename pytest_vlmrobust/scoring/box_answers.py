"""Which boxes did the model give? The last answer of a text, in whichever form; nothing is guessed.

A text may show several objects and lists: examples, drafts, boxes of the other picture. Each is read separately, and
``last_answer`` decides which readings are the answer. If one object gives two different boxes for an attribute, the attribute
has none. Corners in the wrong order are not swapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .answer_text import answer_tag, final_words
from .box_forms import (
    Asked,
    RawBox,
    Shown,
    Statements,
    bare,
    by_attribute,
    labelled_boxes,
    named_after,
    named_boxes,
    none_found,
    ref_box,
    unread_attributes,
)
from .json_answers import Document, read_json
from .text import Stop, is_refusal, plain_text, straighten

# Which of the boxes in a text are the answer? The last group of boxes that belong together.
#
# Boxes of different attributes that follow each other are one answer, even with remarks between them. A box that replaces
# another box begins a new answer. An attribute that the new answer leaves out is "owed": the model gave a box for it, and we
# cannot tell whether that box still holds. An answer that owes a box is unclear, unless the text says that it replaces
# everything before it or is about another picture.


UNNAMED: Final = frozenset({"bare", "none_found"})
"""Rules that read boxes without the name of an attribute. Readings of all other rules take precedence."""
LONGEST_REMARK = 300
"""Characters between two boxes of one answer, at most."""

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
    """The boxes that one object or list gives."""

    boxes: Mapping[str, RawBox | None]
    """Attribute to its box, or None where the text says that there is none."""
    rule: str
    gap: str
    """The text since the previous reading."""
    owed: frozenset[str] = frozenset()
    """Attributes for which it gives a box, or several, in a form that cannot be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The readings that belong together."""

    boxes: Mapping[str, RawBox | None]
    rule: str
    owed: frozenset[str] = frozenset()
    """Attributes with a box that may or may not be part of the answer."""
    picture: str = ""
    """The picture that it is about: ``first``, ``second``, or empty when the text does not say."""
    contested: bool = False
    """The text gives several unnamed boxes for the only attribute."""

    @property
    def is_clear(self) -> bool:
        """Whether the answer covers every attribute for which the text gave a box."""
        return not self.contested and self.owed <= self.boxes.keys()


def last_answer(readings: Sequence[Reading], rest: str) -> Answer:
    """Returns the last answer in ``readings``; an answer without boxes and rule where there is none.

    Args:
        readings: the readings of a text, in order.
        rest: the text after the last of them.
    """
    answer = Answer({}, "")
    for reading, picture in zip(readings, _pictures([*(reading.gap for reading in readings), rest]), strict=True):
        answer = _extend_answer(answer, reading, picture)
    return answer


def _pictures(gaps: Sequence[str]) -> list[str]:
    """Returns the picture of each reading: named before it or right after it, else that of the previous reading."""
    remarks = ["", *(match[0] if (match := _REMARK_AFTER.match(gap)) else "" for gap in gaps[1:])]
    before = [_last_mention(gap[len(remark) :]) for gap, remark in zip(gaps, remarks, strict=True)]
    pictures: list[str] = []
    for picture, remark in zip(before, remarks[1:], strict=False):  # no reading follows the last gap
        pictures.append(picture or _last_mention(remark) or (pictures[-1] if pictures else ""))
    return pictures


def _last_mention(text: str) -> str:
    """Returns which of two pictures ``text`` mentions last; an empty string for neither."""
    ends = {place: match.end() for place, pattern in _PICTURES.items() for match in pattern.finditer(text)}
    return max(ends, key=lambda place: ends[place], default="")


def _extend_answer(answer: Answer, reading: Reading, picture: str) -> Answer:
    """Returns ``answer`` after one more reading."""
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
    """Returns both joined where they agree, and otherwise the new answer with the attributes that it owes."""
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
    """Says whether ``one`` is an unnamed box, or no box, where ``other`` gives more."""
    ranks = [2 if each.rule not in UNNAMED else int(each.rule == "bare") for each in (first, second)]
    return bool(first.rule and second.rule) and ranks[0] < ranks[1]


def _with_owed(answer: Answer, names: Iterable[str], *, contested: bool = False) -> Answer:
    return replace(answer, owed=answer.owed | frozenset(names), contested=answer.contested or contested)


def _attributes_with_box(boxes: Mapping[str, RawBox | None]) -> frozenset[str]:
    return frozenset(name for name, box in boxes.items() if box is not None)


MOST_TRIED = 200
"""Objects and lists that are read, from the last one back."""
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

BOX_RULES: Final[Mapping[str, Callable[[Shown, Asked], Statements]]] = {
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

    ``boxes`` has every requested attribute, with None where the model gave no box. It is None when the text was not read;
    ``rule`` then says why: ``empty``, ``unfinished_thinking``, ``truncated`` (cut off in the middle of an object or a list),
    ``ambiguous`` (only attributes with several boxes, or boxes that may or may not count), ``refusal``
    or ``none``.
    """

    boxes: Mapping[str, RawBox | None] | None
    rule: str


def extract_boxes(text: str, attributes: Collection[str]) -> BoxExtraction:
    """Returns the boxes that ``text`` gives for ``attributes``; never raises.

    Args:
        text: what the model wrote, thinking included.
        attributes: the requested attributes, at least one.

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
    return _last_answer(listed, document, Asked.of(attributes))


def _with_lists(text: str) -> str:
    """Returns ``text`` with boxes in other forms than JSON, such as tuples, rewritten as lists."""
    for pattern in _UNLISTED:
        text = pattern.sub(r"\g<before>[\2,\3,\4,\5]", text)
    return _UNNAMED_TAG.sub("", text)


def _last_answer(text: str, document: Document, asked: Asked) -> BoxExtraction:
    readings, end = _readings(text, document, asked)
    answer = last_answer(readings, text[end:])
    if not answer.is_clear:
        return BoxExtraction(None, Stop.AMBIGUOUS.value)
    if not answer.boxes:
        return BoxExtraction(None, (Stop.REFUSAL if is_refusal(plain_text(text).lower()) else Stop.NONE).value)
    return BoxExtraction({name: answer.boxes.get(name) for name in asked.attributes}, answer.rule)


def _readings(text: str, document: Document, asked: Asked) -> tuple[list[Reading], int]:
    """Returns the readings of all objects and lists that give boxes, and where in ``text`` the last of them ends."""
    readings: list[Reading] = []
    previous = since = 0
    for value, start, end in document.values[-MOST_TRIED:]:
        shown = Shown(value, text[max(previous, start - _REACH) : start])
        rule, statements = _apply_box_rules(shown, asked)
        boxes = {name: statement for name, statement in statements.items() if not isinstance(statement, Stop)}
        owed = frozenset() if boxes else unread_attributes(shown, statements, asked)
        previous = end
        if not statements and (after := named_after(shown, text[end : end + _REACH], asked)):
            owed |= frozenset(filter(None, [asked.attribute(after["name"])]))
            previous += after.end()
        if boxes or owed:
            readings.append(Reading(boxes, rule, text[since:start], owed))
            since = end
    return readings, since


def _apply_box_rules(shown: Shown, asked: Asked) -> tuple[str, Statements]:
    for name, rule in BOX_RULES.items():
        statements = rule(shown, asked)
        if statements:
            return name, statements
    return "", {}
