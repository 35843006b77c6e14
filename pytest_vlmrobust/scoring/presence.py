"""Does a text say that something is not there, or that it is? "There is no dog in the image", "There is a dog in the image".

That answers a question for it with no, where nothing else is denied: "The dog is not on the sofa" does not say that there is no
dog, nor does "There is no dog collar". So a denial may have no word that the question lacks. Where the question is not known,
the text must not say what is there instead.

The opposite answers a known question with yes where it is one clause that says all that was asked for and no more: "There is a
dog" is no answer to "Is there a dog on the sofa?".
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
_PARTS = re.compile(rf"[.!;\n]+|,?\s*{_TURNS}|,\s*(?=there\b|it's\b|it is\b|it \w+s\b|i see\b)")
_AFFIRMED = re.compile(
    rf"\bthere(?:'s| is| are| was| were)\b|\b(?:is|are|be) (?:\w+ly )?{_SEEN}\b|\b(?:i|we) (?:can |do )?see\b|\bit(?:'s| is)\b"
    r"|^an? \w+"
)
_EXISTS = re.compile(
    rf"(?:there(?:'s| is| are)|(?:i|we) (?:can )?see) (?:\w+ly )?(?:an?|one|some|two|several|many)? ?[\w -]+"
    rf"|(?:an?|the|some) [\w -]+ (?:is|are|can be) (?:\w+ly )?{_SEEN}[\w ]*"
)
_WHERE = re.compile(r"^in (?:the|this) (?:image|picture|photo|photograph|scene),? ")
_UNSURE = re.compile(
    r"\b(?:no|not|never|none|nothing|without|nor|neither|cannot|if|whether|maybe|perhaps|possibly|probably|may|might|could|would|should"
    r"|like|almost|nearly|something|what|(?:picture|image|photo|photograph)s? of)\b|n't\b|\?"
)
_QUESTION_DENIES = re.compile(r"\b(?:no|not|never|neither|without|absent|missing|lacks?|free of|nothing|none)\b|n't\b")
_CONTENT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{3,}")
"""A word; in Chinese, Japanese and Korean, which set no blanks around one, each character."""
_COMMON = frozenset(
    _CONTENT.findall(
        "the and are was were does did has have had there here this that these those any some image picture photo but into its "
        "photograph scene see seen shown show shows visible present for with from you your can could yes not answer question one "
        "word please using only contain contains include includes depict depicts depicted display displays feature features "
        "appear appears appeared seem seems find found detect detected observe observed spot notice identify identified "
        "given provided view frame what which being been actually definitely clearly certainly look looks pictured none zero "
        "anywhere nowhere exist exists absent missing nonexistent think believe people's indeed cannot isn aren doesn don didn "
        "wasn recognize "
        "weren hasn haven couldn won wouldn single therefore thus hence based upon include included "
        "图中片有没沒看到吗嗎的是在里裡不见見任何张張这這幅上任写真画像に"
        "はがいますありせんか見え写って絵사진에는이가있습니까없은를을 어떤도그림"
        "une des les est sur dans imagen foto hay una los las der die das ein eine einen dem den bild auf sehen ist zu "
        "immagine nell della foto есть изображении картинке фото هل يوجد في الصورة imagem uma"
    )
)
_OTHER_ONE = re.compile(
    r"\b(?:just|merely|only|other|another|mistaking|longer|fully|completely|entirely|totally|alone|lack|lacks|lacking|miss"
    r"|second|additional|more|further|too|very|so)\b"
)
"""Words with which something is there all the same: "no other dog", "not just one dog", "not fully visible"."""
_DOUBTED = re.compile(
    r"\b(?:not|n't|wrong|incorrect|false|untrue|mistaken?|disagree|deny|denies|impossible|error)\b"
    r"(?: \w+){0,3}? (?:that|to (?:say|think|claim))\b"
    r"|\bnot (?:\w+ )?there is no\b"
    r"|\b(?:no|not|n't|never|without)\b[^.,;]{0,120}\b(?:absent|missing|nonexistent|nothing|lacks?|without)\b"
)
"""A denial that is denied itself: "It is not true that there is no dog"."""
_OF_THE_PICTURE = re.compile(
    r"\b(?:in|on|of|from|within|by) (?:the|this|that|your|any part of the) (?:\w+ )?"
    r"(?:image|picture|photo|photograph|scene|view|frame)\b.*"
)


def denies(text: str, question: str = "") -> bool:
    """Says whether ``text`` denies what was asked for.

    Where the question is known, the denial has nothing but words of the question: "The dog is not on the sofa" denies no dog.

    Args:
        text: in lower case, as ``plain_text`` returns it.
        question: in lower case; empty where it is unknown.
    """
    if _DENIED_NOTHING.search(text) or _QUESTION_DENIES.search(question) or _DOUBTED.search(text):
        return False
    parts = [part.strip(" ,:\"'()") for part in _PARTS.split(text)]
    denied = [part for part in parts if _DENIAL.search(part) and not _OTHER_ONE.search(part)]
    if not denied:
        return False
    asked = _content(question)
    others = [part for part in parts if part and part not in denied]
    if asked:
        return any(is_about(part, question) for part in denied) and not any(_shares(_content(part), asked) for part in others)
    return not any(_AFFIRMED.search(part) for part in others) and (not others or _TURN.search(text) is None)


def affirms(text: str, question: str) -> bool:
    """Says whether ``text`` is one clause that says what was asked for, and all of it, is there.

    Args:
        text: in lower case, as ``plain_text`` returns it.
        question: in lower case; nothing is affirmed where it is unknown.
    """
    clause = _WHERE.sub("", text.strip(" .!,:\"'()"))
    asked = _content(question)
    if not asked or _QUESTION_DENIES.search(question) or _UNSURE.search(text):
        return False
    if not _EXISTS.fullmatch(_OF_THE_PICTURE.sub("", clause).strip()):
        return False
    said = _content(clause)
    return is_about(clause, question) and all(any(_same(word, other) for other in said) for word in asked)


def is_about(clause: str, question: str) -> bool:
    """Says whether a clause is about what was asked for, and about nothing else: it has words of the question only."""
    said, asked = _content(_OF_THE_PICTURE.sub("", clause)), _content(question)
    said = {word for word in said if not word.endswith("ly")}
    return bool(said) and all(any(_same(word, other) for other in asked) for word in said)


def _shares(said: set[str], asked: set[str]) -> bool:
    return any(_same(word, other) for word in said for other in asked)


def _same(word: str, other: str) -> bool:
    """Says whether two words are forms of one: "dog" and "dogs"; in other scripts, where endings differ more, by their stem."""
    if word == other:
        return True
    if word.isascii():
        long, short = sorted((word, other), key=len, reverse=True)
        return long in (f"{short}s", f"{short}es") or (short.endswith("y") and long == f"{short[:-1]}ies")
    stem = max(3, min(len(word), len(other)) - 2)
    return min(len(word), len(other)) >= 4 and word[:stem] == other[:stem]


def _content(text: str) -> set[str]:
    """Returns the words of ``text`` that say what it is about."""
    return set(_CONTENT.findall(text)) - _COMMON
