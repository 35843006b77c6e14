"""Of all the boxes that a text states, which ones are the answer? Those that go on with one another, up to the last.

Boxes of different attributes, one after the other, are one answer, whatever remarks stand between them. A box that takes the
place of another begins a new answer. What the new answer leaves out is owed: the model gave a box, and nobody can tell whether it
still stands. An answer that owes a box is none, unless the text says that it replaces all that stood before or is about another
picture.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from .box_forms import RawBox

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
