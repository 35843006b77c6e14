"""The words around an answer in a text: announcements, denials, retractions.

A window decides whether a mention is denied: the words of its clause before it, and the first words after it. The words are
data, ``words.yaml``, for all languages at once.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from functools import cache, lru_cache
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Final, NamedTuple

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.files.document import parse_document, read_bytes

from .latex import math_verify_version
from .text import FAMILIES, straighten

FILE: Final = Path(__file__).with_name("words.yaml")
VERSION: Final = 32
"""Of the rules in code; it rises with every change that can read an answer differently. Words have the digest of their files."""

_ROLES: Final = (
    *("breaks", "turns", "condition", "hypothetical", "link", "little", "side", "place", "frame"),
    *("answer", "option", "is", "it_is", "choose", "so", "filler", "correct", "fits", "not", "wrong", "unlike", "absent", "or"),
    *("hedge", "but", "because", "ending", "void", "reporter", "medium", "says", "aside", "also", "dissent", "correction"),
    *("yes", "no", "compounds", "label"),
)
_JOINED: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
"""Letters of languages without blanks between words."""
_TOKEN = re.compile(r"[^\s.,;:!?()\[\]{}\"<>=/|*$&+\u2192\u21d2\u27f9\u2234-]+(?:-[^\s.,;:!?()\[\]{}\"<>=/|*$&+-]+)*|\S")
_SENTENCE_END = re.compile(r"[.!?;\n](?!(?<=[.!?])\d)")
_REACH = 200
"""Characters before and after a mention that are looked at."""
_MOST_BEHIND = 24
"""Words behind a mention that are looked at."""
_NONE: Final = frozenset[str]()


class Words(NamedTuple):
    """Phrases by role, longest first, for languages with and without blanks between words, and the roles of each phrase."""

    spaced: dict[str, dict[str, None]]
    joined: dict[str, tuple[str, ...]]
    roles: dict[str, frozenset[str]]
    begins: dict[str, int]
    """The most words of a phrase by first word."""
    ends: dict[str, int]
    """The most words of a phrase by last word."""


@cache
def words() -> Words:
    """Returns the words that the package ships."""
    content = read_bytes(FILE, what="words", error=UsageError)
    entries = parse_document(content, FILE.name, error=UsageError, expected="'answer:'").mapping(_ROLES, required=_ROLES)
    table = {role: sorted(map(_spelling, entries[role].texts()), key=len, reverse=True) for role in _ROLES}
    roles: dict[str, set[str]] = {}
    for role, phrases in table.items():
        for phrase in phrases:
            roles.setdefault(phrase, set()).add(role)
    split = sorted((phrase.split(" ") for phrase in roles), key=len)  # the longest counts
    return Words(
        {role: {phrase: None for phrase in phrases if not _JOINED.search(phrase)} for role, phrases in table.items()},
        {role: tuple(phrase for phrase in phrases if _JOINED.search(phrase)) for role, phrases in table.items()},
        {phrase: frozenset(each) for phrase, each in roles.items()},
        {said[0]: len(said) for said in split},
        {said[-1]: len(said) for said in split},
    )


def _spelling(phrase: str) -> str:
    return " ".join(tokens(straighten(unicodedata.normalize("NFKC", phrase)).lower()))


def tokens(lowered: str) -> list[str]:
    """Returns words and signs of a text in lower case."""
    matches = _TOKEN.findall(lowered)
    return [word.strip("'") or "'" for word in matches] if "'" in lowered else matches


@lru_cache(maxsize=16384)
def roles_of(word: str) -> frozenset[str]:
    """Returns the roles of a word."""
    return words().roles.get(word, _NONE)


def scoring_rules() -> dict[str, object]:
    """Returns the identity of the reading rules.

    It has the version of the rules, the SHA-256 of their words, and the version of math-verify, None without it.
    """
    digest = hashlib.sha256(FILE.read_bytes() + FAMILIES.read_bytes()).hexdigest()
    return {"version": VERSION, "words": digest, "math_verify": math_verify_version()}


def _last_phrase(said: list[str]) -> tuple[frozenset[str], list[str]]:
    """Returns the roles of the longest phrase that ``said`` ends with, and the words before it; no roles for any other word."""
    known, last = words(), said[-1] if said else ""
    for count in range(min(known.ends.get(last, 0), len(said)), 0, -1):
        if roles := known.roles.get(" ".join(said[-count:])):
            return roles, said[:-count]
    for begin in range(max(1, len(last) - 12), len(last) if not last.isascii() and _JOINED.match(last[-1]) else 0):
        if roles := known.roles.get(last[begin:]):
            return roles, [*said[:-1], last[:begin]]
    return _NONE, said


def _first_phrase(said: list[str]) -> tuple[frozenset[str], int]:
    """Returns the roles of the longest phrase at the start of ``said``, and its number of words, at least 1."""
    known = words()
    for count in range(min(known.begins.get(said[0], 0), len(said)) if said else 0, 0, -1):
        if roles := known.roles.get(" ".join(said[:count])):
            return roles, count
    return _NONE, 1


@cache
def _signs(*roles: str) -> frozenset[str]:
    """Returns the longest word of each phrase of some roles; a text without these words has none of the phrases."""
    return frozenset(max(phrase.split(" "), key=len) for role in roles for phrase in words().spaced[role])


# The words before a mention.


class Before(NamedTuple):
    """The effect of the words before a mention."""

    kind: str = ""
    """``line`` ("Answer:"), ``statement`` ("the answer is"), ``conclusion`` ("so"), ``subject`` ("the dog is"), ``named``
    ("option"), ``lettered`` ("the letter"), ``label`` ("player"), ``also`` ("so does"), ``start`` or nothing."""
    denied: bool = False
    void: bool = False
    """Whether the writer does not hold it: supposed, said by others, thought before."""
    turned: bool = False
    """Whether it is contrasted with a denied option: "not A but"."""


def before(lowered: str, start: int, floor: int = 0, turn: int = 0, *, in_words: bool = False) -> Before:
    """Returns the effect of the words before ``start`` on the mention there, of a letter or in words.

    Words before ``floor`` belong to another mention, and words before ``turn`` were corrected.
    """
    begin = max(turn, start - _REACH, 0)
    ends = [match.end() for match in _SENTENCE_END.finditer(lowered, begin, start)]
    at_start = bool(ends) or begin in (0, turn)
    begin = ends[-1] if ends else begin
    sentence = tokens(lowered[begin:start])
    if ends and lowered[ends[-1] - 1] == "\n" and not any(word.isalnum() for word in sentence):
        heading = tokens(lowered[max(0, begin - _REACH) : begin].rstrip().rpartition("\n")[2])
        if heading and (heading[-1] == ":" or "answer" in _last_phrase(heading)[0]):
            sentence = [*heading, ":"]
    said = tokens(lowered[floor:start]) if floor > begin else sentence
    kind, place = _announced(said, at_start=at_start and floor <= begin, in_words=in_words)
    between = [word for word in said if word not in _NO_WORDS]
    turned = not between or "but" in _last_phrase(between)[0] or (len(between) == 1 and len(between[0]) == 1)
    void = _is_void(sentence, len(sentence) - len(said) + place, kind, in_words=in_words)
    return Before(kind, _denies(_clause(said, place + (said[place : place + 1] == [","]))), void, turned)


_NO_WORDS: Final = frozenset(["then", "rather", ",", ";", "always"])
_SIGNS: Final = {":": "colon", "=": "colon", ">": "point", "→": "arrow", "⇒": "arrow", "⟹": "arrow", "∴": "arrow", "👉": "arrow"}
_LETTERED: Final = frozenset(["letter", "letra", "lettre", "lettera", "buchstabe"])
_AND_THEN: Final[tuple[list[str], ...]] = ([], [","], ["but"], [",", "but"], [",", "and"])
"""What may stand between letters and the likeliest of them: "B or C, and most likely C"."""
_STEPS: Final = ("also", "answer", "choose", "it_is", "so", "is", "option", "filler")
_CONCLUSIONS: Final = frozenset(["it_is", "so", "arrow"])


def _step(rest: list[str], roles: frozenset[str]) -> str:
    sign = _SIGNS.get(rest[-1], "") if "it_is" not in roles else ""
    if sign == "point":
        sign = "arrow" if rest[-2:-1] in (["="], ["-"]) else "colon"
    if sign or ("so" in roles and "filler" in roles and not roles & {"answer", "choose", "it_is"}):
        return sign or "filler"
    return next((step for step in _STEPS if step in roles), "")


def _announced(said: list[str], *, at_start: bool, in_words: bool) -> tuple[str, int]:
    """Returns how a mention is announced, and the place of the first word of the announcement."""
    rest, steps, named = said, list[str](), ""
    while rest:
        roles, shorter = _last_phrase(rest)
        step = _step(rest, roles)
        joined, colon = "is" in steps, "colon" in steps
        if step in ("answer", "option") and (step == "answer" or joined or (colon and len(shorter) <= 1)):
            return ("line" if colon and not joined and len(shorter) <= 3 else "statement"), len(shorter)
        if step in ("choose", "also"):
            return ("statement" if step == "choose" else "also"), len(shorter)
        if step in _CONCLUSIONS:
            return ("conclusion" if step != "arrow" or at_start or len(rest) > 2 else ""), len(shorter)
        if not step or (step == "is" and joined and rest[-1] == ","):
            break
        if step == "option":
            named = "lettered" if rest[-1] in _LETTERED else "named"
        steps.append("sure" if step == "filler" and "so" in roles else "comma" if rest[-1] == "," else step)
        rest = rest[:-1] if step == "colon" else shorter
    if "sure" in steps and not in_words and rest in _AND_THEN:
        return "conclusion", len(rest)
    return _by_itself(rest, steps, named, at_start=at_start) if not rest else _after_noun(rest, said, steps, named)


def _by_itself(rest: list[str], steps: list[str], named: str, *, at_start: bool) -> tuple[str, int]:
    """Returns how a mention is announced that has nothing else before it."""
    if at_start:
        return ("conclusion" if "is" in steps or "sure" in steps else named or "start"), 0
    return ("conclusion" if "is" in steps and "comma" in steps[steps.index("is") :] else named), len(rest)


_RELATIVE: Final = frozenset(["that", "which", "que", "qui", "che", "die", "yang"])


def _after_noun(rest: list[str], said: list[str], steps: list[str], named: str) -> tuple[str, int]:
    """Returns how a mention is announced by a noun further before: "the ANSWER to this is", "the OPTION that fits is"."""
    known, joined = words(), "is" in steps
    fitting = any(word in _RELATIVE or ("correct" in roles_of(word) and word != "right") for word in rest)
    for place in range(len(rest) - 1 if joined or "colon" in steps else -1, -1, -1):
        word, phrases = rest[place], (" ".join(rest[place : place + count]) for count in (1, 2, 3))
        roles = frozenset().union(*map(roles_of, phrases))
        if "answer" in roles or (fitting and "option" in roles) or (not word.isascii() and _has(word, known.joined["answer"])):
            return "statement", place
    if "label" in _last_phrase(rest)[0] and rest == said:
        return "label", len(rest)
    return named or ("subject" if joined else ""), len(rest)


def _has(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases if len(phrase) > 1)


IDIOM: Final = re.compile(
    r"(?<![\w-])(?:no (?:doubt(?: about (?:it|that))?|question|problem|worries|wonder)|without (?:a |any )?(?:doubt|question)"
    r"|not only|at least|nothing but|none other than)\b"
)
"""Phrases with a word of denial that deny nothing."""
_DENYING: Final = frozenset(["not", "wrong", "unlike"])


_INTERRUPTED: Final = frozenset([("not", ","), ("nicht", ","), ("niet", ",")])
"""Where something is put in behind "not": "it is not, I think, B"."""


def _clause(said: list[str], place: int) -> list[str]:
    """Returns the words of the clause with the announcement at ``place``, up to the mention."""
    for begin in range(min(place, len(said)) - 1, -1, -1):
        word = said[begin]
        if word in (",", "however") and any(pair in _INTERRUPTED for pair in pairwise(said[: begin + 1])):
            continue
        if "breaks" in roles_of(word) and "unlike" not in _last_phrase(said[: begin + 1])[0]:
            return said[begin + 1 :]
        if not word.isascii() and _JOINED.search(word):
            cut = max(word.rfind(each) + len(each) if each in word else 0 for each in words().joined["breaks"])
            if cut:
                return [word[cut:], *said[begin + 1 :]]
    return said


def _denies(clause: list[str]) -> bool:
    text = f" {' '.join(clause)} "
    if text.isascii() and "n't " not in text and _signs("not", "wrong", "unlike").isdisjoint(clause):
        return False
    if any(each in text for each in (" no ", " without ", " least ", "nothing but", " not only", "none other")):
        text = IDIOM.sub(" ", text)
        clause = text.split()
    if any(word.endswith("n't") or not _DENYING.isdisjoint(roles_of(word)) for word in clause):
        return True
    if _has_phrase(clause, text, "not", "wrong", "unlike"):
        return True
    return not text.isascii() and any(phrase in text for role in ("not", "wrong") for phrase in words().joined[role])


@cache
def _several(*roles: str) -> dict[str, list[str]]:
    by_first_word: dict[str, list[str]] = {}
    for phrase in (phrase for role in roles for phrase in words().spaced[role] if " " in phrase):
        by_first_word.setdefault(phrase.partition(" ")[0], []).append(phrase)
    return by_first_word


def _has_phrase(said: list[str], text: str, *roles: str) -> bool:
    """Says whether the words ``said``, which are ``text``, have a phrase of several words of these roles."""
    known = _several(*roles)
    return any(f" {phrase} " in text for word in said if word in known for phrase in known[word])


_EXCEPTING: Final = ("except", "but", "besides", "other than", "apart from")
_EXCEPT = re.compile(
    r"\b(?P<of>all|every\w*|any\w*|each|none|nothing|no)\b[^.,;!?\n]{0,40}?"
    rf"\b(?:{'|'.join(_EXCEPTING)})\s(?:for\s)?(?:the\s|an?\s|options?\s|[\"'(\[])*\Z"
)


def is_excepted(lowered: str, start: int, *, denied_behind: bool) -> bool | None:
    """Whether an exception is denied: "all but B fit", not "all but B are wrong"; None if the mention is none."""
    begin = max(0, start - _REACH)
    if not any(sign in lowered for sign in _EXCEPTING) or not (exception := _EXCEPT.search(lowered, begin, start)):
        return None
    ahead = tokens(_SENTENCE_END.split(lowered[begin : exception.start()])[-1])
    negative = exception["of"] in ("none", "nothing", "no") or denied_behind or _denies(_clause(ahead, len(ahead)))
    return not negative


_SHOWN = re.compile(r"(?:it|this|that|there|the (?:image|picture|photo))\b")
"""What a condition is about that supposes what is in the image, and does not say how to look at it: "if we look closely"."""
_THAT: Final = (["что"], ["dass"], ["że"], ["that"])


def _is_void(sentence: list[str], place: int, kind: str, *, in_words: bool) -> bool:
    """Whether a sentence only supposes or reports what follows; before a comma only a condition does."""
    if _signs("void", "reporter", "medium", "aside", "condition").isdisjoint(sentence) and all(map(str.isascii, sentence)):
        return False
    begin = max((at + 1 for at, word in enumerate(sentence[:place]) if "turns" in roles_of(word)), default=0)
    part = [word for at, word in enumerate(sentence) if at >= begin and (word != "," or sentence[at + 1 : at + 2] not in _THAT)]
    stated = kind in ("line", "statement", "conclusion")
    comma = max((at + 1 for at, word in enumerate(part[: place - begin] if stated else part) if word == ","), default=0)
    if part[:1] == ["if"] and (part[1:2] == ["forced"] or part[1:4] == ["i", "had", "to"]):  # guess, or choose
        part, comma = part[4:], max(comma - 4, 0)
    clause, whole = part[comma:], f" {' '.join(part)} "
    if any("aside" in roles_of(word) and not (word == "whether" and kind == "statement") for word in clause):
        return True
    if (
        any("void" in roles_of(word) for word in part)
        or _has_phrase(part, whole, "void")
        or _is_reported(part, in_words=in_words)
    ):
        return True
    if _has_phrase(clause, f" {' '.join(clause)} ", "aside"):
        return True
    condition = next((place for place, word in enumerate(part[:comma]) if "condition" in roles_of(word)), None)
    if condition is not None and (
        any("hypothetical" in roles_of(word) for word in part) or _SHOWN.match(" ".join(part[condition + 1 :]))
    ):
        return True
    return not whole.isascii() and any(phrase in whole for phrase in words().joined["void"])


_ANYBODY: Final = frozenset(["you", "one"])
"""Only what they might say is reported: "one might say A", not "you should choose B"."""
_SAID_SOON = 4
"""Words behind a reporter among which a word of saying is looked for."""


def _is_reported(said: list[str], *, in_words: bool) -> bool:
    """Whether others say what follows; writing in the image may well say an answer in words: "The sign says STOP"."""
    sources = frozenset(["reporter"]) if in_words else frozenset(["reporter", "medium"])
    for place, word in enumerate(said):
        if not sources.isdisjoint(roles_of(word)):
            behind = list(takewhile(lambda each: each[0].isalnum(), said[place + 1 : place + 1 + _SAID_SOON]))
            if word in _ANYBODY and behind[:1] not in (["could"], ["may"], ["might"]):
                continue
            if "according" in said[max(0, place - 3) : place] or any("says" in roles_of(each) for each in behind):
                return True
    return False


# The words after a mention.


class After(NamedTuple):
    """The effect of the words after a mention."""

    end: int = 0
    """The end of these words in the text."""
    denied: bool = False
    verdict: bool = False
    """Whether they say that it is the answer: "is correct", "fits best"."""
    ends: bool = False
    """Whether it is set off: nothing follows in its clause, or a reason."""
    void: bool = False
    """Whether it is only supposed, or was thought before: "A if it meows", "A. Initial guess."."""


_MODAL: Final = frozenset(["can", "could", "may", "might"])
_SET_OFF: Final = frozenset('.,:;!-"([')
_ENDING: Final = frozenset(["because", "ending", "unlike", "so"])
_LINKING: Final = frozenset(["is", "filler", "option", "ending", "link"])
_BEHIND_VOID = re.compile(
    r"[^\w.!?\n]*(?:if|unless|when)\b|\W*(?:draft"
    r"|(?:was |is )?(?:an? |my |the )?(?:initial|earlier|previous|first) (?:guess|draft|thought|answer))\b"
    r"|\W{0,3}(?:is|was|would|could|might|may)\b[^.!?;,\n]{0,60}\b(?:if|unless|provided|had (?:it|the|there))\b(?! (?:i|we)\b)"
    r"|\W{0,3}(?:is|are|seems?|looks?|remains?) (?:also |still )?(?:an? )?(?:possible|plausible|possibility|candidate)\b"
)


def after(lowered: str, end: int, ceiling: int) -> After:
    """Returns the effect of the words from ``end`` to the next mention at ``ceiling`` on the mention before them."""
    stop = _SENTENCE_END.search(lowered, end, min(ceiling, end + _REACH))
    limit = stop.start() if stop else min(ceiling, end + _REACH)
    matches = islice(_TOKEN.finditer(lowered, end, limit), _MOST_BEHIND)
    pairs = [(match[0].strip("'") or "'", match.end()) for match in matches]
    closed = bool(pairs) and pairs[0][0] in ")]}" and lowered[end - 2 : end - 1] not in ("(", "[", "{")
    closed = closed and lowered[pairs[0][1] : pairs[0][1] + 1].strip() == ""
    while pairs and pairs[0][0] in ")]}>'\"*$":
        pairs = pairs[1:]
    said, truncated = [word for word, _ in pairs], (not stop and ceiling < len(lowered)) or len(pairs) == _MOST_BEHIND
    ends = closed or not _ENDING.isdisjoint(_first_phrase(said)[0]) if said else not truncated
    ends = ends or (bool(said) and said[0] in _SET_OFF and said[:2] != ["-", ">"])
    plain = After(end, ends=ends, void=_BEHIND_VOID.match(lowered, end, ceiling) is not None)
    what, count = _predicate(said, truncated=truncated, full_stop=bool(stop) and lowered[stop.start()] != "\n" if stop else False)
    if what == "joined":
        return _after_joined(lowered, pairs[count][1] - len(said[count]), limit, plain, modal=not _MODAL.isdisjoint(said[:count]))
    if what == "denied":
        return plain._replace(denied=True, end=pairs[count - 1][1])
    return plain._replace(verdict=what == "verdict" and _MODAL.isdisjoint(said[:count]))


def _predicate(said: list[str], *, truncated: bool, full_stop: bool) -> tuple[str, int]:
    """Returns the effect of the first words after a mention (``verdict``, ``denied`` or nothing) and their number."""
    place, linked = 0, False
    while truncated and said[-1:] in (["a"], ["an"], ["the"]):
        said = said[:-1]
    while place < min(len(said), 8):
        roles, count = _first_phrase(said[place:])
        word, behind = said[place], place + count
        if word == "," and said[behind : behind + 1] not in ([], ["which"], ["that"]):
            return "", place
        if (
            "fits" in roles
            or ("correct" in roles and (place or not word.isascii() or len(said) == count))
            or ("answer" in roles and linked)
        ):
            negated = said[behind : behind + 1] and (
                said[behind].endswith("n't") or _first_phrase(said[behind:])[0] & {"not", "wrong"}
            )
            # "(B) It is not a cat" denies the cat
            other = negated and said[place:behind] == ["it", "is"] and not _closes(said[behind + 1 :], truncated=truncated)
            return ("", place) if other else ("denied", behind + 1) if negated else ("verdict", place)
        if word.endswith("n't") or roles & {"not", "wrong", "absent"}:
            return ("", place) if behind == len(said) and truncated and "wrong" not in roles else ("denied", behind)
        if not word.isascii() and _JOINED.match(word) and _LINKING.isdisjoint(roles):
            return "joined", place
        if _LINKING.isdisjoint(roles) and not (word.endswith("ly") and len(word) > 4):
            return ("verdict" if said[place:] == ["left"] and not truncated else ""), place
        linked, place = linked or "is" in roles, behind
    return ("verdict" if full_stop and not truncated and said[-1:] in (["is"], ["does"]) else ""), place


def _closes(said: list[str], *, truncated: bool) -> bool:
    """Whether a clause ends before the words ``said``."""
    return said[0] in {",", ";", ")", "because", "since"} if said else not truncated


def _after_joined(lowered: str, begin: int, limit: int, plain: After, *, modal: bool) -> After:
    known = words().joined
    for _ in range(3):
        text = lowered[begin:limit].lstrip()
        begin = limit - len(text)
        denied = next((each for role in ("wrong", "not") for each in known[role] if text.startswith(each)), "")
        if denied and not (text.rstrip(" (") == denied and denied in known["not"]):
            return plain._replace(denied=True, end=begin + len(denied))
        if text.startswith(known["correct"]):
            return plain._replace(verdict=not modal)
        links = (*known["option"], *known["ending"], *known["is"], "都", "也", "的")
        link = next((each for each in links if text.startswith(each)), "")
        begin += len(link)
        if not link or not lowered[begin:limit].strip(" .,!"):
            return plain._replace(ends=plain.ends or bool(link))
    return plain


# Retractions and corrections.


@cache
def _turning(role: str) -> re.Pattern[str]:
    """Returns the pattern of a role's phrases at the start of a clause."""
    spaced, joined = ("|".join(map(re.escape, by[role])).replace(r"\ ", r"\s") for by in words()[:2])
    begins = r"(?:(?<=[.!?;,:\n(-])\s*|(?<=[.,!?;:-] )|\A|(?<=\n)|(?<=\bbut )|(?<=\bno )|(?<=\bbecause ))"
    return re.compile(
        rf"{begins}(?:(?:{spaced})(?!\w| for\b)|{joined})(?:[\s,.!;:)-]*(?P<no>no)(?=[\s,.:!-])(?! \w))?[\s,.!;:)-]*"
    )


