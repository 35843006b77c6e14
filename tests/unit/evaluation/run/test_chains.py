"""Lengths of chains of thought by outcome."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.run.chains import chains_by_change, chains_by_outcome
from pytest_vlmrobust.evaluation.run.results import CellResult
from pytest_vlmrobust.store import Answer

WRONG, UNREAD, FAILED = Score(0.0, "letter", "A"), Score.unparsed(), Score.unscored("the endpoint is down")
RIGHT = Score(1.0, "letter", "B")


def result(*answers: tuple[int, Score], views: int = 1) -> CellResult:
    """Returns a cell whose answers have so many words of marked thinking, its marks included."""
    samples = [Sample(f"q{n}", (), "?", "B", "choice", {"A": "x", "B": "y"}) for n in range(len(answers) // views)]
    given = [
        Answer(f"k{n}", Prediction(f"<think> {'word ' * (words - 2)} </think> B", "generate"), score)
        for n, (words, score) in enumerate(answers)
    ]
    return CellResult.of(Cell("m", "d", Setting.parse("clean")), samples, given, views=views, places=None, notes={})


def test_answers_are_counted_by_outcome_and_length() -> None:
    found = chains_by_outcome(result((10, RIGHT), (31, RIGHT), (40, WRONG), (3000, UNREAD), (50, FAILED)))
    assert found == {"right, to 31": 2.0, "wrong, 32 to 63": 1.0, "unread, from 2048": 1.0}


def test_views_of_a_sample_have_no_chain_of_the_sample() -> None:
    views = result((10, RIGHT), (10, RIGHT), views=2)
    assert chains_by_outcome(views) == {}
    assert chains_by_change([views], [views]) == {}


def test_what_chains_change_beside_the_same_model_without() -> None:
    plain = result((2, WRONG), (2, WRONG), (2, RIGHT), (2, RIGHT), (2, FAILED))
    thinks = result((100, RIGHT), (200, WRONG), (300, WRONG), (20, RIGHT), (20, RIGHT))
    assert chains_by_change([plain, plain], [thinks, thinks]) == {
        "fixes, 64 to 127": 2.0,
        "does not fix, 128 to 255": 2.0,
        "breaks, 256 to 511": 2.0,
        "keeps, to 31": 2.0,
    }


@pytest.mark.parametrize(("words", "name"), [(31, "to 31"), (32, "32 to 63"), (2047, "1024 to 2047"), (2048, "from 2048")])
def test_ends_of_bins(words: int, name: str) -> None:
    assert chains_by_outcome(result((words, RIGHT))) == {f"right, {name}": 1.0}
