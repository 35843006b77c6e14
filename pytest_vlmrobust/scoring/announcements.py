"""Words after which an answer is announced: "the answer is …", "so …", "I choose …"."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .extraction import Outcome, Stop
from .negation import negated
from .options import Options
from .patterns import HEDGE, WORD, any_of, word
from .phrases import LETTER, LONGEST_PHRASE, read_phrase

_BEST = ("correct", "right", "best", "final", "appropriate", "accurate", "likely", "suitable", "plausible")
_OPTION = any_of("option", "choice", "letter", "response", "one")
_NOUN = any_of(
    word("answers?", r"ans\.?", "assistant", *(f"{best} {_OPTION}" for best in _BEST)),
    word("respuesta", "réponse", "antwort", "risposta", "resposta", "ответ"),
    "答え",
    "答案",
    "正解",
    "정답",
    "답(?=[은:])",
    "选项(?=应?[该选]?[是为:])",
)
_NAMED_NOUN = word("option", "choice", "letter")
_TO_WHAT = r"(?: (?:to|for|of|here|in|that|which) [^.:\n]{1,60}?)?"
_IS = any_of(
    rf"(?<![{WORD}])(?:is|are|was|were|es|est|ist|è|é)(?![{WORD}])",
    rf"(?:would|should|could|might|may|must|will|has to|seems to|appears to) be(?![{WORD}])",
    rf"'s(?![{WORD}])",
    "应该是",
    "应为",
    "应该选",
    "[是为為选は은는:=→-]",
)
_SURELY = any_of(
    "therefore", "thus", "hence", "clearly", "definitely", "most likely", "likely", "probably", "indeed", "simply", "actually"
)
_A_LETTER = rf"(?<=\s)(?=\(?[a-z]\)?(?![{WORD}']))"
_CHOOSE = ("choose", "chose", "choosing", "pick", "picking", "picked", "select", "selecting", "selected")
_SAY = (
    "say",
    "guess",
    "go with",
    "going with",
    "opt for",
    "lean towards?",
    "leaning towards?",
    "my guess is",
    "my choice is",
    "my pick is",
)
_SO = (
    "so",
    "therefore",
    "thus",
    "hence",
    "consequently",
    "accordingly",
    "probably",
    "most likely",
    "likely",
    "maybe",
    "perhaps",
    "possibly",
)
_SURE = ("definitely", "clearly", "certainly", "surely", "obviously")
_IT_IS = ("it is", "it's", "it must be", "it looks like", "it seems to be", "this is", "that is", "looks like")

_SURELY_IS = rf"(?:{_IS}\s*)+(?:{_SURELY}(?![{WORD}])[\s,:]*)*"
ANSWER = re.compile(rf"{_NOUN}{_TO_WHAT}\s*(?:{_SURELY_IS}|{_A_LETTER})|{_NAMED_NOUN}{_TO_WHAT}\s*{_SURELY_IS}")
"""The answer, and a verb, a colon, or a letter at once; or the option (choice, letter), and a verb or a colon."""

CHOSEN = re.compile(rf"{word(*_CHOOSE, *_SAY)}[\s,:]*|[选選](?:择|擇|项|項)?\s?:?\s?是?\s?")
"""A verb that chooses."""

CONCLUSION = re.compile(
    rf"{word(*_SO, *_SURE, *_IT_IS)}[\s,:]*(?:(?:it's|it is|would be|must be) )?|(?:→|⇒|=>|->)\s*|所以|因此|而是"
)
"""A word that draws a conclusion."""

MOST_TRIED = 20
"""Announcements that are tried, from the last one back."""
_PAUSES = " \n,:=→⇒>-"
_HEDGE = re.compile(HEDGE)
_RIVAL = re.compile(rf"{LETTER}\)?[\s,.;?(]*(?:\b(?:or|and|but)\b[\s,]*)?(?:(?:more|most|quite|very) )?$")
_RIVAL_REACH = 30
_END_OF_SENTENCE = re.compile(r"[.!?](?:\s|$)")


def announced(pattern: re.Pattern[str], text: str, lowered: str, options: Options, *, expected: bool) -> Outcome:
    """Returns what the last readable phrase after ``pattern`` says; a phrase runs to the end of its line, or its sentence.

    An announcement that is denied ("I don't think it is B") announces nothing.

    Args:
        pattern: what announces; searched in ``lowered``.
        text: the text.
        lowered: the same in lower case, character by character.
        options: the options.
        expected: whether a letter after ``pattern`` is one although other words follow.
    """
    for match in reversed(list(pattern.finditer(lowered))[-MOST_TRIED:]):
        words_end = match.start() + len(match[0].rstrip(_PAUSES))
        if negated(lowered, words_end, match.end()):
            continue
        for phrase in _phrases(text, match.end()):
            outcome = read_phrase(phrase, options, expected=expected)
            if outcome:
                return Stop.AMBIGUOUS if _has_rival(text, lowered, match.start(), outcome, options) else outcome
    return None


def _has_rival(text: str, lowered: str, start: int, outcome: Outcome, options: Options) -> bool:
    """Says whether what ``start`` announces is but another possibility: the "maybe C" of "B or maybe C"."""
    if not _HEDGE.match(lowered, start):
        return False
    rival = _RIVAL.search(text, max(0, start - _RIVAL_REACH), start)
    return rival is not None and rival[1] in options.letters - {outcome} and not negated(text, *rival.span(1))


def _phrases(text: str, start: int) -> Iterator[str]:
    line = text[start : start + LONGEST_PHRASE].lstrip().partition("\n")[0]
    yield line
    sentence = _END_OF_SENTENCE.split(line, maxsplit=1)[0]
    if sentence != line:
        yield sentence
