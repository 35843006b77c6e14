from __future__ import annotations

import pytest

from pytest_vlmrobust.core.errors import SettingError, UnknownName, UsageError
from pytest_vlmrobust.core.setting import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.evaluation.plan import expand_settings, ladder, plan_cells, plan_sweeps, read_grids


def spelled(names: list[str]) -> list[str]:
    return [str(setting) for setting in expand_settings(names)]


def test_a_set_stands_for_its_settings() -> None:
    settings = spelled(["clean", "no_image", "robustbench"])
    assert settings[:2] == ["clean", "no_image"]
    assert len(settings) == len(set(settings)) == 135
    assert {"glass_blur:low", "flip_v"} < set(settings)


def test_settings_stand_where_they_were_first_named() -> None:
    assert spelled(["flip_v", "fog:high", "flip_v"]) == ["flip_v", "fog:high"]
    assert spelled(["fog:mid+flip_h"]) == ["fog:mid+flip_h"]
    assert spelled(["flip_v", "robustbench"])[0] == "flip_v"
    assert len(spelled(["flip_v", "robustbench"])) == 133


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown setting, or set of settings 'flip_w'\. Did you mean 'flip_v'\?"):
        expand_settings(["clean", "flip_w"])
    with pytest.raises(UnknownName, match=r"'robustbnch'\. Did you mean 'robustbench'\?"):
        expand_settings(["robustbnch"])
    with pytest.raises(UnknownName, match=r"unknown perturbation 'fogg'\. Did you mean 'fog'\?"):
        expand_settings(["fogg:low"])


@pytest.mark.parametrize("name", ["fog", "fog:hihg", "flip_v:low", "fog:low+"])
def test_a_setting_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"setting"):
        expand_settings([name])


def test_baselines_come_first_and_models_stay_together() -> None:
    settings = [Setting.parse(name) for name in ("flip_v", "no_image", "fog:low", "clean")]
    cells = plan_cells(["m", "n"], dict.fromkeys(["d", "e"], settings))
    assert [str(cell) for cell in cells[:5]] == ["m-d-clean", "m-d-no_image", "m-d-flip_v", "m-d-fog:low", "m-e-clean"]
    assert [cell.model for cell in cells] == ["m"] * 8 + ["n"] * 8
    assert len({str(cell) for cell in cells}) == 16


def test_only_what_was_asked_for_is_planned() -> None:
    assert [cell.setting for cell in plan_cells(["m"], {"d": [NO_IMAGE]})] == [NO_IMAGE]
    assert plan_cells(["m"], {}) == []
    assert plan_cells([], {"d": [CLEAN]}) == []


def test_the_ladder_has_twelve_rungs_up_to_the_size_of_the_pictures() -> None:
    rungs = [f"resolution:{edge}" for edge in (13, 27, 40, 53, 67, 80, 93, 107, 120, 133, 147, 160)]
    assert [str(setting) for setting in expand_settings(["clean", "ladder"], 160)] == ["clean", *rungs]
    assert spelled(["ladder"]) == spelled(["resolution"])
    assert ladder(4) == ["resolution:1", "resolution:2", "resolution:3", "resolution:4"]


def test_sweeps_stand_in_the_order_of_the_suite() -> None:
    sweeps = plan_sweeps(["m", "n"], ["d"], ["visual_gain", "mean_drop"])
    assert [str(sweep) for sweep in sweeps] == ["m-d-visual_gain", "m-d-mean_drop", "n-d-visual_gain", "n-d-mean_drop"]


def test_patches_are_the_grids_of_the_run() -> None:
    assert spelled(["patches"]) == ["patches:2", "patches:3"]
    assert [str(setting) for setting in expand_settings(["patches"], grids=(2, 5))] == ["patches:2", "patches:5"]
    assert spelled(["patches:4"]) == ["patches:4"]
    assert read_grids("2, 3,4,5,3") == (2, 3, 4, 5)


@pytest.mark.parametrize(("text", "wrong"), [("", "''"), ("2,6", "'6'"), ("2;3", "'2;3'"), ("1", "'1'"), ("02", "'02'")])
def test_what_is_no_grid_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_grids(text)
    assert str(caught.value) == (
        f"--vlm-patches {text!r}: {wrong} is no grid. Expected patches on a side, one or several of 2, 3, 4, 5, "
        "separated by commas"
    )
