"""Times and sizes of a plan; the plan itself is tested through ``--vlm-plan``."""

from __future__ import annotations

import doctest

from pytest_vlmrobust.evaluation.run import forecast


def test_the_examples_hold() -> None:
    assert doctest.testmod(forecast).failed == 0


def test_units_change_where_people_change_them() -> None:
    assert [forecast.duration(seconds) for seconds in (0, 119, 120, 7199, 7200)] == ["0 s", "119 s", "2 min", "120 min", "2.0 h"]
    assert [forecast.size(count) for count in (1023, 1024, 2**20, 2**30)] == ["1023 B", "1.0 KiB", "1.0 MiB", "1.0 GiB"]


def test_what_is_asked_once_more_is_counted_where_anything_is() -> None:
    said = "plus up to 24 sanity checks: repeated questions, with another image or alone"
    assert said in forecast.RunForecast([], "", 24).lines
    assert not any("once more" in line for line in forecast.RunForecast([], "").lines)
