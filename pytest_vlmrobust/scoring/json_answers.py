"""JSON as models write it: anywhere in a text, with single or double quotes, in Python or JavaScript style, with extra commas.

The reader also accepts single quotes; quotes inside a string, unless the text after one makes it look like the end; ``None``,
``True`` and other bare words; bare keys; tuples; ``12%``, which becomes the text ``"12%"``; trailing commas; comments to the end
of a line. It skips unreadable parts. It reads a text once from left to right, so the time is linear in the length of
any text.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

from .text import Stop, straighten

DEEPEST = 24
"""Most levels of nesting that are read."""

_START = re.compile(r"\{(?!\s*+\{)|\[")
_SPACE = re.compile(r"(?:\s++|//[^\n]*+)*+")
_NUMBER = re.compile(r"[+-]?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(?:[eE][+-]?\d{1,3})?(?![\w.])(?P<percent>\s?%)?")
_BARE_KEY = re.compile(r"\w[\w \-]{0,60}?(?=\s*(?:[:=]|\Z))")
_QUOTED_KEY = re.compile(r"([\"'])((?:(?!\1)[^\n]){0,120})\1(?=\s*+(?:[:=]|\Z))")
_CUT_KEY = re.compile(r"[\"'][^\"'\n]{0,120}\Z")
_BARE_WORD = re.compile(r"[^\W\d][\w .\-]{0,60}?(?=\s*(?:[,}\])]|\Z))")
_MEMBER = r"[{\[}\]\d+\-.]|[\"'][^\"'\n]{0,240}[\"']\s*+(?:\Z|[:,}\]])|\w[\w \-]{0,40}\s*+:|(?:[Tt]rue|[Ff]alse|[Nn]one|null)\b"
_NEXT = rf"\s*+(?:\Z|[:}}\]]|,\s*+(?:\Z|{_MEMBER}))"
_ENDS: Final = {quote: re.compile(rf"(?<!\\){quote}(?={_NEXT})") for quote in "\"'"}
"""A quotation mark that ends a string: the object or list continues, or ends, after it."""
_CONSTANTS: Final = {"null": None, "none": None, "true": True, "false": False}
_CLOSING: Final = {"[": "]", "(": ")"}
_BETWEEN_COPIES = re.compile(r"(?:[\W_]|json)*", re.IGNORECASE)


class JsonValue(NamedTuple):
    """An object or a list, and its position in the text."""

    value: Any
    start: int
    end: int


class Document(NamedTuple):
    """Every outermost object and list of a text, in order."""

    values: tuple[JsonValue, ...] = ()
    cut: int | None = None
    """Position of an object or list that the end of the text cuts off."""


def read_json(text: str) -> Document:
    """Returns the objects and lists of ``text``; never raises.

    An object or list cut off by the end of the text is ``cut``, unless it repeats the previous one: a model that
    repeats itself until it is stopped has answered.

    >>> read_json("So: {'left_eye': (1, 2, 3, 4,), nose: None}").values[0].value
    {'left_eye': [1, 2, 3, 4], 'nose': None}
    """
    reader, values, position = _Reader(text), list[JsonValue](), 0
    while start := _START.search(text, position):
        try:
            value, position = reader.value(start.start(), 0)
        except _BrokenError as error:
            position = max(error.position, start.end())
        except _CutError:
            copy = bool(values) and _is_copy(text, values[-1], start.start())
            return Document(tuple(values), None if copy else start.start())
        else:
            values.append(JsonValue(value, start.start(), position))
    return Document(tuple(values))


def read_value(text: str, position: int) -> Any:
    """Returns the value that begins at ``position``.

    Raises EOFError if the text ends inside it, and ValueError if it cannot be read.
    """
    return _Reader(text).value(position, 0)[0]


class _BrokenError(ValueError):
    """An unreadable value; ``position`` is where reading stopped."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


class _CutError(EOFError):
    """The text ends in the middle of a value."""


def _is_copy(text: str, before: JsonValue, start: int) -> bool:
    rest = text[start:].rstrip()
    return _BETWEEN_COPIES.fullmatch(text, before.end, start) is not None and text[before.start : before.end].startswith(rest)


