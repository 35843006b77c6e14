"""Which of the boxes of a text are its answer: named ones, whatever stands between them, and none silently lost."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.scoring import extract_boxes
from pytest_vlmrobust.scoring.box_sequence import LONGEST_REMARK

FACE = {"left_eye": (60, 70, 80, 80), "right_eye": (95, 70, 115, 80), "nose": (80, 80, 92, 95), "mouth": (72, 100, 100, 112)}
SPOKEN = {name: name.replace("_", " ") for name in FACE}
A, B = (10, 20, 300, 80), (5, 6, 200, 60)


def read(text: str, *asked: str) -> dict[str, tuple[float, ...]] | str:
    """The boxes that were read, or why none was."""
    found = extract_boxes(text, asked or FACE)
    if found.boxes is None:
        return found.rule
    return {name: box.numbers for name, box in found.boxes.items() if box}


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


@pytest.mark.parametrize("template", TEMPLATES)
def test_named_boxes_are_one_answer_whatever_stands_between_them(template: str) -> None:
    text = "".join(
        template.format(i=number, name=name, spoken=SPOKEN[name], list=list(box), tuple=box)
        for number, (name, box) in enumerate(FACE.items(), 1)
    )
    assert read(text) == FACE


REMARKS = [
    *["; ", "\n", " and ", " px, ", " (clear)\n", ", then\n7. ", " while the "],
    ". Next, I look below: ",
    "\n\n- ",
    " 0.93\n",
]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(FACE)), st.sampled_from(REMARKS)), min_size=1, max_size=4, unique_by=lambda each: each[0]
    )
)
def test_every_order_and_remark_keeps_every_box(said: list[tuple[str, str]]) -> None:
    text = "".join(f"{SPOKEN[name]}: {list(FACE[name])}{remark}" for name, remark in said)
    assert read(text) == {name: FACE[name] for name, _ in said}


def test_a_sentence_with_other_words_between() -> None:
    left, right, nose, mouth = (list(box) for box in FACE.values())
    eyes = f"The left eye is at {left}, while the right eye is at {right}."
    text = f"{eyes} The nose is at {nose}, with the mouth below it at {mouth}."
    assert read(text) == FACE


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("named", NAMED)
def test_a_box_that_has_the_name_comes_before_others(named: str, other: str) -> None:
    ours, theirs = named.format(json.dumps(A)), other.format(json.dumps(B))
    assert read(f"{ours}\n{theirs}", "word") == {"word": A}
    if "first picture" not in other:
        assert read(f"{theirs}\n{ours}", "word") == {"word": A}


@pytest.mark.parametrize(
    "text",
    ["{a} or {b}", "{a}\n{b}", "<box>{a}</box> of picture {b}", "corner: {b}, box: {a}", "[{a}, {b}] {a}", "{a} [{a}, {b}]"],
)
def test_several_boxes_without_the_name_are_none(text: str) -> None:
    assert read(text.format(a=list(A), b=list(B)), "word") == "ambiguous"


@pytest.mark.parametrize(
    "text",
    [
        *["{a}", "{a} {a}", "I thought {b}. Final answer: {a}", "[{a}, {b}]. Final answer: {a}", "[] {a}", "{a} []"],
        *["In the first picture: {b}. In the second picture: {a}.", "{a} (in the first picture: {b})", "[{a}, {b}] word: {a}"],
    ],
)
def test_one_box_without_the_name_is_the_answer(text: str) -> None:
    assert read(text.format(a=list(A), b=list(B)), "word") == {"word": A}
