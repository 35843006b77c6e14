from __future__ import annotations

import pytest

from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting
from pytest_vlmrobust.core.errors import SettingError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef
from pytest_vlmrobust.evaluation.run.plan import expand_settings, ladder, plan_cells, plan_families, plan_sweeps, read_grids


def model(name: str, family: str = "", size: float | None = None, mode: str = "direct") -> ModelRef:
    return ModelRef(name=name, backend="scripted", location="x", family=family, parameters_billion=size, prompt_mode=mode)


def named(*refs: ModelRef) -> dict[str, ModelRef]:
    return {ref.name: ref for ref in refs}


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
    sweeps = plan_sweeps(named(model("m"), model("n")), ["d"], ["visual_gain", "mean_drop"])
    assert [str(sweep) for sweep in sweeps] == ["m-d-visual_gain", "m-d-mean_drop", "n-d-visual_gain", "n-d-mean_drop"]


def test_metrics_of_a_split_are_planned_for_each() -> None:
    sweeps = plan_sweeps(named(model("m")), ["faces.matching"], ["identity_drop"], ["observatory_id", "observatory_ood"])
    assert [str(sweep) for sweep in sweeps] == [
        "m-faces.matching-identity_drop-observatory_id",
        "m-faces.matching-identity_drop-observatory_ood",
    ]


def test_what_thinking_gains_is_planned_for_models_with_a_twin() -> None:
    models = named(model("thinks", "intern", 8, "thinking"), model("plain", "intern", 8), model("alone", "qwen", 8, "thinking"))
    assert [str(sweep) for sweep in plan_sweeps(models, ["d"], ["thinking_gain"], ["clean"])] == ["thinks-d-thinking_gain-clean"]


def test_properties_of_families_are_planned_once_for_each_family() -> None:
    models = named(model("big", "qwen", 72), model("small", "qwen", 3), model("other", "gemma", 4))
    found = plan_families(models, ["d"], ["scale_gain", "scale_consistency"], ["clean"])
    assert [str(one) for one in found] == ["qwen-d-scale_gain-clean", "qwen-d-scale_consistency-clean"]
    assert plan_families(named(model("other", "gemma", 4)), ["d"], ["scale_gain"], ["clean"]) == []


def test_a_property_that_no_family_has_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown metric of a family 'scale_gian'\. Did you mean 'scale_gain'"):
        plan_families({}, ["d"], ["scale_gian"], ["clean"])


@pytest.mark.parametrize(("most", "orders"), [(0, 3), (4, 3), (7, 6), (26, 25)])
def test_options_have_as_many_orders_as_the_largest_choice_set(most: int, orders: int) -> None:
    found = [str(setting) for setting in expand_settings(["options"], most_options=most)]
    assert found == [f"option_order:{shift}" for shift in range(1, orders + 1)]


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
        f"--vlm-patches {text!r}: {wrong} is not a grid. Expected patches on a side, one or several of 2, 3, 4, 5, "
        "separated by commas"
    )


def test_a_mean_since_an_earlier_run_is_planned_only_where_there_is_one() -> None:
    models, metrics = named(model("m")), ["mean_drop", "mean_baseline_drop"]
    assert [str(sweep) for sweep in plan_sweeps(models, ["d"], metrics)] == ["m-d-mean_drop"]
    assert len(plan_sweeps(models, ["d"], metrics, baseline=True)) == 2
