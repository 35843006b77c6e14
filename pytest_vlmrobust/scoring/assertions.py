"""What a text still asserts at its end.

A letter does not count as an answer where the text only reports it ("My colleague says A"), supposes it ("If it were A, …"),
believed it before ("I first thought A"), asks for it ("Is it A?"), calls it wrong ("Wrong answer: A"), or takes it back ("The
answer is A. That is wrong."). ``asserted`` returns the text without these clauses, so that no rule has to know them. A clause
that is left out although it was meant costs an answer that is unread; one that is kept although it was not meant, a wrong one.

The words are data, ``phrases.yaml``. Other languages are made English before.
"""

from __future__ import annotations

import re
from typing import Final

from .extraction import CHANGE, WORD, any_of, word, words_of
from .options import Options
from .phrases import english

_MODAL = r"(?:(?:might|may|could|would|will|can|do|does|did|has|have|had|also|often|even|still|well|first|be tempted to) ){0,3}"
_LETTERS = rf"(?:(?:option|choice|letter) )?[\"'(\[]?[a-hj-z][\"')\]]?(?![{WORD}'])"
_REPORTED = re.compile(
    rf"(?:{word(*english('somebody'))}(?: [\w']+){{0,2}}? {_MODAL}{any_of(*english('says'))}(?![{WORD}])"
    r"(?! (?:about|again|back|through))"
    rf"|{word(*english('others'))})"
)
_BEFORE = re.compile(
    rf"(?<!\bas )(?:{word(*english('at_first'))}"
    rf"|{word('i(?: had| first| initially| originally)? thought')} (?=(?:it|this|that|the answer|the correct|of )|{_LETTERS}))"
)
_SUPPOSED = re.compile(
    rf"(?<!\bi )(?<!'d )(?<!'ll )(?<!\bcan )(?<!\bto ){word(*english('suppose'))}"
    rf"|(?<!as )(?<!even ){word('if')} (?={_LETTERS} |(?:it|this|that|there|they|he|she|the|an?|one|any|some|no)\b)"
    r"(?! (?:it|that) (?:helps|matters))"
)
_DENIED_LABEL = re.compile(
    rf"(?<!\bis )(?<!\bare )(?<!\bbe )(?<!'s )(?<!\bseems )(?<!\blooks ){word(*english('wrong_answer'))}"
    rf"(?: (?:answers?|options?|choices?|ones?|letters?|picks?)(?: (?:here|of all|for me))?)?\s?"
    rf"(?:(?:is|are|was|were|would be|include|includes)(?![{WORD}])|[:=-])\s*(?={_LETTERS})"
)
_DISSENT = re.compile(
    rf"^\W*(?:(?:but|and|however|which|hmm|well|no|oh|wait|actually|sorry|yet)?[\s,.]+|(?:but|which) )*"
    rf"{any_of(*english('dissent'))}(?![{WORD}])"
)
_RETRACTED = re.compile(rf"{word(*english('retract'))}")
CORRECTION: Final = re.compile(rf"(?:(?<=[.!?;,:\n(-] )|(?<=[\n(])|\A)(?:{CHANGE}|{word(*english('correction'))})[\s,.!;:)-]*")
"""Words that begin what replaces what was said before."""
_EVERYWHERE: Final = {"answer", "correct", "right", "the", "is", "it", "this", "that", "that's", "it's"}


def _telling(*roles: str) -> frozenset[str]:
    """Returns a word of each phrase of these roles, a long and rare one: a text without them has none of the phrases."""
    phrases = [words_of(phrase.replace("\\", "")) for role in roles for phrase in english(role)]
    return frozenset(max(words, key=lambda word: (word not in _EVERYWHERE, len(word))) for words in phrases)


_LEFT_OUT: Final = (
    (_REPORTED, ((_telling("somebody"), _telling("says")), (_telling("others"),))),
    (_BEFORE, ((_telling("at_first") | {"thought"},),)),
    (_DENIED_LABEL, ((_telling("wrong_answer"),),)),
    (_SUPPOSED, ((_telling("suppose") | {"if"},),)),
)
"""What begins a clause that is left out, and sets of words: every such beginning has a word of each set of one of the groups."""
_SIGNS_OF_DISSENT: Final = _telling("dissent")
_SIGNS_OF_RETRACTION: Final = _telling("retract")
_SIGNS: Final = frozenset().union(
    _SIGNS_OF_DISSENT, _SIGNS_OF_RETRACTION, *(group[-1] for _, groups in _LEFT_OUT for group in groups)
)
_SIGNS_OF_CORRECTION: Final = _telling("correction") | frozenset(
    [
        "wait",
        "actually",
        "sorry",
        "scratch",
        "hold",
        "hmm",
        "oops",
        "quite",
        "mean",
        "meant",
        "rather",
        "let",
        "made",
        "made",
        "second",
        "reflection",
        "closer",
        "thinking",
        "checking",
        "looking",
        "was",
    ]
)


def has_correction(lowered: str) -> bool:
    """Says whether a text in lower case may have words of ``CORRECTION``; most texts have none, and this is quick."""
    return not _SIGNS_OF_CORRECTION.isdisjoint(words_of(lowered))


