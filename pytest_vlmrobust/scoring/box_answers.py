"""Which boxes did the model give? The last answer of a text, in whichever form; nothing is guessed.

A text may show several objects and lists: examples, drafts, boxes of the other picture. Each is read on its own; which of the
readings are the answer is said in ``box_sequence``. An attribute of which one object gives two different boxes has none. Corners
that are turned inside out are not turned back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .box_forms import (
    Asked,
    RawBox,
    Shown,
    Statements,
    bare,
    by_attribute,
    labelled,
    named,
    named_after,
    none_found,
    ref_box,
    unread_attributes,
)
from .extraction import Stop, is_refusal
from .json_answers import Document, read_json
from .text import answer_tag, final_words, plain_text, straighten

# Of all the boxes that a text states, which ones are the answer? Those that go on with one another, up to the last.
#
# Boxes of different attributes, one after the other, are one answer, whatever remarks stand between them. A box that takes
# the place of another begins a new answer. What the new answer leaves out is owed: the model gave a box, and nobody can tell
# whether it still stands. An answer that owes a box is none, unless the text says that it replaces all that stood before or
# is about another picture.


UNNAMED: Final = frozenset({"bare", "none_found"})
"""Rules that read what is not called by the name of an attribute: what any other rule reads comes before it."""
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
"""What is said of the box right before: in brackets, or going on with its sentence."""
_REPLACES = re.compile(r"(?<!\w)(?:final|(?:a|my|the) draft|i was wrong|start(?:ing)? over)(?!\w)", re.IGNORECASE)
"""All that stood before no longer counts."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one object or list says."""

    boxes: Mapping[str, RawBox | None]
    """Of each attribute its box, or None where it says that there is none."""
    rule: str
    gap: str
    """The text since the reading before."""
    owed: frozenset[str] = frozenset()
    """Attributes of which it gives a box, or several, in a way that cannot be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The readings that belong together."""

    boxes: Mapping[str, RawBox | None]
    rule: str
    owed: frozenset[str] = frozenset()
    """Attributes of which a box was given that may or may not be part of the answer."""
    picture: str = ""
    """The picture that it is said to be about: ``first``, ``second`` or nothing."""
    contested: bool = False
    """Several boxes without a name were given for the one attribute."""

    @property
    def is_clear(self) -> bool:
        """Whether it has, or says that it has not, every box that was given."""
        return not self.contested and self.owed <= self.boxes.keys()


def last_answer(readings: Sequence[Reading], rest: str) -> Answer:
    """Returns the last answer that ``readings``, in order, make up; without any box or rule where there is none.

    Args:
        readings: what was read.
        rest: the text after the last of them.
    """
    answer = Answer({}, "")
    for reading, picture in zip(readings, _pictures([*(reading.gap for reading in readings), rest]), strict=True):
        answer = _followed(answer, reading, picture)
    return answer


def _pictures(gaps: Sequence[str]) -> list[str]:
    """Returns the picture that each reading is about: named before it or right after it, or that of the reading before."""
    remarks = ["", *(match[0] if (match := _REMARK_AFTER.match(gap)) else "" for gap in gaps[1:])]
    before = [_mentioned(gap[len(remark) :]) for gap, remark in zip(gaps, remarks, strict=True)]
    pictures: list[str] = []
    for said, remark in zip(before, remarks[1:], strict=False):  # the text after the last reading begins none
        pictures.append(said or _mentioned(remark) or (pictures[-1] if pictures else ""))
    return pictures


def _mentioned(text: str) -> str:
    """Returns which of two pictures ``text`` mentions last; nothing for none."""
    ends = {place: match.end() for place, pattern in _PICTURES.items() for match in pattern.finditer(text)}
    return max(ends, key=lambda place: ends[place], default="")


def _followed(answer: Answer, reading: Reading, picture: str) -> Answer:
    """Returns the answer that ``answer`` is after one more reading."""
    if picture == _FIRST != answer.picture and answer.rule:  # a look back
        return answer if answer.picture else _owing(answer, _given(reading.boxes))
    moved = picture != answer.picture and bool(answer.rule)
    if not reading.boxes:
        return _unread(answer, reading)
    fresh = Answer(reading.boxes, reading.rule, reading.owed, picture)
    if moved and answer.picture:
        return fresh
    replaces = _REPLACES.search(reading.gap) is not None
    if _yields(answer, reading):
        return _owing(fresh, answer.owed)
    if _yields(reading, answer) and not replaces:
        return _owing(answer, (), contested=moved)
    return _continued(answer, fresh, reading.gap, replaces=replaces or moved)


def _unread(answer: Answer, reading: Reading) -> Answer:
    if reading.rule not in UNNAMED:
        return _owing(answer, reading.owed)
    return answer if answer.rule and answer.rule not in UNNAMED else replace(answer, rule=reading.rule, contested=True)


