"""Results of extraction rules, and the text patterns that several rules share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


@dataclass(frozen=True, slots=True)
class Extraction:
    """The answer read from a text, and the name of the rule that read it.

    ``answer`` is None when the text was not read; ``rule`` then says why: ``empty``, ``unfinished_thinking`` (cut off before
    the answer began), ``truncated`` (cut off in the middle of an object in JSON), ``too_long`` (``text.LONGEST_REPLY``),
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
"""Rules by name, the most certain first. The docstring of a rule says what it reads."""


def apply_rules(ladder: Ladder[T], reading: T) -> Extraction:
    """Returns the result of the first rule that applies."""
    for name, rule in ladder.items():
        outcome = rule(reading)
        if isinstance(outcome, Stop):
            return Extraction(None, outcome.value)
        if outcome is not None:
            return Extraction(outcome, name)
    return Extraction(None, Stop.NONE.value)


def only_answer(answers: set[str]) -> Outcome:
    """Returns the answer if there is exactly one, None for none, and a stop for several."""
    if len(answers) > 1:
        return Stop.AMBIGUOUS
    return next(iter(answers), None)


# Parts of regular expressions that several rules share.
#
# Patterns are searched in lower-cased text, and each of their branches begins with a plain character: the engine then jumps
# from one possible beginning to the next, about ten times as fast as with a word boundary in front and ``re.IGNORECASE``.


WORD = r"A-Za-z0-9_\u00c0-\u024f\u0370-\u04ff"
"""Characters that a letter of an option must not touch; Chinese ones may: 选B项."""


HEDGE = (
    r"(?:(?:more|most|quite|very) )?(?:maybe|perhaps|possibly|probably|potentially|likely|alternatively|even|(?:could|might) be)"
)
"""Words that add a second answer to the first: "B, or maybe C"."""


def any_of(*alternatives: str) -> str:
    """Returns a pattern for one of ``alternatives``."""
    return f"(?:{'|'.join(alternatives)})"


def word(*alternatives: str) -> str:
    """Returns a pattern for one of ``alternatives``, each beginning with a plain character, as whole words."""
    begun = (f"{text[0]}(?<![{WORD}]{text[0]}){text[1:]}" for text in alternatives)
    return rf"{any_of(*begun)}(?![{WORD}])"


_ALONE = "".join(character if character.isalpha() or character == "'" else " " for character in map(chr, range(128)))
_WORDS = re.compile(r"[^\W\d_]+(?:'[a-z]+)?")


def words_of(text: str) -> list[str]:
    """Returns the words of a text: letters, with apostrophes in them; of plain ASCII at a fifth of the time of a pattern.

    >>> words_of("that's 2 'hot' dogs")
    ["that's", 'hot', 'dogs']
    """
    if not text.isascii():
        return _WORDS.findall(text)
    parted = text.translate(_ALONE).split()
    return [word.strip("'") for word in parted] if " '" in text or "' " in text else parted


_ANEW = r"(?: (?:it|that|this|again|once more|more closely|closer|more carefully|my answer|(?:at )?(?:it|the \w+)))*"
CHANGE = word(
    "wait",
    "actually",
    "sorry",
    "correction",
    "scratch that",
    "hold on",
    "hmm",
    "oops",
    "not quite",
    "i mean",
    "i meant",
    "or rather",
    rf"let me (?:double[ -]?check|re-?\w+|check|verify|look|think){_ANEW}",
    "i(?:'ve)? made (?:a mistake|an error)",
    "that was (?:a mistake|an error|wrong)",
    "on second thoughts?",
    "on reflection",
    "on (?:a )?closer (?:look|inspection)",
    "upon (?:a )?closer (?:look|inspection)",
    "thinking again",
    "checking again",
    "looking (?:again|closer|more closely)",
)
"""Lower-case words that begin a change of mind; where answers are letters, "no" does too."""

QUESTION = r"(?:is|are|was|were|do|does|did|has|have|can|could|will|would|should|might)\s[^.!?\n]{1,200}\?"
"""A yes-or-no question, in lower case."""


# Is a mention denied? "not a cat", "C and D are wrong", "不是B".


_REACH = 80
"""Characters before and after a mention that are looked at."""

