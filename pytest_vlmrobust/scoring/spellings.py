"""Options that are cells of a grid or pictures have no words of their own: other ways to say them are put into one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_vlmrobust.core.sample import IMAGE_MARK

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
    found = list(texts)
    return bool(found) and all(_BRACKETED.fullmatch(text.strip()) for text in found)


def are_pictures(texts: Iterable[str]) -> bool:
    """Says whether all options are pictures, without a word."""
    found = list(texts)
    return bool(found) and all(text.strip() == IMAGE_MARK for text in found)


def with_cells(text: str) -> str:
    """Returns ``text`` with every cell of a grid spelled ``[row,column]``; both are counted from 0 as the options are.

    Of an object in JSON, the members ``row`` and ``column`` become one, ``cell``.

    >>> with_cells("It is (0, 1), that is, row 0, column 1.")
    'It is [0,1], that is, [0,1].'
    """
    spelled = _ROW_MEMBER_FIRST.sub(r'"cell": [\1,\2]', _BRACKETED.sub(r"[\1,\2]", text))
    spelled = _COLUMN_MEMBER_FIRST.sub(r'"cell": [\2,\1]', spelled)
    return _COLUMN_FIRST.sub(r"[\2,\1]", _ROW_FIRST.sub(r"[\1,\2]", spelled))


def with_lettered_pictures(text: str) -> str:
    """Returns ``text`` with pictures called options: ``the image B`` is ``option B``."""
    return _PICTURE.sub("option ", text)
