"""Options that are numbers or measures: the 12 of "12:30" and of "at least 12" is another quantity, and "5cm" is "5 cm"."""

from __future__ import annotations

import re

from .text import NUMBER_WORDS

_REACH = 24
"""Characters before and after a number that may make it another one."""

_WORDS = "|".join(NUMBER_WORDS)
_NUMBER = re.compile(rf"\d[\d.,]*|{_WORDS}")
_MEASURE = re.compile(r"(\d[\d.,]*)\s?([^\W\d_]{1,6}[23²³]?|%|°[cf]?)")
_SIGN = r"\s?(?:[+*/\u00d7÷:^~-]|\bx\b|\b(?:or|to|and|plus|minus|times|divided by)\b)\s?"
_BEFORE = re.compile(
    rf"(?:(?:\d|\b(?:{_WORDS})){_SIGN}|"
    r"\b(?:at (?:least|most)|over|under|above|below|up to|nearly|almost|between|minus|negative)\s)$"
)
_AFTER = re.compile(
    rf"{_SIGN}(?:\d|(?:{_WORDS})\b)|\+"
    r"|\s(?:or|and) (?:more|less|fewer|above|below|over|under)\b|\sat (?:least|most)\b|\sand a half\b"
)


def is_other(sentence: str, start: int, end: int) -> bool:
    """Says whether the number ``sentence[start:end]`` is part of another quantity, or one of several; lower case is expected.

    >>> is_other("12 + 3 = 15", 0, 2), is_other("it is at least 12", 15, 17), is_other("9 + 3 = 12", 8, 10)
    (True, True, False)
    """
    if not _NUMBER.fullmatch(sentence, start, end):
        return False
    return _BEFORE.search(sentence[max(0, start - _REACH) : start]) is not None or _AFTER.match(sentence, end) is not None


def spellings(words: str) -> tuple[str, ...]:
    """Returns a measure with a blank and without (``5 cm``, ``5cm``); nothing for other words."""
    match = _MEASURE.fullmatch(words)
    return (f"{match[1]} {match[2]}", f"{match[1]}{match[2]}") if match else ()
