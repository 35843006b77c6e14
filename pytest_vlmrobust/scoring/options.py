"""The options of a question, and their mentions in words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.sample import IMAGE_MARK

from .text import NUMBER_WORDS, Outcome, bare, only_answer, plain_text, strip_ends
from .words import roles_of

# Options that are numbers or measures: 12 is not the quantity in "12:30" or "at least 12", and "5cm" is "5 cm".


_REACH = 24
"""Characters around a number that are checked for another quantity."""

_WORDS = "|".join(NUMBER_WORDS)
_NUMBER = re.compile(rf"\d[\d.,]*|{_WORDS}")
_MEASURE = re.compile(r"(\d[\d.,]*)\s?([^\W\d_]{1,6}[23²³]?|%|°[cf]?)")
_THOUSANDS = re.compile(r"[1-9]\d{3,14}|[1-9]\d{0,2}(?:,\d{3}){1,4}")
_SPAN = re.compile(r"(\d[\d.,]*)-(\d[\d.,]*)")
_COMPOUND = re.compile(r"[a-z]{2,} [a-z]{2,}|[a-z]+-[a-z]+")
_SIGN = r"(?:\s?(?:[+*/\u00d7÷^~-]|\bx\b|\b(?:or|to|and|plus|minus|times|divided by)\b)\s?|:)"
_BEFORE = re.compile(
    rf"(?:(?:\d|\b(?:{_WORDS})){_SIGN}|"
    r"\b(?:at (?:least|most)|over|under|above|below|up to|nearly|almost|between|before|after|since|until|minus|negative)\s)$"
)
_AFTER = re.compile(
    rf"{_SIGN}(?:\d|(?:{_WORDS})\b)|\+"
    r"|\s(?:or|and) (?:more|less|fewer|above|below|over|under)\b|\sat (?:least|most)\b|\sand a half\b"
)


def is_other(sentence: str, start: int, end: int) -> bool:
    """Whether the number ``sentence[start:end]`` (lower case) is part of another quantity, or one of several.

    >>> is_other("12 + 3 = 15", 0, 2), is_other("it is at least 12", 15, 17), is_other("9 + 3 = 12", 8, 10)
    (True, True, False)
    """
    if not _NUMBER.fullmatch(sentence, start, end):
        return False
    return _BEFORE.search(sentence[max(0, start - _REACH) : start]) is not None or _AFTER.match(sentence, end) is not None


def spellings(words: str) -> tuple[str, ...]:
    """Returns other spellings of a measure, an equation, a large number or two words: ``5cm``, ``x = 2``, ``top-left``."""
    if _THOUSANDS.fullmatch(words):
        number = int(words.replace(",", ""))
        return f"{number:,}", str(number), f"{number:,}".replace(",", " ")
    if _COMPOUND.fullmatch(words):
        first, last = re.split("[ -]", words)
        return f"{first} {last}", f"{first}-{last}", f"{first}{last}"
    if "=" in words:
        return tuple(sign.join(part.strip() for part in words.split("=")) for sign in ("=", " = "))
    if span := _SPAN.fullmatch(words):
        return f"{span[1]} to {span[2]}", f"{span[1]} - {span[2]}", f"between {span[1]} and {span[2]}"
    match = _MEASURE.fullmatch(words)
    return (f"{match[1]} {match[2]}", f"{match[1]}{match[2]}") if match else ()


# Options that are cells of a grid, or images, have no words. Different spellings of them are unified.


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
    """Says whether all options are images, without a word."""
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
    """Returns ``text`` with images called options: ``the image B`` is ``option B``."""
    return _PICTURE.sub("option ", text)


_WHOLE_NUMBER = re.compile(r"(?<=\d)\.0+$")
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
    """Characters of the longest normalised text."""
    lowered: Mapping[str, str]
    """Every text in lower case, on one line."""
    cells: bool = False
    """All are cells of a grid, spelled ``[row,column]``."""
    pictures: bool = False
    """All are images, so there are no words to mention."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        """Returns the prepared options; the same options are prepared once."""
        return _prepare(tuple(options.items()))

    def spelled(self, text: str) -> str:
        """Returns ``text`` with cells and images named as in the options."""
        return with_cells(text) if self.cells else with_lettered_pictures(text) if self.pictures else text

    def exact(self, text: str) -> Outcome:
        """Returns the letter of the option equal to ``text``, ignoring case, articles and punctuation at its ends.

        Among options that differ only in these, the one with the exact spelling; a stop if there is none. The "A" of ``A dog`` is
        its article.
        """
        if len(text) > 2 * self.longest + _DECORATION:
            return None
        words = bare(text)
        letters = self.whole.get(words) or self.whole.get(_WHOLE_NUMBER.sub("", words), frozenset())
        spelled = {letter for letter in letters if strip_ends(self.raw[letter]) == strip_ends(text)}
        return only_answer(spelled or set(letters))

    def begins(self, text: str, letter: str) -> int:
        """Returns the length of the option ``letter`` at the beginning of ``text``; 0 if it does not begin with it."""
        option = self.lowered[letter]
        lead = len(text) - len(text.lstrip(_OPENING))
        article = _ARTICLE.match(text, lead)
        for begin in (lead, article.end() if article else lead):
            end = begin + len(option)
            if option and text[begin:end].lower().replace("\n", " ") == option and ends_here(text, end):
                return end
        return 0

    def begun_by(self, text: str) -> frozenset[str]:
        """Returns the letters of the longest option at the beginning of ``text``; empty if none."""
        start = bare(text)
        for words, _ in self.phrases:
            if start.startswith(words) and ends_here(start, len(words)) and not is_other(start, 0, len(words)):
                return frozenset() if _in_compound(start, 0, len(words)) else self.whole[words]
        return frozenset()

    def mentions(self, lowered: str) -> list[tuple[int, int, frozenset[str], bool]]:
        """Returns the mentions of options by words in a lower-case text: start, end, letters, and whether it is one of several.

        Only whole words (``112`` does not mention ``12``) and quantities (nor does ``12:30``, but ``12 or 13`` mentions both if
        both are options); of overlapping mentions the longest (``red car``, not ``car``). Options that are a single
        letter, ``no`` or ``one`` are not searched: ``a`` is an article.
        """
        sentence = lowered.replace("\n", " ")
        taken: list[tuple[int, int, frozenset[str], bool]] = []
        for words, _ in self.phrases:
            if words not in sentence:
                continue
            for start in _occurrences(sentence, words):
                end = start + len(words)
                if any(begin < end and start < stop for begin, stop, _, _ in taken) or not _is_meant(sentence, words, start, end):
                    continue
                letters = frozenset() if _in_compound(sentence, start, end) else self.whole[words]
                if letters and _ORDINAL.fullmatch(words) and _NUMBERED.search(sentence, max(0, start - _REACH), start):
                    letters |= frozenset(sorted(self.letters)[int(words) - 1 : int(words)])
                taken.append((start, end, letters, is_other(sentence, start, end)))
        return sorted(each for each in taken if each[2])


_OPENING = " \n\"'([{"
_ARTICLE = re.compile(r"(?:[Tt]he|[Aa]n?)\s+(?=\S)")
_WORD_BEFORE = re.compile(r"[\w']+[ -]\Z")
_WORD_BEHIND = re.compile(r"[ -]\w+")


def _in_compound(sentence: str, start: int, end: int) -> bool:
    """Whether lower-case words are part of a compound with another meaning, such as "hot dog"."""
    before, behind = _WORD_BEFORE.search(sentence, max(0, start - _REACH), start), _WORD_BEHIND.match(sentence, end)
    if not before and not behind:
        return False
    first, last = sentence[start:end].partition(" ")[0], sentence[start:end].rpartition(" ")[2]
    pairs = (f"{before[0][:-1]} {first}" if before else "", f"{last} {behind[0][1:]}" if behind else "")
    return any("compounds" in roles_of(pair) for pair in pairs)


@lru_cache(maxsize=4096)
def _prepare(items: tuple[tuple[str, str], ...]) -> Options:
    texts = [text for _, text in items]
    cells, pictures = are_cells(texts), are_pictures(texts)
    items = tuple((letter, _words_of(text, cells=cells)) for letter, text in items)
    if all(re.match(rf"\W?{letter}[.):]\s*\S", text) for letter, text in items):  # texts that bring their letter: "A. cat"
        items = tuple((letter, text.partition(letter)[2].lstrip(".): ")) for letter, text in items)
    whole: dict[str, set[str]] = {}
    for letter, text in items:
        whole.setdefault(bare(text), set()).add(letter)
    nouns = _without_noun(whole)
    _add_spellings(whole)
    whole.pop("", None)
    phrases = sorted(((words, letter) for words, letters in whole.items() for letter in letters), key=lambda item: -len(item[0]))
    for words, letters in nouns.items():  # whole answers only: "first" also begins a list of reasons
        whole.setdefault(words, letters)
    return Options(
        letters=frozenset(letter for letter, _ in items),
        raw=dict(items),
        phrases=tuple((words, letter) for words, letter in phrases if not _says_little(words)),
        whole={words: frozenset(letters) for words, letters in whole.items()},
        longest=max(map(len, whole), default=0),
        lowered={letter: " ".join(plain_text(text).split()).strip(_OPENING + ".,;:!?)]}").lower() for letter, text in items},
        cells=cells,
        pictures=pictures,
    )


def _add_spellings(whole: dict[str, set[str]]) -> None:
    for words, number in (*_NUMBERS.items(), *((number, words) for words, number in _NUMBERS.items())):
        if number in whole and words not in whole:
            whole[words] = whole[number]
    for said in ("yes", "no"):  # "Yes, it is"
        begun = [letters for words, letters in whole.items() if words.startswith((f"{said},", f"{said}."))]
        if len(begun) == 1 and len(begun[0]) == 1:
            whole.setdefault(said, begun[0])
    counts = any(words.isdigit() for words in whole)
    for words in tuple(whole):
        for spelling in spellings(words):
            whole.setdefault(spelling, whole[words])
        if not counts and words.isalpha() and words.isascii() and len(words) > 2 and words[-1] != "s":
            whole.setdefault(f"{words}s", whole[words])
        for more in ("one", "side", "hand side", "-hand side") if "side" in roles_of(words) else ():
            whole.setdefault(f"{words} {more}".replace(" -", "-"), whole[words])


def _without_noun(whole: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Returns texts without the noun at the end of all of them, and with "one" in its place: ``first``, ``second one``."""
    parts = [(words.rpartition(" "), letters) for words, letters in whole.items()]
    if (
        len(parts) < 2
        or len({noun.removesuffix("s") for (_, _, noun), _ in parts}) > 1
        or not all(first for (first, _, _), _ in parts)
    ):
        return {}
    return {spelled: letters for (first, _, _), letters in parts for spelled in (first, f"{first} one")}


