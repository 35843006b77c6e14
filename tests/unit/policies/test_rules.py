from __future__ import annotations

import math
import re
from datetime import date

import pytest

from pytest_vlmrobust.policies import JudgedTest, Rule, Scope, Waiver
from pytest_vlmrobust.policies.rules import Bound, decimals_needed, parse_quantity, plain_decimal

TEST = JudgedTest("qwen2-vl-2b", "mmbench", "accuracy_drop", "glass_blur:low", "blur", "low")


@pytest.mark.parametrize(
    ("scope", "matches"),
    [
        (Scope(), True),
        (Scope(setting=("*:low",)), True),
        (Scope(setting=("*:high",)), False),
        (Scope(setting=("glass_blur",)), True),
        (Scope(setting=("*_blur",)), True),
        (Scope(setting=("glass_blur:*",)), True),
        (Scope(setting=("glass",)), False),
        (Scope(setting=("fog", "glass_blur:low")), True),
        (Scope(model=("qwen*",), dataset=("mm*",), family=("blur",), level=("low",)), True),
        (Scope(model=("qwen*",), dataset=("vqa*",)), False),
        (Scope(model=("Qwen*",)), False),
        (Scope(level=("none",)), False),
        (Scope(family=("noise",)), False),
    ],
)
def test_a_scope_matches_by_globs(scope: Scope, matches: bool) -> None:
    assert scope.matches(TEST) is matches


def test_a_composed_setting_is_matched_without_its_levels() -> None:
    test = JudgedTest("m", "d", "accuracy_drop", "fog:mid+jpeg_compression:high", "composed")
    assert Scope(setting=("fog+jpeg_compression",)).matches(test)
    assert Scope(setting=("fog:mid+*",)).matches(test)
    assert not Scope(setting=("fog",)).matches(test)


def test_none_is_the_level_of_settings_without_one() -> None:
    test = JudgedTest("m", "d", "accuracy_drop", "flip_v", "binary")
    assert Scope(level=("none",)).matches(test)
    assert not Scope(level=("low",)).matches(test)


def test_an_empty_scope_is_false() -> None:
    assert not Scope()
    assert Scope(model=("m",))


def rule(where: Scope | None = None, unless: Scope | None = None, metric: str = "accuracy_drop") -> Rule:
    return Rule("r", metric, Bound(high=0.05), "t.yaml:1", where or Scope(), unless)


def test_a_rule_speaks_of_its_metric_only() -> None:
    assert rule().applies(TEST)
    assert not rule(metric="accuracy").applies(TEST)


def test_unless_takes_tests_out() -> None:
    assert not rule(unless=Scope(setting=("glass_blur",))).applies(TEST)
    assert rule(unless=Scope(setting=("glass_blur",), model=("other",))).applies(TEST)


def test_a_rule_without_category_bounds_whole_data_sets_only() -> None:
    art = JudgedTest("m", "d", "accuracy_drop", category="Art")
    assert not rule().applies(art)
    assert rule(Scope(category=("Art",))).applies(art)
    assert rule(Scope(category=("*",))).applies(art)
    assert not rule(Scope(category=("*",))).applies(TEST)
    assert not rule(Scope(category=("*",)), unless=Scope(category=("Art",))).applies(art)


def test_a_waiver_holds_on_its_last_day() -> None:
    waiver = Waiver("W", "jane", "why", date(2027, 6, 30), "accuracy_drop", Scope(model=("qwen*",)), 0.6, "t.yaml:1")
    assert waiver.applies(TEST)
    assert not waiver.applies(JudgedTest("qwen2-vl-2b", "mmbench", "accuracy"))
    assert not waiver.is_expired(date(2027, 6, 30))
    assert waiver.is_expired(date(2027, 7, 1))


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


HUGE = ("1e400", "9" * 401, "1e400pp", "1e400%", "-1e400pp", "9" * 401 + "%", 10**400, -(10**400))


