r"""A short phrase that is the whole of an answer, or stands where an answer is announced: "B", "(B) dog", "a dog", "A or B"."""

from __future__ import annotations

import re

from .extraction import Outcome, Stop
from .negation import negated
from .options import Options
from .patterns import HEDGE, WORD
from .text import stripped

LONGEST_PHRASE = 240
"""Characters of a phrase that are read."""

LETTER = rf"(?<![{WORD}])(?<![{WORD}]-)([A-Z])(?![{WORD}'°%+]|-[A-Za-z])"
"""An upper-case letter that stands alone."""

_WORDS_OF_A_REASON = r"because|since|as|due|which|therefore|rather than|instead of|over"
_HEAD = re.compile(
    rf"[\s\"'(\[{{<]{{0,6}}(?:(?:the )?(?:option|choice|letter|选项)\s?)?[\s\"'(\[{{<]{{0,6}}"
    rf"(?P<letter>[A-Za-z])(?![{WORD}'°%+]|-[A-Za-z])(?P<tail>.*)",
    re.DOTALL | re.IGNORECASE,
)
_END_OF_LETTER = re.compile(
    rf"\s*$|[\"'>]*[.:)\]}}]|[\"'>]|,|;|!|\?|\s*\n|\s+[-(=]|\s+(?:{_WORDS_OF_A_REASON})\b|\s?[\u3040-\u9fff\uac00-\ud7a3]",
    re.IGNORECASE,
)
_END_OF_SMALL_LETTER = re.compile(r"\s*$|[\"'>]*[.:)\]}](?:\s|$)|\s*\n")
_LIST = re.compile(
    rf"\W*(?:(?:either|both|option|options)\s+)?\(?(?P<one>[A-Za-z])\)?\s*(?:"
    r"(?:,\s*or|,\s*and|[,;?/&+]|\(?\bor\b|\band\b|和|或者|或|及|与)"
    rf"(?:\s*,?\s*{HEDGE}\b,?)?|[.,;(]?\s*(?:but )?{HEDGE}\b,?)"
    rf"\s*(?:(?:option|choice)\s+)?\(?(?P<other>[A-Za-z])(?![{WORD}'])(?!(?<=[AI])\s+[a-z])",
    re.IGNORECASE,
)
_RUN = re.compile(r"\W*([A-Z])((?:\s*[.)]+\s*\(?[A-Z])+)\W*")


def bare_letter(phrase: str, options: Options) -> str | None:
    """Returns the letter that is all of ``phrase``, in either case, whatever quotes and brackets surround it."""
    letter = stripped(phrase)
    return letter.upper() if len(letter) == 1 and letter.upper() in options.letters else None


def several_letters(phrase: str, options: Options) -> bool:
    """Says whether ``phrase`` begins with more than one letter: "A or B", "A, maybe B", "A.B.C". One denied does not count."""
    if _is_run(phrase, options):
        return True
    match = _LIST.match(phrase)
    if not match or match["one"].isupper() != match["other"].isupper():
        return False
    letters = {match[name].upper() for name in ("one", "other") if not negated(phrase, *match.span(name))}
    return len(letters) == 2 and letters <= options.letters


def _is_run(phrase: str, options: Options) -> bool:
    """Says whether ``phrase`` is letters and full stops alone, and not a letter with the letter that is its text."""
    match = _RUN.fullmatch(phrase)
    if not match or options.exact(match[2]) == match[1]:
        return False
    letters = set(re.findall("[A-Z]", phrase))
    return len(letters) > 1 and letters <= options.letters


def leading_letter(phrase: str, options: Options, *, expected: bool = False) -> Outcome:
    """Returns the letter that ``phrase`` begins with, when it is set off as one or followed by its own text.

    "B. dog", "(B) dog", "B dog", "B because …", "B, since …", "option B"; in lower case only "b." and "b)". "A dog" may be an
    article or a letter and is a stop when ``dog`` is another option; "A dog is running" is no letter. Where a letter is
    ``expected``, "B here" is one too (not A and I, which are words).
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
    return _before_words(letter, tail, options, expected=expected) if match["letter"].isupper() else None


def _before_words(letter: str, tail: str, options: Options, *, expected: bool) -> Outcome:
    whole = options.exact(tail)
    if whole and whole != letter:
        return Stop.AMBIGUOUS
    own_text = whole or (letter != "A" and options.begins(tail, letter))
    return letter if own_text or (expected and letter not in "AI" and tail.startswith(" ")) else None


def read_phrase(phrase: str, options: Options, *, expected: bool = False) -> Outcome:
    """Returns what an announced answer says: a letter, an option's text, or the text of one option at its beginning."""
    line = phrase.strip().partition("\n")[0][:LONGEST_PHRASE]
    letter = bare_letter(phrase, options) or bare_letter(line, options)
    if letter:
        return letter
    if several_letters(line, options):
        return Stop.AMBIGUOUS
    return options.exact(line) or leading_letter(line, options, expected=expected) or _leading_text(line, options)


def _leading_text(line: str, options: Options) -> Outcome:
    meant = options.meant_in(line)
    if len(meant) == 1:
        (letter,) = meant
        return letter if options.begins(line, letter) else None
    return Stop.AMBIGUOUS if len(meant) > 1 and any(options.begins(line, letter) for letter in meant) else None