@lru_cache(maxsize=8)
def _words_of(lowered: str) -> frozenset[str]:
    return frozenset(tokens(lowered))


def _has_sign(lowered: str, role: str) -> bool:
    """A quick test of whether a text may contain phrases of a role."""
    return not _signs(role).isdisjoint(_words_of(lowered)) or (not lowered.isascii() and _has(lowered, words().joined[role]))


_UNSETTLED = re.compile(
    r"wait|hold on|let me|then again|hmm|checking again|looking again|thinking again|等等|等一下|待って|잠깐|espera|moment"
)
_NO = re.compile(
    r"(?:(?<=[.!?;,:\n-]\s)(?:nope|non?|nein|não|нет|tidak|bukan|không)"
    r"|(?<=[.!?;,\n])\s?(?:不对?|不對|错了?|錯了?|いや|いいえ|아니요?))(?:\s*[,.!:]+|\s+-+|-+\s)\s*"
)


@lru_cache(maxsize=8)  # asked for twice of each text
def corrections(lowered: str, *, no: bool = False) -> list[tuple[int, bool]]:
    """Returns the positions of corrections in order, and whether they leave the answer open ("wait").

    ``no``: whether "no" is a correction ("A. No, B").
    """
    turns: list[tuple[int, bool]] = []
    if _has_sign(lowered, "correction"):
        turns = [
            (match.end() if no or not match["no"] else match.start("no"), bool(_UNSETTLED.search(match[0])))
            for match in _turning("correction").finditer(lowered)
        ]
    if no:
        turns = sorted([*turns, *((match.end(), False) for match in _NO.finditer(lowered))])
    return turns[-20:]


def last_dissent(lowered: str) -> int:
    """Returns the end of the last retraction; -1 without one."""
    if not _has_sign(lowered, "dissent"):
        return -1
    return max((match.end() for match in _turning("dissent").finditer(lowered)), default=-1)


_BRACKETS = re.compile(r"[(\uff08][^()\uff08\uff09]{0,200}[)\uff09]")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|\n|\Z")


def asserted(text: str) -> str:
    """Returns ``text`` without its questions and without the sentences that it only supposes or reports."""
    kept, begin = [], 0
    for match in _SENTENCE.finditer(text):
        sentence, begin = text[begin : match.end()], match.end()
        said = tokens(_BRACKETS.sub(" ", sentence).lower())
        if said[-1:] != ["?"] and not _is_void(said, 0, "", in_words=True):
            kept.append(sentence)
    return "".join(kept).strip()
