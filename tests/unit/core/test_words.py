from __future__ import annotations

import json
import math

import pytest

from pytest_vlmrobust.core.errors import BackendError
from pytest_vlmrobust.core.prediction import Score
from pytest_vlmrobust.core.words import LONGEST, number, on_one_line, printable, quantity, without_halves


@pytest.mark.cases(
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


def test_infinity_is_not_undefined() -> None:
    assert [number(value, "pp") for value in (math.inf, -math.inf, math.nan)] == ["infinity", "-infinity", "undefined"]


@pytest.mark.cases(
    ("text", "shown"),
    [
        ("größe 設定 \U0001f600 \N{NO-BREAK SPACE}", "größe 設定 \U0001f600 \N{NO-BREAK SPACE}"),
        ("\x1b[2J\x00\x7f\x9b", r"\x1b[2J\x00\x7f\x9b"),
        ("\u202egnp.exe\u2066", r"\u202egnp.exe\u2066"),
        ("\udfff", r"\udfff"),
        ("\U000e0041", r"\U000e0041"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
    ],
)
def test_what_nobody_sees_is_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_some_characters_may_stay_and_long_text_is_cut_before_it_is_spelled() -> None:
    assert printable("a\nb\x1b", kept="\n") == "a\nb\\x1b"
    assert printable("\x00" * 5, 2) == r"\x00\x00 … (3 more characters)"
    assert printable("ab", 2) == "ab"


def test_one_line() -> None:
    assert on_one_line("first\r\n  second\n\n\tthird\n") == "first   second third"
    assert on_one_line("     kept") == "     kept"
    assert len(on_one_line("x" * 1_000_000)) < LONGEST + 40


def test_halves_of_surrogates_keep_their_meaning_in_json() -> None:
    text = json.dumps({"a\udfff": "\\\ud800é"}, ensure_ascii=False)
    assert json.loads(without_halves(text).encode()) == {"a\udfff": "\\\ud800é"}
    assert without_halves("é\x1b") == "é\x1b"


def test_errors_reasons_of_failures_and_answers_are_printable_and_short() -> None:
    assert str(BackendError("down: \x1b[2J\n\u202enext")) == "down: \\x1b[2J\n\\u202enext"
    assert len(str(BackendError("x" * 1_000_000))) < 30_000
    failed = Score.unscored("\x1b[2J down\nat \udfff")
    assert (failed.rule, failed.state) == (r"\x1b[2J down at \udfff", "error")
    assert len(Score.unscored("x" * 1_000_000).rule) < 600
    score = Score(1.0, "te\ud800xt", "\udfff")
    assert (score.rule, score.answer) == (r"te\ud800xt", r"\udfff")
