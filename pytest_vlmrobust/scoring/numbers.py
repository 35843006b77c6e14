"""Numbers as they are written: signs, thousands separators, decimals, fractions, percent, currency, millions."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from .negation import negated
from .text import NUMBER_WORDS, straightened

_LONGEST = 40
"""Digits of a number; a longer run is no number anybody meant."""

_SCALES: Final = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_DIGITS = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,12}}(?!,?\d)|\d{{1,{_LONGEST}}})(?:\.\d{{1,{_LONGEST}}})?|\.\d{{1,{_LONGEST}}}"
_ENDS = r"(?![\d/]|[.,]\d|\s?\^)(?:(?![^\W\d_])|(?=(?:mm|cm|km|m|kg|mg|g|ml|l|s|ms|h|min|px|in|ft|lbs?|mph)\b))"
_NUMBER = re.compile(
    rf"(?<![\w.,/^])(?<!\^[{{(])(?P<sign>[+-]?)[$€£¥]?(?P<digits>{_DIGITS})(?:/(?P<below>\d{{1,{_LONGEST}}}))?{_ENDS}"
    rf"(?:\s(?P<scale>{'|'.join(_SCALES)})\b)?(?P<percent>\s?(?:%|percent\b))?",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\s*(?P<unit>°?\s?[^\W\d_]*[23²³]?)\s*\.?")
_WORDS: Final = {word: Fraction(number) for number, word in enumerate(NUMBER_WORDS) if word != "one"}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and how it was written."""

    value: Fraction
    text: str
    percent: bool = False
    ratio: bool = False
    """Written with a stroke: a fraction, or a season such as 2010/11."""
    unit: str = ""


def read_number(text: str) -> Number | None:
    """Returns the number that is all of ``text``, with or without a unit; None when it says anything else.

    >>> read_number("$1,250.50").value, read_number("12 cm").unit, read_number("12 or 13")
    (Fraction(2501, 2), 'cm', None)
    """
    line = straightened(text).strip()
    match = _NUMBER.match(line)
    if match:
        number, rest = _number(match), _UNIT.fullmatch(line, match.end())
        return replace(number, unit=rest["unit"].strip().casefold()) if number and rest else None
    word = line.rstrip(".").lower()
    return Number(Fraction(NUMBER_WORDS.index(word)), line) if word in NUMBER_WORDS else None


def numbers_in(text: str) -> list[Number]:
    """Returns the numbers that ``text`` mentions and does not deny, in order: not ``12`` of ``112``, ``1.12``, ``x^12``.

    Number words count where no number is written in digits; ``one`` does not, it may be a pronoun.
    """
    line = straightened(text)
    found = list(_NUMBER.finditer(line))
    if found:
        return [number for match in found if not negated(line, *match.span()) for number in [_number(match)] if number]
    said = (match for match in _WORD.finditer(line) if not negated(line, *match.span()))
    return [Number(_WORDS[match[0].lower()], match[0]) for match in said]


def _number(match: re.Match[str]) -> Number | None:
    below = int(match["below"] or 1)
    if not below:
        return None
    value = Fraction(match["digits"].replace(",", "")) * _SCALES.get((match["scale"] or "").lower(), 1) / below
    signed = -value if match["sign"] == "-" else value
    return Number(signed, match[0].strip(), percent=match["percent"] is not None, ratio=match["below"] is not None)
