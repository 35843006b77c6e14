"""Properties of the three extractors that hold for any text."""

from __future__ import annotations

import csv
import json
import time
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_vlmrobust.scoring import (
    CHOICE_RULES,
    OPEN_RULES,
    YES_NO_RULES,
    Extraction,
    extract_choice,
    extract_open,
    extract_yes_no,
    normalised,
)

OPTIONS = {"A": "cat", "B": "dog", "C": "red car", "D": "12"}
UNREAD = {"none", "ambiguous", "refusal", "empty", "unfinished_thinking", "truncated"}

PIECES = [
    *[
        "the",
        "answer",
        "is",
        "Answer:",
        "answer is",
        "The correct option is",
        "option",
        "Option",
        "choice",
        "so",
        "therefore",
        "I",
    ],
    *[
        "I choose",
        "it is",
        "picture",
        "shows",
        "hot",
        "bird",
        "Cats",
        "dogs",
        "(",
        ")",
        "[",
        "]",
        ".",
        ",",
        ":",
        "\n",
        "**",
        "__",
    ],
    *[
        "not",
        "correct",
        "best",
        "E",
        "Z",
        "(E)",
        "13",
        "112",
        "12.5",
        "because",
        "\\boxed{",
        "}",
        "<answer>",
        "</answer>",
        "</think>",
    ],
    *["答案", "选", "选项", "是", "不", "→", "=", '"', "'", "$", "-", "or", "and", "/", "?", "!", "looks like", "definitely"],
]
"""Everything that surrounds an answer, and no answer."""

WORDS_FOR_YES_AND_NO = {"correct", "definitely", "是", "不", "not"}
"""Words that are an answer, or deny what was asked."""

rambling = st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join)
wild = st.text(max_size=300) | st.lists(
    st.sampled_from([*PIECES, "A", "B", "C", "a", "b", "dog", "cat", "red", "car", "12", "yes", "no", "<think>"]), max_size=30
).map(" ".join)
texts_of_options = st.lists(st.text(max_size=12), min_size=2, max_size=10)


@settings(deadline=None)
@given(text=wild, options=texts_of_options)
def test_a_choice_is_always_one_of_the_options_or_none(text: str, options: list[str]) -> None:
    lettered = dict(zip("ABCDEFGHIJ", options, strict=False))
    found = extract_choice(text, lettered)
    assert (found.answer in lettered and found.rule in CHOICE_RULES) or (found.answer is None and found.rule in UNREAD)


@settings(deadline=None)
@given(text=wild)
def test_yes_no_is_always_yes_or_no_or_none(text: str) -> None:
    found = extract_yes_no(text)
    assert (found.answer in {"yes", "no"} and found.rule in YES_NO_RULES) or (found.answer is None and found.rule in UNREAD)


@settings(deadline=None)
@given(text=wild)
def test_an_open_answer_has_words_and_a_normal_form(text: str) -> None:
    found = extract_open(text)
    if found.answer is None:
        assert found.rule in UNREAD
    else:
        assert found.rule in OPEN_RULES
        assert found.answer.strip()
        assert normalised(normalised(found.answer)) == normalised(found.answer)


@settings(deadline=None)
@given(text=wild)
def test_what_is_chosen_was_said(text: str) -> None:
    letter = extract_choice(text, OPTIONS).answer
    if letter is not None:
        said = unicodedata.normalize("NFKC", text).casefold()
        said = " ".join(said.replace("twelve", "12").replace("*", "").replace("`", "").replace("__", "").split())
        assert letter.casefold() in said or OPTIONS[letter] in said


@settings(max_examples=300, deadline=None)
@given(text=rambling)
def test_a_text_without_an_answer_is_never_read(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer is None


@settings(max_examples=300, deadline=None)
@given(text=rambling.filter(lambda text: not WORDS_FOR_YES_AND_NO & set(text.split())))
def test_a_text_without_yes_or_no_is_never_read(text: str) -> None:
    assert extract_yes_no(text).answer is None


@settings(deadline=None)
@given(text=rambling, letter=st.sampled_from("ABCD"))
def test_thinking_does_not_count(text: str, letter: str) -> None:
    wrong = "A" if letter != "A" else "B"
    assert extract_choice(f"<think>The answer is {wrong}. {text}</think>\nThe answer is {letter}.", OPTIONS).answer == letter
    assert extract_choice(f"<think>The answer is {letter}", OPTIONS) == Extraction(None, "unfinished_thinking")


@settings(deadline=None)
@given(
    one=st.sampled_from("ABCD"), other=st.sampled_from("ABCD"), template=st.sampled_from(["{} or {}", "either {} or {}", "{}/{}"])
)
def test_two_answers_are_none(one: str, other: str, template: str) -> None:
    assume(one != other)
    assert extract_choice(template.format(one, other), OPTIONS).answer is None


@pytest.mark.parametrize("letter", "ABCD")
@pytest.mark.parametrize(
    "template",
    [
        "The answer is not {}.",
        "I don't think it is {}",
        "{} is wrong",
        "{} is not correct",
        "Option {} is incorrect",
        "不选{}",
        "never {}",
    ],
)
def test_a_denied_letter_is_no_answer(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), OPTIONS).answer is None


