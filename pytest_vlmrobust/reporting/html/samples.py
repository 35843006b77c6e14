"""Samples of a page: the drill-down as JSON, each sample once, thumbnails as text, and the table of patches."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from markupsafe import Markup

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Example, Measure, Picture, Reply
from pytest_vlmrobust.reporting.explanation import ViewedTest
from pytest_vlmrobust.reporting.sweeps import PATCHES, Sweep

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


def addresses(tests: Iterable[ViewedTest]) -> dict[str, str]:
    """Returns the name of each test in the page's address by its key: its id, numbered if shared."""
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    for test in tests:
        name = visible_text(test.record.id)[:_LONGEST_NAME]
        taken[name] = taken.get(name, 0) + 1
        names[test.record.key] = name if taken[name] == 1 else f"{name}~{taken[name]}"
    return names


def drill_down(shown: Sequence[ViewedTest], pictures: Mapping[str, str]) -> Markup:
    """Returns the JSON of all records: nothing in it can end the element that it is in."""
    names = addresses(shown)
    held = [pictures.get(name, "") for name in thumbnail_names(shown)]
    placed = places(shown, pictures)
    questions: dict[str, int] = {}
    tests: list[Any] = []
    left = MOST_EXAMPLES
    for test in shown:
        record = test.record
        examples = [_example(example, placed, questions) for example in record.examples[:left]]
        left -= len(examples)
        extra: dict[str, Any] = {"name": names[record.key], "command": test.command, "examples": examples}
        extra["elsewhere"] = len(record.examples) - len(examples)
        tests.append(_readable({**_content(test), **extra}))
    marks = {str(outcome): {"sign": mark.sign, "css": mark.css, "meaning": mark.meaning} for outcome, mark in MARKS.items()}
    printed = {"tests": _PRINTED_TESTS, "samples": _PRINTED_SAMPLES}
    content = {"marks": marks, "printed": printed, "pictures": held, "tests": tests}
    return Markup(f'{_json(content)[:-1]},"asked":[{",".join(questions)}]}}'.translate(_ESCAPES))  # noqa: S704 - escaped


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _example(example: Example, places: Mapping[str, int], questions: dict[str, int]) -> dict[str, Any]:
    """Returns an example with the indices of its images and question; a new question is added to ``questions``."""
    fields = dataclasses.asdict(example)
    text = _json(_readable({name: fields.pop(name) for name in _ASKED}))
    pictures = [{**picture, "file": places.get(picture["file"])} for picture in fields.pop("pictures")]
    replies = [_short(reply) for reply in fields.pop("replies")]
    return {
        **fields,
        "asked": questions.setdefault(text, len(questions)),
        "replies": replies,
        "pictures": [_short(picture) for picture in pictures],
    }


def _short(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if _has_content(value)}


def _content(test: ViewedTest) -> dict[str, Any]:
    record = test.record
    fields = {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.name not in _DROPPED}
    measures = [_measure(measure, record.reason) for measure in fields.pop("measures")]
    return {**_short(fields), "lost": list(record.worst), "measures": measures}


def _measure(measure: Measure, reason: str) -> dict[str, Any]:
    """Returns a measure in its author's unit, without sentences for missing rules or repeated facts."""
    kept = _short(dataclasses.asdict(measure))
    if (measure.outcome is Outcome.MEASURED and not measure.rule) or measure.reason == reason:
        kept.pop("reason", None)
    for name in ("source", "low", "high", "decisive_low", "decisive_high", "unit", "ends"):
        kept.pop(name, None)
    shown = {"value": number(measure.value, measure.unit), "interval": interval(measure), "bound": bound_text(measure.bound)}
    return {**kept, **shown}


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


def embed_thumbnails(tests: Sequence[ViewedTest], folder: Path | None, budget: int = BUDGET) -> dict[str, str]:
    """Returns thumbnails by file name, as base64 of WebP; missing ones and those beyond the budget are left out.

    The first example of each test comes before the second of any, in the given order of tests, so the worst come first.
    """
    thumbnails: dict[str, str] = {}
    if folder is None:
        return thumbnails
    left = budget
    for name in thumbnail_names(tests):
        content = stored_thumbnail(folder, name)
        if content is not None and len(content) <= left:
            thumbnails[name] = base64.b64encode(content).decode("ascii")
            left -= len(content)
    return thumbnails