def _words_of(text: str, *, cells: bool) -> str:
    """Returns the words of an option in the characters in which texts are read (``H2O``), without its images."""
    return unicodedata.normalize("NFKC", with_cells(text) if cells else text.replace(IMAGE_MARK, ""))


def _says_little(words: str) -> bool:
    """Says whether ``words`` are too common to count inside a sentence: a single letter, ``no``, ``both``."""
    return "little" in roles_of(words) or (len(words) == 1 and words.isalpha() and words.isascii())


_SIDE_BEFORE = re.compile(
    r"\b(?:to|on|at|in|towards?|onto)\s(?:the|its|his|her|your|my|our|their)\s(?:[a-z]+\s)?$|^(?:the\s|its\s)?$|,\sso\s$"
)
_SIDE_AFTER = re.compile(r"(?:[-\s]hand)?\s(?:side|half|part|corner|edge|end)\b|\sof\b|\s*(?:[.,;:!?)]|$)")
_SIDE_AT_START = re.compile(r"(?:[-\s]hand)?\s(?:side|half|part|corner|edge|end)\b|\s(?:of|because|since)\b|[\s.]*$")
_PLACED = re.compile(
    r"(?:\b(?:is|are|was|were|be|sits?|lies?|stands?|hangs?|rests?|floats?|flies|stays?|placed|positioned|situated|located|seen|found|"
    r"hidden|visible|\w+ing|points?|faces?|heads?|leads?|moves?|goes|blows)|'s)\s"
    r"(?:(?:directly|just|right|slightly|somewhere|clearly|immediately|placed|located|positioned|situated|far|well|definitely|probably|due|to|towards?|the|from)"
    r"\s)*$"
    r"|^(?:(?:in|to|towards?|from)\s)?(?:the\s)?$|\b(?:in|to|towards?|from)\sthe\s$"
)


