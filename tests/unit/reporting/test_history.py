from __future__ import annotations

import math

from pytest_vlmrobust.core.record import Measure
from pytest_vlmrobust.reporting.history import Point, points_of, render_history

from .conftest import record


def test_each_run_is_a_point_in_its_interval_on_one_scale() -> None:
    points = [
        Point("run-2", "NO-GO", Measure("mean_drop", 0.5, 0.4, 1.0)),
        Point("run-1", "GO", Measure("mean_drop", 0.25, 0.0, 0.5)),
        Point("run-0", "GO", Measure("mean_drop", math.nan)),
    ]
    assert render_history("m-d: mean_drop", points, 61).splitlines() == [
        "m-d: mean_drop",
        "run-2  NO-GO  0.500 [0.400, 1.000]            |-*-----------|",
        "run-1  GO     0.250 [0.000, 0.500]  |-----*-----|",
        "run-0  GO     undefined",
        "                                    0.000               1.000",
    ]


def test_a_value_alone_has_no_line_and_one_value_is_its_own_scale() -> None:
    text = render_history("m-d", [Point("run", "GO", Measure("ACE", 0.3))], 40)
    assert text.splitlines()[1] == "run  GO  0.300  *"


def test_control_characters_are_spelled_out() -> None:
    assert "\x1b" not in render_history("\x1b[2J", [Point("\x1b[2J", "GO", Measure("x", 0.3))], 80)


def test_summaries_and_the_cell_of_a_setting_have_points() -> None:
    drop = record("m-d-mean_drop", test="sweep", metric="mean_drop", measures=(Measure("mean_drop", 0.2),))
    clean = record("m-d-clean", setting="clean", measures=(Measure("accuracy", 0.9), Measure("accuracy", 0.1, category="hard")))
    fog = record("m-d-fog:low", setting="fog:low", measures=(Measure("accuracy", 0.7),))
    records = [drop, clean, fog]
    assert {name: one.value for name, one in points_of(records, "mean_drop", "clean").items()} == {"m-d": 0.2}
    assert {name: one.value for name, one in points_of(records, "accuracy", "clean").items()} == {"m-d-clean": 0.9}
    assert {name: one.value for name, one in points_of(records, "accuracy", "fog:low").items()} == {"m-d-fog:low": 0.7}
