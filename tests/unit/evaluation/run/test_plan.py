from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import CLEAN, NO_IMAGE, Setting, SweepMetric
from pytest_vlmrobust.core.decision import Outcome
from pytest_vlmrobust.core.errors import SettingError, UnknownName, UsageError
from pytest_vlmrobust.core.prediction import ModelRef, Request
from pytest_vlmrobust.core.record import Record
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.judge.judge import Judge
from pytest_vlmrobust.evaluation.judge.scopes import known_metrics
from pytest_vlmrobust.evaluation.judge.strata import estimates_by_stratum, macro_estimate, rows_of, strata
from pytest_vlmrobust.evaluation.run.plan import (
    expand_settings,
    families,
    ladder,
    non_thinking_counterpart,
    plan_cells,
    plan_families,
    plan_sweeps,
    read_grids,
)
from pytest_vlmrobust.metrics.table import ScoreTable
from pytest_vlmrobust.policies import Policy, load_policy
from tests.unit.evaluation.conftest import World, present, sample, sweep_of


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
    planned = plan_families(models, ["d"], ["scale_gain", "scale_consistency"], ["clean"])
    assert [str(test) for test in planned] == ["qwen-d-scale_gain-clean", "qwen-d-scale_consistency-clean"]
    assert plan_families(named(model("other", "gemma", 4)), ["d"], ["scale_gain"], ["clean"]) == []


def test_a_property_that_no_family_has_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"unknown metric of a family 'scale_gian'\. Did you mean 'scale_gain'"):
        plan_families({}, ["d"], ["scale_gian"], ["clean"])


@pytest.mark.parametrize(("most", "orders"), [(0, 3), (4, 3), (7, 6), (26, 25)])
def test_options_have_as_many_orders_as_the_largest_choice_set(most: int, orders: int) -> None:
    names = [str(setting) for setting in expand_settings(["options"], most_options=most)]
    assert names == [f"option_order:{shift}" for shift in range(1, orders + 1)]


def test_patches_are_the_grids_of_the_run() -> None:
    assert spelled(["patches"]) == ["patches:2", "patches:3"]
    assert [str(setting) for setting in expand_settings(["patches"], grids=(2, 5))] == ["patches:2", "patches:5"]
    assert spelled(["patches:4"]) == ["patches:4"]
    assert read_grids("2, 3,4,5,3") == (2, 3, 4, 5)


@pytest.mark.cases(("text", "wrong"), [("", "''"), ("2,6", "'6'"), ("2;3", "'2;3'"), ("1", "'1'"), ("02", "'02'")])
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


def test_members_stand_in_order_of_size_whatever_the_order_of_the_run() -> None:
    models = named(model("c", "qwen", 72), model("a", "qwen", 3), model("b", "qwen", 7))

    assert families(models)["qwen"].members == ("a", "b", "c")
    assert families(models)["qwen"].parameters == (3, 7, 72)
    assert families(models)["qwen"].largest == "c"


def test_one_size_makes_no_family() -> None:
    assert families(named(model("a", "qwen", 3), model("b", "gemma", 4), model("c", "qwen", 3))) == {}


def test_models_without_family_or_size_belong_to_none() -> None:
    assert families(named(model("a", "qwen"), model("b", "", 4), model("c", "qwen", 3))) == {}


def test_thinking_models_are_compared_among_themselves() -> None:
    refs = [model(f"{mode}-{size}", "intern", size, mode) for mode in ("direct", "thinking") for size in (8, 14)]

    by_name = families(named(*refs))

    assert by_name["intern"].members == ("direct-8", "direct-14")
    assert by_name["intern-thinking"].members == ("thinking-8", "thinking-14")


def test_a_family_called_like_a_model_is_refused() -> None:
    with pytest.raises(UsageError, match="family 'qwen' has the name of a model"):
        families(named(model("qwen", "qwen", 3), model("b", "qwen", 7)))


def test_the_twin_of_a_thinking_model_has_its_family_and_size() -> None:
    models = named(
        model("other-size", "intern", 14),
        model("plain", "intern", 8),
        model("thinks", "intern", 8, "thinking"),
        model("x", "", 8),
    )

    assert non_thinking_counterpart(models, "thinks") == "plain"
    assert non_thinking_counterpart(models, "plain") == ""
    assert non_thinking_counterpart(named(model("thinks", "intern", 8, "thinking")), "thinks") == ""
    assert non_thinking_counterpart(named(model("thinks", "", 8, "thinking"), model("x", "", 8)), "thinks") == ""


def test_of_several_twins_the_direct_one_counts_and_two_are_refused() -> None:
    thinks = model("thinks", "intern", 8, "thinking")
    assert (
        non_thinking_counterpart(named(model("reasons", "intern", 8, "cot"), model("plain", "intern", 8), thinks), "thinks")
        == "plain"
    )
    assert non_thinking_counterpart(named(model("reasons", "intern", 8, "cot"), thinks), "thinks") == "reasons"
    said = "'thinks' could be compared with 'older' or 'plain', which have its family 'intern' and its size. Gate them in runs of"
    with pytest.raises(UsageError, match=said):
        non_thinking_counterpart(named(model("plain", "intern", 8), model("older", "intern", 8), thinks), "thinks")


# Curves over resolutions by category and sub-task, and the mean over categories.


EDGES = (4, 8, 12, 15)
RUNGS = [Setting.parse(f"resolution:{edge}") for edge in EDGES]
ACCURACY = sweep_of("resolution_accuracy")


def samples(sizes: dict[str, int], **keys: str) -> list[Sample]:
    names = [name for name, size in sizes.items() for _ in range(size)]
    return [sample(number, category=name, keys=keys) for number, name in enumerate(names)]


