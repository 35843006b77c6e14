"""The drill-down: its samples as JSON inside the page, each once, with thumbnails as text."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Example, Measure, Record
from pytest_vlmrobust.reporting.explanation import ViewedTest

from .words import MARKS, bound_text, interval, number, visible_text

# Records as JSON inside a page.


_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}
_LONGEST_NAME = 300
MOST_EXAMPLES = 1500
"""The most examples in a page, from the first tests; the others are only in results.json."""
_PRINTED_TESTS, _PRINTED_SAMPLES = 60, 2
"""The number of tests, worst first, with samples in print, and the samples of each."""
_DROPPED = ("policy_sha256", "seconds", "worst", "examples", "metric", "nodeid", "n_inferred", "n_recalled")
"""Fields of a record that the drill-down does not show, or has in another form."""
_ASKED = ("sample", "question", "options", "target", "category")
"""Fields of an example about the question, which many tests share and which are written once."""


def addresses(records: Sequence[Record]) -> dict[str, str]:
    """Returns the name of each record in the page's address by its key: its id, numbered if shared."""
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    for record in records:
        name = visible_text(record.id)[:_LONGEST_NAME]
        taken[name] = taken.get(name, 0) + 1
        names[record.key] = name if taken[name] == 1 else f"{name}~{taken[name]}"
    return names


def drill_down(shown: Sequence[ViewedTest], pictures: Mapping[str, str]) -> Markup:
    """Returns the JSON of all records: nothing in it can end the element that it is in."""
    names = addresses([test.record for test in shown])
    places = {name: at for at, name in enumerate(pictures)}
    asked: dict[str, int] = {}
    tests: list[Any] = []
    left = MOST_EXAMPLES
    for record, command in ((test.record, test.command) for test in shown):
        examples = [_example(example, places, asked) for example in record.examples[:left]]
        left -= len(examples)
        known: dict[str, Any] = {"name": names[record.key], "command": command, "examples": examples}
        known["elsewhere"] = len(record.examples) - len(examples)
        tests.append(_readable({**_content(record), **known}))
    marks = {str(outcome): {"sign": mark.sign, "css": mark.css, "meaning": mark.meaning} for outcome, mark in MARKS.items()}
    printed = {"tests": _PRINTED_TESTS, "samples": _PRINTED_SAMPLES}
    content = {"marks": marks, "printed": printed, "pictures": list(pictures.values()), "tests": tests}
    return Markup(f'{_json(content)[:-1]},"asked":[{",".join(asked)}]}}'.translate(_ESCAPES))  # noqa: S704 - escaped


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _example(example: Example, places: Mapping[str, int], asked: dict[str, int]) -> dict[str, Any]:
    """Returns an example with the indices of its images and question; a new question is added to ``asked``."""
    fields = dataclasses.asdict(example)
    text = _json(_readable({name: fields.pop(name) for name in _ASKED}))
    pictures = [{**picture, "file": places.get(picture["file"])} for picture in fields.pop("pictures")]
    replies = [_short(reply) for reply in fields.pop("replies")]
    return {
        **fields,
        "asked": asked.setdefault(text, len(asked)),
        "replies": replies,
        "pictures": [_short(picture) for picture in pictures],
    }


def _short(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if _has_content(value)}


def _content(record: Record) -> dict[str, Any]:
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name not in _DROPPED}
    measures = [_measure(measure, record) for measure in fields.pop("measures")]
    return {**_short(fields), "lost": list(record.worst), "measures": measures}


def _measure(measure: Measure, record: Record) -> dict[str, Any]:
    """Returns a measure in its author's unit, without sentences for missing rules or repeated facts."""
    kept = _short(dataclasses.asdict(measure))
    if (measure.outcome is Outcome.MEASURED and not measure.rule) or measure.reason == record.reason:
        kept.pop("reason", None)
    for name in ("source", "low", "high", "decisive_low", "decisive_high", "unit", "ends"):
        kept.pop(name, None)
    told = {"value": number(measure.value, measure.unit), "interval": interval(measure), "bound": bound_text(measure.bound)}
    return {**kept, **told}


def _has_content(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is not None and (isinstance(value, bool | int) or bool(value))


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return visible_text(str(value))
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {visible_text(str(key)): _readable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_readable(item) for item in value]
    return value


# Thumbnails inside a page, up to a budget.


BUDGET = 3_000_000
"""Bytes of thumbnails in a page before encoding."""
_NAME = re.compile(r"[0-9a-f]{8,128}\.webp\Z")
_SIGNATURE = (b"RIFF", b"WEBP")


def embed_thumbnails(records: Sequence[Record], folder: Path | None, budget: int = BUDGET) -> dict[str, str]:
    """Returns thumbnails by file name, as base64 of WebP; missing ones and those beyond the budget are left out.

    The first example of each test comes before the second of any, in the given order of tests, so the worst come first.
    """
    thumbnails: dict[str, str] = {}
    if folder is None:
        return thumbnails
    left = budget
    for name in dict.fromkeys(_in_order(records)):
        content = stored_thumbnail(folder, name)
        if content is not None and len(content) <= left:
            thumbnails[name] = base64.b64encode(content).decode("ascii")
            left -= len(content)
    return thumbnails


def picture_files(records: Iterable[Record]) -> set[str]:
    """Returns the files of all images that records refer to."""
    return {picture.file for record in records for example in record.examples for picture in example.pictures}


def _in_order(records: Sequence[Record]) -> Iterator[str]:
    by_rank = zip_longest(*(record.examples for record in records))
    for example in chain.from_iterable(by_rank):
        if example is not None:
            yield from (picture.file for picture in example.pictures)


def stored_thumbnail(folder: Path, name: str) -> bytes | None:
    """Returns a thumbnail; empty for a name that is not a digest, such as a path, or a file that is not WebP."""
    if not _NAME.match(name):
        return None
    try:
        content = (folder / name).read_bytes()
    except OSError:
        return None
    return content if (content[:4], content[8:12]) == _SIGNATURE else None
