"""Which boxes did the model give? The last answer of a text, in whichever form; nothing is guessed.

A text may show several objects and lists: examples, drafts, boxes of the other picture. Each is read on its own; which of the
readings are the answer is said in ``box_sequence``. An attribute of which one object gives two different boxes has none. Corners
that are turned inside out are not turned back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
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
    unread,
)
from .box_sequence import Reading, last_answer
from .extraction import Stop
from .json_answers import Document, read_json
from .refusal import is_refusal
from .text import final_words, plain, straightened, tagged

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
    answer = tagged(said)
    shown = straightened(said if answer is None else answer)
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
        return BoxExtraction(None, (Stop.REFUSAL if is_refusal(plain(text).lower()) else Stop.NONE).value)
    return BoxExtraction({name: answer.boxes.get(name) for name in asked.attributes}, answer.rule)


def _readings(text: str, document: Document, asked: Asked) -> tuple[list[Reading], int]:
    """Returns what each object or list says, of those that say something, and where in ``text`` the last of them ends."""
    readings: list[Reading] = []
    previous = since = 0
    for value, start, end in document.values[-MOST_TRIED:]:
        shown = Shown(value, text[max(previous, start - _REACH) : start])
        rule, statements = _read(shown, asked)
        boxes = {name: said for name, said in statements.items() if not isinstance(said, Stop)}
        owed = frozenset() if boxes else unread(shown, statements, asked)
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
