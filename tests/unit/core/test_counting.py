from __future__ import annotations

import pytest

from pytest_vlmrobust.core.counting import quantity


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("verdict",), "0 verdicts"),
        (1, ("verdict",), "1 verdict"),
        (2, ("verdict",), "2 verdicts"),
        (1, ("test is open", "tests are open"), "1 test is open"),
        (12, ("test is open", "tests are open"), "12 tests are open"),
    ],
)
def test_words_fit_the_number(count: int, words: tuple[str, ...], said: str) -> None:
    assert quantity(count, *words) == said
