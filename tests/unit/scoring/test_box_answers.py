"""Boxes in every form in which models write them, and in none."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.boxes import Box, box_space
from pytest_vlmrobust.scoring import BOX_RULES, BoxExtraction, extract_boxes
from pytest_vlmrobust.scoring.box_answers import LONGEST_REMARK, MOST_TRIED

TABLE = Path(__file__).parents[2] / "golden" / "box_answers.csv"
with TABLE.open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))
SIZE = (200, 100)
FACE = ("left_eye", "right_eye", "nose", "mouth")
UNREAD = {"empty", "unfinished_thinking", "truncated", "ambiguous", "refusal", "none"}


def pixels(reading: BoxExtraction, convention: str = "pixels") -> dict[str, Box] | None:
    """The boxes that were given, in a picture of 200 x 100; None where nothing was read."""
    if reading.boxes is None:
        return None
    space = box_space(convention, SIZE)
    return {name: box.pixels(space, SIZE) for name, box in reading.boxes.items() if box is not None}


def expected(row: Mapping[str, str]) -> dict[str, object] | None:
    return {name: pytest.approx(tuple(box)) for name, box in json.loads(row["boxes"]).items()} if row["boxes"] else None


@pytest.mark.cases("row", ROWS)
def test_reads_what_a_person_reads(row: dict[str, str]) -> None:
    reading = extract_boxes(row["text"], row["asked"].split())
    assert reading.rule == row["rule"], row["text"]
    assert pixels(reading, row["space"]) == expected(row), row["text"]
    if reading.boxes is not None:
        assert list(reading.boxes) == row["asked"].split()


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
@given(text=wild, attributes=st.sampled_from([FACE, ("word",)]))
def test_never_raises_and_gives_what_was_asked_for_or_nothing(text: str, attributes: tuple[str, ...]) -> None:
    reading = extract_boxes(text, attributes)
    if reading.boxes is None:
        assert reading.rule in UNREAD
    else:
        assert reading.rule in BOX_RULES
        assert tuple(reading.boxes) == attributes
    assert extract_boxes(text, attributes) == reading


@settings(max_examples=300, deadline=None)
@given(text=wordy | st.text(st.characters(exclude_categories=["N"])), attributes=st.sampled_from([FACE, ("word",)]))
def test_a_text_without_numbers_has_no_box(text: str, attributes: tuple[str, ...]) -> None:
    assert not any((extract_boxes(text, attributes).boxes or {}).values())


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


@pytest.mark.cases("attributes", [FACE, ("word",)])
@pytest.mark.cases("piece", HOSTILE)
def test_a_long_hostile_text_is_read_without_an_error(piece: str, attributes: tuple[str, ...]) -> None:
    assert set(extract_boxes(piece * (20_000 // len(piece)), attributes).boxes or ()) <= set(attributes)


def test_a_megabyte_is_read_without_an_error() -> None:
    text = "".join(piece * (40_000 // len(piece)) for piece in HOSTILE)
    assert len(text) > 1_000_000
    assert set(extract_boxes(text, FACE).boxes or ()) <= set(FACE)


# Which of the boxes of a text are its answer: named ones, whatever stands between them, and none silently lost.


FACE_BOX_SEQUENCE = {
    "left_eye": (60, 70, 80, 80),
    "right_eye": (95, 70, 115, 80),
    "nose": (80, 80, 92, 95),
    "mouth": (72, 100, 100, 112),
}
SPOKEN = {name: name.replace("_", " ") for name in FACE_BOX_SEQUENCE}
A, B = (10, 20, 300, 80), (5, 6, 200, 60)


def read(text: str, *attributes: str) -> dict[str, tuple[float, ...]] | str:
    """The boxes that were read, or why none was."""
    reading = extract_boxes(text, attributes or FACE_BOX_SEQUENCE)
    if reading.boxes is None:
        return reading.rule
    return {name: box.numbers for name, box in reading.boxes.items() if box}


TEMPLATES = [
    *["{i}. {spoken}: {list}\n", "{i}. **{spoken}**: {list}\n", "{i}) {spoken}: {tuple}\n", "Step {i}: {spoken} {list}\n"],
    *['{i}. {{"{name}": {list}}}\n', '{i}: {{"label": "{name}", "bbox_2d": {list}}}\n', "{spoken}: {list} px\n"],
    *["{spoken}: {list} (clearly visible)\n", "{spoken}: {list}, approximately\n", "I can see the {spoken} at {list}. "],
    *["### {spoken}\nBox: {list}\n", "{spoken}:\n```json\n{list}\n```\n", "In the second picture, the {spoken} is at {list}. "],
    *[
        "the {spoken} is at {list} in the second picture, while ",
        "| {i} | {spoken} | {list} | 0.9 |\n",
        "Box {i} of 4: {spoken}: {list}; ",
    ],
    "{spoken}: {list} - a dark, round shape that is partly hidden by the hair, so its edges are not certain (confidence 0.8)\n",
]


@pytest.mark.cases("template", TEMPLATES)
def test_named_boxes_are_one_answer_whatever_stands_between_them(template: str) -> None:
    text = "".join(
        template.format(i=number, name=name, spoken=SPOKEN[name], list=list(box), tuple=box)
        for number, (name, box) in enumerate(FACE_BOX_SEQUENCE.items(), 1)
    )
    assert read(text) == FACE_BOX_SEQUENCE


REMARKS = [
    *["; ", "\n", " and ", " px, ", " (clear)\n", ", then\n7. ", " while the "],
    ". Next, I look below: ",
    "\n\n- ",
    " 0.93\n",
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FACE_BOX_SEQUENCE)), st.sampled_from(REMARKS)),
        min_size=1,
        max_size=4,
        unique_by=lambda each: each[0],
    )
)
def test_every_order_and_remark_keeps_every_box(said: list[tuple[str, str]]) -> None:
    text = "".join(f"{SPOKEN[name]}: {list(FACE_BOX_SEQUENCE[name])}{remark}" for name, remark in said)
    assert read(text) == {name: FACE_BOX_SEQUENCE[name] for name, _ in said}


def test_a_sentence_with_other_words_between() -> None:
    left, right, nose, mouth = (list(box) for box in FACE_BOX_SEQUENCE.values())
    eyes = f"The left eye is at {left}, while the right eye is at {right}."
    text = f"{eyes} The nose is at {nose}, with the mouth below it at {mouth}."
    assert read(text) == FACE_BOX_SEQUENCE


@pytest.mark.cases(
    "text",
    [
        "nose: [1, 2, 3, 4], mouth: [5, 6, 7, 8]. Correction: the nose is at [2, 2, 3, 4].",
        f"nose: [1, 2, 3, 4] {'and so on ' * (LONGEST_REMARK // 10)} mouth: [5, 6, 7, 8]",
        "The nose may well be somewhere near [1, 2, 3, 4]. mouth: [5, 6, 7, 8]",
        "The nose is at [1, 2, 3, 4]. Final answer: mouth: [5, 6, 7, 8]",
        "nose: [1, 2, 3, 4]. In the second picture: mouth: [5, 6, 7, 8]",
        "mouth: [5, 6, 7, 8]. In the first picture: nose: [1, 2, 3, 4]",
        "nose: [1, 2, 3, 4]. In the second picture: []",
        "The left eye and the right eye: [1, 2, 3, 4] and [5, 6, 7, 8]; nose: [1, 2, 3, 4]",
        "The nose is at [1, 2, 3, 4]; [5, 6, 7, 8] is the mouth",
        "eyes: [1, 2, 3, 4] (left eye), [5, 6, 7, 8] (right eye); nose: [1, 2, 3, 4]",
        '[{"label": "nose", "bbox": [1, 2, 3, 4]}, {"label": "nose", "bbox": [2, 2, 3, 4]}] mouth: [5, 6, 7, 8]',
    ],
)
def test_a_box_that_may_or_may_not_count_makes_the_answer_unclear(text: str) -> None:
    assert read(text) == "ambiguous"


@pytest.mark.parametrize(
    "text",
    [
        "[1, 2, 3, 4] left eye, [5, 6, 7, 8] right eye, [1, 1, 2, 2] nose",
        "[1, 2, 3, 4] is the left eye\n[5, 6, 7, 8] is the right eye",
        "The left eye and the right eye: [1, 2, 3, 4] and [5, 6, 7, 8]",
    ],
)
def test_a_name_after_a_box_is_not_that_of_the_next_one(text: str) -> None:
    assert read(text) == "ambiguous"
    assert read(f"{text}. Left eye: [1, 2, 3, 4], right eye: [5, 6, 7, 8], nose: [1, 1, 2, 2]") == {
        "left_eye": (1, 2, 3, 4),
        "right_eye": (5, 6, 7, 8),
        "nose": (1, 1, 2, 2),
    }


@pytest.mark.cases(
    ("text", "boxes"),
    [
        ("nose: [5, 6, 7, 8]. nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("nose: [5, 6, 7, 8], mouth: [1, 1, 2, 2]. Final answer: nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("nose: [1, 2, 3, 4], mouth: [1, 1, 2, 2]. So the nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4), "mouth": (1, 1, 2, 2)}),
        ("Image 1: nose: [5, 6, 7, 8], mouth: [1, 1, 2, 2]. Image 2: nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("Image 2: nose: [1, 2, 3, 4]. Image 1: nose: [5, 6, 7, 8], mouth: [1, 1, 2, 2]", {"nose": (1, 2, 3, 4)}),
        ("nose: [5, 6, 7, 8] (first picture), nose: [1, 2, 3, 4] (second picture)", {"nose": (1, 2, 3, 4)}),
        ("nose: [1, 2, 3, 4] in the second picture; nose: [5, 6, 7, 8] in the first picture", {"nose": (1, 2, 3, 4)}),
        ("In the first picture: nose: [1, 2, 3, 4], mouth: [1, 1, 2, 2]", {"nose": (1, 2, 3, 4), "mouth": (1, 1, 2, 2)}),
        ("The mouth is not at [5, 6, 7, 8]. The nose is at [1, 2, 3, 4].", {"nose": (1, 2, 3, 4)}),
        ("nose: [1, 2, 3, 4]\nother things: []", {"nose": (1, 2, 3, 4)}),
        ("Face: [0, 0, 9, 9], nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("The face is at [0, 0, 9, 9]. The nose is at [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("The face is at [0, 0, 9, 9] and the nose is at [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("hats: []\nnose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
        ("The nose near the middle, [9, 9, 9, 9] or so? No. nose: [1, 2, 3, 4]", {"nose": (1, 2, 3, 4)}),
    ],
)
def test_what_replaces_what(text: str, boxes: dict[str, tuple[float, ...]]) -> None:
    assert read(text) == boxes


NAMED = [
    "word: {}",
    "The word is at {}.",
    '{{"word": {}}}',
    '[{{"label": "word", "bbox": {}}}]',
    "<ref>word</ref><box>[{}]</box>",
]
OTHERS = [
    *["corner: {}", "The corner is at {}.", "In the first picture it was at {}.", "The picture is {}.", '{{"picture": {}}}'],
    *["(first picture: {})", "{}", '{{"label": "picture", "bbox": {}}}', "of the picture {}"],
]


@pytest.mark.cases("other", OTHERS)
@pytest.mark.cases("named", NAMED)
def test_a_box_that_has_the_name_comes_before_others(named: str, other: str) -> None:
    ours, theirs = named.format(json.dumps(A)), other.format(json.dumps(B))
    assert read(f"{ours}\n{theirs}", "word") == {"word": A}
    if "first picture" not in other:
        assert read(f"{theirs}\n{ours}", "word") == {"word": A}


@pytest.mark.cases(
    "text",
    ["{a} or {b}", "{a}\n{b}", "<box>{a}</box> of picture {b}", "corner: {b}, box: {a}", "[{a}, {b}] {a}", "{a} [{a}, {b}]"],
)
def test_several_boxes_without_the_name_are_none(text: str) -> None:
    assert read(text.format(a=list(A), b=list(B)), "word") == "ambiguous"


@pytest.mark.cases(
    "text",
    [
        *["{a}", "{a} {a}", "I thought {b}. Final answer: {a}", "[{a}, {b}]. Final answer: {a}", "[] {a}", "{a} []"],
        *["In the first picture: {b}. In the second picture: {a}.", "{a} (in the first picture: {b})", "[{a}, {b}] word: {a}"],
    ],
)
def test_one_box_without_the_name_is_the_answer(text: str) -> None:
    assert read(text.format(a=list(A), b=list(B)), "word") == {"word": A}