@pytest.mark.parametrize("letter", "ABCD")
@pytest.mark.parametrize(
    "template",
    [
        *[
            "{}",
            "({})",
            "{}.",
            "**{}**",
            "[{}]",
            "Option {}",
            "The answer is {}",
            "The answer is **({})**.",
            "Answer: {}",
            "So {}.",
        ],
        *[
            "I would choose {}, I think",
            "It is wrong to say otherwise.\n{}",
            "\\boxed{{{}}}",
            "<answer>{}</answer>",
            "选{}",
            "{} is correct",
        ],
    ],
)
def test_every_letter_is_read_alike(template: str, letter: str) -> None:
    assert extract_choice(template.format(letter), OPTIONS).answer == letter


def test_options_that_differ_in_case_only() -> None:
    options = {"A": "Polish", "B": "polish"}
    assert extract_choice("polish", options).answer == "B"
    assert extract_choice("POLISH", options) == Extraction(None, "ambiguous")


def test_without_options_nothing_is_read() -> None:
    assert extract_choice("A", {}) == Extraction(None, "none")


def test_every_rule_says_what_it_reads() -> None:
    for ladder in (CHOICE_RULES, YES_NO_RULES, OPEN_RULES):
        for name, rule in ladder.items():
            assert rule.__doc__, name


HOSTILE = [
    "<think>",
    "\\boxed{",
    "so ",
    "A ",
    "the answer is ",
    "A. cat ",
    "(",
    "**",
    "A and ",
    "it is ",
    "yes or ",
    "answer=",
    "cat ",
    "1,",
    "$a",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("extract", [lambda text: extract_choice(text, OPTIONS), extract_yes_no, extract_open, normalised])
def test_a_long_hostile_text_is_read_without_an_error(extract: Callable[[str], object], piece: str) -> None:
    assert isinstance(extract(piece * 5_000), Extraction | str)


@pytest.mark.parametrize(
    ("answers", "same"),
    [
        (["The red car.", "red car", "RED  CAR!", "a red\ncar"], True),
        (["T-shirt", "t shirt"], True),
        (["U.S.A.", "usa"], True),
        (["1,000", "1000", "1000.0"], True),
        (["two", "2", "2.0"], True),
        ([".50", "0.5"], True),
        (["\uff46ull", "full"], True),
        (["it\u2019s", "its"], True),
        (["-3", "3"], False),
        (["5%", "5"], False),
        (["$5", "5"], False),
        (["3.5", "35"], False),
        (["?", "!"], False),
        (["a", "the"], False),
        (["1,5", "15"], False),
    ],
)
def test_normal_forms(answers: Sequence[str], same: bool) -> None:
    assert (len({normalised(answer) for answer in answers}) == 1) is same


TABLE = Path(__file__).parents[2] / "golden" / "extraction.csv"
with TABLE.open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))
NOT_RUN = "-"
PEERS = ("vlmevalkit", "lmms_eval")


def read(row: dict[str, str]) -> Extraction:
    if row["kind"] == "choice":
        return extract_choice(row["text"], json.loads(row["options"]))
    return extract_yes_no(row["text"]) if row["kind"] == "yes_no" else extract_open(row["text"])


@pytest.mark.parametrize("row", ROWS, ids=[f"{number:03d}-{row['kind']}" for number, row in enumerate(ROWS)])
def test_reads_what_a_person_reads(row: dict[str, str]) -> None:
    found = read(row)
    assert (found.answer or "", found.rule) == (row["answer"], row["rule"]), row["text"]


@pytest.mark.parametrize("peer", PEERS)
def test_reads_every_row_that_a_peer_reads_and_more(peer: str) -> None:
    asked = [row for row in ROWS if row[peer] != NOT_RUN]
    theirs = sum(row[peer] == row["answer"] for row in asked)
    ours = sum((read(row).answer or "") == row["answer"] for row in asked)
    assert ours == len(asked) > theirs


