from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import PolicyError, UnknownName
from pytest_vlmrobust.core.words import plain_decimal
from pytest_vlmrobust.policies import (
    Bound,
    JudgedBy,
    MetricKey,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Policy,
    Rule,
    Scope,
    Tier,
    Treatment,
    Waiver,
    intended_name,
    load_policy,
    misspellings,
)
from pytest_vlmrobust.policies.rules import decimals_needed, parse_quantity

TEST = MetricKey("qwen2-vl-2b", "mmbench", "accuracy_drop", "glass_blur:low", "blur", "low")


@pytest.mark.cases(
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
    test = MetricKey("m", "d", "accuracy_drop", "fog:mid+jpeg_compression:high", "composed")
    assert Scope(setting=("fog+jpeg_compression",)).matches(test)
    assert Scope(setting=("fog:mid+*",)).matches(test)
    assert not Scope(setting=("fog",)).matches(test)


def test_none_is_the_level_of_settings_without_one() -> None:
    test = MetricKey("m", "d", "accuracy_drop", "flip_v", "binary")
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
    art = MetricKey("m", "d", "accuracy_drop", category="Art")
    assert not rule().applies(art)
    assert rule(Scope(category=("Art",))).applies(art)
    assert rule(Scope(category=("*",))).applies(art)
    assert not rule(Scope(category=("*",))).applies(TEST)
    assert not rule(Scope(category=("*",)), unless=Scope(category=("Art",))).applies(art)


def test_a_waiver_holds_on_its_last_day() -> None:
    waiver = Waiver("W", "jane", "why", date(2027, 6, 30), "accuracy_drop", Scope(model=("qwen*",)), 0.6, "t.yaml:1")
    assert waiver.applies(TEST)
    assert not waiver.applies(MetricKey("qwen2-vl-2b", "mmbench", "accuracy"))
    assert not waiver.is_expired(date(2027, 6, 30))
    assert waiver.is_expired(date(2027, 7, 1))


@pytest.mark.cases(
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
        ("1e-400pp", 0.0),
        ("1e-9999", 0.0),
    ],
)
def test_a_quantity_has_several_spellings(raw: float | str, value: float) -> None:
    assert parse_quantity(raw, "fraction") == value


NO_NUMBER = ("five", "5 pct", "", "5pp5", "nan", "--5", "\u0663\u0660pp", "\uff13\uff10pp", "5\u2003pp")
MEANT_BY_NOBODY = ("1e999999999pp", "1e99999999999999999999", "1e99999999999999999999%", "0e99999999999999999999pp")