def table(rungs: Sequence[Sequence[float]]) -> ScoreTable:
    scores = np.array(rungs)
    return ScoreTable(
        clean=scores[:, -1],
        by_setting={f"resolution:{edge}": scores[:, column] for column, edge in enumerate(EDGES)},
        no_image=scores[:, 0],
        groups=[f"g{row}" for row in range(len(scores))],
        chances=np.full(len(scores), 0.25),
        patches_by_setting={"patches:2": np.tile(scores[:, :1], 4)},
        chance=None,
    )


def test_strata_are_categories_and_then_sub_tasks() -> None:
    questions = [
        sample(0, category="OCR", keys={"sub_task": "KIE"}),
        sample(1, category="OCR", keys={"sub_task": "STU"}),
        sample(2, category="Math", keys={"sub_task": "Geo"}),
        sample(3, category="Math"),
        sample(4, category=""),
    ]
    places = {name: kept.nonzero()[0].tolist() for name, kept in strata(questions).items()}
    assert places == {"Math": [2, 3], "OCR": [0, 1], "Math/Geo": [2], "OCR/KIE": [0], "OCR/STU": [1]}
    assert list(places)[:2] == ["Math", "OCR"]
    assert strata([sample(0, category="one"), sample(1, category="one")]) == {}


def test_a_part_of_a_table_keeps_what_belongs_together() -> None:
    whole = table([[0, 0, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]])
    part = rows_of(whole, np.array([True, False, True]))
    assert part.groups == ["g0", "g2"]
    assert part.matrix().tolist() == [[0, 0, 0, 1], [1, 1, 1, 1]]
    assert part.patches("patches:2").shape == (2, 4)
    assert present(part.no_image).tolist() == [0, 1]


def test_each_stratum_has_the_curve_of_its_samples() -> None:
    questions = samples({"a": 2, "b": 3})
    rungs = [[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 0], [1, 0, 0, 1]]
    estimates = estimates_by_stratum("absolute_continuous_error", table(rungs), questions)
    assert estimates["a"].value == pytest.approx(1.0)
    assert estimates["b"].value == pytest.approx(2 / 3 + 1 / 3 + 0.0)
    assert (estimates["a"].n, estimates["b"].n) == (2, 3)


def test_the_macro_mean_counts_categories_the_same() -> None:
    questions = samples({"a": 3, "b": 1})
    scores = table([[1, 1, 1, 1]] * 3 + [[0, 0, 0, 0]])
    macro = present(macro_estimate("resolution_accuracy", scores, questions))
    assert macro.value == pytest.approx(0.5)
    assert metrics.estimate("resolution_accuracy", scores).value == pytest.approx(0.75)
    correlation = present(macro_estimate("resolution_correlation", scores, questions))
    assert not correlation.finite
    assert correlation.reason == "on the mean curve of 2 categories; undefined"


def test_without_categories_there_is_no_macro_mean() -> None:
    scores = table([[1, 1, 1, 1], [0, 0, 0, 0]])
    assert macro_estimate("resolution_accuracy", scores, samples({"a": 2})) is None
    assert macro_estimate("resolution_accuracy", scores, samples({"a": 1, "": 1})) is None
    assert macro_estimate("resolution_noise_floor", scores, samples({"a": 1, "b": 1})) is None, "it reads samples, not a curve"


def answer(request: Request) -> str:
    """Reads pictures of category odd at any size, those of even only at 12 pixels and more."""
    odd = int(request.sample_id[1:]) % 2
    return "B" if odd or not request.images or max(request.images[0].shape) >= 12 else "A"


@pytest.fixture
def judged(world: World, tmp_path: Path) -> Callable[..., Record]:
    """Judges a sweep by the rules of a thresholds file."""
    world.model.answer = answer

    def made(rules: str = "", about: SweepMetric = ACCURACY) -> Record:
        policy = Policy()
        if rules:
            (tmp_path / "policy.yaml").write_text(f"version: 1\ndefaults: {{judge: point}}\nrules:\n  - {rules}\n", "utf-8")
            policy = load_policy([tmp_path / "policy.yaml"], known_metrics=known_metrics(), root=tmp_path)
        return Judge(world.evaluator(), {"model": policy}, date(2026, 6, 1)).run(about, RUNGS)

    return made


def test_a_sweep_says_what_each_category_does(judged: Callable[..., Record]) -> None:
    record = judged()
    values = {(measure.metric, measure.category): measure.value for measure in record.measures}
    assert values == {
        ("resolution_accuracy", ""): 0.75,
        ("resolution_accuracy.macro", ""): 0.75,
        ("resolution_accuracy", "even"): 0.5,
        ("resolution_accuracy", "odd"): 1.0,
    }
    assert record.categories == {"even": 0.5, "odd": 1.0}
    assert {measure.n for measure in record.measures if measure.category} == {3}
    assert Record.from_json(record.to_json()).categories == record.categories


def test_rules_may_be_about_one_category_or_the_macro_mean(judged: Callable[..., Record]) -> None:
    record = judged("{id: even, metric: resolution_accuracy, where: {category: even}, min: 60%}")
    assert record.outcome is Outcome.FAIL
    assert [measure.outcome.value for measure in record.measures] == ["MEASURED", "MEASURED", "FAIL", "MEASURED"]
    assert judged("{id: macro, metric: resolution_accuracy.macro, min: 70%}").outcome is Outcome.PASS
    assert judged("{id: macro, metric: resolution_accuracy.macro, min: 80%}").outcome is Outcome.FAIL


def test_other_sweeps_are_not_taken_apart(judged: Callable[..., Record]) -> None:
    record = judged(about=sweep_of("worst_case_drop"))
    assert [measure.metric for measure in record.measures] == ["worst_case_drop"]
    assert record.categories == {}
