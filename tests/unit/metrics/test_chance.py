from __future__ import annotations

import pytest

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.metrics import chance_floor
from pytest_vlmrobust.metrics.chance import unseeing


def test_floors_by_task() -> None:
    assert chance_floor("choice", 4) == 0.25
    assert chance_floor("yes_no") == 0.5
    assert chance_floor("open") == 0.0


def test_a_majority_raises_the_floor_where_it_can_be_repeated() -> None:
    assert chance_floor("yes_no", targets=["yes"] * 7 + ["no"] * 3) == 0.7
    assert chance_floor("yes_no", targets=["yes", "no"]) == 0.5
    assert chance_floor("open", targets=["2", "2", "cat", "a dog"]) == 0.5
    assert chance_floor("choice", 4, targets=["A", "A", "B", "C"]) == 0.5
    assert chance_floor("choice", 4, targets=["A", "B", "C", "D", "A", "B", "C", "D"]) == 0.25


@pytest.mark.parametrize(("task", "options"), [("choice", 3), ("yes_no", 0), ("open", 0)])
def test_floors_are_those_of_the_samples(task: str, options: int) -> None:
    letters = dict.fromkeys("ABCDE"[:options], "text")
    assert chance_floor(task, options) == Sample("1", (), "?", "A", task, options=letters).chance


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="a choice among 0 options: expected at least 1, the number of options shown"):
        chance_floor("choice")
    with pytest.raises(UnknownName, match=r"unknown task 'yesno'\. Did you mean 'yes_no'\?"):
        chance_floor("yesno")


def test_the_same_answer_throughout_counts_where_it_is_better_than_guessing() -> None:
    guesses = [0.5, 0.5, 0.5, 0.5]
    found = unseeing(guesses, {"yes": [1, 0, 0, 0], "no": [0, 1, 1, 1]})
    assert (found.scores.tolist(), found.answer) == ([0, 1, 1, 1], "no")
    even = unseeing(guesses, {"no": [0, 1, 0, 1]})
    assert (even.scores.tolist(), even.answer) == (guesses, "")
    assert unseeing([], {"no": []}).scores.tolist() == []


def test_answers_belong_to_the_samples() -> None:
    with pytest.raises(ValueError, match="guesses has 2 scores and scores has 1"):
        unseeing([0.5, 0.5], {"no": [1]})