@pytest.mark.cases(
    ("raw", "message"),
    [
        *((raw, "a fraction: write ") for raw in (5, 1, -1, 1.5, "5", -3.0)),
        (5, r"^a fraction: write 5pp or 5% for 0\.05, or 500% for 5$"),
        *((raw, "a finite number") for raw in (math.nan, math.inf, -math.inf)),
        *((raw, r"^a number such as 0\.05, 5pp or 5%$") for raw in NO_NUMBER + MEANT_BY_NOBODY),
    ],
)
def test_what_is_no_fraction_is_refused_in_words(raw: float | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_quantity(raw, "fraction")


HUGE = ("1e400", "9" * 401, "1e400pp", "1e400%", "-1e400pp", "9" * 401 + "%", 10**400, -(10**400))


@pytest.mark.cases("raw", HUGE)
@pytest.mark.cases("unit", ["fraction", "ratio", ""])
def test_what_no_number_can_hold_is_refused_with_and_without_a_unit(raw: float | str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"^a (finite|plain) number"):
        parse_quantity(raw, unit)


@pytest.mark.cases(
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
    assert not any(bound.admits(math.nan) for bound in (Bound(high=0.05), Bound(low=0.05), Bound(-1.0, 1.0)))


@pytest.mark.cases(
    ("bound", "text"),
    [
        (Bound(high=0.05), "<= 0.05"),
        (Bound(low=0.8), ">= 0.8"),
        (Bound(-0.1, 0.3), "in -0.1..0.3"),
        (Bound(high=0.0), "<= 0"),
        (Bound(high=0.07, unit="pp"), "<= 7 pp"),
        (Bound(low=0.035, unit="%"), ">= 3.5 %"),
        (Bound(-0.1, 1.0, "pp"), "in -10 pp..100 pp"),
    ],
)
def test_a_bound_is_shown_as_its_author_wrote_it(bound: Bound, text: str) -> None:
    assert bound.condition == text


def test_a_bound_holds_another_that_asks_as_much_or_more() -> None:
    assert Bound(high=0.1).holds(Bound(high=0.1))
    assert Bound(high=0.1).holds(Bound(-0.1, 0.1))
    assert not Bound(high=0.1).holds(Bound(high=0.2))
    assert not Bound(high=0.1).holds(Bound(low=0.0))


def test_plain_decimals_have_no_exponent() -> None:
    assert plain_decimal(1e-7) == "0.0000001"
    assert plain_decimal(1e16) == "10000000000000000"


@pytest.mark.cases(
    ("value", "end", "digits"), [(0.124, 0.05, 3), (0.0504, 0.05, 4), (0.05, 0.05, 3), (0.2, 0.0625, 4), (0.2, 1 / 3, 9)]
)
def test_different_numbers_differ_in_print(value: float, end: float, digits: int) -> None:
    assert decimals_needed(value, end) == digits


Load = Callable[..., Policy]

WAIVER = """\
version: 1
rules:
  - {id: r, metric: accuracy_drop, max: 5pp}
waivers:
  - id: W1
    metric: accuracy_drop
    where: {setting: "upsample:high"}
    cap: 60pp
    owner: jane@example.org
    reason: images are never enlarged
    ticket: ROBUST-17
    expires: 2027-06-30
"""


def test_a_rule_with_everything(load_rule: Load) -> None:
    body = (
        "metric: accuracy_drop\n"
        "where: {setting: ['*:low', fog], model: 'qwen*', dataset: mmbench, family: blur, level: low, category: Art}\n"
        "unless: {setting: glass_blur}\nmax: 5pp\njudge: point\nalpha_pass: 0.01\nalpha_fail: 0.1\n"
        "multiplicity: none\ntier: warn\non_inconclusive: warn\non_not_applicable: warn\n"
        "reason: mild ones must not matter\nsource: Table 3"
    )
    assert load_rule(body).rules == (
        Rule(
            id="only",
            metric="accuracy_drop",
            bound=Bound(high=0.05),
            source="a.yaml:3",
            where=Scope(("qwen*",), ("mmbench",), ("*:low", "fog"), ("blur",), ("low",), ("Art",)),
            unless=Scope(setting=("glass_blur",)),
            treatment=Treatment(
                JudgedBy.POINT, 0.01, 0.1, Multiplicity.NONE, Tier.WARN, OnInconclusive.WARN, OnNotApplicable.WARN
            ),
            reason="mild ones must not matter",
            evidence="Table 3",
        ),
    )


def test_a_waiver_with_everything(load: Load) -> None:
    (waiver,) = load(WAIVER).waivers
    assert (waiver.id, waiver.owner, waiver.ticket, waiver.cap) == ("W1", "jane@example.org", "ROBUST-17", 0.6)
    assert (waiver.expires, waiver.source) == (date(2027, 6, 30), "a.yaml:5")


def test_a_day_may_stand_in_quotes(load: Load) -> None:
    assert load(WAIVER.replace("2027-06-30", "'2027-06-30'")).waivers[0].expires == date(2027, 6, 30)


@pytest.mark.parametrize("key", ["metric", "where", "cap", "owner", "reason", "expires"])
def test_a_waiver_that_lacks_something_is_refused(load: Load, key: str) -> None:
    text = re.sub(rf"^    {key}:.*\n", "", WAIVER, flags=re.MULTILINE)
    with pytest.raises(
        PolicyError, match=re.escape(f"a.yaml:5: waivers[1] lacks '{key}'. Required: id, metric, where, cap, owner")
    ):
        load(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "expires: 2027-02-30",
            "a.yaml:12: waivers[1].expires is '2027-02-30'. Expected a day that exists, such as 2027-06-30: there",
        ),
        (
            "expires: '2027-02-30'",
            "expires is the text '2027-02-30'. Expected a day that exists, such as 2027-06-30: there is no such",
        ),
        (
            "expires: 2027-06-30 12:00:00",
            "a.yaml:12: waivers[1].expires is '2027-06-30 12:00:00'. Expected a day such as 2027-06-30",
        ),
        ("expires: never", "a.yaml:12: waivers[1].expires is the text 'never'. Expected a day such as 2027-06-30"),
        ("expires: 2027", "a.yaml:12: waivers[1].expires is '2027'. Expected a day such as 2027-06-30"),
        ("owner: ''", "waivers[1].owner is the text ''. Expected text that is not empty"),
        ("owner:", "waivers[1].owner is empty. Expected text"),
        ("where: {}", "a.yaml:7: waivers[1].where is a mapping. Expected at least one of model, dataset, setting"),
        ("cap: 60", "a.yaml:8: waivers[1].cap is '60'. Expected a fraction: write 60pp or 60% for 0.6"),
        (
            "cap: 900pp",
            "a.yaml:8: waivers[1].cap is the text '900pp'. Expected a number from -1 to 1, for no value of the metric lies",
        ),
        ("cap: 1e400pp", "a.yaml:8: waivers[1].cap is the text '1e400pp'. Expected a finite number"),
    ],
)
def test_a_waiver_that_says_something_wrong_is_refused(load: Load, line: str, message: str) -> None:
    key = line.partition(":")[0]
    with pytest.raises(PolicyError, match=re.escape(message)):
        load(re.sub(rf"^    {key}:.*$", f"    {line}", WAIVER, flags=re.MULTILINE))


