from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta, binom

from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.reporting import RunFacts
from pytest_vlmrobust.reporting.files import RunFiles
from pytest_vlmrobust.reporting.history import (
    RISK,
    Point,
    change_lines,
    changes,
    points_of,
    render_history,
    render_history_page,
    stretch,
)
from pytest_vlmrobust.store.gates import GateCount

from .conftest import record


def series(*values: float, half: float = 0.05, data: str = "") -> list[Point]:
    return [
        Point(f"run-{place}", "GO", Measure("m", value, value - half, value + half), data) for place, value in enumerate(values)
    ]


def places(points: list[Point]) -> list[tuple[str, str]]:
    return [(change.before.run, change.after.run) for change in changes(points)]


def test_each_run_is_a_point_in_its_interval_on_one_scale() -> None:
    points = [
        Point("run-2", "NO-GO", Measure("mean_drop", 0.5, 0.4, 1.0)),
        Point("run-1", "GO", Measure("mean_drop", 0.25, 0.0, 0.5)),
        Point("run-0", "GO", Measure("mean_drop", math.nan)),
    ]
    assert render_history("m-d: mean_drop", points, 61).splitlines()[:5] == [
        "m-d: mean_drop",
        "run-2  NO-GO  0.500 [0.400, 1.000]            |-*-----------|",
        "run-1  GO     0.250 [0.000, 0.500]  |-----*-----|",
        "run-0  GO     undefined",
        "                                    0.000               1.000",
    ]


def test_a_value_alone_has_no_line_and_one_value_is_its_own_scale() -> None:
    text = render_history("m-d", [Point("run", "GO", Measure("ACE", 0.3))], 40)
    assert text.splitlines()[1] == "run  GO  0.300  *"


def test_a_value_of_a_part_of_the_answers_is_marked() -> None:
    points = [Point("late", "GO", Measure("ACE", 0.3, n=20), n_samples=200), Point("early", "GO", Measure("ACE", 0.25, n=200))]
    lines = render_history("m-d", points, 60).splitlines()
    assert "~0.300" in lines[1]
    assert "~" not in lines[2]
    assert "~ stopped early" in lines
    page = render_history_page("ACE", {"m-d": points})
    assert ">20 of 200<" in page.replace("\n", "")
    assert ">~0.300<" in page


def test_all_runs_have_their_interval_of_90_percent_whatever_decided() -> None:
    page = render_history_page(
        "m", {"m-d": [Point("run", "GO", Measure("m", 0.3, 0.2, 0.4, decisive_low=0.1, decisive_high=0.5))]}
    )
    assert ">[0.200, 0.400]<" in page


def test_control_characters_are_spelled_out() -> None:
    assert "\x1b" not in render_history("\x1b[2J", [Point("\x1b[2J", "GO", Measure("x", 0.3))], 80)


def test_summaries_and_the_cell_of_a_setting_have_points() -> None:
    drop = record("m-d-mean_drop", test="sweep", metric="mean_drop", measures=(Measure("mean_drop", 0.2),))
    clean = record("m-d-clean", setting="clean", measures=(Measure("accuracy", 0.9), Measure("accuracy", 0.1, category="hard")))
    fog = record("m-d-fog:low", setting="fog:low", measures=(Measure("accuracy", 0.7),))
    gate = GateCount("m", "d", "policy", "questions", 8, number=3, whole=0, part=0, share=0.0)
    manifest = {"datasets": {"d": "digest"}}
    run = RunFiles([drop, clean, fog], RunFacts(gates=[gate]), directory=Path("runs/run-1"), manifest=manifest)

    def points(metric: str, setting: str) -> dict[str, Point]:
        return points_of(run, metric, setting)

    def values(metric: str, setting: str) -> dict[str, float]:
        return {name: point.measure.value for name, point in points(metric, setting).items()}

    assert values("mean_drop", "clean") == {"m-d": 0.2}
    assert values("accuracy", "clean") == {"m-d-clean": 0.9}
    assert values("accuracy", "fog:low") == {"m-d-fog:low": 0.7}
    point = points("mean_drop", "clean")["m-d"]
    assert (point.run, point.verdict, point.data) == ("run-1", "GO, gate 3", "digest")


