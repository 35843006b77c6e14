"""Scorers of answers that are numbers: within five percent for charts, exactly for mathematics."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.core.score import Score

from .extraction import Extraction, Stop, climb
from .grading import best, read, targets, unread
from .negation import negated
from .numbers import Number, numbers_in, read_number
from .open_answer import OPEN_RULES, normalised
from .refusal import is_refusal
from .text import final_words, folded, plain

TOLERANCE = Fraction(5, 100)
ONLY_NUMBER = "only_number"
CONTAINED = "contained"

_EITHER = re.compile(r"\d\W{0,3}\sor\s\W{0,3}\d", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"[+-]?[0-9]{1,40}(?:\.[0-9]{1,40})?[eE][+-]?[0-9]{1,2}")
_SHORT = 60
"""Characters of a text in which "12 or 13" is an answer and no part of a calculation."""

_ANNOUNCED: Final = {name: OPEN_RULES[name] for name in ("answer_tag", "boxed", "statement")}


def relaxed_match(answer: str, target: str) -> bool:
    """Says whether ``answer`` is ``target``: numbers within five percent of the target, texts in their normalised spelling.

    Masry et al. 2022, "ChartQA", section 5.1, after Methani et al. 2020. A target of 0 is met by 0 only, and 5 km is not 5 m.
    The published rule knows no years: 1960 is within five percent of 2010. Where one side has a percent sign, it may
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
    found = read(sample, prediction)
    if found.answer is not None and all(map(_value, targets(sample))):
        found = _only_number(found.answer, found.rule)
    return best(found, sample, prediction, relaxed_match)


def score_numeric(sample: Sample, prediction: Prediction) -> Score:
    """1 when the target, as a whole number or expression and not denied, stands in the announced answer or else in the text.

    Res-Bench's paper searches all of the output for the digits of the target, which credits solutions step by step; its
    published program asks for equality. This follows the paper, with two repairs: ``12`` is not found in ``112``, and where
    an answer is announced (answer_tag, boxed, statement) only that is searched. The rule is ``contained`` otherwise. An
    answer ``12 or 13`` is ambiguous.
    """
    said = final_words(prediction.text)
    if said is None:
        return unread("unfinished_thinking", prediction)
    text = plain(said)
    if not text:
        return unread("empty", prediction)
    for region in (climb(_ANNOUNCED, said), Extraction(text, CONTAINED)):
        where = region.answer or ""
        mention = _mention(where, targets(sample))
        if mention and len(where) <= _SHORT and _EITHER.search(where):
            return unread(Stop.AMBIGUOUS.value, prediction)
        if mention:
            answer, right = mention
            return Score(float(right), region.rule, answer)
    return unread((Stop.REFUSAL if is_refusal(text.lower()) else Stop.NONE).value, prediction)


@lru_cache(maxsize=8192)
def _value(text: str) -> Number | None:
    """Returns ``text`` as a number, 1e3 too; 2010/11 is a season, not a fraction, on the axis of a chart."""
    if _SCIENTIFIC.fullmatch(text.strip()):
        return Number(Fraction(text.strip()), text.strip())
    number = read_number(text)
    return None if number is None or number.ratio else number


def _only_number(answer: str, rule: str) -> Extraction:
    if _value(answer):
        return Extraction(answer, rule)
    values = {number.value: number.text for number in numbers_in(answer) if not number.ratio}
    if len(values) > 1:
        return Extraction(None, Stop.AMBIGUOUS.value)
    return Extraction(next(iter(values.values())), ONLY_NUMBER) if values else Extraction(answer, rule)


def _mention(text: str, wanted: Sequence[str]) -> tuple[str, bool] | None:
    """Returns the target that ``text`` mentions and True, else its last number and False; None when it has neither."""
    alone = read_number(text)
    numbers = [alone] if alone else numbers_in(text)
    for target in wanted:
        number = read_number(target)
        if any(found.value == number.value for found in numbers) if number else _has_expression(text, target):
            return target, True
    return (numbers[-1].text, False) if numbers else None


def _has_expression(text: str, target: str) -> bool:
    expression = r"\s*".join(re.escape(character) for character in "".join(folded(target).split()))
    if not expression:
        return False
    sentence = folded(text)
    matches = re.finditer(rf"(?<![\w.]){expression}(?!\w|\.\d)", sentence)
    return any(not negated(sentence, *match.span()) for match in matches)
