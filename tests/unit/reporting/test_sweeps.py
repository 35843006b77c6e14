from __future__ import annotations

import math
from dataclasses import replace

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import CHECK, LARGEST_DROP, Measure, Record
from pytest_vlmrobust.reporting.sweeps import headlines

from .conftest import record


def cell(setting: str, metric: str, value: float, low: float = math.nan, high: float = math.nan) -> Record:
    return record(f"m-d-{setting}", setting=setting, measures=(Measure(metric, value, low, high),))


def shown(*records: Record, intervals: bool = False) -> list[str]:
    return [number.shown(intervals=intervals) for headline in headlines(records) for number in headline.numbers]


def test_a_number_has_its_interval_in_its_own_unit() -> None:
    assert shown(cell("clean", "accuracy", 0.9, 0.8, 0.95), intervals=True) == ["clean 90.0 % [80.0, 95.0]"]
    assert shown(cell("clean", "accuracy", 0.9, 0.8, 0.95)) == ["clean 90.0 %"]


def test_a_number_that_was_judged_by_its_value_is_marked() -> None:
    judged = Measure("accuracy", 0.9, outcome=Outcome.PASS, rule="r", target="dataset")
    assert shown(record("m-d-clean", setting="clean", measures=(judged,))) == ["clean 90.0 %*"]
    interval = replace(judged, target="population")
    assert shown(record("m-d-clean", setting="clean", measures=(interval,))) == ["clean 90.0 %"]


def test_what_is_undefined_is_said_and_what_was_not_measured_is_left_out() -> None:
    assert shown(cell("clean", "accuracy", math.nan)) == ["clean undefined"]
    assert shown(cell("clean", "other", 0.5)) == []
    assert headlines([]) == []


def test_failures_outside_the_gate_have_no_headline() -> None:
    assert shown(replace(cell("clean", "accuracy", 0.9), test=CHECK)) == []
    assert shown(replace(cell("clean", "accuracy", 0.9), model="")) == []


def test_a_category_is_not_the_whole() -> None:
    assert shown(record("m-d-clean", setting="clean", measures=(Measure("accuracy", 0.1, category="hard"),))) == []


def test_the_setting_of_the_worst_drop_is_named_where_it_is_known() -> None:
    worst = record("m-d-worst", test="sweep", metric="worst_case_drop", measures=(Measure("worst_case_drop", 0.5),))
    assert shown(cell("fog:low", "accuracy_drop", 0.1), cell("fog:high", "accuracy_drop", 0.5), worst) == [
        "worst 50.0 pp (fog:high)"
    ]
    assert shown(cell("fog:high", "accuracy_drop", 0.4), worst) == ["worst 50.0 pp"]
    part = replace(worst, n_samples=128, notes=("another", f"{LARGEST_DROP}0.500 at snow:mid"), outcome=Outcome.PASS)
    assert shown(part) == ["worst ~50.0 pp (snow:mid)"]


def test_a_share_of_severe_settings_from_a_part_of_the_samples_is_no_key_number() -> None:
    """Few samples of each setting make single settings look worse than they are."""
    share = record("m-d-severe", test="sweep", metric="severe_failure_rate", measures=(Measure("severe_failure_rate", 0.4),))
    assert shown(share) == ["severe 40.0 %"]
    assert shown(replace(share, n_samples=128)) == []


def test_the_worst_of_few_answers_is_a_key_number_only_where_it_was_judged() -> None:
    """The largest of 133 drops over few answers each is far too large."""
    worst = record("m-d-worst", test="sweep", metric="worst_case_drop", measures=(Measure("worst_case_drop", 1.0),))
    cells = cell("fog:low", "accuracy_drop", 0.1), cell("fog:high", "accuracy_drop", 1.0)
    assert shown(*cells, replace(worst, n_samples=128, outcome=Outcome.MEASURED)) == []
    assert shown(*cells, replace(worst, outcome=Outcome.MEASURED)) == ["worst 100.0 pp (fog:high)"]
