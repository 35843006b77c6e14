from __future__ import annotations

import pytest

from pytest_vlmrobust.core.errors import UnknownName
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.metrics import chance_floor


def test_floors_by_task() -> None:
    assert chance_floor("choice", 4) == 0.25
    assert chance_floor("yes_no") == 0.5
    assert chance_floor("open") == 0.0


def test_a_majority_raises_the_floor_where_it_can_be_repeated() -> None:
    assert chance_floor("yes_no", targets=["yes"] * 7 + ["no"] * 3) == 0.7
    assert chance_floor("yes_no", targets=["yes", "no"]) == 0.5
    assert chance_floor("open", targets=["2", "2", "cat", "a dog"]) == 0.5
    assert chance_floor("choice", 4, targets=["A", "A", "A"]) == 0.25


@pytest.mark.parametrize(("task", "options"), [("choice", 3), ("yes_no", 0), ("open", 0)])
def test_floors_are_those_of_the_samples(task: str, options: int) -> None:
    letters = dict.fromkeys("ABCDE"[:options], "text")
    assert chance_floor(task, options) == Sample("1", (), "?", "A", task, options=letters).chance


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="a choice among 0 options: expected at least 1, the number of options shown"):
        chance_floor("choice")
    with pytest.raises(UnknownName, match=r"unknown task 'yesno'\. Did you mean 'yes_no'\?"):
        chance_floor("yesno")
