"""The options of a question, and where a text mentions them in words."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.sample import IMAGE_MARK

from .extraction import Outcome, Stop, is_negated, only_answer
from .phrases import shipped
from .text import NUMBER_WORDS, bare, fold_case, strip_ends

# Options that are numbers or measures: 12 is not the quantity in "12:30" or "at least 12", and "5cm" is "5 cm".


_REACH = 24
"""Characters around a number that are checked for another quantity."""

_WORDS = "|".join(NUMBER_WORDS)
_NUMBER = re.compile(rf"\d[\d.,]*|{_WORDS}")
_MEASURE = re.compile(r"(\d[\d.,]*)\s?([^\W\d_]{1,6}[23²³]?|%|°[cf]?)")
_SIGN = r"\s?(?:[+*/\u00d7÷:^~-]|\bx\b|\b(?:or|to|and|plus|minus|times|divided by)\b)\s?"
_BEFORE = re.compile(
    rf"(?:(?:\d|\b(?:{_WORDS})){_SIGN}|"
    r"\b(?:at (?:least|most)|over|under|above|below|up to|nearly|almost|between|minus|negative)\s)$"
)
_AFTER = re.compile(
    rf"{_SIGN}(?:\d|(?:{_WORDS})\b)|\+"
    r"|\s(?:or|and) (?:more|less|fewer|above|below|over|under)\b|\sat (?:least|most)\b|\sand a half\b"
)


def is_other(sentence: str, start: int, end: int) -> bool:
    """Says whether the number ``sentence[start:end]`` is part of another quantity, or one of several; lower case is expected.

    >>> is_other("12 + 3 = 15", 0, 2), is_other("it is at least 12", 15, 17), is_other("9 + 3 = 12", 8, 10)
    (True, True, False)
    """
    if not _NUMBER.fullmatch(sentence, start, end):
        return False
    return _BEFORE.search(sentence[max(0, start - _REACH) : start]) is not None or _AFTER.match(sentence, end) is not None


def spellings(words: str) -> tuple[str, ...]:
    """Returns a measure with a blank and without (``5 cm``, ``5cm``); nothing for other words."""
    match = _MEASURE.fullmatch(words)
    return (f"{match[1]} {match[2]}", f"{match[1]}{match[2]}") if match else ()


# Options that are a part of a compound: "dog" is not meant by "hot dog".


_WORD_BEFORE = re.compile(r"([\w']+)[ -]\Z")
_WORD_BEHIND = re.compile(r"[ -](\w+)")


def in_compound(sentence: str, words: str, start: int, end: int) -> bool:
    """Says whether ``words`` at ``sentence[start:end]`` are part of a compound of another meaning; lower case is expected.

    >>> in_compound("it is a hot dog", "dog", 12, 15), in_compound("it is a small dog", "dog", 14, 17)
    (True, False)
    """
    words_before, words_behind = shipped().before.get(words.partition(" ")[0]), shipped().behind.get(words.rpartition(" ")[2])
    if words_before:
        before = _WORD_BEFORE.search(sentence[max(0, start - _REACH) : start])
        if before and before[1] in words_before:
            return True
    if words_behind:
        behind = _WORD_BEHIND.match(sentence, end)
        return behind is not None and behind[1] in words_behind
    return False


# Options that are cells of a grid, or pictures, have no words. Different spellings of them are unified.


_BRACKETED = re.compile(r"[\[(]\s*(\d{1,2})\s*[,;]\s*(\d{1,2})\s*[\])]")
_OF = r"\s*+(?:(?:=|:|is|number)\s*+)?(\d{1,2})(?!\d)"
_AND = r"\s*+(?:[,;/]\s*+)?(?:and\s*+)?"
_ROW_FIRST = re.compile(rf"\brow{_OF}{_AND}col(?:umn)?{_OF}", re.IGNORECASE)
_COLUMN_FIRST = re.compile(rf"\bcol(?:umn)?{_OF}{_AND}row{_OF}", re.IGNORECASE)
_ROW_MEMBER, _COLUMN_MEMBER = (rf"[\"']{name}[\"']\s*+:\s*+[\"']?(\d{{1,2}})(?![\d.])[\"']?" for name in ("row", "col(?:umn)?"))
_ROW_MEMBER_FIRST = re.compile(rf"{_ROW_MEMBER}\s*+,\s*+{_COLUMN_MEMBER}", re.IGNORECASE)
_COLUMN_MEMBER_FIRST = re.compile(rf"{_COLUMN_MEMBER}\s*+,\s*+{_ROW_MEMBER}", re.IGNORECASE)
_PICTURE = re.compile(r"\b(?:the\s)?(?:image|picture|photo|candidate)\s(?=\(?[A-Z]\)?(?![\w']))", re.IGNORECASE)


def are_cells(texts: Iterable[str]) -> bool:
    """Says whether all options are cells of a grid: ``[0,1]``, ``(0, 1)``."""
    listed = list(texts)
    return bool(listed) and all(_BRACKETED.fullmatch(text.strip()) for text in listed)


def are_pictures(texts: Iterable[str]) -> bool:
    """Says whether all options are pictures, without a word."""
    listed = list(texts)
    return bool(listed) and all(text.strip() == IMAGE_MARK for text in listed)


def with_cells(text: str) -> str:
    """Returns ``text`` with every cell of a grid spelled ``[row,column]``, counted from 0 as in the options.

    The members ``row`` and ``column`` of a JSON object become one member, ``cell``.

    >>> with_cells("It is (0, 1), that is, row 0, column 1.")
    'It is [0,1], that is, [0,1].'
    """
    spelled = _ROW_MEMBER_FIRST.sub(r'"cell": [\1,\2]', _BRACKETED.sub(r"[\1,\2]", text))
    spelled = _COLUMN_MEMBER_FIRST.sub(r'"cell": [\2,\1]', spelled)
    return _COLUMN_FIRST.sub(r"[\2,\1]", _ROW_FIRST.sub(r"[\1,\2]", spelled))


def with_lettered_pictures(text: str) -> str:
    """Returns ``text`` with pictures called options: ``the image B`` is ``option B``."""
    return _PICTURE.sub("option ", text)


_CAPITAL_A = re.compile(r"\W*A\s")
_DECORATION = 80
"""Most characters of blanks, quotes and articles around an option's text."""
_NUMBERS: Final = dict(zip(NUMBER_WORDS, map(str, range(len(NUMBER_WORDS))), strict=True))
_JOINED = "-'_"


