"""Data: what the drill-down shows, once, as JSON that a page can hold."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.verdict import Outcome

from .words import MARKS, shown

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_DROPPED = ("policy_sha256", "seconds", "worst")
"""Fields of a record that the drill-down does not show; ``worst`` comes back under another name."""


def addresses(records: Sequence[Record]) -> dict[str, str]:
    """Returns what each record is called in the address of the page, by its key: its id, numbered where several share it."""
    found: dict[str, str] = {}
    taken: dict[str, int] = {}
    for record in records:
        taken[record.id] = taken.get(record.id, 0) + 1
        found[record.key] = record.id if taken[record.id] == 1 else f"{record.id}~{taken[record.id]}"
    return found


def drill_down(records: Sequence[Record], pictures: Mapping[str, str], commands: Mapping[str, str]) -> Markup:
    """Returns the JSON of all records: nothing in it can end the element that it stands in.

    Args:
        records: in the order in which a reader steps through them.
        pictures: base64 of thumbnails by file name.
        commands: how to run a test again, by the record's key.
    """
    names = addresses(records)
    tests = [{**_content(record), "name": names[record.key], "command": commands.get(record.key, "")} for record in records]
    marks = {str(outcome): {"sign": mark.sign, "css": mark.css, "meaning": mark.meaning} for outcome, mark in MARKS.items()}
    content = {"marks": marks, "pictures": dict(pictures), "tests": [_readable(test) for test in tests]}
    return Markup(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES))  # noqa: S704 - escaped


def _content(record: Record) -> dict[str, Any]:
    fields = {name: value for name, value in dataclasses.asdict(record).items() if name not in _DROPPED and _said(value)}
    measures = [_measure(one) for one in fields.pop("measures", ())]
    return {**fields, "lost": list(record.worst), "measures": measures}


def _measure(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a measure without what it does not say; that no rule applies needs no sentence on every line."""
    kept = {name: value for name, value in fields.items() if _said(value)}
    if fields["outcome"] is Outcome.MEASURED and not fields["rule"]:
        kept.pop("reason", None)
    return kept


def _said(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None and (isinstance(value, bool | int) or bool(value))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return shown(str(value))
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {shown(str(key)): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value
