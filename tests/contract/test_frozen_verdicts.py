"""The frozen tables of studies/verdicts, which its README shows: within what is declared, and made by the program there."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    folder = str(ROOT / "studies" / "verdicts")
    sys.path.insert(0, folder)
    yield importlib.import_module("study")
    sys.path.remove(folder)


LOOSER = {
    "whole pictures lost, n pictures": 0.071,
    **{f"unreadable: on the budget, {part}% always the same questions": 0.075 for part in (40, 70, 100)},
}
"""Worlds in which verdicts are documented to err more often than declared, and how often."""


def test_no_frozen_rate_is_above_what_is_declared_or_documented(study: Any) -> None:
    frozen = json.loads(study.FROZEN.read_text(encoding="utf-8"))
    for row in frozen["verdicts"]:
        most = LOOSER.get(row["world"], 0.05)
        chance = 3.0 * (most * (1.0 - most) / row["runs"]) ** 0.5 if row["runs"] else 0.0
        for kind in ("wrong_pass", "wrong_fail"):
            assert row[kind] is None or row[kind] <= most + chance, row
    questions = [(question.name, question.questions, question.pictures, question.wanted) for question in study.ASKED]
    assert [(row["model"], row["questions"], row["pictures"], row["wanted"]) for row in frozen["decisions"]] == questions
    page = (ROOT / "studies" / "verdicts" / "README.md").read_text(encoding="utf-8")
    assert f"made on {frozen['made']} by `python studies/verdicts/study.py --jobs 2`." in page
    for row in frozen["decisions"]:
        assert row["go"] <= 0.05 or row["wanted"] == study.GOOD, row


@pytest.mark.parametrize("part", ["binary_drops", "few_pictures", "waivers"])
def test_exact_rows_are_what_the_program_makes(study: Any, part: str) -> None:
    frozen = [row for row in json.loads(study.FROZEN.read_text(encoding="utf-8"))["verdicts"] if not row["runs"]]
    for row in study.VERDICTS[part]():
        (kept,) = [old for old in frozen if all(old[key] == getattr(row, key) for key in ("world", "metric", "n"))]
        for kind in ("wrong_pass", "wrong_fail"):
            assert kept[kind] == pytest.approx(getattr(row, kind), abs=1e-6)
