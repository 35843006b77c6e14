"""Common parts of all readers: their result, normalised spelling, signs of a refusal, and the answer part of a text.

Thinking, control tokens, and text after the answer's turn are removed; the marks of model families are data,
``families.yaml``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, TypeVar

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.files.document import parse_document, read_bytes


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer read from a text, and the name of the rule that read it.

    ``answer`` is None for an unreadable text; ``rule`` then says why: ``empty``, ``unfinished_thinking`` (cut off before
    the answer began), ``truncated`` (cut off in the middle of an object in JSON), ``too_long`` (``LONGEST_REPLY``),
    ``refusal``, ``ambiguous`` (more than one answer) or ``none``.
    """

    answer: str | None
    rule: str


class Stop(Enum):
    """A rule found that the text has no single answer. Later rules are not tried."""

    AMBIGUOUS = "ambiguous"
    TRUNCATED = "truncated"
    TOO_LONG = "too_long"
    UNFINISHED = "unfinished_thinking"
    REFUSAL = "refusal"
    NONE = "none"


Outcome = str | Stop | None
"""An answer, a reason to stop, or None when the rule does not apply."""

T = TypeVar("T")
Ladder = Mapping[str, Callable[[T], Outcome]]
"""Rules by name, most certain first. The docstring of a rule says what it reads."""


def first_outcome(outcomes: Iterable[tuple[str, Outcome]]) -> Extraction:
    """Returns the first outcome of a rule that applies; no rule after it is asked."""
    for rule, outcome in outcomes:
        if isinstance(outcome, Stop):
            return Extraction(None, outcome.value)
        if outcome is not None:
            return Extraction(outcome, rule)
    return Extraction(None, Stop.NONE.value)


def apply_rules(ladder: Ladder[T], reading: T) -> Extraction:
    """Returns the result of the first rule that applies."""
    return first_outcome((name, rule(reading)) for name, rule in ladder.items())


def only_answer(answers: set[str]) -> Outcome:
    """Returns the only answer, None without one, and a stop for several."""
    if len(answers) > 1:
        return Stop.AMBIGUOUS
    return next(iter(answers), None)


WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff"
"""Characters that must not touch an option letter; Chinese characters may: 选B项."""


# Normalised letters, quotes and blanks.


_MATHS = re.compile(r"\$([^$\s]{1,80})\$")
_MARKUP = re.compile(r"[*`]+|__+|(?m:^#{1,6}\s)|\\(?:text|mathrm|mathbf|textbf)\b")
_MARKS = re.compile(r"[*`_#\\$]")
"""Characters of markup."""
_ONE_SPELLING = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u00b4\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u300c\u300d\u300e\u300f\u00ab\u00bb", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),
        "\u0130": "I",  # the only letter whose lower case has two characters, which would shift offsets
        **dict(zip("\u3002\u3001\uff0c\u060c\u061b\u061f\u0964\u3010\u3011", ".,,,;?.[]", strict=True)),
    }
)
INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202c\u2060-\u2064\u2066-\u206f\ufeff\ud800-\udfff]"
)
"""Invisible characters: controls, zero-width blanks, soft hyphens, direction marks, unpaired surrogates.

Not U+202D and U+202E, which reorder the letters after them.
"""
_ENDS = " \t\r\n.,:;!?\"'()[]{}<>*_`#~•·"
NUMBER_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ARTICLE = re.compile(r"(?:a|an|the)\s+(?=[^\W_])")


def straighten(text: str) -> str:
    """Returns ``text`` with normalised quotation marks, dashes and full stops, without invisible characters."""
    return text if text.isascii() else INVISIBLE.sub("", text.translate(_ONE_SPELLING))


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
    """Returns ``text`` as plain text, case folded, on one line."""
    return " ".join(plain_text(text).casefold().split())


def bare(text: str) -> str:
    """Returns ``text`` for comparison: case folded, without punctuation at its ends and without a leading article."""
    core = fold_case(text).strip(_ENDS)
    article = _ARTICLE.match(core)
    return core[article.end() :] if article else core


