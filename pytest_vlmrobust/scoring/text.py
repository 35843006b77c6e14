"""Makes the text of a model comparable: removes thinking and markup, unifies letters and spaces."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Final

from .extraction import Stop

# Thinking before the answer, as each family of models marks it.
#
# ``<think>…</think>`` of most; ``<|channel>thought…<channel|>``; ``◁think▷…◁/think▷`` of Kimi; ``[THINK]…[/THINK]`` of Magistral;
# and the channels of harmony, where only ``final`` is an answer, with or without their marks (a decoder may drop them).


_NAME = r"(?i:(?:\w{1,9}:)?(?:think|thinking|thought|reasoning))"
_OPEN = re.compile(
    rf"<{_NAME}>|<\|channel>thought|\u25c1think\u25b7|\[THINK\]"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?!\s?final\b)|\Aanalysis(?=[A-Z])"
)
_CLOSE = re.compile(
    rf"</{_NAME}>|<channel\|>|\u25c1/think\u25b7|\[/THINK\]"
    r"|(?:<\|start\|>assistant)?<\|channel\|>\s?final\b(?:\s?<\|constrain\|>\w{0,20})?|assistantfinal"
)
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?s>|<(?:eos|bos|pad|end_of_turn|end_of_utterance)>")
_SIGN = re.compile(r"<|\u25c1|\[/?THINK|\Aanalysis|assistantfinal")


def after_thinking(text: str) -> str | None:
    """Returns the text after thinking, without control tokens; None when the text ends while thinking.

    The opening mark may be missing, since some chat templates put it into the prompt. When nothing follows the thinking, the text
    before it is the answer.
    """
    if not _SIGN.search(text):
        return text
    opened = _OPEN.search(text)
    closes = list(_CLOSE.finditer(text))
    after = text[closes[-1].end() :] if closes else text
    if opened and (not closes or _OPEN.search(after)):
        return None
    remaining = _SPECIAL.sub(" ", after)
    if remaining.strip() or not closes:
        return remaining
    return _SPECIAL.sub(" ", text[: opened.start()]) if opened and opened.start() < closes[-1].start() else ""


_ANSWER_OPEN = re.compile(r"<(?:(?:final_?)?answer|conclusion)>|\[answer\]", re.IGNORECASE)
_ANSWER_CLOSE = re.compile(r"</(?:(?:final_?)?answer|conclusion)>|\[/answer\]", re.IGNORECASE)
_BOX_TOKENS = re.compile(r"<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|\Z)", re.DOTALL)
_MATHS = re.compile(r"\$([^$\s]{1,80})\$")
_MARKUP = re.compile(r"[*`]+|__+|(?m:^#{1,6}\s)|\\(?:text|mathrm|mathbf|textbf)\b")
_MARKS = re.compile(r"[*`_#\\$]")
"""What all markup has."""
_ONE_SPELLING = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u00b4\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u300c\u300d\u300e\u300f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        "\u0130": "I",  # the one letter whose lower case is two characters: offsets would shift
        **dict(zip("\u3002\u3001\uff0c\u3010\u3011", ".,,[]", strict=True)),
    }
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202c\u2060-\u2064\u2066-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that nobody sees: controls, blanks of no width, soft hyphens, marks of direction, halves of characters.

Not U+202D and U+202E, which show the letters after them in another order.
"""
_ENDS = " \t\r\n.,:;!?\"'()[]{}<>*_`#~•·"
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ARTICLE = re.compile(r"(?:a|an|the)\s+(?=\S)")

_MOST_MARKS = 30
"""Marks on one letter in the stream-safe text format of UAX #15."""
_MANY_MARKS = re.compile(rb"\x01{%d,}" % (_MOST_MARKS + 1))


LONGEST_TEXT: Final = 4_000_000
"""Characters of a text that is looked at at all."""
LONGEST_REPLY: Final = 100_000
"""Characters after thinking that are read: more than a model writes that is not stuck in a loop, and a bound on the time."""


def final_words(text: str) -> str | Stop:
    """Returns the text after thinking, with full-width letters made plain, without control tokens and invisible characters.

    A stop when the text ends while thinking (``after_thinking``), or is too long to be read.
    """
    if len(text) > LONGEST_TEXT:
        return Stop.TOO_LONG
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _with_few_marks(text))
    plain = _INVISIBLE.sub("", plain)
    if "<|begin_of_box|>" in plain:  # of GLM; alone it says no more than what stands in it
        plain = _BOX_TOKENS.sub(lambda box: box[0] if box[0] == plain.strip() else f"\\boxed{{{box[1]}}}", plain)
    reply = after_thinking(plain)
    if reply is None:
        return Stop.UNFINISHED
    reply = reply.strip()
    return reply if len(reply) <= LONGEST_REPLY else Stop.TOO_LONG


def _with_few_marks(text: str) -> str:
    """Returns text without the marks that no language puts on a letter: the time to sort them grows as their square."""
    is_mark = bytes(map(bool, map(unicodedata.combining, text)))
    kept, begin = [], 0
    for run in _MANY_MARKS.finditer(is_mark):
        kept.append(text[begin : run.start() + _MOST_MARKS])
        begin = run.end()
    return "".join([*kept, text[begin:]])


def answer_tag(text: str) -> str | None:
    """Returns the content of the last ``<answer>…</answer>``, or ``<conclusion>``, closed or not; None where there is none."""
    parts = _ANSWER_OPEN.split(text)
    return _ANSWER_CLOSE.split(parts[-1])[0] if len(parts) > 1 else None


def boxed_content(text: str) -> str | None:
    r"""Returns the content of the last ``\boxed{…}``, braces balanced; None where there is none."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    depth, begin = 0, text.index("{", start) + 1
    for position in range(begin, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            if not depth:
                return text[begin:position]
            depth -= 1
    return text[begin:]


def straighten(text: str) -> str:
    """Returns ``text`` with one spelling of each quotation mark, dash and full stop, without invisible characters."""
    return text if text.isascii() else _INVISIBLE.sub("", text.translate(_ONE_SPELLING))


def plain_text(text: str) -> str:
    """Returns ``text`` without emphasis marks, with straight quotes, and single blanks; line breaks stay."""
    text = straighten(text)
    if _MARKS.search(text):
        text = _MATHS.sub(r"\1", _MARKUP.sub("", text))
    if "\n" not in text:
        return " ".join(text.split())
    return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()


@lru_cache(maxsize=1024)  # several rules look at the same phrase
def fold_case(text: str) -> str:
    """Returns ``text`` as ``plain_text`` would show it, case folded, on one line."""
    return " ".join(plain_text(text).casefold().split())


def bare(text: str) -> str:
    """Returns ``text`` for comparison: case folded, without punctuation at its ends and without a leading article."""
    core = fold_case(text).strip(_ENDS)
    article = _ARTICLE.match(core)
    return core[article.end() :] if article else core


def strip_ends(text: str) -> str:
    """Returns ``text`` without blanks, quotes, brackets and punctuation at its ends."""
    return text.strip(_ENDS)
