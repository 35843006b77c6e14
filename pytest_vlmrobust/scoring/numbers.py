"""Numbers as they are written: signs, thousands separators, decimals, fractions, percent, currency, millions."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .assertions import CORRECTION, asserted
from .extraction import WORD, Extraction, Stop, apply_rules, is_negated, is_refusal
from .grading import OPEN_RULES, grade_best, grade_unread, normalised, read_answer, targets
from .json_answers import final_answer, lesser_answer, read_json
from .latex import MARKS, UNREAD, equals, plain_numbers, same_spelling
from .options import is_other
from .text import NUMBER_WORDS, final_words, fold_case, plain_text, straighten

_LONGEST = 40
"""Most digits of a number; a longer run is not read."""

_SCALES: Final = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_DIGITS = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,12}}(?!,?\d)|\d{{1,{_LONGEST}}})(?:\.\d{{1,{_LONGEST}}})?|\.\d{{1,{_LONGEST}}}"
_ENDS = rf"(?![\d/]|[.,]\d|\s?\^)(?:(?![{WORD}])|(?=(?:mm|cm|km|m|kg|mg|g|ml|l|s|ms|h|min|px|in|ft|lbs?|mph)\b))"
_NUMBER = re.compile(
    rf"(?<![{WORD}.,/^第])(?<!\^[{{(])(?P<sign>[+-]?)[$€£¥]?(?P<digits>{_DIGITS})(?:/(?P<below>\d{{1,{_LONGEST}}}))?{_ENDS}"
    rf"(?:\s(?P<scale>{'|'.join(_SCALES)})\b)?(?P<percent>\s?(?:%|percent\b))?",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\s*(?P<unit>°?\s?[^\W\d_]*[23²³]?)\s*\.?")
_WORDS: Final = {word: Fraction(number) for number, word in enumerate(NUMBER_WORDS) if word != "one"}
_WORD = re.compile(rf"\b(?:{'|'.join(_WORDS)})\b", re.IGNORECASE)
_HAN: Final = dict(zip("零一二三四五六七八九十", range(11), strict=True)) | {"两": 2, "兩": 2, "\u3007": 0}
_HANGUL: Final = dict(zip(("한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉", "열"), range(1, 11), strict=True)) | {
    "하나": 1,
    "둘": 2,
    "셋": 3,
    "넷": 4,
}
_COUNTER = "[个個只隻匹头頭つ本人名枚台辆輛条條张張朵棵位件把艘架块塊支辺角番]"
_COUNTED = re.compile(
    rf"(?<!第)(?P<han>[{''.join(_HAN)}]{{1,3}})(?:{_COUNTER}|(?=[\s.,。]*$))"
    rf"|(?P<hangul>{'|'.join(sorted(_HANGUL, key=len, reverse=True))})(?:\s?(?:개|마리|명|대|권|송이|그루|잔|장)|(?=[\s.,]*$))"
)
"""Numbers in Chinese, Japanese and Korean words, with a word that counts things behind them, or at the end."""
_MOST_NUMBERS = 2_000
"""Numbers of a text that are looked at, the last ones."""
_THOUSANDS = re.compile(r"(?<![\w.,'])\d{1,3}(?:(?P<gap>[ '])\d{3})(?:(?P=gap)\d{3})*(?![\w']|[.,]\d|\s\d)")


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
    if word in NUMBER_WORDS:
        return Number(Fraction(NUMBER_WORDS.index(word)), line)
    counted = None if line.isascii() else _COUNTED.fullmatch(word)
    return Number(Fraction(_counted(counted)), line) if counted else None


def numbers_in(text: str) -> list[Number]:
    """Returns the numbers that ``text`` mentions and does not deny, in order: not ``12`` of ``112``, ``1.12``, ``x^12``.

    Number words count only if there are no digits; ``one`` never counts, because it may be a pronoun. Of a text with thousands
    of numbers, the last ones are read.
    """
    line = straighten(text)
    matches = list(deque(_NUMBER.finditer(line), maxlen=_MOST_NUMBERS))
    if matches:
        return [number for match in matches if not is_negated(line, *match.span()) for number in [_number(match)] if number]
    words = [match for match in deque(_WORD.finditer(line), maxlen=_MOST_NUMBERS) if not is_negated(line, *match.span())]
    if words or line.isascii():
        return [Number(_WORDS[match[0].lower()], match[0]) for match in words]
    counted = (match for match in deque(_COUNTED.finditer(line), maxlen=_MOST_NUMBERS) if not is_negated(line, *match.span()))
    return [Number(Fraction(_counted(match)), match[0].strip()) for match in counted]


def _counted(match: re.Match[str]) -> int:
    """Returns the number in Chinese or Korean words: 十二 is 12, 二十三 is 23, 세 is 3."""
    if match["hangul"]:
        return _HANGUL[match["hangul"]]
    tens, ten, ones = match["han"].rpartition("十")
    if not ten:
        return int("".join(str(_HAN[digit]) for digit in match["han"]))
    return 10 * (_HAN.get(tens, 1)) + (_HAN.get(ones, 0))


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
CONCLUDED = "concluded"

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
    """1 when the target is the number that the answer ends in: announced, or concluded by the text ("3 + 4 = 7" says 7).

    The number of an object in JSON, of a tag or box, or behind "the answer is" (rules json, answer_tag, boxed, statement); else
    what the last sentence with a number says (rule ``concluded``): its only number, the one behind the last "=", or the one of
    its total. Which of several others was meant is not guessed: ambiguous, as are ranges and bounds. Targets that are no number
    must stand in that part. Numbers inside LaTeX that is not understood do not count (``latex.plain_numbers``).
    """
    return _score_number(sample, prediction, concludes=True)


def score_numeric_contained(sample: Sample, prediction: Prediction) -> Score:
    """1 when the target, as a whole number or expression and not denied, stands in the announced answer or else in the text.

    For benchmarks whose makers search the text: Res-Bench's paper does so for the digits of the target, and CountBenchQA's
    program. Any number of the working is credited ("3 + 4 = 7" for 3). ``12`` is not found in ``112``, and where an answer is
    announced (answer_tag, boxed, statement) only that is searched; the rule is ``contained`` otherwise.
    """
    return _score_number(sample, prediction, concludes=False)


def _score_number(sample: Sample, prediction: Prediction, *, concludes: bool) -> Score:
    """Returns the score of the announced part of a text, or else of its conclusion, or of all of it."""
    reply = final_words(prediction.text)
    if isinstance(reply, Stop):
        return grade_unread(reply.value, prediction)
    plain = plain_numbers(reply)
    text = plain_text(plain)
    if not text:
        return grade_unread("empty", prediction)
    if concludes:
        formula = not any(map(_value, targets(sample)))  # is found as it is spelled, whatever numbers it has
        regions = [_announced_number(reply, plain), Extraction(text, CONCLUDED) if formula else _concluded(text)]
    else:
        regions = [apply_rules(_ANNOUNCED, str(plain)), Extraction(text, CONTAINED)]
    found = (_score_region(region, plain.expressions, sample, prediction) for region in regions)
    rule = Stop.REFUSAL if is_refusal(text.lower()) else Stop.NONE
    return next((score for score in found if score), grade_unread(rule.value, prediction))


def _announced_number(reply: str, plain: str) -> Extraction:
    """Returns what is announced as the answer; of several numbers in it the one that it concludes with."""
    announced = _in_json(reply) or apply_rules(_ANNOUNCED, str(plain))
    said = announced.answer
    if said is None or MARKS.search(said) or len(numbers_in(said)) < 2:
        return announced
    concluded = _concluded(said)
    return concluded if concluded.answer is None else Extraction(concluded.answer, announced.rule)


def _score_region(region: Extraction, expressions: Mapping[str, str], sample: Sample, prediction: Prediction) -> Score | None:
    """Returns the score of a part of a text, None where it has no number."""
    where = region.answer or ""
    mention = _mention(where, targets(sample))
    if region.rule == Stop.AMBIGUOUS.value or (mention and len(where) <= _SHORT and _EITHER.search(where)):
        return grade_unread(Stop.AMBIGUOUS.value, prediction)
    expression = expressions.get(_last_expression(where))
    if expression and not (mention and mention[1]):
        return _score_expression(expression, region, sample, prediction)
    return Score(float(mention[1]), region.rule, mention[0]) if mention else None


_BRACKETS = re.compile(r"\([^()]*\)")
_ITEM = re.compile(r"(?m)^\s*\d{1,2}[.)]\s+")
_ASIDE = re.compile(r",?\s(?:of which|including|which includes|rather than|instead of|as opposed to|out of|from a total of)\b.*")
_TOTAL_BEFORE = re.compile(
    r"(?:[=≈]|\b(?:so|therefore|thus|hence|total(?:ing|s)?|sum|altogether|makes?|gives?|equals?|leaves?|leaving|is|are|becomes?|get|"
    r"result(?:s in)?|we have|yields?|answer)\b|共|合计|一共|总共|等于|所以|合計|全部で|모두|총)"
)
_TOTAL_BEHIND = re.compile(r"(?:\s\w+){0,3}?\s(?:in total|altogether|in all|overall|total)\b")
_TWO_SOLUTIONS = re.compile(r"\b([A-Za-z])\s?=\s?-?\d[\d.,]*\s?,?\s(?:or|and)\s\1\s?=\s?-?\d")
_LAST_SENTENCES = 2_000
"""Characters at the end of a text in which its conclusion is looked for."""
_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+|(?<=。)|\n+")
_BOUND = re.compile(r"(?:[±~<>≤≥]|\b(?:at (?:least|most)|more than|less than|fewer than|over|under|up to|plus or minus)\s?)$")


def _in_json(reply: str) -> Extraction | None:
    """Returns the answer of an object in JSON, None where there is none."""
    if "{" not in reply:
        return None
    text = straighten(reply)
    document = read_json(text)
    phrase = final_answer(text, document) or lesser_answer(document)
    if phrase is None:
        return None
    return Extraction(None, phrase.value) if isinstance(phrase, Stop) else Extraction(str(plain_numbers(phrase)), "json")


def _concluded(text: str) -> Extraction:
    """Returns the number, or the sentence, that a text concludes with; no answer where several numbers may be meant."""
    kept = _THOUSANDS.sub(lambda match: match[0].replace(match["gap"], ""), asserted(text))
    for correction in deque(CORRECTION.finditer(kept.lower()), maxlen=1):
        kept = kept[correction.end() :] if numbers_in(kept[correction.end() :]) else kept
    sentences = _SENTENCE_END.split(_ITEM.sub("", kept[-_LAST_SENTENCES:]))
    said = next((sentence for sentence in reversed(sentences) if MARKS.search(sentence) or numbers_in(sentence)), "")
    if not said or MARKS.search(said):
        return Extraction(said or kept, CONCLUDED)
    core = _ASIDE.sub("", _BRACKETS.sub(" ", said))
    core = core if numbers_in(core) else said
    found = list(_NUMBER.finditer(straighten(core))) if any(map(str.isdigit, core)) else []
    if len(found) < 2:
        bounded = found and (_BOUND.search(core[: found[0].start()]) or is_other(core.lower(), *found[0].span()))
        return Extraction(None, Stop.AMBIGUOUS.value) if bounded else Extraction(core, CONCLUDED)
    totals = [match for match in found if _TOTAL_BEHIND.match(core, match.end())]
    if "=" not in core and len(totals) == 1:
        return Extraction(totals[0][0], CONCLUDED)
    if _TWO_SOLUTIONS.search(core):
        return Extraction(None, Stop.AMBIGUOUS.value)
    last = deque(_TOTAL_BEFORE.finditer(core.lower()), maxlen=1)
    behind = core[last[0].end() :] if last else core
    values = {number.value for number in numbers_in(behind)}
    either = any(is_other(behind.lower(), *match.span()) for match in _NUMBER.finditer(behind))
    if len(values) != 1 or either:
        return Extraction(None, Stop.AMBIGUOUS.value)
    return Extraction(behind, CONCLUDED)


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