@pytest.mark.parametrize("raw", HUGE)
@pytest.mark.parametrize("unit", ["fraction", "ratio", ""])
def test_what_no_number_can_hold_is_refused_with_and_without_a_unit(raw: float | str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"^a (finite|plain) number"):
        parse_quantity(raw, unit)


@pytest.mark.parametrize(
    "raw", ["1e999999999pp", "1e99999999999999999999", "1e99999999999999999999%", "0e99999999999999999999pp"]
)
def test_exponents_that_nobody_means_are_refused(raw: str) -> None:
    with pytest.raises(ValueError, match=r"^a number such as 0\.05, 5pp or 5%$"):
        parse_quantity(raw, "fraction")


@pytest.mark.parametrize("raw", ["1e-400pp", "1e-9999"])
def test_what_is_smaller_than_any_number_is_nothing(raw: str) -> None:
    assert parse_quantity(raw, "fraction") == 0.0


@pytest.mark.parametrize(
    ("raw", "reach", "message"),
    [
        ("500pp", (-1.0, 1.0), "a number from -1 to 1, for no value of the metric lies beyond; this is 5"),
        ("500%", (-1.0, 1.0), "a number from -1 to 1, for no value of the metric lies beyond; this is 5"),
        ("-0.5pp", (0.0, 1.0), "a number from 0 to 1, for no value of the metric lies beyond; this is -0.005"),
        ("200%", (-math.inf, 1.0), "a number up to 1, for no value of the metric lies beyond; this is 2"),
        (-0.2, (0.0, math.inf), "a number of at least 0, for no value of the metric lies beyond; this is -0.2"),
        (5, (-1.0, 1.0), "a fraction: write 5pp or 5% for 0.05"),
        (1.5, (-2.0, 2.0), "a fraction: write 1.5pp or 1.5% for 0.015, or 150% for 1.5"),
    ],
)
def test_what_a_metric_cannot_be_bounds_nothing(raw: float | str, reach: tuple[float, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_quantity(raw, "fraction", reach)


@pytest.mark.parametrize(
    ("raw", "reach", "value"),
    [
        ("100pp", (-1.0, 1.0), 1.0),
        ("-100%", (-1.0, 1.0), -1.0),
        ("900%", (-math.inf, math.inf), 9.0),
        ("250%", (0.0, math.inf), 2.5),
    ],
)
def test_the_ends_of_what_a_metric_can_be_belong_to_it(raw: str, reach: tuple[float, float], value: float) -> None:
    assert parse_quantity(raw, "fraction", reach) == value


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
    assert not bound.is_exceeded_by(0.05 + 9e-10)
    assert not Bound(low=0.05).is_undercut_by(0.05 - 9e-10)
    assert not bound.admits(0.05 + 2e-9)
    assert bound.is_exceeded_by(0.05 + 2e-9)
    assert Bound(low=0.05).is_undercut_by(0.05 - 2e-9)


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


def test_a_bound_holds_another_that_asks_as_much_or_more() -> None:
    assert Bound(high=0.1).holds(Bound(high=0.1))
    assert Bound(high=0.1).holds(Bound(-0.1, 0.1))
    assert not Bound(high=0.1).holds(Bound(high=0.2))
    assert not Bound(high=0.1).holds(Bound(low=0.0))


@pytest.mark.parametrize(
    ("bound", "text"), [(Bound(high=0.05), "<= 0.05"), (Bound(low=0.8), ">= 0.8"), (Bound(-0.1, 0.3), "in -0.1..0.3")]
)
def test_a_bound_is_a_condition(bound: Bound, text: str) -> None:
    assert bound.condition == text


def test_plain_decimals_have_no_exponent() -> None:
    assert plain_decimal(1e-7) == "0.0000001"
    assert plain_decimal(1e16) == "10000000000000000"


@pytest.mark.parametrize(
    ("value", "end", "digits"), [(0.124, 0.05, 3), (0.0504, 0.05, 4), (0.05, 0.05, 3), (0.2, 0.0625, 4), (0.2, 1 / 3, 9)]
)
def test_different_numbers_differ_in_print(value: float, end: float, digits: int) -> None:
    assert decimals_needed(value, end) == digits
