"""The answer to a question with options in JSON: ``{"reasoning": …, "final_answer": "B"}``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from .extraction import Stop
from .json_answers import Document, read_value

LESSER_KEYS: Final = ("answer", "choice", "option")
"""Names of the answer that are also words of sentences: read in an object that says something else, too."""

_FINAL = re.compile(r"final(?:_answer[\"']?|[ -]?answer[\"'])\s*[:=]")
"""Looked for in lower case; in words it needs a quotation mark, as "the final answer: B" is for other rules."""
_OBJECT = re.compile(r"\{\s*[\"'][\w \-]{1,60}[\"']\s*:")
_END_OF_PHRASE = re.compile(r"[,}\n]")


def final_answer(said: str, document: Document) -> str | Stop | None:
    """Returns the words of the last ``final_answer``; a stop where an object is cut off or it says several things.

    Args:
        said: what the model said, straightened.
        document: the objects and lists in it.
    """
    if document.cut is not None and _OBJECT.match(said, document.cut):
        return Stop.TRUNCATED
    found = list(_FINAL.finditer(said.lower()))
    return _after(said, found[-1].end()) if found else None


def lesser_answer(document: Document) -> str | Stop | None:
    """Returns the words of the last ``answer``, ``choice`` or ``option`` of an object that has other members, too.

    Of several outermost objects, also an ``answer`` that is all that one says, and a ``cell`` of any outermost object. A stop
    where one object or list says several: it is about each option, and which one is chosen cannot be told.
    """
    alone = {"answer", "cell"} if sum(isinstance(found.value, dict) for found in document.values) > 1 else {"cell"}
    for found in reversed(document.values):
        phrases = set(_lesser(found.value)) or _outermost(found.value, alone)
        if phrases:
            return phrases.pop() if len(phrases) == 1 else Stop.AMBIGUOUS
    return None


def _after(said: str, position: int) -> str | Stop:
    try:
        return _phrase(read_value(said, position))
    except EOFError:
        return Stop.TRUNCATED
    except ValueError:  # words without quotes
        return _END_OF_PHRASE.split(said[position:], maxsplit=1)[0]


def _lesser(value: Any) -> Iterator[str | Stop]:
    if isinstance(value, dict):
        members = {key.strip().casefold(): member for key, member in value.items()}
        answer = next((members[key] for key in LESSER_KEYS if key in members), None)
        if answer is not None and len(members) > 1:
            yield _phrase(answer)
            return
    for member in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _lesser(member)


def _outermost(value: Any, names: Collection[str]) -> set[str | Stop]:
    members = value.items() if isinstance(value, dict) else ()
    return {_phrase(member) for name, member in members if name.strip().casefold() in names}


def _phrase(value: Any) -> str | Stop:
    """Returns a value as words: text as it is, ``[0, 1]`` and ``{"row": 0, "column": 1}`` as ``[0,1]``."""
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
    return next((_phrase(members[key]) for key in (*LESSER_KEYS, "cell") if key in members), Stop.NONE)
