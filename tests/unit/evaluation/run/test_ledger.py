"""Ledger: tokens and seconds of a run, over all of its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import BackendError, StoreError
from pytest_vlmrobust.core.prediction import LETTER_LOGITS, Prediction
from pytest_vlmrobust.evaluation.run.ledger import Ledger, SharedSpending
from pytest_vlmrobust.store.spending import Spending


def answer(prompt: int, completion: int) -> Prediction:
    return Prediction("A", "generate", details={"prompt_tokens": prompt, "completion_tokens": completion})


def test_tokens_are_those_of_the_prompt_and_of_the_answer() -> None:
    assert answer(7, 2).tokens == (7, 2)
    assert Prediction("A", "generate", details={"prompt_tokens": 7, "new_tokens": 3}).tokens == (7, 3)
    assert Prediction("A", LETTER_LOGITS, details={"prompt_tokens": 7}).tokens == (7, 1)
    assert Prediction("A", "generate", details={"prompt_tokens": 7}).tokens is None
    assert Prediction("A", LETTER_LOGITS).tokens is None


def test_processes_share_what_they_spent(tmp_path: Path) -> None:
    path = tmp_path / "run" / "spending.tsv"
    first, second = (Ledger(path, tokens=20) for _ in range(2))
    first.add("m", [answer(7, 1)])
    assert second.why_spent() == ""
    second.add("m", [answer(7, 5)])
    assert first.why_spent() == second.why_spent()
    assert first.why_spent().startswith("budget spent: 20 of 20 tokens (--vlm-budget-tokens); ")
    first.add("n", [answer(1, 1)])
    assert first.why_spent().startswith("budget spent: 20 of 20"), "the words stay the same"
    assert SharedSpending(path).read() == {"m": Spending("m", 2, 14, 6, 0), "n": Spending("n", 1, 1, 1, 0)}
    assert first.spending == {"m": Spending("m", 1, 7, 1, 0), "n": Spending("n", 1, 1, 1, 0)}


def test_without_a_file_a_process_counts_alone() -> None:
    ledger = Ledger(tokens=8)
    ledger.add("m", [answer(7, 1)])
    assert ledger.why_spent()


def test_without_a_limit_nothing_is_ever_spent(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "spending.tsv")
    ledger.add("m", [answer(10**9, 1), Prediction("A", "generate")])
    assert ledger.why_spent() == ""
    assert SharedSpending(ledger.path or tmp_path).read()["m"].uncounted == 1


def test_seconds_count_from_the_start_of_the_run() -> None:
    now = [100.0]
    ledger = Ledger(seconds=60, started=90.0, clock=lambda: now[0])
    assert ledger.why_spent() == ""
    now[0] = 151.0
    assert ledger.why_spent().startswith("budget spent: 61 of 60 seconds (--vlm-budget-seconds); ")


def test_tokens_that_nobody_says_cannot_be_limited() -> None:
    ledger = Ledger(tokens=10)
    ledger.add("m", [Prediction("", "generate", "content_filter"), Prediction("", "generate", "error", error="gone")])
    assert ledger.why_spent() == "", "filtered and failed answers count for nothing"
    ledger.add("m", [Prediction("A", "generate")])
    with pytest.raises(BackendError, match="m gave 1 answers without saying how many tokens"):
        ledger.why_spent()


def test_a_line_that_is_being_written_is_read_later(tmp_path: Path) -> None:
    path = tmp_path / "spending.tsv"
    ledger = Ledger(path, tokens=8)
    path.write_text("m\t1\t7\t")
    assert ledger.why_spent() == ""
    with path.open("a") as file:
        file.write("1\t0\t0\n")
    assert ledger.why_spent()


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spending.tsv"
    path.write_text("hello\n")
    with pytest.raises(StoreError, match="the line 'hello' is not what a run writes"):
        SharedSpending(path).read()
    assert SharedSpending(tmp_path / "none").read() == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot write what the run spent"):
        Ledger(tmp_path / "file" / "spending.tsv").add("m", [answer(1, 1)])
