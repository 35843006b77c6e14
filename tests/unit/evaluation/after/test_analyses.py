"""What the papers compute from several models, from the evidence of a run."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_vlmrobust import metrics
from pytest_vlmrobust.core.cell import Cell, Setting
from pytest_vlmrobust.core.estimate import Estimate
from pytest_vlmrobust.core.prediction import ModelRef, Prediction, Score
from pytest_vlmrobust.core.sample import Sample
from pytest_vlmrobust.evaluation.after.analyses import PatchIndex, mode_pairs, patch_analyses, rci_analyses
from pytest_vlmrobust.evaluation.after.published import paper
from pytest_vlmrobust.evaluation.after.ranking import rank
from pytest_vlmrobust.evaluation.after.standings import ModelAnalysis
from pytest_vlmrobust.evaluation.run.manifest import model_origin
from pytest_vlmrobust.evaluation.run.results import words_of_thinking
from pytest_vlmrobust.reporting.ranking import render_models
from pytest_vlmrobust.store import Answer, Evidence, StoredCell
from pytest_vlmrobust.store.run_directory import write_manifest

N = 60
SETTINGS = ("clean", "fog:low", "fog:high", "flip_v")
Right = Callable[[str], list[float]]


def model(lost: Mapping[str, int], clean: int = N) -> Right:
    """Returns scores: the first ``clean`` samples are right as they are, and of these the first ``lost[setting]`` turn wrong."""
    return lambda setting: [float(lost.get(setting, 0) <= place < clean) for place in range(N)]


def run(directory: Path, models: Mapping[str, Right], refs: Mapping[str, ModelRef] | None = None) -> Path:
    samples = [
        Sample(f"q{i}", (), f"{i}?", "AB"[i % 2], "choice", {"A": "a", "B": "b"}, category="first" if i < N // 2 else "last")
        for i in range(N)
    ]
    with Evidence.open(directory) as evidence:
        evidence.put_samples("data", "d", samples)
        for name, scores in models.items():
            for setting in SETTINGS:
                put(evidence, name, setting, scores(setting))
    if refs is not None:
        write_manifest(directory, {"models": {name: model_origin(ref) for name, ref in refs.items()}})
    return directory


def put(evidence: Evidence, name: str, setting: str, scores: list[float], views: int = 1, data: str = "data") -> None:
    answers = [
        Answer("k", Prediction("", "generate"), Score(score, "", None, "error" if math.isnan(score) else "scored"))
        for score in scores
    ]
    evidence.put_cells([StoredCell(Cell(name, data, Setting.parse(setting)), views, tuple(answers))])


def rows_of(directory: Path, name: str, **options: Any) -> dict[str, ModelAnalysis]:
    (board,) = rank([("", directory)], **options).boards
    return {f"{row.part} {row.of}".strip(): row for row in board.analyses if row.name == name}


A, B = model({"fog:low": 6, "fog:high": 12, "flip_v": 30}), model({"fog:high": 3, "flip_v": 30}, clean=50)


def test_tiers_of_each_model_and_level(tmp_path: Path) -> None:
    rows = rows_of(run(tmp_path, {"a": A, "b": B}), "tiers")
    assert list(rows) == [f"{name} {level}" for name in ("a", "b", "all models") for level in ("low", "high", "binary", "all")]
    assert {tier: share.value for tier, share in rows["a low"].values.items()}["moderate"] == 1.0
    assert rows["a all"].values["catastrophic"].value == pytest.approx(2 / 3)
    assert rows["b all"].values["benign"].value == pytest.approx(1 / 3)
    every = rows["all models all"].values
    assert {tier: round(6 * share.value) for tier, share in every.items()} == {
        "positive": 0,
        "benign": 1,
        "mild": 0,
        "moderate": 2,
        "catastrophic": 3,
    }
    assert every["benign"].n == 6


def test_costs_are_averaged_over_families_and_over_all_models(tmp_path: Path) -> None:
    refs = {"a": ref("a", 1), "b": ref("b", 4), "c": ref("c", 4, family="other")}
    directory = run(tmp_path, {"a": A, "b": B, "c": model({"fog:low": 60})}, refs)
    assert "without images" in rows_of(directory, "effects")["all models all"].values["relative_corruption_error"].reason
    assert rows_of(directory, "top_rce") == {}
    with Evidence.open(directory) as evidence:
        for name, right in (("a", 20), ("b", 10), ("c", 0)):
            put(evidence, name, "no_image", [float(place >= N - right) for place in range(N)])
    clean, gain = {"a": 60, "b": 50, "c": 60}, {"a": 40, "b": 40, "c": 60}
    lost = {"a": {"fog:low": 6, "fog:high": 12, "flip_v": 30}, "b": {"fog:high": 3, "flip_v": 30}, "c": {"fog:low": 60}}
    pools = {"a": "a", "b": "b", "c": "c", "fam (2 models)": "ab", "all models": "abc"}
    levels = {"low": ["fog:low"], "high": ["fog:high"], "binary": ["flip_v"], "all": ["fog:low", "fog:high", "flip_v"]}
    effects = rows_of(directory, "effects")
    assert list(effects) == [f"{pool} {level}" for pool in pools for level in levels]
    for pool, level in itertools.product(pools, levels):
        costs = effects[f"{pool} {level}"].values
        cells = [(name, lost[name].get(setting, 0)) for name in pools[pool] for setting in levels[level]]
        assert costs["accuracy_drop"].value == pytest.approx(np.mean([count / N for _, count in cells]))
        assert costs["accuracy_drop"].low <= costs["accuracy_drop"].value <= costs["accuracy_drop"].high
        assert costs["harmful_flip_rate"].value == pytest.approx(costs["accuracy_drop"].value)
        assert costs["relative_corruption_error"].value == pytest.approx(np.mean([count / gain[name] for name, count in cells]))
        assert costs["conditional_flip_rate"].value == pytest.approx(np.mean([count / clean[name] for name, count in cells]))
        assert math.isnan(costs["flip_ratio"].value)
    harmful = rows_of(directory, "most_harmful")
    assert list(harmful) == ["fog:low low", "fog:high high", "flip_v binary"]
    assert {name: drop.value for name, drop in harmful["fog:high high"].values.items()} == pytest.approx(
        {"a": 12 / N, "b": 3 / N, "c": 0.0, "fam (2 models)": 7.5 / N, "all models": 5 / N}
    )
    top = rows_of(directory, "top_rce")
    assert list(top) == ["flip_v all", "fog:low all", "fog:high all"]
    assert top["flip_v all"].values["all models"].value == pytest.approx((30 / 40 + 30 / 40) / 3)


def test_samples_without_a_score_are_no_part_of_costs(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    with Evidence.open(directory) as evidence:
        put(evidence, "a", "fog:low", [math.nan] * 6 + [1.0] * 54)
        for name in "ab":
            put(evidence, name, "no_image", [math.nan] + [0.0] * (N - 1))
    low = rows_of(directory, "effects")["a low"].values
    assert low["accuracy_drop"].value == low["harmful_flip_rate"].value == 0.0
    assert low["relative_corruption_error"].value == 0.0
    high = rows_of(directory, "effects")["a high"].values["relative_corruption_error"]
    assert math.isnan(high.value)
    assert high.reason


def test_corruption_errors_by_family_need_a_reference(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    assert rows_of(directory, "corruption_errors") == {}
    rows = rows_of(directory, "corruption_errors", reference="b")
    weather = rows["weather"].values
    assert weather["a"].value == pytest.approx((6 + 12) / (10 + 13))
    assert weather["a"].low < weather["a"].value < weather["a"].high
    assert (weather["b"].value, weather["b"].low) == (1.0, 1.0)
    perfect = rows_of(run(tmp_path / "p", {"a": A, "b": model({"flip_v": 1})}), "corruption_errors", reference="b")
    assert perfect["weather"].values["a"].reason == "b makes no error under fog"
    assert math.isnan(perfect["weather"].values["a"].value)
    assert perfect["binary"].values["a"].value == pytest.approx(30)


def test_questions_by_how_much_they_suffer(tmp_path: Path) -> None:
    rows = rows_of(run(tmp_path, {"a": A, "b": B}), "category_drops")
    assert list(rows) == ["first", "last"]
    first = rows["first"].values["a"]
    assert first.value == pytest.approx((6 + 12 + 30) / 90)
    assert first.n == 30
    assert first.low < first.value < first.high
    assert rows["last"].values["a"].value == 0.0


def ref(name: str, size: float, mode: str = "direct", family: str = "fam") -> ModelRef:
    return ModelRef(name, "scripted", "x", prompt_mode=mode, family=family, parameters_billion=size)


def test_the_drop_of_a_family_has_a_slope_with_an_interval(tmp_path: Path) -> None:
    models = {"s": A, "m": model({"fog:high": 6, "flip_v": 30}), "l": B}
    refs = {"s": ref("s", 1), "m": ref("m", 10), "l": ref("l", 100)}
    row = rows_of(run(tmp_path, models, refs), "size_trend")["fam"]
    drops = [48 / 180, 36 / 180, 33 / 180]
    assert (
        row.values["slope"].value
        == pytest.approx((drops[2] - drops[0]) / 2)
        == pytest.approx(metrics.size_trend([1, 10, 100], drops)[0])
    )
    assert row.values["slope"].low < row.values["slope"].value < row.values["slope"].high < 0.1
    assert row.values["r_squared"].value == pytest.approx(np.corrcoef([0, 1, 2], drops)[0, 1] ** 2)
    assert row.note == "s (1 B), m (10 B), l (100 B)"
    bare = run(tmp_path / "bare", models)
    assert rows_of(bare, "size_trend") == {}
    (said,) = rank([("", bare)]).left_out
    assert said.startswith("family, size and prompt mode of l, m, s are unknown: no manifest.json")


@pytest.mark.parametrize("models", [[], {"a": "x"}, {"a": {"backend": 3, "location": ""}}, {}])
def test_a_manifest_that_does_not_say_what_models_are_is_named(tmp_path: Path, models: object) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    write_manifest(directory, {"models": models})
    assert rank([("", directory)]).left_out[0].startswith("family, size and prompt mode of a, b are unknown")


def test_ways_of_asking_one_model_are_paired(tmp_path: Path) -> None:
    refs = {"d": ref("d", 4), "c": ref("c", 4, "cot"), "other": ref("other", 8)}
    rows = rows_of(run(tmp_path, {"c": B, "d": A, "other": A}, refs), "prompt_modes")
    assert {name: row.note for name, row in rows.items()} == {"c": "cot", "d": "direct", "c minus d": "cot minus direct"}
    assert rows["c"].values["clean_accuracy"].value == pytest.approx(50 / 60)
    assert rows["d"].values["mean_drop"].value == pytest.approx(48 / 180)
    assert rows["d"].values["catastrophic"].value == pytest.approx(2 / 3)
    row = rows["c minus d"]
    clean, drop = row.values["clean_accuracy"], row.values["mean_drop"]
    assert clean.value == pytest.approx(-10 / 60)
    assert drop.value == pytest.approx((33 - 48) / 180)
    assert clean.low < clean.value < clean.high < 0.0
    assert drop.low < drop.value < drop.high


def test_ways_of_asking_are_averaged_over_the_models_of_a_family(tmp_path: Path) -> None:
    refs = {"d4": ref("d4", 4), "c4": ref("c4", 4, "cot"), "d8": ref("d8", 8), "c8": ref("c8", 8, "cot")}
    rows = rows_of(run(tmp_path, {"d4": A, "c4": B, "d8": model({}), "c8": B}, refs), "prompt_modes")
    assert {*rows} == {"d4", "c4", "d8", "c8", "fam (2 models)", "fam-cot (2 models)", "c4 minus d4", "c8 minus d8"}
    assert rows["fam (2 models)"].values["mean_drop"].value == pytest.approx((48 / 180 + 0) / 2)
    assert rows["fam (2 models)"].values["benign"].value == pytest.approx(3 / 6)
    assert rows["fam-cot (2 models)"].note == "cot"


def test_models_of_one_location_are_one_model() -> None:
    here = {"d": ModelRef("d", "scripted", "x"), "t": ModelRef("t", "scripted", "x", prompt_mode="thinking")}
    assert mode_pairs({"t": here["t"], "d": here["d"]}) == [("d", "t")]
    assert mode_pairs({**here, "e": ModelRef("e", "scripted", "y", prompt_mode="cot")}) == [("d", "t")]
    assert mode_pairs({"t": dataclasses.replace(here["t"], adapter="lora"), "d": here["d"]}) == []
    assert mode_pairs({"t": dataclasses.replace(here["t"], system_prompt="Be brief."), "d": here["d"]}) == []
    assert mode_pairs({"d": here["d"], "same": dataclasses.replace(here["d"], name="same")}) == []


def test_pcri_by_task(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    with Evidence.open(directory) as evidence:
        for grid, right in ((2, 54), (3, 42)):
            best = [float(place < right) for place in range(N)]
            put(evidence, "a", f"patches:{grid}", [score for first in best for score in [first] + [0.0] * (grid**2 - 1)], grid**2)
        put(evidence, "b", "patches:2", [math.nan] + [0.0] * (4 * N - 1), 4)
        put(evidence, "b", "patches:3", [1.0] * (9 * N), 9)
    rows = rows_of(directory, "patch_tasks")
    assert {name: value.value for name, value in rows["a choice"].values.items()} == pytest.approx(
        {"2 x 2": 0.1, "3 x 3": 0.3, "relative_change": -2.0}
    )
    assert rows["a choice"].note == rows["a all tasks"].note == "of data"
    assert all(math.isnan(value.value) for value in rows["b choice"].values.values())
    assert rows["b choice"].note.startswith("of no dataset; lacks data (")


def index(model: str, dataset: str, value: float, task: str = "choice", grid: int = 2) -> PatchIndex:
    return PatchIndex(model, dataset, task, grid, Estimate(value, 9, reason="" if value == value else "no gain"))  # noqa: PLR0124


def test_one_pcri_of_a_model_is_the_mean_over_all_datasets() -> None:
    """Figure 2 of PCRI, from the published indices of its tables 5 to 7."""
    printed = [
        (value.about["model"], value.about["dataset"], number, value.about["setting"], value.number)
        for number in "567"
        for value in paper("pcri").tables[number].values
        if value.metric == "pcri" and not math.isnan(value.number)
    ]
    assert len(printed) > 300
    rows = patch_analyses([index(model, data, value, task, int(setting[-1])) for model, data, task, setting, value in printed])
    overall = {row.part: row for row in rows if row.of == "all tasks"}
    for model in {name for name, *_ in printed}:
        for grid in (2, 3):
            indices = [value for name, _, _, setting, value in printed if (name, setting) == (model, f"patches:{grid}")]
            assert overall[model].values[f"{grid} x {grid}"].value == pytest.approx(sum(indices) / len(indices))


def test_rci_of_the_paper_has_its_bands_and_its_agreement(golden: Callable[[str], list[dict[str, str]]]) -> None:
    """Table 2 of RCI: the models agree with r >= 0.91 (section 4.2.1); bands by percentile are fifths of thirteen datasets."""
    columns = {model: f"{model}_n2" for model in ("internvl2_5_1b", "qwen2_vl_2b", "molmo_1b")}
    table = golden("rci_table2")
    rows = rci_analyses([index(model, row["dataset"], float(row[column])) for row in table for model, column in columns.items()])
    agreement = [row for row in rows if row.name == "rci_correlations"]
    assert len(agreement) == 3
    assert all(row.values["pearson"].value >= 0.905 and row.note == "over 13 datasets" for row in agreement)
    bands = {row.part: row for row in rows if row.name == "rci_bands"}
    means = {row["dataset"]: sum(float(row[column]) for column in columns.values()) / 3 for row in table}
    ordered = sorted(means, key=means.__getitem__)
    for name, row in bands.items():
        assert row.values["all models"].value == pytest.approx(means[name])
        fifth = math.ceil(5 * ordered.index(name) / 12) or 1  # the ends of fifths of 13 are 2.4, 4.8, 7.2 and 9.6 steps up
        assert row.note == f"{metrics.rci_band(means[name])}; by percentile: {metrics.RCI_BANDS[fifth - 1]}"


def test_few_datasets_and_unknown_indices_have_no_band_by_percentile() -> None:
    rows = rci_analyses([index(model, "a", math.nan) for model in "ab"])
    assert [row.note for row in rows if row.name == "rci_bands"] == [
        "no band; by percentile: no band; without a (no gain), b (no gain)"
    ]
    rows = rci_analyses([index(model, data, 0.35) for model in "ab" for data in "cd"])
    assert rows[0].note == "strong global; by percentile: needs 5 datasets"
    assert math.isnan(rows[-1].values["pearson"].value)
    with pytest.raises(ValueError, match="NaN"):
        metrics.percentile_bands({"a": math.nan})


def test_a_model_without_an_index_is_named_and_takes_no_band_from_the_others() -> None:
    rows = rci_analyses([index("a", "d", 0.35), index("b", "d", 0.35), index("weak", "d", math.nan)])
    (band,) = [row for row in rows if row.name == "rci_bands"]
    assert (band.values["all models"].value, band.values["all models"].n) == (0.35, 2)
    assert band.note == "strong global; by percentile: needs 5 datasets; without weak (no gain)"


def test_reference_models_of_separate_runs_are_correlated(tmp_path: Path) -> None:
    runs = []
    for name, rights in (("a", (54, 40)), ("b", (50, 45))):
        directory = run(tmp_path / name, {name: model({})}, {name: ref(name, 1)})
        with Evidence.open(directory) as evidence:
            samples = evidence.samples("data")
            evidence.put_samples("more", "e", samples)
            for data, right in zip(("data", "more"), rights, strict=True):
                for setting in ("clean", "fog:low"):
                    put(evidence, name, setting, [1.0] * N, data=data)
                best = [float(place < right) for place in range(N)]
                put(evidence, name, "patches:2", [score for first in best for score in (first, 0.0, 0.0, 0.0)], 4, data=data)
        runs.append(("", directory))
    rows = [row for row in rank(runs).boards[0].analyses if row.name.startswith("rci")]
    assert [row.part for row in rows] == ["data", "more", "a and b"]
    assert rows[0].values["a"].value == pytest.approx(1 - 54 / 60)
    assert rows[0].values["all models"].value == pytest.approx(1 - 52 / 60)
    assert rows[2].values["pearson"].value == pytest.approx(1.0)
    assert "Agreement of models about RCI" in render_models(rank(runs))


def test_pcri_of_a_model_that_is_not_above_chance_is_no_part_of_the_mean(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": model({}, clean=30)})
    with Evidence.open(directory) as evidence:
        for name in "ab":
            put(evidence, name, "patches:2", [1.0] * (4 * N), 4)
    rows = rows_of(directory, "patch_tasks")
    assert rows["a choice"].values["2 x 2"].value == 0.0
    assert math.isnan(rows["b choice"].values["2 x 2"].value)
    assert "the full-image score of 50.0 % is below" in rows["b choice"].note


def test_a_grid_that_one_model_was_not_asked_about_counts_for_none(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    with Evidence.open(directory) as evidence:
        put(evidence, "a", "patches:2", [1.0] * (4 * N), 4)
    assert rows_of(directory, "patch_tasks") == {}


def test_chains_of_thought_by_what_came_of_them(tmp_path: Path) -> None:
    """Without thinking the first 10 are wrong, with it those from 5 to 19; a fix takes 3 words, all else 9."""
    refs = {"d": ref("d", 4), "t": ref("t", 4, "thinking")}
    directory = run(tmp_path, {"d": model({}), "t": model({})}, refs)
    with Evidence.open(directory) as evidence:
        for name, wrong in (("d", range(10)), ("t", range(5, 20))):
            answers = []
            for place in range(N):
                words = "I see it" if place < 5 else "I look again and again and do not know"
                text = f"<think>{words}</think> A" if name == "t" else "A"
                answers.append(Answer("k", Prediction(text, "generate"), Score(float(place not in wrong), "", None, "scored")))
            evidence.put_cells([StoredCell(Cell(name, "data", Setting.parse("fog:low")), 1, tuple(answers))])
    rows = rows_of(directory, "chain_lengths")
    counts = {name: row.values["answers"].value for name, row in rows.items() if "perturbed" in name}
    assert counts == {
        "t after d fixes, perturbed": 5,
        "t after d does not fix, perturbed": 5,
        "t after d breaks, perturbed": 10,
        "t after d keeps, perturbed": 40 + 2 * N,
    }
    assert rows["t after d fixes, perturbed"].values["median"].value == 3
    assert rows["t after d breaks, perturbed"].values["median"].value == 9
    assert rows["t after d keeps, clean"].values["answers"].value == N
    assert math.isnan(rows["t after d fixes, clean"].values["median"].value)


@pytest.mark.cases(
    ("text", "words"),
    [("<think>one two</think> A", 2), ("one two. Answer: A", 4), ("<think>one two three", 4 - 1), ("A", 1), ("", 0)],
)
def test_words_of_thinking(text: str, words: int) -> None:
    assert words_of_thinking(text) == words


def test_contributions_of_patches_have_boxes(tmp_path: Path) -> None:
    directory = run(tmp_path, {"a": A, "b": B})
    with Evidence.open(directory) as evidence:
        for name, right in (("a", (1.0, 0.0, 0.0, 0.0)), ("b", (1.0, 1.0, 0.0, 0.0))):
            put(evidence, name, "patches:2", [*right] * N, 4)
    rows = rows_of(directory, "patch_boxes")
    assert list(rows) == [f"2 x 2 patch {place}" for place in (1, 2, 3, 4)]
    first = {name: value.value for name, value in rows["2 x 2 patch 1"].values.items()}
    assert first == pytest.approx(
        {"lowest": 0.5, "lower_quartile": 0.625, "median": 0.75, "upper_quartile": 0.875, "highest": 1.0}
    )
    assert rows["2 x 2 patch 4"].values["highest"].value == 0.0
    page = render_models(rank([("", directory)]))
    assert "Contribution of each patch of 2 x 2" in page
    assert page.count("<svg") >= 3