_SENTENCE = re.compile(r"[^.!?\n;]*+(?:\.(?=\w)[^.!?\n;]*+)*+[.!?\n;]*")
_OPEN_LETTER = re.compile(rf"(?<![{WORD}])([A-Za-z])\.$")
_CONTRAST = re.compile(
    r",?\s(?:but|however|yet|although|though|whereas|so|therefore|hence|thus|then|while|and (?:now|so|then|yet)|in fact"
    r"|in reality|actually|in truth)\b|\bcorrection:"
    r"|,\s(?=my |now |the (?:final|correct|right|real|true|actual)\b|it's actually|upon |on |after )"
    r"|;|\s-\s|\s\("
)
_QUESTION = re.compile(
    r"\W*(?:(?:so|and|or|but|now|hmm|ok|okay|well|then|wait)[\s,]+){0,3}"
    r"(?:(?:is|are|was|were|does|do|did|has|have|can|could|will|would|should|might|may|what|which|who|where|why|how|isn't|aren't)\b"
    rf"|(?:yes|no)\W*\?|(?:(?:maybe|perhaps|or|and|either) )?{_LETTERS}(?:\W+(?:(?:or|and)\W+)?{_LETTERS})*\W*\?)"
)
_CONFIRMED = re.compile(r"\W*(?:yes|yeah|yep|correct|right|exactly|indeed|that's (?:right|it|correct))(?![\w-])")
_ASKED = re.compile(r"(?:is|was|could|might|would) (?:it|this|that|the (?:correct |right )?answer)(?: be)? ")
_ASKED_LETTER = re.compile(rf"\W*(?={_LETTERS}\W*\?)")
_MOST_SENTENCES = 2_000
"""Sentences that are looked at; in a text with more, the last ones."""


_MOST_CLAUSES = 20
"""Clauses that are left out of a sentence; of one with more, nothing is kept."""


def asserted(text: str, options: Options | None = None) -> str:
    """Returns ``text`` without the clauses that it does not assert, or takes back; the text itself where it is one question.

    Args:
        text: as ``in_english`` returns it.
        options: the options, where there are any: the full stop of "A. cat" ends no sentence.
    """
    lowered = text.lower()
    signs = _SIGNS.intersection(words_of(lowered))
    if ("?" not in lowered and not signs) or len(lowered) != len(text):
        return text
    sentences = _sentences(text, options)[-_MOST_SENTENCES:]
    only_questions = "?" in lowered and all(not one.strip() or one.rstrip().endswith("?") for one in sentences)
    kept: list[str] = []
    for place, sentence in enumerate(sentences):
        words = sentence.lower()
        if "?" not in words and not any(sign in words for sign in signs):  # most sentences: nothing in them is taken back
            kept.append(sentence)
            continue
        said = frozenset(words_of(words))
        if not said.isdisjoint(_SIGNS_OF_RETRACTION) and _RETRACTED.search(words):
            kept.clear()
        elif kept and not said.isdisjoint(_SIGNS_OF_DISSENT) and _DISSENT.match(words):
            kept.pop()
        following = sentences[place + 1].lower() if place + 1 < len(sentences) else ""
        kept.append(_asserted_part(sentence, following, said, alone=only_questions))
    return "".join(kept).strip()


def _sentences(text: str, options: Options | None) -> list[str]:
    """Returns the sentences of a text with their ends; joined, they are the text."""
    sentences: list[str] = []
    for match in _SENTENCE.finditer(text):
        if not match[0]:
            continue
        opened = _OPEN_LETTER.search(sentences[-1], max(0, len(sentences[-1]) - 4)) if sentences else None
        if (sentences and sentences[-1].endswith("..") and match[0].lstrip()[:1].islower()) or (
            opened and options and opened[1].upper() in options.letters and _is_text(match[0], opened[1].upper(), options)
        ):
            sentences[-1] += match[0]
        else:
            sentences.append(match[0])
    return sentences


def _is_text(rest: str, letter: str, options: Options) -> bool:
    """Says whether what follows "B." is an option's text: B's own, or any in lower case, and not a new sentence."""
    return rest.startswith(" ") and (rest[1:2].islower() or options.begins(rest, letter))


def _asserted_part(sentence: str, following: str, said: frozenset[str], *, alone: bool) -> str:
    """Returns the part of a sentence, whose words are ``said``, that it asserts."""
    words = sentence.lower()
    if words.rstrip(" \n\"')").endswith("?") and not alone and _QUESTION.match(words):
        if not _CONFIRMED.match(following):
            return "\n" if sentence.endswith("\n") else " "
        asked = _ASKED.search(words) or _ASKED_LETTER.match(words)
        return f" it is {sentence[asked.end() :]}".replace("?", ".") if asked else sentence.replace("?", ".")
    for pattern, groups in _LEFT_OUT:
        if all(any(map(said.isdisjoint, group)) for group in groups):
            continue
        for _ in range(_MOST_CLAUSES):
            match = pattern.search(words)
            if match is None:
                break
            begin = max((cut.start() for cut in _CONTRAST.finditer(words, 0, match.start())), default=0)
            end = _end_of_clause(words, match.end(), supposed=pattern is _SUPPOSED)
            sentence = f"{sentence[:begin]} {sentence[end:]}"
            words = sentence.lower()
        else:
            return " "
    dissent = 0 if said.isdisjoint(_SIGNS_OF_DISSENT) else _later_dissent(words)
    return sentence[dissent:] if dissent else sentence


def _end_of_clause(words: str, start: int, *, supposed: bool) -> int:
    """Returns where the clause ends that is not asserted: at a contrast, or with the sentence; suppositions have consequences."""
    for cut in _CONTRAST.finditer(words, start):
        if not supposed or "but" in cut[0] or "however" in cut[0] or ";" in cut[0] or "fact" in cut[0] or "reality" in cut[0]:
            return cut.start()
    return max(start, len(words.rstrip(" .!?;\n")))


def _later_dissent(words: str) -> int:
    """Returns where a sentence takes back its own beginning ("A, but that is wrong"); 0 for nowhere."""
    return next((cut.start() for cut in _CONTRAST.finditer(words) if _DISSENT.match(words[cut.start() :])), 0)