_CLAUSE_END = re.compile(
    r"[.,;:!?\n()]|\b(?:(?<!\banything )(?<!\ball )but|so|therefore|thus|hence|because|while|whereas|however"
    r"|although|though|then|yet|and(?= (?:option )?\(?[a-z]\)? (?:is|was|fits|matches)\b))\b"
    r"|但|所以|而是|因此",
    re.IGNORECASE,
)
_NEGATOR = re.compile(
    r"\b(?:not(?! only)|no(?! doubt| question)|never|neither|nor|none|cannot|without(?! (?:a |any )?(?:doubt|question))|unlike"
    r"|than|except|instead of|far from|nothing like|anything but|all but)\b"
    r"|\b(?:wrong|incorrect|(?:rule[sd]?|ruling) out|(?<!\bof )(?<!\bby )eliminat\w+|exclud\w+|reject\w*|dismiss\w*)\b"
    r"|n't\b|不|没|非"
    r"|\b(?:(?<!\bat )least|hardly an?|lack(?:s|ing)?|missing|fail(?:s|ed)? to)\b"
    r"|(?<!\bno )(?<!\ba )(?<!\bany )\bdoubt(?:s|ed|ful)?\b"
    r"|\b(?:im(?:possible|probable)|unlikely|un(?:sure|clear|certain)|whether)\b"
    r"|\bif (?:option )?\(?[a-hj-z]\)? (?:were|was|is|had)\b|(?<!\bas )\bif (?:it|this|that|they|there)\b"
    r"|\bif (?:option )?\(?$|\bwas (?:going|about|tempted) to\b"
    r"|\bwould have(?! to\b)",
    re.IGNORECASE,
)
"""Words that deny, doubt, or state a condition."""
_VERB = r"(?:is|are|was|were|does|do|did|can|could|would|has|have|seems?|looks?|appears?|must be)"
_DENIAL = (
    r"(?:not|never|less|least|wrong|incorrect|false|untrue|impossible|irrelevant|unlikely|absent|missing|(?:ruled )?out"
    r"|eliminated|excluded|rejected|implausible|mistaken|trap|decoy|distractor|out of the question)"
)
_DENIED = re.compile(
    r"(?:\s*(?:,|and|or|&)\s*(?:options?\s+)?\(?[A-Z]\)?(?![A-Z])){0,9}\s*(?:\([^()\n]{0,60}\)\s*)?"
    rf"(?:\?\s*no(?! doubt| question)\b|{_VERB}(?:n't\b|\s+(?:(?:\w+ly|the|by far)\s+){{0,2}}(?:\w+\s+)?{_DENIAL}\b)"
    r"|\s*[:(-]\s*(?:incorrect|wrong|false|absent|not (?:visible|present|shown|seen|there|correct|in\b))"
    r"|,?\s*(?:which|that|who)\s(?:is|are|was|were|does|do)(?:n't|\snot)\b"
    r"|\s+not(?=\s*(?:$|[.,;!\n]))|(?:选项)?是?(?:不|错)|[吗嗎]|(?:가|이|은|는)?\s?아[니닙닌]|では?(?:な|あり))",
    re.IGNORECASE,
)


def is_negated(text: str, start: int, end: int) -> bool:
    """Says whether the mention ``text[start:end]`` is denied: by a negator before it in its clause, or by a verb after it."""
    clause = _CLAUSE_END.split(text[max(0, start - _REACH) : start])[-1]
    return _NEGATOR.search(clause) is not None or _DENIED.match(text, end, end + _REACH) is not None


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
_SIGN = re.compile(
    word("can't", "cannot", "can not", "couldn't", "could not", "unable", "not able", "won't", "will not", "without", "as an ai")
    + "|"
    + word("no image", "no picture", "don't", "do not", "not enough", "impossible")
    + "|"
    + word("wasn't", "isn't", "hasn't", "was not", "is not", "has not")
    + "|抱歉|无法|不能|看不到"
)


def is_refusal(lowered: str) -> bool:
    """Says whether a lower-cased text has the words of a refusal, or of not knowing."""
    return _SIGN.search(lowered) is not None and _REFUSAL.search(lowered) is not None