def test_each_of_several_models_has_its_decision() -> None:
    measure = Measure("mean_drop", 0.2)
    drops = [
        record(f"{name}-d-mean_drop", outcome, model=name, test="sweep", metric="mean_drop", measures=(measure,))
        for name, outcome in {"good": Outcome.PASS, "bad": Outcome.FAIL}.items()
    ]
    facts = RunFacts(models=("good", "bad"), planned=2, selected=2)
    run = RunFiles(drops, facts, directory=Path("runs/run-1"), manifest={})
    points = points_of(run, "mean_drop", "clean")
    assert {name: point.decision for name, point in points.items()} == {"good-d": "GO", "bad-d": "NO-GO"}


def test_a_change_lies_between_the_two_runs_that_have_nothing_in_common() -> None:
    assert places(series(0.5, 0.5, 0.9, 0.9)) == [("run-1", "run-2")]
    assert places(series(0.9, 0.5, 0.5, 0.9)) == [("run-0", "run-1"), ("run-2", "run-3")]


def test_a_slow_drift_is_one_change_between_runs_far_apart() -> None:
    assert places(series(0.5, 0.55, 0.6, 0.65, 0.7, 0.75)) == [("run-0", "run-5")]


def test_intervals_that_meet_once_they_hold_together_show_nothing() -> None:
    reach = 0.05 * stretch(2)
    assert not changes(series(0.5, 0.5 + 2 * reach - 0.001))
    assert changes(series(0.5, 0.5 + 2 * reach + 0.001))
    assert not changes(series(*[0.5] * 18, 0.5, 0.5 + 2 * reach + 0.001)), "of more runs, some lie apart by chance"


def test_what_has_no_interval_shows_nothing_and_is_said() -> None:
    points = [*series(0.1), Point("early", "GO", Measure("m", 0.9)), Point("none", "GO", Measure("m", math.nan))]
    assert change_lines(points) == [
        "not enough runs for changes: 2 with an interval are needed, and there are 1",
        "2 runs have no interval and show no change",
    ]
    assert change_lines([]) == ["not enough runs for changes: 2 with an interval are needed, and there are 0"]


def test_the_lines_say_the_change_its_risk_and_what_may_be_missed() -> None:
    first, last = change_lines([*series(0.5, data="a"), *series(0.5, 0.9, data="b")[1:]])
    assert first == "changed between run-0 and run-1: 0.500 [0.450, 0.550], then 0.900 [0.850, 0.950]; they asked other data"
    assert last.startswith("1 change is shown in 2 runs (risk of one too many: at most 5 % for this series); smaller ones may be")
    assert change_lines(series(0.5, 0.5))[0].startswith("no change is shown in 2 runs")


@pytest.mark.cases("runs", [2, 5, 20, 100])
@pytest.mark.cases("n", [5, 40, 300])
def test_stretched_intervals_of_shares_miss_no_more_often_than_declared(runs: int, n: int) -> None:
    seen = np.arange(n + 1)
    value = seen / n
    low = np.where(seen == 0, 0.0, beta.ppf(0.05, seen, n - seen + 1))
    high = np.where(seen == n, 1.0, beta.ppf(0.95, seen + 1, n - seen))
    reach = stretch(runs)
    for truth in np.linspace(0.002, 0.998, 250):
        missed = (truth < value - reach * (value - low)) | (truth > value + reach * (high - value))
        assert binom.pmf(seen, n, truth)[missed].sum() <= RISK / runs


def test_the_page_shows_each_run_and_its_change_and_escapes_names() -> None:
    points = [*series(0.5, 0.9), Point("<u>", "GO", Measure("m", math.nan))]
    page = render_history_page("m", {"a<i>": points, "b": series(0.1)})
    assert "changed between run-0 and run-1" in page
    assert "<i>" not in page
    assert "&lt;u&gt;" in page
    assert "<u>" not in page
    assert "undefined" in page
    assert page == render_history_page("m", {"a<i>": points, "b": series(0.1)})
