"""Did the model say yes or no?

A denial is an answer ("There is no dog in the image"), unless the question denies something itself. What a text says is there
is one only where it is all that was asked for: whether "There is a dog" means yes depends on the question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .assertions import asserted
from .extraction import (
    CHANGE,
    QUESTION,
    Extraction,
    Ladder,
    Outcome,
    Stop,
    apply_rules,
    is_negated,
    is_refusal,
    only_answer,
    word,
)
from .json_answers import read_json
from .phrases import in_english, meanings
from .presence import affirms, denies, is_about
from .text import answer_tag, boxed_content, final_words, plain_text, straighten, strip_ends

DEEPEST_TAG = 4
"""Tags inside each other that are read."""
_MEANING: Final = {phrase: meaning for meaning in ("yes", "no") for phrase in meanings(meaning)}
_SHORT: Final = {"y": "yes", "n": "no", "right": "yes", "definitely": "yes"}
"""Whole answers that are too common to be looked for in longer ones."""
_SAID = r"(yes|no|yeah|yep|yup|nope|nah|true|false)(?![\w-])"
_LEADING = re.compile(
    rf"\W{{0,9}}(?!no\.?\s?\d)(?:({'|'.join(map(re.escape, sorted(_MEANING, key=len, reverse=True)))})(?=\s?(?:[,.;:!\n]|- |$))"
    r"|(yes)\b(?!\s?(?:/|or\b|-))|(no)\s(?=(?:because|since|as|there|it|this|that|the|he|she|they|i|we|you)\b))"
)
_BEFORE_LAST = "so|but|is|say|be|think|therefore|thus|hence|probably|definitely"
_CLOSING = re.compile(rf"(?:[,:;→]|[=-]>| - |\b(?:{_BEFORE_LAST}))\s*\"?{_SAID}$")
_SET_OFF = re.compile(r"[,:;.!]\s(yes|no)(?=[,;])")
_STATEMENT = re.compile(
    rf"(?:{word('answer', 'ans')}[^.:\n]{{0,60}}?(?:\bis\b|\bwould be\b|\bshould be\b|'s\b|[:=]):?|答案[是为:]+)"
    rf"\s?(?:(?:definitely|clearly|probably|likely)\s)?\W{{0,3}}(?:{_SAID}|(是的|不是|没有|是|否|有))"
)
_EITHER = re.compile(rf"{word('yes ?(?:/|or) ?no', 'no ?(?:/|or) ?yes')}|是否")
_BOTH_ALONE = re.compile(r"(?:yes\W{1,9}(?:and\W)?no|no\W{1,9}(?:and\W)?yes)")
_YES = re.compile(rf"{word('yes')}(?!-\w)")
_NO = re.compile(word("no"))
_LONGEST_CLOSING = 40
_TURN = re.compile(rf"(?:{CHANGE}[\s,.!;:()-]{{0,6}}){{1,5}}(?:(?:it's|it is|the answer is)\s)?(?={_SAID}\s?(?:[,.;:!\n]|- |$))")
_ASKED = re.compile(rf"\W{{0,9}}{QUESTION}\s+(?=(?:no|nope|nah)(?![\w-])(?!\s?(?:/|or\b))[^?]*$)")
_SURELY = r"(?:absolutely|definitely|certainly|of course|surely|obviously|clearly|probably)"
_IT = r"(?:that|this|it|the (?:claim|statement))"
_ASSENT = re.compile(rf"{_IT}(?:'s| is) (?:\w+ly )?(?:correct|right|true)|absolutely|certainly|of course|i (?:think|believe) so")
_DISSENT = re.compile(
    rf"{_IT}(?:'s| is) (?:\w+ly )?(?:incorrect|wrong|false|untrue)|{_SURELY},? not|not (?:at all|really|quite)"
    r"|(?:that|this|it)(?:'s not| is not| isn't) (?:\w+ly )?(?:correct|right|true)|i (?:don't|do not) (?:think|believe) so"
)


_ELLIPSIS = re.compile(r"(?:it|he|she|they|there|this|that)(?:'s| (?:is|are|was|were|does|do|did|has|have|can))(?: not|n't)")


@dataclass(frozen=True, slots=True)
class YesNoReading:
    """Input of the rules: the raw text, the text in lower case without markup, and the question where it is known."""

    raw: str
    text: str
    question: str = ""
    within: int = 0
    """How many tags it stands in."""


def extract_yes_no(text: str, question: str = "") -> Extraction:
    """Returns ``"yes"`` or ``"no"`` as read from ``text``; never raises.

    Args:
        text: what the model wrote, thinking included.
        question: what it was asked, where that is known: what "There is no dog, but there is a cat" answers depends on it.

    >>> extract_yes_no("There is no dog, so yes")
    Extraction(answer='yes', rule='closing')
    >>> extract_yes_no("There is no dog in the image.")
    Extraction(answer='no', rule='denial')
    """
    if said := _COMMONEST.get(text):
        return Extraction(said, "word")
    reply = final_words(text)
    if isinstance(reply, Stop):
        return Extraction(None, reply.value)
    return _read(reply, _HOW_TO_ANSWER.sub(" ", question.lower()), within=0)


_EITHER_WORD = r"[\"']?yes[\"']? ?(?:or|/|and) ?[\"']?no\b[\"']?"
_HOW_TO_ANSWER = re.compile(
    rf"\b(?:please )?(?:\w+ly |just )?(?:answer|respond|reply|say)\b[^.?!]{{0,60}}?{_EITHER_WORD}[^.?!]{{0,40}}[.?!]?"
    rf"|,? ?{_EITHER_WORD}"
)
"""What a question says of its answer, whose "no" is about nothing that is asked: "Please answer yes or no"."""
_COMMONEST: Final = {f"{word}{end}": word.lower() for word in ("Yes", "yes", "No", "no") for end in ("", ".")}
"""Most answers, which no rule needs to look at."""


def _read(reply: str, question: str, *, within: int) -> Extraction:
    words = in_english(plain_text(reply))
    if not words:
        return Extraction(None, "empty")
    statement = _IDIOM.sub(" ", _after_last_change(asserted(words).lower())).strip(" ,")
    return apply_rules(YES_NO_RULES, YesNoReading(reply, statement, question, within))


_IDIOM = re.compile(
    r"\b(?:no (?:doubt|question|problem|worries|wonder)(?: (?:about (?:it|that)|at all))?|without (?:a |any )?(?:doubt|question)"
    r"|there(?:'s| is) no (?:doubt|question)(?: that| about (?:it|that))?|not only)\b(?:[,.!:;]+)?"
)
"""Words with "no" in them that deny nothing that was asked."""


def _after_last_change(text: str) -> str:
    """Returns the text after a repeated question and after the last change of mind: "Yes... Actually, no"."""
    asked = _ASKED.match(text)
    start = asked.end() if asked else 0
    for turn in _TURN.finditer(text):
        start = max(start, turn.end())
    return text[start:]


def _answer_tag(reading: YesNoReading) -> Outcome:
    """``<answer>yes</answer>``, ``<final_answer>``, ``<conclusion>``, ``[answer]``: what the last one holds, readable or not."""
    return _only(answer_tag(reading.raw), reading)


def _boxed_answer(reading: YesNoReading) -> Outcome:
    r"""``\boxed{yes}``: the content of the last one is the answer, readable or not."""
    return _only(boxed_content(reading.raw), reading)


def _only(content: str | None, reading: YesNoReading) -> Outcome:
    if content is None:
        return None
    if reading.within >= DEEPEST_TAG:
        return Stop.NONE
    return _read(content, reading.question, within=reading.within + 1).answer or Stop.NONE


def _json(reading: YesNoReading) -> Outcome:
    """``{"answer": "no"}``, ``{"answer": false}``: the last one."""
    if "{" not in reading.raw:
        return None
    values = [item.value for item in read_json(straighten(reading.raw)).values if isinstance(item.value, dict)]
    said = [member for value in values for key, member in value.items() if key.strip().casefold() in _JSON_KEYS]
    if not said:
        return None
    if isinstance(said[-1], bool):
        return "yes" if said[-1] else "no"
    return _only(str(said[-1]), reading)


_JSON_KEYS: Final = {"answer", "final_answer", "final answer", "response", "result"}


def _word(reading: YesNoReading) -> Outcome:
    """``YES!``, ``Nope``, ``true``, ``是的``, ``Of course not``, ``It is not``: one word alone, or a phrase with that meaning."""
    words = strip_ends(reading.text)
    if _DISSENT.fullmatch(words):
        return "no"
    said = "yes" if _ASSENT.fullmatch(words) else _MEANING.get(words) or _SHORT.get(words)
    short = _ELLIPSIS.fullmatch(words)
    return said or (None if short is None else "no")


def _statement(reading: YesNoReading) -> Outcome:
    """``The answer is no``: the last one."""
    matches = [
        match for match in _STATEMENT.finditer(reading.text) if not _EITHER.match(reading.text, match.start(match.lastindex or 1))
    ]
    return _meaning(matches[-1]) if matches else None


def _both(reading: YesNoReading) -> Outcome:
    """``Yes/No``, ``yes or no``, ``No. Yes.``: both at once."""
    either = _EITHER.search(reading.text) or _BOTH_ALONE.fullmatch(strip_ends(reading.text))
    return Stop.AMBIGUOUS if either else None


def _leading(reading: YesNoReading) -> Outcome:
    """``No, there is none.``, ``Yes there is``: the first word, set off as an answer; a later one must not contradict it.

    ``No, I cannot see the image`` refuses.
    """
    match = _LEADING.match(reading.text)
    if not match:
        return None
    first = _meaning(match)
    if first == "no" and is_refusal(reading.text):
        return Stop.REFUSAL
    if _contradicts(first, reading.text[match.end() :], reading.question):
        return Stop.AMBIGUOUS
    last = _closing(reading)
    others = {_meaning(other) for other in _SET_OFF.finditer(reading.text, match.end())}
    return only_answer({first, *others, *([last] if isinstance(last, str) else [])})


_END_OF_CLAUSE = re.compile(r"[.!;\n]|,\s?(?:but|because|since|so|and|only|it's|there's)\b|\b(?:but|because|only)\b")
_SAYS_IT_IS = re.compile(
    r"^(?:there(?:'s| is| are)|i (?:can |do )?see|(?:it|that|this|the \w+)(?:'s| is| are| was)|(?:we|you) can see)\b"
)


def _contradicts(first: str, rest: str, question: str) -> bool:
    """Says whether the clause after "yes" denies what was asked, or the one after "no" affirms it: "No, there is a dog"."""
    clause = _END_OF_CLAUSE.split(rest.strip(" ,.;:!-\n"))[0].strip(" ,")
    if not clause:
        return False
    if first == "yes":
        return _DISSENT.fullmatch(clause) is not None or (bool(question) and denies(clause, question))
    if _ASSENT.fullmatch(clause):
        return True
    denied = _NEGATIVE.search(clause) or _NEGATIVE.search(question)
    return bool(question) and not denied and _SAYS_IT_IS.search(clause) is not None and is_about(clause, question)


_NEGATIVE = re.compile(
    r"\b(?:no|not|never|none|neither|nothing|without|absent|missing|wrong|incorrect|false|less|hardly)\b|n't\b"
)


def _closing(reading: YesNoReading) -> Outcome:
    """``…, so yes``: the last word, set off as an answer."""
    tail = strip_ends(reading.text)[-_LONGEST_CLOSING:]
    match = _CLOSING.search(tail)
    return _meaning(match) if match and not is_negated(tail, *match.span(1)) else None


def _set_off(reading: YesNoReading) -> Outcome:
    """``In this picture, no, there is none.``: a word between commas."""
    return only_answer({_meaning(match) for match in _SET_OFF.finditer(reading.text)})


def _refusal(reading: YesNoReading) -> Outcome:
    """``I cannot tell``: no answer."""
    return Stop.REFUSAL if is_refusal(reading.text) else None


def _denial(reading: YesNoReading) -> Outcome:
    """``There is no dog``, ``No dog is visible``, ``I do not see any dog``, ``It is not a dog``, where nothing speaks against it.

    What else the text says must not be about what was asked, and the question must not deny anything.
    """
    return "no" if denies(reading.text, reading.question) else None


def _affirmation(reading: YesNoReading) -> Outcome:
    """``There is a dog``, ``I see a dog``, ``A dog is visible``, where the question asked for a dog and for nothing else."""
    return "yes" if affirms(reading.text, reading.question) else None


def _only_yes(reading: YesNoReading) -> Outcome:
    """``yes`` somewhere, not denied, and ``no`` nowhere; ``no`` alone somewhere is not read, it may be "no dog"."""
    if _NO.search(reading.text):
        return None
    return only_answer({"yes" for match in _YES.finditer(reading.text) if not is_negated(reading.text, *match.span())})


YES_NO_RULES: Final[Ladder[YesNoReading]] = {
    "answer_tag": _answer_tag,
    "boxed": _boxed_answer,
    "json": _json,
    "word": _word,
    "statement": _statement,
    "both": _both,
    "leading": _leading,
    "closing": _closing,
    "set_off": _set_off,
    "refusal": _refusal,
    "denial": _denial,
    "affirmation": _affirmation,
    "only_yes": _only_yes,
}


def _meaning(match: re.Match[str]) -> str:
    return _MEANING[match[match.lastindex or 1]]
