"""Did the model say yes or no?

The same steps as for options (``choice``): the answer part; a tag, JSON or a box; the bare word; the word among others, by the
words around it. A denial is an answer too ("There is no dog in the image"), unless the question itself denies something. An
affirmation is an answer only if it covers the whole question: whether "There is a dog" means yes depends on the question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from .json_answers import answer_in_json
from .mentions import Mention, choose, lower, with_context
from .text import (
    Extraction,
    Outcome,
    Stop,
    answer_tag,
    boxed_content,
    final_words,
    first_outcome,
    is_refusal,
    plain_text,
    shortened,
    strip_ends,
)
from .words import IDIOM, asserted, roles_of, words

DEEPEST_TAG = 4
"""Tags inside each other that are read."""

YES_NO_RULES: Final[Mapping[str, str]] = {
    "answer_tag": "``<answer>yes</answer>``, ``<response>``, ``[answer]``: what the last one holds, readable or not.",
    "boxed": r"``\boxed{yes}``: the content of the last one is the answer, readable or not.",
    "json": '``{"answer": "no"}``, ``{"answer": false}``: the last one.',
    "word": "``YES!``, ``Nope``, ``true``, ``是的``, ``It is not``: one word alone, or a phrase with that meaning.",
    "statement": "``The answer is no``, ``Answer: yes``.",
    "conclusion": "``…, so yes``, ``I think no``.",
    "leading": "``No, there is none.``, ``Yes there is``: the first word, set off; ``No, I cannot see the image`` refuses.",
    "closing": "``In this picture, no, there is none.``, ``It barks. Yes.``: a word that is set off.",
    "denial": "``There is no dog``, ``No dog is visible``, ``It is not a dog``, where nothing speaks against it.",
    "affirmation": "``There is a dog on a sofa``, ``The shirt is red``: what the question says, in the same order.",
}
"""The rules and what they read, most certain first."""


def extract_yes_no(text: str, question: str = "") -> Extraction:
    """Returns ``"yes"`` or ``"no"`` as read from ``text``; never raises.

    The meaning of "There is no dog, but there is a cat" depends on the question, if known.

    >>> extract_yes_no("There is no dog, so yes")
    Extraction(answer='yes', rule='conclusion')
    >>> extract_yes_no("There is no dog in the image.")
    Extraction(answer='no', rule='denial')
    """
    reply = final_words(text)
    return (
        Extraction(None, reply.value) if isinstance(reply, Stop) else _read(reply, _HOW_TO_ANSWER.sub(" ", question.lower()), 0)
    )


_EITHER_WORD = r"[\"']?yes[\"']? ?(?:or|/|and) ?[\"']?no\b[\"']?"
_HOW_TO_ANSWER = re.compile(
    rf"\b(?:please )?(?:\w+ly |just )?(?:answer|respond|reply|say)\b[^.?!]{{0,60}}?{_EITHER_WORD}[^.?!]{{0,40}}[.?!]?"
    rf"|,? ?{_EITHER_WORD}"
)
"""Instructions in a question whose "no" denies nothing: "Please answer yes or no"."""
_PROMPT = re.compile(r"^\W*(?:(?:final )?answer\s?)?\(?(?:yes ?(?:/|or) ?no)\)?\s?[:=]", re.MULTILINE)
_DOLLARS = re.compile(r"\$(?:WORD\b\s*=?\s*)?(?=\w)")
_COURTESY = re.compile(
    r"(?:yes|yeah|sure|certainly|of course|absolutely)\b[\s,.!-]*(?:(?:of course|certainly|absolutely"
    r"|i can (?:\w+ )?(?:help|assist|look|check|answer|see (?:the|this|your) (?:image|picture|photo))|let me (?:look|check|see)"
    r"|(?:i(?:'d| would|'ll| will) be )?(?:happy|glad) to)\b[^.!\n]*)[.!]\s+(?=\S)"
)
"""A beginning that may only be polite before the answer: "Yes, I can help with that! There is no dog"."""


def _read(reply: str, question: str, within: int) -> Extraction:
    """Reads a reply, or the content of a tag nested in ``within`` others."""
    reply = shortened(reply)
    text = _PROMPT.sub("answer:", lower(_DOLLARS.sub("", plain_text(reply))))
    if not text:
        return Extraction(None, "empty")
    if polite := _COURTESY.match(text):
        rest = _read(text[polite.end() :], question, within)
        if rest.answer:
            return rest
    text = IDIOM.sub(" ", (asserted(text) or text) if "?" in text else text).strip(" ,")
    return first_outcome(_outcomes(reply, text, question, within))


def _outcomes(reply: str, text: str, question: str, within: int) -> Iterator[tuple[str, Outcome]]:
    yield "answer_tag", _content(answer_tag(reply), question, within)
    yield "boxed", _content(boxed_content(reply), question, within)
    yield "json", _in_json(reply, question, within)
    yield "word", _word(strip_ends(text))
    yield "both", Stop.AMBIGUOUS if _EITHER.search(text) else None
    yield _chosen(text, question)
    yield "leading", _begins(text, question)
    yield "refusal", Stop.REFUSAL if is_refusal(text) else None
    denied = _denies(text, question)
    yield "denial", "no" if denied and not _DENIED_WORD.search(text) else None
    yield "affirmation", "yes" if not denied and _affirms(text, question) else None


def _content(said: str | None, question: str, within: int) -> Outcome:
    if said is None:
        return None
    return (_read(said, question, within + 1).answer if within < DEEPEST_TAG else None) or Stop.NONE


def _in_json(reply: str, question: str, within: int) -> Outcome:
    said = answer_in_json(reply)
    return _content(said, question, within) if isinstance(said, str) else said


# The bare word, or among others.


_SHORT: Final = {"y": "yes", "n": "no", "1": "yes", "0": "no", "right": "yes"}
"""Whole answers that are too common to search for in longer texts."""
_SURELY = r"(?:absolutely|definitely|certainly|of course|surely|obviously|clearly|probably)"
_IT = r"(?:that|this|it|the (?:claim|statement))"
_ASSENT = re.compile(
    rf"{_IT}(?:'s| is) (?:\w+ly )?(?:correct|right|true)|{_SURELY}|i (?:think|believe) so"
    r"|(?:it|there|they|he|she) (?:is|does|are)"
)
_DISSENT = re.compile(
    rf"{_IT}(?:'s| is) (?:\w+ly )?(?:incorrect|wrong|false|untrue)|{_SURELY},? not|unlikely"
    r"|not (?:at all|really|quite|exactly|true|correct|that i (?:can see|know))"
    rf"|{_IT}(?:'s not| is not| isn't) (?:\w+ly )?(?:correct|right|true)|i (?:don't|do not) (?:think|believe) so"
    r"|(?:it|he|she|they|there|this|that)(?:'s|'re| (?:is|are|was|were|does|do|did|has|have|can))(?: not|n't)"
    r"|(?:(?:图|图片|画面|照片)(?:中|里|上)?)?(?:并?(?:没有?|沒有?)(?:看到|任何)?|看不到|不存在)[^.,!?]{0,12}"
    r"|不(?!知|确定|清楚|能确|明)[^.,!?]{0,6}|错的|错误的"
)
_EITHER = re.compile(r"(?<![\w-])(?:yes ?(?:/|or) ?no|no ?(?:/|or) ?yes)(?![\w-])|是否")
_DENIED_WORD = re.compile(r"\b(?:not|n't) (?:yes|no)\b")


def _meaning(said: str) -> str | None:
    roles = roles_of(said)
    return "yes" if "yes" in roles else "no" if "no" in roles else None


def _word(said: str) -> Outcome:
    if _DISSENT.fullmatch(said):
        return "no"
    if _ASSENT.fullmatch(said):
        return "yes"
    repeated = set(map(_meaning, said.split()[:50]))
    return _meaning(said) or _SHORT.get(said) or (repeated.pop() if len(repeated) == 1 else None)


_SAID = re.compile(r"(?<![\w-])(?<!\w')(?:yes|no|yeah|yep|yup|nope|nah|true|false)(?![\w-]|'\w)")
_SET_OFF = re.compile(
    r"\s?(?:[],.;:!\n\"')]|- |$)"
    r"|\s(?:because|since|as|there|it|this|that|the|he|she|they|i|we|you|to (?:this|the|your) question)\b(?! same)"
)
_NUMBER_SIGN = re.compile(r"no\.?\s?\d")
_MOST_SAID = 100


@cache
def _foreign() -> re.Pattern[str]:
    """Returns a pattern for yes and no of all languages at the start or end of a text."""
    said = sorted((each for role in ("yes", "no") for by in words()[:2] for each in by[role]), key=len, reverse=True)
    spelled = "|".join(map(re.escape, said))
    return re.compile(rf"\A\W{{0,9}}({spelled})(?=\s?(?:[,.;:!\n]|- |$))|(?<=[\s:是为は])({spelled})(?=[\s.!]*\Z)")


def _chosen(text: str, question: str) -> tuple[str, Outcome]:
    foreign = {match.span(match.lastindex or 0) for match in _foreign().finditer(text)}
    spans = sorted(foreign | {match.span() for match in _SAID.finditer(text)})[-_MOST_SAID:]
    mentions = [
        Mention(start, end, frozenset([_meaning(text[start:end]) or ""]))
        for start, end in spans
        if _SET_OFF.match(text, end) and not _NUMBER_SIGN.match(text, start)
    ]
    mentions = [each._replace(after=each.after._replace(ends=True)) for each in with_context(mentions, text, text, no=False)]
    rule, outcome = choose(mentions, text, frozenset(["yes", "no"]), no=False)
    rule = rule.removesuffix("_letter")
    since = max((each.turn for each in mentions if outcome in each.letters), default=0)
    if rule in ("leading", "closing") and any(
        each.held and outcome not in each.letters and each.turn >= since for each in mentions
    ):
        return rule, Stop.AMBIGUOUS
    if rule == "leading" and isinstance(outcome, str):
        if outcome == "no" and is_refusal(text):
            return rule, Stop.REFUSAL
        begin = next(each.end for each in mentions if outcome in each.letters and each.turn >= since)
        if _contradicts(outcome, text[begin:], question):
            return rule, Stop.AMBIGUOUS
    return rule, outcome


_FIRST_CLAUSE = re.compile(r"\s?[,.;:!\n]|\s- ")
_SENTENCE_BEGINS = re.compile(r"(?:[.!?:\n]|\b(?:image|picture|photo|photograph|question),)[\s\"'(]*(yes|no)(?=[,.;:!])")


def _begins(text: str, question: str) -> Outcome:
    """Returns the answer of a first clause that is a phrase for yes or no, or of a later sentence that begins so: "… Yes, …"."""
    clause = _FIRST_CLAUSE.split(text, maxsplit=1)
    said = "no" if _DISSENT.fullmatch(clause[0]) else "yes" if _ASSENT.fullmatch(clause[0]) else None
    rest = clause[-1]
    if said is None or len(clause) < 2:
        begins = list(_SENTENCE_BEGINS.finditer(text))
        said = begins[-1][1] if len({each[1] for each in begins}) == 1 else None
        rest = text[begins[-1].end() :] if begins else ""
        if said and any(_SET_OFF.match(text, each.end()) and each[0] != said for each in _SAID.finditer(text)):
            return Stop.AMBIGUOUS
    if said is None:
        return None
    if said == "no" and is_refusal(text):
        return Stop.REFUSAL
    return Stop.AMBIGUOUS if _contradicts(said, rest, question) else said


_END_OF_CLAUSE = re.compile(r"[.!;\n]|,\s?(?:but|because|since|so|and|only|it's|there's)\b|\b(?:but|because)\b")
_NEGATIVE = re.compile(
    r"\b(?:no|not|never|none|neither|nothing|without|absent|missing|wrong|incorrect|false|less|hardly|free of|lacks?)\b|n't\b"
)


def _contradicts(first: str, rest: str, question: str) -> bool:
    """Whether what follows "yes" denies the question, or the clause after "no" affirms it: "No, there is a dog"."""
    clause = _END_OF_CLAUSE.split(rest.strip(" ,.;:!-\n"))[0].strip(" ,")
    if first == "yes":
        denies = bool(question) and (_denies(clause, question) or _denies(rest, question))
        return denies or _DISSENT.fullmatch(clause) is not None
    if _ASSENT.fullmatch(clause):
        return True
    return _affirms(clause, question)


# A denial answers a question for something with no, where nothing else is denied: "The dog is not on the sofa" does not say that
# there is no dog. So without its "not" it must say what the question says, and no more; where the question is not known, the text
# must not say what is there instead. A sentence that says what a known question says answers it with yes.


_SEEN = r"(?:visible|seen|present|shown|depicted|pictured|found|detected|observed|included|available|there|here)"
_TO_SEE = r"(?:see|find|observe|notice|spot|detect|identify|recogni[sz]e|have)"
_TO_SHOW = r"(?:show|contain|have|include|depict|feature|display|appear|seem|look|match)"
_NOT = r"(?:n't| not|(?<=can)not)\b"
_DENIAL = re.compile(
    r"\bthere(?:'s| (?:is|are|was|were)| (?:appears?|seems?) to be) (?:no|none|nothing|not|zero)\b"
    rf"|^(?:no|zero)(?: [\w'-]+){{1,6}} (?:is|are|was|were|can be|could be|appears?|exists?)\b"
    rf"(?: (?:clearly|directly|to be))?(?: {_SEEN}| in\b| on\b|$)"
    rf"|^(?:no|not an?|not the|not any)(?: [\w'-]+){{1,4}}(?: in (?:the|this) \w+)?$|^no(?: [\w'-]+){{1,5}} {_SEEN}$"
    rf"|\b(?:i|we) {_TO_SEE} (?:no|none)\b|\b(?:{_TO_SHOW}s?|has|see|sees|find) no\b|\bnowhere\b"
    rf"|\b(?:is|are|was|were|has|have|does|do|did|can?|could|will|would|should){_NOT}"
    r"|\b(?:is|are) (?:absent|missing|nonexistent)\b|^(?:none|not|nothing) (?:that )?(?:i|we) can see\b"
)
_DENIED_NOTHING = re.compile(
    r"\b(?:no|not) (?:an? |any |the )?(?:idea|clue|comment|image|picture|photo|photograph|doubts?|questions?|way|problem|worries|"
    r"reasons?|(?:enough )?information|indication|context|answer|need|only|sooner|matter|one|thanks?|longer|\d+)\b"
    r"|\b(?:not|n't)(?: \w+ly)? (?:clear|possible|certain|sure|easy|obvious|determined?|know|known|say|tell|mentioned|specified|"
    r"answer(?:ed)?|enough|able|necessarily|have access|have enough)\b"
    r"|\b(?:if|whether|maybe|perhaps|possibly|might|may|unclear|unsure|unless|yes|either way|depends|could be)\b|\?"
    r"|\b(?:see|find|have|view|access) (?:any|an|the|your|this) (?:image|picture|photo|reason)s?\b(?! of)"
)
_TURNS = r"\b(?:but|however|only|instead|although|though|while|whereas|except|rather|yet)\b"
_TURN = re.compile(_TURNS)
_PARTS = re.compile(rf"[.!;\n]+|,?\s*{_TURNS}|,\s*(?=not\b|there\b|it's\b|it is\b|it \w+s\b|i see\b)")
_AFFIRMED = re.compile(
    rf"\bthere(?:'s| is| are| was| were)\b|\b(?:is|are|be) (?:\w+ly )?{_SEEN}\b|\b(?:i|we) (?:can |do )?see\b"
    r"|\bit(?:'s| is)\b|^an? \w+"
)
_ASKS_FOR = re.compile(
    r"^\W*(?:(?:is|are|was|were) there|(?:do|can) (?:you|we|i) see"
    r"|does (?:the|this) (?:image|picture|photo|photograph|scene) (?:show|contain|have|include|depict|feature))\b"
)
"""The beginning of a question for something: what is said further of it does not change the answer."""
_FURTHER = re.compile(
    rf"\W*(?:$|[,.;(])|\s(?:{_SEEN}|is|are|can|in|on|at|with|near|next|behind|under|inside|by|to|that|which|who|\w+ed"
    r"|(?!painting|drawing|carving|building|clothing|\w?ring|\w?wing|string)\w+ing)\b"
)
"""What may follow on words that are a whole: "a dog on a chair", not "a dog house"."""
_SMALL = re.compile(
    r"an?|is|are|was|were|be|its?|i|we|he|she|they|there|do|does|did|has|have|can|to|this|that|ca|(?:it|that|there|s?he)'s"
    r"|also|just|indeed|actually|really|\w{3,}ly"
)
_AMOUNT = re.compile(
    r"\b(?:only|single|alone|one|two|three|four|five|six|seven|eight|nine|ten|several|many|multiple|various|\d+)\b"
)
_UNSURE = re.compile(
    r"\b(?:nor|cannot|if|whether|maybe|perhaps|possibly|probably|may|might|could|would|should|like|almost|nearly|something|what"
    r"|(?:un)?likely|supposedly|allegedly|seemingly|rarely|barely|scarcely|partly|partially|formerly|previously|falsely|wrongly"
    r"|(?:picture|image|photo|photograph)s? of)\b|\?"
)
_WITHOUT_BLANKS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_CONTENT = re.compile(_WITHOUT_BLANKS.pattern + r"|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{3,}")
"""A word, or a character in Chinese, Japanese and Korean, which have no blanks between words."""
_OTHER_ONE = re.compile(
    r"\b(?:just|merely|only|other|another|mistaking|longer|fully|completely|entirely|totally|alone|lack|lacks|lacking|miss"
    r"|second|additional|more|further|too|very|so)\b"
)
"""Words that keep a denial from denying presence: "no other dog", "not just one dog", "not fully visible"."""
_DOUBTED = re.compile(
    r"\b(?:not|n't|wrong|incorrect|false|untrue|mistaken?|disagree|deny|denies|impossible|error)\b(?! (?:appear|seem|look)s? )"
    r"(?: \w+){0,3}? (?:that|to (?:say|think|claim))\b|\bnot (?:\w+ )?there is no\b"
    r"|\b(?:no|not|n't|never|without)\b[^.,;]{0,120}\b(?:absent|missing|nonexistent|nothing|lacks?|without)\b"
)
"""A denial that is denied itself: "It is not true that there is no dog"."""
_PICTURE = re.compile(
    r"\b(?:in|on|of|from|within|by) (?:the|this|that|your|any part of the) (?:\w+ )?"
    r"(?:image|picture|photo|photograph|scene|view|frame)\b|\bin it\b"
)


_NONE = re.compile(r"n't\b|\b(?:not|no|none|zero|never|absent|missing|nowhere|cannot)\b")


def _denies(text: str, question: str) -> bool:
    if _DENIED_NOTHING.search(text) or _NEGATIVE.search(question) or _DOUBTED.search(text):
        return False
    parts = [part.strip(" ,:\"'()") for part in _PARTS.split(text)]
    denied = [part for part in parts if _DENIAL.search(part) and all(word in question for word in _OTHER_ONE.findall(part))]
    others = [part for part in parts if part and part not in denied]
    if subjects := _subjects(question):
        return any(_affirms(_NONE.sub("", part), question, further=False) for part in denied) and not any(
            _share(_subjects(part), subjects) for part in others
        )
    return bool(denied) and not any(_AFFIRMED.search(part) for part in others) and (not others or _TURN.search(text) is None)


def _affirms(text: str, question: str, *, further: bool = True) -> bool:
    """Whether a sentence says in the same order what the question says; ``further``: it may go on about what was asked for."""
    terms = _in_order(question)
    predicate = terms[1:] if _SUBJECT.match(question) and not _ASKS_FOR.match(question) else []
    doubted = any(pattern.search(text) for pattern in (_NEGATIVE, _UNSURE, _TURN, _WITHOUT_BLANKS))
    if not terms or doubted or _NEGATIVE.search(question):
        return False
    for sentence in re.split(r"[.!;\n]+", text):
        said = _in_order(sentence)
        who = _PRONOUN.match(sentence)
        if who and predicate and terms[0][0] not in _ANOTHER.get(who[1], ()) and _are_same(said, predicate):
            return True
        if said and _AMOUNT.fullmatch(said[0][0]) and not _AMOUNT.search(question):
            said = said[1:]
        if not _are_same(said[: len(terms)], terms):
            continue
        if _ASKS_FOR.match(question):
            whole = " ".join(word for word, _ in said[: len(terms)]) in sentence
            if whole and _FURTHER.match(sentence, said[len(terms) - 1][1]) and (further or len(said) == len(terms)):
                return True
        elif len(said) == len(terms):
            return True
    return False


_SUBJECT = re.compile(
    r"\W*(?:is|are|was|were|does|do|did|has|have|can) (?:the|his|her|their|(?:this|that|these|those)(?! an?\b)) \w"
)
_PRONOUN = re.compile(r"\W*(he|she|it|they)\b")
"""Stands for the first word that the question says something about: "He is wearing a hat"."""
_ANOTHER: Final = {"he": ("woman", "girl", "lady"), "she": ("man", "boy", "guy")}


def _are_same(said: list[tuple[str, int]], terms: list[tuple[str, int]]) -> bool:
    return len(said) == len(terms) and all(_same(word, other) for (word, _), (other, _) in zip(said, terms, strict=True))


def _in_order(text: str) -> list[tuple[str, int]]:
    """Returns the words of a text that say something, without those about the image, and the end of each."""
    core = _PICTURE.sub(lambda match: " " * len(match[0]), text)
    return [
        (word, end)
        for word, end in ((match[0], match.end()) for match in re.finditer(r"[\w'-]+", core))
        if not _SMALL.fullmatch(word) and ("frame" not in roles_of(word) or word in ("with", "from", "for"))
    ]


def _share(said: set[str], terms: set[str]) -> bool:
    return any(_same(word, other) for word in said for other in terms)


def _same(word: str, other: str) -> bool:
    """Whether two words are forms of the same word: "dog" and "dogs"; in other scripts, with more endings, by stem."""
    if word == other or not word.isascii():
        stem = max(3, min(len(word), len(other)) - 2)
        return word == other or (min(len(word), len(other)) >= 4 and word[:stem] == other[:stem])
    long, short = sorted((word, other), key=len, reverse=True)
    return long in (f"{short}s", f"{short}es") or (short.endswith("y") and long == f"{short[:-1]}ies")


def _subjects(text: str) -> set[str]:
    return {word for word in _CONTENT.findall(text) if "frame" not in roles_of(word)}