_NUMBERED, _ORDINAL = re.compile(r"\b(?:option|choice) (?:number |no\. ?|#)?\Z"), re.compile(r"[1-9]\d?")
"""Words behind which a number may be that of an option as well as its text: "option 2"."""
_STATED = re.compile(r"\b(?:answer|option|choice)(?: is|:)? (?:the )?\Z")


def _is_meant(sentence: str, words: str, start: int, end: int) -> bool:
    """Whether an ambiguous word means a place: "on the left", not "she left" or "that's right"."""
    if sentence.startswith("'s ", end):
        return sentence.startswith("ing", sentence.find(" ", end + 3) - 3)
    if _STATED.search(sentence, max(0, start - _REACH), start):
        return True
    if "side" in roles_of(words):
        after = _SIDE_AFTER if start else _SIDE_AT_START
        return (
            _SIDE_BEFORE.search(sentence[max(0, start - _REACH) : start]) is not None and after.match(sentence, end) is not None
        )
    if "place" in roles_of(words):
        return _PLACED.search(sentence[max(0, start - 2 * _REACH) : start]) is not None
    return True


_MOST_MENTIONS = 100


def _occurrences(sentence: str, words: str) -> Iterator[int]:
    """Yields the positions of ``words`` as whole words, from the end of the sentence, up to a limit."""
    start = len(sentence)
    for _ in range(_MOST_MENTIONS):
        start = sentence.rfind(words, 0, start + len(words) - 1)
        if start < 0:
            return
        if _begins_here(sentence, start) and ends_here(sentence, start + len(words)):
            yield start


