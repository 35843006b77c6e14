"""What a model takes back is no answer: of "A? No, B" and "not A but B", only "B" is left to be read."""

from __future__ import annotations

import re
from collections import deque

from .negation import negated
from .options import Options
from .patterns import CHANGE, WORD, any_of, word
from .phrases import LETTER
from .text import bare

_REACH = 120
"""Characters before a change of mind in which the letter that it takes back is looked for."""
_MOST_CHANGES = 20
_ASKED = "吗嗎呢? "

_NO = word(r"no(?=\s*[,.!;:-]|\s+(?:wait|actually|sorry|it)\b|\s+\(?[a-z]\)?\s*(?:[.!]\s*)?$)", "nope")
_IT_IS = any_of(
    "it's",
    "it is",
    "it must be",
    "it should be",
    "make (?:it|that)",
    "(?:the|my) (?:(?:correct|right|final) )?answer is",
    r"(?:i(?:'d|'ll| would| will)? )?(?:now )?(?:(?:say|go with|choose|pick|(?:change|switch) (?:(?:my answer|it|that) )?to)\b)",
)
_CHINESE = r"(?:不(?:是|对|對)?|等等|等一下|更正)\s?[,.!;:]\s?(?:答案)?(?:应该|應該)?[是为為选選]"
_TURN = re.compile(
    rf"(?:(?:(?:{CHANGE}|{_NO})[\s,.!;:()-]{{0,6}}){{1,5}}(?:{_IT_IS}\s)?(?:(?:option|choice)\s)?|{_CHINESE}\s?)\(?"
    rf"(?P<letter>[a-z])(?<![{WORD}][a-z])(?![{WORD}'])"
)
_LETTER = re.compile(LETTER)
_NOT_BUT = re.compile(rf"\b[Nn]ot (?:option )?\(?{LETTER}\)?,? but (?:rather )?(?:option )?\(?(?={LETTER})")
_SETTLED = re.compile(
    r"\)?\s*(?:$|[.,;!:\n)]|\?\s*yes\b|(?:is|seems) (?:the )?(?:correct|right|answer|best|better)\b)", re.IGNORECASE
)


def without_corrected(text: str, options: Options) -> str:
    """Returns ``text`` without a letter that is taken back for another, and without the words that do so.

    "The answer is A? No, B." becomes "The answer is B."; so do "A - wait, B", "A. cat. Actually, B. dog", "A. Let me
    check. It's B" and "not A but B". The
    letter taken back may have its own text behind it; the other must be settled on: "A. No, B is wrong" stays.
    """
    last_turns = deque(_TURN.finditer(text.lower()), maxlen=_MOST_CHANGES)
    turns = [(_taken_back(text, match.start(), options), match.start("letter")) for match in last_turns]
    contrasts = [(match.start(), match.end()) for match in _NOT_BUT.finditer(text) if match[1] in options.letters]
    kept_from = len(text)
    for start, end in sorted(turns + contrasts)[-_MOST_CHANGES:][::-1]:
        if start >= 0 and end <= kept_from and _settled(text, end, options):
            text, kept_from = text[:start] + text[end:], start
    return text


def _taken_back(text: str, turn: int, options: Options) -> int:
    """Returns where the letter stands that the change of mind at ``turn`` takes back; -1 for none."""
    for match in _LETTER.finditer(text, max(0, turn - _REACH), turn):
        letter, between = match[1], bare(text[match.end() : turn].rstrip(" -")).rstrip(_ASKED)
        if letter in options.letters and not (between and letter not in options.whole.get(between, ())):
            own_text = not between and options.begins(text[match.end() :], letter)
            return -1 if own_text else match.start()
    return -1


def _settled(text: str, position: int, options: Options) -> bool:
    """Says whether the letter at ``position`` is an option, not denied, and all that is said, or said with its own text."""
    letter, rest = text[position], text[position : position + _REACH]
    if letter not in options.letters or negated(rest, 0, 1):
        return False
    return _SETTLED.match(rest, 1) is not None or options.begins(rest[1:], letter)
