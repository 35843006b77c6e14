"""Numbers in digits and words, and the scorers of numeric answers.

A number is read completely, with exponent, fraction, scale and sign, or not at all: 12 is not in 112, 1.12, x^12 or 12:30.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .grading import OPEN_RULES, grade_best, grade_unread, normalised, read_answer, targets
from .json_answers import answer_in_json
from .latex import MARKS, UNREAD, equals, plain_numbers, same_spelling
from .mentions import lower
from .options import is_other
from .text import NUMBER_WORDS, WORD, Extraction, Stop, apply_rules, final_words, fold_case, is_refusal, plain_text, straighten
from .words import asserted, corrections

_LONGEST = 40
"""Most digits of a number; a longer run is not read."""
_LAST_CHARACTERS = 5_000
"""Characters at the end of a text in which numbers are looked for: a model that writes more is stuck in a loop."""
_MOST_NUMBERS = 200
"""The most numbers that are read, from the end."""

_SCALE_WORDS: Final = {
    "dozen": 12,
    "hundred": 10**2,
    "thousand": 10**3,
    "lakh": 10**5,
    "million": 10**6,
    "crore": 10**7,
    "billion": 10**9,
    "trillion": 10**12,
}
_SCALES: Final = _SCALE_WORDS | {
    "lakhs": 10**5,
    "crores": 10**7,
    **dict.fromkeys(("millions", "millionen", "millones", "milhões", "milioni"), 10**6),
    **dict.fromkeys(("billions", "milliarden", "milliards", "miliardi"), 10**9),
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "B": 10**9,
    "mn": 10**6,
    "mln": 10**6,
    "mio": 10**6,
    "bn": 10**9,
    "mrd": 10**9,
    "tn": 10**12,
    "百": 10**2,
    "千": 10**3,
    "천": 10**3,
    "万": 10**4,
    "萬": 10**4,
    "만": 10**4,
    "亿": 10**8,
    "億": 10**8,
    "억": 10**8,
}
_NAMES = "|".join(name for name in _SCALES if len(name) > 1)
_SCALE = (
    rf"(?:\s?(?P<scale>{_NAMES}|(?<=\d)(?:(?-i:[KkMB])))(?![{WORD}])"
    r"|\s?(?P<hanzi>[百千천万萬만亿億억](?![克米瓦])))?"
)
_SOME = rf"\d{{1,{_LONGEST}}}"
_CORE = "|".join(
    f"(?P<{name}>{core})"
    for name, core in {
        "science": rf"{_SOME}(?:\.{_SOME})?e[+-]?\d{{1,2}}",
        "power": rf"{_SOME}(?:\.{_SOME})?\s?[x\u00d7·*]\s?10\s?\^\s?[+-]?\d{{1,2}}",
        "mixed": rf"(?:\d{{1,3}}(?: \d{{3}})+|{_SOME}) \d{{1,3}}/\d{{1,3}}",
        "gaps": r"\d{1,3}(?:(?P<gap>[ '])\d{3})(?:(?P=gap)\d{3})*(?:\.\d{1,40})?(?!\s\d)",
        "comma": rf"\d{{1,3}}(?:\.\d{{3}})+,\d{{1,2}}|(?<![(\[]){_SOME},(?:\d\d|\d{{4,{_LONGEST}}}|\d(?=\s?(?:{_NAMES})\b))(?!,)",
        "dots": r"\d{1,3}(?:\.\d{3}){2,}",
        "plain": rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,12}}|\d{{1,2}}(?:,\d\d){{1,6}},\d{{3}}|{_SOME})(?:\.{_SOME})?|\.{_SOME}",
    }.items()
)
_GLUED_UNITS = "mm|cm|km|m|kg|mg|g|ml|l|s|ms|h|min|px|in|ft|lbs?|mph|kwh|kw|hz|khz|mhz|ghz|kb|mb|gb|tb"
_ENDS = rf"(?![\d/²³]|[.,:]\d|\s?\^|-\d\d-\d\d\b)(?:(?![{WORD}])|(?=(?:{_GLUED_UNITS})[²³]?(?![\w²³])))"
_NUMBER = re.compile(
    rf"(?<![{WORD}.,/^²³第百千천万萬만亿億억])(?<![\^:][{{(])(?<!\d:)(?<!\d{{4}}-)(?<!\d{{4}}-\d\d-)(?:(?<![+-])(?P<sign>[+-])|(?<!--))[$€£¥₹]?(?:{_CORE})(?:/(?P<below>{_SOME}))?{_SCALE}{_ENDS}(?![百千천万萬만亿億억](?![克米瓦]))"
    r"(?P<half>\sand\s(?:a|one)\shalf\b)?(?P<percent>\s?(?:%|per\s?cent\b|pct\b))?(?P<open>\+(?!\s?\d))?",
    re.IGNORECASE,
)
_ALONE = re.compile(r"[+-]?\d{1,40},\d|\d{1,9}(?:st|nd|rd|th)")
"""Forms that are a number as a whole text, but may be several numbers in a sentence."""
_BOUND = re.compile(
    r"(?:[±<>≤≥]|\b(?:at (?:least|most)|(?:more|less|fewer|greater|higher|lower) than|over|under|above|below|up to|plus or minus|"
    r"no (?:more|less|fewer) than))\s?$",
    re.IGNORECASE,
)
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|never|neither|nor|rather than|instead of|except|nicht|kein\w*|pas|não|не)|n't|\bno (?:es|son))\b[ ,:]*"
    r"(?:[^\W\d]+ ){0,4}[$(\"]*$"
    r"|(?:不是|并非|不等于|非)[^\w]*$",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"\s?(?:[^\W\d]+ )?(?:is|are|was|would be|seems) (?:not|n't|wrong|incorrect|false|too (?:many|few|high|low))\b"
    r"|\s?(?:isn't|aren't|ではな|so far\b)",
    re.IGNORECASE,
)
_UNIT = re.compile(r"\s*(?P<unit>°?\s?[^\W\d_]*[23²³]?)\s*\.?")

# In words.


_BELOW_TWENTY: Final = (
    *NUMBER_WORDS,
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES: Final = {
    **{word: number for number, word in enumerate(_BELOW_TWENTY)},
    **{word: 10 * number for number, word in enumerate(_TENS, start=2)},
}
_NAMED = "|".join(sorted((*_VALUES, *_SCALE_WORDS), key=len, reverse=True))
_WORDS = re.compile(
    r"(?:(?<![\w)\]-])(?P<sign>-))?\b(?P<vague>(?:(?:half|quarter|third)s? (?:of )?an?"
    r"|a few|few|several|many|some|a couple(?: of)?|couple|every|tens of|dozens of)\s+)?"
    rf"(?:an?\s+(?=(?:{'|'.join(_SCALE_WORDS)})\b))?(?!(?<=\d\s)(?:{'|'.join(_SCALE_WORDS)})\b)(?P<words>(?:{_NAMED})(?:(?:-|\s+and\s+|\s+)(?:{_NAMED}))*)\b(?P<half>\sand\sa\shalf\b)?(?P<percent>\s?(?:%|per\s?cent\b))?",
    re.IGNORECASE,
)
_ONE = re.compile(
    r"(?:\b(?:only|just|exactly|precisely|total of|answer is|there is|there's)\s+)one(?!\s(?:of|who|that|which|at)\b)",
    re.IGNORECASE,
)
"""Contexts where "one" is a number and not a pronoun."""
_HAN: Final = dict(zip("零一二三四五六七八九", range(10), strict=True)) | {"两": 2, "兩": 2, "\u3007": 0}
_HAN_UNITS: Final = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_DIGITS, _UNITS = "".join(_HAN), "".join(_HAN_UNITS)
_HANGUL: Final = dict(zip(("한", "두", "세", "네", "다섯", "여섯", "일곱", "여덟", "아홉", "열"), range(1, 11), strict=True)) | {
    "하나": 1,
    "둘": 2,
    "셋": 3,
    "넷": 4,
}
_COUNTER = "[个個只隻匹头頭つ本人名枚台辆輛条條张張朵棵位件把艘架块塊支辺角番度元円岁歳]"
_COUNTED = re.compile(
    rf"(?<![第点之{_DIGITS}{_UNITS}])(?P<sign>-)?(?P<han>[{_DIGITS}][{_DIGITS}{_UNITS}]{{0,20}}|[十百千][{_DIGITS}{_UNITS}]{{1,20}}|十)"
    rf"(?:{_COUNTER}|(?=[\s.,。]*$))"
    rf"|(?P<hangul>{'|'.join(sorted(_HANGUL, key=len, reverse=True))})(?:\s?(?:개|마리|명|대|권|송이|그루|잔|장)|(?=[\s.,]*$))"
)
"""Numbers in Chinese, Japanese and Korean words, with a word that counts things behind them, or at the end."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and how it was written."""

    value: Fraction
    text: str
    percent: bool = False
    ratio: bool = False
    """Written with a stroke: a fraction, or a season such as 2010/11."""
    unit: str = ""
    is_bound: bool = False
    """Written as the end of a range: "at least 5", "5+"."""
    span: tuple[int, int] = (0, 0)
    """Its position in the straightened text."""


