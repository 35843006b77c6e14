"""The phrases of `phrases.yaml`: patterns of the English ones, and answers in other languages made English.

The rules of options, and of yes and no, know one grammar, the English one: who denies what, what a conclusion is, what takes
an answer back. An answer in another language is first made English as far as that grammar looks: "La opción B no es correcta"
becomes "option B is not correcta", "Bが正解です" becomes "B is correct". Words of the options themselves stay as they are.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from pytest_vlmrobust.core.document import Entry, parse_document, read_bytes
from pytest_vlmrobust.core.errors import UsageError

from .extraction import WORD, any_of
from .latex import math_verify_version
from .text import straighten

FILE: Final = Path(__file__).with_name("phrases.yaml")
VERSION: Final = 5
"""Of the rules in code; it rises with every change that can read an answer differently. Phrases have the digest of their file."""

ROLES: Final = {
    "answer": "names the answer; its article, where it has one, is found without it",
    "option": "stands before the letter of an option; in Chinese and the like also behind it",
    "article": "stands before such a noun, or before a letter, and says nothing",
    "is": "joins the answer and a letter",
    "is_not": "denies that they are one",
    "choose": "chooses what follows",
    "so": "draws a conclusion, or says how sure it is",
    "it_is": "begins a conclusion (English only)",
    "correct": "says of the letter before it that it is the answer",
    "fits": "is a verb that says the same (English only)",
    "wrong": "says of the letter before it that it is not the answer",
    "not": "denies what follows",
    "or": "joins two letters, of which one is meant",
    "and": "joins two letters",
    "but": "sets a letter against one that was denied",
    "however": "sets a sentence against the one before it",
    "because": "gives the reason for what was said",
    "ending": "ends a sentence after a letter and says nothing",
    "aside": "begins a sentence, says nothing, and could be mistaken for a letter",
    "there_is_no": "says that something is not there",
    "somebody": "is not the writer (English only)",
    "says": "attributes what follows to its subject (English only)",
    "others": "says that somebody else holds what follows",
    "at_first": "says that what follows was thought before",
    "suppose": "begins what is only supposed",
    "false": "says of the noun beside it, or by itself, that it names no answer",
    "wrong_answer": "names what is not the answer",
    "dissent": "takes back the sentence before it",
    "retract": "takes back all that was said before it",
    "correction": "begins what replaces what was said before it",
    "yes": "is an answer by itself",
    "no": "is an answer by itself",
}
"""What a phrase of each key does in a sentence."""


@dataclass(frozen=True, slots=True)
class Language:
    """The phrases of one language by what they do (``ROLES``)."""

    name: str
    phrases: Mapping[str, tuple[str, ...]]
    spaces: bool = True
    """Whether blanks stand between words."""
    signs: frozenset[str] = field(default_factory=frozenset)
    """Words that English does not have: a text with one of them is searched for phrases of this language."""


@dataclass(frozen=True, slots=True)
class Phrases:
    """All languages, the compounds of English, and the digest of the file that they are from."""

    languages: Mapping[str, Language]
    digest: str
    before: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Word to those that make another thing of it when one stands right before it: "hot" of "dog"."""
    behind: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Word to those that do so right after it: "house" of "dog"."""


def english(role: str) -> tuple[str, ...]:
    """Returns the English phrases of a role, the longest first, for use in patterns."""
    return tuple(re.escape(phrase).replace(r"\ ", " ") for phrase in _longest_first(shipped().languages["en"].phrases[role]))


def meanings(role: str) -> tuple[str, ...]:
    """Returns the phrases of a role in all languages."""
    return tuple(dict.fromkeys(phrase for language in shipped().languages.values() for phrase in language.phrases.get(role, ())))


def scoring_rules() -> dict[str, object]:
    """Returns what determines how a stored text is read.

    The version of the rules, the SHA-256 of the phrases, and the version of math-verify, None where it is not installed.
    """
    return {"version": VERSION, "phrases": shipped().digest, "math_verify": math_verify_version()}


@cache
def shipped() -> Phrases:
    """Returns the phrases that the package ships."""
    return read_phrases(FILE)


def read_phrases(path: Path) -> Phrases:
    """Returns the phrases in a file.

    Raises:
        UsageError: it cannot be read, or says something that phrases do not; names file, line, value and what was expected.
    """
    content = read_bytes(path, what="phrases", error=UsageError)
    top = parse_document(content, path.name, error=UsageError, expected="'languages:'")
    entries = top.mapping(("also_english", "compounds", "languages"), required=("also_english", "languages"))
    shared = {_spelling(word) for word in entries["also_english"].texts()}
    languages = entries["languages"].table("a mapping from codes of languages to phrases")
    if "en" not in languages:
        entries["languages"].fail("lacks 'en', whose grammar the others are read by")
    before, behind = _compounds(entries["compounds"]) if "compounds" in entries else ({}, {})
    return Phrases(
        {code: _language(code, entry, shared) for code, entry in languages.items()},
        hashlib.sha256(content).hexdigest(),
        before,
        behind,
    )


def _compounds(entry: Entry) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    entries = entry.mapping(("before", "groups"), required=("before", "groups"))
    table = entries["before"].table("a mapping of words to lists of words")
    behind: dict[str, frozenset[str]] = {}
    for group in entries["groups"].items():
        lists = group.mapping(("words", "behind"), required=("words", "behind"))
        followers = frozenset(map(_spelling, lists["behind"].texts()))
        for each in map(_spelling, lists["words"].texts()):
            behind[each] = behind.get(each, frozenset()) | followers
    return {each: frozenset(map(_spelling, words.texts())) for each, words in table.items()}, behind


def _language(code: str, entry: Entry, shared: set[str]) -> Language:
    entries = entry.mapping(("spaces", *ROLES))
    phrases = {role: tuple(map(_spelling, entries[role].texts())) for role in ROLES if role in entries}
    for role, listed in phrases.items():
        doubled = next((phrase for place, phrase in enumerate(listed) if phrase in listed[:place]), None)
        if doubled is not None:
            entries[role].fail(f"has {doubled!r} twice. Keep one of them")
    words = {word for role in phrases if role not in _NO_SIGNS for phrase in phrases[role] for word in _words(phrase)}
    spaces = entries["spaces"].truth() if "spaces" in entries else True
    signs = {word for word in words - shared if len(word) > 1 or not word.isascii()}
    return Language(code, phrases, spaces, frozenset(signs))


_NO_SIGNS: Final = {
    "yes",
    "no",
    "somebody",
    "says",
    "others",
    "at_first",
    "suppose",
    "dissent",
    "retract",
    "correction",
    "however",
}
"""Roles whose words do not show which language a text is in: many are words of other languages, too."""


def _spelling(phrase: str) -> str:
    """Returns a phrase as texts are spelled when they are searched for it."""
    return straighten(unicodedata.normalize("NFKC", phrase)).casefold()


def _words(text: str) -> set[str]:
    return set(text.translate(_LETTERS_ALONE).split() if text.isascii() else _WORDS.findall(text))


def _longest_first(phrases: Iterable[str]) -> list[str]:
    return sorted(phrases, key=lambda phrase: (-len(phrase), phrase))


_WORDS = re.compile(r"[^\W\d_][^\W\d_\u0900-\u097f]*")
_LETTERS_ALONE = "".join(character if character.isalpha() else " " for character in map(chr, range(128)))
"""A table that makes blanks of all ASCII characters but letters."""


# From another language to English. One pattern a language; the name of the group that matches says what to write.


_LONE = rf"(?-i:[A-Z])(?![{WORD}'+%°]|-[A-Za-z])"
_OPENING = r"[\"'(\[<]{0,3}"
_SCRIPTS: Final = {
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ko": re.compile(r"[\uac00-\ud7a3]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
}
_ENGLISH: Final = {
    "however": " but ",
    "others": " someone says ",
    "at_first": " at first ",
    "suppose": " if it were ",
    "retract": " I take that back. ",
    "dissent": " that is wrong ",
    "correction": " correction: ",
    "wrong_answer": "wrong answer: ",
    "answer_is_not": "the answer is not ",
    "answer_is": "the answer is ",
    "answer": "the answer ",
    "letter_is_not": " is not ",
    "is_correct": " is correct ",
    "is_wrong": " is wrong, ",
    "is_not": " it is not ",
    "is": "it is ",
    "choose": "I choose ",
    "so": "so ",
    "option": "option ",
    "or": " or ",
    "and": " and ",
    "but": " but ",
    "there_is_no": " there is no ",
    "because": " because ",
    "not": " not ",
    "ending": " ",
    "article": "",
    "aside": " ",
    "yes": "yes",
    "no": "no",
}


_STANCES: Final = ("retract", "dissent", "correction", "others", "at_first", "suppose", "wrong_answer", "however")
"""Roles that few texts have; their phrases are searched for only in a text that has one of them, or one of ``false``."""


def _has_stance(lowered: str, code: str) -> bool:
    searched = lowered if shipped().languages[code].spaces else lowered.replace(" ", "")
    return any(phrase in searched for phrase in _stances(code))


@cache
def _stances(code: str) -> tuple[str, ...]:
    """Returns the phrases that ``_has_stance`` looks for, without blanks where the language has none."""
    language = shipped().languages[code]
    phrases = (phrase for role in (*_STANCES, "false") for phrase in language.phrases.get(role, ()))
    return tuple(dict.fromkeys(phrase if language.spaces else phrase.replace(" ", "") for phrase in phrases))


@cache
def _translation(code: str, *, stances: bool = True) -> re.Pattern[str]:
    """Returns the pattern of the phrases of a language, each alternative named after what it becomes."""
    language = shipped().languages[code]
    roles = {role: _alternatives(language, role) for role in ROLES}
    gap = r"\s?" if language.spaces else r"\s{0,2}"
    article = rf"(?:{roles['article']}{gap})?"
    option = rf"(?:{article}{roles['option']}\s?:?\s?)?"
    letter = rf"(?={_OPENING}{_LONE})"
    named = rf"\s?:?\s?{article}{option}{letter}"
    after = rf"(?:(?<=(?-i:[A-Z]))(?<![{WORD}].)|(?<=(?-i:[A-Z])[)\"'\]]))\s?"
    if not language.spaces:
        after += rf"(?:{roles['option']})?\s?"
    answer = rf"{article}{roles['answer']}"
    joined = rf"\s?[:,]?\s?{roles['is']}"
    start = r"(?<![^\s.,;:!?\"'(])"
    end = r"(?=[\s:]|$)" if language.spaces else ""
    stop = r"(?=\s*(?:$|[.,;!?)\"\n]))"
    noun = any_of(roles["answer"], roles["option"])
    false_noun = any_of(rf"{roles['false']}{gap}{noun}", rf"{noun}{gap}{roles['false']}")
    parts = {
        "retract": roles["retract"],
        "dissent": roles["dissent"],
        "correction": roles["correction"],
        "others": roles["others"],
        "at_first": roles["at_first"],
        "suppose": roles["suppose"],
        "wrong_answer": rf"{article}(?:{roles['wrong_answer']}|{false_noun}|{roles['false']}(?={joined}{named}))"
        rf"(?:{joined}|\s?[:,-])?{named}",
        "aside": roles["aside"],
        "is_wrong": rf"{after}(?:{roles['is']}\s?)?{article}{roles['wrong']}(?:\s?{roles['answer']})?",
        "letter_is_not": rf"{after}{roles['is_not']}",
        "is_correct": rf"{after}(?:(?:-|{roles['is']})\s?{article}(?:{roles['answer']}|{roles['correct']})|{roles['correct']})",
        "answer_is_not": rf"{answer}\s?,?\s?{roles['is_not']}",
        "answer_is": rf"\[{roles['answer']}\]{named}|{answer}(?:{joined}(?:{named}|{end})|\s?:|\s?(?:[-,]\s?)?{named})",
        "is_not": roles["is_not"],
        "or": rf"{after}{roles['or']}{named}",
        "and": rf"{after}{roles['and']}{named}",
        "but": rf"{roles['but']}{named}",
        "option": rf"{article}{roles['option']}\s?:?\s?(?:{letter}|(?=[a-z](?:[).,:]|\s*$)))",
        "choose": rf"{roles['choose']}{named}",
        "yes": rf"{start}{roles['yes']}{stop}",
        "no": rf"{start}{roles['no']}{stop}",
        "there_is_no": roles["there_is_no"],
        "however": roles["however"],
        "because": roles["because"],
        "not": rf"{roles['not']}|{roles['no']}{named}",
        "is": rf"{roles['is']}{named}",
        "so": roles["so"],
        "answer": answer if language.spaces else _NEVER,
        "ending": rf"{after}{roles['ending']}{stop}",
        "article": rf"{roles['article']}\s?{letter}",
    }
    chosen = {name: part for name, part in parts.items() if part != _NEVER and (stances or name not in _STANCES)}
    return re.compile("|".join(f"(?P<{name}>{part})" for name, part in chosen.items()), re.IGNORECASE)


_NEVER = "(?!)"


def _alternatives(language: Language, role: str) -> str:
    """Returns a pattern for the phrases of a role, as whole words where the language has blanks."""
    phrases = language.phrases.get(role, ())
    if not phrases:
        return _NEVER
    blank = r"\s" if language.spaces else r"\s?"
    spelled = [re.escape(phrase).replace(r"\ ", blank) for phrase in _longest_first(phrases)]
    if not language.spaces:
        return any_of(*spelled)
    edges = ((_edge(phrase[0], "<!"), _edge(phrase[-1], "!")) for phrase in _longest_first(phrases))
    return any_of(*(f"{begin}{text}{end}" for (begin, end), text in zip(edges, spelled, strict=True)))


def _edge(character: str, look: str) -> str:
    return rf"(?{look}\w)" if character.isalnum() else ""


def languages_of(text: str) -> list[str]:
    """Returns the languages other than English whose words are in ``text``, the one with the most first."""
    words = _words(text.casefold())
    known = _signs()
    found: dict[str, int] = {}
    for word in words & known.keys():
        for code in known[word]:
            found[code] = found.get(code, 0) + 1
    if not text.isascii():
        for code, script in _SCRIPTS.items():
            if script.search(text):
                found[code] = found.get(code, 0) + len(words)
    return sorted(found, key=lambda code: (-found[code], code))


@cache
def _signs() -> dict[str, tuple[str, ...]]:
    signs: dict[str, tuple[str, ...]] = {}
    for code, language in shipped().languages.items():
        if code != "en" and code not in _SCRIPTS:
            for word in language.signs:
                signs[word] = (*signs.get(word, ()), code)
    return signs


_MOST_LANGUAGES = 2


def in_english(text: str, kept: Sequence[str] = ()) -> str:
    """Returns ``text`` with the phrases of other languages in English, as far as the rules look at them.

    Args:
        text: as ``plain_text`` returns it.
        kept: texts of options, case folded; what stands in one of them is not a phrase.

    >>> in_english("La respuesta correcta es la opción B.")
    'the answer is option B.'
    """
    for code in languages_of(text)[:_MOST_LANGUAGES]:
        text = _translate(text, code, kept)
    return text


def _translate(text: str, code: str, kept: Sequence[str]) -> str:
    lowered = text.lower()
    spans = [(start, start + len(words)) for words in kept if len(words) > 1 for start in _places(lowered, words)]

    def write(match: re.Match[str]) -> str:
        if any(start < match.end() and match.start() < end for start, end in spans):
            return match[0]
        return _ENGLISH[match.lastgroup or ""]

    english_text = _translation(code, stances=_has_stance(lowered, code)).sub(write, text)
    return _LOOSE_COMMA.sub("", _BLANKS.sub(" ", english_text)).strip(" ,")


_BLANKS = re.compile(r" {2,}")
_LOOSE_COMMA = re.compile(r",? (?=[.,;:!?])|,(?=\s*$)")


def _places(text: str, words: str) -> Iterable[int]:
    start = text.find(words)
    while start >= 0:
        yield start
        start = text.find(words, start + 1)
