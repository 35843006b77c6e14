r"""A short phrase that is the whole of an answer, or stands where an answer is announced: "B", "(B) dog", "a dog", "A or B"."""

from __future__ import annotations

import re

from .extraction import Outcome, Stop
from .negation import negated
from .options import Options
from .text import stripped

WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff"
"""Characters that a letter of an option must not touch; Chinese ones may: 选B项."""

LETTER = rf"(?<![{WORD}])(?<![{WORD}]-)([A-Z])(?![{WORD}'°%+]|-[A-Za-z])"
"""An upper-case letter that stands alone."""

_WORDS_OF_A_REASON = r"because|since|as|due|which|therefore"
_HEAD = re.compile(
    rf"[\s\"'(\[{{<]*(?:(?:the\s+)?(?:option|choice|letter|选项)\s*)?[\s\"'(\[{{<]*"
    rf"(?P<letter>[A-Za-z])(?![{WORD}'°%+]|-[A-Za-z])(?P<tail>.*)",
    re.DOTALL | re.IGNORECASE,
)
_END_OF_LETTER = re.compile(
    rf"\s*$|[\"'>]*[.:)\]}}]|[\"'>]|,|;|!|\?|\s*\n|\s+[-(=]|\s+(?:{_WORDS_OF_A_REASON})\b|\s?[\u3040-\u9fff]", re.IGNORECASE
)
_END_OF_SMALL_LETTER = re.compile(r"\s*$|[\"'>]*[.:)\]}](?:\s|$)|\s*\n")
_LIST = re.compile(
    rf"\W*(?:(?:either|both|option|options)\s+)?\(?(?P<one>[A-Za-z])\)?\s*(?:,\s*or|,\s*and|,|/|&|\+|\bor\b|\band\b|和|或者|或|及|与)"
    rf"\s*(?:(?:option|choice)\s+)?\(?(?P<other>[A-Za-z])(?![{WORD}'])(?!(?<=[AI])\s+[a-z])",
    re.IGNORECASE,
)


def bare_letter(phrase: str, options: Options) -> str | None:
    """Returns the letter that is all of ``phrase``, in either case, whatever quotes and brackets surround it."""
    letter = stripped(phrase).upper()
    return letter if letter in options.letters else None


def several_letters(phrase: str, options: Options) -> bool:
    """Says whether ``phrase`` begins with more than one letter: "A or B", "A, B and C". A letter denied does not count."""
    match = _LIST.match(phrase)
    if not match or match["one"].isupper() != match["other"].isupper():
        return False
    letters = {match[name].upper() for name in ("one", "other") if not negated(phrase, *match.span(name))}
    return len(letters) == 2 and letters <= options.letters


def leading_letter(phrase: str, options: Options) -> Outcome:
    """Returns the letter that ``phrase`` begins with, when it is set off as one or followed by its own text.

    "B. dog", "(B) dog", "B dog", "B because …", "B, since …", "option B"; in lower case only "b." and "b)". "A dog" may be an
    article or a letter and is a stop when ``dog`` is another option; "A dog is running" is no letter.
    """
    match = _HEAD.match(phrase)
    if not match or match["letter"].upper() not in options.letters or several_letters(phrase, options):
        return None
    letter, tail = match["letter"].upper(), match["tail"]
    if negated(phrase, *match.span("letter")):
        return None
    ends = _END_OF_LETTER if match["letter"].isupper() else _END_OF_SMALL_LETTER
    if ends.match(tail):
        return letter
    if match["letter"].islower():
        return None
    if options.begins(tail, letter):
        return letter
    return Stop.AMBIGUOUS if options.exact(tail) else None


def read_phrase(phrase: str, options: Options) -> Outcome:
    """Returns what an announced answer says: a letter, an option's text, or the text of one option at its beginning."""
    line = phrase.strip().partition("\n")[0]
    for text in (phrase, line):
        letter = bare_letter(text, options)
        if letter:
            return letter
    if several_letters(line, options):
        return Stop.AMBIGUOUS
    exact = options.exact(line)
    return exact or leading_letter(line, options) or _leading_text(line, options)


def _leading_text(line: str, options: Options) -> Outcome:
    meant = options.meant_in(line)
    if len(meant) == 1:
        (letter,) = meant
        return letter if options.begins(line, letter) else None
    return Stop.AMBIGUOUS if len(meant) > 1 and any(options.begins(line, letter) for letter in meant) else None