def read_number(text: str) -> Number | None:
    """Returns the number if ``text`` contains nothing else except a unit; else None.

    >>> read_number("$1,250.50").value, read_number("12 cm").unit, read_number("twenty-five").value, read_number("12 or 13")
    (Fraction(2501, 2), 'cm', Fraction(25, 1), None)
    """
    if len(text) > _LAST_CHARACTERS:
        return None
    line = straighten(_typed(text)).strip().lstrip("~≈")
    if alone := _ALONE.fullmatch(line.rstrip(".")):
        return Number(Fraction(re.sub("[a-z]", "", alone[0]).replace(",", ".")), line)
    if line.rstrip(".").lower() == "one":
        return Number(Fraction(1), line)
    numbers = list(_every(line))
    if len(numbers) != 1 or numbers[0].span[0] > len(line) - len(line.lstrip("#№ ")):
        return None
    number, rest = numbers[0], _UNIT.fullmatch(line, numbers[0].span[1])
    return replace(number, unit=rest["unit"].strip().casefold()) if rest and not number.is_bound else None


def numbers_in(text: str) -> list[Number]:
    """Returns the numbers in ``text`` that are not denied, in order; for a long text, those at its end.

    ``one`` counts only where it cannot be a pronoun.
    """
    line = straighten(_typed(text[-_LAST_CHARACTERS:]))
    return [number for number in [*_every(line)][-_MOST_NUMBERS:] if not _is_denied(line, *number.span)]


