"""Every row of the table of texts: what a person reads, and nothing else."""

import csv
import json
from pathlib import Path

import pytest

from pytest_vlmrobust.scoring import Extraction, extract_choice, extract_open, extract_yes_no

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