def test_the_table_has_every_kind_of_failure() -> None:
    assert {"empty", "unfinished_thinking", "refusal", "ambiguous", "none"} <= {row["rule"] for row in ROWS if not row["answer"]}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("A car is parked on the street.", None),
        ("Answer: B. dog\n\nA. cat: not seen.\nC. red car: no car.\nD. 12: none", "B"),
        ("The answer is B. dog.\nA. cat is too small.\nD. 12 is too high.", "B"),
        ("Here's a breakdown:\n* A. cat: Incorrect.\n* C. red car: no.\n* D. 12: Incorrect.", None),
        ("A. cat: no\nB. dog: no\nC. red car", "C"),
    ],
)
def test_a_remark_about_an_option_chooses_nothing(text: str, answer: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == answer


YEARS = {"A": "2015", "B": "2016", "C": "2017", "D": "2018"}


@pytest.mark.parametrize(
    ("text", "options", "letter"),
    [
        ("<CONCLUSION> B </CONCLUSION>", OPTIONS, "B"),
        ("<REASONING>It has whiskers, so option A fits.</REASONING><CONCLUSION>The answer is B.</CONCLUSION>", OPTIONS, "B"),
        (r"$\boxed{45^\circ}$", {"A": "30°", "B": "45°"}, "B"),
        (r"\boxed{45^{\circ}}", {"A": "30°", "B": "45°"}, "B"),
        ("It's hard to tell because it is blurry, but my best guess would be B.", OPTIONS, "B"),
        ("👉 B", OPTIONS, "B"),
        ("A 👉 B", OPTIONS, None),
        ("It should be D, not B.", OPTIONS, "D"),
        ("2015 (A) is less than 2017 (C). 2018 (D) is lower.\n\nAnswer: C", YEARS, "C"),
        ("Answer: (C). 2018", YEARS, None),
    ],
)
def test_tags_degrees_pointers_and_guesses(text: str, options: dict[str, str], letter: str | None) -> None:
    assert extract_choice(text, options).answer == letter


@pytest.mark.parametrize(
    "text", ["B", "(B).", "**B**", "B. dog", "(B) dog", "The answer is B.", "Answer: **B**", "B: dog", "**B. dog**"]
)
def test_the_commonest_forms_are_read_as_the_ladder_reads_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quickly = extract_choice(text, OPTIONS)

    monkeypatch.setattr("pytest_vlmrobust.scoring.choice._commonest", lambda reply, options: None)

    assert quickly == extract_choice(text, OPTIONS)
    assert quickly.answer == "B"


@pytest.mark.parametrize("text", ["Answer: B", "The answer is B."])
def test_no_form_is_common_where_an_option_has_its_words(text: str) -> None:
    assert extract_choice(text, {"A": text, "B": "dog"}).answer == "A"


def _seconds(text: str) -> float:
    begin = time.process_time()
    extract_yes_no(text, "Is there a dog?")
    return time.process_time() - begin


def test_a_repeated_denial_takes_time_in_proportion_to_its_length() -> None:
    shorter, longer = (min(_seconds("no dog " * count) for _ in range(2)) for count in (2_000, 8_000))

    assert longer < 8 * max(shorter, 0.005)


COMPOUNDS = {"A": "dog", "B": "cake", "C": "bus", "D": "flower pot"}


@pytest.mark.parametrize(
    "text",
    [
        "hot dog",
        "It is a hot dog.",
        "hot-dog",
        "The answer is a hot dog.",
        "<answer>hot dog</answer>",
        r"\boxed{hot dog}",
        '{"answer": "hot dog"}',
        "A dog house stands in the garden.",
        "It is a dog toy.",
        "This is a bus stop.",
        "the bus driver",
    ],
)
def test_a_part_of_a_compound_is_no_option(text: str) -> None:
    assert extract_choice(text, COMPOUNDS).answer is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("It is a small dog.", "A"),
        ("The dog sits on the grass.", "A"),
        ("a dog and a dog house", "A"),
        ("A hot dog on a cake", "B"),
        ("The bus stopped here.", "C"),
        ("a flower pot", "D"),
        ("A. hot dog", "A"),
    ],
)
def test_what_only_looks_like_a_compound_is_read(text: str, answer: str) -> None:
    assert extract_choice(text, COMPOUNDS).answer == answer


def test_a_compound_that_is_an_option_is_read() -> None:
    assert extract_choice("It is a hot dog.", {"A": "dog", "B": "hot dog"}).answer == "B"


def test_a_json_answer_of_null_is_none_whatever_the_reason_mentions() -> None:
    assert extract_choice('{"answer": null, "reason": "A dog-like cat"}', OPTIONS).answer is None
    assert extract_choice('{"answer": null, "choice": "B"}', OPTIONS).answer == "B"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "Looking at each option:\nA. cat - no, wrong ears.\nB. dog - matches!\nC. red car - no vehicle.\nD. 12 - not there.",
            "B",
        ),
        ("Option: B", "B"),
        ("Not A, not C, not D. That leaves B.", "B"),
        ("A and B are both plausible but B is better.", "B"),
        ("cat? No. dog? Yes.", "B"),
        ("answer: dog (A)", None),
        ("A letra é B", "B"),
        ("不选A,选B", "B"),
        ("No es A, es B", "B"),
        ("विकल्प B सही है", "B"),
        ('{"scores": {"A": 0.5, "B": 0.5}}', None),
    ],
)
def test_answers_of_further_styles(text: str, answer: str | None) -> None:
    assert extract_choice(text, OPTIONS).answer == answer