_THIN: Final = " \u00a0\u2009\u202f"
_GROUP_BEFORE, _GROUP = re.compile(rf"(?<!\d)[1-9]\d{{0,2}}[{_THIN}]\Z"), re.compile(r"\d{3}(?!\d)")
"""Digits of a number whose thousands are set apart by blanks: ``10 000``."""


_NO_FRACTION = re.compile(r"\.0+(?![\w%]|[.,]\d)")
_ELISION = re.compile(r"(?<!\w)(?:[cdjlmnst]|qu|un|all|[dn]ell|[sd]all|sull)'\Z")


def _begins_here(text: str, position: int) -> bool:
    """Whether a word begins at ``position``: not inside a word or a number such as ``-3`` or ``1.5``."""
    if not position or not _is_word(text[position]):
        return True
    before = text[position - 1]
    if _is_word(before) or (before in _JOINED and position > 1 and _is_word(text[position - 2])):
        return before == "'" and _ELISION.search(text, max(0, position - 6), position) is not None
    if text[position].isdigit():
        if before in _THIN and _GROUP_BEFORE.search(text, max(0, position - 5), position) and _GROUP.match(text, position):
            return False
        return before not in "-+" and not (
            before in ".," and position > 1 and (text[position - 2].isdigit() or text[position - 2] == " ")
        )
    return True


def ends_here(text: str, position: int) -> bool:
    """Whether a word ends at ``position``: not inside a word or a number such as ``1.5``."""
    if position >= len(text) or not _is_word(text[position - 1]):
        return True
    after = text[position]
    if after in _THIN and _GROUP.match(text, position + 1) and _GROUP_BEFORE.search(text, max(0, position - 4), position + 1):
        return False
    if text[position - 1].isdigit() and _NO_FRACTION.match(text, position):
        return True
    following = text[position + 1 : position + 2]
    if _is_word(after) or (after in _JOINED and bool(following) and _is_word(following)):
        return False
    return not (text[position - 1].isdigit() and after in ".," and following.isdigit())


def _is_word(character: str) -> bool:
    """Whether ``character`` forms words with its neighbours; Chinese characters and kana do not."""
    return character == "_" or (character.isalnum() and not "\u3040" <= character <= "\u9fff")
