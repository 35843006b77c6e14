"""Does a text say that something is not there, or not so? "There is no dog in the image", "No dog is visible".

That answers a question for it with no. It does not where the text also says what is there, and that could be what was asked for:
where the question is known, its words decide.
"""

from __future__ import annotations

import re

_SEEN = r"(?:visible|seen|present|shown|depicted|pictured|found|detected|observed|included|available|there|here)"
_TO_SEE = r"(?:see|find|observe|notice|spot|detect|identify|recognize|recognise|have)"
_TO_SHOW = r"(?:show|contain|have|include|depict|feature|display|appear|seem|look|match)"
_SHOWS = r"(?:shows?|contains?|has|have|includes?|depicts?|features?|displays?|see|sees|find)"
_NOT = r"(?:n't| not|not)"
_DENIAL = re.compile(
    r"\bthere(?:'s| (?:is|are|was|were)| (?:appears?|seems?) to be) (?:no|none|nothing|not|zero)\b"
    rf"|\bthere (?:is|are|was|were|do|does){_NOT}\b|\bthere can(?:not| not|'t)\b"
    rf"|^(?:no|zero)(?: [\w'-]+){{1,6}} (?:is|are|was|were|can be|could be|appears?|exists?)\b"
    rf"(?: (?:clearly|directly|to be))?(?: {_SEEN}| in\b| on\b|$)"
    rf"|^(?:no|not an?|not the|not any)(?: [\w'-]+){{1,4}}(?: in (?:the|this) \w+)?$|^no(?: [\w'-]+){{1,5}} {_SEEN}$"
    rf"|\b(?:i|we|you) (?:(?:do|did|can|could)?(?:{_NOT}|not)|can't) (?:\w+ly )?{_TO_SEE}\b"
    r"|\b(?:i|we) (?:see|find|notice|observe) (?:no|none)\b"
    rf"|\b(?:does|do|did){_NOT} (?:\w+ly )?{_TO_SHOW}\b|\b{_SHOWS} no\b|\bnowhere\b"
    rf"|\b(?:i|we) (?:do|did){_NOT} (?:think|believe) (?:that )?(?:there|it|this|that)\b"
    rf"|\b(?:is|are|was|were|has|have|does|do|did|can|could|will|would|should){_NOT}\b"
    r"|\bcan't\b|^(?:none|not|nothing) (?:that )?(?:i|we) can see\b"
    r"|\b(?:is|are) (?:absent|missing|nonexistent)\b"
)
_DENIED_NOTHING = re.compile(
    r"\b(?:no|not) (?:an? |any |the )?(?:idea|clue|comment|image|picture|photo|photograph|doubts?|questions?|way|problem|worries|"
    r"reasons?|"
    r"(?:enough )?information|indication|context|answer|need|only|sooner|matter|one|thanks?|longer|\d+)\b"
    r"|\b(?:not|n't)(?: \w+ly)? (?:clear|possible|certain|sure|easy|obvious|determined?|know|known|say|tell|mentioned|specified|"
    r"answer(?:ed)?|enough|able|necessarily|have access|have enough)\b"
    r"|\b(?:if|whether|maybe|perhaps|possibly|might|may|unclear|unsure|unless|yes|either way|depends)\b|\?"
    r"|\b(?:see|find|have|view|access) (?:any|an|the|your|this) (?:image|picture|photo|reason)s?\b(?! of)|\bcould be\b"
)
_TURNS = r"\b(?:but|however|only|instead|although|though|while|whereas|except|rather|yet)\b"
_TURN = re.compile(_TURNS)
_PARTS = re.compile(rf"[.!;\n]+|,?\s*{_TURNS}|,\s*(?=there\b|it's\b|it is\b)")
_AFFIRMED = re.compile(
    rf"\bthere(?:'s| is| are| was| were)\b|\b(?:is|are|be) (?:\w+ly )?{_SEEN}\b|\b(?:i|we) (?:can |do )?see\b|\bit(?:'s| is)\b"
    r"|^an? \w+"
)
_QUESTION_DENIES = re.compile(r"\b(?:no|not|never|neither|without|absent|missing|lacks?|free of|nothing|none)\b|n't\b")
_CONTENT = re.compile(r"[^\W\d_]{3,}")
_COMMON = frozenset(
    _CONTENT.findall(
        "the and are was were does did has have there here this that these those any some image picture photo "
        "photograph scene see seen shown visible present for with from you your can could yes not answer question one "
        "word please using only"
    )
)


def denies(text: str, question: str = "") -> bool:
    """Says whether ``text`` denies what was asked for.

    Args:
        text: in lower case, as ``plain_text`` returns it.
        question: in lower case; empty where it is unknown.
    """
    if _DENIED_NOTHING.search(text) or _QUESTION_DENIES.search(question):
        return False
    parts = [part.strip(" ,:\"'()") for part in _PARTS.split(text)]
    denied = [part for part in parts if _DENIAL.search(part)]
    if not denied:
        return False
    asked = _content(question)
    others = [part for part in parts if part and part not in denied]
    if asked:
        return any(_content(part) & asked for part in denied) and not any(_content(part) & asked for part in others)
    return not any(_AFFIRMED.search(part) for part in others) and (not others or _TURN.search(text) is None)


def _content(text: str) -> set[str]:
    """Returns the words that name something, without the s of a plural."""
    return {word.removesuffix("s") for word in _CONTENT.findall(text)} - _COMMON
