"""Boxes in every form in which models write them, and in none."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import Box, box_space
from pytest_vlmrobust.scoring import BOX_RULES, BoxExtraction, extract_boxes
from pytest_vlmrobust.scoring.box_answers import MOST_TRIED

TABLE = Path(__file__).parents[2] / "golden" / "box_answers.csv"
with TABLE.open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))
SIZE = (200, 100)
FACE = ("left_eye", "right_eye", "nose", "mouth")
UNREAD = {"empty", "unfinished_thinking", "truncated", "ambiguous", "refusal", "none"}


def pixels(found: BoxExtraction, convention: str = "pixels") -> dict[str, Box] | None:
    """The boxes that were given, in a picture of 200 x 100; None where nothing was read."""
    if found.boxes is None:
        return None
    space = box_space(convention, SIZE)
    return {name: box.pixels(space, SIZE) for name, box in found.boxes.items() if box is not None}


def expected(row: Mapping[str, str]) -> dict[str, object] | None:
    return {name: pytest.approx(tuple(box)) for name, box in json.loads(row["boxes"]).items()} if row["boxes"] else None


@pytest.mark.parametrize("row", ROWS, ids=[f"{number:03d}-{row['about'] or row['rule']}" for number, row in enumerate(ROWS)])
def test_reads_what_a_person_reads(row: dict[str, str]) -> None:
    found = extract_boxes(row["text"], row["asked"].split())
    assert found.rule == row["rule"], row["text"]
    assert pixels(found, row["space"]) == expected(row), row["text"]
    if found.boxes is not None:
        assert list(found.boxes) == row["asked"].split()


def test_the_table_has_every_form_and_every_failure() -> None:
    assert {row["rule"] for row in ROWS} == {*BOX_RULES, *UNREAD}
    assert len(ROWS) >= 100


def test_every_rule_says_what_it_reads() -> None:
    for name, rule in BOX_RULES.items():
        assert rule.__doc__, name


PIECES = [
    *['{"', '"}', "{", "}", "[", "]", "(", ")", '": [', '": {"x1": ', ", ", ": ", "'", '"', "\\", "//", "```json\n", "\n", "%"],
    *[
        "left_eye",
        "left eye",
        "nose",
        "word",
        "Mouth",
        "label",
        "bbox_2d",
        "x1",
        "y1",
        "x2",
        "y2",
        "final_answer",
        "null",
        "None",
    ],
    *[
        "<ref>",
        "</ref>",
        "<box>",
        "</box>",
        "<think>",
        "</think>",
        "<answer>",
        "...",
        "is at",
        "not",
        "\\boxed{",
        "true",
        "-",
        "e",
    ],
]
NUMBERS = ["1", "20", "30.5", "-4", "1e3", "99%", "1000", "10, 20, 30, 40", "[10, 20, 30, 40]"]
wild = st.lists(st.sampled_from([*PIECES, *NUMBERS]), max_size=40).map("".join) | st.text(max_size=200)
wordy = st.lists(st.sampled_from(PIECES), max_size=40).map("".join).filter(lambda text: not any("3" <= c <= "9" for c in text))


@settings(max_examples=300, deadline=None)
@given(text=wild, asked=st.sampled_from([FACE, ("word",)]))
def test_never_raises_and_gives_what_was_asked_for_or_nothing(text: str, asked: tuple[str, ...]) -> None:
    found = extract_boxes(text, asked)
    if found.boxes is None:
        assert found.rule in UNREAD
    else:
        assert found.rule in BOX_RULES
        assert tuple(found.boxes) == asked
    assert extract_boxes(text, asked) == found


@settings(max_examples=300, deadline=None)
@given(text=wordy | st.text(st.characters(exclude_categories=["N"])), asked=st.sampled_from([FACE, ("word",)]))
def test_a_text_without_numbers_has_no_box(text: str, asked: tuple[str, ...]) -> None:
    assert not any((extract_boxes(text, asked).boxes or {}).values())


@settings(max_examples=200, deadline=None)
@given(
    box=st.tuples(*[st.integers(-50, 2000)] * 4),
    before=st.sampled_from(["", "Let me look. ", "I see [3] things: {a, b} and [x]. ", '{"left_eye": [1, 2, 3, 4]} was wrong: ']),
    template=st.sampled_from(
        ['{"left_eye": [%d, %d, %d, %d]}', "left eye: (%d,%d,%d,%d)", "<ref>left eye</ref><box>[[%d,%d,%d,%d]]</box>"]
    ),
    after=st.sampled_from(["", ".", "\n```", " I am sure of it."]),
)
def test_a_box_is_read_whatever_stands_around_it(box: Box, before: str, template: str, after: str) -> None:
    assert pixels(extract_boxes(before + template % box + after, FACE)) == {"left_eye": box}


def test_only_the_last_objects_are_looked_at() -> None:
    drafts = '{"left_eye": [1, 2, 3, 4]} no: ' * (3 * MOST_TRIED)
    assert pixels(extract_boxes(drafts + '{"left_eye": [10, 20, 30, 40]}', FACE)) == {"left_eye": (10, 20, 30, 40)}


HOSTILE = [
    *[
        "[",
        "{",
        "[[1,2,3,4],",
        '{"a":',
        '["',
        '"',
        "'",
        "['a\"",
        "[1,2]",
        "(1,2),",
        "{a:",
        "//",
        "[//",
        "[ ",
        "[{",
        '\\"',
        "9",
        "[9",
    ],
    *[
        '{"left_eye": [1,2,3,4]} ',
        "left eye ",
        "<ref>left eye</ref><box>",
        "[1%,",
        " ",
        '{"a":"b",',
        "[-",
        "{a ",
        "{} ",
        '","',
        "the ",
    ],
]


@pytest.mark.parametrize("asked", [FACE, ("word",)], ids=["face", "word"])
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_hostile_text_is_read_without_an_error(piece: str, asked: tuple[str, ...]) -> None:
    assert set(extract_boxes(piece * (50_000 // len(piece)), asked).boxes or ()) <= set(asked)


def test_a_megabyte_is_read_without_an_error() -> None:
    text = "".join(piece * (40_000 // len(piece)) for piece in HOSTILE)
    assert len(text) > 1_000_000
    assert set(extract_boxes(text, FACE).boxes or ()) <= set(FACE)
