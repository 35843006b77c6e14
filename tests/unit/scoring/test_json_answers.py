"""JSON as models write it, anywhere in a text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import IMAGE_MARK, Sample
from pytest_vlmrobust.scoring import Extraction, extract_choice, score
from pytest_vlmrobust.scoring.json_answers import DEEPEST, read_json, read_value


def values(text: str) -> list[Any]:
    return [entry.value for entry in read_json(text).values]


@pytest.mark.cases(
    ("text", "expected"),
    [
        ('{"a": 1, "b": [1.5, -2e2, .5], "c": {"d": null}}', [{"a": 1, "b": [1.5, -200.0, 0.5], "c": {"d": None}}]),
        ("{'a': None, 'b': True, 'c': False}", [{"a": None, "b": True, "c": False}]),
        ("{a: 1, left eye: 2, b-c: 3}", [{"a": 1, "left eye": 2, "b-c": 3}]),
        ("{a = 1}", [{"a": 1}]),
        ("{a: B}", [{"a": "B"}]),
        ("[1, 2,]", [[1, 2]]),
        ("[(1, 2), (3, 4,)]", [[[1, 2], [3, 4]]]),
        ("[12%, 5.5 %]", [["12%", "5.5%"]]),
        ("{} and []", [{}, []]),
        ('{"a": {"b": 1}} {"c": 2}', [{"a": {"b": 1}}, {"c": 2}]),
        ('{{"a": 1}}', [{"a": 1}]),
        ('{"a": 1, "a": 2}', [{"a": 2}]),
        ('{"a": "say \\"hi\\", then\\n"}', [{"a": 'say "hi", then\n'}]),
        ('{"a": "the "red" one", "b": 1}', [{"a": 'the "red" one', "b": 1}]),
        ("{'a': 'it's the dogs' bowl', 'b': 1}", [{"a": "it's the dogs' bowl", "b": 1}]),
        ('{"a": "over\ntwo lines"}', [{"a": "over\ntwo lines"}]),
        ('{"a": 1 // one\n}', [{"a": 1}]),
        ('{"a": "http://x/y"}', [{"a": "http://x/y"}]),
        ('[see the note] {"a": 1}', [["see the note"], {"a": 1}]),
        ("no JSON (at all) here", []),
        ('{"a" 1} [2]', [[2]]),
        ('{"a": 1 "b": 2} [3]', [[3]]),
        ('{"a": ...} [3]', [[3]]),
        ("[1 2] [3]", [[3]]),
        ("{1, 2} [3]", [[3]]),
        ("[1)", []),
        ("[12px]", []),
    ],
)
def test_reads_what_is_meant(text: str, expected: list[Any]) -> None:
    assert values(text) == expected
    assert read_json(text).cut is None


@pytest.mark.cases(
    "text", ['{"a": 1', '{"a', "{'a': 'b", "[1, 2", "{", "[", '{"a":', '{"a": [1, {"b": 2}', "[1, // two", '[{"a": 1},']
)
def test_a_text_that_ends_inside_is_cut(text: str) -> None:
    assert read_json(f"So: {text}").cut == len("So: ")
    assert read_json(f"[0] and {text}").cut == len("[0] and ")


def test_a_copy_that_is_cut_says_nothing_new() -> None:
    whole = '{"a": [1, 2], "b": 3}'
    for end in range(1, len(whole)):
        assert read_json(f"{whole}\n{whole}\n{whole[:end]}").cut is None
        assert read_json(f"{whole} no, rather {whole[:end]}").cut is not None
    assert read_json(f'{whole}\n{{"a": [1, 3').cut is not None


def test_deep_nesting_is_no_answer() -> None:
    assert values("[" * DEEPEST + "]" * DEEPEST) != []
    assert values("[" * 100_000 + "1" + "]" * 100_000)[0] != []
    assert len(values("[" * 100_000)) == 0


def test_where_values_stand() -> None:
    text = 'a {"b": 1} c [2] d'
    assert [text[entry.start : entry.end] for entry in read_json(text).values] == ['{"b": 1}', "[2]"]


def test_one_value() -> None:
    assert read_value('x: "B"}', 2) == "B"
    assert read_value("x: [0, 1]", 2) == [0, 1]
    with pytest.raises(ValueError, match="2"):
        read_value("x:?", 2)
    with pytest.raises(EOFError):
        read_value('x: "B', 2)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(codec="utf-8", exclude_characters="\"'\\"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc_ ", min_size=1, max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(value=st.lists(plain_values, max_size=3) | st.dictionaries(st.text("abc_", min_size=1), plain_values, max_size=3))
def test_json_is_read_as_json(value: Any) -> None:
    assert values(json.dumps(value)) == [value]
    assert values(f"Thus: {json.dumps(value, indent=2, ensure_ascii=False)}.") == [value]


@settings(max_examples=300, deadline=None)
@given(text=st.text("[]{}()\"'`:,=0123456789abc \n\\/%.-_", max_size=120))
def test_any_text_is_read_without_complaint(text: str) -> None:
    document = read_json(text)
    ends = [position for entry in document.values for position in (entry.start, entry.end)]
    assert ends == sorted(ends)
    assert all(isinstance(entry.value, list | dict) for entry in document.values)
    assert document.cut is None or document.cut >= max(ends, default=0)


# Options answered in JSON, options that are cells of a grid, and options that are pictures.


ANIMALS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
CELLS = {"A": "[0,1]", "B": "[1,0]", "C": "[1,1]", "D": "[0,0]"}
PICTURES = dict.fromkeys("ABCD", IMAGE_MARK)


@pytest.mark.cases(
    ("text", "answer", "rule"),
    [
        ('{"final_answer": "B"}', "B", "json"),
        ('{"final_answer": "b"}', "B", "json"),
        ('{"FINAL_ANSWER": "(B)"}', "B", "json"),
        ('{"final answer": "B. dog"}', "B", "json"),
        ('{"finalAnswer": "B"}', "B", "json"),
        ('{"Final-Answer": "the dog"}', "B", "json"),
        ("{'final_answer': 'B'}", "B", "json"),
        ("{final_answer: B}", "B", "json"),
        ("{final_answer: B. dog, I think}", "B", "json"),
        ("final_answer: B", "B", "json"),
        ('"final_answer": "B"', "B", "json"),
        ('{"final_answer": ["B"]}', "B", "json"),
        ('{"final_answer": {"option": "B", "text": "dog"}}', "B", "json"),
        ('{"final_answer": 12}', "D", "json"),
        ('{"reasoning": "The answer is A at first sight", "final_answer": "B"}', "B", "json"),
        ('{"reasoning": "They say "A", "B" or "C" here", "final_answer": "B"}', "B", "json"),
        ('So it is A.\n```json\n{"reasoning": "…", "final_answer": "B"}\n```', "B", "json"),
        ('<think>{"final_answer": "A"}</think>{"final_answer": "B"}', "B", "json"),
        ('<answer>{"final_answer": "B"}</answer>', "B", "json"),
        ('{"final_answer": "A"} No, wait: {"final_answer": "B"}', "B", "json"),
        ('{"answer": {"final_answer": "B"}}', "B", "json"),
        ('{"final_answer": "B"}\n{"final_answer": "B"}\n{"final_ans', "B", "json"),
        ('{"reasoning": "The answer is A at first sight", "answer": "B"}', "B", "json"),
        ('{"reasoning": "A", "Choice": "B"}', "B", "json"),
        ('{"option": "B", "why": "A is no dog"}', "B", "json"),
        ('{"result": {"why": "A", "answer": "a dog"}}', "B", "json"),
        ('{"why": "", "answer": "A"} or {"why": "", "answer": "B"}', "B", "json"),
        ('{"answer": "B"}', "B", "json"),
        ('{"answer": "A"}{"answer": "B"}', "B", "json"),
        ('{"answer": "A"}\nNo, wait:\n{"answer": "dog"}', "B", "json"),
        ('{"option": "A"}\n{"option": "B"}', None, "ambiguous"),
        ('[{"option": "A", "right": true}, {"option": "B", "right": false}]', "A", "json"),
        ('{"final_answer": "A or B"}', None, "ambiguous"),
        ('{"final_answer": ["A", "B"]}', None, "ambiguous"),
        ('{"final_answer": "a cat and a dog"}', None, "ambiguous"),
        ('The answer is B. {"final_answer": "E"}', None, "none"),
        ('The answer is B. {"final_answer": ""}', None, "none"),
        ('The answer is B. {"final_answer": null}', None, "none"),
        ('The answer is B. {"why": "", "answer": "none of them"}', None, "none"),
        ('{"reasoning": "The answer is B, because', None, "truncated"),
        ('{"final_answer": "B", "reasoning": "it', None, "truncated"),
        ('{"final_answer": "B', None, "truncated"),
        ('{"final_answer": "A"} No, wait: {"final_answer": ', None, "truncated"),
        ("final_answer:", None, "truncated"),
    ],
)
def test_answers_in_json(text: str, answer: str | None, rule: str) -> None:
    assert extract_choice(text, ANIMALS) == Extraction(answer, rule)


@pytest.mark.cases(
    "template",
    [
        *["[{r},{c}]", "[{r}, {c}]", "({r},{c})", "( {r} ; {c} )", "**[{r}, {c}]**", "the cell [{r},{c}]", "Answer: [{r}, {c}]"],
        *[
            "The answer is ({r}, {c}).",
            "It is in cell [{r},{c}].",
            "row {r}, column {c}",
            "Row {r} and col {c}",
            "column {c}, row {r}",
        ],
        *['{{"final_answer": "[{r},{c}]"}}', '{{"final_answer": [{r}, {c}]}}', '{{"final_answer": "row {r}, column {c}"}}'],
        *[
            '{{"final_answer": "cell ({r}, {c})"}}',
            '{{"final_answer": {{"row": {r}, "column": {c}}}}}',
            '{{"final_answer": [[{r}, {c}]]}}',
        ],
        *['{{"reasoning": "[0,0] is a word, [1,1] a face", "final_answer": "[{r},{c}]"}}', '{{"answer": [{r}, {c}]}}'],
        *['{{"row": {r}, "column": {c}}}', '```json\n{{"row": {r}, "column": {c}}}\n```', "{{'column': '{c}', 'row': '{r}'}}"],
        '{{"reasoning": "[0,0] is a word, [1,1] a face", "row": {r}, "col": {c}}}',
        '{{"final_answer": {{"cell": {{"row": {r}, "column": {c}}}}}}}',
        '{{"row": 5, "column": 5}} is outside, so it is {{"row": {r}, "column": {c}}}',
        '[{{"row": 0, "column": 0, "shows": "a word"}}, {{"row": 0, "column": 1, "shows": "a face"}}] The answer is [{r},{c}].',
        *["[{r},{c}], not [5,5]", "\\boxed{{[{r}, {c}]}}", "<answer>({r}, {c})</answer>", "I looked at all of them.\n[{r}, {c}]"],
    ],
)
@pytest.mark.cases("options", [CELLS, {letter: cell.replace(",", ", ") for letter, cell in CELLS.items()}])
def test_every_cell_is_read_alike(template: str, options: dict[str, str]) -> None:
    for letter, cell in CELLS.items():
        assert extract_choice(template.format(r=cell[1], c=cell[3]), options).answer == letter


@pytest.mark.cases("letter", "ABCD")
@pytest.mark.cases("template", ["{}", "({})", "The answer is {}.", '{{"final_answer": "{}"}}'])
def test_cells_may_be_named_by_their_letter(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), CELLS).answer == letter


@pytest.mark.cases(
    ("text", "rule"),
    [
        ("[0,0] or [0,1]", "ambiguous"),
        ('{"final_answer": "[0,0] or [0,1]"}', "ambiguous"),
        ('{"final_answer": [[0, 0], [0, 1]]}', "ambiguous"),
        ("[2,2]", "none"),
        ("[0,1,1,1]", "none"),
        ("[10,10]", "none"),
        ("[0]", "none"),
        ('{"row": 5, "column": 0}', "none"),
        ('{"row": 0.5, "column": 0}', "none"),
        ('{"row": 0}', "none"),
        ("I looked at row 0.", "none"),
        ("It is not [0,0].", "none"),
    ],
)
def test_what_is_not_one_cell_is_no_answer(text: str, rule: str) -> None:
    assert extract_choice(text, CELLS) == Extraction(None, rule)


def test_cells_are_only_spelled_where_options_are_cells() -> None:
    assert extract_choice("(0, 1)", {"A": "(0, 1]", "B": "cat"}).answer == "A"
    assert extract_choice("row 0, column 1", {"A": "row 0, column 1", "B": "cat"}).answer == "A"


@pytest.mark.cases("letter", "ABCD")
@pytest.mark.cases(
    "template",
    [
        "{}",
        "Image {}",
        "image ({})",
        "The answer is image {}.",
        "Candidate {} shows the same face.",
        '{{"final_answer": "Image {}"}}',
    ],
)
def test_pictures_are_named_by_their_letter(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), PICTURES).answer == letter


@pytest.mark.parametrize(
    "text", [IMAGE_MARK, f"The answer is {IMAGE_MARK}.", f'{{"final_answer": "{IMAGE_MARK}"}}', f"\\boxed{{{IMAGE_MARK}}}"]
)
def test_the_mark_of_a_picture_is_never_an_answer(text: str) -> None:
    assert extract_choice(text, PICTURES) == Extraction(None, "none")
    assert extract_choice(text, {"A": f"{IMAGE_MARK} a cat", "B": "dog"}) == Extraction(None, "none")
    assert extract_choice("a cat", {"A": f"{IMAGE_MARK} a cat", "B": "dog"}).answer == "A"


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="ascii", exclude_characters="ABCDabcd"), max_size=80))
def test_words_never_choose_a_picture(text: str) -> None:
    assert extract_choice(f"{text}{IMAGE_MARK}{text}", PICTURES).answer is None


def test_a_cut_off_object_is_unparsed() -> None:
    sample = Sample("1", (), "?", "B", "choice", ANIMALS)
    assert score(sample, Prediction('{"reasoning": "the answer is B', "generate")) == Score.unparsed("truncated")


@pytest.mark.cases("options", [ANIMALS, CELLS, PICTURES])
@pytest.mark.cases(
    "piece",
    [
        "{",
        '{"',
        '{"a":',
        '"final_answer": ',
        '{"answer": "B", "x": 1} ',
        "row ",
        "row 0, ",
        "row" + " " * 999,
        "(0,",
        "[0,1] ",
        "image ",
        "[{",
        "{a ",
    ],
)
def test_a_long_hostile_text_is_read_without_an_error(piece: str, options: dict[str, str]) -> None:
    assert extract_choice(piece * (50_000 // len(piece)), options).answer in {None, *options}