def strip_ends(text: str) -> str:
    """Returns ``text`` without blanks, quotes, brackets and punctuation at its ends."""
    return text.strip(_ENDS)


# Does a text decline to answer?


_I_CANNOT = r"\bi (?:can't|cannot|can not|couldn't|could not|am unable to|am not able to|won't|will not)"
_DO_IT = (
    r"(?:answer|assist|help|determine|tell|identify(?! (?:an?|any) )|provide|process|view|access|comply"
    r"|see (?:(?:the|any|an|this|your) )?(?:image|picture|photo)s?)"
)
_REFUSAL = re.compile(
    rf"{_I_CANNOT} (?:\w+ )?{_DO_IT}\b|\bi'm (?:unable|not able) to\b"
    r"|\bunable to (?:answer|determine|see|view|identify|process)\b"
    r"|\bsorry\b.{0,40}\b(?:can't|cannot|can not|unable|without|not able)\b|\bas an ai\b"
    r"|\b(?:cannot|can't|could not|couldn't|impossible to) (?:be )?(?:determined?|answer(?:ed)?|tell|say)\b"
    r"|\b(?:image|picture|photo) (?:was|is|has)(?:n't| not) (?:been )?(?:provided|attached|given|included|visible to me)\b"
    r"|\bwithout (?:the|an|any) (?:image|picture)\b|\bno (?:image|picture) (?:(?:is|was|has been) )?(?:provided|attached|given)\b"
    r"|\bi (?:don't|do not) (?:know|have (?:enough|access))\b|\bnot enough information\b"
    r"|抱歉|无法(?:确定|回答|判断|看到|识别)|不能(?:确定|回答)|看不到",
    re.DOTALL,
)
_SIGNS: Final = (
    *("can", "could", "unable", " able", "won't", "will not", "without", "as an ai", "no image", "no picture", "do not"),
    *("not enough", "impossible", "n't", " not ", "sorry", "抱歉", "无法", "不能", "看不到"),
)
"""Every refusal contains one of these; most texts contain none."""


def is_refusal(lowered: str) -> bool:
    """Whether a lower-case text has words of refusing or not knowing."""
    return any(sign in lowered for sign in _SIGNS) and _REFUSAL.search(lowered) is not None


# The answer part of a text: without thinking, control tokens, and text after the answer's turn.


FAMILIES: Final = Path(__file__).with_name("families.yaml")
LONGEST_TEXT: Final = 4_000_000
"""Characters of a text that is looked at at all."""
LONGEST_REPLY: Final = 100_000
"""Characters after thinking that are read: more than a model writes that is not stuck in a loop, and a bound on the time."""

_BEGINNING, _ENDING = 2_000, 10_000
"""Characters of a very long reply that are searched for an answer."""
_SIGN = re.compile(r"[<\[\u25c1]|^Here('s| is| are) my |assistantfinal|\Aanalysis(?=[A-Z])|/think\n", re.MULTILINE)
"""Every mark contains one of these; most texts contain none."""
_BARE_ANALYSIS = re.compile(r"analysis(?=[A-Z])")
"""The start of thinking in the harmony format without control tokens."""
_TOKEN = re.compile(r"<\|[^|<>\s]{1,40}\|>|</?s>|<(?:bos|pad)>|</?co\b[^<>]{0,80}>")
_BOX_TOKENS = re.compile(r"<\|begin_of_box\|>(.*?)(?:<\|end_of_box\|>|\Z)", re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]+[,.:]?\s+[^\W\d_]")
_PAIR = re.compile(r"\s*([<\[])([A-Za-z][\w:-]{0,40})([>\]])")
_THINKING = re.compile(r"think|thought|reason|scratch|reflect|rationale", re.IGNORECASE)
"""Parts of names of thinking marks, including marks of unknown families."""
_TAG = r"(?:final[_ ]?)?answer|conclusion|response|result|final|solution|output|final_response"
_ANSWER_OPEN = re.compile(rf"<(?:{_TAG})>|\[answer\]|[\[【](?:答案|答|正解|정답)[\]】]", re.IGNORECASE)
_ANSWER_CLOSE = re.compile(rf"</(?:{_TAG})>|\[/answer\]", re.IGNORECASE)
_NOT_THINKING = re.compile(
    rf"(?:{_TAG}|option|choice|letter|ref|box|bbox|object|point|json|image|img|video|grounding|b|i|u|em|strong|p|span|div|li|ul|ol|code|pre|h\d|table|html|body)",
    re.IGNORECASE,
)
"""Names of pairs around an answer or part of it, and of HTML."""
_NEXT_QUESTION = re.compile(
    r"\n\W*(?:(?:(?:[Nn]ext|[Nn]ew|[Ff]ollow-up|[Aa]nother) )?[Qq]uestion|QUESTION|Q|[Uu]ser|USER|[Hh]uman|HUMAN|[Ii]nstruction"
    r"|[Ee]xercise|[Ee]xample)\W{0,2}(?: ?\d{1,4})?\W{0,2}:"
    r"|\n\s*###\s*(?:\n|\Z|(?:Human|User|Instruction|Question|Input|System)\b)"
    r"|\s(?:USER|HUMAN): |\n\s*\[INST\]"
)


