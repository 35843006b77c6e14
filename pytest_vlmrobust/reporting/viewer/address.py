"""Addresses of the viewer: the selected runs, filter, order, and the current answer.

An address is the whole state of a page, so it can be shared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from pytest_vlmrobust.core.decision import WORST_FIRST
from pytest_vlmrobust.core.errors import UnknownName, UsageError
from pytest_vlmrobust.store.searching import FLIPS, SORTS, STATES, AnswerFilter

LONGEST_VALUE = 400
"""Characters of a value in an address."""
_MOST_VALUES = 40
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Address:
    """The content of an address; unknown values are refused."""

    run: tuple[str, ...] = ()
    model: str = ""
    dataset: str = ""
    setting: str = ""
    state: str = ""
    flip: str = ""
    verdict: str = ""
    category: str = ""
    text: str = ""
    differs: str = ""
    sort: str = "worst"
    page: int = 1
    data: str = ""
    """The dataset of the sample that is looked at."""
    id: str = ""
    """Its id."""
    under: str = ""
    """The setting under which it is looked at."""
    number: int = 0
    """Which of its images."""
    at: int = -1
    """Its place among the answers that are looked for."""
    among: str = "answers"
    """``answers`` or ``samples``: the list it was chosen from."""

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]]) -> Address:
        """Reads the names and values of an address; what there is not is a UsageError."""
        types = {field.name: field.type for field in fields(cls)}
        values: dict[str, Any] = {}
        for number, (name, value) in enumerate(pairs):
            if name not in types:
                raise UnknownName("part of the address", name, types)
            if number >= _MOST_VALUES or len(value) > LONGEST_VALUE:
                raise UsageError(f"the address is too long: expected up to {_MOST_VALUES} values of {LONGEST_VALUE} characters")
            if types[name] == "int":
                if not _NUMBER.fullmatch(value):
                    raise UsageError(f"the address has {name}={value!r}, expected a whole number of up to 9 digits")
                values[name] = int(value)
            elif name == "run":
                values[name] = (*values.get(name, ()), value)
            elif value:
                values[name] = value
        address = cls(**values)
        choices = {"state": STATES, "flip": FLIPS, "verdict": [*map(str, WORST_FIRST)], "sort": SORTS, "differs": ("yes",)}
        for name, allowed in (choices | {"among": ("answers", "samples")}).items():
            if (value := getattr(address, name)) and value not in allowed:
                raise UnknownName(name, value, allowed, where="the address")
        return address

    @property
    def criteria(self) -> AnswerFilter:
        """Which answers it asks for."""
        values = {field.name: getattr(self, field.name) for field in fields(AnswerFilter) if field.name != "differs"}
        return AnswerFilter(**values, differs=bool(self.differs))

    def link(self, path: str, **changes: object) -> Markup:
        """Returns the address of another page with these changes, escaped for an attribute."""
        standard = Address()
        values = {field.name: changes.get(field.name, getattr(self, field.name)) for field in fields(Address)}
        kept = {name: value for name, value in values.items() if value != getattr(standard, name)}
        query = urlencode(kept, doseq=True, errors="backslashreplace")
        return Markup(escape(f"{path}?{query}" if query else path))  # noqa: S704 - escaped

    @property
    def filters(self) -> dict[str, str]:
        """The parts that leave answers out, by name."""
        names = ("model", "dataset", "setting", "state", "flip", "verdict", "category", "text", "differs")
        return {name: value for name in names if (value := getattr(self, name))}
