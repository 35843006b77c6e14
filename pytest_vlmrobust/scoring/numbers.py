"""Numbers as they are written: signs, thousands separators, decimals, fractions, percent, currency, millions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .extraction import Extraction, Stop, apply_rules, is_negated, is_refusal
from .grading import OPEN_RULES, grade_best, grade_unread, normalised, read_answer, targets
from .latex import MARKS, UNREAD, equals, plain_numbers, same_spelling
from .text import NUMBER_WORDS, final_words, fold_case, plain_text, straighten

_LONGEST = 40
"""Most digits of a number; a longer run is not read."""

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
    """Returns the number if ``text`` is nothing else, with or without a unit; None for any other text.

    >>> read_number("$1,250.50").value, read_number("12 cm").unit, read_number("12 or 13")
    (Fraction(2501, 2), 'cm', None)
    """
    line = straighten(text).strip()
    match = _NUMBER.match(line)
    if match:
        number, rest = _number(match), _UNIT.fullmatch(line, match.end())
        return replace(number, unit=rest["unit"].strip().casefold()) if number and rest else None
    word = line.rstrip(".").lower()
    return Number(Fraction(NUMBER_WORDS.index(word)), line) if word in NUMBER_WORDS else None


def numbers_in(text: str) -> list[Number]:
    """Returns the numbers that ``text`` mentions and does not deny, in order: not ``12`` of ``112``, ``1.12``, ``x^12``.

    Number words count only if there are no digits; ``one`` never counts, because it may be a pronoun.
    """
    line = straighten(text)
    matches = list(_NUMBER.finditer(line))
    if matches:
        return [number for match in matches if not is_negated(line, *match.span()) for number in [_number(match)] if number]
    words = (match for match in _WORD.finditer(line) if not is_negated(line, *match.span()))
    return [Number(_WORDS[match[0].lower()], match[0]) for match in words]


def _number(match: re.Match[str]) -> Number | None:
    below = int(match["below"] or 1)
    if not below:
        return None
    value = Fraction(match["digits"].replace(",", "")) * _SCALES.get((match["scale"] or "").lower(), 1) / below
    signed = -value if match["sign"] == "-" else value
    return Number(signed, match[0].strip(), percent=match["percent"] is not None, ratio=match["below"] is not None)


# Scorers of answers that are numbers: within five percent for charts, exactly for mathematics.


TOLERANCE = Fraction(5, 100)
ONLY_NUMBER = "only_number"
CONTAINED = "contained"

_EITHER = re.compile(r"\d\W{0,3}\sor\s\W{0,3}\d", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?[eE][+-]?[0-9]{1,2}")
_SEASON = re.compile(r"\d{4}/")
_SHORT = 60
"""Most characters of a text in which "12 or 13" is an answer and not part of a calculation."""

_ANNOUNCED: Final = {name: OPEN_RULES[name] for name in ("answer_tag", "boxed", "statement")}


def relaxed_match(answer: str, target: str) -> bool:
    """Says whether ``answer`` is ``target``: numbers within five percent of the target, texts in their normalised spelling.

    Masry et al. 2022, "ChartQA", section 5.1, after Methani et al. 2020. A target of 0 is met by 0 only, and 5 km is not 5 m.
    The published rule makes no exception for years: 1960 is within five percent of 2010. Where one side has a percent sign, it
    may
    stand for a division by 100 or for nothing; VLMEvalKit always divides, and reads no thousands separators.

    >>> relaxed_match("1,040", "1000"), relaxed_match("0.5", "50%"), relaxed_match("94", "100"), relaxed_match("Red", "red")
    (True, True, False, True)
    """
    wanted, got = _value(target), _value(answer)
    if wanted is None or got is None:
        return normalised(answer) == normalised(target)
    if wanted.unit and got.unit and wanted.unit != got.unit:
        return False
    scales = [Fraction(1)]
    if got.percent != wanted.percent:
        scales.append(Fraction(100) if wanted.percent else Fraction(1, 100))
    return any(abs(got.value * scale - wanted.value) <= TOLERANCE * abs(wanted.value) for scale in scales)


def score_relaxed(sample: Sample, prediction: Prediction) -> Score:
    """1 within 5 % of a target that is a number, or when the text is the target's in normalised spelling (``relaxed_match``).

    Where the targets are numbers and the answer is a sentence, its only number is read (rule ``only_number``).
    """
    if not all(map(_value, targets(sample))):
        return grade_best(read_answer(sample, prediction), sample, prediction, relaxed_match)
    plain = plain_numbers(prediction.text)
    extraction = read_answer(sample, replace(prediction, text=str(plain)))
    if extraction.answer is not None and MARKS.search(extraction.answer):
        return _relaxed_expression(plain.expressions, extraction, sample, prediction)
    if extraction.answer is not None:
        extraction = _only_number(extraction.answer, extraction.rule)
    return grade_best(extraction, sample, prediction, relaxed_match)


def _relaxed_expression(expressions: Mapping[str, str], extraction: Extraction, sample: Sample, prediction: Prediction) -> Score:
    """Returns 1 for an expression that equals a target; whether another one is within five percent is not known."""
    marks = MARKS.findall(extraction.answer or "")
    expression = expressions[marks[-1]]
    if len(marks) == 1 and any(equals(expression, target) for target in targets(sample)):
        return Score(1.0, extraction.rule, expression)
    return grade_unread(UNREAD, prediction)


def score_numeric(sample: Sample, prediction: Prediction) -> Score:
    """1 when the target, as a whole number or expression and not denied, stands in the announced answer or else in the text.

    Res-Bench's paper searches all of the output for the digits of the target, which credits solutions step by step; its
    published program asks for equality. This follows the paper, with two repairs: ``12`` is not found in ``112``, and where
    an answer is announced (answer_tag, boxed, statement) only that is searched. The rule is ``contained`` otherwise. An
    answer ``12 or 13`` is ambiguous. Numbers inside LaTeX that is not understood do not count (``latex.plain_numbers``).
    """
    reply = final_words(prediction.text)
    if isinstance(reply, Stop):
        return grade_unread(reply.value, prediction)
    plain = plain_numbers(reply)
    text = plain_text(plain)
    if not text:
        return grade_unread("empty", prediction)
    for region in (apply_rules(_ANNOUNCED, str(plain)), Extraction(text, CONTAINED)):
        where = region.answer or ""
        mention = _mention(where, targets(sample))
        if mention and len(where) <= _SHORT and _EITHER.search(where):
            return grade_unread(Stop.AMBIGUOUS.value, prediction)
        expression = plain.expressions.get(_last_expression(where))
        if expression and not (mention and mention[1]):
            return _score_expression(expression, region, sample, prediction)
        if mention:
            answer, right = mention
            return Score(float(right), region.rule, answer)
    return grade_unread((Stop.REFUSAL if is_refusal(text.lower()) else Stop.NONE).value, prediction)


def _last_expression(where: str) -> str:
    """Returns the mark of the last expression that is not understood, where no number follows it; else an empty text."""
    marks = list(MARKS.finditer(where))
    return marks[-1][0] if marks and not numbers_in(where[marks[-1].end() :]) else ""


def _score_expression(expression: str, region: Extraction, sample: Sample, prediction: Prediction) -> Score:
    """Returns whether an expression is a target: spelled like it, or equal to it by math-verify; unread where unknown."""
    equal = [same_spelling(expression, target) or equals(expression, target) for target in targets(sample)]
    if not any(equal) and None in equal:
        return grade_unread(UNREAD, prediction)
    return Score(float(any(equal)), region.rule, expression)


@lru_cache(maxsize=8192)
def _value(text: str) -> Number | None:
    """Returns ``text`` as a number, also 1e3 and one in LaTeX; None for 2010/11, which is a season on the axis of a chart."""
    if _SCIENTIFIC.fullmatch(text.strip()):
        return Number(Fraction(text.strip()), text.strip())
    number = read_number(text) or read_number(str(plain_numbers(text)))
    return None if number is None or (number.ratio and _SEASON.match(number.text)) else number


def _only_number(answer: str, rule: str) -> Extraction:
    if _value(answer):
        return Extraction(answer, rule)
    values = {number.value: number.text for number in numbers_in(answer) if not _SEASON.match(number.text)}
    if len(values) > 1:
        return Extraction(None, Stop.AMBIGUOUS.value)
    return Extraction(next(iter(values.values())), ONLY_NUMBER) if values else Extraction(answer, rule)


def _mention(text: str, wanted: Sequence[str]) -> tuple[str, bool] | None:
    """Returns the target that ``text`` mentions and True, else its last number and False; None when it has neither."""
    alone = read_number(text)
    numbers = [alone] if alone else numbers_in(text)
    for target in wanted:
        number = _value(target)
        if any(_is_same(mentioned, number) for mentioned in numbers) if number else _has_expression(text, target):
            return target, True
    return (numbers[-1].text, False) if numbers else None


def _is_same(mentioned: Number, wanted: Number) -> bool:
    """Says whether two numbers are equal, in one unit where both have one."""
    return mentioned.value == wanted.value and (not mentioned.unit or not wanted.unit or mentioned.unit == wanted.unit)


def _has_expression(text: str, target: str) -> bool:
    expression = r"\s*".join(re.escape(character) for character in "".join(fold_case(target).split()))
    if not expression:
        return False
    sentence = fold_case(text)
    matches = re.finditer(rf"(?<![\w.]){expression}(?!\w|\.\d)", sentence)
    return any(not is_negated(sentence, *match.span()) for match in matches)
