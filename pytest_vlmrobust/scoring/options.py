"""The options of a question, and where a text mentions them by their words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pytest_vlmrobust.core.sample import IMAGE_MARK

from .extraction import Outcome, Stop, agreed
from .negation import negated
from .quantities import is_other, spellings
from .spellings import are_cells, are_pictures, with_cells
from .text import NUMBER_WORDS, bare, folded, stripped

_CAPITAL_A = re.compile(r"\W*A\s")
_DECORATION = 80
"""Characters of blanks, quotes and articles around a text that is an option's."""
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
    cells: bool = False
    """All are cells of a grid, spelled ``[row,column]``."""
    pictures: bool = False
    """All are pictures: there are no words to be mentioned."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        """Returns the prepared options; the same options are prepared once."""
        return _prepared(tuple(options.items()))

    def exact(self, text: str) -> Outcome:
        """Returns the letter of the option that ``text`` is, ignoring case, articles and punctuation at its ends.

        Of options that differ in nothing else, the one that is spelled exactly so; failing that, a stop. ``A dog`` is a stop
        where ``dog`` is not option A: its first word may be an article or a letter.
        """
        if len(text) > 2 * self.longest + _DECORATION:
            return None
        letters = self.whole.get(bare(text), frozenset())
        spelled = {letter for letter in letters if stripped(self.raw[letter]) == stripped(text)}
        if letters and not spelled and _CAPITAL_A.match(text) and "A" in self.letters - letters:
            return Stop.AMBIGUOUS
        return agreed(spelled or set(letters))

    def begins(self, text: str, letter: str) -> bool:
        """Says whether ``text`` begins with the words of the option ``letter``."""
        words = bare(self.raw[letter])
        start = bare(text[: 2 * len(words) + _DECORATION])
        return bool(words) and start.startswith(words) and ends_here(start, len(words))

    def meant_in(self, text: str) -> set[str]:
        """Returns the letters of the options whose words ``text`` mentions and does not deny.

        Whole words (``112`` does not mention ``12``) and quantities (nor does ``12:30``, but ``12 or 13`` mentions both where
        both are options), and of overlapping mentions the longest (``red car``, not ``car``). Options that are a single
        letter, ``no`` or ``one`` are not looked for: ``a`` is an article.
        """
        sentence = folded(text)
        taken: list[tuple[int, int]] = []
        meant: set[str] = set()
        parts: set[str] = set()
        for words, letter in self.phrases:
            for start in _occurrences(sentence, words):
                end = start + len(words)
                if any(begin < end and start < stop for begin, stop in taken):
                    continue
                taken.append((start, end))
                if not negated(sentence, start, end):
                    (parts if is_other(sentence, start, end) else meant).add(letter)
        return meant or (parts if len(parts) > 1 else set())


@lru_cache(maxsize=4096)
def _prepared(items: tuple[tuple[str, str], ...]) -> Options:
    texts = [text for _, text in items]
    cells, pictures = are_cells(texts), are_pictures(texts)
    items = tuple((letter, _worded(text, cells=cells)) for letter, text in items)
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
        cells=cells,
        pictures=pictures,
    )


def _worded(text: str, *, cells: bool) -> str:
    """Returns the words of an option: a picture in it has none."""
    return with_cells(text) if cells else text.replace(IMAGE_MARK, "")


def _says_little(words: str) -> bool:
    """Says whether ``words`` inside a sentence mean nothing: ``a`` and ``no`` come before nouns, ``one`` may be a pronoun."""
    return words in {"one", "no"} or (len(words) == 1 and words.isalpha() and words.isascii())


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