class _Reader:
    """Reads values from a text; each method takes a position and returns the value and its end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ends: dict[str, list[int]] = {}

    def value(self, position: int, depth: int) -> tuple[Any, int]:
        """Returns the value that begins at ``position``, after blanks."""
        position = self._start(position)
        first = self._text[position]
        if first in "{[(" and depth >= DEEPEST:
            raise _BrokenError(position)
        if first == "{":
            return self._object(position + 1, depth + 1)
        if first in _CLOSING:
            return self._list(position + 1, depth + 1, _CLOSING[first])
        return self._string(position) if first in _ENDS else self._bare(position)

    def _object(self, position: int, depth: int) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        while self._text[position := self._start(position)] != "}":
            key, position = self._key(position)
            position = self._start(position)
            if self._text[position] not in ":=":
                raise _BrokenError(position)
            members[key], position = self.value(position + 1, depth)
            position = self._after_item(position, "}")
        return members, position + 1

    def _list(self, position: int, depth: int, closing: str) -> tuple[list[Any], int]:
        items: list[Any] = []
        while self._text[position := self._start(position)] != closing:
            item, position = self.value(position, depth)
            items.append(item)
            position = self._after_item(position, closing)
        return items, position + 1

    def _after_item(self, position: int, closing: str) -> int:
        """Returns the position to search for the next item or the closing bracket."""
        position = self._start(position)
        if self._text[position] == ",":
            return position + 1
        if self._text[position] != closing:
            raise _BrokenError(position)
        return position

    def _key(self, position: int) -> tuple[str, int]:
        quoted = _QUOTED_KEY.match(self._text, position)
        if quoted:
            return _unescape(quoted[2]), quoted.end()
        bare = _BARE_KEY.match(self._text, position)
        if bare:
            return bare[0], bare.end()
        raise _CutError if _CUT_KEY.match(self._text, position) else _BrokenError(position)

    def _string(self, position: int) -> tuple[str, int]:
        quote = self._text[position]
        if quote not in self._ends:
            self._ends[quote] = [match.start() for match in _ENDS[quote].finditer(self._text)]
        ends = self._ends[quote]
        place = bisect_left(ends, position + 1)
        if place == len(ends):
            raise _CutError
        return _unescape(self._text[position + 1 : ends[place]]), ends[place] + 1

    def _bare(self, position: int) -> tuple[Any, int]:
        number = _NUMBER.match(self._text, position)
        if number:
            return _number(number), number.end()
        word = _BARE_WORD.match(self._text, position)
        if not word:
            raise _BrokenError(position)
        return _CONSTANTS.get(word[0].lower(), word[0]), word.end()

    def _start(self, position: int) -> int:
        """Returns the position after blanks and comments; raises at the end of the text."""
        match = _SPACE.match(self._text, position)
        position = match.end() if match else position
        if position == len(self._text):
            raise _CutError
        return position


def _number(match: re.Match[str]) -> int | float | str:
    if match["percent"]:
        return "".join(match[0].split())
    return int(match[0]) if match[0].lstrip("+-").isdecimal() else float(match[0])


def _unescape(content: str) -> str:
    if "\\" not in content:
        return content
    try:
        return str(json.loads(f'"{content}"', strict=False))
    except ValueError:  # not as JSON escapes: only the words count
        return content


# The answer to a question with options in JSON: ``{"reasoning": …, "final_answer": "B"}``.


LESSER_KEYS: Final = ("answer", "choice", "option")
"""Names of the answer that are also ordinary words: read only in an object with further members."""

_FINAL = re.compile(r"final(?:_answer[\"']?|[ -]?answer[\"'])\s*[:=]")
"""Searched in lower case. With a blank it needs a quotation mark: other rules read "the final answer: B"."""
_OBJECT = re.compile(r"\{\s*[\"'][\w \-]{1,60}[\"']\s*:")
_END_OF_PHRASE = re.compile(r"[,}\n]")


def answer_in_json(reply: str) -> str | Stop | None:
    """Returns the answer of the objects in a reply; None without one."""
    if "{" not in reply:
        return None
    text = straighten(reply)
    document = read_json(text)
    return final_answer(text, document) or lesser_answer(document)


def final_answer(text: str, document: Document) -> str | Stop | None:
    """Returns the text of the last ``final_answer``; a stop if an object is cut off or the answer has several values."""
    if document.cut is not None and _OBJECT.match(text, document.cut):
        return Stop.TRUNCATED
    matches = list(_FINAL.finditer(text.lower()))
    return _after(text, matches[-1].end()) if matches else None


def lesser_answer(document: Document) -> str | Stop | None:
    """Returns the text of the last ``answer``, ``choice`` or ``option`` of an object with other members.

    The only member of an outermost object counts too; with several objects, only if it is called ``answer`` or ``cell``. Returns
    a stop if an object or list has several answers: it discusses the options, and the choice is unknown.
    """
    several = sum(isinstance(item.value, dict) for item in document.values) > 1
    alone = {"answer", "cell"} if several else {"cell", *LESSER_KEYS}
    for item in reversed(document.values):
        phrases = set(_lesser(item.value)) or _outermost(item.value, alone)
        if phrases:
            return phrases.pop() if len(phrases) == 1 else Stop.AMBIGUOUS
    return None


def _after(text: str, position: int) -> str | Stop:
    try:
        return _phrase(read_value(text, position))
    except EOFError:
        return Stop.TRUNCATED
    except ValueError:  # words without quotes
        return _END_OF_PHRASE.split(text[position:], maxsplit=1)[0]


def _lesser(value: Any) -> Iterator[str | Stop]:
    if isinstance(value, dict):
        members = {key.strip().casefold(): member for key, member in value.items()}
        answers = [members[key] for key in LESSER_KEYS if key in members] if len(members) > 1 else []
        if answers:
            yield next((_phrase(answer) for answer in answers if answer is not None), Stop.NONE)
            return
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _lesser(member)


def _outermost(value: Any, names: Collection[str]) -> set[str | Stop]:
    members = value.items() if isinstance(value, dict) else ()
    return {_phrase(member) for name, member in members if name.strip().casefold() in names}


def _phrase(value: Any) -> str | Stop:
    """Returns a value as text: text unchanged, ``[0, 1]`` and ``{"row": 0, "column": 1}`` as ``[0,1]``."""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, dict):
        return _phrase_of_object({key.strip().casefold(): member for key, member in value.items()})
    if not isinstance(value, list) or not value:
        return Stop.NONE
    if len(value) == 1:
        return _phrase(value[0])
    return f"[{','.join(map(str, value))}]" if all(type(item) is int for item in value) else Stop.AMBIGUOUS


def _phrase_of_object(members: dict[str, Any]) -> str | Stop:
    column = members.get("column", members.get("col"))
    if "row" in members and column is not None:
        return f"[{members['row']},{column}]"
    return next((_phrase(members[key]) for key in (*LESSER_KEYS, "letter", "cell") if key in members), Stop.NONE)
