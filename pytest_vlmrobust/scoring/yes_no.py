"""Did the model say yes or no?

A description is not read as an answer: whether "There is a dog" means yes depends on the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .extraction import (
    CHANGE,
    QUESTION,
    Extraction,
    Ladder,
    Outcome,
    Stop,
    apply_rules,
    is_negated,
    is_refusal,
    only_answer,
    word,
)
from .text import answer_tag, boxed_content, final_words, plain_text, strip_ends

_SYNONYMS: Final = {
    "yes": ("yes", "yeah", "yep", "yup", "true", "correct", "是", "是的", "对", "有", "正确"),
    "no": ("no", "nope", "nah", "false", "incorrect", "否", "不是", "不", "没有", "不对", "错误"),
}
_MEANING: Final = {synonym: meaning for meaning, synonyms in _SYNONYMS.items() for synonym in synonyms}
_SAID = r"(yes|no|yeah|yep|yup|nope|nah|true|false)(?![\w-])"
_LEADING = re.compile(
    r"\W{0,9}(?!no\.?\s?\d)(?:(yes|yeah|yep|yup|no|nope|nah|true|false|是的|不是|没有|不对|是|否|对|有)(?=\s?(?:[,.;:!\n]|- |$))"
    r"|(yes)\b(?!\s?(?:/|or\b|-))|(no)\s(?=(?:because|since|as|there|it|this|that|the|he|she|they|i|we|you)\b))"
)
_BEFORE_LAST = "so|but|is|say|be|think|therefore|thus|hence|probably|definitely"
_CLOSING = re.compile(rf"(?:[,:;→]|[=-]>| - |\b(?:{_BEFORE_LAST}))\s*\"?{_SAID}$")
_SET_OFF = re.compile(r"[,:;]\s(yes|no)(?=[,;])")
_STATEMENT = re.compile(
    rf"(?:{word('answer', 'ans')}[^.:\n]{{0,60}}?(?:\bis\b|\bwould be\b|\bshould be\b|'s\b|[:=]):?|答案[是为:]+)"
    rf"\s?(?:(?:definitely|clearly|probably|likely)\s)?\W{{0,3}}(?:{_SAID}|(是的|不是|没有|是|否|有))"
)
_EITHER = re.compile(rf"{word('yes ?(?:/|or) ?no', 'no ?(?:/|or) ?yes')}|是否")
_BOTH_ALONE = re.compile(r"(?:yes\W{1,9}(?:and\W)?no|no\W{1,9}(?:and\W)?yes)")
_YES = re.compile(rf"{word('yes')}(?!-\w)")
_NO = re.compile(word("no"))
_LONGEST_CLOSING = 40
_TURN = re.compile(rf"(?:{CHANGE}[\s,.!;:()-]{{0,6}}){{1,5}}(?:(?:it's|it is|the answer is)\s)?(?={_SAID}\s?(?:[,.;:!\n]|- |$))")
_ASKED = re.compile(rf"\W{{0,9}}{QUESTION}\s+(?=(?:no|nope|nah)(?![\w-])(?!\s?(?:/|or\b))[^?]*$)")
_SURELY = r"(?:absolutely|definitely|certainly|of course|surely|obviously|clearly|probably)"
_ASSENT = re.compile(
    r"(?:that|this|it)(?:'s| is) (?:\w+ly )?(?:correct|right|true)|absolutely|certainly|of course|i (?:think|believe) so"
)
_DISSENT = re.compile(
    rf"(?:that|this|it)(?:'s| is) (?:\w+ly )?(?:incorrect|wrong|false|untrue)|{_SURELY},? not|not (?:at all|really|quite)"
    r"|(?:that|this|it)(?:'s not| is not| isn't) (?:\w+ly )?(?:correct|right|true)|i (?:don't|do not) (?:think|believe) so"
)


@dataclass(frozen=True, slots=True)
class YesNoReading:
    """Input of the rules: the raw text, and the text in lower case without markup."""

    raw: str
    text: str


def extract_yes_no(text: str) -> Extraction:
    """Returns ``"yes"`` or ``"no"`` as read from ``text``; never raises.

    >>> extract_yes_no("There is no dog, so yes")
    Extraction(answer='yes', rule='closing')
    """
    reply = final_words(text)
    if reply is None:
        return Extraction(None, "unfinished_thinking")
    statement = _after_last_change(plain_text(reply).lower())
    return apply_rules(YES_NO_RULES, YesNoReading(reply, statement)) if statement else Extraction(None, "empty")


def _after_last_change(text: str) -> str:
    """Returns the text after a repeated question and after the last change of mind: "Yes... Actually, no"."""
    asked = _ASKED.match(text)
    start = asked.end() if asked else 0
    for turn in _TURN.finditer(text):
        start = max(start, turn.end())
    return text[start:]


def _answer_tag(reading: YesNoReading) -> Outcome:
    """``<answer>yes</answer>``: the content of the last one is the answer, readable or not."""
    return _only(answer_tag(reading.raw))


def _boxed_answer(reading: YesNoReading) -> Outcome:
    r"""``\boxed{yes}``: the content of the last one is the answer, readable or not."""
    return _only(boxed_content(reading.raw))


def _only(content: str | None) -> Outcome:
    return None if content is None else extract_yes_no(content).answer or Stop.NONE


def _word(reading: YesNoReading) -> Outcome:
    """``YES!``, ``Nope``, ``true``, ``是的``, ``Of course not``: one word alone, or a phrase with that meaning."""
    words = strip_ends(reading.text)
    if _DISSENT.fullmatch(words):
        return "no"
    return "yes" if _ASSENT.fullmatch(words) else _MEANING.get(words)


def _statement(reading: YesNoReading) -> Outcome:
    """``The answer is no``: the last one."""
    matches = [
        match for match in _STATEMENT.finditer(reading.text) if not _EITHER.match(reading.text, match.start(match.lastindex or 1))
    ]
    return _meaning(matches[-1]) if matches else None


def _both(reading: YesNoReading) -> Outcome:
    """``Yes/No``, ``yes or no``, ``No. Yes.``: both at once."""
    either = _EITHER.search(reading.text) or _BOTH_ALONE.fullmatch(strip_ends(reading.text))
    return Stop.AMBIGUOUS if either else None


def _leading(reading: YesNoReading) -> Outcome:
    """``No, there is none.``, ``Yes there is``: the first word, set off as an answer; a later one must not contradict it.

    ``No, I cannot see the image`` refuses.
    """
    match = _LEADING.match(reading.text)
    if not match:
        return None
    first = _meaning(match)
    if first == "no" and is_refusal(reading.text):
        return Stop.REFUSAL
    last = _closing(reading)
    others = {_meaning(other) for other in _SET_OFF.finditer(reading.text, match.end())}
    return only_answer({first, *others, *([last] if isinstance(last, str) else [])})


def _closing(reading: YesNoReading) -> Outcome:
    """``…, so yes``: the last word, set off as an answer."""
    match = _CLOSING.search(strip_ends(reading.text)[-_LONGEST_CLOSING:])
    return _meaning(match) if match else None


def _set_off(reading: YesNoReading) -> Outcome:
    """``In this picture, no, there is none.``: a word between commas."""
    return only_answer({_meaning(match) for match in _SET_OFF.finditer(reading.text)})


def _refusal(reading: YesNoReading) -> Outcome:
    """``I cannot tell``: no answer."""
    return Stop.REFUSAL if is_refusal(reading.text) else None


def _only_yes(reading: YesNoReading) -> Outcome:
    """``yes`` somewhere, not denied, and ``no`` nowhere; ``no`` alone somewhere is not read, it may be "no dog"."""
    if _NO.search(reading.text):
        return None
    return only_answer({"yes" for match in _YES.finditer(reading.text) if not is_negated(reading.text, *match.span())})


YES_NO_RULES: Final[Ladder[YesNoReading]] = {
    "answer_tag": _answer_tag,
    "boxed": _boxed_answer,
    "word": _word,
    "statement": _statement,
    "both": _both,
    "leading": _leading,
    "closing": _closing,
    "set_off": _set_off,
    "refusal": _refusal,
    "only_yes": _only_yes,
}


def _meaning(match: re.Match[str]) -> str:
    return _MEANING[match[match.lastindex or 1]]
