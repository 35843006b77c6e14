"""What all readings of a text share: their result, one spelling of letters, quotes and blanks, and signs of a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer read from a text, and the name of the rule that read it.

    ``answer`` is None when the text was not read; ``rule`` then says why: ``empty``, ``unfinished_thinking`` (cut off before
    the answer began), ``truncated`` (cut off in the middle of an object in JSON), ``too_long`` (``answer_text.LONGEST_REPLY``),
    ``refusal``, ``ambiguous`` (more than one answer) or ``none``.
    """

    answer: str | None
    rule: str


class Stop(Enum):
    """A rule found that the text has no single answer. Later rules are not tried."""

    AMBIGUOUS = "ambiguous"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    UNFINISHED = "unfinished_thinking"
    REFUSAL = "refusal"
    NONE = "none"


Outcome = str | Stop | None
"""An answer, a reason to stop, or None when the rule does not apply."""

T = TypeVar("T")
Ladder = Mapping[str, Callable[[T], Outcome]]
"""Rules by name, the most certain first. The docstring of a rule says what it reads."""


def apply_rules(ladder: Ladder[T], reading: T) -> Extraction:
    """Returns the result of the first rule that applies."""
    for name, rule in ladder.items():
        outcome = rule(reading)
        if isinstance(outcome, Stop):
            return Extraction(None, outcome.value)
        if outcome is not None:
            return Extraction(outcome, name)
    return Extraction(None, Stop.NONE.value)


def only_answer(answers: set[str]) -> Outcome:
    """Returns the answer if there is exactly one, None for none, and a stop for several."""
    if len(answers) > 1:
        return Stop.AMBIGUOUS
    return next(iter(answers), None)


WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff"
"""Characters that a letter of an option must not touch; Chinese ones may: 选B项."""


# One spelling of letters, quotes and blanks.


_MATHS = re.compile(r"\$([^$\s]{1,80})\$")
_MARKUP = re.compile(r"[*`]+|__+|(?m:^#{1,6}\s)|\\(?:text|mathrm|mathbf|textbf)\b")
_MARKS = re.compile(r"[*`_#\\$]")
"""What all markup has."""
_ONE_SPELLING = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u00b4\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u300c\u300d\u300e\u300f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        "\u0130": "I",  # the one letter whose lower case is two characters: offsets would shift
        **dict(zip("\u3002\u3001\uff0c\u060c\u061b\u061f\u0964\u3010\u3011", ".,,,;?.[]", strict=True)),
    }
)
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202c\u2060-\u2064\u2066-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that nobody sees: controls, blanks of no width, soft hyphens, marks of direction, halves of characters.

Not U+202D and U+202E, which show the letters after them in another order.
"""
_ENDS = " \t\r\n.,:;!?\"'()[]{}<>*_`#~•·"
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ARTICLE = re.compile(r"(?:a|an|the)\s+(?=\S)")


def straighten(text: str) -> str:
    """Returns ``text`` with one spelling of each quotation mark, dash and full stop, without invisible characters."""
    return text if text.isascii() else INVISIBLE.sub("", text.translate(_ONE_SPELLING))


def plain_text(text: str) -> str:
    """Returns ``text`` without emphasis marks, with straight quotes, and single blanks; line breaks stay."""
    text = straighten(text)
    if _MARKS.search(text):
        text = _MATHS.sub(r"\1", _MARKUP.sub("", text))
    if "\n" not in text:
        return " ".join(text.split())
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()


@lru_cache(maxsize=1024)  # several rules look at the same phrase
def fold_case(text: str) -> str:
    """Returns ``text`` as ``plain_text`` would show it, case folded, on one line."""
    return " ".join(plain_text(text).casefold().split())


def bare(text: str) -> str:
    """Returns ``text`` for comparison: case folded, without punctuation at its ends and without a leading article."""
    core = fold_case(text).strip(_ENDS)
    article = _ARTICLE.match(core)
    return core[article.end() :] if article else core


def strip_ends(text: str) -> str:
    """Returns ``text`` without blanks, quotes, brackets and punctuation at its ends."""
    return text.strip(_ENDS)


# Does a text decline to answer?


_I_CANNOT = r"\bi (?:can't|cannot|can not|couldn't|could not|am unable to|am not able to|won't|will not)"
_DO_IT = (
    r"(?:answer|assist|help|determine|tell|identify(?! (?:an?|any) )|provide|process|view|access|comply"
    r"|see (?:(?:the|any|an|this|your) )?(?:image|picture|photo)s?)"
)
_REFUSAL = re.compile(
    rf"{_I_CANNOT} (?:\w+ )?{_DO_IT}\b|\bi'm (?:unable|not able) to\b"
    r"|\bunable to (?:answer|determine|see|view|identify|process)\b"
    r"|\bsorry\b.{0,40}\b(?:can't|cannot|can not|unable|without|not able)\b|\bas an ai\b"
    r"|\b(?:cannot|can't|could not|couldn't|impossible to) (?:be )?(?:determined?|answer(?:ed)?|tell|say)\b"
    r"|\b(?:image|picture|photo) (?:was|is|has)(?:n't| not) (?:been )?(?:provided|attached|given|included|visible to me)\b"
    r"|\bwithout (?:the|an|any) (?:image|picture)\b|\bno (?:image|picture) (?:(?:is|was|has been) )?(?:provided|attached|given)\b"
    r"|\bi (?:don't|do not) (?:know|have (?:enough|access))\b|\bnot enough information\b"
    r"|抱歉|无法(?:确定|回答|判断|看到|识别)|不能(?:确定|回答)|看不到",
    re.DOTALL,
)
_SIGNS = (
    "can",
    "could",
    "unable",
    " able",
    "won't",
    "will not",
    "without",
    "as an ai",
    "no image",
    "no picture",
    "don't",
    "do not",
)
_MORE_SIGNS = ("not enough", "impossible", "n't", " not ", "sorry", "抱歉", "无法", "不能", "看不到")
"""Every refusal has one of these; most texts have none."""


def is_refusal(lowered: str) -> bool:
    """Says whether a lower-cased text has the words of a refusal, or of not knowing."""
    return any(sign in lowered for sign in _SIGNS + _MORE_SIGNS) and _REFUSAL.search(lowered) is not None