def _is_denied(line: str, start: int, end: int) -> bool:
    before = _DENIED_BEFORE.search(line, max(0, start - 50), start)
    return before is not None or _DENIED_AFTER.match(line, end, end + 40) is not None


_TYPED: Final = {
    **{sign: str(Fraction(unicodedata.numeric(sign)).limit_denominator(10)) for sign in "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"},
    **{sign: f"^{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    "№": "#",
}
_SIGN = re.compile(rf"(?<=\d)(?=[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])|[{''.join(_TYPED)}]")


_BELOW: Final = {"half": 2, "halve": 2, "third": 3, "quarter": 4} | dict(
    zip(("fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), range(4, 11), strict=True)
)
_PARTS = "|".join(_BELOW)
_SMALL = "|".join(_BELOW_TWENTY[1:11])
_RUN = rf"(?:{_NAMED})(?:[-\s](?:{_NAMED})){{0,8}}"
_NEGATIVE = re.compile(
    rf"(?:(?P<before>\b[^\W_]{{1,20}}|\))\s)?\b(?:minus|negative|moins|menos|meno)\s(?=\.?\d|(?:{_NAMED})\b)|(?:零下|负|負|マイナス)(?=[\d{_DIGITS}{_UNITS}])",
    re.IGNORECASE,
)
_POINT = re.compile(
    rf"\b(?P<whole>{_RUN})\spoint\s(?P<digits>(?:{'|'.join(_BELOW_TWENTY[:10])})(?:[-\s](?:{'|'.join(_BELOW_TWENTY[:10])})\b){{0,12}})\b",
    re.IGNORECASE,
)
_PARTED = re.compile(
    rf"(?<![-\w.,/])(?:(?P<whole>{_RUN}|\d{{1,9}})[-\s]and[-\s](?P<one>an?[-\s])?|(?P<half>an?[-\s](?=half|quarter)))?"
    rf"(?:(?P<above>{_SMALL}|\d{{1,2}})[-\s])?(?P<below>{_PARTS})(?P<several>s?)(?![-\w])",
    re.IGNORECASE,
)
_COINS = re.compile(r"\b(?:there (?:is|are)|see|count|has|have|for|in|over|last|past|next|within|during|all)\s$", re.IGNORECASE)
"""Words behind which quarters are coins, or parts of a year."""


def _typed(text: str) -> str:
    """Returns ``text`` with numbers in digits that the patterns would otherwise read only in part.

    Fractions and powers of one character (before 5½ is normalised to 51/2), "minus 5", "five point five", "two thirds".
    """
    text = text if text.isascii() else _SIGN.sub(lambda sign: _TYPED.get(sign[0], " "), text)
    text = _PARTED.sub(_parted, _POINT.sub(_pointed, text))
    return _NEGATIVE.sub(_negative, text)


def _negative(match: re.Match[str]) -> str:
    """Returns a sign for the word "minus" unless it subtracts: "5 minus 3", "x minus 3"."""
    before = match["before"] or ""
    subtracts = len(before) == 1 or before[-1:].isdigit() or before.lower() in _VALUES.keys() | _SCALE_WORDS.keys()
    return match[0] if subtracts else f"{before} -" if before else "-"


def _pointed(match: re.Match[str]) -> str:
    whole = _values_of(re.split(r"[-\s]+", match["whole"].lower()))
    digits = "".join(str(_VALUES[word]) for word in re.split(r"[-\s]+", match["digits"].lower()))
    return f"{whole[0]}.{digits}" if len(whole) == 1 else match[0]


def _parted(match: re.Match[str]) -> str:
    """Returns a fraction in digits; not "there are three quarters", which may be coins, or "a third dog"."""
    below, above, base = _BELOW[match["below"].lower()], (match["above"] or "").lower(), (match["whole"] or "0").lower()
    is_single = match["one"] or match["half"] or (match["whole"] and below == 2)
    number = 1 if is_single else int(above) if above.isdigit() else _VALUES.get(above, 0)
    whole = [Fraction(base)] if base.isdigit() else _values_of(re.split(r"[-\s]+", base))
    coins = below == 4 and (number not in (1, 3) or _COINS.search(match.string, max(0, match.start() - 12), match.start()))
    if not number or len(whole) != 1 or coins or ((number > 1) != bool(match["several"]) and "-" not in match[0]):
        return match[0]
    value = whole[0] + Fraction(number, below)
    return str(float(value)) if 1000 % below == 0 and value < 10**6 else f"{value.numerator}/{value.denominator}"


def _every(line: str) -> Iterator[Number]:
    numbers = [number for match in _NUMBER.finditer(line) for number in _in_digits(match, line)]
    taken = {place for number in numbers for place in range(*number.span)}
    numbers += [number for word in _WORDS.finditer(line) if word.start("words") not in taken for number in _in_words(word, line)]
    numbers += [Number(Fraction(1), match[0], span=match.span()) for match in _ONE.finditer(line)]
    if not line.isascii():
        counted = [(match, _counted(match)) for match in _COUNTED.finditer(line) if match.start() not in taken]
        numbers += [Number(Fraction(said), match[0].strip(), span=match.span()) for match, said in counted if said is not None]
    whole = (number for number in numbers if not _is_part(line, *number.span))
    return iter(sorted(whole, key=lambda number: number.span))


_PART_BEFORE = re.compile(r"(?:[√∛]\s?|\b(?:log|ln|sin|cos|tan|sqrt|root of|factorial of|point)\s?\(?)$", re.IGNORECASE)
_PART_AFTER = re.compile(
    rf"\s?(?:√|(?:pi|π|factorial)\b)|[-\s](?!quarter)(?:{_PARTS})s?\b|\spoint\s(?:{_NAMED})\b|\s?(?:°\s?[CF]?|degrees)?\sbelow\s(?:zero|0)",
    re.IGNORECASE,
)


def _is_part(line: str, start: int, end: int) -> bool:
    """Says whether a number is a part of a larger expression: the 9 of √9, the 2 of 2 pi."""
    if line[start] == "-" and line[start - 1 : start] == line[end : end + 1] == "|":
        return True
    return _PART_BEFORE.search(line, max(0, start - 20), start) is not None or _PART_AFTER.match(line, end) is not None


def _in_digits(match: re.Match[str], line: str) -> Iterator[Number]:
    value = _core(match)
    below = int(match["below"] or 1)
    if value is None or not below:
        return
    scale = match["scale"] or match["hanzi"] or ""
    value = value * _SCALES.get(scale, _SCALES.get(scale.lower(), 1)) / below + Fraction(bool(match["half"]), 2)
    bound = bool(match["open"] or _BOUND.search(line, max(0, match.start() - 16), match.start()))
    ratio = match["below"] is not None
    signed = -value if match["sign"] == "-" else value
    yield Number(signed, match[0].strip(), match["percent"] is not None, ratio, is_bound=bound, span=match.span())


def _core(match: re.Match[str]) -> Fraction | None:
    """Returns the value of a number's digits; None for a division by 0."""
    name, core = next(
        (name, match[name]) for name in ("science", "power", "mixed", "gaps", "comma", "dots", "plain") if match[name]
    )
    if name == "power":
        number, power = re.split(r"\s?[x\u00d7·*]\s?10\s?\^\s?", core, flags=re.IGNORECASE)
        return Fraction(number) * Fraction(10) ** int(power)
    if name == "mixed":
        whole, _, part = core.rpartition(" ")
        above, below = map(int, part.split("/"))
        return int(whole.replace(" ", "")) + Fraction(above, below) if above < below else None
    marks = {"comma": (".", ""), "dots": (".", "")}.get(name, (",", ""))
    return Fraction(re.sub("[ ']", "", core.replace(*marks)).replace(",", "."))


def _in_words(match: re.Match[str], line: str) -> Iterator[Number]:
    """Returns the numbers in a run of number words: "two hundred and five" is a number, "two three" are two."""
    if match["vague"] or match["words"].lower() == "one":
        return
    values = _values_of(re.split(r"[-\s]+", match["words"].lower()))
    extra = Fraction(bool(match["half"]), 2)
    bound = bool(_BOUND.search(line, max(0, match.start() - 16), match.start()))
    for value in values:
        signed, text = (-value - extra, f"-{match['words']}") if match["sign"] else (value + extra, match["words"])
        yield Number(signed, text, match["percent"] is not None, is_bound=bound, span=match.span())


def _values_of(words: Sequence[str]) -> list[Fraction]:
    values: list[int] = []
    total, part, scale, joined = 0, -1, 10**13, False
    for word in [*words, ""]:
        if word == "and":
            joined = True
            continue
        value, by = _VALUES.get(word), _SCALE_WORDS.get(word)
        is_new = not word or (joined and part >= 0 and part % 100 != 0 and total == 0)
        if value is not None and part >= 0:
            is_new |= not (part % 100 == 0 and part > 0) and not (value < 10 and value and part % 100 >= 20 and part % 10 == 0)
        elif by == 100:
            is_new |= part >= 100 or part == 0
        elif by:
            is_new |= by >= scale
        if is_new and (part >= 0 or total):
            values.append(total + max(part, 0))
            total, part, scale = 0, -1, 10**13
        joined = False
        if value is not None:
            part = max(part, 0) + value
        elif by in {100, 12}:
            part = (part if part > 0 else 1) * by
        elif by:
            total, part, scale = total + (part if part > 0 else 1) * by, -1, by
    return [Fraction(value) for value in values]


def _counted(match: re.Match[str]) -> int | None:
    """Returns the number in Chinese or Korean words: 一百零五 is 105, 세 is 3; None for 七八, seven or eight."""
    sign = -1 if match["sign"] else 1
    if match["hangul"]:
        return _HANGUL[match["hangul"]]
    han, total, section, digit = match["han"], 0, 0, -1
    if not set(han) & _HAN_UNITS.keys():
        return sign * int("".join(str(_HAN[each]) for each in han)) if len(han) != 2 or _HAN[han[1]] == 0 else None
    for place, each in enumerate(han):
        unit = _HAN_UNITS.get(each, 1)
        if unit == 1 and digit > 0:
            return None
        if unit == 1:
            digit = _HAN[each]
        elif unit < 10**4:
            section, digit = section + (digit if digit >= 0 else 1) * unit, -1
        else:
            section += max(digit, 0)
            total, section, digit = (total + section * unit if unit < 10**8 else (total + section) * unit), 0, -1
        if place == len(han) - 1 and unit == 1 and han[place - 1] not in "十零\u3007":
            return None  # 二百五 is 250 in Chinese, and 205 in Japanese
    return sign * (total + section + max(digit, 0))


# Scorers of answers that are numbers: within five percent for charts, exactly for mathematics.


TOLERANCE = Fraction(5, 100)
CONTAINED = "contained"
CONCLUDED = "concluded"

_EITHER = re.compile(r"\d\W{0,3}\sor\s\W{0,3}\d", re.IGNORECASE)
_SEASON = re.compile(r"\d{4}/\d\d(?!\d)")
_SHORT = 60
"""Most characters of a text in which "12 or 13" is an answer and not part of a calculation."""

_ANNOUNCED: Final = {name: OPEN_RULES[name] for name in ("answer_tag", "boxed", "statement")}


def relaxed_match(answer: str, target: str) -> bool:
    """Whether ``answer`` matches ``target``: numbers within five percent, texts in normalised spelling.

    Masry et al. 2022, "ChartQA", section 5.1, after Methani et al. 2020. A target of 0 is met by 0 only, and 5 km is not 5 m.
    The published rule makes no exception for years: 1960 is within five percent of 2010. Where one side has a percent sign, it
    may
    stand for a division by 100 or for nothing; VLMEvalKit always divides, and reads no thousands separators.

    >>> relaxed_match("1,040", "1000"), relaxed_match("0.5", "50%"), relaxed_match("94", "100"), relaxed_match("Red", "red")
    (True, True, False, True)
    """
    wanted, got = number_of(target), number_of(answer)
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

    Where the targets are numbers and the answer is a sentence, the number that it ends in is read (rule ``concluded``).
    """
    if not all(map(number_of, targets(sample))):
        return grade_best(read_answer(sample, prediction), sample, prediction, relaxed_match)
    plain = plain_numbers(_typed(prediction.text))
    extraction = read_answer(sample, replace(prediction, text=str(plain)))
    if extraction.answer is not None and MARKS.search(extraction.answer):
        return _relaxed_expression(plain.expressions, extraction, sample, prediction)
    if extraction.answer is not None:
        concluded = _concluded(extraction.answer)
        extraction = extraction if number_of(extraction.answer) or concluded.answer == extraction.answer else concluded
    return grade_best(extraction, sample, prediction, relaxed_match)


def _relaxed_expression(expressions: Mapping[str, str], extraction: Extraction, sample: Sample, prediction: Prediction) -> Score:
    """Returns 1 for an expression that equals a target; other expressions are unread."""
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
    """Returns the score of the announced part of a text, else of its conclusion, else of the whole text."""
    reply = final_words(_typed(prediction.text))
    if isinstance(reply, Stop):
        return grade_unread(reply.value, prediction)
    plain = plain_numbers(_NO_ANSWER.sub("", reply))
    text = _typed(plain_text(plain))
    if not text:
        return grade_unread("empty", prediction)
    if concludes:
        formula = not any(map(number_of, targets(sample)))  # is searched as spelled, with any numbers in it
        regions = [_announced_number(reply, plain), Extraction(text, CONCLUDED) if formula else _concluded(text)]
    else:
        regions = [apply_rules(_ANNOUNCED, str(plain)), Extraction(text, CONTAINED)]
    scores = (_score_region(region, plain.expressions, sample, prediction) for region in regions)
    rule = Stop.REFUSAL if is_refusal(text.lower()) else Stop.NONE
    return next((score for score in scores if score), grade_unread(rule.value, prediction))


def _announced_number(reply: str, plain: str) -> Extraction:
    """Returns the announced answer; of several numbers, the concluding one."""
    in_json = answer_in_json(reply)
    if isinstance(in_json, Stop):
        return Extraction(None, in_json.value)
    announced = Extraction(str(plain_numbers(in_json)), "json") if in_json is not None else apply_rules(_ANNOUNCED, str(plain))
    said = announced.answer
    if announced.rule == "statement" and _is_corrected(announced, str(plain)):
        return Extraction(None, Stop.AMBIGUOUS.value)
    if said is None or MARKS.search(said) or len(numbers_in(said)) < 2:
        return announced
    concluded = _concluded(said)
    return concluded if concluded.answer is None else Extraction(concluded.answer, announced.rule)


def _is_corrected(announced: Extraction, text: str) -> bool:
    """Whether another number is concluded behind a correction that follows the announced one: "The answer is 8. Wait, it's 9"."""
    later = _behind_correction(text)
    if not later or apply_rules(_ANNOUNCED, later).answer is not None:
        return False
    concluded = _concluded(later).answer
    number, before = read_number(concluded or ""), numbers_in(announced.answer or "")
    return number is not None and bool(before) and all(each.value != number.value for each in before)


def _score_region(region: Extraction, expressions: Mapping[str, str], sample: Sample, prediction: Prediction) -> Score | None:
    """Returns the score of a part of a text; None without a number."""
    where = region.answer or ""
    mention = _mention(where, targets(sample))
    if region.rule == Stop.AMBIGUOUS.value or (mention and len(where) <= _SHORT and _EITHER.search(where)):
        return grade_unread(Stop.AMBIGUOUS.value, prediction)
    expression = expressions.get(_last_expression(where))
    if expression and not (mention and mention[1]):
        return _score_expression(expression, region, sample, prediction)
    return Score(float(mention[1]), region.rule, mention[0]) if mention else None


_NO_ANSWER = re.compile(r"^\W*confidence\b[^\n]*|\bimage \d{1,2}>", re.IGNORECASE | re.MULTILINE)
"""How sure a model is, and the mark of an image: their numbers are no answer."""
_BREAKDOWN = re.compile(r"[^.,;]{0,80}(?::|,\s(?:that is|namely)\b|\s-\s|\b(?:including|consisting|made up)\b)")
"""The text after a total that is followed by its parts: "7 people: four adults and three children"."""
_DETAIL = re.compile(r"\W*(?:this|that|these|they|it)(?: (?:number|total|count))? (?:also )?(?:in|ex)cludes?\b", re.IGNORECASE)
"""A sentence about a part of the number before it: "There are 7 dogs. This includes 2 puppies"."""
_PART_OF = re.compile(
    rf"\W*(?:(?:[\w.,]+ )?(?:of|among) (?:them|these|those)\b|(?:\d+|{_SMALL}) (?:is|are|was|were|has|have|wears?)\b)",
    re.IGNORECASE,
)
"""A sentence about a part of a number, which may be what was asked for: "There are 7 cars. 3 of them are red"."""
_ONE_MORE = re.compile(r"\b(?:one|another|other)\b", re.IGNORECASE)
_BRACKETS = re.compile(r"\([^()=]*\)")
_ITEM = re.compile(r"(?m)^\s*\d{1,2}[.)]\s+")
_ITEMS = re.compile(r"(?m)^\s*(?:\d{1,2}[.)]|[-*•])\s(?!.*(?:total|sum|altogether|=)).*\n?", re.IGNORECASE)
"""Lines of a list, which may say what a number consists of: "There are 5 apples.\\n1. One is red."."""
_ASIDE = re.compile(
    r"^\W*[Ii]n (?:the year )?(?:19|20)\d\d[,:]?\s|^\W*(?:19|20)\d\d:\s"
    r"|,?\s(?:of which|including|which includes|which (?:represents?|corresponds? to)|rather than|"
    r"instead of|as opposed to|out of|compared (?:to|with)|from a total of|according to)\b.*"
    r"|,?\s(?:in|from|since|between|during|for) (?:the year )?(?:19|20)\d\d(?:(?: to | and |-)(?:19|20)\d\d)?(?!\S?\d)"
)
_TOTAL_BEFORE = re.compile(
    r"(?:[=≈]|\b(?:so|therefore|thus|hence|total(?:ing|s)?|sum|altogether|makes?|gives?|equals?|leaves?|leaving|is|are|becomes?|get|"
    r"result(?:s in|ing in)?|we have|yields?|answer|be)\b|共|合计|一共|总共|等于|所以|合計|全部で|모두|총|هو)"
)
_TOTAL_BEHIND = re.compile(r"(?:\s\w+){0,3}?\s(?:in total|altogether|in all|overall|total)\b")
_TWO_SOLUTIONS = re.compile(r"\b([A-Za-z])\s?=\s?-?\d[\d.,]*\s?,?\s(?:or|and)\s\1\s?=\s?-?\d")
_TWO_CLAUSES = re.compile(
    r"\b(?:is|are|was|were|has|have)\b[^.;]*\b(?:and|while|but|whereas)\s(?:the|its|that|there|it)\s[^.;]*"
    r"\b(?:is|are|was|were|has|have)\b"
)
_BESIDE = re.compile(r"\b(?:\w+ing|with|on|near|beside|behind|under|next)\b")
"""Words after which a number is of something else: "The 3 dogs are playing with 2 balls"."""
_LAST_SENTENCES = 2_000
"""Characters at the end of a text in which its conclusion is looked for."""
_SENTENCE_END = re.compile(r"(?<=[.!?。])\s+|(?<=。)|\n+")
_THING = (
    r"(?!answer|image|picture|photo|way|info|number|text|data|detail|indication|evidence|clear|specific|reason|result"
    r"|(?:one|other|more|of)\b)"
)
"""Not what is said where nothing could be counted: "I see no clear answer"."""
_NOTHING = re.compile(
    rf"i (?:do not|don't|cannot|can't) see any {_THING}(?![^.]*\b(?:because|since|due|enough|clearly|well|but)\b)[\w -]{{1,60}}"
    rf"|no {_THING}[\w -]{{1,40}} (?:is|are|can be) (?:visible|seen|present|shown)"
    r"|there is no (?:one|body)(?: [\w -]{1,60})?"
    rf"|none of the {_THING}(?!above|below|options|choices)[\w -]{{1,60}}"
    r"|(?:no|none|nil)|there (?:are|is)(?:n't| not) any(?: [\w -]{1,60})?"
    r"|(?:i see )?(?:no one|nobody)(?: (?:is|in|on|at) [\w -]{1,60})?"
    r"|no (?!ideas|clues|images|pictures|thanks|worries|problems|words|comments|results|options|answers)"
    r"(?:[\w-]+s|people|men|women|children|sheep|fish)"
    r"|(?:there (?:are|is)|i (?:can )?see|the (?:image|picture|photo|chart|graph) (?:shows|contains|has)) "
    rf"(?:no|not any) {_THING}[\w -]{{1,60}}"
)
"""Answers that say 0 without a number."""
_SINGLE = re.compile(
    r"(?:only |just )?a single [\w-]+"
    r"|there(?: is|'s) (?:only |just )?an? (?:single )?(?!group|pair|couple|lot|crowd|number|few|bunch|row|herd|set|flock|"
    r"variety|total|stack|pile|series|collection|team|family|bowl|box|basket)[\w-]+(?: [\w-]+)?(?: (?:in|on|at) the \w+)?"
)
"""Answers that say 1 without a number."""


def _concluded(text: str) -> Extraction:
    """Returns the concluding number or sentence of a text; no answer if several numbers are possible."""
    text = _typed(text)
    if leading := _leading(text[:_LAST_CHARACTERS]):
        return leading
    kept = _kept(text[-_LAST_CHARACTERS:])
    counted = _telling_sentences(kept)
    said = counted[-1] if counted else ""
    if not said or MARKS.search(said):
        return Extraction(said or _without_digits(_ITEM.sub("", kept)), CONCLUDED)
    if _is_list(kept):
        return Extraction(None, Stop.AMBIGUOUS.value)
    core = _ASIDE.sub("", said)
    core = core if numbers_in(core) else said
    numbers = [number for number in numbers_in(core) if not number.is_bound]
    totals = [number for number in numbers if _TOTAL_BEHIND.match(core, number.span[1])]
    if _adds_up(numbers, core):
        totals = totals or ([numbers[0]] if _BREAKDOWN.match(core, numbers[0].span[1]) else [])
    if "=" not in core and len(totals) == 1:
        return Extraction(totals[0].text, CONCLUDED)
    if len({number.value for number in numbers}) > 1:
        last = deque(_TOTAL_BEFORE.finditer(core.lower()), maxlen=1)
        is_pair = _TWO_SOLUTIONS.search(core) or (last and last[0][0] in {"is", "are"} and _TWO_CLAUSES.search(core.lower()))
        is_pair = is_pair or (
            last and last[0][0] in {"is", "are"} and _BESIDE.search(core.lower(), last[0].end(), numbers[-1].span[0])
        )
        numbers = [number for number in numbers if last and number.span[0] >= last[0].end() and not is_pair]
    values = {number.value for number in numbers}
    part = _PART_OF.match(said) and any(map(numbers_in, counted[:-1]))
    if len(values) != 1 or part or any(is_other(core.lower(), *number.span) for number in numbers):
        return Extraction(None, Stop.AMBIGUOUS.value)
    return Extraction(numbers[-1].text, CONCLUDED)


def _is_list(text: str) -> bool:
    """Whether every line has a number of its own, and the last does not conclude: "3 on the left", "2 on the right"."""
    *lines, end = [line for line in _ITEM.sub("", text).split("\n") if line.strip()] or [""]
    if not lines or not all(map(numbers_in, (*lines, end))) or read_number(end) or _TOTAL_BEFORE.search(end.lower()):
        return False
    earlier = {number.value for line in lines for number in numbers_in(line)}
    return earlier.isdisjoint(number.value for number in numbers_in(end) if not _TOTAL_BEHIND.match(end, number.span[1]))


def concluded_number(text: str) -> Number | None:
    """Returns the number that a text ends in, as ``score_numeric`` reads it; None without a single one."""
    ending = _concluded(str(plain_numbers(text))).answer
    return number_of(ending) if ending else None


_FIRST_WORD = re.compile(r"\W*([^\W\d_]+(?:-[^\W\d_]+)?)[.!]\s+(?=\S)")


def _leading(text: str) -> Extraction | None:
    """Returns a number that is alone on the first line, or a word in the first sentence; what follows explains it."""
    lines = [read_number(_ITEM.sub("", line)) for line in text.split("\n") if line.strip()]
    if len(lines) > 1 and all(lines) and len({line.value for line in lines if line}) > 1:
        return Extraction(None, Stop.AMBIGUOUS.value)
    if "=" in text:
        return None
    summed = lines and lines[0] and lines[0].unit and (any(lines[1:]) or _TOTAL_AGAIN.search(text))  # "3 red", "2 blue"
    if len(lines) > 1 and lines[0] and not lines[-1] and not summed:
        return Extraction(lines[0].text, CONCLUDED)
    word = _FIRST_WORD.match(text)
    number = read_number(word[1]) if word and not _behind_correction(text) else None
    return Extraction(number.text, CONCLUDED) if number and not _TOTAL_AGAIN.search(text, word.end() if word else 0) else None


_TOTAL_AGAIN = re.compile(r"\b(?:so|therefore|thus|hence|total|altogether|answer)\b", re.IGNORECASE)


def _kept(text: str) -> str:
    """Returns the sentences that neither suppose nor ask, behind the last correction."""
    kept = asserted(text)
    if not kept and (not text.rstrip().endswith("?") or read_number(text.rstrip(" ?"))):
        kept = text
    later = _behind_correction(kept)
    return later if numbers_in(later) else kept


def _behind_correction(text: str) -> str:
    """Returns what follows the last correction; empty without one."""
    turns = corrections(lower(text))
    return text[turns[-1][0] :] if turns else ""


def _telling_sentences(text: str) -> list[str]:
    """Returns the sentences with a number, without text in brackets, which explains, and without parts of the last total."""
    ending = straighten(text[-_LAST_SENTENCES:])
    whole = _ITEMS.sub("", ending)
    sentences = _SENTENCE_END.split(whole if _has_number(whole) else _ITEM.sub("", ending))
    for fewer in (lambda each: _BRACKETS.sub(" ", each), lambda each: "" if _DETAIL.match(each) else each):
        left = list(map(fewer, sentences))
        sentences = left if any(map(_has_number, left)) else sentences
    counted = [sentence for sentence in sentences if _has_number(sentence)]
    if len(counted) > 1 and _PART_OF.match(counted[-1]):
        numbers = [number for sentence in counted[-2:] for number in numbers_in(sentence)]
        return counted[:-1] if _adds_up(numbers, counted[-1]) else counted
    return counted


def _has_number(text: str) -> bool:
    return MARKS.search(text) is not None or bool(numbers_in(text))


def _adds_up(numbers: Sequence[Number], text: str) -> bool:
    """Whether the first number is the sum of the others, and of a "one" of ``text``: "7 people: six adults and one child"."""
    parts, ones = numbers[1:], len(_ONE_MORE.findall(text))
    missing = numbers[0].value - sum(number.value for number in parts) if parts else -1
    return 0 <= missing <= ones and len(parts) + missing > 1


def _without_digits(text: str) -> str:
    """Returns "0" or "1" for a text that says so without a number; other texts unchanged."""
    said = text.strip().rstrip(".!").lower()
    return "0" if _NOTHING.fullmatch(said) else "1" if _SINGLE.fullmatch(said) else text


def _last_expression(where: str) -> str:
    """Returns the mark of the last unknown expression if no number follows it; else an empty text."""
    marks = list(MARKS.finditer(where))
    return marks[-1][0] if marks and not numbers_in(where[marks[-1].end() :]) else ""


def _score_expression(expression: str, region: Extraction, sample: Sample, prediction: Prediction) -> Score:
    """Returns the score of an expression: equal to a target by spelling or math-verify; unread if unknown."""
    equal = [same_spelling(expression, target) or equals(expression, target) for target in targets(sample)]
    if not any(equal) and None in equal:
        return grade_unread(UNREAD, prediction)
    return Score(float(any(equal)), region.rule, expression)


@lru_cache(maxsize=8192)
def number_of(text: str) -> Number | None:
    """Returns ``text`` as a number, also in LaTeX; None for 2010/11, which is a season on the axis of a chart."""
    number = read_number(text) or read_number(str(plain_numbers(text)))
    return None if number is None or (number.ratio and _SEASON.match(number.text)) else number


def _mention(text: str, wanted: Sequence[str]) -> tuple[str, bool] | None:
    """Returns the target that ``text`` mentions and True, else its last number and False; None when it has neither."""
    alone = read_number(text)
    numbers = [alone] if alone else numbers_in(text)
    for target in wanted:
        number = number_of(target)
        if any(is_same(mentioned, number) for mentioned in numbers) if number else _has_expression(text, target):
            return target, True
    return (numbers[-1].text, False) if numbers else None


def is_same(mentioned: Number, wanted: Number) -> bool:
    """Whether two numbers are equal, with equal units if both have one."""
    return mentioned.value == wanted.value and (not mentioned.unit or not wanted.unit or mentioned.unit == wanted.unit)


def _has_expression(text: str, target: str) -> bool:
    expression = r"\s*".join(re.escape(character) for character in "".join(fold_case(target).split()))
    if not expression:
        return False
    sentence = fold_case(text)
    matches = re.finditer(rf"(?<![\w.]){expression}(?!\w|\.\d)", sentence)
    return any(not _is_denied(sentence, *match.span()) for match in matches)
