from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from pytest_vlmrobust.core.cell import Setting
from pytest_vlmrobust.core.errors import SettingError, UsageError
from pytest_vlmrobust.metrics import Needs, ScoreTable
from pytest_vlmrobust.metrics.table import against_clean, as_scores, by_setting, drops, mean, pair_scores, stack_settings

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


@pytest.mark.cases(
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


@pytest.mark.parametrize("values", [[1, 0, 1], [True, False, True], (1.0, 0.0, 1.0), np.array([1, 0, 1], dtype=np.uint8)])
def test_anything_like_an_array_of_numbers_is_accepted(values: object) -> None:
    scores = as_scores(values, "clean")  # type: ignore[arg-type]  # that is the point
    assert scores.dtype == np.float64
    assert scores.tolist() == [1.0, 0.0, 1.0]


def test_the_result_is_a_copy() -> None:
    given = np.array([0.0, 1.0])
    as_scores(given, "clean")[0] = 0.5
    assert given.tolist() == [0.0, 1.0]


def test_missing_scores_are_kept() -> None:
    assert math.isnan(as_scores([1.0, math.nan], "clean")[1])


@pytest.mark.cases("value", [1.5, -0.01, 26.3, math.inf, -math.inf])
def test_a_score_outside_the_unit_interval_is_refused_with_its_place(value: float) -> None:
    with pytest.raises(
        ValueError, match=r"^clean\[2\] is .*: a score lies in \[0, 1\] \(a fraction, not a percentage\), or is NaN$"
    ):
        as_scores([0.0, 1.0, value], "clean")


def test_a_patch_score_outside_is_refused_with_row_and_column() -> None:
    with pytest.raises(ValueError, match=r"^patches\[1, 0\] is 2\.0: a score lies in"):
        as_scores([[0, 1], [2, 1]], "patches", axes=2)


def test_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^clean: expected scores of shape \(N,\), found shape \(1, 2\)$"):
        as_scores([[0, 1]], "clean")
    with pytest.raises(ValueError, match=r"^patches: expected scores of shape \(N, n\*n\), found shape \(2,\)$"):
        as_scores([0, 1], "patches", axes=2)


def test_answers_are_no_scores() -> None:
    with pytest.raises(
        ValueError, match=r"^clean: expected numbers in \[0, 1\], found values of dtype <U1\. Score the answers first$"
    ):
        as_scores(["A", "B"], "clean")


def test_unequal_lengths_are_refused_with_both() -> None:
    with pytest.raises(ValueError, match=r"^clean has 3 scores and perturbed has 2: paired scores belong to the same samples"):
        pair_scores(clean=[1, 0, 1], perturbed=[1, 0])
    with pytest.raises(ValueError, match=r"^clean has 2 scores and perturbed_by_setting\['fog:low'\] has 3"):
        against_clean([1, 0], {"fog:low": [1, 0, 1]})
    with pytest.raises(ValueError, match=r"perturbed_by_setting\['a'\] has 1 scores and perturbed_by_setting\['b'\] has 2"):
        by_setting({"a": [1], "b": [1, 0]})


def test_settings_are_known_by_their_text() -> None:
    scores = by_setting({Setting.parse("fog:low"): [1.0]})
    assert list(scores) == ["fog:low"]


def test_one_array_may_stand_for_several_settings() -> None:
    blind, scores = np.array([0.0, 1.0]), np.array([1.0, 1.0])
    stacked = by_setting({"a": blind, "b": blind, "c": scores, "d": blind})
    assert {name: values.tolist() for name, values in stacked.items()} == {
        "a": [0.0, 1.0],
        "b": [0.0, 1.0],
        "c": [1.0, 1.0],
        "d": [0.0, 1.0],
    }
    blind[0] = 1.0
    assert stacked["a"].tolist() == [0.0, 1.0], "the caller's array is copied"


def test_a_setting_given_twice_is_refused() -> None:
    twice: dict[str | Setting, list[int]] = {"fog:low": [1], Setting.parse("fog:low"): [0]}
    with pytest.raises(ValueError, match="the setting 'fog:low' is given twice, as text and as Setting"):
        by_setting(twice)  # type: ignore[arg-type]  # that is the point


def test_a_setting_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(SettingError, match="cannot read 'Fog Low'"):
        by_setting({"Fog Low": [1]})


def test_nothing_has_no_mean() -> None:
    assert math.isnan(mean(np.zeros(0)))
    assert math.isnan(mean(np.array([1.0, math.nan])))
    assert type(mean(np.array([1.0, 0.0]))) is float


def test_drops_of_equal_scores_are_exactly_zero() -> None:
    graded = np.random.default_rng(1).random(1000)
    assert drops(graded, graded[:, None]).tolist() == [0.0]


def test_drops_without_samples_are_unknown() -> None:
    assert np.isnan(drops(np.zeros(0), np.zeros((0, 3)))).tolist() == [True] * 3


def test_stacking_nothing_keeps_the_samples() -> None:
    assert stack_settings({}, 5).shape == (5, 0)
