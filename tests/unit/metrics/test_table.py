from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import SettingError, UsageError
from pytest_vlmrobust.metrics import Needs, ScoreTable

FOG = np.array([1.0, 0.0, 0.0])


@pytest.fixture
def table() -> ScoreTable:
    return ScoreTable(
        np.array([1.0, 1.0, 0.0]),
        {"fog:low": FOG, "resolution:448": np.ones(3), "resolution:112": np.zeros(3)},
        no_image=np.zeros(3),
        reference_by_setting={"fog:low": np.zeros(3)},
        groups=("a", "a", "b"),
        patches_by_setting={"patches:2": np.zeros((3, 4))},
        positions=("left", "right", "left"),
        people=("f", "", "m"),
        unhinted_by_setting={"clean": np.zeros(3)},
    )


def test_scores_by_setting_and_without_one(table: ScoreTable) -> None:
    assert table.scores("fog:low").tolist() == [1.0, 0.0, 0.0]
    assert table.scores("clean").tolist() == [1.0, 1.0, 0.0]
    assert table.scores("no_image").tolist() == [0.0, 0.0, 0.0]
    assert table.patches("patches:2").shape == (3, 4)
    assert table.matrix().shape == (3, 3)
    assert table.matrix(["fog:low"])[:, 0].tolist() == FOG.tolist()
    assert table.samples == 3


def test_settings_may_be_given_as_setting() -> None:
    table = ScoreTable(np.ones(1), {Setting.parse("fog:low"): np.zeros(1)})  # type: ignore[dict-item]  # accepted all the same
    assert list(table.by_setting) == ["fog:low"]


def test_lists_are_accepted() -> None:
    assert ScoreTable([1, 0]).clean.tolist() == [1.0, 0.0]  # type: ignore[arg-type]  # accepted all the same


def test_scores_are_copied_and_read_only(table: ScoreTable) -> None:
    with pytest.raises(ValueError, match="read-only"):
        table.scores("fog:low")[0] = 0.5
    with pytest.raises(ValueError, match="read-only"):
        table.patches("patches:2")[0] = 0.5
    with pytest.raises(dataclasses.FrozenInstanceError):
        table.clean = FOG  # type: ignore[misc]  # that is the point
    FOG.flags.writeable = True  # the caller's array is left alone


def test_a_setting_that_is_not_there_comes_with_the_nearest(table: ScoreTable) -> None:
    with pytest.raises(
        UsageError, match=r"the table has no scores of the setting 'fog:lwo'\. Did you mean 'fog:low'\? It has: fog:low,"
    ):
        table.scores("fog:lwo")
    with pytest.raises(UsageError, match=r"the table has no patch scores of the setting 'patches:3'"):
        table.patches("patches:3")
    with pytest.raises(UsageError, match=r"the table has no scores of the setting 'no_image'\. It has: none"):
        ScoreTable(np.ones(1)).scores("no_image")


def test_arguments_of_every_need(table: ScoreTable) -> None:
    assert table.argument(Needs.CLEAN, None) is table.clean
    assert table.argument(Needs.PERTURBED, "fog:low") is table.by_setting["fog:low"]
    assert table.argument(Needs.NO_IMAGE, None) is table.no_image
    assert table.argument(Needs.PERTURBED_BY_SETTING, None) is table.by_setting
    assert table.argument(Needs.REFERENCE_BY_SETTING, None) is table.reference_by_setting
    assert table.argument(Needs.PATCHES, "patches:2") is table.patches("patches:2")
    assert table.argument(Needs.POSITIONS, None) == ("left", "right", "left")
    assert table.argument(Needs.PEOPLE, None) == ("f", "", "m")
    assert table.argument(Needs.UNHINTED_BY_SETTING, None) is table.unhinted_by_setting
    assert table.argument(Needs.BASE_BY_SETTING, None) is None
    assert table.argument(Needs.RESOLUTIONS, None) == [112.0, 448.0]
    assert table.argument(Needs.ACCURACIES, None) == [0.0, 1.0]


def test_a_need_of_one_setting_needs_it(table: ScoreTable) -> None:
    with pytest.raises(
        UsageError, match="perturbed scores belong to one setting: say which, for example setting='glass_blur:low'"
    ):
        table.argument(Needs.PERTURBED, None)


def test_a_table_without_samples() -> None:
    table = ScoreTable(np.zeros(0), {"resolution:112": np.zeros(0)})
    accuracies = table.argument(Needs.ACCURACIES, None)
    assert len(accuracies) == 1
    assert math.isnan(accuracies[0])
    assert table.clusters.count == 0


def test_groups_become_clusters(table: ScoreTable) -> None:
    assert table.clusters.count == 2
    assert ScoreTable(np.ones(3)).clusters.independent


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"by_setting": {"fog:low": np.ones(2)}}, "clean has 3 scores and fog:low has 2"),
        ({"no_image": np.ones(4)}, "clean has 3 scores and no_image has 4"),
        ({"reference_by_setting": {"fog:low": np.ones(1)}}, "clean has 3 scores and reference fog:low has 1"),
        ({"patches_by_setting": {"patches:2": np.ones((2, 4))}}, "clean has 3 scores and patches of patches:2 has 2"),
        ({"groups": ("a", "b")}, "clean has 3 scores and groups has 2"),
        ({"positions": ("a", "b")}, "clean has 3 scores and positions has 2"),
        ({"people": ("a", "b")}, "clean has 3 scores and people has 2"),
        ({"unhinted_by_setting": {"fog:low": np.ones(1)}}, "clean has 3 scores and unhinted fog:low has 1"),
        ({"base_by_setting": {"fog:low": np.ones(1)}}, "clean has 3 scores and base fog:low has 1"),
        ({"by_setting": {"fog:low": np.full(3, 7.0)}}, r"by_setting\['fog:low'\]\[0\] is 7\.0"),
        ({"no_image": np.full(3, -1.0)}, r"no_image\[0\] is -1\.0"),
    ],
)
def test_what_does_not_fit_is_named(parts: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScoreTable(np.ones(3), **parts)  # type: ignore[arg-type]  # a table of cases


def test_a_key_that_is_no_setting_is_refused() -> None:
    with pytest.raises(SettingError, match="cannot read 'Fog'"):
        ScoreTable(np.ones(1), {"Fog": np.ones(1)})
