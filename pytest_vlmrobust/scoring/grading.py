"""The steps from a text to a score that all scorers share."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction, Score
from pytest_vlmrobust.core.sample import Sample

from .json_answers import answer_in_json
from .latex import plain_numbers
from .text import (
    NUMBER_WORDS,
    Extraction,
    Ladder,
    Outcome,
    Stop,
    answer_tag,
    apply_rules,
    boxed_content,
    final_words,
    fold_case,
    is_refusal,
    plain_text,
    straighten,
)

# Finds the answer in a free text, and normalises answers for comparison.


_STOP = r"(?<!\bSt)(?<!\b[DM][rst])(?<!\bMrs)(?<!\bNo)(?<!\bvs)[.!](?=\s(?!(?<=\b[A-Z]\.\s)[A-Z]\w*\.?$))"
"""The end of a sentence: not "Dr. Smith", nor "J. Smith" at the end of a line."""
_STATEMENT = re.compile(
    r"\b(?:answer|ans|antwort|réponse|respuesta|resposta|risposta|ответ)\b(?: (?:to|for|of|here|auf|à|a|на) [^.:\n]{1,60}?)?\s*"
    r"(?:(?:is|are|would be|should be|ist|lautet|est|es|é|è|это)(?![^\W\d])\s*:?|[:=])\s*(?!\w{3,20}:\s)"
    rf"(?P<answer>[^\n]*?)\s*(?:{_STOP}|[.!]?$)"
    r"|答案\s*(?:是|为|:)+\s*(?P<chinese>(?:[^\n.]|\.(?=[A-Za-z0-9]))*)",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.])([+-]?)(\d{1,3}(?:,\d{3})+|\d+|(?=\.\d))(?:\.(\d+))?(?![\w])")
_JOINT = re.compile(r"(?<=[^\W\d])\.(?=[^\W\d])|'")
_PUNCTUATION = re.compile(r"(?<!\d)\.|\.(?!\d)|[,!?;:\"()\[\]{}<>`*_~]")
_HYPHEN = re.compile(r"(?<=[^\W\d])-(?=[^\W\d])")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_DIGITS: Final = dict(zip(NUMBER_WORDS, map(str, range(len(NUMBER_WORDS))), strict=True))


def extract_open(text: str) -> Extraction:
    """Returns the words of ``text`` that answer an open question; never raises.

    >>> extract_open("The sign is red. Answer: stop")
    Extraction(answer='stop', rule='statement')
    """
    reply = final_words(text)
    if isinstance(reply, Stop):
        return Extraction(None, reply.value)
    return apply_rules(OPEN_RULES, reply) if plain_text(reply) else Extraction(None, "empty")


_OBJECT = re.compile(r"\s*(?:```\w*\s*)?\{")


def _json(reply: str) -> Outcome:
    """``{"answer": "red"}`` at the start."""
    if not _OBJECT.match(reply):
        return None
    said = answer_in_json(reply)
    if isinstance(said, Stop):
        return said if said is Stop.TRUNCATED else None  # several values are words of the reply, like any others
    return plain_text(said) or None if said else None


def _answer_tag(reply: str) -> Outcome:
    """``<answer>red</answer>``, ``<final_answer>``, ``<conclusion>``, ``[answer]``: the content of the last."""
    return _only(answer_tag(reply))


def _boxed_answer(reply: str) -> Outcome:
    r"""``\boxed{42}``: the content of the last."""
    return _only(boxed_content(reply))


def _only(content: str | None) -> Outcome:
    if content is None:
        return None
    plain = plain_numbers(content)
    return (plain_text(content) if plain.expressions else plain_text(plain).strip("{} ")) or Stop.NONE


def _statement(reply: str) -> Outcome:
    """``The answer is red``, ``Answer: red``: the last one, to the end of its sentence or line."""
    text = plain_text(reply)
    statements = [match for match in _STATEMENT.finditer(text) if (match["answer"] or match["chinese"] or "").strip()]
    if not statements:
        return None
    if _TAKEN_BACK.match(text, statements[-1].end()):
        return Stop.AMBIGUOUS
    return str(statements[-1]["answer"] or statements[-1]["chinese"]).strip()


_TAKEN_BACK = re.compile(r"[\s.!]*(?:no,|wait\b|correction\b|scratch that\b|hold on\b)", re.IGNORECASE)


def _refusal(reply: str) -> Outcome:
    """``I cannot tell``: no answer."""
    return Stop.REFUSAL if is_refusal(plain_text(reply).lower()) else None


def _whole(reply: str) -> Outcome:
    """The whole reply."""
    return plain_text(reply)


OPEN_RULES: Final[Ladder[str]] = {
    "json": _json,
    "answer_tag": _answer_tag,
    "boxed": _boxed_answer,
    "statement": _statement,
    "refusal": _refusal,
    "whole": _whole,
}


def normalised(answer: str) -> str:
    """Returns the spelling in which answers are compared.

    Compatibility-normalised and case folded; without punctuation, articles and line breaks (``U.S.A.`` is ``usa``); hyphens
    between letters are blanks; numbers from zero to twelve in digits; ``1,000``, ``3.0`` and ``.50`` as ``1000``, ``3`` and
    ``0.5``. Signs, units, ``%`` and currency stay, since they are part of the answer. If nothing would be left, the answer is
    kept as it is.

    >>> normalised("The T-shirts, two of them."), normalised("$1,000.50"), normalised("?!")
    ('t shirts 2 of them', '$1000.5', '?!')
    """
    text = straighten(unicodedata.normalize("NFKC", answer)).casefold()
    text = _JOINT.sub("", _HYPHEN.sub(" ", _NUMBER.sub(_number, text)))
    words = _ARTICLES.sub(" ", _PUNCTUATION.sub(" ", text)).split()
    return " ".join(_DIGITS.get(word, word) for word in words) or answer.strip().casefold()


def _number(match: re.Match[str]) -> str:
    sign, whole, fraction = match[1], match[2].replace(",", "").lstrip("0"), (match[3] or "").rstrip("0")
    return ("-" if sign == "-" else "") + (whole or "0") + (f".{fraction}" if fraction else "")


TRUNCATED = Stop.TRUNCATED.value
WHOLE = "whole"


def targets(sample: Sample) -> tuple[str, ...]:
    """Returns every accepted answer of ``sample``."""
    if not sample.targets:
        raise UsageError(f"sample {sample.id!r} has no target; expected at least one accepted answer")
    return sample.targets


def plain_targets(sample: Sample) -> tuple[str, ...]:
    """Returns every accepted answer in the characters in which texts are read: ``m²`` as ``m2``, straight quotes, no markup."""
    return tuple(map(_plain, targets(sample)))


@lru_cache(maxsize=16384)
def _plain(target: str) -> str:
    return plain_text(unicodedata.normalize("NFKC", target)) or target


def read_answer(sample: Sample, prediction: Prediction, extract: Callable[[str], Extraction] = extract_open) -> Extraction:
    """Returns the result of ``extract``; a refusal counts as an answer if a target is a refusal too ("can't tell")."""
    extraction = extract(prediction.text)
    if extraction.rule == Stop.REFUSAL.value and any(is_refusal(fold_case(target)) for target in targets(sample)):
        return Extraction(plain_text(str(final_words(prediction.text))), WHOLE)
    return extraction


def grade(extraction: Extraction, prediction: Prediction, credit: Callable[[str], float]) -> Score:
    """Returns the score of an extraction: ``credit`` of the answer, in [0, 1], or unparsed without an answer."""
    if extraction.answer is None:
        return grade_unread(extraction.rule, prediction)
    return Score(float(credit(extraction.answer)), extraction.rule, extraction.answer)


def grade_best(extraction: Extraction, sample: Sample, prediction: Prediction, credit: Callable[[str, str], float]) -> Score:
    """Returns the score of an extraction against the best matching target; ``credit`` takes answer and target."""
    return grade(extraction, prediction, lambda answer: max(credit(answer, target) for target in targets(sample)))


def grade_text(extraction: Extraction, sample: Sample, prediction: Prediction, credit: Callable[[str, str], float]) -> Score:
    """Like ``grade_best``, for words: the targets are spelled as texts are read (``plain_targets``)."""
    return grade(extraction, prediction, lambda answer: max(credit(answer, target) for target in plain_targets(sample)))


def grade_unread(rule: str, prediction: Prediction) -> Score:
    """Returns the score of a text without an answer; the rule is ``truncated`` if the text was cut off."""
    cut = prediction.finish_reason == "length" and prediction.method != LETTER_LOGITS
    return Score.unparsed(TRUNCATED if cut else rule)
