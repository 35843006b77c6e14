"""Which boxes did the model give? The last answer of a text, in whichever form; nothing is guessed.

A text may show several objects and lists: examples, drafts, boxes of the other picture. The last one in which a rule finds boxes
is the answer, or the last few, if they follow one another directly and are about different attributes. An attribute of which two
different boxes are given has none. Corners that are turned inside out are not turned back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from .box_forms import Asked, RawBox, Shown, Statements, bare, by_attribute, labelled, named, none_found, ref_box
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
_FILLER = r"(?:</[\w ]{1,40}>|[\W_]|(?<![^\W_])(?:and|the|then|also|box|ref|json)(?![^\W_]))*"

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
    ``ambiguous`` (nothing but attributes with several boxes), ``refusal`` or ``none``.
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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was read so far: of each attribute its box or None, by which rule, and where in the text it ends."""

    boxes: Mapping[str, RawBox | None]
    rule: str
    end: int


def _last_answer(text: str, document: Document, asked: Asked) -> BoxExtraction:
    answer: _Answer | None = None
    failures: set[Stop] = set()
    previous = 0
    for value, start, end in document.values[-MOST_TRIED:]:
        rule, statements = _read(Shown(value, text[max(previous, start - _REACH) : start]), asked)
        failures.update(said for said in statements.values() if isinstance(said, Stop))
        found = _Answer({name: said for name, said in statements.items() if not isinstance(said, Stop)}, rule, end)
        if found.boxes:
            answer = _joined(answer, found) if answer and _goes_on(answer, found, text[answer.end : start], asked) else found
        previous = end
    if answer:
        return BoxExtraction({name: answer.boxes.get(name) for name in asked.attributes}, answer.rule)
    return BoxExtraction(None, _why_not(text, failures).value)


def _read(shown: Shown, asked: Asked) -> tuple[str, Statements]:
    for name, rule in BOX_RULES.items():
        statements = rule(shown, asked)
        if statements:
            return name, statements
    return "", {}


def _goes_on(answer: _Answer, found: _Answer, between: str, asked: Asked) -> bool:
    """Says whether ``found`` goes on with ``answer``: it is about other attributes, and only the name of one is between."""
    if answer.boxes.keys() & found.boxes.keys() or len(between) > _REACH:
        return False
    announcement = asked.announced.search(between)
    filler = between[: announcement.start()] if announcement else between
    return re.fullmatch(_FILLER, filler, re.IGNORECASE) is not None


def _joined(answer: _Answer, found: _Answer) -> _Answer:
    return _Answer({**answer.boxes, **found.boxes}, answer.rule, found.end)


def _why_not(text: str, failures: set[Stop]) -> Stop:
    if Stop.AMBIGUOUS in failures:
        return Stop.AMBIGUOUS
    return Stop.REFUSAL if is_refusal(plain(text).lower()) else Stop.NONE
