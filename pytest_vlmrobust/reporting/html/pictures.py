"""Pictures: thumbnails of the store as text that a page can hold, each once, and no more of them than a page should carry."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from pathlib import Path

from pytest_vlmrobust.core.record import Record

BUDGET = 3_000_000
"""Bytes of thumbnails in one page, before they are written as text."""
_NAME = re.compile(r"[0-9a-f]{8,128}\.webp\Z")
_SIGNATURE = (b"RIFF", b"WEBP")


def embedded(records: Sequence[Record], folder: Path | None, budget: int = BUDGET) -> dict[str, str]:
    """Returns thumbnails by file name, as base64 of WebP; those that are not there, or too much, are left out.

    The first example of each test comes before the second of any, and tests in the order given: so the worst come first.
    """
    found: dict[str, str] = {}
    if folder is None:
        return found
    left = budget
    for name in dict.fromkeys(_in_order(records)):
        content = _content(folder, name)
        if content is not None and len(content) <= left:
            found[name] = base64.b64encode(content).decode("ascii")
            left -= len(content)
    return found


def named(records: Iterable[Record]) -> set[str]:
    """Returns the files of all pictures that records speak of."""
    return {picture.file for record in records for example in record.examples for picture in example.pictures}


def _in_order(records: Sequence[Record]) -> Iterator[str]:
    by_rank = zip_longest(*(record.examples for record in records))
    for example in chain.from_iterable(by_rank):
        if example is not None:
            yield from (picture.file for picture in example.pictures)


def _content(folder: Path, name: str) -> bytes | None:
    """Returns a thumbnail; nothing for a name that is no digest, such as a path, and for a file that is no WebP."""
    if not _NAME.match(name):
        return None
    try:
        content = (folder / name).read_bytes()
    except OSError:
        return None
    return content if (content[:4], content[8:12]) == _SIGNATURE else None
