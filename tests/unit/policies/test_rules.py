from __future__ import annotations

from datetime import date

import pytest

from pytest_vlmrobust.policies import Bound, JudgedTest, Rule, Scope, Waiver

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
    assert not waiver.expired(date(2027, 6, 30))
    assert waiver.expired(date(2027, 7, 1))
