"""Words after which an answer is announced: "the answer is …", "so …", "I choose …"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .extraction import Outcome
from .negation import negated
from .options import Options
from .phrases import WORD, read_phrase


def _any(*alternatives: str) -> str:
    return f"(?:{'|'.join(alternatives)})"


_BEST = _any("correct", "right", "best", "final", r"most \w+")
_OPTION = _any("option", "choice", "letter", "response", "one")
_NOUN = _any(
    rf"\b{_any('answers?', 'ans', f'{_BEST} {_OPTION}')}\b",
    rf"\b{_any('respuesta', 'réponse', 'antwort', 'risposta', 'resposta')}\b",
    "ответ",
    "答え",
    "答案",
    "正解",
    "正确(?:选项|答案)",
)
_TO_WHAT = r"(?: (?:to|for|of|here|in) [^.:\n]{1,60}?)?"
_IS = _any(
    rf"{_any('is', 'are', 'was', 'were', 'es', 'est', 'ist', 'è', 'é')}(?![A-Za-z])",
    rf"{_any('would', 'should', 'could', 'might', 'may', 'must', 'will', 'has to', 'seems to', 'appears to')} be(?![A-Za-z])",
    r"'s\b",
    "应该是",
    "应为",
    "应该选",
    "是",
    "为",
    "选",
    "は",
    "[:=→-]",
)
_SURELY = _any(
    "therefore", "thus", "hence", "clearly", "definitely", "most likely", "likely", "probably", "indeed", "simply", "actually"
)
_CHOOSE = _any("choose", "pick", "select", "say", "guess", "go with", "opt for")
_CHOOSING = _any(
    "chose", "choose", "choosing", "pick", "picking", "picked", "select", "selecting", "selected", "go with", "going with"
)

ANSWER = re.compile(
    rf"{_NOUN}{_TO_WHAT}\s*(?:{_IS}\s*)+(?:{_SURELY}\b[\s,:]*)*|\b(?:answer|ans)\s+(?=\(?[A-Z]\)?(?![{WORD}']))", re.IGNORECASE
)
"""The answer, and a verb or a colon."""

CONCLUSION = re.compile(
    r"\b"
    + _any(
        *("so", "therefore", "thus", "hence", "consequently", "accordingly", rf"i(?:'d| would)? {_CHOOSE}", _CHOOSING, "opt for"),
        *("my (?:guess|choice|pick) is", "it(?:'s| is| must be| looks like| seems to be)", "th(?:is|at) (?:is|must be)"),
        *("looks like", "probably", "most likely", "likely", "maybe", "perhaps"),
    )
    + rf"\b[\s,:]*(?:(?:it(?:'s| is)|i {_CHOOSE}|would be|must be)\b\s*)?"
    + r"|(?:[→⇒]|[=-]>)\s*|(?:所以|因此|应|故|我)?选(?:择|项)?\s*:?\s*(?:是)?\s*",
    re.IGNORECASE,
)
"""A word that draws a conclusion, or a verb that chooses."""

_PAUSES = " \n,:=→⇒>-"
_END_OF_SENTENCE = re.compile(r"[.!?](?:\s|$)")


def announced(pattern: re.Pattern[str], text: str, options: Options) -> Outcome:
    """Returns what the last readable phrase after ``pattern`` says; a phrase runs to the end of its line, or its sentence.

    An announcement that is denied ("I don't think it is B") announces nothing.
    """
    for match in reversed(list(pattern.finditer(text))):
        words_end = match.start() + len(match[0].rstrip(_PAUSES))
        if negated(text, words_end, match.end()):
            continue
        for phrase in _phrases(text[match.end() :]):
            outcome = read_phrase(phrase, options)
            if outcome:
                return outcome
    return None


def _phrases(rest: str) -> Iterator[str]:
    line = rest.lstrip().partition("\n")[0]
    yield line
    sentence = _END_OF_SENTENCE.split(line, maxsplit=1)[0]
    if sentence != line:
        yield sentence