def thumbnail_names(tests: Sequence[ViewedTest]) -> list[str]:
    """Returns the file names of the thumbnails of tests, each once, in the order of the page."""
    return [*dict.fromkeys(_in_order(tests))]


def places(tests: Sequence[ViewedTest], thumbnails: Mapping[str, str]) -> dict[str, int]:
    """Returns the position of each thumbnail among all that the page of these tests may have."""
    return {name: at for at, name in enumerate(thumbnail_names(tests)) if name in thumbnails}


_EMBEDDED = re.compile(r'"pictures":\[((?:"[A-Za-z0-9+/=]*+",?)*+)\],"tests":\[')


def thumbnails_on(page: str) -> list[str]:
    """Returns the thumbnails in the data of a page, in Base64; empty for each that it lacks."""
    match = _EMBEDDED.search(page)
    return [] if match is None else re.findall(r'"([^"]*)"', match[1])


def _in_order(tests: Sequence[ViewedTest]) -> Iterator[str]:
    by_rank = zip_longest(*(test.record.examples for test in tests))
    for example in chain.from_iterable(by_rank):
        if example is not None:
            yield from (picture.file for picture in example.pictures)


def left_out(tests: Sequence[ViewedTest], thumbnails: Mapping[str, str]) -> str:
    """Returns how many thumbnails of tests are not on the page; empty if all are."""
    files = {*_in_order(tests)}
    lacking = len(files - {*thumbnails})
    where = "they are no longer in the store, or would make the page too large"
    return f"{lacking} of {len(files)} thumbnails are not on this page: {where}" if lacking else ""


def stored_thumbnail(folder: Path, name: str) -> bytes | None:
    """Returns a thumbnail; empty for a name that is not a digest, such as a path, or a file that is not WebP."""
    if not _NAME.match(name):
        return None
    try:
        content = (folder / name).read_bytes()
    except OSError:
        return None
    return content if (content[:4], content[8:12]) == _SIGNATURE else None


# Patches: samples answered only from the whole image or only from a patch.


WHOLE_ONLY, PATCH_ONLY = "whole_only", "patch_only"
KINDS = {
    WHOLE_ONLY: "Answered from the whole image only",
    PATCH_ONLY: "Answered from a patch only",
}
_PATCH = re.compile(r"patch (\d+),(\d+)")


@dataclass(frozen=True, slots=True)
class View:
    """A view of a sample: its images and answer."""

    pictures: list[Picture]
    reply: Reply | None

    @property
    def frame(self) -> str:
        """``right``, ``wrong``, or empty."""
        return next((picture.frame for picture in self.pictures), "")


@dataclass(frozen=True, slots=True)
class Shown:
    """A sample of the table: the whole image next to the grid of its patches; ``None`` for a skipped patch."""

    key: str
    """The key of its test."""
    setting: str
    example: Example
    whole: View
    grid: list[list[View | None]]


def patch_table(sweep: Sweep) -> dict[str, list[Shown]]:
    """Returns the samples that only the whole image or only a patch answers, by which of the two."""
    by_kind: dict[str, list[Shown]] = {kind: [] for kind in KINDS}
    for record in sweep.cells:
        for example in record.examples if record.family == PATCHES else ():
            if example.kind in by_kind:
                by_kind[example.kind].append(_laid_out(record.key, record.setting, record.level, example))
    return {kind: examples for kind, examples in by_kind.items() if examples}


def _laid_out(key: str, setting: str, level: str, example: Example) -> Shown:
    side = int(level) if level.isdecimal() and 0 < int(level) < 20 else 0
    grid: list[list[View | None]] = [[None] * side for _ in range(side)]
    for reply in example.replies:
        place = _PATCH.match(reply.about)
        row, column = (int(place[1]) - 1, int(place[2]) - 1) if place else (-1, -1)
        if 0 <= row < side and 0 <= column < side:
            grid[row][column] = View(example.pictures_of(reply.about), reply)
    whole = next((reply for reply in example.replies if not _PATCH.match(reply.about)), None)
    view_name = whole.about if whole else ""
    return Shown(key, setting, example, View(example.pictures_of(view_name), whole), grid)
