"""Numbers in LaTeX: understood, or unread."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_vlmrobust.core.prediction import Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.scoring import latex, score
from pytest_vlmrobust.scoring.latex import plain_numbers, same_spelling


def scored(scorer: str, text: str, target: str) -> Score:
    return score(Sample("1", (), "?", target, "open", scorer=scorer), Prediction(text, "generate"))


@pytest.fixture(autouse=True)
def without_math_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latex, "math_verify_version", lambda: None)
    latex.equals.cache_clear()


@pytest.mark.cases("scorer", ["numeric", "relaxed"])
@pytest.mark.cases(
    ("text", "target", "value"),
    [
        (r"\boxed{\frac{1}{2}}", "2", 0.0),
        (r"\boxed{\frac{1}{2}}", "0.5", 1.0),
        (r"\boxed{\frac{3}{4}}", "0.75", 1.0),
        (r"\boxed{-\dfrac{3}{4}}", "-0.75", 1.0),
        (r"The answer is $1\frac{1}{2}$.", "1.5", 1.0),
        (r"\boxed{30^\circ}", "30", 1.0),
        (r"\boxed{1{,}040}", "1040", 1.0),
        (r"\boxed{1\,040\text{ m}}", "1040", 1.0),
        (r"\boxed{5\text{ km}}", "5 m", 0.0),
        (r"$\sqrt{16} = 4$", "4", 1.0),
        (r"$3.2\times10^{5}$", "320000", 1.0),
        (r"\boxed{\$1{,}250.50}", "1250.5", 1.0),
    ],
)
def test_numbers_are_read(scorer: str, text: str, target: str, value: float) -> None:
    result = scored(scorer, text, target)
    assert (result.state, result.value) == ("scored", value)


@pytest.mark.parametrize("scorer", ["numeric", "relaxed"])
@pytest.mark.parametrize(
    ("text", "target"),
    [
        (r"$2\sqrt{3}$", "3"),
        (r"$2\sqrt{3}$", "2"),
        (r"\boxed{\pi}", "3"),
        (r"\boxed{\sqrt{16}}", "4"),
        (r"\boxed{\frac{1}{0}}", "1"),
    ],
)
def test_what_is_not_understood_is_unread(scorer: str, text: str, target: str) -> None:
    assert scored(scorer, text, target) == Score.unparsed("latex")


def test_an_expression_spelled_like_the_target_is_right() -> None:
    assert scored("numeric", r"\boxed{2\sqrt{3}}", "2√3").value == 1.0
    assert same_spelling(r"$2 \sqrt{3}$", "2√3")
    assert not same_spelling(r"2\sqrt{3}", "3")


@given(above=st.integers(-999, 999), below=st.integers(1, 999), other=st.integers(-999, 999))
def test_a_fraction_is_its_value_and_no_number_inside_it(above: int, below: int, other: int) -> None:
    text = rf"\boxed{{\frac{{{above}}}{{{below}}}}}"
    value = Fraction(above, below)
    assert scored("numeric", text, str(value)).value == 1.0
    assert scored("numeric", text, str(other)).value == float(value == other)


def test_money_is_no_formula() -> None:
    assert plain_numbers(r"It costs \$5, or \$6") == "It costs $5, or $6"


def test_math_verify_decides_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latex, "math_verify_version", lambda: "1")
    calls: list[tuple[str, str]] = []

    class Verifier:
        def ask(self, expression: str, target: str) -> bool | None:
            calls.append((expression, target))
            return {"4": True, "3": False}.get(target)

    monkeypatch.setattr(latex, "_worker", Verifier)
    text = r"\boxed{\sqrt{16}}"
    assert [scored("numeric", text, target).value for target in ("4", "3")] == [1.0, 0.0]
    assert scored("numeric", text, "5") == Score.unparsed("latex")
    assert scored("relaxed", text, "4").value == 1.0
    assert scored("relaxed", text, "3") == Score.unparsed("latex")
    assert calls[0] == (r"\sqrt{16}", "4")


def test_a_verifier_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latex, "SECONDS", 0.2)
    monkeypatch.setattr(latex, "_WORKER", "import time; time.sleep(60)")
    worker = latex._Worker()
    assert worker.ask("1", "1") is None
    monkeypatch.setattr(latex, "SECONDS", 20.0)
    monkeypatch.setattr(latex, "_WORKER", "import sys\nfor line in sys.stdin: print('true', flush=True)")
    assert worker.ask("1", "1") is True
    worker.close()


@pytest.mark.parametrize(
    ("text", "target", "value"),
    [
        (r"\boxed{2^{5}}", "32", 1.0),
        (r"$10^{3}$", "1000", 1.0),
        (r"\boxed{2^5}", "25", 0.0),
        (r"\boxed{3.0\times 10^{8}}", "300000000", 1.0),
        (r"\boxed{\frac{2^{2}}{8}}", "0.5", 1.0),
        (r"$3\cdot 2^{2}$", "3", 0.0),
        (r"12\text{ cm}^2", "12", 1.0),
        (r"$x^{2}$", "2", 0.0),
    ],
)
def test_powers_of_whole_numbers_are_worked_out(text: str, target: str, value: float) -> None:
    sample = Sample("1", (), "?", (target,), "open", scorer="numeric")
    assert score(sample, Prediction(text, "generate")).value == value
