from __future__ import annotations

import math

import pytest

from pytest_vlmrobust.policies.bound import Bound, decimals_needed, parse_quantity, plain_decimal


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (0.05, 0.05),
        (0, 0.0),
        (1.0, 1.0),
        ("5pp", 0.05),
        ("5%", 0.05),
        ("5 %", 0.05),
        ("0.05", 0.05),
        ("-2.5pp", -0.025),
        ("120%", 1.2),
        ("1e-3", 0.001),
        (".5pp", 0.005),
    ],
)
def test_a_quantity_has_several_spellings(raw: float | str, value: float) -> None:
    assert parse_quantity(raw, "fraction") == value


@pytest.mark.parametrize("raw", [5, 1, -1, 1.5, "5", -3.0])
def test_a_bare_number_beyond_a_fraction_is_refused(raw: float | str) -> None:
    with pytest.raises(ValueError, match=r"a fraction: write "):
        parse_quantity(raw, "fraction")


def test_the_refusal_says_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"^a fraction: write 5pp or 5% for 0\.05, or 500% for 5$"):
        parse_quantity(5, "fraction")


@pytest.mark.parametrize("raw", [math.nan, math.inf, -math.inf])
def test_only_finite_numbers_bound_anything(raw: float) -> None:
    with pytest.raises(ValueError, match="a finite number"):
        parse_quantity(raw, "fraction")


@pytest.mark.parametrize("raw", ["five", "5 pct", "", "5pp5", "nan", "--5"])
def test_other_text_is_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r"a number such as 0\.05, 5pp or 5%"):
        parse_quantity(raw, "fraction")


def test_percentage_points_are_for_fractions() -> None:
    with pytest.raises(ValueError, match=r"a plain number: the metric's unit is correlation"):
        parse_quantity("5pp", "correlation")
    assert parse_quantity("50%", "correlation") == 0.5
    assert parse_quantity(5, "correlation") == 5.0


def test_nothing_is_refused_when_the_unit_is_unknown() -> None:
    assert parse_quantity(5, "") == 5.0
    assert parse_quantity("5pp", "") == 0.05


def test_a_bound_tolerates_rounding_and_nothing_more() -> None:
    bound = Bound(high=0.05)
    assert bound.admits(0.30 - 0.25)
    assert bound.admits(0.05 + 9e-10)
    assert not bound.exceeded(0.05 + 9e-10)
    assert not Bound(low=0.05).undercut(0.05 - 9e-10)
    assert not bound.admits(0.05 + 2e-9)
    assert bound.exceeded(0.05 + 2e-9)
    assert Bound(low=0.05).undercut(0.05 - 2e-9)


def test_nan_is_never_admitted() -> None:
    assert not Bound(high=0.05).admits(math.nan)
    assert not Bound(low=0.05).admits(math.nan)
    assert not Bound(-1.0, 1.0).admits(math.nan)


@pytest.mark.parametrize(
    ("bound", "text"),
    [(Bound(high=0.05), "0.05"), (Bound(low=0.8), "0.8"), (Bound(-0.1, 0.3), "-0.1..0.3"), (Bound(high=0.0), "0")],
)
def test_a_bound_is_written_in_plain_decimals(bound: Bound, text: str) -> None:
    assert str(bound) == text


def test_plain_decimals_have_no_exponent() -> None:
    assert plain_decimal(1e-7) == "0.0000001"
    assert plain_decimal(1e16) == "10000000000000000"


@pytest.mark.parametrize(
    ("value", "end", "digits"), [(0.124, 0.05, 3), (0.0504, 0.05, 4), (0.05, 0.05, 3), (0.2, 0.0625, 4), (0.2, 1 / 3, 9)]
)
def test_different_numbers_differ_in_print(value: float, end: float, digits: int) -> None:
    assert decimals_needed(value, end) == digits
