"""Of all the boxes that a text states, which ones are the answer? Those that go on with one another, up to the last.

Boxes of different attributes, one after the other, are one answer, whatever remarks stand between them. A box that takes the place
of another begins a new answer. What a new answer leaves out is owed: the model gave a box, and nobody can tell whether it still
stands. An answer that owes something is none, unless the text says that it replaces what stood before or is about another picture.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from .box_forms import RawBox

UNNAMED: Final = frozenset({"bare", "none_found"})
"""Rules that read what is not called by the name of an attribute: any reading by another rule comes before them."""
LONGEST_REMARK = 300
"""Characters between two boxes of one answer, at most."""

FIRST: Final = "first"
SECOND: Final = "second"

_PICTURE = r"\s(?:picture|image|photo)"
_MENTION = (
    rf"(?:(?P<first>in\sthe\sfirst(?=\W*\Z|\W*[:,(\[{{)])|(?:first|1st|reference|support|previous){_PICTURE}|{_PICTURE[2:]}\s#?(?:1|one|A)(?!\w))"
    rf"|(?P<second>in\sthe\ssecond(?=\W*\Z|\W*[:,(\[{{)])|(?:second|2nd|query|target){_PICTURE}|{_PICTURE[2:]}\s#?(?:2|two|B)(?!\w)))"
)
_MENTIONED = re.compile(rf"(?<!\w){_MENTION}", re.IGNORECASE)
_AFTERWARDS = re.compile(
    rf"[\s\"'`]{{0,9}}(?:\((?:(?:in|of|for|from|on)\s)?(?:the\s)?{_MENTION}\)|(?:(?=in\sthe)|(?:in|of|for|from|on)\s(?:the\s)?){_MENTION})".replace(
        "(?P<first>", "(?P<{n}>", 0
    )
)
