"""By what a planned test will be judged."""

from __future__ import annotations

import pytest

from pytest_vlmrobust.core.cell import Cell
from pytest_vlmrobust.core.setting import Setting
from pytest_vlmrobust.evaluation.judged import baseline_metrics, judged_tests


@pytest.mark.parametrize(
    ("setting", "compared"),
    [
        ("clean", ["baseline_drop"]),
        ("fog:low", ["baseline_drop", "drop_increase"]),
        ("no_image", ["baseline_drop", "drop_increase"]),
    ],
)
def test_without_a_setting_there_is_no_drop_that_could_increase(setting: str, compared: list[str]) -> None:
    parsed = Setting.parse(setting)
    assert sorted(baseline_metrics(parsed)) == compared
    cell = Cell("model", "data", parsed)
    more = {test.metric for test in judged_tests(cell, baseline=True)} - {test.metric for test in judged_tests(cell)}
    assert sorted(more) == compared
