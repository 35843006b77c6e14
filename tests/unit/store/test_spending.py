"""Spending: tokens, and what they cost at declared prices."""

from __future__ import annotations

import dataclasses
import math

import pytest

from pytest_vlmrobust.core.conversion import from_plain, to_plain
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.core.record import CHECK, Record
from pytest_vlmrobust.store.spending import BUDGET_SPENT, Spending, budget_lines

MODEL = ModelRef("m", "openai", "http://x#m", prompt_price=2.5, completion_price=10.0, currency="EUR")


def test_a_cost_is_of_a_million_tokens_and_not_known_without_prices() -> None:
    spent = Spending("m", 3, 2_000_000, 100_000)
    assert spent.priced(MODEL).cost == pytest.approx(6.0)
    assert str(spent.priced(MODEL)) == "m: 3 new answers: 2,000,000 prompt and 100,000 completion tokens, 6 EUR"
    unpriced = spent.priced(dataclasses.replace(MODEL, prompt_price=None))
    assert math.isnan(unpriced.cost)
    assert str(unpriced) == "m: 3 new answers: 2,000,000 prompt and 100,000 completion tokens"


def test_what_was_not_counted_is_said() -> None:
    assert (
        str(Spending("m", 3, 7, 1, 2))
        == "m: 3 new answers, without 2 that say nothing of tokens: 7 prompt and 1 completion tokens"
    )
    assert str(Spending("m", 3, 0, 0, 3)) == "m: 3 new answers: tokens not known"


def test_it_survives_json() -> None:
    spent = Spending("m", 3, 7, 1, 2).priced(MODEL)
    assert from_plain(to_plain(spent), Spending) == spent
    assert to_plain(Spending("m"))["cost"] is None


def test_tests_that_lack_answers_are_counted() -> None:
    record = Record("cell", "m-d-clean", "m", "d", outcome=Outcome.PASS)
    cut = dataclasses.replace(record, outcome=Outcome.INCONCLUSIVE, reason=f"{BUDGET_SPENT}9 of 8 tokens (--x); kept")
    other = Record(CHECK, "t", "", "", outcome=Outcome.ERROR)
    assert budget_lines([record, other]) == []
    assert budget_lines([record, cut, other]) == [
        "budget spent: 9 of 8 tokens (--x); 1 of 2 tests lacks answers and is undecided"
    ]
    assert budget_lines([cut, cut]) == ["budget spent: 9 of 8 tokens (--x); 2 of 2 tests lack answers and are undecided"]