@cache
def _families() -> tuple[re.Pattern[str], dict[str, str]]:
    """Returns a pattern of all marks of ``families.yaml``, and the effect of each in lower case."""
    content = read_bytes(FAMILIES, what="marks of families", error=UsageError)
    top = parse_document(content, FAMILIES.name, error=UsageError, expected="'families:'")
    entries = top.mapping(("families", "end_of_turn"), required=("families", "end_of_turn"))
    does = {"<|im_start|>assistant": "blank", "<|start|>assistant": "blank", "<|begin|>assistant": "blank"}
    does |= {token.lower(): "end" for token in entries["end_of_turn"].texts()}
    for family in entries["families"].items():
        names = ("open", "close", "answer_open", "answer_close")
        marks = family.mapping((*names, "family", "source"), required=("family", "source"))
        does |= {marks[name].text().strip(" ").lower(): name for name in names if name in marks}
    spelled = "|".join(re.escape(mark) for mark in sorted(does, key=len, reverse=True))
    return re.compile(rf"{spelled}|</?think:\w{{1,20}}>"), does


def final_words(text: str) -> str | Stop:
    """Returns the answer part of a text with plain full-width letters, without control tokens and invisible characters.

    A stop when the text ends while thinking (``after_thinking``), or is too long to be read.
    """
    if len(text) > LONGEST_TEXT:
        return Stop.TOO_LONG
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _with_few_marks(text))
    plain = INVISIBLE.sub("", plain)
    if "<|begin_of_box|>" in plain:  # of GLM; without other text only its content counts
        plain = _BOX_TOKENS.sub(lambda box: box[1] if box[0] == plain.strip() else f"\\boxed{{{box[1]}}}", plain)
    reply = after_thinking(plain)
    if reply is None:
        return Stop.UNFINISHED
    reply = reply.strip()
    if len(reply) > LONGEST_REPLY:
        return Stop.TOO_LONG
    question = _NEXT_QUESTION.search(reply)
    return reply[: question.start()].rstrip() if question and reply[: question.start()].strip() else reply


def shortened(reply: str) -> str:
    """Returns the beginning and end of a very long reply in whole lines or words; the answer is at one of them."""
    if len(reply) <= _BEGINNING + _ENDING:
        return reply
    tail = reply[-_ENDING:]
    return f"{reply[:_BEGINNING].rpartition(' ')[0]}\n\n{tail.partition(chr(10))[2] or tail.partition(' ')[2]}"


