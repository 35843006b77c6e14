"""Answers of models from public sources, and what a careful person reads in each."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import Extraction, extract_choice, extract_open, extract_yes_no, normalised, score

GOLDEN = Path(__file__).parents[1] / "golden"
MOST_UNREAD = 0.01
with (GOLDEN / "answers.jsonl").open(encoding="utf-8") as stream:
    EVERY = [json.loads(line) for line in stream]
ANSWERS = [row for row in EVERY if row["call"] in ("choice", "yes_no")]
NUMBERS = [row for row in EVERY if row["call"] == "number"]
SCORED = [row for row in EVERY if row["call"] == "score" and row["scorer"] in ("numeric", "relaxed")]


def read_row(row: dict[str, Any]) -> str | None:
    if row["call"] == "choice":
        return extract_choice(row["text"], row["options"]).answer
    return extract_yes_no(row["text"], *row.get("more", ())).answer


def test_no_golden_answer_is_read_as_another_one() -> None:
    read = [(read_row(row), row["expected"] if row["expected"] != "ambiguous" else None, row) for row in ANSWERS]
    wrong = [
        (said, row["text"], row["source"])
        for said, expected, row in read
        if said not in (expected, None) and "disputed" not in row
    ]
    unread = [row["text"] for said, expected, row in read if said is None and expected is not None and "disputed" not in row]

    assert len(ANSWERS) > 800
    assert wrong == []
    assert len(unread) <= MOST_UNREAD * len(ANSWERS), unread


def score_row(row: Mapping[str, Any], target: str, scorer: str) -> Score:
    return score(Sample("q", (), "?", (target,), "open", scorer=scorer), Prediction(row["text"], "generate"))


def test_no_golden_number_is_read_as_another_one() -> None:
    numbered = [row for row in NUMBERS if row["expected"] not in (None, "ambiguous")]
    read = [(score_row(row, row["expected"], "numeric"), row) for row in numbered]
    wrong = [row["text"] for result, row in read if result.value != 1 and result.state == "scored" and "disputed" not in row]
    unread = [row["text"] for result, row in read if result.state == "unparsed" and "disputed" not in row]
    assert len(numbered) > 250
    assert wrong == []
    assert len(unread) <= MOST_UNREAD * len(numbered), unread


def test_golden_texts_without_a_number_are_not_read() -> None:
    silent = [row["text"] for row in NUMBERS if row["expected"] in (None, "ambiguous") and "disputed" not in row]
    read = [text for text in silent if score_row({"text": text}, "987654321", "numeric").state == "scored"]
    assert len(silent) > 20
    assert read == []


def test_golden_scores_of_numbers() -> None:
    for row in SCORED:
        expected = row["expected"] if isinstance(row["expected"], list) else [row["expected"]]
        assert score_row(row, row["target"], row["scorer"]).value in expected, row


with (GOLDEN / "extraction.csv").open(encoding="utf-8", newline="") as stream:
    ROWS = list(csv.DictReader(stream))
NOT_RUN = "-"


def read_text(row: dict[str, str]) -> Extraction:
    if row["kind"] == "choice":
        return extract_choice(row["text"], json.loads(row["options"]))
    if row["kind"] == "number":
        result = score_row(row, row["answer"] or "987654321", "numeric")
        return Extraction(result.answer or None, result.rule)
    return extract_yes_no(row["text"], row["options"]) if row["kind"] == "yes_no" else extract_open(row["text"])


@pytest.mark.cases("row", ROWS)
def test_reads_what_a_person_reads(row: dict[str, str]) -> None:
    extraction = read_text(row)
    assert (extraction.answer or "", extraction.rule) == (row["answer"], row["rule"]), row["text"]


@pytest.mark.parametrize("peer", ["vlmevalkit", "lmms_eval"])
def test_reads_every_row_that_a_peer_reads_and_more(peer: str) -> None:
    rows = [row for row in ROWS if row[peer] != NOT_RUN]
    theirs = sum(row[peer] == row["answer"] for row in rows)
    ours = sum((read_text(row).answer or "") == row["answer"] for row in rows)
    assert ours == len(rows) > theirs


def test_the_table_has_every_kind_of_failure() -> None:
    assert {"empty", "unfinished_thinking", "refusal", "ambiguous", "none"} <= {row["rule"] for row in ROWS if not row["answer"]}


@pytest.mark.cases(
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
        (["3.5", "35"], False),
        (["?", "!"], False),
        (["a", "the"], False),
        (["1,5", "15"], False),
    ],
)
def test_normal_forms(answers: list[str], same: bool) -> None:
    assert (len({normalised(answer) for answer in answers}) == 1) is same