def _continued(answer: Answer, fresh: Answer, gap: str, *, replaces: bool) -> Answer:
    """Returns both as one answer where they agree, and otherwise the new one, with what it owes."""
    shared = answer.boxes.keys() & fresh.boxes.keys()
    clash = any(answer.boxes[name] != fresh.boxes[name] for name in shared)
    if not clash and (shared or (not replaces and len(gap) <= LONGEST_REMARK) or not answer.rule):
        boxes = {**answer.boxes, **fresh.boxes}
        return replace(answer, boxes=boxes, rule=answer.rule or fresh.rule, owed=answer.owed | fresh.owed, picture=fresh.picture)
    if replaces and (clash or answer.contested):
        return fresh
    contested = clash and answer.rule in UNNAMED
    return replace(_owing(fresh, answer.owed | _given(answer.boxes)), contested=contested or answer.contested)


def _yields(one: Answer | Reading, other: Answer | Reading) -> bool:
    """Says whether ``one`` is a box without a name, or none at all, where ``other`` has more to say."""
    ranks = [2 if each.rule not in UNNAMED else int(each.rule == "bare") for each in (one, other)]
    return bool(one.rule and other.rule) and ranks[0] < ranks[1]


def _owing(answer: Answer, names: Iterable[str], *, contested: bool = False) -> Answer:
    return replace(answer, owed=answer.owed | frozenset(names), contested=answer.contested or contested)


def _given(boxes: Mapping[str, RawBox | None]) -> frozenset[str]:
    return frozenset(name for name, box in boxes.items() if box is not None)


MOST_TRIED = 200
"""Objects and lists that are looked at, from the last one back."""
_REACH = 120
"""Characters before an object or a list in which the name of its attribute may stand."""

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
    "labelled": labelled,
    "ref_box": ref_box,
    "named": named,
    "bare": bare,
    "none_found": none_found,
}
"""Forms of boxes; of one object or list, the first rule that finds something decides."""


@dataclass(frozen=True, slots=True)
class BoxExtraction:
    """The boxes read from a text, and the name of the rule that read them.

    ``boxes`` has every attribute that was asked for, None where the model gave no box. It is None when the text was not read;
    ``rule`` then says why: ``empty``, ``unfinished_thinking``, ``truncated`` (cut off in the middle of an object or a list),
    ``ambiguous`` (nothing but attributes with several boxes, or boxes of which nobody can tell whether they count), ``refusal``
    or ``none``.
    """

    boxes: Mapping[str, RawBox | None] | None
    rule: str


def extract_boxes(text: str, attributes: Collection[str]) -> BoxExtraction:
    """Returns the boxes that ``text`` gives for ``attributes``; never raises.

    Args:
        text: what the model wrote, thinking included.
        attributes: what was asked for, at least one.

    >>> extract_boxes("{'Left Eye': [10, 20, 30, 40]}", ["left_eye"]).boxes["left_eye"].numbers
    (10.0, 20.0, 30.0, 40.0)
    """
    said = final_words(text)
    if said is None:
        return BoxExtraction(None, "unfinished_thinking")
    answer = answer_tag(said)
    shown = straighten(said if answer is None else answer)
    if not shown.strip():
        return BoxExtraction(None, "empty")
    listed = _listed(shown)
    document = read_json(listed)
    if document.cut is not None:
        return BoxExtraction(None, Stop.TRUNCATED.value)
    return _last_answer(listed, document, Asked.of(attributes))


def _listed(text: str) -> str:
    """Returns a text with boxes that stand in it in other ways than as JSON, such as tuples, as lists."""
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
    """Returns what each object or list says, of those that say something, and where in ``text`` the last of them ends."""
    readings: list[Reading] = []
    previous = since = 0
    for value, start, end in document.values[-MOST_TRIED:]:
        shown = Shown(value, text[max(previous, start - _REACH) : start])
        rule, statements = _read(shown, asked)
        boxes = {name: said for name, said in statements.items() if not isinstance(said, Stop)}
        owed = frozenset() if boxes else unread_attributes(shown, statements, asked)
        previous = end
        if not statements and (after := named_after(shown, text[end : end + _REACH], asked)):
            owed |= frozenset(filter(None, [asked.attribute(after["name"])]))
            previous += after.end()
        if boxes or owed:
            readings.append(Reading(boxes, rule, text[since:start], owed))
            since = end
    return readings, since


def _read(shown: Shown, asked: Asked) -> tuple[str, Statements]:
    for name, rule in BOX_RULES.items():
        statements = rule(shown, asked)
        if statements:
            return name, statements
    return "", {}