def after_thinking(text: str) -> str | None:
    """Returns the text after thinking, without control tokens; None when the text ends while thinking.

    The opening mark may be missing, since some chat templates put it into the prompt. When nothing follows the thinking, the text
    before it is the answer. What follows the end of the answer's turn does not count.
    """
    if not _SIGN.search(text):
        return text
    pattern, does = _families()
    lowered = text.lower()
    lowered = lowered if len(lowered) == len(text) else text
    parts: list[tuple[str, str]] = []  # the kind of each part ("said", "thinking", "answer") and its text
    kind, begin = ("thinking", len("analysis")) if _BARE_ANALYSIS.match(text) else ("said", 0)
    for mark in pattern.finditer(lowered):
        action = does.get(mark[0], "close" if mark[0].startswith("</") else "open")
        if action == "blank":
            continue
        parts.append((kind, text[begin : mark.start()]))
        begin = mark.end()
        if action == "end" and kind != "thinking" and _said(parts):
            kind, begin = "said", len(text)
            break
        if action == "close":
            parts = [(each, words) for each, words in parts if each != "said" or kind == "thinking"]
        kind = {"open": "thinking", "answer_open": "answer", "end": kind}.get(action, "said")
    parts.append((kind, text[begin:]))
    if kind == "thinking":
        return None
    return _without_pairs(_said(parts))


def _said(parts: list[tuple[str, str]]) -> str:
    """Returns the text after thinking, or before it if nothing follows; of marked answers, the last."""
    blank = [(kind, _TOKEN.sub(" ", words)) for kind, words in parts]
    answers = [words for kind, words in blank if kind == "answer" and words.strip()]
    if answers:
        return answers[-1]
    last = max((place for place, (kind, _) in enumerate(blank) if kind == "thinking"), default=-1)
    after = " ".join(words for kind, words in blank[last + 1 :] if kind == "said")
    return after if after.strip() else " ".join(words for kind, words in blank if kind == "said")


def _without_pairs(text: str) -> str | None:
    """Returns ``text`` without pairs ``<x>…</x>``, ``[x]…[/x]`` of several words, of any name, before something else.

    None if it begins with an unclosed unknown mark and has neither an answer tag nor a box.
    """
    while (opened := _PAIR.match(text)) and not _NOT_THINKING.fullmatch(name := opened[2]):
        closed = text.find(f"{opened[1]}/{name}{opened[3]}", opened.end())
        rest = text[closed + len(name) + 3 :]
        thinks = opened[1] == "<" and (
            _THINKING.search(name) or (name.isalpha() and len(name) > 2 and not re.search(r"\\boxed|<\w*answer", text))
        )
        if closed < 0 and thinks and _WORDS.search(text, opened.end()):
            return None
        if closed < 0 or not rest.strip() or not _WORDS.search(text, opened.end(), closed):
            break
        text = rest
    return text


_MOST_MARKS = 30
"""Most combining marks on a letter in the stream-safe text format of UAX #15."""
_MANY_MARKS = re.compile(rb"\x01{%d,}" % (_MOST_MARKS + 1))


def _with_few_marks(text: str) -> str:
    """Returns text without the marks that no language puts on a letter: the time to sort them grows as their square."""
    is_mark = bytes(map(bool, map(unicodedata.combining, text)))
    kept, begin = [], 0
    for run in _MANY_MARKS.finditer(is_mark):
        kept.append(text[begin : run.start() + _MOST_MARKS])
        begin = run.end()
    return "".join([*kept, text[begin:]])


def answer_tag(text: str) -> str | None:
    """Returns the content of the last ``<answer>…</answer>`` or ``<response>``, closed or not; None without one."""
    if "<" not in text and "[" not in text and "【" not in text:
        return None
    parts = _ANSWER_OPEN.split(text)
    return _ANSWER_CLOSE.split(parts[-1])[0] if len(parts) > 1 else None


def boxed_content(text: str) -> str | None:
    r"""Returns the content of the last ``\boxed{…}`` with balanced braces; None without one."""
    span = last_box(text)
    return None if span is None else text[span[0] : span[1]]


def last_box(text: str) -> tuple[int, int] | None:
    r"""Returns the start and end of the content of the last ``\boxed{…}``; None without one."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    depth, begin = 0, text.index("{", start) + 1
    for brace in re.compile(r"[{}]").finditer(text, begin):
        if brace[0] == "{":
            depth += 1
        elif not depth:
            return begin, brace.start()
        else:
            depth -= 1
    return begin, len(text)
