"""Did the model say yes or no?

A description is not read as an answer: whether "There is a dog" means yes depends on the question.
"""

from __future__ import annotations

import re
from typing import Final

from .extraction import Extraction, Ladder, Outcome, Stop, agreed, climb
from .negation import negated
from .refusal import is_refusal
from .text import boxed, final_words, plain, stripped, tagged

_SYNONYMS: Final = {
    "yes": ("yes", "yeah", "yep", "yup", "true", "correct", "是", "是的", "对", "有", "正确"),
    "no": ("no", "nope", "nah", "false", "incorrect", "否", "不是", "不", "没有", "不对", "错误"),
}
_MEANING: Final = {word: meaning for meaning, words in _SYNONYMS.items() for word in words}
_WORD = r"(?<![\w-])(yes|no|yeah|yep|yup|nope|nah|true|false)(?![\w-])"
_LEADING = re.compile(
    r"\W*(?:(yes|yeah|yep|yup|no|nope|nah|true|false|是的|不是|没有|不对|是|否|对|有)(?=\s*(?:[,.;:!\n]|\s-\s|$))"
    r"|(yes)\b(?!\s*(?:/|or\b))|(no)\s(?=(?:because|since|as|there|it|this|that|the|he|she|they|i|we|you)\b))",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    rf"(?:[,:;→]|[=-]>|\s-\s|\b(?:so|is|say|be|think|therefore|thus|hence|probably|definitely))\s*\"?{_WORD}\W*$", re.IGNORECASE
)
_STATEMENT = re.compile(
    rf"(?:\b(?:answer|ans)\b[^.:\n]{{0,60}}?(?:\bis\b|\bwould be\b|\bshould be\b|'s\b|[:=])+|答案(?:是|为|:)+)"
    rf"\s*(?:(?:definitely|clearly|probably|likely)\s+)?\W{{0,3}}(?:{_WORD}|(是的|不是|没有|是|否|有))",
    re.IGNORECASE,
)
_BOTH = re.compile(
    r"\b(?:yes\s*(?:/|or\b)\s*no|no\s*(?:/|or\b)\s*yes)\b|^\W*(?:yes\W+(?:and\W+)?no|no\W+(?:and\W+)?yes)\W*$|是否", re.IGNORECASE
)
_YES = re.compile(r"(?<![\w-])yes(?![\w-])", re.IGNORECASE)
_NO = re.compile(r"(?<![\w-])no(?![\w-])", re.IGNORECASE)


def extract_yes_no(text: str) -> Extraction:
    """Returns ``"yes"`` or ``"no"`` as read from ``text``; never raises.

    >>> extract_yes_no("There is no dog, so yes")
    Extraction(answer='yes', rule='closing')
    """
    said = final_words(text)
    if said is None:
        return Extraction(None, "unfinished_thinking")
    return climb(YES_NO_RULES, said) if plain(said) else Extraction(None, "empty")


def _answer_tag(said: str) -> Outcome:
    """``<answer>yes</answer>``: what stands in the last one is the answer, readable or not."""
    return _only(tagged(said))


def _boxed(said: str) -> Outcome:
    r"""``\boxed{yes}``: what stands in the last one is the answer, readable or not."""
    return _only(boxed(said))


def _only(content: str | None) -> Outcome:
    return None if content is None else extract_yes_no(content).answer or Stop.NONE


def _word(said: str) -> Outcome:
    """``YES!``, ``Nope``, ``true``, ``是的``: one word alone."""
    return _MEANING.get(stripped(plain(said)).casefold())


def _statement(said: str) -> Outcome:
    """``The answer is no``: the last one."""
    text = plain(said)
    found = [match for match in _STATEMENT.finditer(text) if not _BOTH.match(text, _start(match))]
    return _meaning(found[-1]) if found else None


def _both(said: str) -> Outcome:
    """``Yes/No``, ``yes or no``: both at once."""
    return Stop.AMBIGUOUS if _BOTH.search(plain(said)) else None


def _leading(said: str) -> Outcome:
    """``No, there is none.``, ``Yes there is``: the first word, set off as an answer."""
    match = _LEADING.match(plain(said))
    return _meaning(match) if match else None


def _closing(said: str) -> Outcome:
    """``…, so yes``: the last word, set off as an answer."""
    match = _CLOSING.search(plain(said))
    return _meaning(match) if match else None


def _refusal(said: str) -> Outcome:
    """``I cannot tell``: no answer."""
    return Stop.REFUSAL if is_refusal(plain(said)) else None


def _only_yes(said: str) -> Outcome:
    """``yes`` somewhere, not denied, and ``no`` nowhere; ``no`` alone somewhere is not read, it may be "no dog"."""
    text = plain(said)
    meant = {"yes" for match in _YES.finditer(text) if not negated(text, *match.span())}
    return None if _NO.search(text) else agreed(meant)


YES_NO_RULES: Final[Ladder[str]] = {
    "answer_tag": _answer_tag,
    "boxed": _boxed,
    "word": _word,
    "statement": _statement,
    "both": _both,
    "leading": _leading,
    "closing": _closing,
    "refusal": _refusal,
    "only_yes": _only_yes,
}


def _start(match: re.Match[str]) -> int:
    return next(match.start(number) for number, group in enumerate(match.groups(), start=1) if group)


def _meaning(match: re.Match[str]) -> str:
    return _MEANING[next(group for group in match.groups() if group).casefold()]