@dataclass(frozen=True, slots=True)
class Options:
    """Letters, and two spellings of each text: as looked for inside a sentence, and as compared with a whole answer."""

    letters: frozenset[str]
    raw: Mapping[str, str]
    phrases: tuple[tuple[str, str], ...]
    """(text, letter), the longest text first."""
    whole: Mapping[str, frozenset[str]]
    longest: int
    """Characters of the longest text as it is compared."""
    folded: tuple[str, ...] = ()
    """Every text in lower case."""
    cells: bool = False
    """All are cells of a grid, spelled ``[row,column]``."""
    pictures: bool = False
    """All are pictures, so there are no words to mention."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        """Returns the prepared options; the same options are prepared once."""
        return _prepare(tuple(options.items()))

    def exact(self, text: str) -> Outcome:
        """Returns the letter of the option that ``text`` is, ignoring case, articles and punctuation at its ends.

        Of options that differ only in these, the one with exactly that spelling; a stop if there is none. ``A dog`` is a stop
        where ``dog`` is not option A: its first word may be an article or a letter.
        """
        if len(text) > 2 * self.longest + _DECORATION:
            return None
        letters = self.whole.get(bare(text), frozenset())
        spelled = {letter for letter in letters if strip_ends(self.raw[letter]) == strip_ends(text)}
        if letters and not spelled and _CAPITAL_A.match(text) and "A" in self.letters - letters:
            return Stop.AMBIGUOUS
        return only_answer(spelled or set(letters))

    def begins(self, text: str, letter: str) -> bool:
        """Says whether ``text`` begins with the words of the option ``letter``."""
        words = bare(self.raw[letter])
        start = bare(text[: 2 * len(words) + _DECORATION])
        return (
            bool(words)
            and start.startswith(words)
            and ends_here(start, len(words))
            and not in_compound(start, words, 0, len(words))
        )

    def begun_by(self, text: str) -> frozenset[str]:
        """Returns the letters of the option, the longest one, with whose words ``text`` begins; none where there is none."""
        start = bare(text)
        for words, _ in self.phrases:
            if start.startswith(words) and ends_here(start, len(words)) and not is_other(start, 0, len(words)):
                return frozenset() if in_compound(start, words, 0, len(words)) else self.whole[words]
        return frozenset()

    def meant_in(self, text: str) -> set[str]:
        """Returns the letters of the options whose words ``text`` mentions and does not deny.

        Whole words (``112`` does not mention ``12``) and quantities (nor does ``12:30``, but ``12 or 13`` mentions both where
        both are options), and of overlapping mentions the longest (``red car``, not ``car``). Options that are a single
        letter, ``no`` or ``one`` are not looked for: ``a`` is an article.
        """
        sentence = fold_case(text)
        taken: list[tuple[int, int]] = []
        meant: set[str] = set()
        parts: set[str] = set()
        for words, letter in self.phrases:
            for start in _occurrences(sentence, words):
                end = start + len(words)
                if any(begin < end and start < stop for begin, stop in taken) or not _is_meant(sentence, words, start, end):
                    continue
                taken.append((start, end))
                if in_compound(sentence, words, start, end):
                    continue
                if not is_negated(sentence, start, end):
                    (parts if is_other(sentence, start, end) else meant).add(letter)
        return meant or (parts if len(parts) > 1 else set())


_LETTER_OF = re.compile(
    r"(?<![\w'-])(?P<open>[(\[\"']?)(?P<letter>[A-Z])(?:[)\]\"']?\s?[.:,=)]|[)\]]|\s-)\s?(?:(?:the|an?)\s)?(?=\w)"
)
_LETTER_BEHIND = re.compile(r"[,.:]?\s?[(\[](?:option )?(?P<letter>[A-Z])[)\]]")
_MOST_LETTERS = 200
"""Letters of a text, the last ones, that are compared with the words beside them."""


def contradicts(text: str, options: Options) -> bool:
    """Says whether a letter stands with the text of another option: "A. dog", "(A) dog" and "dog (A)" where B is the dog.

    Nobody knows which of the two was meant, in whatever form it is written.
    """
    for match in deque(_LETTER_OF.finditer(text), maxlen=_MOST_LETTERS):
        letter, rest = match["letter"], text[match.end() : match.end() + 2 * options.longest + _DECORATION]
        if letter in options.letters and not is_negated(text, match.start("letter"), match.end("letter")):
            begun = options.begun_by(rest)
            if begun and letter not in begun and not _closes_own_text(match, text, options):
                return True
    if "(" not in text and "[" not in text:
        return False
    lowered = text.lower()
    for words, own in options.phrases:
        for start in _occurrences(lowered, words):
            behind = _LETTER_BEHIND.match(text, start + len(words))
            if behind and behind["letter"] in options.letters - options.whole.get(words, frozenset({own})):
                return not is_negated(text, start, start + len(words))
    return False


def _closes_own_text(match: re.Match[str], text: str, options: Options) -> bool:
    """Says whether the letter stands in brackets behind its own text: of "2017 (C). 2018 (D)", C is 2017."""
    own = options.raw[match["letter"]].strip()
    before = text[max(0, match.start() - len(own) - 1) : match.start()].rstrip()
    return bool(own) and bool(match["open"]) and before.casefold().endswith(own.casefold())


@lru_cache(maxsize=4096)
def _prepare(items: tuple[tuple[str, str], ...]) -> Options:
    texts = [text for _, text in items]
    cells, pictures = are_cells(texts), are_pictures(texts)
    items = tuple((letter, _words_of(text, cells=cells)) for letter, text in items)
    whole: dict[str, set[str]] = {}
    for letter, text in items:
        whole.setdefault(bare(text), set()).add(letter)
    for words, number in (*_NUMBERS.items(), *((number, words) for words, number in _NUMBERS.items())):
        if number in whole and words not in whole:
            whole[words] = whole[number]
    for words in tuple(whole):
        for spelling in spellings(words):
            whole.setdefault(spelling, whole[words])
    whole.pop("", None)
    phrases = sorted(((words, letter) for words, letters in whole.items() for letter in letters), key=lambda item: -len(item[0]))
    return Options(
        letters=frozenset(letter for letter, _ in items),
        raw=dict(items),
        phrases=tuple((words, letter) for words, letter in phrases if not _says_little(words)),
        whole={words: frozenset(letters) for words, letters in whole.items()},
        longest=max(map(len, whole), default=0),
        folded=tuple(dict.fromkeys(fold_case(text) for _, text in items)),
        cells=cells,
        pictures=pictures,
    )


def _words_of(text: str, *, cells: bool) -> str:
    """Returns the words of an option, without its pictures."""
    return with_cells(text) if cells else text.replace(IMAGE_MARK, "")


def _says_little(words: str) -> bool:
    """Says whether ``words`` are too common to count inside a sentence: a single letter, ``no``, ``both``."""
    return words in _COMMON or (len(words) == 1 and words.isalpha() and words.isascii())


_COMMON: Final = frozenset(
    [
        "one",
        "no",
        "none",
        "both",
        "all",
        "neither",
        "either",
        "other",
        "others",
        "some",
        "any",
        "it",
        "this",
        "that",
        "these",
        "those",
        "here",
        "there",
        "not",
        "yes",
        "of",
        "as",
        "at",
        "by",
        "for",
        "to",
        "with",
        "and",
        "or",
        "is",
        "are",
        "be",
        "correct",
        "wrong",
        "more",
        "less",
    ]
)
_SIDES: Final = frozenset(["left", "right", "top", "bottom", "front", "back", "middle", "center", "centre", "upper", "lower"])
_PLACES: Final = frozenset(
    [
        "above",
        "below",
        "under",
        "underneath",
        "over",
        "behind",
        "beneath",
        "inside",
        "outside",
        "beside",
        "near",
        "on",
        "in",
        "up",
        "down",
        "between",
        "before",
        "after",
        "across",
        "around",
        "north",
        "south",
        "east",
        "west",
    ]
) | {"in front", "in front of", "next to", "to the left", "to the right"}
_SIDE_BEFORE = re.compile(
    r"\b(?:to|on|at|in|towards?|onto)\s(?:the|its|his|her|your|my|our|their)\s(?:[a-z]+\s)?$|^(?:the\s|its\s)?$"
)
_SIDE_AFTER = re.compile(r"(?:[-\s]hand)?\s(?:side|half|part|corner|edge|end)\b|\sof\b|\s*(?:[.,;:!?)]|$)")
_SIDE_AT_START = re.compile(r"(?:[-\s]hand)?\s(?:side|half|part|corner|edge|end)\b|\s(?:of|because|since)\b|[\s.]*$")
_PLACED = re.compile(
    r"(?:\b(?:is|are|was|were|be|sits?|lies?|stands?|hangs?|rests?|floats?|flies|stays?|placed|positioned|situated|located|seen|found|"
    r"hidden|visible|\w+ing)|'s)\s"
    r"(?:(?:directly|just|right|slightly|somewhere|clearly|immediately|placed|located|positioned|situated|far|well|definitely|probably)"
    r"\s)*$|^$"
)


def _is_meant(sentence: str, words: str, start: int, end: int) -> bool:
    """Says whether words that are also function words stand for a place: "on the left", not "she left" or "that's right"."""
    if sentence.startswith("'s ", end):
        return sentence.startswith("ing", sentence.find(" ", end + 3) - 3)
    if words in _SIDES:
        after = _SIDE_AFTER if start else _SIDE_AT_START
        return (
            _SIDE_BEFORE.search(sentence[max(0, start - _REACH) : start]) is not None and after.match(sentence, end) is not None
        )
    if words in _PLACES:
        return _PLACED.search(sentence[max(0, start - 2 * _REACH) : start]) is not None
    return True


def _occurrences(sentence: str, words: str) -> Iterator[int]:
    start = sentence.find(words)
    while start >= 0:
        if _begins_here(sentence, start) and ends_here(sentence, start + len(words)):
            yield start
        start = sentence.find(words, start + 1)


def _begins_here(text: str, position: int) -> bool:
    """Says whether a word begins at ``position``: not inside a word, and not inside a number such as ``-3`` or ``1.5``."""
    if not position or not _is_word(text[position]):
        return True
    before = text[position - 1]
    if _is_word(before) or (before in _JOINED and position > 1 and _is_word(text[position - 2])):
        return False
    if text[position].isdigit():
        return before not in "-+" and not (before in ".," and position > 1 and text[position - 2].isdigit())
    return True


def ends_here(text: str, position: int) -> bool:
    """Says whether a word ends at ``position``: not inside a word, and not inside a number such as ``1.5``."""
    if position >= len(text) or not _is_word(text[position - 1]):
        return True
    after = text[position]
    following = text[position + 1 : position + 2]
    if _is_word(after) or (after in _JOINED and bool(following) and _is_word(following)):
        return False
    return not (text[position - 1].isdigit() and after in ".," and following.isdigit())


def _is_word(character: str) -> bool:
    """Says whether ``character`` joins with its neighbours into one word; Chinese characters and kana do not."""
    return character == "_" or (character.isalnum() and not "\u3040" <= character <= "\u9fff")
