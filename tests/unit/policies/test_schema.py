"""What a rule, a waiver, a scope and a bound may look like; each refusal by its message."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from pytest_vlmrobust.core.errors import PolicyError, UnknownName
from pytest_vlmrobust.policies import (
    Bound,
    JudgedBy,
    Multiplicity,
    OnInconclusive,
    OnNotApplicable,
    Policy,
    Rule,
    Scope,
    Tier,
    Treatment,
    load_policy,
)

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
    reason: pictures are never enlarged
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


@pytest.mark.parametrize(
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
                f"metric: accuracy_drop\nmax: 5pp\nalpha_pass: {found}",
                f"a.yaml:6: rules[1].alpha_pass is {shown}. Expected a probability above 0 and below 0.5, such as 0.05",
            )
            for found, shown in [
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
    message = "a.yaml:3: rules[1] judges the interval of tail_share, which has none, so that nothing would ever pass. Write judge"
    with pytest.raises(PolicyError, match=re.escape(message)):
        load_rule("metric: tail_share\nmax: 5pp")
    assert load_rule("metric: tail_share\nmax: 5pp\njudge: point").rules