@pytest.mark.cases(
    ("body", "message"),
    [
        ("metric: accuracy_drop", "a.yaml:3: rules[1] has no bound. Expected one of max, min or within: [low, high]"),
        ("metric: accuracy_drop\nmax: 5pp\nwithin: [0, 5pp]", "a.yaml:3: rules[1] has max and within. Expected one of"),
        ("max: 5pp", "a.yaml:3: rules[1] lacks 'metric'. Required: id, metric"),
        (
            "metric: accuracy_drop\nmax: 5",
            "a.yaml:5: rules[1].max is '5'. Expected a fraction: write 5pp or 5% for 0.05",
        ),
        ("metric: accuracy_drop\nmax: true", "a.yaml:5: rules[1].max is 'true'. Expected a number such as 0.05, 5pp or 5%"),
        ("metric: accuracy_drop\nmax: .nan", "a.yaml:5: rules[1].max is '.nan'. Expected a finite number"),
        ("metric: accuracy_drop\nmax: 1e400pp", "a.yaml:5: rules[1].max is the text '1e400pp'. Expected a finite number"),
        ("metric: accuracy_drop\nmax: " + "9" * 401, "9999...'. Expected a finite number"),
        (
            "metric: accuracy_drop\nmax: 500pp",
            (
                "a.yaml:5: rules[1].max is the text '500pp'. Expected a number from -1 to 1, for no value of the metric lies "
                "beyond; this is 5"
            ),
        ),
        (
            "metric: accuracy\nmin: -1%",
            "a.yaml:5: rules[1].min is the text '-1%'. Expected a number from 0 to 1, for no value of",
        ),
        (
            "metric: accuracy\nwithin: [50%, 200%]",
            "a.yaml:5: rules[1].within[2] is the text '200%'. Expected a number from 0 to 1",
        ),
        ("metric: accuracy_drop\nmax: five", "a.yaml:5: rules[1].max is the text 'five'. Expected a number such as"),
        ("metric: accuracy_drop\nmax: [5pp]", "a.yaml:5: rules[1].max is a list. Expected a single value"),
        ("metric: accuracy_drop\nmax:", "a.yaml:5: rules[1].max is empty. Expected a number"),
        ("metric: accuracy_drop\nwithin: 5pp", "a.yaml:5: rules[1].within is the text '5pp'. Expected a list"),
        ("metric: pcri\nwithin: [0.1]", "a.yaml:5: rules[1].within is a list. Expected two numbers, [low, high]; 1 given"),
        ("metric: pcri\nwithin: [0.3, 0.1]", "rules[1].within is a list. Expected low below high; found 0.3 and 0.1"),
        (
            "metric: accuracy\nmax: 90%",
            "a.yaml:5: rules[1].max bounds accuracy on the wrong side: higher is better, and a good model would fail. Write min:",
        ),
        ("metric: accuracy_drop\nmin: 5pp", "rules[1].min bounds accuracy_drop on the wrong side: lower is better"),
        ("metric: accuracy_drop\nmaxx: 5pp", "a.yaml:5: unknown key 'maxx' in rules[1]. Did you mean 'max'? Known: id, metric"),
        ("metric: accuracy_drop\nmax: 5pp\nmax: 6pp", "a.yaml:6: rules[1].max is written twice, first in line 5. Keep one"),
        ("metric: [accuracy_drop]\nmax: 5pp", "a.yaml:4: rules[1].metric is a list. Expected a single value"),
        (
            "metric: rce\nmax: 5%",
            "is 'rce', a name that several metrics go by. Write 'relative_corruption_error' or 'relative_con",
        ),
        (
            "metric: accuracy_drop\nmax: 5pp\njudge: intervall",
            "a.yaml:6: rules[1].judge is the text 'intervall'. Expected one of interval, point. Did you mean 'interval'?",
        ),
        *(
            (
                f"metric: accuracy_drop\nmax: 5pp\nalpha_pass: {written}",
                f"a.yaml:6: rules[1].alpha_pass is {shown}. Expected a probability from 0.000001 on and below 0.5, such as 0.05",
            )
            for written, shown in [
                ("0", "'0'"),
                ("0.5", "'0.5'"),
                ("5%", "the text '5%'"),
                ("-1", "'-1'"),
            ]
        ),
        ("metric: accuracy_drop\nmax: 5pp\ntier: off", "a.yaml:6: rules[1].tier is 'off'. Expected one of block, warn"),
        ("metric: accuracy_drop\nmax: 5pp\nwhere: low", "a.yaml:6: rules[1].where is the text 'low'. Expected a mapping"),
        ("metric: accuracy_drop\nmax: 5pp\nwhere: {}", "a.yaml:6: rules[1].where is a mapping. Expected at least one of model"),
        ("metric: accuracy_drop\nmax: 5pp\nwhere: {levle: low}", "unknown key 'levle' in rules[1].where. Did you mean 'level'?"),
        (
            "metric: accuracy_drop\nmax: 5pp\nwhere: {level: lwo}",
            "Expected low, mid, high, none, or the parameter of a setting such as '448'. Did you mean 'low'?",
        ),
        (
            "metric: accuracy_drop\nmax: 5pp\nwhere: {category: yes}",
            "rules[1].where.category is 'yes'. Expected text: put it in quotes, 'yes'",
        ),
        (
            "metric: accuracy_drop\nmax: 5pp\nwhere: {setting: []}",
            "rules[1].where.setting is a list. Expected text, or a list of texts",
        ),
        (
            "metric: worst_case_drop\nmax: 34pp\nwhere: {level: low}",
            "a.yaml:6: rules[1].where.level never matches: worst_case_drop is measured over a whole sweep, which has no level.",
        ),
        ("metric: mean_severity_correlation\nmin: 30pp", "Expected a plain number: the metric's unit is correlation"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(load_rule: Load, body: str, message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        load_rule(body)


@pytest.mark.parametrize("name", ["''", "'a b'", "'-x'", "'a/b'"])
def test_ids_are_plain(load: Load, name: str) -> None:
    with pytest.raises(PolicyError, match=re.escape("a.yaml:2: rules[1].id is the text ")):
        load(f"version: 1\nrules: [{{id: {name}, metric: pcri, max: 0.1}}]\n")


def test_an_unknown_metric_offers_the_nearest(load_rule: Load) -> None:
    with pytest.raises(UnknownName) as caught:
        load_rule("metric: acuracy_drop\nmax: 5pp")
    assert str(caught.value).startswith(
        "a.yaml:4: unknown metric 'acuracy_drop'. Did you mean 'accuracy_drop'? Known: accuracy, "
    )


def test_a_metric_without_ends_may_be_bounded_anywhere(load_rule: Load) -> None:
    assert load_rule("metric: relative_corruption_error\nmax: 250%").rules[0].bound == Bound(high=2.5)
    assert load_rule("metric: accuracy_drop\nmax: 100pp").rules[0].bound == Bound(high=1.0)


def test_names_alone_are_enough_to_load(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("version: 1\nrules: [{id: r, metric: mine, max: 5, where: {level: low}}]\n")
    assert load_policy([path], known_metrics={"mine"}).rules[0].bound == Bound(high=5.0)
    with pytest.raises(UnknownName, match="unknown metric 'mine'"):
        load_policy([path], known_metrics=["other"])


@pytest.mark.parametrize("level", ["low", "none", "'448'", "'*'", "[low, mid]"])
def test_levels_that_exist_are_accepted(load_rule: Load, level: str) -> None:
    assert load_rule(f"metric: accuracy_drop\nmax: 5pp\nwhere: {{level: {level}}}").rules[0].where.level


def test_an_interval_that_does_not_exist_is_refused_where_the_rule_stands(load_rule: Load) -> None:
    message = (
        "a.yaml:3: rules[1] judges the interval of tail_share, which has no interval, so nothing would ever pass. Write judge"
    )
    with pytest.raises(PolicyError, match=re.escape(message)):
        load_rule("metric: tail_share\nmax: 5pp")
    assert load_rule("metric: tail_share\nmax: 5pp\njudge: point").rules


def test_one_field_admits_a_name_whatever_the_others_ask_for() -> None:
    scope = Scope(model=("nobody",), setting=("*_blur",))
    assert scope.admits("setting", "glass_blur:low")
    assert not scope.admits("setting", "fog:low")
    assert scope.admits("dataset", "mmbench")
    assert not scope.admits("model", "m")


def test_a_test_stands_for_itself_unless_it_is_said_how_many_strata_it_stands_for() -> None:
    assert MetricKey("m", "d", "pcri").strata == 1


@pytest.mark.cases(
    ("bound", "cap", "moved"),
    [
        (Bound(high=0.05), 0.2, Bound(high=0.2)),
        (Bound(low=0.8), 0.7, Bound(low=0.7)),
        (Bound(-0.1, 0.3), 0.4, Bound(-0.1, 0.4)),
        (Bound(-0.1, 0.3), -0.2, Bound(-0.2, 0.3)),
        (Bound(0.2, 0.5), 0.18, Bound(0.18, 0.5)),
        (Bound(0.2, 0.5), 0.6, Bound(0.2, 0.6)),
    ],
)
def test_a_cap_moves_the_end_of_a_bound_that_it_is_about(bound: Bound, cap: float, moved: Bound) -> None:
    about = Waiver("W", "jane", "why", date(2027, 1, 1), "accuracy_drop", Scope(), cap, "t.yaml:1")
    assert about.bound_of(bound) == moved


@pytest.mark.cases(
    ("bound", "cap", "beyond"),
    [
        (Bound(high=0.05), 0.06, True),
        (Bound(high=0.05), 0.05, False),
        (Bound(high=0.05), 0.05 + 1e-12, False),
        (Bound(high=0.05), 0.04, False),
        (Bound(low=0.8), 0.79, True),
        (Bound(low=0.8), 0.8, False),
        (Bound(low=0.8), 0.9, False),
        (Bound(-0.1, 0.3), 0.4, True),
        (Bound(-0.1, 0.3), -0.2, True),
        (Bound(-0.1, 0.3), 0.2, False),
        (Bound(-0.1, 0.3), -0.1, False),
    ],
)
def test_a_cap_goes_beyond_its_bound(bound: Bound, cap: float, beyond: bool) -> None:
    assert Waiver("W", "jane", "why", date(2027, 1, 1), "pcri", Scope(), cap, "t.yaml:1").goes_beyond(bound) is beyond


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("says", OnNotApplicable)
def test_a_rule_blocks_where_its_metric_says_nothing_unless_it_only_warns(tier: Tier, says: OnNotApplicable) -> None:
    rule = Rule("r", "pcri", Bound(high=0.1), "t.yaml:1", treatment=Treatment(tier=tier, on_not_applicable=says))
    assert rule.blocks_where_not_applicable is (tier is Tier.BLOCK and says is OnNotApplicable.INCONCLUSIVE)


@pytest.mark.cases(
    ("metric", "where", "unless", "counts"),
    [
        ("accuracy_drop", Scope(), None, True),
        ("pcri", Scope(), None, False),
        ("accuracy_drop", Scope(model=("other",)), None, False),
        ("accuracy_drop", Scope(category=("Art",)), None, True),
        ("accuracy_drop", Scope(), Scope(family=("blur",)), False),
        ("accuracy_drop", Scope(), Scope(family=("noise",)), True),
        ("accuracy_drop", Scope(), Scope(category=("Art",)), True),
        ("accuracy_drop", Scope(category=("Art",)), Scope(setting=("glass_blur",)), False),
        ("accuracy_drop", Scope(category=("Art",)), Scope(setting=("fog",)), True),
        (
            "accuracy_drop",
            Scope(category=("Art",)),
            Scope(setting=("glass_blur",), category=("Music",)),
            True,
        ),  # others are left in
    ],
)
def test_the_tests_that_share_the_risk_of_a_rule(metric: str, where: Scope, unless: Scope | None, counts: bool) -> None:
    """One too many would make each interval wider than the policy says."""
    assert Rule("r", metric, Bound(high=0.1), "t.yaml:1", where, unless).bounds(TEST) is counts


@pytest.mark.cases(
    ("glob", "name"),
    [
        ("qwn", "qwen"),
        ("qween", "qwen"),
        ("ym", "my"),
        ("QWEN", "qwen"),
        ("qwen2_vl-2B", "qwen2-vl-2b"),
        ("qwen2vl2b", "qwen2-vl-2b"),
        ("intervl3.5-4b", "internvl3.5-4b"),
        ("faces.matchnig", "faces.matching"),
        ("MMStar*", "mmstar_val"),
        ("qwn*", "qwen2-vl-2b"),
        ("mmbench-", "mmbench"),
    ],
)
def test_a_misspelling_means_a_name(glob: str, name: str) -> None:
    assert intended_name(glob, ["unlike", name]) == name


@pytest.mark.cases(
    ("glob", "name"),
    [
        ("qwen", "qwen"),
        ("mmbench_cn", "mmbench_en"),
        ("llama", "llava"),
        ("qwen2-vl-2b", "qwen2-vl-7b"),
        ("qwen2", "qwen3"),
        ("qwen2", "qwen"),
        ("qwen12", "qwen21"),
        ("a", "ab"),
        ("model", "model-a"),
        ("qwen", "internvl"),
        ("BLINK*", "blind"),
        ("*MMBench*", "mmbench_dev"),
        ("q?n", "qwen"),
        ("*", "qwen"),
        ("", "qwen"),
        ("qwen-vl-x", "qwen-lv-y"),
    ],
)
def test_another_name_is_no_misspelling(glob: str, name: str) -> None:
    assert intended_name(glob, [name]) == ""


def test_misspellings_of_a_scope_are_globs_that_match_nothing() -> None:
    names = {"model": ["qwen", "tiny"], "dataset": {"my"}}
    assert misspellings(Scope(model=("qwn", "tiny"), dataset=("ym",), setting=("fogg",)), names) == [
        ("model", "qwn", "qwen"),
        ("dataset", "ym", "my"),
    ]
    assert misspellings(Scope(model=("qwen", "qwn")), names) == []  # the one that is meant is there
    assert misspellings(Scope(model=("qwe*",), dataset=("other",)), names) == []
    assert misspellings(Scope(), names) == []


def test_a_beginning_may_be_misspelt_by_one_letter_more_or_less() -> None:
    assert intended_name("MMBenc*", ["MMBench_dev"]) == ""  # it matches, and so is no misspelling
    assert intended_name("MMBench*", ["MMBnch_dev"]) == "MMBnch_dev"
    assert intended_name("MMBnch*", ["MMBench_dev"]) == "MMBench_dev"
    assert intended_name("MMBh*", ["MMBench_dev"]) == ""
