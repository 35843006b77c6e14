"""What part of a text is its answer: thinking as each family of models marks it, the end of a turn, a further question."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
import yaml

from pytest_vlmrobust.core.errors import UsageError
from pytest_vlmrobust.scoring import Extraction, extract_choice, extract_open, extract_yes_no
from pytest_vlmrobust.scoring import text as reader
from pytest_vlmrobust.scoring.text import FAMILIES, answer_tag, boxed_content, final_words, shortened

OPTIONS = {"A": "cat", "B": "dog"}
TABLE = yaml.safe_load(FAMILIES.read_text(encoding="utf-8"))
PAIRS = [row for row in TABLE["families"] if "open" in row and ("close" in row or "answer_open" in row)]


@pytest.mark.cases("row", PAIRS)
def test_the_thinking_of_every_family_is_no_answer(row: dict[str, str]) -> None:
    begin, end = row["open"], row.get("close", "") + row.get("answer_open", "")
    said = f"B{row.get('answer_close', '')}"
    assert extract_choice(f"{begin}The answer is A.{end}{said}", OPTIONS) == Extraction("B", "letter")
    assert extract_choice(f"The answer is A.\n{end}{said}", OPTIONS) == Extraction("B", "letter")
    assert extract_choice(f"{begin}The answer is A.", OPTIONS) == Extraction(None, "unfinished_thinking")
    assert extract_yes_no(f"{begin}The answer is yes.{end}No.") == Extraction("no", "word")
    assert extract_open(f"{begin}Answer: red{end}blue").answer == "blue"


def test_an_unknown_mark_of_thinking_that_is_not_closed_is_unfinished() -> None:
    assert extract_choice("<my_own_thinking>It could be a dog, so", OPTIONS) == Extraction(None, "unfinished_thinking")
    assert extract_choice("<my_own_thinking>It could be a cat</my_own_thinking>B", OPTIONS).answer == "B"
    assert extract_choice("<ref>dog", OPTIONS).answer == "B"


def test_every_family_names_its_source() -> None:
    assert all(row["source"] and row["family"] for row in TABLE["families"])


@pytest.mark.cases(
    "text",
    [
        "analysisThe answer is A.assistantfinalB",
        "<THINKING>A</THINKING>B",
        "<think:6124c78e>A</think:6124c78e>B",
        "B\n<think>A, no more to say</think>",
        "<think>A?</think><think>A!</think>B",
        "<scratchpad>The answer is A.</scratchpad>B",
        "<plan>It is A.</plan>\n<draft>So A it is.</draft>\n<final>B</final>",
        "<summary>The answer is A.</summary> B",
        "<analysis>The answer is A.</analysis>\n<result>B</result>",
        "<|START_THINKING|>A<|END_THINKING|><|START_RESPONSE|><co>B</co: 0:[1]><|END_RESPONSE|>",
    ],
)
def test_other_marks_of_thinking(text: str) -> None:
    assert extract_choice(text, OPTIONS).answer == "B"


@pytest.mark.cases("token", TABLE["end_of_turn"])
def test_what_follows_the_end_of_a_turn_is_not_read(token: str) -> None:
    assert extract_choice(f"B{token}\nuser: and now?\nassistant: A", OPTIONS).answer == "B"
    assert extract_choice(token, OPTIONS) == Extraction(None, "empty")


@pytest.mark.cases(
    "more",
    [
        *["\n\nQuestion: What?\nAnswer: A", "\nQ: What?\nA: A", "\nUSER: What?\nASSISTANT: A", "\n\nHuman: A?\n\nAssistant: A"],
        *["\n###\nQuestion: What?\nAnswer: A", "\n### Human: A", "\n\nQuestion 2: What?\nAnswer: A", " USER: What? ASSISTANT: A"],
        "\n**Next question:** What?\nAnswer: A",
    ],
)
@pytest.mark.cases("said", ["B", "B. dog", "The dog.", "Answer: B"])
def test_a_further_question_is_not_answered(said: str, more: str) -> None:
    assert extract_choice(said + more, OPTIONS).answer == "B"
    assert extract_yes_no(f"Yes{more.replace('A', 'no')}").answer == "yes"
    assert extract_choice(f"I cannot tell.{more}", OPTIONS).answer is None


def test_the_question_may_be_repeated_first() -> None:
    assert extract_choice("Question: What is it?\nAnswer: B", OPTIONS).answer == "B"
    assert extract_choice("It barks.\n\n### Answer\nB", OPTIONS).answer == "B"


def test_words_that_are_no_marks_stay() -> None:
    assert extract_open("analysis of a picture") == Extraction("analysis of a picture", "whole")
    assert final_words("<b>two words</b> B") == "<b>two words</b> B"
    assert final_words("<ref>left eye</ref><box>1</box>") == "<ref>left eye</ref><box>1</box>"


def test_tags_and_boxes() -> None:
    assert answer_tag("<answer>A</answer> no: <response>B</response>") == "B"
    assert answer_tag("[ANSWER]B") == "B"
    assert answer_tag("B") is None
    assert boxed_content(r"\boxed{A}, then \boxed{\text{B}}") == r"\text{B}"
    assert boxed_content(r"\boxed{B") == "B"
    assert boxed_content("B") is None


def test_a_very_long_reply_is_read_at_its_ends() -> None:
    assert shortened("B") == "B"
    assert extract_choice(f"Let me see. {'word ' * 10_000}\nAnswer: B", OPTIONS).answer == "B"
    assert extract_choice("word " * 30_000, OPTIONS) == Extraction(None, "too_long")


def test_a_letter_keeps_as_many_marks_as_any_language_puts_on_one() -> None:
    marked = "x" + "\u0323\u0307" * 15
    assert final_words(f"{marked} B") == unicodedata.normalize("NFKC", f"{marked} B")
    assert final_words("x" + "\u0307\u0323" * 150_000 + " B") == unicodedata.normalize("NFKC", "x" + "\u0307\u0323" * 15 + " B")


def test_a_broken_table_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "families.yaml").write_text(
        "families:\n- {family: x, opens: <x>, source: y}\nend_of_turn: [x]\n", encoding="utf-8"
    )
    monkeypatch.setattr(reader, "FAMILIES", tmp_path / "families.yaml")
    reader._families.cache_clear()
    with pytest.raises(UsageError, match=r"families\.yaml:2.*opens"):
        reader.after_thinking("<x>")
    reader._families.cache_clear()
